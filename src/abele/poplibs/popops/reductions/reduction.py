"""Placing a reduction: its geometry, its steps and their vertices.

A reduction over any set of dimensions becomes one over rows or columns of a grid: dimensions that are neighbours in
memory and are both kept, or both reduced, join into one. What remains alternates between kept and reduced; the last two
are the columns and rows of a block, the rest number the blocks. That is general, because a vertex only needs to know
whether it adds along its rows or along its columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.errors import TileMappingError
from abele.graph import Execute, Graph, Regions, Tensor, boxes, whole
from abele.graph.compute_set import ComputeSet
from abele.graph.mapping import TileMapping
from abele.graph.program import Sequence
from abele.numerics import ElementType
from abele.poplibs.popops.reductions import cost as reduce_cost
from abele.poplibs.popops.reductions.codelets import (
    Direction,
    Finish,
    SharedForm,
    rectangle_codelet,
    regions_codelet,
    shared_codelet,
)
from abele.poplibs.popops.reductions.first_step import (
    MIN_VECTORS_PER_WORKER,
    Rectangles,
    cut_columns,
    first_step,
    lies_in_runs,
)
from abele.poplibs.popops.reductions.ops import ReduceOp, partials_type
from abele.poplibs.popops.reductions.partials import Combination, Partials
from abele.poplibs.popops.reductions.plan import Planner
from abele.poplibs.popops.reductions.shared import SharedRows, SharedVertices
from abele.poplibs.poputil.grid import BlockGrid, Cells, collapse, rectangles_of
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping, vector_grain
from abele.poplibs.poputil.order import StorageOrder, storage_order
from abele.poplibs.poputil.regions import count_up, flat_regions

# Tiles that reduce elements of many appearances.
#
# A reduction works where its operand lies, for moving an element costs more than adding it. That fails for views that
# show one element many times, such as the zeros around a slice: all of them lie on the tile of that element, which
# would receive a copy of each for its vertices and reduce nearly the whole tensor alone. Sending one element to other
# tiles costs nothing beside that. So where a tile has much more than its part, its repeated elements are dealt to all
# tiles in rectangles. These are narrow if columns are kept, so that few partial results of each output are left to
# combine. Elements that a tile really holds stay where they are.

MOST_OF_MEAN = 2
"""Multiple of the tiles' mean that one tile may have before repeated elements are dealt out."""
WORTH_SPREADING = 1024
"""Elements of one tile below which it is left alone: another exchange would cost more. Guessed."""


