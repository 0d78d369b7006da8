"""Placing a reduction: its geometry, its steps and their vertices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from abele.errors import TileMappingError
from abele.graph import Execute, Graph, Regions, Tensor, boxes, whole
from abele.graph.program import Sequence
from abele.numerics import ElementType
from abele.poplibs.popops.reduce_codelets import Finish, combine_codelet, rectangle_codelet
from abele.poplibs.popops.reduce_ops import ReduceOp, accumulator
from abele.poplibs.popops.reduce_plan import (
    Combination,
    Direction,
    Partials,
    Slices,
    Steps,
    last_combination,
    plan_steps,
    slice_cells,
)
from abele.poplibs.poputil.grid import Grid, collapse, rectangles_of
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping, vector_grain
from abele.poplibs.poputil.order import StorageOrder, storage_order
from abele.poplibs.poputil.regions import flat_regions

Scale = float | Tensor | None
"""What multiplies a result: a number, a tensor of one f32 element, or nothing."""


@dataclass(frozen=True)
class Reduction:
    """One reduction of a tensor.

    Attributes:
        graph: Where vertices and intermediate results are made.
        tensor: What is reduced.
        kept: Its dimensions that the result keeps, ascending.
        op: How elements are combined.
        finish: What happens to the result before it is stored.
        scale: The scale that ``finish`` speaks of.
        name: Prefix of names.
    """

    graph: Graph
    tensor: Tensor
    kept: tuple[int, ...]
    op: ReduceOp
    finish: Finish
    scale: Scale
    name: str

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
    def grid(self) -> Grid:
        """Neighbouring dimensions joined as long as all are kept or all are reduced; at least one group is reduced."""
        grid = collapse(self.order.extents, [tuple(d in self.kept for d in self.order.dims())])
        if len(grid.groups) == 1 and self._keeps(grid.groups[0]):
            end = grid.groups[0][1]
            return Grid((*grid.groups, (end, end)), (*grid.extents, 1))
        return grid

    def _keeps(self, group: tuple[int, int]) -> bool:
        """Whether the dimensions of a group are kept."""
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
        return accumulator(self.op, self.tensor.dtype)

    @property
    def direction(self) -> Direction:
        """What the vertices of the first step reduce."""
        return "rows" if len(self.grid.groups) > 1 and self._keeps(self.grid.groups[-1]) else "columns"

    @cached_property
    def slices(self) -> Slices:
        """What the vertices of the first step read."""
        mapping = self.graph.mapping_of(self.order.apply(self.tensor))
        if not mapping.is_complete:
            raise TileMappingError(f"{self.name}: {self.tensor!r} is not mapped to tiles completely")
        ipu = self.graph.system.ipu
        kept = tuple(self._keeps(group) for group in self.grid.groups)
        cells = rectangles_of(self.grid, mapping)
        return slice_cells(cells, kept, self.direction, ipu.num_workers, ipu.vector_width(self.tensor.dtype))

    @cached_property
    def steps(self) -> Steps:
        """The steps but for the last, which depends on where the results are wanted."""
        return plan_steps(self.slices.partials, self.num_outputs)

    def create_output(self) -> Tensor:
        """A tensor for the result: where the last step leaves it, or spread over the tiles."""
        order, dtype = self.kept_order, self.finish.type
        variable = self.graph.variable(dtype, order.extents, name=f"{self.name}/out")
        grain = vector_grain(self.graph, dtype)
        spread = linear_mapping(self.graph, self.num_outputs, dtype, min_elements=grain, grain=grain)
        empty = self.tensor.size == 0 or self.num_outputs == 0
        set_mapping(self.graph, variable, spread if empty else self.steps.results or spread)
        return order.undo(variable)

    def emit(self, body: Sequence, out: Tensor) -> None:
        """Append the steps that reduce into ``out``."""
        if self.num_outputs == 0 or self.tensor.size == 0:
            return
        ordered = self.kept_order.apply(out).flatten()
        combinations = last_combination(self.steps, self.graph.mapping_of(ordered))
        given = [self.slices.partials, *(c.partials for c in combinations)]
        targets = [*(self._store(p, n) for n, p in enumerate(given[:-1])), ordered]
        body.add(self._first(targets[0], last=not combinations))
        for number, step in enumerate(combinations, start=1):
            last = number == len(combinations)
            body.add(self._combine(step, number, targets[number - 1], targets[number], last))

    def _store(self, partials: Partials, number: int) -> Tensor:
        stored = self.graph.variable(self.kind, partials.size, name=f"{self.name}/partials{number}")
        return set_mapping(self.graph, stored, partials.mapping)

    def _first(self, target: Tensor, last: bool) -> Execute:
        grid, slices = self.grid, self.slices
        view = self.order.apply(self.tensor).reshape((grid.blocks, grid.rows, grid.columns))
        finish = self.finish if last else Finish(self.kind)
        compute_set = self.graph.compute_set(self.name)
        strided = self._reads_in_place and not target.overlaps(self.tensor)
        fields = self._results(slices.partials, target, last)
        if strided:
            start, size, strip = slices.strips()
            fields |= {"x": (boxes(view, start, size), strip), "first": slices.start[:, 2] - slices.column}
            fields["width"] = slices.width
        else:
            fields["x"] = boxes(view, slices.start, slices.size)
        compute_set.vertices(
            rectangle_codelet(self.op, self.tensor.dtype, self.direction, finish, strided=strided),
            tile=slices.partials.tile,
            columns=slices.size[:, 2],
            **fields,
        )
        return Execute(compute_set)

    @property
    def _reads_in_place(self) -> bool:
        """Whether vertices of some columns read them with a stride: columns are cut, strides keep vectors whole."""
        slices, grain = self.slices, self.graph.system.ipu.vector_width(self.tensor.dtype)
        is_cut = bool((slices.size[:, 2] < slices.width).any())
        return self.direction == "rows" and is_cut and not bool((slices.width % grain).any())

    def _combine(self, step: Combination, number: int, source: Tensor, target: Tensor, last: bool) -> Execute:
        finish = self.finish if last else Finish(self.kind)
        rows = flat_regions(source, step.source, step.length)
        compute_set = self.graph.compute_set(f"{self.name}/combine{number}")
        compute_set.vertices(
            combine_codelet(self.op, self.kind, finish),
            tile=step.partials.tile,
            partials=(rows, np.arange(rows.num, dtype=np.int64), step.row_begin),
            **self._results(step.partials, target, last),
        )
        return Execute(compute_set)

    def _results(self, partials: Partials, target: Tensor, last: bool) -> dict[str, Any]:
        """What the vertices write, and the scale of the last step."""
        fields: dict[str, Any] = {
            "y": flat_regions(target, partials.begin if last else partials.offset, partials.length)
        }
        if last and self.scale is not None:
            fields["scale"] = self._scale_edge(partials.num) if isinstance(self.scale, Tensor) else self.scale
        return fields

    def _scale_edge(self, num: int) -> tuple[Regions, Any]:
        assert isinstance(self.scale, Tensor)
        return whole(self.scale), np.zeros(num, dtype=np.int64)
