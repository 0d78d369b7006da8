"""Vertices that reach outside their fields in an ordinary run: found afterwards, and named.

What a vertex writes next to a variable changes a red zone (``zones``); what it touches far away faults (``faults``).
Both cost next to nothing, and neither tells who did it. So the vertices that may have done it run once more, checked,
on what memory holds then, and are put back: the first that leaves a field is named with its line. Where none does so
again, the error tells the variable and the vertices that are connected to it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from abele.arrays import Int64
from abele.codelet import CodeletDef, CompiledCodelet
from abele.codelet.compiled import GuardedCodelet
from abele.errors import AbeleError, ApplicationRuntimeError
from abele.graph import Variable
from abele.runtime.checks.every_access import BoundedVertices
from abele.runtime.control.faults import Fault
from abele.runtime.control.leaf import Leaf
from abele.runtime.control.primitives import primitives
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.host_memory import address_of
from abele.runtime.supersteps.placed_groups import PlacedGroup

# Red zones: unused memory between variables, checked after each run.
#
# A vertex that writes just past the end of a variable, or just before its beginning, writes there first.

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
        if not len(self.begin):
            return []
        found, number = [], self._changed(0, len(self.begin), *self._places)
        while number >= 0:
            found.append(int(self.begin[number]))
            number = self._changed(number + 1, len(self.begin), *self._places)
        return found


_REMEDY = 'Engine(…, checks="bounds") checks every access as it happens'
_MOST = 4


class Overruns:
    """Checks after each run for vertices that reached outside their fields.

    Args:
        arena: The variables.
        placed: The vertices in memory.
        compile: Gives the native code of a codelet.
    """

    def __init__(
        self, arena: Arena, placed: Sequence[PlacedGroup], compile: Callable[[CodeletDef], CompiledCodelet]
    ) -> None:
        self._arena = arena
        self._placed = [p for p in placed if not isinstance(compile(p.group.codelet), GuardedCodelet)]
        self._bounded = BoundedVertices(compile)
        regions = [edge.regions for p in self._placed for edge in p.group.edges.values()]
        begin = np.concatenate([r.begin for r in regions] or [np.empty(0, np.int64)])
        length = np.concatenate([r.length for r in regions] or [np.empty(0, np.int64)])
        first, last = arena.zones(begin, length) if len(begin) else (begin, begin)
        # State of vertices has red zones of its own, outside the arena.
        own = [zone for p in self._placed for zone in p.tables.zones]
        self._states = {begin: p for p in self._placed for begin, _ in p.tables.zones}
        around = np.array(own, dtype=np.int64).reshape(-1, 2)
        self._zones = Zones(np.append(first, around[:, 0]), np.append(last, around[:, 1]))

    def error(self, fault: tuple[Fault, Leaf | None] | None) -> ApplicationRuntimeError | None:
        """Error of the last run, if any."""
        changed = self._zones.changed()
        if fault is None and not changed:
            return None
        # Filled again at once, so that the next run is judged by itself.
        if changed:
            self._zones.fill()
        return self._faulted(*fault) if fault is not None else self._changed(changed)

    def _faulted(self, fault: Fault, leaf: Leaf | None) -> ApplicationRuntimeError:
        what = leaf.name if leaf is not None else "native code"
        ran = [p for p in self._placed if leaf is not None and _runs(leaf, p)]
        because = f"{fault.reason} ended the run in {what}"
        found = self._leaving(ran)
        if found is not None:
            return _named(found, because)
        return ApplicationRuntimeError(
            f"the run ended in {what}", at=_places(ran), because=f"{fault.reason}, at address {fault.address:#x}",
            remedy=_REMEDY,
        )  # fmt: skip

    def _changed(self, zones: Sequence[int]) -> ApplicationRuntimeError:
        variables = [v for begin in zones if self._arena.holds(begin) for v in self._arena.around(begin)]
        # Whose state lies there comes first; then those wired to a variable beside the zone.
        owners = [self._states[begin] for begin in zones if begin in self._states]
        near = [*owners, *(p for p in self._placed if p not in owners and self._touches(p, variables))]
        because = f"{_memory(variables)} has changed, which belongs to nothing"
        found = self._leaving(near)
        if found is not None:
            return _named(found, because)
        return ApplicationRuntimeError(
            f"a vertex wrote outside its fields: {_memory(variables)} has changed", at=_places(near),
            because="it belongs to nothing; these vertices are connected to what lies beside it", remedy=_REMEDY,
        )  # fmt: skip

    def _leaving(self, groups: Sequence[PlacedGroup]) -> AbeleError | None:
        """Error of a vertex that leaves a field when some groups run again, checked."""
        return next(filter(None, map(self._bounded.trial, groups)), None)

    def _touches(self, placed: PlacedGroup, variables: Sequence[Variable]) -> bool:
        for edge in placed.group.edges.values():
            low, high = edge.regions.begin, edge.regions.begin + edge.regions.length
            if any(((low < v.base + v.size) & (high > v.base)).any() for v in variables):
                return True
        return False


def _runs(leaf: Leaf, placed: PlacedGroup) -> bool:
    tables = placed.tables.addresses
    return leaf.args[: len(tables)] == tables


def _named(found: AbeleError, because: str) -> ApplicationRuntimeError:
    return ApplicationRuntimeError(
        f"a vertex left its fields: {found.message}", at=found.at, because=because, remedy=_REMEDY
    )


def _memory(variables: Sequence[Variable]) -> str:
    names = " and ".join(dict.fromkeys(f"{v.kind} {v.name!r}" for v in variables))
    return f"memory beside {names}" if names else "memory beside the state of vertices"


def _places(groups: Sequence[PlacedGroup]) -> str | None:
    lines = list(_lines(groups[:_MOST]))
    if len(groups) > _MOST:
        lines.append(f"and {len(groups) - _MOST} other groups of vertices")
    return "\n".join(lines) or None


def _lines(groups: Sequence[PlacedGroup]) -> Iterator[str]:
    for placed in groups:
        made = placed.group.origin_of(0).location
        yield f"{placed.num} × {placed.group.codelet.name} in compute set {placed.compute_set.name!r}, made at {made}"
