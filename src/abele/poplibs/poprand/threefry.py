"""Threefry: random words as a cipher of their number under a key.

Two words of 32 bits are mixed in five groups of four rounds: add, rotate, exclusive or; after each group words of the
key are added. The numbers are JAX's, bit for bit. Source: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy
as 1, 2, 3 (SC 2011), Threefry-2x32 of 20 rounds.

Each group is one map of two results: 50 operations of integers in a vertex, between two loads and two stores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import u32
from abele.poplibs.popops.elementwise.map import apply_fused
from abele.poplibs.popops.expr import Cast, Expr, Op, PlaceHolder, element_index
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.poputil.layout import clone

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Bits by which the second word is rotated, in even and odd groups. Source: as above, table 2."""
PARITY = 0x1BD11BDA
"""Constant in the third word of a key. Source: as above."""
GROUPS = 5


def threefry_words(
    graph: Graph,
    keys: tuple[Tensor, Tensor],
    counts: tuple[Tensor, Tensor] | None,
    prog: Steps,
    *,
    shape: Sequence[int],
    first: Tensor | None = None,
    period: int = 0,
    xored: bool = False,
    like: Tensor | None = None,
    name: str = "threefry",
) -> tuple[Tensor, ...]:
    """Two random words for each element, or their exclusive or.

    Args:
        graph: Graph in which vertices and results are made.
        keys: Words of the keys, u32, which broadcast to ``shape``.
        counts: Numbers to encrypt, u32, as high and low words; None for the numbers of elements.
        prog: Sequence that the steps are appended to.
        shape: Of the results.
        first: u32, added to the numbers of elements.
        period: Elements after which numbering starts again; 0 for never.
        xored: True for one word, the exclusive or of both.
        like: Layout of the results; by default they are spread evenly.
        name: Name of the steps.

    Returns:
        The first and the second words, or the one tensor of their exclusive or.
    """
    # Nothing has fewer dimensions than one where elements are numbered.
    full = tuple(shape) or (1,)
    if like is not None and like.shape == full and not like.contains_aliases:
        words = [clone(graph, like, f"{name}/{number}", u32) for number in range(2)]
    else:
        words = [graph.map_linear(graph.variable(u32, full, name=f"{name}/{number}")) for number in range(2)]
    spread = [t.broadcast_to(full) for t in (*keys, *(counts or ()), *(() if first is None else (first,)))]
    k0, k1 = PlaceHolder(3), PlaceHolder(4)
    schedule = (k0, k1, Op("bitwise_xor", Op("bitwise_xor", k0, k1), PARITY))
    for group in range(GROUPS):
        x0, x1 = (
            _start(k0, k1, counts, first, period, math.prod(full)) if not group else (PlaceHolder(1), PlaceHolder(2))
        )
        for bits in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = Op("bitwise_xor", Op("bitwise_or", Op("shift_left", x1, bits), Op("shift_right", x1, 32 - bits)), x0)
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + (group + 1)
        last = xored and group == GROUPS - 1
        values, outputs = ([Op("bitwise_xor", x0, x1)], words[:1]) if last else ([x0, x1], words)
        fused = fuse(values, (u32,) * (2 + len(spread)), [u32] * len(values))
        apply_fused(graph, fused, [*words, *spread], outputs, prog, name, library="poprand.threefry")
    made = words[:1] if xored else words
    return tuple(t.reshape(tuple(shape)) for t in made)


def _start(k0: Expr, k1: Expr, counts: object, first: Tensor | None, period: int, size: int) -> tuple[Expr, Expr]:
    """Both words before the first round."""
    if counts is not None:
        return PlaceHolder(5) + k0, PlaceHolder(6) + k1
    index: Expr = element_index()
    if period and period != size:
        index = Op("rem", index, period)
    low: Expr = Cast(index, u32)
    if first is not None:
        low = low + PlaceHolder(5)
    return k0 + 0, low + k1
