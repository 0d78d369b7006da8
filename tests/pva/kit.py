"""What several tests of ``abele.pva`` use."""

from __future__ import annotations

from collections.abc import Sequence


def intervals_overlap(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> int:
    """Cycles that lie in an interval of both; intervals of one do not overlap each other."""
    return sum(max(0, min(b, d) - max(a, c)) for a, b in first for c, d in second)
