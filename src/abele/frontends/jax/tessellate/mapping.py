"""Calls of primitives on tiles: ``tile_map``, and the table of vertices by primitive.

A translation gives an :class:`~abele.frontends.jax.tessellate.types.IpuTileMapEquation`. On the host, and where a
network is only evaluated, a call means the primitive on each row: ``jax.vmap``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from abele.errors import TensorError, TypeMismatchError, UnknownPrimitiveError, UnsupportedOpError, nearest
from abele.frontends.jax.tessellate.arrays import TileShardedArray, as_tiles, check_sharded
from abele.frontends.jax.tessellate.types import (
    IpuTileMapEquation,
    as_device_array,
    make_ipu_vertex_attributes,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_inputs,
    make_ipu_vertex_out_info,
    make_ipu_vertex_outputs,
    template_argument,
    user_line,
)
from abele.network.ops.tiles import found_vertex

Translation = Callable[..., Any]
"""Takes the primitive, the tiles, the abstract value of a row of each operand, and attributes."""


@dataclass(frozen=True)
class TileView:
    """A primitive that moves nothing: its result shows the rows of its operand in another shape or type."""


_TRANSLATIONS: dict[str, tuple[Primitive, Translation]] = {}
_DEFAULTS: dict[str, dict[str, Any]] = {}
_HOST: dict[str, Callable[..., Any]] = {}


def register_ipu_tile_primitive(
    primitive: Primitive,
    translation: Translation,
    defaults: Mapping[str, Any] | None = None,
    meaning: Callable[..., Any] | None = None,
) -> None:
    """Let ``tile_map`` call a primitive.

    Args:
        primitive: Primitive of JAX.
        translation: Takes the primitive, tiles, the abstract values of a row of each operand and a dictionary of
            attributes; gives an :class:`IpuTileMapEquation`.
        defaults: Parameters of the primitive that programs may leave out.
        meaning: Function of a row of each operand, for the host; None for the primitive itself.
    """
    _TRANSLATIONS[primitive.name] = (primitive, translation)
    _HOST[primitive.name] = meaning or primitive.bind
    _DEFAULTS[primitive.name] = dict(defaults or {})


def get_ipu_tile_primitive_translation(pname: str | Primitive) -> tuple[Primitive, Translation]:
    """The primitive of a name, and its translation.

    Raises:
        UnknownPrimitiveError: None is registered under the name.
    """
    name = pname if isinstance(pname, str) else getattr(pname, "name", repr(pname))
    if name not in _TRANSLATIONS:
        close = nearest(name, _TRANSLATIONS)
        raise UnknownPrimitiveError(
            f"no vertex is registered for the primitive {name!r}",
            at=user_line(),
            remedy=(f"did you mean {close!r}? " if close else "")
            + "create_ipu_tile_primitive and declare_ipu_tile_primitive make primitives of vertices of your own",
        )
    return _TRANSLATIONS[name]


class CallAttributes(Mapping[str, Any]):
    """CallAttributes of a call, as a parameter of an equation."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = {name: given[name] for name in sorted(given)}
        self._key = tuple((name, _key(value)) for name, value in self._given.items())

    def __getitem__(self, name: str) -> Any:
        return self._given[name]

    def __iter__(self) -> Any:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallAttributes) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return ", ".join(f"{n}={v!r}" for n, v in self._given.items())


