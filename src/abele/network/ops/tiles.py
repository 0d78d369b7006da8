"""Ops with explicit placement: row i of an array lies, in one piece, on the i-th of some tiles.

They bypass the choice of layouts: ``tile_put`` of f32[3, 100] with ``tiles=[4, 7, 9]`` puts 400 bytes on each of three
tiles, and a ``tile_map`` on them is one compute set of three vertices, which read and write in place. What enters a
network and is first read by a ``tile_put`` arrives on its tiles, without a copy on the machine.

A ``tile_map`` has the name of its vertex and of the fields that its operands and results are wired to. Vertices are
those of PopLibs by name, those of a C++ file, and those of :data:`VERTEX_FINDERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.codelet import CodeletDef
from abele.codelet.names import normalised
from abele.errors import UnknownVertexTypeError, UnsupportedOpError, nearest
from abele.graph import Copy, CycleStamp, Execute, GetHwSeeds, Graph, Regions, SetHwSeeds, Sync, Tensor
from abele.graph.gather import gathered
from abele.graph.regions import rows
from abele.llvm.random import hash_u32
from abele.network.ir import BlockBuilder, Dense, NetworkOp, Shape, Value
from abele.network.registry import Gradients, OpRule, Types, no_derivative, only, require, rule
from abele.numerics import ElementType, as_element_type, u32
from abele.poplibs.public_vertices import library

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

VERTEX_FINDERS: dict[str, Callable[[str], CodeletDef]] = {}
"""Functions that give the vertex of a name, by the namespace of the name."""

MEANINGS: dict[str, Callable[..., Sequence[Array]]] = {}
"""Meanings of ``tile_map`` ops in NumPy: from all rows of the operands to all rows of each result."""

SEED_WORDS = 4
"""32-bit words of a worker's random state. Source: GetHwSeeds, u32[tiles, workers, 4]."""


# --- making ops -------------------------------------------------------------------------------------------------------


def tile_put(net: BlockBuilder, value: Value, tiles: Sequence[int], *, replicated: bool = False) -> Value:
    """``value`` on tiles.

    Args:
        net: Network or block to extend.
        value: Value to place.
        tiles: Tile of each row of the result.
        replicated: True for a copy of all of ``value`` on each tile; otherwise each tile gets a row of it.
    """
    shape = (len(tiles), *value.shape) if replicated else value.shape
    return net.emit("tile_put", [value], shape, value.dtype, tiles=tuple(tiles), replicated=replicated)


def tile_constant(net: BlockBuilder, contents: Array, dtype: ElementType, tiles: Sequence[int]) -> Value:
    """A constant whose row i is part of the program on ``tiles[i]``."""
    value = Dense(contents if not contents.flags.writeable else np.array(contents, dtype.np))
    return net.emit("tile_constant", [], contents.shape, dtype, tiles=tuple(tiles), value=value)


def tile_gather(
    net: BlockBuilder, value: Value, held: Sequence[int], indices: Sequence[int], tiles: Sequence[int], *, copy: bool
) -> Value:
    """Rows of ``value`` by number, on tiles.

    Args:
        net: Network or block to extend.
        value: Rows to choose from.
        held: The tile of each row of ``value``; empty where its rows lie anywhere, and are copied.
        indices: Number of each row of the result.
        tiles: Tile of each row of the result.
        copy: True to copy rows that are on their tile already, too.
    """
    shape = (len(indices), *value.shape[1:])
    attributes = {"held": tuple(held), "indices": tuple(indices), "tiles": tuple(tiles), "copy": copy}
    return net.emit("tile_gather", [value], shape, value.dtype, **attributes)


def tile_barrier(net: BlockBuilder, values: Sequence[Value]) -> tuple[Value, ...]:
    """``values``, none of which is there before all of them are."""
    return net.emit_many("tile_barrier", values, [v.type for v in values])


