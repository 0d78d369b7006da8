"""Signatures: what a program is compiled for, as far as calls can differ in it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and type of an array.

    Attributes:
        shape: Dimensions.
        dtype: NumPy's name of the element type.
    """

    shape: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(array: npt.ArrayLike) -> ArraySpec:
        """The specification of an array, or of anything that has a shape and a type, such as an abstract array."""
        shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
        if shape is None or dtype is None:
            found = np.asarray(array)
            shape, dtype = found.shape, found.dtype
        return ArraySpec(tuple(int(n) for n in shape), np.dtype(dtype).name)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Signature:
    """Key of a function's calls, by which compiled programs are found again.

    Attributes:
        arrays: Its array arguments in order.
        static: Whatever else is compiled in: the structure of the arguments, numbers, modes, a schedule.
    """

    arrays: tuple[ArraySpec, ...]
    static: tuple[Hashable, ...] = ()

    @staticmethod
    def of(arrays: Iterable[npt.ArrayLike], *static: Hashable) -> Signature:
        """The signature of a call with these arrays."""
        return Signature(tuple(ArraySpec.of(a) for a in arrays), static)

    def __str__(self) -> str:
        return ", ".join(str(part) for part in (*self.arrays, *self.static))