def _key(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        if isinstance(value, np.ndarray):
            return (value.dtype.str, value.shape, value.tobytes())
        return tuple(map(_key, value)) if isinstance(value, (list, tuple)) else repr(value)
    return value


# --- the call ---------------------------------------------------------------------------------------------------------


def tile_map(
    primitive: Primitive,
    *args: TileShardedArray,
    tiles: Sequence[int] | None = None,
    sync: bool = False,
    **attributes: Any,
) -> Any:
    """Call a primitive on each row of arrays, all at once: one compute set, with one vertex on the tile of each row.

    Args:
        primitive: A primitive of ``jax.lax``, or one that :func:`create_ipu_tile_primitive` or
            :func:`declare_ipu_tile_primitive` made.
        *args: Arrays on the same tiles, in the same order.
        tiles: Tile of each vertex; needed where there are no arrays.
        sync: True for a barrier before it. Every compute set begins with one.
        **attributes: Parameters of the primitive.

    Returns:
        An array on the same tiles; a list of them where the primitive has several results.

    Raises:
        UnknownPrimitiveError: No vertex is registered for the primitive. It is a ``KeyError`` too.
        TypeMismatchError: An argument is not on tiles.
        TensorError: Arguments are on other tiles than each other, or no tiles are given.
    """
    known, _ = get_ipu_tile_primitive_translation(primitive)
    check_sharded(f"tile_map of {known.name}", args)
    numbers = as_tiles(tiles) if tiles is not None else args[0].tiles if args else None
    if numbers is None:
        raise TensorError(f"tile_map of {known.name} without arrays", at=user_line(), remedy="tiles=…")
    for number, array in enumerate(args):
        if array.tiles != numbers:
            raise TensorError(
                f"tile_map of {known.name}: array {number} lies on tiles {_shown(array.tiles)}, "
                f"{'array 0' if tiles is None else 'the call'} is on {_shown(numbers)}",
                at=user_line(),
                because="each vertex reads the memory of its own tile",
                remedy="tile_gather(array, indices, tiles) brings rows to other tiles",
            )
    # Programs leave out parameters that only newer versions of JAX have.
    given = CallAttributes({**_DEFAULTS[known.name], **{n: _hashable(v) for n, v in attributes.items()}})
    arrays = [a.array if isinstance(a.array, jax.core.Tracer | jax.Array) else jnp.asarray(a.array) for a in args]
    made = tile_map_p.bind(*arrays, called=known, tiles=numbers, attributes=given)
    results = [TileShardedArray(v, numbers) for v in made]
    is_one = len(results) == 1 if isinstance(known, TilePrimitive) else not known.multiple_results
    return results[0] if is_one else results


def _hashable(value: Any) -> Any:
    """A parameter as JAX takes it: lists as tuples, types of NumPy as dtypes."""
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return tuple(map(_hashable, value))
    return np.dtype(value) if isinstance(value, type) and issubclass(value, np.generic) else value


def _shown(tiles: Sequence[int]) -> str:
    return str(list(tiles)) if len(tiles) <= 6 else f"[{', '.join(map(str, tiles[:5]))}, …]"


def _rows(*arrays: Any, called: Primitive, tiles: tuple[int, ...], attributes: CallAttributes) -> list[Any]:
    """Results of a primitive on every row, as JAX has them."""

    def one(*row: Any) -> list[Any]:
        made = _HOST[called.name](*row, **attributes)
        return list(made) if called.multiple_results else [made]

    if isinstance(called, TilePrimitive):
        return called.rows(len(tiles), arrays, attributes)
    if not arrays:
        return [jnp.broadcast_to(v, (len(tiles), *v.shape)) for v in one()]
    return list(jax.vmap(one)(*arrays))


def _results(*avals: Any, called: Primitive, tiles: tuple[int, ...], attributes: CallAttributes) -> list[ShapedArray]:
    rows = [ShapedArray(a.shape[1:], a.dtype) for a in avals]
    if isinstance(called, TilePrimitive):
        made = called.results(rows, attributes)
    else:
        bound = partial(called.bind, **attributes)
        shapes = jax.eval_shape(bound, *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in rows))
        made = shapes if called.multiple_results else [shapes]
    return [ShapedArray((len(tiles), *a.shape), a.dtype) for a in made]


