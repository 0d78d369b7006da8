"""Records of an engine's runs, and the reports that it writes by itself."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from abele.compiler import Executable
from abele.errors import FileFormatError, InvalidOptionError, OutOfMemoryError, ProfilingDisabledError, nearest
from abele.report import RUNS, CallTimes, Report, Table
from abele.report.display import view_hint
from abele.runtime.engine.account import CountedRun, EngineAccount
from abele.runtime.engine.options import EngineOptions
from abele.runtime.image import RunCounts
from abele.writing import writing

REPORT_NAME = "profile.abele-report"
"""File name of a report that ``autoReport`` options ask for."""

SUMMARY_OPTIONS = ("showExecutionSteps", "showVarStorage", "showOptimizations")
"""Options of a profile summary, with Poplar's names; each is ``true`` or ``false``."""


class RunLog:
    """The runs of an engine, as rows of the report's table, and their counts.

    Args:
        options: Options; they say if runs are recorded, and of which programs.
        executable: Executable that runs.
        mode: Mode of library calls.
        threads: Host threads.

    Attributes:
        account: Counts of the runs, recorded or not.

    Raises:
        InvalidOptionError: The filter of programs is no regular expression.
    """

    def __init__(self, options: EngineOptions, executable: Executable, mode: str, threads: int) -> None:
        self._mode, self._threads = mode, threads
        off = [n for n in ("debug.instrument", "debug.instrumentCompute") if not options.flag(n)]
        if options["debug.computeInstrumentationLevel"] == "off":
            off.append("debug.computeInstrumentationLevel")
        self._switched_off = off[0] if off else ""
        self._recorded = _matching(options.text("profiler.programs.filter"), executable.program_names)
        self._names = executable.program_names
        self._rows: list[tuple[int, str, float, CallTimes, CountedRun | None]] = []
        self.account = EngineAccount(executable)

    @property
    def enabled(self) -> bool:
        """True if runs are recorded."""
        return not self._switched_off

    def enable(self) -> None:
        """Record runs from here on."""
        self._switched_off = ""

    def disable(self) -> None:
        """Record no runs from here on."""
        self._switched_off = "disable_execution_profiling()"

    def reset(self) -> None:
        """Forget the runs so far, and their counts."""
        self._rows.clear()
        self.account.reset()

    def note(
        self, program: int, counts: RunCounts | None, seconds: float, times: CallTimes | None = None, name: str = ""
    ) -> bool:
        """Add the counts of a run, None if it was cut off, and record it; gives true if it was recorded.

        ``times`` may still change: what the host does after the run. A run without a name has that of its program.
        """
        recorded = not self._switched_off and program in self._recorded
        run = self.account.note(counts, recorded=recorded)
        if recorded:
            self._rows.append((program, name or self._names[program], seconds, times or CallTimes(), run))
        return recorded

    def count(self, program: int) -> int:
        """Recorded runs of a program."""
        return sum(row[0] == program for row in self._rows)

    def report(self) -> Report:
        """Costs of the programs as each ran last, with the recorded runs."""
        report = self.account.report()
        return replace(report, runs=self._table()) if self._rows else report

    def table(self) -> Table:
        """The runs.

        Raises:
            ProfilingDisabledError: None are recorded.
        """
        if not self.enabled and not self._rows:
            raise ProfilingDisabledError(
                "there is no execution profile: runs are not recorded",
                because=f"{self._switched_off} switched that off",
                remedy='options={"debug.instrument": True}, or engine.enable_execution_profiling()',
            )
        return self._table()

    def _table(self) -> Table:
        rows = list(self._rows)  # another thread may add one meanwhile
        if not rows:
            return RUNS.empty()
        programs, names, seconds, times, runs = zip(*rows, strict=True)
        columns = {f.name: [getattr(each, f.name) for each in times] for f in fields(CallTimes)}
        return RUNS.table(
            program=programs,
            name=names,
            mode=[self._mode] * len(rows),
            threads=[self._threads] * len(rows),
            wall_seconds=seconds,
            **columns,
            cycles=self.account.cycles(runs),
        )