def tile_cycles(
    net: BlockBuilder, values: Sequence[Value], tiles: Sequence[int], *, sync: bool = False
) -> tuple[Value, ...]:
    """``values``, and after them the cycle counter of each tile when they are there: u32[tiles, 2], low word first.

    Args:
        net: Network or block to extend.
        values: Values that the reading waits for.
        tiles: Tiles whose counters are read.
        sync: True for a barrier of all tiles before it.
    """
    kinds = [*(v.type for v in values), ((len(tiles), 2), u32)]
    return net.emit_many("tile_cycles", values, kinds, tiles=tuple(tiles), sync=sync)


def tile_map(
    net: BlockBuilder,
    vertex: str,
    operands: Sequence[tuple[str, Value]],
    results: Sequence[tuple[str, Shape, ElementType]],
    tiles: Sequence[int],
    *,
    source: str = "",
    rows: Sequence[tuple[str, int]] = (),
    slices: Sequence[tuple[str, Sequence[tuple[int, int]]]] = (),
    scratch: Sequence[tuple[str, int, ElementType]] = (),
    state: Sequence[tuple[str, Any]] = (),
    meaning: str = "",
) -> tuple[Value, ...]:
    """Results of one compute set: a vertex for each row of the operands.

    Args:
        net: Network or block to extend.
        vertex: Name of the vertex.
        operands: Field and value of each operand, all of ``len(tiles)`` rows.
        results: Field, shape and type of each result. One with the field of an operand overwrites it.
        tiles: Tile of each vertex.
        source: C++ file, or source text, that has the vertex; empty for those of libraries.
        rows: Fields that take a list of vectors, with the number of vectors that a vertex gets.
        slices: Fields that take a list of vectors, with the first and the end element of each.
        scratch: Fields that need memory during the call alone, with the number and the type of elements.
        state: Fields of the vertex that are numbers.
        meaning: Name in :data:`MEANINGS`.
    """
    return net.emit_many(
        "tile_map",
        [value for _, value in operands],
        [(shape, dtype) for _, shape, dtype in results],
        vertex=vertex,
        source=source,
        tiles=tuple(tiles),
        reads=tuple(field for field, _ in operands),
        makes=tuple(field for field, _, _ in results),
        rows=tuple((field, int(count)) for field, count in rows),
        slices=tuple((field, tuple((int(b), int(e)) for b, e in each)) for field, each in slices),
        scratch=tuple((field, int(count), str(dtype)) for field, count, dtype in scratch),
        state=tuple((field, value) for field, value in state),
        meaning=meaning,
    )


def tile_seeds(net: BlockBuilder, tiles: Sequence[int], after: Sequence[Value] = ()) -> Value:
    """Random states of the workers of some tiles, u32[tiles, workers, 4], when what is in ``after`` is there."""
    return net.emit("tile_seeds", after, (len(tiles), WORKERS, SEED_WORDS), u32, tiles=tuple(tiles))


def tile_set_seeds(net: BlockBuilder, seeds: Value, tiles: Sequence[int], after: Sequence[Value] = ()) -> Value:
    """``seeds``, u32[tiles, workers, 4], which are then the random states of the workers of some tiles."""
    return net.emit("tile_set_seeds", [seeds, *after], seeds.shape, u32, tiles=tuple(tiles))


def tile_random(
    net: BlockBuilder,
    distribution: str,
    tiles: Sequence[int],
    size: int,
    dtype: ElementType,
    offset: float,
    scale: float,
    after: Sequence[Value] = (),
) -> Value:
    """Numbers drawn by the workers of tiles from their states, which move on.

    Args:
        net: Network or block to extend.
        distribution: ``uniform`` in [offset − scale / 2, offset + scale / 2), or ``normal`` of mean ``offset`` and
            deviation ``scale``.
        tiles: Tile of each row.
        size: Elements of a row.
        dtype: Type of the numbers.
        offset: See ``distribution``.
        scale: See ``distribution``.
        after: Draws and settings before it, so that these numbers are others.
    """
    require(distribution in ("uniform", "normal"), f"there is no distribution {distribution!r}")
    attributes = {"distribution": distribution, "offset": float(offset), "scale": float(scale)}
    return net.emit("tile_random", after, (len(tiles), size), dtype, tiles=tuple(tiles), **attributes)


WORKERS = 6
"""Worker threads of a tile, each of which has a random state. Source: machine reference §1.4."""