def _tangents(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """Tangents of a call: JAX's own of every row, which lie as other arrays do."""
    out = tile_map_p.bind(*primals, **params)
    whole = [jnp.zeros(p.shape, jax.dtypes.float0) if type(t) is ad.Zero and not _is_float(p) else t
             for p, t in zip(primals, tangents, strict=True)]  # fmt: skip
    _, moved = jax.jvp(partial(_rows, **params), tuple(primals), tuple(map(ad.instantiate_zeros, whole)))
    return out, list(moved)


def _is_float(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def _batched(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """A call on samples: a vertex for each row of each sample, on the row's tile."""
    tiles = params["tiles"]
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    each = [
        jnp.broadcast_to(a[:, None], (a.shape[0], size, *a.shape[1:])) if d is None else jnp.moveaxis(a, d, 1)
        for a, d in zip(args, dims, strict=True)
    ]
    rows = [a.reshape((len(tiles) * size, *a.shape[2:])) for a in each]
    params["tiles"] = tuple(t for t in tiles for _ in range(size))
    made = tile_map_p.bind(*rows, **params)
    return [v.reshape((len(tiles), size, *v.shape[1:])) for v in made], [1] * len(made)


tile_map_p = Primitive("tile_map")
tile_map_p.multiple_results = True
tile_map_p.def_impl(_rows)
tile_map_p.def_abstract_eval(_results)
mlir.register_lowering(tile_map_p, mlir.lower_fun(_rows, multiple_results=True))
ad.primitive_jvps[tile_map_p] = _tangents
batching.primitive_batchers[tile_map_p] = _batched


# --- primitives of own vertices ---------------------------------------------------------------------------------------


class TilePrimitive(Primitive):  # type: ignore[misc]
    """A primitive that is a vertex of its own.

    Args:
        name: Its name.
        results: Gives the abstract values of a row of each result, from those of the operands and the attributes.
    """

    def __init__(self, name: str, results: Callable[..., Sequence[Any]]) -> None:
        super().__init__(name)
        self.results = results
        self.meaning: Callable[..., Any] | None = None
        self.def_abstract_eval(self._abstract)
        super().def_impl(self._one)
        mlir.register_lowering(self, self._lowered)
        batching.primitive_batchers[self] = self._batch

    def bind(self, *args: Any, **params: Any) -> Any:
        """Results for one row."""
        # How many there are is known once the function that declares the vertex was asked.
        avals = [ShapedArray(np.shape(a), a.dtype if hasattr(a, "dtype") else np.result_type(a)) for a in args]
        self.multiple_results = len(self.results(avals, params)) > 1
        return super().bind(*args, **params)

    def _lowered(self, ctx: Any, *args: Any, **params: Any) -> Any:
        return mlir.lower_fun(self._one, multiple_results=self.multiple_results)(ctx, *args, **params)

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Say what the vertex computes of one row, in JAX or NumPy; for hosts, and for ``evaluate``."""
        self.meaning = impl
        return impl

    def _abstract(self, *avals: Any, **attributes: Any) -> Any:
        made = [ShapedArray(tuple(a.shape), a.dtype) for a in self.results(avals, attributes)]
        return made if self.multiple_results else made[0]

    def _one(self, *row: Any, **attributes: Any) -> Any:
        made = [v[0] for v in self.rows(1, [jnp.asarray(r)[None] for r in row], attributes)]
        return made if self.multiple_results else made[0]

    def _batch(self, args: Sequence[Any], dims: Sequence[Any], **attributes: Any) -> tuple[Any, Any]:
        size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
        each = [
            jnp.broadcast_to(a, (size, *a.shape)) if d is None else jnp.moveaxis(a, d, 0)
            for a, d in zip(args, dims, strict=True)
        ]
        made = self.rows(size, each, attributes)
        return (made, [0] * len(made)) if self.multiple_results else (made[0], 0)

    def rows(self, count: int, arrays: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
        """Results on every row of arrays.

        Raises:
            UnsupportedOpError: Nobody said what the vertex computes.
        """
        meaning = self.meaning
        if meaning is None:
            raise UnsupportedOpError(
                f"the vertex of {self.name} has no meaning outside of the device",
                at=user_line(),
                remedy=f"run it under abele.jax.jit, or give it one: @{self.name}_p.def_impl",
            )
        avals = [ShapedArray(a.shape[1:], a.dtype) for a in arrays]
        wanted = [jax.ShapeDtypeStruct((count, *a.shape), a.dtype) for a in self.results(avals, attributes)]

        def one(*row: Any) -> list[Any]:
            made = meaning(*row, **attributes)
            given = list(made) if isinstance(made, (tuple, list)) else [made]
            return [jnp.asarray(v, w.dtype).reshape(w.shape[1:]) for v, w in zip(given, wanted, strict=True)]

        def every(*stacked: Any) -> list[Any]:
            """Rows one after the other, for meanings in NumPy."""
            found = [meaning(*(np.asarray(a)[n] for a in stacked), **attributes) for n in range(count)]
            columns = zip(*(f if isinstance(f, (tuple, list)) else (f,) for f in found), strict=True)
            return [np.asarray(c, w.dtype).reshape(w.shape) for c, w in zip(columns, wanted, strict=True)]

        try:
            if arrays:
                return list(jax.vmap(one)(*arrays))
            return [jnp.broadcast_to(v, w.shape) for v, w in zip(one(), wanted, strict=True)]
        except _NEEDS_NUMBERS:
            if any(isinstance(a, jax.core.Tracer) for a in arrays):
                return list(jax.pure_callback(every, wanted, *arrays))
            return [jnp.asarray(v) for v in every(*arrays)]


_NEEDS_NUMBERS = (
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.ConcretizationTypeError,
    TypeError,
)
"""Errors of a meaning that is written in NumPy, on what JAX traces."""


def _scalars(inavals: Sequence[Any], outavals: Sequence[Any], attributes: Mapping[str, Any], given: Any) -> Any:
    """A value that a program gave as it is, or as a function of operands, results and attributes."""
    if not callable(given) or isinstance(given, type):
        return given
    try:
        parameters = list(inspect.signature(given).parameters.values())
    except (TypeError, ValueError):
        return given(inavals, outavals, attributes)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return given(*(inavals, outavals, attributes)[: 3 if takes_all else len(positional)])


def _templated(vname: str, avals: Mapping[str, Any], attributes: Mapping[str, Any]) -> str:
    """Name of an instance of a template, its types and numbers in place of ``{name}``."""
    if "{" not in vname:
        return vname
    names = {name: template_argument(aval) for name, aval in avals.items()}
    first = next(iter(names.values()), "float")
    numbers = {n: template_argument(v) if isinstance(v, (bool, int, str, np.dtype, type)) else v
               for n, v in attributes.items()}  # fmt: skip
    try:
        return vname.format(*names.values(), **({"dtype": first} | numbers | names))
    except (KeyError, IndexError) as error:
        raise TypeMismatchError(
            f"the vertex name {vname!r} asks for {error.args[0]!r}",
            remedy=f"it may name {', '.join([*names, *numbers]) or 'nothing'}",
        ) from None


def create_ipu_tile_primitive(
    pname: str,
    vname: str,
    inputs: Sequence[str],
    outputs: Mapping[str, Any] | Sequence[str],
    constants: Mapping[str, Any] | None = None,
    tmp_space: Any = None,
    gp_filename: Any = None,
    perf_estimate: int = 0,
) -> TilePrimitive:
    """A primitive of a vertex.

    Args:
        pname: Name of the primitive.
        vname: Name of the vertex; ``{x}`` is the type of the operand ``x``, or the attribute of that name.
        inputs: Field of each operand.
        outputs: Field of each result, with the number of the operand of its shape and type; or with an abstract value,
            or a function of the operands' that gives one. A field that is an input too is overwritten.
        constants: Further inputs, as arrays, or functions of operands', results' abstract values and attributes.
        tmp_space: Memory of the vertex's field ``tmp``: the number of an operand of its size, an abstract value, or a
            dictionary of these by field.
        gp_filename: C++ file that has the vertex; None for vertices of libraries.
        perf_estimate: Cycles that its author expects; the machine counts its own.
    """
    fields = list(inputs)
    shapes = dict(outputs) if isinstance(outputs, Mapping) else dict.fromkeys(outputs, 0)

    def results(avals: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
        if len(avals) != len(fields):
            raise TensorError(f"{pname} takes {len(fields)} arrays, it was given {len(avals)}", at=user_line())
        return [_aval(_scalars(avals, (), attributes, given), avals) for given in shapes.values()]

    made = TilePrimitive(pname, results)

    def translation(p: Any, tiles: Any, inavals: Sequence[Any], attributes: Mapping[str, Any]) -> IpuTileMapEquation:
        outavals = results(inavals, attributes)
        named = dict(zip(fields, inavals, strict=True)), dict(zip(shapes, outavals, strict=True))
        known = {n: as_device_array(_scalars(inavals, outavals, attributes, c)) for n, c in (constants or {}).items()}
        spaces = tmp_space if isinstance(tmp_space, Mapping) else {} if tmp_space is None else {"tmp": tmp_space}
        temps = {n: _aval(_scalars(inavals, outavals, attributes, t), inavals) for n, t in spaces.items()}
        name, numbers = _templated(vname, {**named[0], **named[1]}, attributes), attributes
        if any(map(callable, (*shapes.values(), *(constants or {}).values(), *spaces.values()))):
            numbers = _of_vertex(name, gp_filename, attributes)  # the others are for those functions
        return _equation(p, tiles, name, _Wiring(*named, known, temps, numbers), gp_filename, perf_estimate)

    register_ipu_tile_primitive(made, translation)
    return made


def _aval(given: Any, avals: Sequence[Any]) -> Any:
    return avals[int(given)] if isinstance(given, (int, np.integer)) else given


def declare_ipu_tile_primitive(vname: str, gp_filename: Any = None) -> Callable[[Callable[..., Any]], TilePrimitive]:
    """Decorator of a function that says what a vertex takes and makes; it becomes a primitive.

    The function takes the abstract value of a row of each operand and attributes by name, and gives up to four things:
    abstract values of results by field; arrays of constant inputs by field; abstract values of memory that the vertex
    needs while it runs, by field; and the cycles that its author expects. Parameters are fields of the vertex. A result
    with the name of an operand overwrites it. CallAttributes that are fields of the vertex are set there.

    >>> @declare_ipu_tile_primitive("Scale<{x}>", gp_filename="scale.cpp")
    ... def scale_p(x: ShapedArray, factor: float):
    ...     return {"y": x}, {}, {}, 100
    >>> scale_p.name
    'scale'

    Args:
        vname: Name of the vertex; ``{x}`` is the type of the operand ``x``, or the attribute of that name.
        gp_filename: C++ file that has the vertex; None for vertices of libraries.
    """

    def declared(function: Callable[..., Any]) -> TilePrimitive:
        parameters = inspect.signature(function).parameters
        names, pname = list(parameters), function.__name__.removesuffix("_p")
        defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}

        def call(avals: Sequence[Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[Any]]:
            attributes = {**defaults, **given}
            fields = [n for n in names if n not in attributes][: len(avals)]
            if len(fields) < len(avals):
                raise TensorError(f"{pname} takes {len(fields)} arrays, it was given {len(avals)}", at=user_line())
            said = function(**dict(zip(fields, avals, strict=True)), **attributes)
            outputs = said if isinstance(said, tuple) else (said,)
            return dict(zip(fields, avals, strict=True)), (*outputs, {}, {}, 0)[: max(4, len(outputs))]

        def results(avals: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
            return list(call(avals, attributes)[1][0].values())

        made = TilePrimitive(pname, results)

        def translation(p: Any, tiles: Any, inavals: Sequence[Any], given: Mapping[str, Any]) -> IpuTileMapEquation:
            attributes = {**defaults, **given}
            ins, (outs, *rest) = call(inavals, attributes)
            constants, temps, perf = (*rest, {}, {}, 0)[:3] if len(rest) < 3 else rest[:3]
            known = {n: as_device_array(c) for n, c in (constants or {}).items()}
            name = _templated(vname, ins | outs, attributes)
            numbers = _of_vertex(name, gp_filename, attributes)
            return _equation(p, tiles, name, _Wiring(ins, outs, known, temps or {}, numbers), gp_filename, perf)

        register_ipu_tile_primitive(made, translation)
        return made

    return declared


def _of_vertex(name: str, gp_filename: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that are fields of a vertex."""
    fields = {f.name for f in found_vertex(name, _source(gp_filename)).fields}
    return {n: v for n, v in attributes.items() if n in fields}


def _source(gp_filename: Any) -> str:
    return "" if gp_filename is None else str(gp_filename)


@dataclass(frozen=True)
class _Wiring:
    """Fields of a vertex by name: operands, results, constants, memory for the call, and numbers."""

    ins: Mapping[str, Any]
    outs: Mapping[str, Any]
    constants: Mapping[str, Any]
    temps: Mapping[str, Any]
    numbers: Mapping[str, Any]


def _equation(
    p: Any, tiles: Any, vname: str, wiring: _Wiring, gp_filename: Any, perf_estimate: Any
) -> IpuTileMapEquation:
    ins, outs = wiring.ins, wiring.outs
    both = set(ins) & set(outs)
    wired = {*ins, *outs, *wiring.constants, *wiring.temps}
    whole, others = make_ipu_vertex_attributes(**{n: v for n, v in wiring.numbers.items() if n not in wired})
    return IpuTileMapEquation(
        vname=vname,
        pname=p.name,
        tiles=tiles,
        inputs_info=(
            *make_ipu_vertex_inputs(ins, both),
            *(make_ipu_vertex_constant_info(n, c) for n, c in wiring.constants.items()),
        ),
        outputs_info=tuple(make_ipu_vertex_outputs(outs, both)),
        attributes_i32=tuple(whole),
        attributes_f32=tuple(others),
        temps_info=tuple(make_ipu_vertex_out_info(n, t) for n, t in wiring.temps.items()),
        gp_filename=_source(gp_filename) or None,
        perf_estimate=int(perf_estimate or 0),
    )


def primitive_clone(p: Primitive, name: str) -> Primitive:
    """A primitive with another's meaning under a name of its own."""
    if isinstance(p, TilePrimitive):
        made = TilePrimitive(name, p.results)
        made.meaning = p.meaning
        return made
    return _Clone(p, name)


class _Clone(Primitive):  # type: ignore[misc]
    """A primitive that means what another does."""

    def __init__(self, of: Primitive, name: str) -> None:
        super().__init__(name)
        self.multiple_results = of.multiple_results
        self.of = of
        self.def_impl(of.bind)
        self.def_abstract_eval(self._abstract)
        mlir.register_lowering(self, mlir.lower_fun(of.bind, multiple_results=of.multiple_results))
        batching.primitive_batchers[self] = self._batch

    def _batch(self, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        axes = tuple(dims)
        made = jax.vmap(partial(self.of.bind, **params), in_axes=axes)(*args)
        return made, [0] * len(made) if self.multiple_results else 0

    def _abstract(self, *avals: Any, **params: Any) -> Any:
        shapes = jax.eval_shape(
            partial(self.of.bind, **params), *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals)
        )
        made = [ShapedArray(s.shape, s.dtype) for s in (shapes if self.multiple_results else [shapes])]
        return made if self.multiple_results else made[0]


# --- calls by record --------------------------------------------------------------------------------------------------


def _recorded(attributes: Mapping[str, Any]) -> IpuTileMapEquation:
    return IpuTileMapEquation.from_json_str(attributes["tile_map_eqn_json"])


_equation_call_p = TilePrimitive(
    "tile_map_equation_call",
    lambda avals, attributes: [
        ShapedArray(tuple(i.shape), i.dtype.element.np) for i in _recorded(attributes).outputs_info
    ],
)
register_ipu_tile_primitive(_equation_call_p, lambda p, tiles, inavals, attributes: _recorded(attributes))


@_equation_call_p.def_impl
def _call_of_record(*row: Any, pname: str, tile_map_eqn_json: str, **attributes: Any) -> Any:
    get_ipu_tile_primitive_translation(pname)
    return _HOST[pname](*row, **{**_DEFAULTS[pname], **attributes})


def tile_map_equation_call_multi_out(
    inputs: Sequence[Any], pname: str, tiles: Sequence[int], tile_map_eqn_json: str, **attributes: Any
) -> list[Any]:
    """Results of the vertex of a record, on arrays with a row for each tile.

    Args:
        inputs: Arrays with a row for each tile.
        pname: Name of the primitive that gives the results' meaning on the host.
        tiles: Tile of each vertex.
        tile_map_eqn_json: An :class:`IpuTileMapEquation` as JSON.
        **attributes: Parameters of the primitive, for the host.
    """
    arrays = [a if isinstance(a, jax.core.Tracer | jax.Array) else jnp.asarray(a) for a in inputs]
    given = CallAttributes({**attributes, "pname": pname, "tile_map_eqn_json": tile_map_eqn_json})
    return list(tile_map_p.bind(*arrays, called=_equation_call_p, tiles=as_tiles(tiles), attributes=given))


def tile_map_equation_call_single_out(
    inputs: Sequence[Any], pname: str, tiles: Sequence[int], tile_map_eqn_json: str, **attributes: Any
) -> Any:
    """The result of a vertex that has one; see :func:`tile_map_equation_call_multi_out`."""
    return tile_map_equation_call_multi_out(inputs, pname, tiles, tile_map_eqn_json, **attributes)[0]
