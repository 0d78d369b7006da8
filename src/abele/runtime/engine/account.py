"""Account of an engine: counts of its runs, kept in their form and evaluated on request.

A run leaves a few words (which way each decision went) and, where the cost of vertices depends on data, issue slots
per vertex, both as bytes, which are quickly copied and compared. They are shared with the run before where they are
equal, as they mostly are. Executions of steps, compute
phases and cycles follow from them and the executable. They are found for many runs at once, when a report or the table
of runs is asked for, or when what is kept would grow past a bound; after that only the cycles of a run are kept, and
the counts of the last whole run of each program. So a run pays for a copy of its counts, and a report for the runs
since the one before.

Two locks: ``_state`` guards what a run changes and is held for moments; ``_asking`` lets one thread at a time work
things out, while runs go on.

Example: a while loop that made 7 trips leaves two words, 7 trips and 1 entry. The next run that counts the same shares
them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.compiler import Executable
from abele.compiler.cycles import ComputeCycles
from abele.compiler.run_account import RunAccount
from abele.graph import ComputeSet, Execute, Program
from abele.report import Report
from abele.runtime.image import RunCounts
from abele.runtime.supersteps.placed_groups import CountedVertices

_MOST_KEPT_BYTES = 1 << 26
"""Most bytes of counts of runs whose cycles were not requested yet."""
_AT_ONCE = 256
"""Runs whose executions are worked out together."""


class CountedSuperstep:
    """Counts of the vertices of one superstep, shared by all runs in a row that counted the same.

    Args:
        executable: The executable.
        number: Number of the superstep.
        groups: Counts of its vertex groups.
    """

    def __init__(self, executable: Executable, number: int, groups: tuple[CountedVertices, ...]) -> None:
        self._executable = executable
        self.number = number
        self.groups = groups

    @cached_property
    def compute(self) -> ComputeCycles:
        """The compute phase with vertices as counted."""
        return self._executable.counted_compute(self.number, {g.position: g.slots for g in self.groups})


@dataclass(eq=False, slots=True)
class CountedRun:
    """Whole runs of a program that all counted the same, one after the other.

    Attributes:
        program: The program.
        words: Times that each way was taken that data decides, int64[words] as bytes; None once it is no longer needed.
        vertices: Counts of vertices.
        supersteps: The same by superstep.
        cycles: Modelled cycles of each; None until they are asked for.
        waits: True if somebody may ask for the cycles, and they are not known yet.
    """

    program: int
    words: bytes | None
    vertices: tuple[CountedVertices, ...]
    supersteps: tuple[CountedSuperstep, ...]
    cycles: int | None = None
    waits: bool = False


class EngineAccount:
    """Counts of the runs of one engine. Threads may ask while a run ends.

    Args:
        executable: Executable that runs; it is not changed.
    """

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._state, self._asking = threading.Lock(), threading.RLock()
        self._places: Mapping[Program, slice] = {}
        self._last: dict[int, CountedRun] = {}
        self._number_of_last: dict[int, int] = {}
        self._waiting: list[CountedRun] = []
        self._kept_bytes = 0
        self._num_runs = 0
        self._version = 0
        self._account: tuple[int, RunAccount] = -1, executable.assumptions
        self._reported: tuple[RunAccount, Report] | None = None

    def begin(self, places: Mapping[Program, slice]) -> None:
        """The code is there that will count: where the words of each node are."""
        self._places = places

    def note(self, counts: RunCounts | None, *, recorded: bool) -> CountedRun | None:
        """Record the end of a run.

        Args:
            counts: Its counts; None if it did not come to its end.
            recorded: True if somebody may ask for its cycles.

        Returns:
            The run; None if it did not come to its end.
        """
        with self._state:
            self._num_runs += 1
            if counts is None:
                return None
            program = counts.program
            self._number_of_last[program] = self._num_runs
            before = self._last.get(program)
            if before is not None and before.words == counts.words and before.vertices == counts.vertices:
                run = before
            else:
                run = self._last[program] = self._counted(counts, before)
                self._version += 1
            if not recorded or run.waits or run.cycles is not None:
                return run
            run.waits = True
            self._waiting.append(run)
            too_much = self._kept_bytes > _MOST_KEPT_BYTES
        if too_much:
            self._work_out_cycles()
        return run

    def reset(self) -> None:
        """Forget all runs: decisions that depend on data are assumed again."""
        with self._asking, self._state:
            self._last.clear()
            self._number_of_last.clear()
            self._waiting.clear()
            self._kept_bytes, self._num_runs = 0, 0
            self._version += 1

    @property
    def latest(self) -> RunAccount:
        """Account of the last whole run of each program; assumptions for those that were not run."""
        return self._latest()[0]

    def report(self) -> Report:
        """The report of :attr:`latest`; it is made anew only when that has changed."""
        with self._asking:
            account, numbers = self._latest()
            if self._reported is None or self._reported[0] is not account:
                executable = self._executable
                plain = executable.report if account is executable.assumptions else executable.report_of(account)
                self._reported = account, plain
            programs = range(len(self._executable.programs))
            figures_of = [f"run {numbers[n]}" if n in numbers else "assumptions" for n in programs]
            return self._reported[1].with_meta(figures_of=figures_of)

    def cycles(self, runs: Sequence[CountedRun | None]) -> list[int]:
        """Modelled cycles of some runs; 0 for those that were cut off."""
        with self._asking:
            self._work_out_cycles()
            return [run.cycles or 0 if run is not None else 0 for run in runs]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _counted(self, counts: RunCounts, before: CountedRun | None) -> CountedRun:
        """Run that shares with the one before what is equal."""
        words = before.words if before is not None and before.words == counts.words else counts.words
        known = {s.groups: s for s in before.supersteps} if before is not None else {}
        found: dict[int, list[CountedVertices]] = {}
        for vertices in counts.vertices:
            if vertices.compute_set in self._number_of:
                found.setdefault(self._number_of[vertices.compute_set], []).append(vertices)
        supersteps = []
        for superstep, groups in found.items():
            same = known.get(tuple(groups))
            if same is None:
                same = CountedSuperstep(self._executable, superstep, tuple(groups))
                self._kept_bytes += sum(len(g.raw) for g in groups)
            supersteps.append(same)
        self._kept_bytes += len(words)
        return CountedRun(counts.program, words, counts.vertices, tuple(supersteps))

    @cached_property
    def _number_of(self) -> dict[ComputeSet, int]:
        """Supersteps of the compute sets whose cost depends on data."""
        estimated = (s for s in self._executable.plan if s.estimated)
        return {s.node.compute_set: s.index for s in estimated if isinstance(s.node, Execute)}

    def _latest(self) -> tuple[RunAccount, dict[int, int]]:
        """The account of the last whole run of each program, and how many runs the engine had made by then."""
        with self._asking:
            with self._state:
                version, last, numbers = self._version, dict(self._last), dict(self._number_of_last)
            if self._account[0] != version:
                account = self._executable.assumptions
                for run in last.values():
                    account = next(self._accounts(run.program, [run], account))
                self._account = version, account
            return self._account[1], numbers

    def _accounts(self, program: int, runs: Sequence[CountedRun], before: RunAccount) -> Iterator[RunAccount]:
        """An account in which a program ran as it did in each of some runs, and the others as ``before``."""
        scopes = self._executable.scopes(program)
        if not scopes.decided and not any(run.supersteps for run in runs):
            yield from [before] * len(runs)
            return
        for first in range(0, len(runs), _AT_ONCE):
            chunk = runs[first : first + _AT_ONCE]
            words = np.frombuffer(b"".join(run.words or b"" for run in chunk), np.int64).reshape(len(chunk), -1)
            entries, known = scopes.entries(words, self._places)
            for run, entered, told in zip(chunk, entries, known, strict=True):
                executions, assumed = before.executions.copy(), before.assumed.copy()
                executions[scopes.steps] = entered[scopes.of_step]
                assumed[scopes.steps] &= ~told[scopes.of_step]
                compute = {(program, s.number): s.compute for s in run.supersteps}
                yield RunAccount(executions, assumed, before.compute).with_compute(compute)

    def _work_out_cycles(self) -> None:
        """Compute the cycles of the runs that wait for it, and drop counts without further use."""
        with self._asking:
            with self._state:
                waiting, self._waiting, self._kept_bytes = self._waiting, [], 0
            distinct: dict[int, dict[tuple[int, tuple[CountedSuperstep, ...]], list[CountedRun]]] = {}
            for run in waiting:
                distinct.setdefault(run.program, {}).setdefault((id(run.words), run.supersteps), []).append(run)
            for program, alike in distinct.items():
                firsts = [runs[0] for runs in alike.values()]
                accounts = self._accounts(program, firsts, self._executable.assumptions)
                for account, runs in zip(accounts, alike.values(), strict=True):
                    cycles = self._executable.cycles_of(program, account)
                    for run in runs:
                        run.cycles, run.waits = cycles, False
            with self._state:
                last = {id(run) for run in self._last.values()}
                for run in waiting:
                    if id(run) not in last:
                        run.words, run.vertices, run.supersteps = None, (), ()
