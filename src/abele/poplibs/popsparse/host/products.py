"""Products S·X and Sᵀ·X of a host, with a sparse matrix whose pattern is known when the graph is built."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.graph import ComputeSet, Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f32, u16, u32
from abele.poplibs.popsparse.host.dense import Paneled, in_panels, is_near, lines, moved, scratch
from abele.poplibs.popsparse.host.groups import (
    Patterns,
    ProductGroup,
    check_operand,
    check_values,
    grouped,
    near_values,
    patterns_of,
    shares_of_groups,
    values_of,
    walks_of,
)
from abele.poplibs.popsparse.host.product_codelets import Tiling, product_codelet, tiling_of
from abele.poplibs.popsparse.host.scattered import scattered, scatters
from abele.poplibs.popsparse.host.states import ragged
from abele.poplibs.popsparse.host.tiling import Panels, panels_of, tile_rows, tile_width
from abele.poplibs.popsparse.host.walks import product_walk

FAR_VALUES = 1 << 20
"""Values that lie beyond the second-level cache."""


def host_product(
    graph: Graph,
    patterns: Patterns,
    values: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    name: str,
    order: Int64 | None = None,
    transposed: bool = False,
) -> Sequence:
    """Steps that put S·X into ``out``, or Sᵀ·X.

    Args:
        graph: Graph of the steps and of their scratch memory.
        patterns: Pattern of S [m, k] of all groups, or one for each group.
        values: Its values in any shape, those of one group after the other. Of one pattern there may be more than it
            holds, which are not read.
        x: X [k, n], or [groups, k, n]; for Sᵀ·X [m, n]. Row-major is quickest, column-major next.
        out: Place of the product, [m, n] or [groups, m, n]; for Sᵀ·X [k, n].
        name: Name of the steps.
        order: Place of each value, of those in its pattern's order [blocks, *block], among the group's values; where
            each group has a pattern, that of all groups, one after the other. None for the patterns' order.
        transposed: True for Sᵀ·X.

    Raises:
        TensorError: Shapes do not fit the patterns.
    """
    x, out = grouped(x), grouped(out)
    given = patterns_of(patterns, len(x))
    check_operand(name, "X", x, len(x), given[0].shape[0 if transposed else 1], x.shape[2])
    check_operand(name, "the result", out, len(x), given[0].shape[1 if transposed else 0], x.shape[2])
    check_values(name, given, values, order)
    if not out.size:
        return Sequence()
    near, first = near_values(graph, values, name)
    if transposed and order is None and scatters(given, x.shape[2]):
        return Sequence(first, scattered(graph, given, near, x, out, name))
    walks = walks_of(given, order, lambda p, places: product_walk(p, places, transposed=transposed))
    groups = [ProductGroup(*pair) for pair in zip(walks, values_of(given, near), strict=True)]
    made = out if is_near(out) else scratch(graph, out.shape, name, out.dtype)
    panels = panels_of(out.shape[2], tile_width(tile_rows(*walks[0].block)))
    dense = in_panels(graph, x, panels, name)
    step = graph.compute_set(f"{name}/host_product")
    _place_products(step, groups, dense, panels, made, name)
    steps = Sequence(first, dense.steps, Execute(step))
    if made is not out:
        steps.add(moved(graph, made, out, name))
    return steps


def _place_products(
    step: ComputeSet, groups: list[ProductGroup], x: Paneled, panels: Panels, out: Tensor, name: str
) -> None:
    shares, walk = shares_of_groups(groups), groups[0].walk
    how = _tiling(groups, panels)
    dense, made = lines(x.tensor), lines(out)
    held = [s.group.values for s in shares]
    fields: dict[str, Any] = {}
    if how.values == "plain":
        held = [v[s.blocks.start * walk.area : s.blocks.stop * walk.area] for v, s in zip(held, shares, strict=True)]
    else:
        fields["places"] = ragged([s.group.walk.places[s.blocks] for s in shares])
    if how.values == "gathered":
        room = scratch(step.graph, (sum(g.walk.num_values for g in groups),), name, f32)
        ends = np.cumsum([0, *(s.blocks.stop - s.blocks.start for s in shares)]).tolist()
        fields["ordered"] = [room[begin:end] for begin, end in pairwise(ends)]
    index = u16 if walk.depth * max(int(w.columns.max(initial=0)) for w in {g.walk for g in groups}) < 1 << 16 else u32
    each = walk.block[0] * out.shape[2]
    step.vertices(
        product_codelet(how, groups[0].values.dtype, out.dtype, index),
        tile=np.zeros(len(shares), np.int32),
        cycles=np.zeros(len(shares), np.int64),
        starts=ragged([s.starts for s in shares]),
        columns=ragged([s.group.walk.columns[s.blocks] * walk.depth for s in shares], index),
        values=held,
        x=[dense[s.number] for s in shares],
        out=[made[s.number][s.first * each : s.last * each] for s in shares],
        s=scratch(step.graph, (len(shares), how.room), name, f32),
        n=out.shape[2],
        stride=x.stride,
        last=x.last,
        jump=x.jump,
        **fields,
    )


def _tiling(groups: list[ProductGroup], panels: Panels) -> Tiling:
    walk = groups[0].walk
    if all(g.walk.is_plain for g in groups):
        values = "plain"
    else:
        # Single values out of order are put in order once where several panels need them.
        values = "gathered" if walk.area == 1 and panels.columns > panels.width else "placed"
    far = max(g.walk.num_values for g in groups) >= FAR_VALUES
    return tiling_of(walk.block, walk.steps, panels, values, far=far)