def _matching(pattern: str, names: Sequence[str]) -> frozenset[int]:
    """Positions of the names in which a pattern is found."""
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise InvalidOptionError(
            f"option 'profiler.programs.filter' does not take {pattern!r}: {error}", remedy="a regular expression"
        ) from None
    return frozenset(n for n, name in enumerate(names) if found.search(name))


class AutoReport:
    """Writes reports to a folder as the ``autoReport`` options say.

    Args:
        options: Options; they name the folder and the parts of a report.
        folder: The folder below ``autoReport.directory`` that reports of this program go to; that folder itself if
            empty.
    """

    def __init__(self, options: EngineOptions, folder: str = "") -> None:
        everything = options.flag("autoReport.all")
        self._graph = everything or options.flag("autoReport.outputGraphProfile")
        self._execution = everything or options.flag("autoReport.outputExecutionProfile")
        self._most_runs = options.number("autoReport.executionProfileProgramRunCount")
        self._path = Path(options.text("autoReport.directory"), folder, REPORT_NAME)
        self._runs: Counter[int] = Counter()
        self._told = False

    def after_compile(self, report: Callable[[], Report]) -> None:
        """A program was compiled."""
        if self._graph:
            self._write(report())

    def after_run(self, program: int, report: Callable[[], Report]) -> None:
        """A run of a program was recorded."""
        self._runs[program] += 1
        if self._execution and self._runs[program] <= self._most_runs:
            self._write(report())

    @contextmanager
    def of_failure(self) -> Iterator[None]:
        """While a program is compiled: one that does not fit leaves its report all the same."""
        try:
            yield
        except OutOfMemoryError as error:
            if self._graph and error.make_report is not None and error.report_path is None:
                self._write_failed(error)
            raise

    def _write_failed(self, error: OutOfMemoryError) -> None:
        try:
            self._write(error.report)
        except FileFormatError as other:
            # What the user has to hear of is the memory.
            error.add_note(f"its report could not be written: {other.message}")
            return
        error.report_path = self._path
        error.add_note(f"its report is in {self._path}")

    def _write(self, report: Report) -> None:
        with writing(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        report.save(self._path)
        if not self._told:
            self._told = True
            print(view_hint(self._path), file=sys.stderr)


def profile_summary(report: Report, runs: Callable[[], Table], options: Mapping[str, Any]) -> str:
    """Summary of a report, with the parts that the options request.

    Args:
        report: The report.
        runs: Gives the recorded runs.
        options: Among :data:`SUMMARY_OPTIONS`.

    Raises:
        InvalidOptionError: An option that does not exist, or is neither true nor false.
        ProfilingDisabledError: Execution steps are asked for, and runs are not recorded.
    """
    chosen = {name: _flag(name, value) for name, value in options.items()}
    parts = [report.summary()]
    if chosen.get("showVarStorage"):
        parts.append("variables\n" + _text(report.variables, ("bytes", "tiles", "type", "name")))
    if chosen.get("showExecutionSteps"):
        parts.append("runs\n" + _text(runs(), ("program", "wall_seconds", "name")))
        columns = ("executions", "cycles", "compute_cycles", "exchange_cycles", "kind", "name")
        parts.append("execution steps\n" + _text(report.steps, columns))
    return "\n\n".join(parts)


def _flag(name: str, value: object) -> bool:
    if name not in SUMMARY_OPTIONS:
        close = nearest(name, SUMMARY_OPTIONS)
        raise InvalidOptionError(
            f"a profile summary has no option {name!r}",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(SUMMARY_OPTIONS),
        )
    word = str(value).lower()
    if word not in ("true", "false"):
        raise InvalidOptionError(f"option {name!r} does not take {value!r}", remedy="it takes true or false")
    return word == "true"


def _text(table: Table, columns: Sequence[str]) -> str:
    """Some columns of a table, aligned; the last one, a name, to the left."""
    rows = [[_cell(row[c]) for c in columns] for row in table.rows()]
    cells = [[c.removesuffix("_cycles").replace("_", " ") for c in columns], *rows]
    width = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ([c.rjust(w) for c, w in zip(row[:-1], width, strict=False)] + row[-1:] for row in cells)
    return "\n".join("  " + "  ".join(line) for line in lines)


def _cell(value: object) -> str:
    return f"{value:.6f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
