"""Vectors of state, of vertices that have different numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.graph.vertices import StateData
from abele.numerics import ElementType, u32


def ragged(rows: Sequence[Any], kind: ElementType = u32) -> StateData:
    """One vector of state for each vertex."""
    lengths = [len(row) for row in rows]
    return StateData(np.concatenate(rows).astype(kind.np), np.cumsum([0, *lengths], dtype=np.int64))
