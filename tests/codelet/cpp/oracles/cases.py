"""Cases: a vertex class of the corpus, its fields, and what NumPy makes of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Fields = dict[str, Any]
Make = Callable[[np.random.Generator, str], tuple[Fields, Fields]]
TYPES = {
    "float": "f4",
    "half": "f2",
    "int": "i4",
    "unsigned int": "u4",
    "unsigned": "u4",
    "short": "i2",
    "unsigned short": "u2",
    "char": "i1",
    "signed char": "i1",
    "unsigned char": "u1",
    "bool": "?",
    "longlong": "i8",
    "unsigned longlong": "u8",
}
TOLERANCES = {"f": 1e-5, "e": 2e-3}


@dataclass(frozen=True)
class Case:
    """One vertex with data.

    Attributes:
        file: Its file in the corpus.
        vertex: Its name.
        make: Gives its fields, and those that are to be compared, after it has run.
        rtol: Largest relative error of floats; by their type where None.
        times: Number of runs.
    """

    file: str
    vertex: str
    make: Make
    rtol: float | None
    times: int

    def data(self) -> tuple[Fields, Fields]:
        """Fields, and those that are wanted: the same in every process."""
        return self.make(np.random.default_rng(zlib.crc32(f"{self.file} {self.vertex}".encode())), self.vertex)

    def check(self, name: str, found: Any, wanted: Any) -> None:
        """Compare a field after the run with the oracle's."""
        wanted = np.asarray(wanted)
        found = np.asarray(found).reshape(wanted.shape)
        if found.dtype.kind != "f":
            np.testing.assert_array_equal(found, wanted.astype(found.dtype), err_msg=name)
            return
        rtol = TOLERANCES[found.dtype.char] if self.rtol is None else self.rtol
        scale = float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1e-30))
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * scale, err_msg=name)


CASES: list[Case] = []


def case(file: str, *vertices: str, rtol: float | None = None, times: int = 1) -> Callable[[Make], Make]:
    """Register what a function makes for vertices of a file."""

    def register(make: Make) -> Make:
        CASES.extend(Case(file, vertex, make, rtol, times) for vertex in vertices)
        return make

    return register


def arguments(name: str) -> list[str]:
    """Template arguments of a name."""
    return name.partition("<")[2].rpartition(">")[0].split(",")


def dtype(name: str, place: int = 0) -> str:
    """NumPy's type of a template argument."""
    return TYPES[arguments(name)[place]]


def normal(rng: np.random.Generator, *shape: int, type: str = "f4") -> np.ndarray:
    """Normal numbers of a type; integers up to some tens."""
    values = rng.standard_normal(shape)
    return (values if np.dtype(type).kind == "f" else 20 * values).astype(type)


def zeros(*shape: int, type: str = "f4") -> np.ndarray:
    """Zeros of a type."""
    return np.zeros(shape, type)


def f32(x: Any) -> np.ndarray:
    """The numbers as floats."""
    return np.asarray(x).astype("f4")


def f64(x: Any) -> np.ndarray:
    """The numbers as doubles."""
    return np.asarray(x).astype("f8")
