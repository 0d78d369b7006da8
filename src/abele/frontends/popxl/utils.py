"""``popxl.utils``: data of the host."""

from __future__ import annotations

from typing import Any

from abele.arrays import Array
from abele.frontends.popxl.tensors import host_array


def to_numpy(x: Any, dtype: Any = None, downcast: bool = True, copy: bool = True) -> Array:
    """Numbers, lists, arrays or PyTorch tensors as a contiguous array of a type that popxl has.

    Args:
        x: The data.
        dtype: Its type; by default its own.
        downcast: Let 64 bits be 32, where no type is asked for.
        copy: No effect: it is always a copy.
    """
    return host_array(x, dtype, downcast)[0]


__all__ = ["to_numpy"]
