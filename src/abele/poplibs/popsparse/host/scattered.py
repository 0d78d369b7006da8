"""Products Sᵀ·G in the order of S's own rows, with single values or blocks of fours.

Where G has few columns, a row of it stays in registers while it is added, times a value each, to the rows of the result
that the values' columns name. Of blocks four rows are added at a time, so a row of the result is read and written once
for four values. Values and columns are read front to back, and no value is looked up.

Threads must not add to the same rows. Either each has columns of S of its own, or rows of S and a result of its own,
and these are added up afterwards. The latter reads values in one stretch, and pays where a column has many.

Example: 4,096 × 4,096 of density 1/4 and four columns of G on two threads: each has 2,048 rows of S and its own 64 KiB
of result. Looking values up in the transpose's order takes four times as long, since neighbours are 4 KiB apart.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from abele.graph import ComputeSet, Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f32, u16, u32
from abele.poplibs.popsparse.host.dense import in_panels, is_near, lines, moved, scratch
from abele.poplibs.popsparse.host.groups import values_of
from abele.poplibs.popsparse.host.product_codelets import scatter_codelet, total_codelet
from abele.poplibs.popsparse.host.states import ragged
from abele.poplibs.popsparse.host.tiling import panels_of
from abele.poplibs.popsparse.host.walks import ScatterShare, column_shares, num_shares, row_shares
from abele.sparsity import Pattern

MOST_SCATTERED = 64
"""Columns of G up to which its rows are added to the result, in place of gathering values: they fit registers."""
ALWAYS_SCATTERED = 8
"""Columns up to which adding rows is as quick in any case, for single values."""
ALWAYS_SCATTERED_BLOCKS = 16
"""The same for blocks, which read and write a row of the result once for four of their own."""
SCATTERED_VALUES = 1 << 17
"""Values from which on it is quicker: half a second-level cache of them, where gathering takes one from each line."""
MANY_BLOCKS = 64
"""Blocks of a block column from which on threads have results of their own."""


def scatters(patterns: list[Pattern], columns: int) -> bool:
    """True if Sᵀ·G, with so many columns, goes by the rows of S."""
    if columns > MOST_SCATTERED:
        return False
    single = patterns[0].block == (1, 1)
    if not single and any(edge % 4 for edge in patterns[0].block):
        return False
    always = ALWAYS_SCATTERED if single else ALWAYS_SCATTERED_BLOCKS
    return columns <= always or max(p.num_values for p in patterns) >= SCATTERED_VALUES


def scattered(graph: Graph, patterns: list[Pattern], values: Tensor, g: Tensor, out: Tensor, name: str) -> Sequence:
    """Steps that put Sᵀ·G into ``out`` [groups, columns of S, columns of G]; ``values`` lie in the patterns' order."""
    panels = panels_of(g.shape[2], MOST_SCATTERED)
    dense, width = in_panels(graph, g, panels, name), panels.columns
    (groups, k), block = out.shape[:2], patterns[0].block
    is_made = out.dtype == f32 and width == out.shape[2] and is_near(out)
    made = out if is_made else scratch(graph, (groups, k, width), name, f32)
    parts = num_shares(groups, least=2)
    apart = parts > 1 and max(p.num_blocks for p in patterns) >= MANY_BLOCKS * patterns[0].grid[1]
    known: dict[Pattern, list[ScatterShare]] = {}
    for pattern in patterns:
        if pattern not in known:
            known[pattern] = (row_shares if apart else column_shares)(pattern, parts)
    units = [(number, share) for number, pattern in enumerate(patterns) for share in known[pattern]]
    target = scratch(graph, (groups, parts * k, width), name, f32) if apart else made
    rows = lines(target)
    if apart:
        targets = [rows[n][part * k * width : (part + 1) * k * width] for n in range(groups) for part in range(parts)]
    else:
        each = block[1] * width
        targets = [rows[number][share.first * each : share.last * each] for number, share in units]
    held, given = values_of(patterns, values), lines(dense.tensor)
    index = u16 if patterns[0].grid[1] <= 1 << 16 else u32
    tall = block[0] * width
    step = graph.compute_set(f"{name}/host_scatter")
    step.vertices(
        scatter_codelet(values.dtype, index, width, block),
        tile=np.zeros(len(units), np.int32),
        cycles=np.zeros(len(units), np.int64),
        starts=ragged([share.starts for _, share in units]),
        firsts=ragged([share.firsts for _, share in units]),
        columns=ragged([share.columns for _, share in units], index),
        values=[held[number] for number, _ in units],
        x=[given[n][share.row * tall : (share.row + len(share.firsts)) * tall] for n, share in units],
        out=targets,
    )
    steps = Sequence(dense.steps, Execute(step))
    if apart:
        total = graph.compute_set(f"{name}/host_total")
        _add_up(total, target, made, parts)
        steps.add(Execute(total))
    if not is_made:
        steps.add(moved(graph, made[:, :, : out.shape[2]], out, name))
    return steps


def _add_up(step: ComputeSet, x: Tensor, out: Tensor, parts: int) -> None:
    """Vertices that add up ``parts`` results of each group."""
    groups, size = out.shape[0], out.size // out.shape[0]
    each = num_shares(groups)
    bounds = np.linspace(0, size, each + 1).astype(int).tolist()
    units = [(number, begin, end) for number in range(groups) for begin, end in pairwise(bounds) if begin < end]
    sources, targets = lines(x), lines(out)
    step.vertices(
        total_codelet(parts),
        tile=np.zeros(len(units), np.int32),
        cycles=np.zeros(len(units), np.int64),
        x=[sources[number] for number, _, _ in units],
        out=[targets[number][begin:end] for number, begin, end in units],
        first=np.array([begin for _, begin, _ in units]),
        apart=size,
    )
