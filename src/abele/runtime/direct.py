"""Vertices called directly from Python, as the native code that they are."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from abele.codelet import CodeletDef, CompiledCodelet
from abele.llvm.flush import denormals_flushed
from abele.runtime.arena import address_of
from abele.runtime.groups import fields_overlap
from abele.runtime.placed import PlacedGroup

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

RunRange = Callable[[int, int], None]


class NativeVertices:
    """Runs any of the vertices of a group as native code.

    Args:
        compile: Gives the native code of a codelet.
    """

    def __init__(self, compile: Callable[[CodeletDef], CompiledCodelet]) -> None:
        self._compile = compile
        self._ready: dict[PlacedGroup, RunRange] = {}

    def run(self, placed: PlacedGroup, begin: int, end: int) -> None:
        """Run vertices ``begin`` to ``end``."""
        if placed not in self._ready:
            self._ready[placed] = self._prepared(placed)
        with denormals_flushed():
            self._ready[placed](begin, end)

    def _prepared(self, placed: PlacedGroup) -> RunRange:
        code = self._compile(placed.group.codelet)
        run = _RUN(code.run_aliasing if fields_overlap(placed.tables) else code.run)
        tables = np.array(placed.tables.addresses, dtype=np.int64)
        return lambda begin, end: run(begin, end, address_of(tables))