# --- placement --------------------------------------------------------------------------------------------------------


def on_tiles(graph: Graph, shape: Shape, dtype: ElementType, tiles: Sequence[int], name: str) -> Tensor:
    """A new variable whose row i lies on ``tiles[i]``."""
    return graph.variable(dtype, shape, name=name or "rows").map_rows(tiles)


def lies_on(graph: Graph, tensor: Tensor, tiles: Sequence[int]) -> bool:
    """True if each row of ``tensor`` is one piece of memory of its tile, and of no other row's."""
    if tensor.contains_aliases:
        return False
    each = tensor.size // max(1, tensor.shape[0])
    if not each:
        return True
    if (rows(tensor).counts != 1).any():
        return False
    mapping, starts = graph.mapping_of(tensor), np.arange(len(tiles), dtype=np.int64) * each
    return bool(not (mapping.begin % each).any() and (mapping.tiles_of(starts) == np.asarray(tiles)).all())


def placed(to: Lowering, value: Value, tiles: Sequence[int]) -> Tensor:
    """The tensor of a value with row i on ``tiles[i]``: its own, or a copy of it."""
    tensor = to[value]
    return tensor if lies_on(to.graph, tensor, tiles) else moved(to, tensor, tiles, value.name)


def moved(to: Lowering, tensor: Tensor, tiles: Sequence[int], name: str) -> Tensor:
    """A copy of ``tensor`` with row i on ``tiles[i]``."""
    made = on_tiles(to.graph, tensor.shape, tensor.dtype, tiles, name)
    to.prog.add(Copy(tensor, made, name="tile_put"))
    return made


class OnTiles(OpRule):
    """A kind whose first result has a row for each tile of its attribute."""

    folds = False
    depends_on_operands_alone = False

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Rows on the op's tiles, for operands that have one for each."""
        value, tiles = op.inputs[operand], op.attrs["tiles"]
        if value.ndim == 0 or value.shape[0] != len(tiles) or op.attrs.get("replicated"):
            return None
        return on_tiles(to.graph, value.shape, value.dtype, tiles, value.name)


def _check_rows(op: NetworkOp, value: Value) -> None:
    num = len(op.attrs["tiles"])
    require(value.ndim and value.shape[0] == num, f"{value} has to have a row for each of {num} tiles")


# --- kinds ------------------------------------------------------------------------------------------------------------


@rule("tile_put")
class TilePut(OnTiles):
    """Its operand with a row on each tile, or all of it on each."""

    attributes: ClassVar = {"tiles": tuple, "replicated": bool}

    def types(self, op: NetworkOp) -> Types:
        """The operand's type, with one dimension before it where each tile gets all."""
        (value,), tiles = op.inputs, op.attrs["tiles"]
        if not op.attrs["replicated"]:
            _check_rows(op, value)
            return [value.type]
        return [((len(tiles), *value.shape), value.dtype)]

    def evaluate(self, op: NetworkOp, value: Array) -> Array:
        """The rows."""
        return np.broadcast_to(value, op.output.shape)

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """Constant on the tiles, of a constant."""
        contents = net.contents(op.inputs[0])
        if contents is None:
            return None
        return tile_constant(net, np.broadcast_to(contents, op.output.shape), op.output.dtype, op.attrs["tiles"])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """Nothing for rows in place, else one copy."""
        (value,), tiles = op.inputs, op.attrs["tiles"]
        tensor = to[value]
        if op.attrs["replicated"]:
            tensor = tensor.expand_dims(0).broadcast(len(tiles), 0)
        elif lies_on(to.graph, tensor, tiles):
            return tensor
        to.own(op.output)
        return moved(to, tensor, tiles, value.name)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient; of copies their sum."""
        from abele.network.ops.reduction import reduce

        grad = only(grads)
        return [reduce(net, grad, [0], "add") if op.attrs["replicated"] else grad]


@rule("tile_constant")
class TileConstant(OnTiles):
    """Numbers that are part of the program, a row on each tile."""

    operands = 0
    attributes: ClassVar = {"tiles": tuple, "value": Dense}

    def types(self, op: NetworkOp) -> Types:
        """Type of the contents."""
        contents = op.attrs["value"].contents
        require(contents.dtype == op.output.dtype.np, f"the contents are {contents.dtype}, not {op.output.dtype}")
        _check_rows(op, op.output)
        return [(contents.shape, op.output.dtype)]

    def evaluate(self, op: NetworkOp) -> Array:
        """The contents."""
        return np.asarray(op.attrs["value"].contents)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One constant of the graph."""
        contents, tiles = op.attrs["value"].contents, op.attrs["tiles"]
        made = to.graph.constant(op.output.dtype, contents.shape, contents, name=op.output.name or "constant")
        return made.map_rows(tiles)


