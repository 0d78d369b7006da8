"""LLVM code that combines across the lanes of many vectors at once, by transposing as it goes.

Summing one vector's lanes takes log L shuffles and adds, and most lanes of the later ones are waste. Two vectors folded
together use all lanes: half of the result belongs to each, so after log L rounds L vectors have become one whose lanes
are L results. ``names`` records whose partial result each lane holds; which lanes meet in which round depends on the
number of lanes alone, so the order of additions, and with it the bits, is the same for every vector.
"""

from __future__ import annotations

from typing import Any

from abele.kernels.code.ops import combine
from abele.llvm import ir as ll
from abele.llvm.emit import OPAQUE_LANES, opaque
from abele.numerics import ElementType

Value = Any


def combine_lanes(builder: ll.IRBuilder, vectors: list[Value], name: str, type_: ElementType) -> list[Value]:
    """The combination over the lanes of each of ``vectors``, as scalars.

    Vectors are folded in pairs, so that L vectors of L lanes take L − 1 combines instead of L·log L.
    """
    lanes = vectors[0].type.count
    scalars: list[Value] = []
    for start in range(0, len(vectors), lanes):
        scalars += _fold(builder, vectors[start : start + lanes], name, type_, lanes)
    return scalars


def _fold(builder: ll.IRBuilder, vectors: list[Value], name: str, type_: ElementType, lanes: int) -> list[Value]:
    rows = [(v, [n] * lanes) for n, v in enumerate(vectors)]
    half = lanes // 2
    while half:
        pairs = [(rows[n], rows[min(n + 1, len(rows) - 1)]) for n in range(0, len(rows), 2)]
        rows = [_fold_pair(builder, a, b, half, name, type_) for a, b in pairs]
        half //= 2
    # Any lane that a vector owns has its result; the first is taken.
    owners = [(row, lane, owner) for row, names in rows for lane, owner in enumerate(names)]
    places = {owner: (row, lane) for row, lane, owner in reversed(owners)}
    return [
        builder.extract_element(places[n][0], ll.Constant(ll.IntType(32), places[n][1])) for n in range(len(vectors))
    ]


def _fold_pair(
    builder: ll.IRBuilder,
    first: tuple[Value, list[int]],
    second: tuple[Value, list[int]],
    half: int,
    name: str,
    type_: ElementType,
) -> tuple[Value, list[int]]:
    lanes = len(first[1])
    # Lanes of the lower halves of both vectors, side by side; those `half` further on are their partners.
    low = [lane if lane % (2 * half) < half else lane - half + lanes for lane in range(lanes)]
    order = ll.VectorType(ll.IntType(32), lanes)
    parts = [
        builder.shuffle_vector(first[0], second[0], ll.Constant(order, [n + shift for n in low])) for shift in (0, half)
    ]
    owners = first[1] + second[1]
    return combine(builder, name, parts[0], parts[1], type_), [owners[n] for n in low]


def transposed(builder: ll.IRBuilder, rows: list[Value]) -> list[Value]:
    """Vector n has lane n of every one of ``rows``, of which there are as many as a vector has lanes.

    Blocks of one lane, then of two, four, … change places across the diagonal of pairs of rows: L·log L shuffles.
    """
    lanes = rows[0].type.count
    order = ll.VectorType(ll.IntType(32), lanes)
    rows, half = list(rows), 1
    while half < lanes:
        low = [n if not n & half else n - half + lanes for n in range(lanes)]
        high = [n + half if not n & half else n + lanes for n in range(lanes)]
        for n in (n for n in range(lanes) if not n & half):
            pair = rows[n], rows[n + half]
            rows[n], rows[n + half] = (
                builder.shuffle_vector(*pair, ll.Constant(order, places)) for places in (low, high)
            )
        half *= 2
        if half == OPAQUE_LANES < lanes:
            rows = [opaque(builder, row) for row in rows]
    return rows
