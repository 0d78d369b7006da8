"""Callbacks: Python that a running program calls, and their errors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


class Callbacks:
    """A numbered table of functions behind one C function pointer."""

    def __init__(self) -> None:
        self._functions: list[Callable[[], None]] = []
        self._error: BaseException | None = None
        self._entry = _SIGNATURE(self._call)

    @property
    def address(self) -> int:
        """Address of ``i64 call(i64 number)``; it gives 1 when the function raised."""
        return ctypes.cast(self._entry, ctypes.c_void_p).value or 0

    def add(self, function: Callable[[], None]) -> int:
        """Number of a new entry."""
        self._functions.append(function)
        return len(self._functions) - 1

    def add_failure(self, error: Callable[[], BaseException]) -> int:
        """Number of a new entry that raises the error of ``error``."""

        def fail() -> None:
            raise error()

        return self.add(fail)

    def set(self, number: int, function: Callable[[], None]) -> None:
        """Replace an entry."""
        self._functions[number] = function

    def take_error(self) -> BaseException | None:
        """Error that a callback raised since the last call of this, or None."""
        error, self._error = self._error, None
        return error

    def _call(self, number: int) -> int:
        try:
            self._functions[number]()
        # An exception cannot pass through native code: it is kept, the run ends, and whoever waits for the run raises
        # it.
        except BaseException as error:
            self._error = error
            return 1
        return 0
