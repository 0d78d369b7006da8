"""Vertices called directly from Python, as the native code that they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from abele.codelet import CodeletDef, CompiledCodelet
from abele.errors import ApplicationRuntimeError
from abele.llvm.flush import denormals_flushed
from abele.runtime.faults import Fault, GuardedCalls
from abele.runtime.groups import fields_overlap
from abele.runtime.memory import address_of
from abele.runtime.placed import PlacedGroup

RunRange = Callable[[int, int], Fault | None]


class NativeVertices:
    """Runs any of the vertices of a group as native code.

    Args:
        compile: Gives the native code of a codelet.
    """

    def __init__(self, compile: Callable[[CodeletDef], CompiledCodelet]) -> None:
        self._compile = compile
        self._calls = GuardedCalls()
        self._ready: dict[PlacedGroup, RunRange] = {}

    def run(self, placed: PlacedGroup, begin: int, end: int) -> None:
        """Run vertices ``begin`` to ``end``.

        Raises:
            ApplicationRuntimeError: One of them touched memory that belongs to nothing.
        """
        if placed not in self._ready:
            self._ready[placed] = self._prepared(placed)
        with denormals_flushed():
            fault = self._ready[placed](begin, end)
        if fault is not None:
            raise ApplicationRuntimeError(
                f"vertices of {placed.group.codelet.name} cannot go on: {fault.reason}",
                at=f"vertices {begin} to {end - 1} of {placed.num} × {placed.group.codelet.name}\n"
                f"compute set {placed.compute_set.name!r}, made at {placed.group.origin_of(0).location}",
                remedy='Engine(…, checks="bounds") finds the access',
            )

    def _prepared(self, placed: PlacedGroup) -> RunRange:
        code = self._compile(placed.group.codelet)
        leaf = code.run_aliasing if fields_overlap(placed.tables) else code.run
        tables = np.array(placed.tables.addresses, dtype=np.int64)
        return lambda begin, end: self._calls.run(leaf, begin, end, address_of(tables))
