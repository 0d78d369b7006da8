"""Vertices called directly from Python, as the native code that they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from abele.codelet import CodeletDef, CompiledCodelet
from abele.errors import ApplicationRuntimeError
from abele.llvm.flush import denormals_flushed
from abele.runtime.control.faults import Fault, GuardedCalls
from abele.runtime.memory.host_memory import address_of
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.runtime.supersteps.vertex_tables import fields_overlap

RunRange = Callable[[int, int, int], Fault | None]


def fault_error(fault: Fault, placed: PlacedGroup, begin: int, end: int) -> ApplicationRuntimeError:
    """The error of a fault in vertices ``begin`` to ``end``."""
    name = placed.group.codelet.name
    which = f"vertex {begin}" if end == begin + 1 else f"vertices {begin} to {end - 1}"
    return ApplicationRuntimeError(
        f"{which} of {name} cannot go on: {fault.reason}",
        at=f"{which} of {placed.num} × {name}\n"
        f"compute set {placed.compute_set.name!r}, made at {placed.group.origin_of(0).location}",
        remedy='Engine(…, checks="bounds") names the access, if it is one outside a field',
    )


class NativeVertices:
    """Runs any of the vertices of a group as native code.

    Args:
        compile: Gives the native code of a codelet.
    """

    def __init__(self, compile: Callable[[CodeletDef], CompiledCodelet]) -> None:
        self._compile = compile
        self._calls = GuardedCalls()
        self._ready: dict[tuple[PlacedGroup, bool], RunRange] = {}

    def run(self, placed: PlacedGroup, begin: int, end: int, worker: int | None = None) -> None:
        """Run vertices ``begin`` to ``end``; of a MultiVertex in C++, one worker alone if it is given.

        Raises:
            ApplicationRuntimeError: One of them touched memory that belongs to nothing.
        """
        way = placed, worker is not None
        if way not in self._ready:
            self._ready[way] = self._prepared(*way)
        with denormals_flushed():
            fault = self._ready[way](begin, end, worker or 0)
        if fault is not None:
            raise fault_error(fault, placed, begin, end)

    def _prepared(self, placed: PlacedGroup, one_worker: bool) -> RunRange:
        code = self._compile(placed.group.codelet)
        leaf = code.run_worker if one_worker else code.run_aliasing if fields_overlap(placed.tables) else code.run
        tables = np.array(placed.tables.addresses, dtype=np.int64)
        return lambda begin, end, worker: self._calls.run(leaf, begin, end, address_of(tables), worker)
