"""Reshaping blocks: the same flat positions, indexed by other dimensions.

A reshape changes no flat position. A block's factors that run inside one index of the new outer dimension, or by whole
indices of it, go over as they are; one that runs across such an index is split there: into a head up to the border, a
body of whole periods, and a tail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from abele.graph.block import Factor, Factors, NotStridedError, StridedBlock
from abele.layout import coalesce, matching_groups, row_major

Placed = tuple[tuple[int, ...], tuple[Factors, ...], int]
"""Origin, factors per dimension, and offset in the variable."""

_Key = tuple[tuple[int, ...], tuple[Factors, ...], tuple[int, ...], tuple[int, ...], int]
_KNOWN: dict[_Key, list[Placed]] = {}
"""Pieces by origin, factors, old and new shape and the most that are wanted; of few pieces alone."""
_FEW_PIECES = 8
_MOST_KNOWN = 8192


def reshaped(block: StridedBlock, old: Sequence[int], new: Sequence[int], most: int) -> list[StridedBlock]:
    """The blocks that show a block of a view of shape ``old`` in shape ``new``; the view is not empty.

    Raises:
        NotStridedError: There would be more than ``most``.
    """
    # Equal layers ask for the same of other variables, and of one variable again and again.
    key = block.origin, block.factors, tuple(old), tuple(new), most
    found = _KNOWN.get(key)
    if found is None:
        found = _pieces(*key)
        if len(found) <= _FEW_PIECES:
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = found
    return [StridedBlock(block.variable, block.offset + shift, origin, factors) for origin, factors, shift in found]


def _pieces(
    origin: tuple[int, ...], factors: tuple[Factors, ...], old: Sequence[int], new: Sequence[int], most: int
) -> list[Placed]:
    """The pieces of a block of a view of shape ``old`` in shape ``new``."""
    found: list[Placed] = [((), (), 0)]
    for before, after in matching_groups(old, new):
        pieces = _group(origin, factors, old, before, [new[d] for d in after], most)
        if len(found) * len(pieces) > most:
            raise NotStridedError
        found = [(o + p[0], f + p[1], s + p[2]) for o, f, s in found for p in pieces]
    return found


def _group(
    origin: tuple[int, ...],
    factors: tuple[Factors, ...],
    old: Sequence[int],
    before: range,
    shape: list[int],
    most: int,
) -> list[Placed]:
    """A block's pieces along dimensions ``before``, which become ``shape``."""
    if len(before) == len(shape) == 1:
        d = before[0]
        return [((origin[d],), (factors[d],), 0)]
    strides = row_major([old[d] for d in before])
    start = sum(origin[d] * s for d, s in zip(before, strides, strict=True))
    flat = [(n, v * s, t) for d, s in zip(before, strides, strict=True) for n, v, t in factors[d]]
    pieces: list[Placed] = []
    for piece in _fitted(start, coalesce(flat), shape):
        pieces.append(piece)
        if len(pieces) > most:
            raise NotStridedError
    return pieces


def _fitted(start: int, flat: Factors, shape: Sequence[int]) -> Iterator[Placed]:
    """Pieces of flat positions from ``start`` on, as indices of ``shape``."""
    if len(shape) <= 1:
        yield ((start,), (coalesce(flat),), 0) if shape else ((), (), 0)
        return
    inner = math.prod(shape[1:])
    for position, outer, rest, offset in _aligned(start, flat, inner):
        for origin, factors, shift in _fitted(position % inner, rest, shape[1:]):
            yield (position // inner, *origin), (coalesce(outer), *factors), offset + shift


def _aligned(start: int, flat: Factors, cell: int) -> Iterator[tuple[int, Factors, Factors, int]]:
    """Pieces that do not cross a border of cells of ``cell`` positions.

    Yields the first position, factors over cells, factors inside one cell, and offset in the variable.
    """
    if start % cell + 1 + sum((n - 1) * step for n, step, _ in flat) <= cell:
        yield start, (), flat, 0
        return
    (extent, step, stride), rest = flat[0], flat[1:]
    if step % cell == 0:
        yield from _over_cells(start, (extent, step, stride), rest, cell, 0)
        return
    # After so many steps the factor is at the same place in a cell again.
    period = cell // math.gcd(step, cell)
    at = 0
    if extent > period:
        # Up to the next border, so that what follows begins at the start of a cell.
        if cell % step == 0 and start % cell >= step:
            at = -(-(cell - start % cell) // step)
            yield from _moved(start, _first(at, step, stride, rest), cell, 0)
        count = (extent - at) // period
        body, inner = (count, step * period, stride * period), _first(period, step, stride, rest)
        if count:
            yield from _over_cells(start + at * step, body, inner, cell, at * stride)
        at += count * period
    width = 1 + sum((n - 1) * s for n, s, _ in rest)
    while at < extent:
        position = start + at * step
        # As many repetitions as end before the next border; at least one, which is then split itself.
        fits = (cell - position % cell - width) // step + 1
        head = max(1, min(extent - at, fits))
        yield from _moved(position, _first(head, step, stride, rest), cell, at * stride)
        at += head


def _over_cells(
    start: int, outer: Factor, rest: Factors, cell: int, offset: int
) -> Iterator[tuple[int, Factors, Factors, int]]:
    """Pieces of ``rest``, each repeated over whole cells."""
    extent, step, stride = outer
    for position, over, inside, shift in _aligned(start, rest, cell):
        yield position, ((extent, step // cell, stride), *over), inside, shift + offset


def _moved(start: int, flat: Factors, cell: int, offset: int) -> Iterator[tuple[int, Factors, Factors, int]]:
    for position, over, inside, shift in _aligned(start, flat, cell):
        yield position, over, inside, shift + offset


def _first(count: int, step: int, stride: int, rest: Factors) -> Factors:
    return rest if count == 1 else ((count, step, stride), *rest)
