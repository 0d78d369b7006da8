"""The check for bounds: native code that holds every access against the size of its field."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.codelet import CodeletDef, CompiledCodelet
from abele.codelet.driver import WORDS, Violation
from abele.errors import AbeleError, CodeletError
from abele.llvm.flush import denormals_flushed
from abele.runtime.control.faults import GuardedCalls
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.supersteps.copy_leaves import Runs, copy_leaf
from abele.runtime.supersteps.direct_calls import fault_error
from abele.runtime.supersteps.interpreted import can_interpret, place_of, run_vertex
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.words import counted

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_WORDS, _WORKER = 8, 4
"""Room for the report of any language, and the word of it with a worker's number."""
_COPY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


@dataclass(eq=False)
class BoundedVertices:
    """Runs the vertices of a compute set with checked accesses.

    A Python vertex that reaches outside a field is put back as it was and run again as plain Python, which says where;
    C++ vertices know their lines themselves.

    Attributes:
        compile: Gives the native code of a codelet.
    """

    compile: Callable[[CodeletDef], CompiledCodelet]
    _saved: dict[PlacedGroup, _Saved] = field(default_factory=dict)
    _calls: GuardedCalls = field(default_factory=GuardedCalls)

    def __call__(self, groups: Sequence[PlacedGroup]) -> None:
        """Run all vertices of some groups.

        Raises:
            CodeletAccessError: An access outside a field.
        """
        for placed in groups:
            self._run(placed)

    def trial(self, placed: PlacedGroup) -> AbeleError | None:
        """Error of a vertex of a group that would leave a field on the present memory, or None; nothing is changed."""
        # What prints would print twice.
        if placed.tables.sink is not None:
            return None
        for runs in placed.tables.gather:
            _copy(runs)
        saved = _Saved.of(placed)
        saved.save()
        try:
            self._run(placed)
        except AbeleError as error:
            return error
        # A trial looks for accesses only; anything else would have been raised by the run itself.
        except Exception:
            return None
        finally:
            saved.restore_all()
        return None

    def _run(self, placed: PlacedGroup) -> None:
        if can_interpret(placed.group):
            self._run_python(placed)
        else:
            self.run_native(placed, 0, placed.num)

    def run_native(self, placed: PlacedGroup, begin: int, end: int, worker: int | None = None) -> None:
        """Run vertices with every access checked, or one worker of each in C++; those from files have no lines.

        Raises:
            CodeletAccessError: An access outside a field; it touched nothing.
        """
        code = self.compile(placed.group.codelet)
        tables, report = np.array(placed.tables.addresses, dtype=np.int64), np.zeros(_WORDS, np.int64)
        report[_WORKER] = worker or 0
        # The call is guarded: a fault in native code comes back as a value.
        leaf = code.run_checked if worker is None else code.run_worker_checked
        with denormals_flushed():
            fault = self._calls.run(leaf, begin, end, address_of(tables), address_of(report))
        if fault is not None:
            raise fault_error(fault, placed, begin, end)
        found = code.access_error(report[:_WORDS].tolist())
        if found is not None:
            vertex, error = found
            at = "\n".join(filter(None, (error.at, place_of(placed, vertex))))
            raise type(error)(error.message, at=at, because=error.because, remedy=error.remedy)
        violation = Violation.of(report) if placed.group.codelet.language != "cpp" else None
        if violation is not None:
            raise _unexplained(placed, violation)

    def _run_python(self, placed: PlacedGroup) -> None:
        if placed not in self._saved:
            self._saved[placed] = _Saved.of(placed)
        saved = self._saved[placed]
        saved.save()
        tables = np.array(placed.tables.addresses, dtype=np.int64)
        report = np.zeros(WORDS, np.int64)
        run = _RUN(self.compile(placed.group.codelet).run_checked)
        run(0, placed.num, address_of(tables), address_of(report))
        violation = Violation.of(report)
        if violation is not None:
            # Native code knows the vertex and the field; plain Python repeats that vertex on what it found, and knows
            # the line.
            saved.restore(violation.vertex)
            run_vertex(placed, violation.vertex)
            raise _unexplained(placed, violation)


def run_in_order(groups: Sequence[PlacedGroup], bounded: BoundedVertices) -> None:
    """Run vertices as plain Python, one after the other; codelets in C++ as checked native code."""
    for placed in groups:
        if can_interpret(placed.group):
            for vertex in range(placed.num):
                run_vertex(placed, vertex)
        else:
            bounded.run_native(placed, 0, placed.num)


@dataclass(eq=False)
class _Saved:
    """Memory that vertices may change, as it was before they ran.

    Attributes:
        vertex: Vertex of each row of a written field, int64[rows].
        runs: Copies of these rows to a block of memory.
        state: State fields, and room for their values.
    """

    vertex: Int64
    runs: Runs
    block: npt.NDArray[np.uint8]
    state: list[tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]]

    @staticmethod
    def of(placed: PlacedGroup) -> _Saved:
        written = [m for m in placed.tables.memory if m.written]
        empty = [np.empty(0, np.int64)]
        address = np.concatenate([m.address for m in written] or empty)
        size = np.concatenate([m.bytes for m in written] or empty)
        block = aligned_block(max(1, int(size.sum())))
        runs = Runs(address, address_of(block) + np.cumsum(size) - size, size)
        state = [(values, values.copy()) for values, _ in placed.tables.state]
        return _Saved(np.concatenate([m.vertex for m in written] or empty), runs, block, state)

    def save(self) -> None:
        _copy(self.runs)
        for values, room in self.state:
            room[...] = values

    def restore_all(self) -> None:
        """Bring all vertices back."""
        _copy(Runs(self.runs.destination, self.runs.source, self.runs.bytes))
        for values, room in self.state:
            values[...] = room

    def restore(self, vertex: int) -> None:
        runs = self.runs.where(self.vertex == vertex)
        _copy(Runs(runs.destination, runs.source, runs.bytes))
        for values, room in self.state:
            values[...] = room


def _copy(runs: Runs) -> None:
    leaf = copy_leaf("save", runs)
    arguments = np.array(leaf.args, dtype=np.int64)
    _COPY(leaf.address)(0, leaf.units, address_of(arguments))


def _unexplained(placed: PlacedGroup, violation: Violation) -> CodeletError:
    """Error of accesses that plain Python does not repeat: the codelet shares memory with another."""
    definition = placed.group.codelet
    name = definition.fields[violation.field].name
    return CodeletError(
        f"vertex {violation.vertex} of {definition.name} reaches for {name}[{violation.index}], "
        f"which has {counted(violation.size, 'element')}",
        at=definition.location,
    )