@rule("tile_gather")
class TileGather(OnTiles):
    """Rows of its operand by number, each on a tile."""

    attributes: ClassVar = {"tiles": tuple, "held": tuple, "indices": tuple, "copy": bool}

    def types(self, op: NetworkOp) -> Types:
        """As many rows as indices, which have to be there."""
        (value,), attrs = op.inputs, op.attrs
        held = attrs["held"]
        require(len(held) in (0, value.shape[0]), f"{value} has no row for each of {len(held)} tiles")
        require(len(attrs["indices"]) == len(attrs["tiles"]), "there is no index for each tile")
        require(all(0 <= i < value.shape[0] for i in attrs["indices"]), f"an index is outside of {value}")
        return [((len(attrs["tiles"]), *value.shape[1:]), value.dtype)]

    def evaluate(self, op: NetworkOp, value: Array) -> Array:
        """NumPy's indexing."""
        return value[list(op.attrs["indices"])]

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Rows on the tiles that hold them."""
        value, held = op.inputs[operand], op.attrs["held"]
        return on_tiles(to.graph, value.shape, value.dtype, held, value.name) if held else None

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One copy of the rows that are not on their tile yet; the others stay."""
        (value,), attrs = op.inputs, op.attrs
        indices, tiles = np.asarray(attrs["indices"], np.int64), np.asarray(attrs["tiles"], np.int64)
        if not attrs["held"]:
            to.own(op.output)
            return moved(to, _rows_of(to[value], indices), attrs["tiles"], value.name)
        source = placed(to, value, attrs["held"])
        stays = (np.asarray(attrs["held"])[indices] == tiles) & (not attrs["copy"]) & (not source.contains_constant)
        stays &= np.isin(np.arange(len(indices)), np.unique(indices, return_index=True)[1])  # one result a row
        if not stays.any():
            to.own(op.output)
            return moved(to, _rows_of(source, indices), attrs["tiles"], value.name)
        if stays.all():
            return _rows_of(source, indices)
        away = np.flatnonzero(~stays)
        new = moved(to, _rows_of(source, indices[away]), tiles[away].tolist(), value.name)
        place = np.where(stays, indices, 0)
        place[away] = source.shape[0] + np.arange(len(away))
        return _rows_of(source.append(new), place)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Sums of the gradients of each row."""
        from abele.network.ops.lookup import add_rows
        from abele.network.ops.views import reshape

        (value,), grad = op.inputs, only(grads)
        numbers = net.constant(np.asarray(op.attrs["indices"], np.int32), "i32")
        flat = reshape(net, grad, (grad.shape[0], -1))
        return [reshape(net, add_rows(net, flat, numbers, value.shape[0]), value.shape)]


def _rows_of(tensor: Tensor, numbers: Array) -> Tensor:
    """A view of rows of a tensor by number."""
    each = tensor.size // max(1, tensor.shape[0])
    view = gathered(tensor, numbers * each, np.full(len(numbers), each, np.int64))
    return view.reshape((len(numbers), *tensor.shape[1:]))


class Ordered(OpRule):
    """A kind that gives its operands, all of them before any result is read."""

    operands = (0, None)
    folds = False
    repeats = False
    depends_on_operands_alone = False

    def passed(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """The operands' tensors, which the readers of the results may overwrite where nothing else reads them."""
        for value, result in zip(op.inputs, op.outputs, strict=False):
            to.pass_on(value, result)
        return tuple(to[v] for v in op.inputs)


