"""The arrays of an executable, by the names under which its document refers to them."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.report import archive as container
from abele.report.archive import Array, Kind

KIND = Kind(
    noun="executable",
    version=1,
    max_bytes=64 << 30,
    again="compile the program again and save it with Executable.save",
)


class Writer:
    """Collects arrays while the document is put together."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._num = 0

    def array(self, values: npt.ArrayLike) -> str:
        """Keep an array; gives the name by which the document refers to it."""
        name, self._num = f"a{self._num}.npy", self._num + 1
        container.write_array(self._archive, name, values)
        return name


class Reader:
    """Gives the arrays that the document refers to, checked against what is expected of them."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def array(self, name: Any, dtype: Any, shape: tuple[int, ...] | None = None) -> Array:
        """The array called ``name``.

        Raises:
            ValueError: It has another type or shape, or is not there.
        """
        values = container.read_array(self._archive, str(name), dtype)
        if shape is not None and values.shape != shape:
            raise ValueError(f"{name} has shape {list(values.shape)}, expected {list(shape)}")
        return values

    def int64(self, name: Any) -> npt.NDArray[np.int64]:
        """A one-dimensional array of 64-bit integers."""
        values = self.array(name, np.int64)
        if values.ndim != 1:
            raise ValueError(f"{name} has {values.ndim} dimensions")
        return values
