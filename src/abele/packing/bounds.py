"""Numbers of packs that no packing is below, from sums alone."""

from __future__ import annotations

from collections.abc import Sequence

from abele.packing.histogram import SizeHistogram


def simple_bound(histogram: SizeHistogram, capacity: Sequence[int], depth: int | None) -> int:
    """The most that these say: the sum of each size by its capacity, and the number of items by the depth."""
    sums = [-(-int(total) // limit) for total, limit in zip(histogram.totals, capacity, strict=True)]
    return max(*sums, 1 if depth is None else -(-histogram.num_items // depth))