@rule("tile_barrier")
class TileBarrier(Ordered):
    """Its operands. Steps run in the order of ops, so that nothing has to be done on the machine."""

    def types(self, op: NetworkOp) -> Types:
        """The operands' types."""
        return [v.type for v in op.inputs]

    def evaluate(self, op: NetworkOp, *values: Array) -> tuple[Array, ...]:
        """The operands."""
        return values

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """The operands' tensors."""
        return self.passed(to, op)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradients."""
        return grads


@rule("tile_cycles")
class TileCycles(Ordered):
    """Its operands, and the cycle counters of tiles when all of them are there."""

    attributes: ClassVar = {"tiles": tuple, "sync": bool}

    def types(self, op: NetworkOp) -> Types:
        """The operands' types, and two words for each tile."""
        return [*(v.type for v in op.inputs), ((len(op.attrs["tiles"]), 2), u32)]

    def evaluate(self, op: NetworkOp, *values: Array) -> tuple[Array, ...]:
        """The operands, and zeros: NumPy takes no cycles."""
        return (*values, np.zeros(op.outputs[-1].shape, np.uint32))

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One reading of the counters."""
        made, tiles = self.passed(to, op), op.attrs["tiles"]
        counters = on_tiles(to.graph, op.outputs[-1].shape, u32, tiles, "cycles")
        if op.attrs["sync"]:
            to.prog.add(Sync("internal"))
        to.prog.add(CycleStamp(counters, to.graph.in_top_level(tiles).tolist(), None))
        return (*made, counters)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradients of the operands."""
        return grads[:-1]


@lru_cache(maxsize=256)
def _of_file(source: str, stamp: int) -> Any:
    from abele.codelet.cpp import load_codelets

    return load_codelets(source)


def found_vertex(name: str, source: str) -> CodeletDef:
    """The vertex of a name, of a C++ file or of a library.

    Raises:
        UnknownVertexTypeError: There is none.
    """
    if source:
        is_file = "\n" not in source and Path(source).is_file()
        stamp = Path(source).stat().st_mtime_ns if is_file else 0
        codelets = _of_file(source, stamp)
        if normalised(name) in {normalised(n) for n in codelets.names}:
            definition: CodeletDef = codelets[name]
            return definition
        if name.partition("::")[0] not in _LIBRARIES:
            close = nearest(name, codelets.names)
            raise UnknownVertexTypeError(
                f"unknown vertex type {name!r}",
                because=f"{Path(source).name if is_file else 'the source'} has {', '.join(codelets.names)}",
                remedy=f"did you mean {close!r}?" if close else None,
            )
    namespace = name.partition("::")[0]
    if namespace in VERTEX_FINDERS:
        return VERTEX_FINDERS[namespace](name)
    known = library(namespace).find(normalised(name)) if namespace in _LIBRARIES else None
    if known is None:
        raise UnknownVertexTypeError(
            f"unknown vertex type {name!r}",
            remedy="give the C++ file that has it, or the name of a vertex of popops, poplin, popnn or poprand",
        )
    return known


_LIBRARIES = ("popops", "poplin", "popnn", "poprand")


