"""Level of detail of stacked curves over an integer axis: tiles, or steps.

A level ``n`` joins 2ⁿ neighbouring places into a bucket, and a chunk is :data:`COLUMNS` buckets of one level. Of each
bucket the place with the greatest total is told with its own parts, so that no peak vanishes, and no composition is
told that no place has; the least total of the bucket goes beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from abele.arrays import Array, Int64
from abele.viewer.params import Params

COLUMNS = 1_024
"""Buckets of a chunk."""
_DEEPEST = 40
FROZEN_CHUNKS = 4
"""Chunks of the finest level that a static page takes along: 4,096 buckets."""


def top_level(length: int) -> int:
    """The level at which a whole axis is one chunk."""
    return max(0, (max(length, 1) - 1).bit_length() - (COLUMNS - 1).bit_length())


def place_of(params: Params) -> tuple[int, int]:
    """The ``level`` and ``index`` of a chunk, as a question says them."""
    return params.number("level", high=_DEEPEST), params.number("index")


def frozen_chunks(length: int) -> Iterator[dict[str, str]]:
    """Places of the chunks that a static page takes along: coarse levels, and those of few chunks."""
    for level in range(top_level(length), -1, -1):
        chunks = -(-max(length, 1) // (COLUMNS << level))
        if chunks > FROZEN_CHUNKS:
            return
        yield from ({"level": str(level), "index": str(index)} for index in range(chunks))


def chunk(parts: Int64, level: int, index: int, total: Int64 | None = None) -> dict[str, Array]:
    """A chunk of a stacked curve.

    Args:
        parts: Stacked quantities, int64[parts, places].
        level: Log2 of the places in a bucket.
        index: Number of the chunk on its level.
        total: By which the greatest place of a bucket is found, int64[places]; the sum of the parts when left out.

    Returns:
        ``values`` [parts, buckets], ``least`` total and place ``at`` of the greatest, [buckets]; buckets beyond the
        axis are left out.
    """
    size = 1 << level
    first = min(index * COLUMNS * size, parts.shape[1])
    last = min(first + COLUMNS * size, parts.shape[1])
    size = min(size, max(last - first, 1))
    piece = parts[:, first:last]
    sums = piece.sum(axis=0) if total is None else total[first:last]
    starts = np.arange(0, last - first, size)
    if not len(starts):
        return {"values": np.zeros((len(parts), 0), np.uint32), "least": np.zeros(0, np.uint32), "at": starts}
    if size == 1:
        return {"values": small(piece), "least": small(sums), "at": small(first + starts)}
    least = np.minimum.reduceat(sums, starts)
    # The last bucket may be short: it is filled with what is never the greatest.
    padded = np.full(len(starts) * size, -1, np.int64)
    padded[: len(sums)] = sums
    at = starts + padded.reshape(-1, size).argmax(axis=1)
    return {"values": small(piece[:, at]), "least": small(least), "at": small(first + at)}


def small(values: Int64) -> Array:
    """Numbers as uint32, where they fit."""
    if values.size and (int(values.min()) < 0 or int(values.max()) >= 2**32):
        return values
    return values.astype(np.uint32)
