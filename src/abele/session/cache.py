"""A cache of sessions by signature: one function, compiled once for each form of its arguments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError
from abele.session.session import Session

# Signatures: what a program is compiled for, as far as calls can differ in it.


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


class SessionCache:
    """Sessions of one function by signature; the one that was not used for longest makes room for a new one.

    Args:
        compile: Makes the session for a signature. Give all of them the same :class:`SharedArrays`, and they go on
            from each other's weights and optimiser state.
        most: Sessions that are kept.

    Attributes:
        hits: Calls that found their session.
        misses: Calls that had to compile.
    """

    def __init__(self, compile: Callable[[Signature], Session], *, most: int = 8) -> None:
        if most < 1:
            raise InvalidOptionError(f"a cache keeps at least one session, not {most}")
        self._compile = compile
        self._most = most
        self._sessions: OrderedDict[Signature, Session] = OrderedDict()
        self.hits = self.misses = 0

    def __getitem__(self, signature: Signature) -> Session:
        """The session of a signature, compiled if there is none."""
        found = self._sessions.get(signature)
        if found is not None:
            self.hits += 1
            self._sessions.move_to_end(signature)
            return found
        self.misses += 1
        made = self._compile(signature)
        while len(self._sessions) >= self._most:
            self._sessions.popitem(last=False)[1].close()
        self._sessions[signature] = made
        return made

    def __contains__(self, signature: Signature) -> bool:
        return signature in self._sessions

    def __iter__(self) -> Iterator[Signature]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Close all sessions; their weights are brought to the host."""
        while self._sessions:
            self._sessions.popitem()[1].close()
