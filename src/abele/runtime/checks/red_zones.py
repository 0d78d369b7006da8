"""Red zones: unused memory between variables, checked after each run.

A vertex that writes just past the end of a variable, or just before its beginning, writes there first.
"""

from __future__ import annotations

import ctypes

import numpy as np

from abele.arrays import Int64
from abele.runtime.control.primitives import primitives
from abele.runtime.memory.host_memory import address_of

_ARGUMENTS = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_CHANGED = ctypes.CFUNCTYPE(ctypes.c_int64, *_ARGUMENTS)
_FILL = ctypes.CFUNCTYPE(None, *_ARGUMENTS)


class Zones:
    """Stretches of memory without a legal write.

    Args:
        begin: First byte of each, int64[n].
        end: One past the last byte of each, int64[n], multiples of 8.
    """

    def __init__(self, begin: Int64, end: Int64) -> None:
        self.begin = np.ascontiguousarray(begin, dtype=np.int64)
        self.end = np.ascontiguousarray(end, dtype=np.int64)
        self._places = address_of(self.begin), address_of(self.end)
        code = primitives()
        self._changed = _CHANGED(code.changed_zone)
        self._fill = _FILL(code.fill_zones)
        self.fill()

    def fill(self) -> None:
        """Give all of them their content again."""
        self._fill(0, len(self.begin), *self._places)

    def changed(self) -> list[int]:
        """Begins of zones that were written to."""
        found, number = [], self._changed(0, len(self.begin), *self._places)
        while number >= 0:
            found.append(int(self.begin[number]))
            number = self._changed(number + 1, len(self.begin), *self._places)
        return found
