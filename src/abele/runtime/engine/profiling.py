"""Profiling: from the times that threads noted to the profile of the host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np

from abele.errors import ProfilingDisabledError
from abele.graph import Execute, LibraryCall, Program, Stream
from abele.graph.debug import DebugRecord
from abele.host_facts import host_name, machine_rates
from abele.kernels.plan.native_plan import LeafWork
from abele.report import HOST_FUNCTIONS, HOST_LEAVES, HostProfile, Schema, Table
from abele.runtime.control.bytecode import NoteWord
from abele.runtime.control.emitter import Notes, TimedInstruction
from abele.runtime.control.leaf import Leaf
from abele.runtime.control.virtual_machine import VirtualMachine

_NUMBER = re.compile(r"(?:^|\+)#\d+ ")
"""Prefix of the names of steps in those of a plan's leaves."""
Row = dict[str, Any]

_SECOND = 1e-9
"""Seconds per unit of notes."""


class Profiler:
    """Measures runs of a machine between :meth:`begin` and :meth:`end`.

    Args:
        machine: Machine to measure.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._notes: Notes | None = None
        self._runs, self._seconds = 0, 0.0

    @property
    def is_on(self) -> bool:
        """True if runs are measured."""
        return self._machine.notes is not None

    def begin(self, clock: str) -> None:
        """Measure runs from here on; notes of another clock are forgotten."""
        if self._notes is None or self._notes.clock != clock:
            self._notes = Notes(self._machine.num_threads, self._machine.code, self._machine.timed, clock)
            self._runs, self._seconds = 0, 0.0
        self._machine.notes = self._notes

    def end(self) -> None:
        """Measure no runs from here on."""
        self._machine.notes = None

    def reset(self) -> None:
        """Forget all measurements."""
        self._runs, self._seconds = 0, 0.0
        if self._notes is not None:
            self._notes.reset()

    def note_run(self, seconds: float) -> None:
        """A run is over."""
        if self.is_on:
            self._runs += 1
            self._seconds += seconds

    @property
    def has_runs(self) -> bool:
        """True if a run was measured."""
        return self._runs > 0

    def profile(self) -> HostProfile:
        """Profile of the measured runs.

        Raises:
            ProfilingDisabledError: None was measured.
        """
        if self._notes is None or not self.has_runs:
            raise ProfilingDisabledError(
                "there is no profile of the host: no run was measured",
                remedy="with engine.profiling(): engine.run(), then engine.profile()",
            )
        leaves, functions = _rows(self._machine.timed, self._notes)
        facts = {
            "clock": self._notes.clock,
            "threads": self._notes.num_threads,
            "runs": self._runs,
            "run_seconds": self._seconds,
            "host": host_name(),
            "rates": asdict(machine_rates()),
            "products": True,
        }
        return HostProfile(_table(HOST_LEAVES, leaves), _table(HOST_FUNCTIONS, functions), facts)


def _table(schema: Schema, rows: Sequence[Row]) -> Table:
    return schema.table(**{name: [row[name] for row in rows] for name in schema.columns}) if rows else schema.empty()


def _rows(instructions: Sequence[TimedInstruction], notes: Notes) -> tuple[list[Row], list[Row]]:
    """Rows of both tables: leaves that ran, and their calls."""
    leaves: list[Row] = []
    functions: list[Row] = []
    for timed, row in _leaf_rows(instructions, notes):
        functions += ({"leaf": len(leaves), **part} for part in _function_rows(timed, notes))
        leaves.append(row)
    return leaves, functions


def _leaf_rows(instructions: Sequence[TimedInstruction], notes: Notes) -> Iterator[tuple[TimedInstruction, Row]]:
    """The instructions that ran."""
    count, waited = notes.of(NoteWord.COUNT), notes.of(NoteWord.WAITED)
    executions = count.max(axis=0)
    # Each time holds one reading of the clock, and two for every function that a leaf calls and notes.
    readings = count.copy()
    for timed in instructions:
        readings[:, timed.at] += 2 * notes.of_parts(timed.at)[:, :, 0].sum(axis=1)
    busy = np.maximum(notes.of(NoteWord.BUSY) - readings * notes.clock_cost, 0)
    each = readings // np.maximum(count, 1)
    longest, total = busy.max(axis=0), busy.sum(axis=0)
    best = np.clip(notes.of(NoteWord.SHORTEST) - each * notes.clock_cost, 0, busy).max(axis=0)
    for _, members in groupby(instructions, lambda timed: timed.phase):
        phase = list(members)
        at = np.array([timed.at for timed in phase])
        if not executions[at].any():
            continue
        # What thread 0 waits for after a phase is noted with its last leaf, and belongs to all that others ran longer.
        elapsed = longest[at].astype(np.float64)
        if notes.clock == "wall":
            passed = float(busy[0, at].sum() + waited[0, at].sum())
            elapsed *= passed / max(elapsed.sum(), 1.0)
        for timed, seconds in zip(phase, elapsed, strict=True):
            if executions[timed.at]:
                mean = total[timed.at] / notes.num_threads
                times = {
                    "executions": executions[timed.at],
                    "seconds": seconds * _SECOND,
                    "busy_seconds": total[timed.at] * _SECOND,
                    "best_seconds": best[timed.at] * _SECOND,
                    "balance": mean / max(float(longest[timed.at]), 1.0),
                }
                yield timed, _described(timed) | times


def _function_rows(timed: TimedInstruction, notes: Notes) -> Iterator[Row]:
    """Rows of the functions that the leaf of an instruction called."""
    parts = notes.of_parts(timed.at)
    leaf = timed.leaf
    if leaf is None or leaf.kernel is None or not parts.shape[1]:
        return
    plan, number = leaf.kernel
    # Each time holds one reading of the clock.
    taken = np.maximum(parts[:, :, 1] - parts[:, :, 0] * notes.clock_cost, 0)
    calls, longest, total = parts[:, :, 0].sum(axis=0), taken.max(axis=0), taken.sum(axis=0)
    for place, part in enumerate(plan.parts(number)):
        origins = [_origin(leaf.steps[n]) for n in sorted(part.origins)]
        yield {
            "name": ", ".join(dict.fromkeys(_step_names(part.name))),
            **_source(origins),
            "calls": calls[place],
            "seconds": longest[place] * _SECOND,
            "busy_seconds": total[place] * _SECOND,
            **_amounts(part.work),
            "lanes": part.lanes,
            "product": part.product,
        }


def _source(origins: Sequence[DebugRecord]) -> Row:
    """Source line of the first step that has one, and the network operations of all."""
    origin = next((o for o in origins if o.file), DebugRecord(""))
    texts = dict.fromkeys(o.text for o in origins if o.text)
    return {"network_op": ", ".join(texts), "file": origin.file, "line": origin.line}


def _amounts(work: LeafWork) -> Row:
    return {
        "flops": work.flops,
        "read_bytes": work.read_bytes,
        "written_bytes": work.written_bytes,
        "slots": work.slots,
    }


def _described(timed: TimedInstruction) -> Row:
    """Row of an instruction, apart from its times."""
    leaf, steps = timed.leaf, _steps(timed)
    origins = [_origin(step) for step in steps]
    calls = dict.fromkeys(step.name for step in (timed.call, *steps) if isinstance(step, LibraryCall))
    row = {
        "name": ", ".join(dict.fromkeys(_names(timed, origins))),
        "kind": _kind(timed),
        "calls": ", ".join(calls),
        **_source(origins),
        "units": _units(leaf) if leaf is not None else 1,
        "lanes": 0,
        "product": "",
    }
    if leaf is None:
        return row | _amounts(LeafWork())
    if leaf.kernel is not None:
        plan, number = leaf.kernel
        parts = plan.parts(number)
        heaviest = max(parts, key=lambda part: part.work.effort)
        product = heaviest.product if len(parts) == 1 else ""
        return row | _amounts(plan.work(number)) | {"lanes": heaviest.lanes, "product": product}
    # Vertices and copies say how much they touch in all: half of what a copy touches is written.
    touched = leaf.work_bytes or 0
    written = touched // 2 if _kind(timed) == "copy" else 0
    return row | _amounts(LeafWork(0, touched - written, written))


def _units(leaf: Leaf) -> int:
    """Units that threads share: of functions side by side those of all, of a short leaf one."""
    if leaf.is_short:
        return 1
    if leaf.kernel is not None:
        plan, number = leaf.kernel
        driver = plan.leaves[number].driver
        if driver is not None and not driver.blocks:
            return sum(step.units for step in driver.steps)
    return leaf.units


def _steps(timed: TimedInstruction) -> tuple[Program, ...]:
    """Steps that an instruction carries out, in order of their work."""
    if timed.leaf is not None and timed.leaf.kernel is not None:
        plan, number = timed.leaf.kernel
        heavy = max(plan.parts(number), key=lambda part: (bool(part.origins), part.work.effort)).origins
        return tuple(timed.leaf.steps[n] for n in sorted(timed.leaf.steps, key=lambda n: (n not in heavy, n)))
    return tuple(step for step in (timed.step, timed.call) if step is not None)


def _kind(timed: TimedInstruction) -> str:
    if timed.leaf is None:
        return "callback"
    if timed.leaf.kernel is not None:
        return "kernel"
    return "vertices" if isinstance(timed.step, Execute) and timed.leaf.vertices else "copy"


def _names(timed: TimedInstruction, origins: Iterable[DebugRecord]) -> Iterator[str]:
    leaf = timed.leaf
    if leaf is None:
        yield (
            _stream_name(timed.stream) if timed.stream is not None else next((o.full_name for o in origins), "callback")
        )
    elif leaf.kernel is not None:
        plan, number = leaf.kernel
        # The function with most to do gives the leaf its name; the others follow in order.
        parts = sorted(plan.parts(number), key=lambda part: part.work.effort, reverse=True)[:1]
        yield from (
            name for call in (*(p.name for p in parts), *plan.leaves[number].calls) for name in _step_names(call)
        )
    else:
        yield from (
            f"{o.full_name}: {leaf.name}" if o.full_name not in leaf.name else leaf.name for o in [*origins][:1]
        )


def _step_names(task: str) -> list[str]:
    """The names of the steps behind a task."""
    return [name for name in _NUMBER.split(task) if name]


def _stream_name(stream: Stream) -> str:
    return f"{'from' if stream.direction == 'in' else 'to'} {stream.name} (host)"


def _origin(step: Program) -> DebugRecord:
    """Debug record that names a step."""
    return step.compute_set.debug if isinstance(step, Execute) else step.debug
