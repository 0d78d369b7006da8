"""Special functions of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele.arrays import Array


class _OnArrays:
    """The arithmetic of arrays."""

    select = staticmethod(np.where)
    exp = staticmethod(np.exp)
    log = staticmethod(np.log)
    sqrt = staticmethod(np.sqrt)
    floor = staticmethod(np.floor)
    abs = staticmethod(np.abs)


def on_arrays(algorithm: Callable[..., Any]) -> Callable[..., Array]:
    """An algorithm as a function of arrays, in the type of the first."""

    def function(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            result = algorithm(_OnArrays, *(np.asarray(a, np.float64) for a in args))
        return np.asarray(result, args[0].dtype if args[0].dtype.kind == "f" else np.float64)

    return function
