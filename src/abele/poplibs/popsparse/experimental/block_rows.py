"""Rows of matrices that are held in blocks: their pieces, their tiles, and the vertices that go over them.

Rows are dealt to the tiles in order, so that each tile has about as many elements. A vertex has one row, on one worker;
where a tile has few and long rows, on all of them. Elements that a mask hides are not read, and are filled with zeros.

Example: 512 rows of 12 heads in blocks of 16 at density 1/4 are 6,144 rows of 128 elements: 4 or 5 rows for each of
1,472 tiles, each gathered from 8 pieces of 16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Regions, Tensor
from abele.graph.program import Steps
from abele.machine import Ipu
from abele.numerics import f16, f32
from abele.poplibs.popsparse.experimental.codelets import RowCycles
from abele.poplibs.popsparse.experimental.params import SubBlockMask
from abele.poplibs.popsparse.experimental.steps import emit_zeros
from abele.poplibs.popsparse.experimental.triangles import hidden_ranges, live_columns
from abele.poplibs.poputil.regions import flat_regions
from abele.sparsity import Pattern


@dataclass(frozen=True)
class BlockRows:
    """Rows of stacked matrices that are held in blocks.

    Attributes:
        pattern: Held blocks of all groups.
        groups: Matrices that are stacked.
        mask: Elements of held blocks that are hidden.
    """

    pattern: Pattern
    groups: int
    mask: SubBlockMask

    def check(self, name: str, tensor: Tensor) -> None:
        """Raise unless a tensor has the blocks.

        Raises:
            TensorError: It has another shape.
            TypeMismatchError: Its elements are neither f16 nor f32.
        """
        wanted = (self.pattern.num_blocks, self.pattern.block[0] * self.pattern.block[1])
        if tensor.shape != wanted:
            raise TensorError(f"{name}: held blocks are {list(wanted)}, got {tensor!r}", because=f"of {self.pattern}")
        if tensor.dtype not in (f16, f32):
            raise TypeMismatchError(f"{name}: blocks are of f16 or f32, got {tensor.dtype}")

    @cached_property
    def order(self) -> tuple[Int64, Int64]:
        """Block, and row in it, of each piece of a row, one row of the matrices after the other."""
        height = self.pattern.block[0]
        block = np.repeat(np.arange(self.pattern.num_blocks, dtype=np.int64), height)
        inside = np.tile(np.arange(height, dtype=np.int64), self.pattern.num_blocks)
        order = np.lexsort((block, self.pattern.rows[block] * height + inside))
        return block[order], inside[order]

    @cached_property
    def pieces(self) -> tuple[Int64, Int64, Int64]:
        """First element in the blocks, length and row of each piece that is not hidden."""
        (height, width), (block, inside) = self.pattern.block, self.order
        low, high = (bound[block, inside] for bound in live_columns(self.pattern, self.groups, self.mask))
        begin = (block * height + inside) * width + low
        return begin, high - low, self.pattern.rows[block] * height + inside

    def tiles(self, num_tiles: int) -> npt.NDArray[np.int32]:
        """Tile of each row of the matrices: in order, about as many elements each."""
        _, length, row = self.pieces
        weight = np.bincount(row, length, minlength=self.pattern.shape[0])
        done = np.cumsum(weight) - weight / 2
        total = max(float(weight.sum()), 1.0)
        return np.minimum(done * num_tiles / total, num_tiles - 1).astype(np.int32)

    def new_blocks(self, graph: Graph, like: Tensor, name: str) -> Tensor:
        """A tensor of the blocks in which each row of a block lies on the tile of its row."""
        made = graph.variable(like.dtype, like.shape, name=name)
        if made.size:
            height = self.pattern.block[0]
            rows = (self.pattern.rows[:, None] * height + np.arange(height)).reshape(-1)
            tile = self.tiles(graph.num_tiles)[rows]
            graph.map_rows(made.reshape((len(rows), -1)), tile.tolist())
        return made

    def emit(
        self, graph: Graph, body: Steps, codelet: Callable[[bool], type], costs: RowCycles, out: Tensor, **read: Tensor
    ) -> None:
        """Append a vertex for each row of which anything is left, and zeros in what is hidden.

        Args:
            graph: The graph.
            body: Program that the supersteps are appended to.
            codelet: Gives the vertex of a row that all workers share, or of one on a worker.
            costs: Cost of either.
            out: Blocks that are written.
            **read: Blocks that are read, by field.
        """
        begin, length, row = self.pieces
        some = length > 0
        rows, region = np.unique(row[some], return_inverse=True)

        def regions(tensor: Tensor) -> Regions:
            return flat_regions(tensor, begin[some], length[some], region.reshape(-1), len(rows))

        if len(rows):
            compute_set = graph.compute_set("rows")
            fields: dict[str, Any] = {name: regions(tensor) for name, tensor in read.items()}
            fields |= {"out": regions(out), "tile": self.tiles(graph.num_tiles)[rows]}
            are_shared = _shared(fields["out"].sizes, fields["tile"], costs, graph.system.ipu)
            for shared in (False, True):
                chosen = np.flatnonzero(are_shared == shared)
                if len(chosen):
                    given = {n: v[chosen] if n == "tile" else v.take(chosen) for n, v in fields.items()}
                    compute_set.vertices(codelet(shared), **given)
            body.add(Execute(compute_set))
        if self.mask is not SubBlockMask.NONE:
            first, count = hidden_ranges(self.pattern, self.groups, self.mask)
            if len(first):
                height, width = self.pattern.block
                hidden = self.pattern.rows[first // (height * width)] * height + first // width % height
                emit_zeros(graph, body, flat_regions(out, first, count), self.tiles(graph.num_tiles)[hidden])

    @cached_property
    def held(self) -> tuple[Int64, Int64]:
        """Block rows that hold anything, and the first block of each, with the end of the last."""
        starts = self.pattern.row_starts
        rows = np.flatnonzero(np.diff(starts))
        return rows, np.append(starts[rows], self.pattern.num_blocks).astype(np.int64)

    def stretches(self, tensor: Tensor) -> Regions:
        """Blocks of each block row that holds any, of a tensor in one stretch."""
        area, begin = self.pattern.block[0] * self.pattern.block[1], self.held[1]
        return flat_regions(tensor, begin[:-1] * area, np.diff(begin) * area)


def _shared(elements: Int64, tile: npt.NDArray[np.int32], costs: RowCycles, ipu: Ipu) -> npt.NDArray[np.bool_]:
    """True for rows that all workers of their tile share: where that is faster than a worker for each row."""
    slots = costs.of_worker(elements, ipu)
    longest = np.zeros(int(tile.max()) + 1, np.int64)
    np.maximum.at(longest, tile, slots)
    apart = np.maximum(ipu.num_workers * longest, np.bincount(tile, slots))
    together = np.bincount(tile, costs.of_all(elements, ipu))
    return np.asarray((together < apart)[tile])
