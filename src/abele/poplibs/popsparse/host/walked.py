"""Products with a sparse matrix whose pattern comes at run time, as buckets of meta-info and of values.

A vertex makes some lines (block rows) of the result. It looks through the buckets for blocks of these lines, counts
them by line, puts their columns and values in the order of lines, and goes on as products of known patterns do.

The order is right whatever buckets hold: a line's blocks come in the order of buckets, each once. Reading values in the
buckets' order and writing them in that of lines takes one pass over them, which pays from a few dense columns on.

Example: 1,024 block rows are four shares of 256. A bucket of cell 3 (rows 96 to 127) belongs to the first share alone,
and the others pass over it by its header.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32, i64, u16, u32
from abele.poplibs.popsparse.host.dense import brought_near, in_panels, is_near, lines, moved, scratch
from abele.poplibs.popsparse.host.product_codelets import Tiling, all_products, tiling_of
from abele.poplibs.popsparse.host.tiling import panels_of, tile_rows, tile_width
from abele.poplibs.popsparse.host.walked_scatter import Scattering, scattered_codelet
from abele.poplibs.popsparse.host.walks import BlockSteps, num_shares


@dataclass(frozen=True)
class Buckets:
    """Sizes of buckets; see :mod:`abele.poplibs.popsparse.dynamic.buckets`.

    Attributes:
        block: Rows and columns of a block.
        cell: Block rows and block columns of a cell.
        grid: Block rows and block columns of the matrix.
        header: Entries of a sub-group before its first row.
        meta_slots: Entries of a bucket of meta-info.
        nz_slots: Blocks of a bucket of values.
        most: Blocks of the matrix, at most.
    """

    block: tuple[int, int]
    cell: tuple[int, int]
    grid: tuple[int, int]
    header: int
    meta_slots: int
    nz_slots: int
    most: int


@cache
def walked_codelet(buckets: Buckets, how: Tiling, held: ElementType, made: ElementType, *, transposed: bool) -> type:
    """Some lines of S·X or Sᵀ·X, from all buckets."""
    header, slots = buckets.header, buckets.meta_slots
    high, wide = buckets.block
    area, values = high * wide, buckets.nz_slots * high * wide
    own, each = (2, buckets.cell[1]) if transposed else (1, buckets.cell[0])
    other, apart = (1, buckets.cell[0]) if transposed else (2, buckets.cell[1])
    depth = high if transposed else wide
    # Nothing of X is read beyond its last row, whatever the meta-info says.
    most = buckets.grid[0 if transposed else 1] - 1

    @codelet(name="HostSparseWalked")
    class HostSparseWalked(Vertex):
        meta: Input[Vector[u16]]
        nz: Input[Vector[held]]
        x: Input[Vector[f32]]
        starts: InOut[Vector[u32]]
        columns: InOut[Vector[u32]]
        ordered: InOut[Vector[f32]]
        out: Output[Vector[made]]
        s: InOut[Vector[f32]]
        first: u32
        n: u32
        stride: u32
        last: u32
        jump: u32

        def compute(self):
            num = i64(len(self.starts)) - 1
            low = i64(self.first)
            for i in range(num + 1):
                self.starts[i] = u32(0)
            # Twice over the buckets: to count the blocks of each line, then to put them in order.
            for fills in range(2):
                for bucket in range(i64(len(self.meta)) // slots):
                    at, stop = bucket * slots, bucket * slots + slots
                    value, behind = bucket * values, bucket * values + values
                    while at + header <= stop:
                        if self.meta[at] == 0:
                            at = stop
                        else:
                            base = i64(self.meta[at + own]) * each - low
                            left = i64(self.meta[at + other]) * apart
                            if base < num and base + each > 0:
                                row, v = at + header, value
                                for _r in range(i64(self.meta[at + 6])):
                                    if row + 2 <= stop:
                                        count = i64(self.meta[row + 1])
                                        # Nothing is read beyond the bucket, whatever the meta-info says.
                                        if row + 2 + count > stop or v + count * area > behind:
                                            count = i64(0)
                                        x = i64(self.meta[row])
                                        if transposed:
                                            for j in range(count):
                                                line = base + i64(self.meta[row + 2 + j])
                                                if line >= 0 and line < num:
                                                    if fills == 0:
                                                        self.starts[line + 1] += u32(1)
                                                    else:
                                                        p = i64(self.starts[line])
                                                        if p < i64(len(self.columns)):
                                                            self.columns[p] = u32(min(left + x, most) * depth)
                                                            for k in range(area):
                                                                w = f32(self.nz[v + j * area + k])
                                                                self.ordered[p * area + k] = w
                                                        self.starts[line] = u32(p + 1)
                                        else:
                                            line = base + x
                                            if line >= 0 and line < num:
                                                if fills == 0:
                                                    self.starts[line + 1] += u32(count)
                                                else:
                                                    p = i64(self.starts[line])
                                                    if p + count <= i64(len(self.columns)):
                                                        for j in range(count):
                                                            y = left + i64(self.meta[row + 2 + j])
                                                            self.columns[p + j] = u32(min(y, most) * depth)
                                                        for k in range(count * area):
                                                            self.ordered[p * area + k] = f32(self.nz[v + k])
                                                    self.starts[line] = u32(p + count)
                                        v += count * area
                                        row += 2 + count
                            value += i64(self.meta[at + 3]) * area
                            at += max(i64(self.meta[at + 4]), i64(header))
                if fills == 0:
                    for i in range(num):
                        self.starts[i + 1] += self.starts[i]
                else:
                    # Each start has moved on to the next one.
                    for i in range(num):
                        self.starts[num - i] = self.starts[num - i - 1]
                    self.starts[0] = u32(0)
                    if i64(self.starts[num]) > i64(len(self.columns)):
                        for i in range(num + 1):
                            self.starts[i] = u32(0)
            all_products(self, self.ordered, how, made)

    return HostSparseWalked


def host_walked_product(
    graph: Graph,
    buckets: Buckets,
    meta: Tensor,
    values: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    transposed: bool,
    name: str,
) -> Sequence:
    """Steps of S·X or Sᵀ·X, for the pattern that the meta-info has when they run.

    Args:
        graph: The graph of the steps and of their scratch memory.
        buckets: Sizes.
        meta: Buckets of meta-info [groups, entries].
        values: Buckets of values [groups, values].
        x: X [groups, rows, columns].
        out: The product [groups, rows, columns].
        transposed: True for Sᵀ·X.
        name: Name of the steps.
    """
    groups, n = x.shape[0], x.shape[2]
    high, depth = buckets.block[::-1] if transposed else buckets.block
    count = buckets.grid[1] if transposed else buckets.grid[0]
    steps, near = Sequence(), []
    for tensor in (meta, values):
        held, before = brought_near(graph, tensor.reshape((groups, 1, -1)), name)
        near.append(lines(held))
        steps.add(before)
    made = out if is_near(out) else scratch(graph, out.shape, name, out.dtype)
    block = (high, depth)
    blocks = BlockSteps(1, buckets.block[1]) if transposed else BlockSteps(buckets.block[1], 1)
    panels = panels_of(n, tile_width(tile_rows(*block, min(n, 16), blocks.row)))
    dense = in_panels(graph, x, panels, name)
    steps.add(dense.steps)
    how = tiling_of(block, blocks, panels, "plain")
    step = graph.compute_set(f"{name}/host_walked")
    each = min(num_shares(groups), count)
    cuts = (np.arange(each + 1) * count // each).tolist()
    area = buckets.block[0] * buckets.block[1]
    units = [(group, begin, end) for begin, end in pairwise(cuts) for group in range(groups)]
    scatters = transposed and area == 1
    for size in sorted({end - begin for _, begin, end in units}):
        mine = [u for u in units if u[2] - u[1] == size]
        num = len(mine)
        fields: dict[str, Tensor] = {}
        if scatters:
            flat = Scattering(*buckets.cell, buckets.grid[0], buckets.header, buckets.meta_slots, buckets.nz_slots)
            kind = scattered_codelet(flat, how, values.dtype, made.dtype)
            room = size * max(how.width, how.rest)
        else:
            kind, room = walked_codelet(buckets, how, values.dtype, made.dtype, transposed=transposed), how.room
            fields["starts"] = scratch(graph, (num, size + 1), name, u32)
            fields["columns"] = scratch(graph, (num, buckets.most), name, u32)
            fields["ordered"] = scratch(graph, (num, buckets.most * area), name, f32)
        step.vertices(
            kind,
            tile=np.zeros(num, np.int32),
            cycles=np.zeros(num, np.int64),
            meta=[near[0][g] for g, _, _ in mine],
            nz=[near[1][g] for g, _, _ in mine],
            x=[lines(dense.tensor)[g] for g, _, _ in mine],
            out=[made[g, b * high : e * high].flatten() for g, b, e in mine],
            s=scratch(graph, (num, room), name, f32),
            first=np.array([b for _, b, _ in mine]),
            n=n,
            stride=dense.stride,
            last=dense.last,
            jump=dense.jump,
            **fields,
        )
    steps.add(Execute(step))
    if made is not out:
        steps.add(moved(graph, made, out, name))
    return steps