@rule("tile_map")
class TileMap(OnTiles):
    """One compute set: a vertex for each row of the operands, on the row's tile."""

    operands = (0, None)
    repeats = False
    attributes: ClassVar = {
        "vertex": str,
        "source": str,
        "tiles": tuple,
        "reads": tuple,
        "makes": tuple,
        "rows": tuple,
        "slices": tuple,
        "scratch": tuple,
        "state": tuple,
        "meaning": str,
    }

    def types(self, op: NetworkOp) -> Types:
        """Types that it was given: a row for each vertex."""
        require(len(op.attrs["reads"]) == len(op.inputs), "there is no field for each operand")
        for value in (*op.inputs, *op.outputs):
            _check_rows(op, value)
        return [v.type for v in op.outputs]

    def evaluate(self, op: NetworkOp, *args: Array) -> tuple[Array, ...]:
        """Results by the meaning that the vertex's author gave."""
        meaning = MEANINGS.get(op.attrs["meaning"])
        if meaning is None:
            raise UnsupportedOpError(
                f"the vertex {op.attrs['vertex']} has no meaning outside of the device",
                at=str(op.debug),
                remedy="give it one with def_impl",
            )
        given = [np.asarray(a).astype(v.dtype.np) for a, v in zip(args, op.inputs, strict=True)]
        return tuple(meaning(*given))

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """Execute one compute set."""
        attrs, tiles = op.attrs, op.attrs["tiles"]
        codelet = found_vertex(attrs["vertex"], attrs["source"])
        named = attrs["vertex"].partition("<")[0].rpartition("::")[2]
        wired: dict[str, Tensor] = {}
        for field, value in zip(attrs["reads"], op.inputs, strict=True):
            written = field in attrs["makes"]
            tensor = to.overwritable(value) if written else to[value]
            if not lies_on(to.graph, tensor, tiles):
                tensor = moved(to, tensor, tiles, value.name)
            if field:
                wired[field] = tensor
        results = []
        for field, value in zip(attrs["makes"], op.outputs, strict=True):
            if field not in wired:
                wired[field] = on_tiles(to.graph, value.shape, value.dtype, tiles, value.name or field)
            results.append(wired[field].reshape(value.shape))
            to.own(value)
        for field, count, dtype in attrs["scratch"]:
            wired[field] = on_tiles(to.graph, (len(tiles), count), as_element_type(dtype), tiles, field)
        edges = {name: _edge(op, codelet, name, tensor) for name, tensor in wired.items()}
        step = to.graph.compute_set(named)
        step.vertices(codelet, tile=tiles, **edges, **_state(codelet, attrs["state"]))
        to.prog.add(Execute(step))
        return tuple(results)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradients: a vertex is code."""
        raise no_derivative(op, f"the vertex {op.attrs['vertex']}", "differentiate outside of tile_map")


def _edge(op: NetworkOp, codelet: CodeletDef, name: str, tensor: Tensor) -> Any:
    """The rows of a tensor as a field takes them: elements, a vector, or a list of vectors for each vertex."""
    num = tensor.shape[0]
    field = next((f for f in codelet.fields if f.name == name), None)
    if field is not None and {tensor.dtype.name, field.type.name} == {"i32", "u32"}:
        tensor = tensor.reinterpret(field.type)
    flat = tensor.reshape((num, -1)) if tensor.size else tensor.reshape((num, 0))
    each = dict(op.attrs["slices"]).get(name)
    if each is not None:
        return _sliced(flat, each)
    if field is None or field.rank < 2:
        return flat
    rows_of = dict(op.attrs["rows"]).get(name) or (tensor.shape[1] if tensor.ndim > 2 else 1)
    return flat.reshape((num, rows_of, flat.shape[1] // rows_of))


def _sliced(flat: Tensor, each: Sequence[tuple[int, int]]) -> tuple[Regions, Array, Array]:
    """Pieces of every row, as a list of vectors for each vertex."""
    num, width = flat.shape
    cuts = np.asarray(each, np.int64).reshape(-1, 2)
    begin = (np.arange(num, dtype=np.int64)[:, None] * width + cuts[:, 0]).reshape(-1)
    length = np.tile(cuts[:, 1] - cuts[:, 0], num)
    start = rows(flat).begin[begin // max(1, width)] + begin % max(1, width)
    regions = Regions(np.arange(len(begin) + 1, dtype=np.int64), start, length, flat)
    return regions, np.arange(len(begin), dtype=np.int64), np.arange(num + 1, dtype=np.int64) * len(cuts)


def _state(codelet: CodeletDef, given: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given}


# --- random states ----------------------------------------------------------------------------------------------------


class WorkerStates(Ordered):
    """A kind that reads or sets the random states of workers; further operands are what is drawn or set before."""

    attributes: ClassVar = {"tiles": tuple}

    def all_of(self, to: Lowering) -> Tensor:
        """A new variable for the states of all tiles, each row on its tile."""
        graph = to.graph.top_level
        workers = graph.system.ipu.num_workers
        shape = (graph.num_tiles, workers, SEED_WORDS)
        return graph.variable("u32", shape, "hw_seeds").map_rows(range(graph.num_tiles))


@rule("tile_seeds")
class TileSeeds(WorkerStates):
    """The states of some tiles."""

    def types(self, op: NetworkOp) -> Types:
        """Four words for each worker."""
        return [((len(op.attrs["tiles"]), WORKERS, SEED_WORDS), u32)]

    def evaluate(self, op: NetworkOp, *before: Array) -> Array:
        """A hash of tile, worker and word."""
        index = np.arange(op.output.size, dtype=np.int64).reshape(op.output.shape)
        return np.asarray(hash_u32(0, 0, 0, index), np.uint32)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One reading of all states."""
        states, tiles = self.all_of(to), op.attrs["tiles"]
        to.prog.add(GetHwSeeds(states))
        to.own(op.output)
        return _rows_of(states, np.asarray(to.graph.in_top_level(tiles), np.int64))


