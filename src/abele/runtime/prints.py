"""Tensors printed by a running program."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.numerics import to_host

_DECIMALS = 7


def tensor_text(title: str, values: npt.NDArray[Any]) -> str:
    """``title: [1.0000000 2.5000000]``; a tensor of more dimensions has a line for each innermost row."""
    array = to_host(values)
    formatter: Any = {"float_kind": lambda x: f"{x:.{_DECIMALS}f}", "bool": lambda x: str(int(x))}
    text = np.array2string(array, formatter=formatter, threshold=sys.maxsize, max_line_width=sys.maxsize)
    return f"{title}: {text}"
