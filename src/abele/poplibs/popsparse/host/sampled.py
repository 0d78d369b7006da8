"""Products G·Xᵀ of a host at the places of a sparse matrix whose pattern is known when the graph is built."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.graph import ComputeSet, Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f32
from abele.poplibs.popsparse.host.dense import brought_near, in_panels, is_near, lines, moved, scratch, turned
from abele.poplibs.popsparse.host.groups import (
    Patterns,
    ProductGroup,
    WalkShare,
    check_operand,
    check_values,
    grouped,
    patterns_of,
    shares_of_groups,
    values_of,
    walks_of,
)
from abele.poplibs.popsparse.host.sample_codelets import (
    FEW,
    LANES,
    Sampling,
    sample_blocks_codelet,
    sample_squares_codelet,
    sample_values_codelet,
)
from abele.poplibs.popsparse.host.states import ragged
from abele.poplibs.popsparse.host.tiling import Panels, tile_rows, tile_width, whole_vectors
from abele.poplibs.popsparse.host.walks import sampled_walk

MOST_FEW = 16
"""Columns up to which a sum has four lanes, or one or two of as many columns."""
MANY_VALUES = 96
"""Values for each row of both matrices, on average, from which on these are better there by their columns."""
SMALL_TILE = 32
"""Values of a register tile up to which long sums have four of them."""
LONG_SUMS = 64
"""Columns from which on adding up four tiles takes less time than one tile waits for itself."""


def host_sampled_product(
    graph: Graph,
    patterns: Patterns,
    g: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    name: str,
    order: Int64 | None = None,
) -> Sequence:
    """Steps that put G·Xᵀ at the places of a pattern into ``out``: the gradient by the values of S in S·X.

    Args:
        graph: Graph of the steps and of their scratch memory.
        patterns: Pattern [m, k] of all groups, or one for each group.
        g: G [m, n] or [groups, m, n].
        x: X [k, n] or [groups, k, n].
        out: Place of the values, in any shape, as ``values`` of :func:`host_product` lie. What is there besides becomes
            zero.
        name: Name of the steps.
        order: As in :func:`host_product`.

    Raises:
        TensorError: Shapes do not fit the patterns.
    """
    g, x = grouped(g), grouped(x)
    given = patterns_of(patterns, len(x))
    check_operand(name, "G", g, len(x), given[0].shape[0], x.shape[2])
    check_operand(name, "X", x, len(x), given[0].shape[1], x.shape[2])
    check_values(name, given, out, order)
    if not out.size:
        return Sequence()
    walks = walks_of(given, order, sampled_walk)
    made = out if is_near(out) else scratch(graph, out.shape, name, out.dtype)
    groups = [ProductGroup(*pair) for pair in zip(walks, values_of(given, made.flatten()), strict=True)]
    sample = (
        _sampled_values if walks[0].area == 1 else _sampled_squares if _in_squares(groups, g, x) else _sampled_blocks
    )
    steps = sample(graph, groups, g, x, name)
    if made is not out:
        flat = (1, 1, out.size)
        steps.add(moved(graph, made.reshape(flat), out.reshape(flat), name))
    return steps


def _in_squares(groups: list[ProductGroup], g: Tensor, x: Tensor) -> bool:
    """True if blocks are made of dot products, of rows as they are or, for small blocks, turned."""
    walk, n = groups[0].walk, g.shape[2]
    height, width = walk.block
    if height % 2 or width % 2 or n < (LANES if width > 2 else LANES // 2 + 1):
        return False
    if width <= FEW:
        return True
    return all(map(is_near, (g, x))) and walk.num_values < MANY_VALUES * (g.shape[1] + x.shape[1])


def _sampled_squares(graph: Graph, groups: list[ProductGroup], g: Tensor, x: Tensor, name: str) -> Sequence:
    """Steps for blocks, in squares of dot products: both operands as rows of whole vectors."""
    height, width = groups[0].walk.block
    n = whole_lanes(g.shape[2])
    (left, before), (right, more) = (in_rows(graph, t, n, name) for t in (g, x))
    codelet = sample_squares_codelet(Sampling(2, height // 2, width, 1, 1, _is_plain(groups)), groups[0].values.dtype)
    step = graph.compute_set(f"{name}/host_sample")
    _place(step, groups, codelet, {"g": left, "x": right, "n": n}, {}, name)
    return Sequence(before, more, Execute(step))


def _sampled_blocks(graph: Graph, groups: list[ProductGroup], g: Tensor, x: Tensor, name: str) -> Sequence:
    """Steps for blocks: both operands as all columns of a block's rows, one after the other."""
    height, width = groups[0].walk.block
    left, right = (
        in_panels(graph, turned(t), Panels(edge, t.shape[1] // edge, 0, 0), name, packed=True)
        for t, edge in ((g, height), (x, width))
    )
    rows, strips = tile_rows(height), 1
    while rows * width // strips > tile_width(rows) * rows and width // strips % 2 == 0:
        strips *= 2
    sets = 4 if rows * width // strips <= SMALL_TILE and g.shape[2] >= LONG_SUMS else 1
    how = Sampling(rows, height // rows, width, strips, sets, _is_plain(groups))
    fields = {"g": left.tensor, "x": right.tensor, "n": g.shape[2]}
    step = graph.compute_set(f"{name}/host_sample")
    _place(step, groups, sample_blocks_codelet(how, groups[0].values.dtype), fields, {"s": sets * rows * width}, name)
    return Sequence(left.steps, right.steps, Execute(step))


def _sampled_values(graph: Graph, groups: list[ProductGroup], g: Tensor, x: Tensor, name: str) -> Sequence:
    """Steps for single values: both operands as rows of whole vectors."""
    columns = g.shape[2]
    few = (whole_vectors(columns) if columns <= FEW else -(-columns // FEW) * FEW) if columns <= MOST_FEW else 0
    n = few or whole_lanes(columns)
    (left, before), (right, more) = (in_rows(graph, t, n, name) for t in (g, x))
    codelet = sample_values_codelet(few, _is_plain(groups), groups[0].values.dtype)
    longest = max(int(np.diff(group.walk.starts).max(initial=1)) for group in groups)
    step = graph.compute_set(f"{name}/host_sample")
    fields = {"g": left, "x": right, "n": n}
    _place(step, groups, codelet, fields, {"s": FEW * longest, "lanes": FEW}, name)
    return Sequence(before, more, Execute(step))


def whole_lanes(columns: int) -> int:
    """Columns rounded up to the lanes of long sums."""
    return -(-columns // LANES) * LANES


def in_rows(graph: Graph, x: Tensor, width: int, name: str) -> tuple[Tensor, Sequence]:
    """A tensor [groups, rows, columns] as rows of ``width`` numbers of f32, zeros after its own."""
    groups, rows, columns = x.shape
    if columns == width and x.dtype == f32:
        near, steps = brought_near(graph, x, name)
        return near.reshape((groups, rows * columns)), steps
    whole = int(columns == width)
    made = in_panels(graph, x, Panels(width, whole, 0 if whole else width, columns), name, packed=True)
    return made.tensor, made.steps


def _is_plain(groups: list[ProductGroup]) -> bool:
    """True if blocks follow each other, and nothing lies between them."""
    return all(g.walk.is_plain and g.walk.num_values == g.values.size for g in groups)


def _place(
    step: ComputeSet,
    groups: list[ProductGroup],
    codelet: type,
    fields: dict[str, Any],
    rooms: dict[str, int],
    name: str,
) -> None:
    """Vertices for shares of all groups: operands ``g`` and ``x`` [groups, elements], and scratch rooms by size."""
    shares, (height, width) = shares_of_groups(groups), groups[0].walk.block
    if not shares:
        return
    left, right = lines(fields["g"]), lines(fields["x"])
    stretches = [_stretch(share, after) for share, after in _with_next(shares)]
    states: dict[str, Any] = {}
    if not _is_plain(groups):
        pairs = zip(shares, stretches, strict=True)
        states["places"] = ragged([s.group.walk.places[s.blocks] - stretch.start for s, stretch in pairs])
    step.vertices(
        codelet,
        tile=np.zeros(len(shares), np.int32),
        cycles=np.zeros(len(shares), np.int64),
        rows=ragged([s.group.walk.rows[s.first : s.last] * height for s in shares]),
        starts=ragged([s.starts for s in shares]),
        columns=ragged([s.group.walk.columns[s.blocks] * width for s in shares]),
        g=[left[s.number] for s in shares],
        x=[right[s.number] for s in shares],
        out=[s.group.values[stretch] for s, stretch in zip(shares, stretches, strict=True)],
        n=fields["n"],
        **{field: scratch(step.graph, (len(shares), size), name, f32) for field, size in rooms.items()},
        **states,
    )


def _with_next(shares: list[WalkShare]) -> Iterator[tuple[WalkShare, WalkShare | None]]:
    """Each share, with the next one of its group."""
    for one, after in pairwise([*shares, None]):
        assert one is not None
        yield one, after if after is not None and after.number == one.number else None


def _stretch(share: WalkShare, after: WalkShare | None) -> slice:
    """Values that a share writes: its own, and those that belong to nobody up to the next."""
    places = share.group.walk.places
    begin = int(places[share.blocks.start]) if share.first else 0
    return slice(begin, share.group.values.size if after is None else int(places[after.blocks.start]))