def without_crowds(view: Tensor, mapping: TileMapping, grid: BlockGrid, num_tiles: int, width: int) -> TileMapping:
    """The tile that reduces each element of ``view``.

    Args:
        view: The operand in storage order.
        mapping: The tile on which each of its elements lies.
        grid: Its blocks, rows and columns.
        num_tiles: Tiles of the machine.
        width: Columns of a rectangle that is dealt out.
    """
    load = np.bincount(mapping.tile, weights=mapping.length, minlength=num_tiles)
    limit = max(MOST_OF_MEAN * -(-mapping.size // num_tiles), WORTH_SPREADING)
    if load.max(initial=0) <= limit or not view.contains_aliases:
        return mapping
    begin, length = view.intervals()
    first = np.cumsum(length) - length
    address = np.repeat(begin - first, length) + np.arange(mapping.size)
    tile = np.repeat(mapping.tile, mapping.length)
    crowded = np.flatnonzero((load > limit)[tile])
    _, kind, times = np.unique(address[crowded], return_inverse=True, return_counts=True)
    moved = crowded[times[kind] > 1]
    tile[moved] = _dealt(moved, grid, num_tiles, width)
    change = np.flatnonzero(np.append(True, tile[1:] != tile[:-1]))
    return TileMapping(mapping.size, change, tile[change])


def _dealt(element: Int64, grid: BlockGrid, num_tiles: int, width: int) -> Int64:
    """A tile for each of some elements: rectangles of ``width`` columns, and of as many rows as deal out the grid."""
    size = grid.blocks * grid.rows * grid.columns
    width = min(width, grid.columns)
    strips = -(-grid.columns // width)
    height = max(-(-size // (num_tiles * width)), 1)
    row, column = element // grid.columns, element % grid.columns
    return np.asarray((row // height * strips + column // width) % num_tiles, np.int64)


LEAST_SHARES = 2
"""Shares of a tile that one vertex of all workers takes; a single one is a worker's."""

Adding = Callable[[ComputeSet], None]
"""Adds the vertices of one step to a compute set."""
Scale = float | Tensor | None
"""Factor of a result: a number, a tensor of one f32 element, or none."""


@dataclass(frozen=True)
class PairedWith:
    """The second of two sums that are made together.

    Attributes:
        tensor: Its operand; None for the squares of the first sum's operand.
        turn: Outputs of a sum that follow each other, before as many of the other.
    """

    tensor: Tensor | None
    turn: int

    @property
    def kind(self) -> Literal["squares", "other"]:
        """Name of the pair in the form of its vertices."""
        return "squares" if self.tensor is None else "other"


@dataclass(frozen=True)
class Reduction:
    """One reduction of a tensor.

    Attributes:
        graph: Graph in which vertices and intermediate results are made.
        tensor: Tensor to reduce.
        kept: Its dimensions that the result keeps, ascending.
        op: Operation that combines elements.
        finish: Operations on the result before it is stored.
        scale: Factor that ``finish`` applies.
        name: Prefix of names.
        between: Element type of partial results; by default as :func:`partials_type` says.
    """

    graph: Graph
    tensor: Tensor
    kept: tuple[int, ...]
    op: ReduceOp
    finish: Finish
    scale: Scale
    name: str
    between: ElementType | None = None

    @cached_property
    def order(self) -> StorageOrder:
        """Storage order of the operand."""
        return storage_order(self.tensor)

    @cached_property
    def kept_order(self) -> StorageOrder:
        """Order of the kept dimensions in which outputs are numbered: that of the operand's storage."""
        order = self.order
        fine = [i for i, d in enumerate(order.of_dim) if d in self.kept]
        number = {i: n for n, i in enumerate(fine)}
        position = {d: n for n, d in enumerate(self.kept)}
        return StorageOrder(
            tuple(self.tensor.shape[d] for d in self.kept),
            tuple(order.fine[i] for i in fine),
            tuple(position[order.of_dim[i]] for i in fine),
            tuple(number[i] for i in order.order if i in number),
        )

    @cached_property
    def grid(self) -> BlockGrid:
        """Neighbouring dimensions joined as long as all are kept or all are reduced; at least one group is reduced."""
        grid = collapse(self.order.extents, [tuple(d in self.kept for d in self.order.dims())])
        # Everything is kept: an empty group of one index is what is reduced, so that later code sees one case.
        if len(grid.groups) == 1 and self._keeps(grid.groups[0]):
            end = grid.groups[0][1]
            return BlockGrid((*grid.groups, (end, end)), (*grid.extents, 1))
        return grid

    def _keeps(self, group: tuple[int, int]) -> bool:
        """True if the dimensions of a group are kept."""
        dims, extents = self.order.dims(), self.order.extents
        real = [dims[i] for i in range(*group) if extents[i] != 1]
        return real[0] in self.kept if real else any(dims[i] in self.kept for i in range(*group))

    @property
    def num_outputs(self) -> int:
        """Elements of the result."""
        return math.prod(self.tensor.shape[d] for d in self.kept)

    @property
    def kind(self) -> ElementType:
        """Element type of intermediate results."""
        return self.between or partials_type(self.op, self.tensor.dtype)

    @property
    def direction(self) -> Direction:
        """Dimension that the vertices of the first step reduce."""
        return "rows" if len(self.grid.groups) > 1 and self._keeps(self.grid.groups[-1]) else "columns"

    @cached_property
    def _cells(self) -> tuple[Cells, bool]:
        """Cells of each tile, and True if each tile has one stretch of each block."""
        mapping = self.graph.mapping_of(self.order.apply(self.tensor))
        if not mapping.is_complete:
            raise TileMappingError(f"{self.name}: {self.tensor!r} is not mapped to tiles completely")
        cells = rectangles_of(self.grid, self._dealt(mapping))
        in_runs = self.direction == "rows" and lies_in_runs(cells)
        return (cut_columns(cells) if in_runs else cells), in_runs

    def _dealt(self, mapping: TileMapping) -> TileMapping:
        """The tile that reduces each element: where it lies, unless one tile shows a few elements over and over."""
        ipu, dtype = self.graph.system.ipu, self.tensor.dtype
        width = MIN_VECTORS_PER_WORKER * reduce_cost.accumulators(self.op, ipu, dtype)
        if self.direction == "columns":
            width = max(self.tensor.size // self.graph.system.num_tiles, width)
        view = self.order.apply(self.tensor)
        return without_crowds(view, mapping, self.grid, self.graph.system.num_tiles, width)

    @cached_property
    def first(self) -> Rectangles:
        """Rectangles that the vertices of the first step read."""
        ipu, dtype = self.graph.system.ipu, self.tensor.dtype
        kept = tuple(self._keeps(group) for group in self.grid.groups)
        wide = reduce_cost.accumulators(self.op, ipu, dtype)
        return first_step(self._cells[0], kept, self.direction, ipu.num_workers, self.grain, wide)

    @property
    def grain(self) -> int:
        """Columns of which the shares of workers are multiples."""
        return vector_grain(self.graph, self.tensor.dtype) if self.direction == "rows" else 1

    @cached_property
    def _read_in_place(self) -> bool:
        """True if the first step would combine nothing: no tile has two elements of an output.

        The next step then reads the operand where it lies, which spares a superstep and a copy, and sends narrow
        elements as they are.
        """
        first = self.first
        if self.direction != "rows" or not first.is_single or (first.num_rows > 1).any():
            return False
        return not self.op.squares and self.kind.bits >= self.tensor.dtype.bits and not self.tensor.contains_aliases

    def _given(self, out: Tensor | None) -> Partials:
        """Partials left to combine after the first step, for a result in ``out`` or, None, in a new tensor.

        A result that overlaps the operand may not be written while other vertices read it.
        """
        if not self._read_in_place or (out is not None and out.overlaps(self.tensor)):
            return self.first.partials
        return replace(self.first.partials, place=self._positions)

    @property
    def _positions(self) -> Int64:
        """First element of each rectangle of the first step in the operand's storage order, int64[n]."""
        first, grid = self.first, self.grid
        return (first.block * grid.rows + first.row) * grid.columns + first.column

    @cached_property
    def planner(self) -> Planner:
        """Planner of the steps after the first."""
        return Planner(self.graph.system, self.op, self.kind, self.finish.type, self.num_outputs, self.tensor.shape)

    @cached_property
    def free(self) -> tuple[Combination, ...]:
        """The steps after the first where results may lie anywhere."""
        return self.planner.combinations(self._given(None), None)

    def combinations(self, given: Partials, wanted: TileMapping) -> tuple[Combination, ...]:
        """The steps after the first, which gives ``given``, when the results are wanted where ``wanted`` says."""
        free = self._results(self.free)
        # Results lie already where they are wanted: plan once.
        lies = np.array_equal(free.begin, wanted.begin) and np.array_equal(free.tile, wanted.tile)
        if lies and (given.place is not None) == self._read_in_place:
            return self.free
        return self.planner.combinations(given, wanted)

    def _results(self, steps: tuple[Combination, ...]) -> TileMapping:
        return (steps[-1].partials if steps else self.first.partials).result_mapping(self.num_outputs)

    @property
    def _is_empty(self) -> bool:
        return self.num_outputs == 0 or self.tensor.size == 0

    def create_output(self) -> Tensor:
        """A tensor for the result: where the last step leaves it."""
        order, dtype = self.kept_order, self.finish.type
        variable = self.graph.variable(dtype, order.extents, name=f"{self.name}/out")
        if self._is_empty:
            grain = vector_grain(self.graph, dtype)
            spread = linear_mapping(self.graph, self.num_outputs, dtype, min_elements=grain, grain=grain)
            set_mapping(self.graph, variable, spread)
        else:
            set_mapping(self.graph, variable, self._results(self.free))
        return order.undo(variable)

    def emit(self, body: Sequence, out: Tensor) -> None:
        """Append the steps that reduce into ``out``."""
        emit_together(self.graph, body, [self.vertices(out)], self.name)

    def vertices(self, out: Tensor) -> list[Adding]:
        """Functions that add the vertices of each step to a compute set, in order, to reduce into ``out``."""
        if self._is_empty:
            return []
        ordered = self.kept_order.apply(out).flatten()
        partials = self._given(out)
        combinations = self.combinations(partials, self.graph.mapping_of(ordered))
        given = [partials, *(c.partials for c in combinations)]
        targets = [*(self.store(p, n) for n, p in enumerate(given[:-1])), ordered]
        steps: list[Adding] = []
        last = len(combinations)
        if not combinations or partials.place is None:
            steps.append(lambda compute_set: self._add_first(compute_set, targets[0], last=not combinations))
        for number, step in enumerate(combinations, start=1):
            source, target = targets[number - 1], targets[number]
            steps.append(self.combining(step, source, target, last=number == last))
        return steps

    def store(self, partials: Partials, number: int) -> Tensor:
        """Storage of partial results: a variable, or the operand where these are read in place."""
        if partials.place is not None:
            return self.order.apply(self.tensor).flatten()
        stored = self.graph.variable(self.kind, partials.size, name=f"{self.name}/partials{number}")
        return set_mapping(self.graph, stored, partials.mapping)

    def _add_first(self, compute_set: ComputeSet, target: Tensor, last: bool) -> None:
        first, finish = self.first, self.finish if last else Finish(self.kind)
        view = self.order.apply(self.tensor)
        dtype = self.tensor.dtype
        if not first.is_single:
            fields = self._written(first.partials, target, last) | {"x": self._several(view)}
            compute_set.vertices(
                regions_codelet(self.op, dtype, self.direction, finish), tile=first.partials.tile, **fields
            )
            return
        # Workers share a vertex where the output does not lie over the operand, whose rectangles are read in place.
        in_place = target.overlaps(self.tensor)
        shared = None if in_place else self.shared(joined=last, least=LEAST_SHARES)
        if shared is not None:
            self.add_shared(compute_set, shared, target, finish, last=last)
            if not shared.rest.any():
                return
        chosen = np.flatnonzero(shared.rest) if shared is not None else np.arange(first.partials.num)
        rest = first.taken(chosen)
        fields = self._written(rest.partials, target, last)
        fields |= self._one(rest, view, target)
        counts = {"rows": rest.num_rows, "columns": rest.num_columns} | {n: fields.pop(n) for n in ("first", "width")}
        codelet = rectangle_codelet(self.op, dtype, self.direction, finish, short=_are_short(counts))
        compute_set.vertices(codelet, tile=rest.partials.tile, **counts, **fields)

    def shared(self, *, joined: bool, least: int) -> SharedVertices | None:
        """Vertices of the first step that all workers of a tile share; see :meth:`SharedVertices.of`."""
        # Parts of rows that a tile has as one stretch are read where they lie, with what is between them.
        width = self.grid.columns if self._cells[1] else 0
        return SharedVertices.of(self.first, joined=joined, least=least, width=width)

    def add_shared(
        self,
        compute_set: ComputeSet,
        shared: SharedVertices,
        target: Tensor,
        finish: Finish,
        *,
        last: bool,
        paired: PairedWith | None = None,
    ) -> None:
        """Add the vertices that all workers of a tile share: those of one cell, and those of several.

        Args:
            compute_set: Compute set that they are added to.
            shared: The vertices.
            target: Results, or partial results.
            finish: Operations on a result.
            last: True if no step follows.
            paired: The second sum of two.
        """
        given, each = self.first.partials, 2 if paired else 1
        for listed in (False, True):
            these = np.flatnonzero((shared.count > 1) == listed)
            if not len(these):
                continue
            counts: dict[str, Any] = {n: getattr(shared, n)[these] for n in ("rows", "columns", "kept", "reduced")}
            edges = {"x": self._shared_cells(shared, these, self.tensor)}
            if paired is not None:
                counts["turn"] = paired.turn
                if paired.tensor is not None:
                    edges["x2"] = self._shared_cells(shared, these, paired.tensor)
            form = SharedForm(listed, _are_short(counts), self.grain, paired.kind if paired else "")
            head = shared.head[these]
            begin, length, offset = (each * a for a in (given.begin[head], shared.length[these], given.offset[head]))
            written = Partials(begin, length, given.tile[head], offset)
            codelet = shared_codelet(self.op, self.tensor.dtype, self.direction, finish, form)
            fields = counts | edges | self._written(written, target, last)
            compute_set.vertices(codelet, tile=written.tile, **fields)

    def _shared_cells(self, shared: SharedVertices, these: Int64, tensor: Tensor) -> Any:
        """Cells of ``tensor`` of some of the vertices that workers share: regions, or rows of regions."""
        first, grid = self.first, self.grid
        count = shared.count[these]
        entry, number = count_up(count)
        cell = shared.cell[(np.cumsum(shared.count) - shared.count)[these][entry] + number]
        start = np.stack([first.block[cell], first.row[cell], first.strip[cell]], axis=1)
        rows, columns = shared.rows[these][entry], shared.columns[these][entry]
        size = np.stack([np.ones_like(rows), rows, columns], axis=1)
        view = self.order.apply(tensor)
        regions = boxes(view.reshape((grid.blocks, grid.rows, grid.columns)), start, size)
        if len(entry) == len(these):
            return regions
        return regions, np.arange(len(entry), dtype=np.int64), np.append(0, np.cumsum(count)).astype(np.int64)

    def _boxes(self, first: Rectangles, view: Tensor) -> Regions:
        grid = self.grid
        start = np.stack([first.block, first.row, first.column], axis=1)
        size = np.stack([np.ones_like(first.block), first.num_rows, first.num_columns], axis=1)
        return boxes(view.reshape((grid.blocks, grid.rows, grid.columns)), start, size)

    def _several(self, view: Tensor) -> tuple[Regions, Any, Any]:
        """Rectangles of every vertex, each a row."""
        first = self.first
        count = np.bincount(first.vertex, minlength=first.partials.num)
        row_begin = np.append(0, np.cumsum(count)).astype(np.int64)
        return self._boxes(first, view), np.arange(len(first.vertex), dtype=np.int64), row_begin

    def _one(self, first: Rectangles, view: Tensor, target: Tensor) -> dict[str, Any]:
        """The rectangle of every vertex, in place within whole rows where that needs no copy."""
        grid = self.grid
        position = (first.block * grid.rows + first.row) * grid.columns + first.column
        whole_cells = bool((first.num_columns == first.width).all())
        # The output lies over the operand: only the rectangle itself may be read, not what is between its rows.
        if target.overlaps(self.tensor):
            return {"x": self._boxes(first, view), "first": 0, "width": first.num_columns}
        if self._cells[1]:
            length = (first.num_rows - 1) * grid.columns + first.num_columns
            return {"x": flat_regions(view.flatten(), position, length), "first": 0, "width": grid.columns}
        grain = self.graph.system.ipu.vector_width(self.tensor.dtype)
        if whole_cells or self.direction == "columns" or bool((first.width % grain).any()):
            return {"x": self._boxes(first, view), "first": 0, "width": first.num_columns}
        start = np.stack([first.block, first.row, first.strip], axis=1)
        size = np.stack([np.ones_like(first.block), first.num_rows, first.width], axis=1)
        strips, index = np.unique(np.concatenate([start, size], axis=1), axis=0, return_inverse=True)
        cube = view.reshape((grid.blocks, grid.rows, grid.columns))
        regions = boxes(cube, strips[:, :3], strips[:, 3:])
        return {"x": (regions, index.ravel()), "first": first.column - first.strip, "width": first.width}

    def combining(self, step: Combination, source: Tensor, target: Tensor, *, last: bool) -> Adding:
        """Function that adds the vertices of a step after the first."""
        return _Adding(self, step, source, target, last)

    def lies_like(self, other: Tensor) -> bool:
        """True if ``other`` has the element type, order and tiles of the operand."""
        if other.dtype != self.tensor.dtype or storage_order(other) != self.order:
            return False
        mine, its = (self.graph.mapping_of(self.order.apply(t)) for t in (self.tensor, other))
        return np.array_equal(mine.begin, its.begin) and np.array_equal(mine.tile, its.tile)

    def add_combination(
        self, compute_set: ComputeSet, step: Combination, source: Tensor, target: Tensor, last: bool
    ) -> None:
        """Add the vertices that combine rows of ``source``."""
        finish = self.finish if last else Finish(self.kind)
        given = step.partials
        length, rows = given.length, np.bincount(step.vertex, minlength=given.num)
        first = np.append(0, np.cumsum(rows))
        # Elements were squared in the first step.
        op = replace(self.op, squares=False)
        ipu, least = self.graph.system.ipu, self.planner.least_columns
        to = given.begin if last else given.offset
        shared = SharedRows.of(step, rows, to, workers=ipu.num_workers, least=least)
        for these, listed in ((shared.count == 1, False), (shared.count > 1, True)):
            if not these.any():
                continue
            count = shared.count[these]
            vertex = shared.vertex[np.repeat(these, shared.count)]
            head = vertex[np.cumsum(count) - count]
            entry, number = count_up(rows[vertex])
            source_rows = step.source[first[vertex][entry] + number]
            x: Any = flat_regions(source, source_rows, length[vertex][entry], entry, len(vertex))
            if listed:
                x = x, np.arange(len(vertex), dtype=np.int64), np.append(0, np.cumsum(count)).astype(np.int64)
            sizes = {"rows": rows[head], "columns": length[head], "kept": shared.kept[these], "reduced": 1}
            form = SharedForm(listed, _are_short(sizes), ipu.vector_width(source.dtype))
            written = Partials(given.begin[head], count * length[head], given.tile[head], given.offset[head])
            codelet = shared_codelet(op, source.dtype, "rows", finish, form)
            compute_set.vertices(codelet, tile=written.tile, x=x, **sizes, **self._written(written, target, last))
        if not len(shared.rest):
            return
        rest = shared.rest
        entry, number = count_up(rows[rest])
        written = Partials(given.begin[rest], length[rest], given.tile[rest], given.offset[rest])
        counts: dict[str, Any] = {"rows": rows[rest], "columns": length[rest], "first": 0, "width": length[rest]}
        source_rows = step.source[first[rest][entry] + number]
        compute_set.vertices(
            rectangle_codelet(op, source.dtype, "rows", finish, short=_are_short(counts)),
            tile=written.tile,
            x=flat_regions(source, source_rows, length[rest][entry], entry, len(rest)),
            **counts,
            **self._written(written, target, last),
        )

    def _written(self, partials: Partials, target: Tensor, last: bool) -> dict[str, Any]:
        """Output fields of the vertices, and the scale of the last step."""
        fields: dict[str, Any] = {
            "y": flat_regions(target, partials.begin if last else partials.offset, partials.length)
        }
        if last and self.scale is not None:
            fields["scale"] = self._scale_edge(partials.num) if isinstance(self.scale, Tensor) else self.scale
        return fields

    def _scale_edge(self, num: int) -> tuple[Regions, Any]:
        assert isinstance(self.scale, Tensor)
        return whole(self.scale), np.zeros(num, dtype=np.int64)


def emit_together(graph: Graph, body: Sequence, reductions: Iterable[list[Adding]], name: str) -> None:
    """Append the steps of several reductions to ``body``, the first of each in one compute set, and so on."""
    compute_sets: list[ComputeSet] = []
    add_together(graph, compute_sets, reductions, name)
    for compute_set in compute_sets:
        body.add(Execute(compute_set))


def add_together(graph: Graph, compute_sets: list[ComputeSet], reductions: Iterable[list[Adding]], name: str) -> None:
    """Add the steps of reductions to ``compute_sets``, the first of each to the first; appends those that lack."""
    for steps in reductions:
        while len(compute_sets) < len(steps):
            compute_sets.append(graph.compute_set(name))
        for step, compute_set in zip(steps, compute_sets, strict=False):
            step(compute_set)


def _are_short(counts: dict[str, Any]) -> bool:
    """True if all counts of vertices fit 16 bits."""
    return all(int(np.max(n, initial=0)) < 2**16 for n in counts.values())


@dataclass(frozen=True)
class _Adding:
    """A step after the first, to be added to a compute set."""

    reduction: Reduction
    step: Combination
    source: Tensor
    target: Tensor
    last: bool

    def __call__(self, compute_set: ComputeSet) -> None:
        self.reduction.add_combination(compute_set, self.step, self.source, self.target, self.last)
