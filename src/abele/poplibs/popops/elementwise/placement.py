"""Placing element-wise operations: vertices and their shares, on the tiles of the outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TileMappingError
from abele.graph import ComputeSet, Execute, Graph, Program, Regions, Tensor
from abele.machine import Ipu
from abele.poplibs.popops.elementwise.cost import CostForm, element_cycles, vector_type
from abele.poplibs.popops.expressions.element_codelets import Access, OperandLayout, Port, element_codelet
from abele.poplibs.popops.expressions.fused import Fused
from abele.poplibs.popops.expressions.names import identifier
from abele.poplibs.poputil.broadcast import broadcast_dims
from abele.poplibs.poputil.grid import BlockGrid, Cells, cells_of, collapse, rectangles_of
from abele.poplibs.poputil.order import StorageOrder, is_same_view, storage_order
from abele.poplibs.poputil.regions import flat_regions


class CycleFormula(Protocol):
    """Formula of the tile cycles of vertices with an operation of their own, from the number of elements of each.

    Formulas are frozen dataclasses: two of them are the same formula if and only if their ``repr`` is the same, and a
    codelet class is shared only by calls of the same text and the same formula.
    """

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        """Tile cycles, int64[n], of vertices of ``size`` elements, int64[n]."""


def execute_elementwise(
    graph: Graph,
    fused: Fused,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    name: str,
    cycles: CycleFormula | None = None,
    base: str = "MultiVertex",
    vector_broadcast: bool = True,
) -> Program:
    """Superstep that evaluates ``fused``: one vertex per tile for its part of the outputs.

    Args:
        graph: Graph in which vertices are made.
        fused: Expressions, one per output.
        inputs: Operands, broadcasting to the shape of the outputs.
        outputs: Tensors of one shape; one that is the same view as an operand overwrites it.
        name: Name of the compute set.
        cycles: Tile cycles of vertices of so many elements, where the expressions are an operation of its own.
        base: Kind of the vertices; it decides how they are launched.
        vector_broadcast: True if vertices know operands that are repeated along rows or columns; otherwise these are
            read element by element, repeated.

    Raises:
        TileMappingError: The first output is not mapped completely.
    """
    placement = _Placement(
        graph, fused=fused, inputs=inputs, outputs=outputs, cycles=cycles, base=base, vector_broadcast=vector_broadcast
    )
    compute_set = graph.compute_set(name)
    placement.add_vertices(compute_set, name)
    return Execute(compute_set)


@dataclass(frozen=True)
class _Vertices:
    """Cells gathered into vertices.

    Attributes:
        tile: Tile of each vertex, int32[N].
        of_cell: Vertex of each cell, int64[cells], non-decreasing.
        height: Rows of the blocks of each vertex, of which the first and the last may have fewer, int64[N]; None where
            every vertex has rows of one block.
    """

    tile: npt.NDArray[np.int32]
    of_cell: Int64
    height: Int64 | None = None


class _Placement:
    """The geometry of one element-wise operation."""

    def __init__(
        self,
        graph: Graph,
        fused: Fused,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        cycles: CycleFormula | None,
        base: str,
        vector_broadcast: bool,
    ) -> None:
        self.graph = graph
        self.vector_broadcast = vector_broadcast
        self.base = base
        self.own_cycles = cycles
        self.fused = fused
        self.outputs = outputs
        self.inputs = inputs
        self.order = storage_order(outputs[0])
        self.repeated = [self._pattern(t) for t in inputs]
        self.grid = self._grid()
        self.access = [self._access(i) for i in range(len(inputs))]
        mapping = graph.mapping_of(self.order.apply(outputs[0]))
        if not mapping.is_complete:
            raise TileMappingError(f"output {outputs[0]!r} is not mapped to tiles completely")
        # A mapping gives runs of elements on a tile; where rows or columns matter, runs that form a rectangle become
        # one cell.
        self.cells = (rectangles_of if self.walks_rows else cells_of)(self.grid, mapping)
        self.vertices = self._gather()
        if self.vertices.height is not None:
            of_blocks: dict[Access, Access] = {"column": "column of block", "single": "block"}
            self.access = [a if self._everywhere(i) else of_blocks.get(a, a) for i, a in enumerate(self.access)]

    @property
    def walks_rows(self) -> bool:
        """True if vertices are rectangles of rows rather than runs of elements."""
        by_row = not {"row", "column", "column of block"}.isdisjoint(self.access)
        return by_row or (self.fused.needs_index and self.grid.rows > 1)

    def _pattern(self, tensor: Tensor) -> tuple[bool, ...]:
        flags = broadcast_dims(tensor.shape, self.order.shape)
        return tuple(flags[d] for d in self.order.dims())

    def _grid(self) -> BlockGrid:
        extents = self.order.extents
        patterns: list[tuple[object, ...]] = []
        for i, flags in enumerate(self.repeated):
            # Operands of one element fit any grid, and seeds are read whole: only the others decide where dimensions
            # may not merge.
            everywhere = all(f for f, n in zip(flags, extents, strict=True) if n != 1)
            if i not in self.fused.seeds and not everywhere and any(flags) and self.vector_broadcast:
                patterns.append(flags)
        if self.fused.needs_index:
            patterns.append(_index_runs(self.order))
        return collapse(extents, patterns)

    def _flags(self, operand: int) -> tuple[bool | None, bool | None]:
        """True if an operand is repeated along rows and along columns; None where the grid has no such group."""
        flags, extents = self.repeated[operand], self.order.extents
        found: list[bool | None] = []
        # Rows and columns are the last two groups of the grid; (0, 0) stands for one that it does not have.
        for begin, end in (*[(0, 0)] * max(0, 2 - len(self.grid.groups)), *self.grid.groups[-2:]):
            real = [flags[d] for d in range(begin, end) if extents[d] != 1]
            found.append(real[0] if real else None)
        return found[0], found[1]

    def _access(self, operand: int) -> Access:
        if operand in self.fused.seeds:
            return "whole"
        if not self.vector_broadcast and not self._everywhere(operand):
            return "full"
        # Repeated along columns, an operand has one element per row; along rows, one per column; along both, one per
        # block.
        row, column = self._flags(operand)
        if column:
            return "row" if row is False else "single"
        return "column" if row else "full"

    def _gather(self) -> _Vertices:
        if self.walks_rows and not self.fused.needs_index:
            return self._joined()
        cells = self.cells
        if self.walks_rows or self.fused.needs_index or self._by_block():
            return _Vertices(cells.tile, np.arange(cells.num, dtype=np.int64))
        # Nothing depends on where a run lies: all runs of a tile go to one vertex, which costs one launch.
        tile, of_cell = np.unique(cells.tile, return_inverse=True)
        return _Vertices(tile.astype(np.int32), of_cell.reshape(-1).astype(np.int64))

    def _joined(self) -> _Vertices:
        """Rows of several blocks on a tile as one vertex.

        The cells of a tile follow each other there, so that they are read in place. All have as many columns, and all
        but the first and the last as many rows: rows 40 to 49 of a block of 50, a whole block, and rows 0 to 9 of a
        third. Cells that read the same of an operand have vertices of their own, which do not copy it.
        """
        cells = self.cells = self.cells.taken(np.lexsort((self.cells.position, self.cells.tile)))
        apart = np.append(True, cells.tile[1:] != cells.tile[:-1])
        head = np.flatnonzero(apart)
        each = _Vertices(cells.tile, np.arange(cells.num, dtype=np.int64))
        if len(head) == cells.num:
            return each
        count = np.diff(np.append(head, cells.num))
        entry = np.repeat(np.arange(len(head)), count)
        height = np.maximum.reduceat(cells.num_rows, head)
        end = cells.position + (cells.num_rows - 1) * self.grid.columns + cells.num_columns
        outer = apart | np.append(apart[1:], True)
        fits = (cells.num_columns == cells.num_columns[head][entry]) & (outer | (cells.num_rows == height[entry]))
        fits &= apart | np.append(True, cells.position[1:] >= end[:-1])
        for operand, access in enumerate(self.access):
            if access in ("column", "single") and not self._everywhere(operand):
                begin = self._block_regions(self.inputs[operand], access, each).begin
                read = np.unique(np.stack([entry, begin]), axis=1)[0] if len(begin) == cells.num else entry[:0]
                fits &= np.bincount(read, minlength=len(head))[entry] == count[entry]
        joined = np.logical_and.reduceat(fits, head) & (count > 1)
        if not joined.any():
            return each
        first = apart | ~joined[entry]
        return _Vertices(
            cells.tile[first], np.cumsum(first) - 1, np.where(joined[entry], height[entry], cells.num_rows)[first]
        )

    def _by_block(self) -> bool:
        """True if a single element serves a block only, so that vertices may not span blocks."""
        if self.grid.blocks == 1:
            return False
        return any(a == "single" and not self._everywhere(i) for i, a in enumerate(self.access))

    def _everywhere(self, operand: int) -> bool:
        return self.inputs[operand].size == 1

    # --- wiring ----------------------------------------------------------------------------------------------------

    def add_vertices(self, compute_set: ComputeSet, name: str) -> None:
        """Make the vertices in ``compute_set``."""
        layout = self._layout()
        values: dict[str, Any] = {}
        for i, port in enumerate(layout.inputs):
            # One port serves every operand that is the same view: wired once.
            if port is not None and port.name not in values:
                values[port.name] = self._operand_regions(i, port.access)
        for tensor, port in zip(self.outputs, layout.outputs, strict=True):
            if port.name not in values:
                values[port.name] = self._full_regions(tensor)
        if layout.rows:
            head = np.flatnonzero(np.append(True, np.diff(self.vertices.of_cell) != 0))
            values["columns"] = self.cells.num_columns[head]
            if layout.blocks:
                height, several = self.vertices.height, np.bincount(self.vertices.of_cell) > 1
                assert height is not None
                values |= {"height": height, "skip": np.where(several, height - self.cells.num_rows[head], 0)}
        if layout.indexed:
            values |= self._index_state()
        short = identifier(name.rsplit("/", 1)[-1])
        built = element_codelet(short, self.fused, layout, self._formula(layout), self.own_cycles)
        compute_set.vertices(built, tile=self.vertices.tile, **values)

    def _layout(self) -> OperandLayout:
        overwritten = {
            i for i, t in enumerate(self.inputs) for o in self.outputs if i in self.fused.used and is_same_view(t, o)
        }
        ports: list[Port | None] = []
        for i, tensor in enumerate(self.inputs):
            # The same view given twice is read once, through the port of its first mention.
            first = next((j for j in range(i) if ports[j] is not None and is_same_view(self.inputs[j], tensor)), i)
            if i not in self.fused.used:
                ports.append(None)
            elif first != i:
                ports.append(ports[first])
            else:
                ports.append(Port(f"a{i}", tensor.dtype, "InOut" if i in overwritten else "Input", self.access[i]))
        outputs = tuple(self._output_port(k, ports) for k in range(len(self.outputs)))
        ipu = self.graph.system.ipu
        grain = ipu.vector_width(vector_type(self.fused))
        rows = self.walks_rows
        return OperandLayout(
            inputs=tuple(ports),
            outputs=outputs,
            rows=rows,
            indexed=self.fused.needs_index,
            workers=ipu.num_workers,
            grain=grain,
            base=self.base,
        )

    def _output_port(self, number: int, ports: Sequence[Port | None]) -> Port:
        tensor = self.outputs[number]
        for operand, port in zip(self.inputs, ports, strict=True):
            # An output that overwrites an operand shares its field, which is `InOut`.
            if port is not None and is_same_view(operand, tensor):
                return port
        return Port(f"y{number}", tensor.dtype, "Output", "full")

    def _formula(self, layout: OperandLayout) -> Callable[..., Int64]:
        ports = layout.ports
        form = CostForm(
            streams=sum(p.access == "full" for p in layout.inputs if p is not None) + len(layout.outputs),
            scalars=sum(p.access in ("single", "whole", "block") for p in ports),
            in_place=any(p.direction == "InOut" for p in ports),
            rows=layout.rows,
            blocks=layout.blocks,
        )
        fused, out, own = self.fused, layout.outputs[0].name, self.own_cycles

        def cycles(v: Any, ipu: Ipu) -> Int64:
            if own is not None:
                return own(getattr(v, out), ipu)
            columns = v.columns if form.rows else 0
            return element_cycles(fused, form, getattr(v, out), columns, ipu)

        return cycles

    def _full_regions(self, tensor: Tensor) -> Regions:
        ordered = self.order.apply(tensor).flatten()
        cell, begin, length = self.cells.runs()
        vertex = self.vertices.of_cell[cell]
        # Runs come by cell; regions want them by vertex, and within one in storage order, hence the stable sort.
        by_vertex = np.argsort(vertex, kind="stable")
        num = len(self.vertices.tile)
        return flat_regions(ordered, begin[by_vertex], length[by_vertex], vertex[by_vertex], num)

    def _operand_regions(self, operand: int, access: Access) -> object:
        tensor = self.inputs[operand]
        if access == "full":
            return self._full_regions(tensor.broadcast_to(self.order.shape))
        one = np.zeros(len(self.vertices.tile), dtype=np.int64)
        if access == "whole":
            return flat_regions(tensor.flatten(), one[:1], one[:1] + tensor.size), one
        if self._everywhere(operand):
            return flat_regions(tensor.flatten(), one[:1], one[:1] + 1), one
        return self._block_regions(tensor, access, self.vertices)

    def _block_regions(self, tensor: Tensor, access: Access, vertices: _Vertices) -> Regions:
        """Regions of an operand of one element per row, column or block: those of its cells for each vertex."""
        cells, grid = self.cells, self.grid
        view = self.order.apply(tensor.broadcast_to(self.order.shape))
        # Along a repeated dimension every element is the same: index 0 stands for all of them.
        view = view.reshape((grid.blocks, grid.rows, grid.columns))
        if access == "row":
            seen, begin, length = view[:, :, 0], cells.block * grid.rows + cells.row, cells.num_rows
        elif access in ("column", "column of block"):
            seen, begin, length = view[:, 0, :], cells.block * grid.columns + cells.column, cells.num_columns
        else:
            seen, begin, length = view[:, 0, 0], cells.block, np.ones_like(cells.block)
        if vertices.height is None:
            return flat_regions(seen.flatten(), begin, length)
        return flat_regions(seen.flatten(), begin, length, vertices.of_cell, len(vertices.tile))

    def _index_state(self) -> dict[str, object]:
        base, row_step, column_step = index_steps(self.order, self.grid, self.cells)
        return {"base": base, "row_step": row_step, "column_step": column_step}


def _index_runs(order: StorageOrder) -> tuple[object, ...]:
    """A number for each dimension in storage order, equal where one row-major run goes on."""
    strides, extents = order.logical_strides(), order.extents
    run, previous, result = 0, 0, []
    for stride, extent in zip(strides, extents, strict=True):
        if extent != 1:
            # A stride that is not what the inner dimensions leave starts another run.
            run += previous != stride * extent
            previous = stride
        result.append(run)
    return tuple(result)


def index_steps(order: StorageOrder, grid: BlockGrid, cells: Cells) -> tuple[Int64, int, int]:
    """Row-major index of each cell's first element, and its steps from row to row and column to column."""
    strides = order.logical_strides()
    steps = [_group_step(strides, order.extents, begin, end) for begin, end in grid.groups]
    steps = [0] * max(0, 2 - len(steps)) + steps
    base = cells.row * steps[-2] + cells.column * steps[-1]
    if grid.blocks > 1:
        coordinates = np.unravel_index(cells.block, grid.extents[:-2])
        base = base + sum(c.astype(np.int64) * s for c, s in zip(coordinates, steps[:-2], strict=True))
    return base, steps[-2], steps[-1]


def _group_step(strides: Sequence[int], extents: Sequence[int], begin: int, end: int) -> int:
    """Row-major stride of the innermost real dimension of a group."""
    return next((strides[d] for d in range(end - 1, begin - 1, -1) if extents[d] != 1), 0)