@rule("tile_set_seeds")
class TileSetSeeds(WorkerStates):
    """Its first operand, which the states of some tiles are then; those of others stay."""

    operands = (1, None)

    def types(self, op: NetworkOp) -> Types:
        """The operand's type."""
        seeds = op.inputs[0]
        wanted = (len(op.attrs["tiles"]), WORKERS, SEED_WORDS)
        require(seeds.type == (wanted, u32), f"the seeds are {seeds}, they have to be u32{list(wanted)}")
        return [seeds.type]

    def evaluate(self, op: NetworkOp, seeds: Array, *before: Array) -> Array:
        """The seeds."""
        return seeds

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """Read all states, put those in, and set all."""
        states, seeds = self.all_of(to), to[op.inputs[0]]
        to.prog.add(GetHwSeeds(states))
        to.prog.add(Copy(seeds, _rows_of(states, np.asarray(to.graph.in_top_level(op.attrs["tiles"]), np.int64))))
        to.prog.add(SetHwSeeds(states))
        return seeds


@rule("tile_random")
class TileRandom(WorkerStates):
    """A row of random numbers on each tile, drawn from the states of its workers."""

    attributes: ClassVar = {"tiles": tuple, "distribution": str, "offset": float, "scale": float}

    def types(self, op: NetworkOp) -> Types:
        """The type that was chosen."""
        _check_rows(op, op.output)
        return [op.output.type]

    def evaluate(self, op: NetworkOp, *before: Array) -> Array:
        """Numbers as of tiles whose states nobody set; others than those that were drawn before."""
        attrs, draws = op.attrs, len(before)
        tiles = np.asarray(attrs["tiles"], np.int64)[:, None]
        index = np.arange(op.output.shape[1], dtype=np.int64)
        first, second = (
            (np.asarray(hash_u32(draws, 0, tiles, 2 * index + k), np.uint32) >> np.uint32(8)) * 2.0**-24 for k in (0, 1)
        )
        if attrs["distribution"] == "uniform":
            return np.asarray(attrs["offset"] + attrs["scale"] * (first - 0.5))
        size = np.sqrt(-2.0 * np.log(first + 2.0**-24))
        return np.asarray(attrs["offset"] + attrs["scale"] * size * np.cos(2.0 * np.pi * second))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """Read the states, draw in one compute set, and set the states."""
        attrs, tiles, out = op.attrs, op.attrs["tiles"], op.output
        states, numbers = self.all_of(to), to.graph.in_top_level(tiles)
        to.prog.add(GetHwSeeds(states))
        made = on_tiles(to.graph, out.shape, out.dtype, tiles, out.name or "random")
        vertex = found_vertex(f"tessellate::Random<{attrs['distribution']},{out.dtype.poplar_name}>", "")
        rows_ = _rows_of(states, np.asarray(numbers, np.int64)).reshape((len(tiles), WORKERS * SEED_WORDS))
        step = to.graph.compute_set("Random")
        given = {"number": numbers.astype(np.uint32), "offset": attrs["offset"], "scale": attrs["scale"]}
        step.vertices(vertex, tile=tiles, seeds=rows_, out=made, **given)
        to.prog.add(Execute(step))
        to.prog.add(SetHwSeeds(states))
        to.own(out)
        return made
