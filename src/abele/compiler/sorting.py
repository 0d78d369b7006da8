"""Sorting: the order of integer keys, faster than ``argsort`` where key and position fit into one word."""

from __future__ import annotations

import numpy as np

from abele.graph.intervals import Int64

_KEY_BITS = 63


def sort_order(key: Int64) -> Int64:
    """Positions that put keys in ascending order, equal ones in their order, int64[k].

    Args:
        key: Numbers of at least 0, int64[k].
    """
    bits = max(len(key) - 1, 0).bit_length()
    if int(key.max(initial=0)) >> (_KEY_BITS - bits):
        return np.argsort(key, kind="stable")
    packed = (key << bits) | np.arange(len(key), dtype=np.int64)
    packed.sort()
    return packed & ((1 << bits) - 1)
