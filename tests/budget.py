"""Budgets of the test runs, in processor seconds of a quiet core.

``pytest --budget test`` prints the time by room and the thirty slowest tests, and fails when the run costs over 1.2
times its budget. A whole run is kept in ``build/times/test.json``, one of named files or of ``-k`` is not.
``python tests/budget.py`` adds the runs of ``.ci/run`` up.

Each worker reads its processor time, children included, at the end of every phase of a test, and about every five
seconds times a fixed piece of Python. A second in which that piece takes 21 ms instead of 10.5 ms counts half. For
example, 1,200 seconds are ten minutes of two quiet cores, and stay 1,200 on a machine half as fast. The decision is in
``docs/decisions/0043-budgets-are-processor-time.md``.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

GRACE = 1.2
"""A run fails above this multiple of its budget."""

UNIT_SECONDS = 0.0105
"""Processor seconds of :func:`unit_of_work` on a quiet core of the machine whose seconds the budgets are in."""

_RECALIBRATE_SECONDS = 5.0

TIMES = Path(__file__).resolve().parents[1] / "build" / "times"

SUMMED = ("test", "slow")
"""Runs that the budget of all is for."""


@dataclass(frozen=True)
class Budget:
    """Processor seconds that a run may take.

    Attributes:
        seconds: The budget in force; lower it when the tests have become lighter.
        target: The budget to reach.
    """

    seconds: float
    target: float


BUDGETS = {
    "smoke": Budget(240, target=240),  # two minutes of two cores
    "test": Budget(1_400, target=1_000),  # ten minutes of two cores, less what lint and types take beside it
    "slow": Budget(2_000, target=2_000),
    "all": Budget(4_800, target=4_800),  # forty minutes of two cores
}


def unit_of_work() -> float:
    """Processor seconds of a fixed piece of Python: keys, lists, text and sorting, as in a compiler."""
    gc.disable()
    begin = time.thread_time()
    table: dict[tuple[int, str], list[float]] = {}
    for number in range(16_000):
        table[number % 97, str(number)] = [number * 0.5, float(number)]
    sorted(table, key=lambda key: (key[1], key[0]))
    taken = time.thread_time() - begin
    gc.enable()
    return taken


def _processor_seconds() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Meter:
    """Adds to each report the processor seconds of its phase, as seconds of a quiet core; runs where tests run.

    Args:
        clock: Gives processor seconds.
        piece: Gives those of a piece of work, which are ``UNIT_SECONDS`` on a quiet core.
    """

    def __init__(
        self, clock: Callable[[], float] = _processor_seconds, piece: Callable[[], float] = unit_of_work
    ) -> None:
        self._clock, self._piece = clock, piece
        self._unit = piece()
        self._last = clock()
        self._since_unit = 0.0
        self.collection_seconds = 0.0

    def passed(self) -> float:
        """Seconds since the last call."""
        spent = self._clock() - self._last
        self._since_unit += spent
        if self._since_unit > _RECALIBRATE_SECONDS:
            self._unit, self._since_unit = self._piece(), 0.0
        self._last = self._clock()
        return spent * UNIT_SECONDS / self._unit

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Imports and collection count once per worker."""
        self.collection_seconds = self.passed()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["collection_seconds"] = self.collection_seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[Any]:
        """The report of a phase, with its seconds."""
        report = yield
        report.processor_seconds = self.passed()
        return report


@dataclass(eq=False)  # Plugins are kept in sets.
class Ledger:
    """Seconds of all tests of a run; lives where results are printed.

    Attributes:
        name: The budget's name.
        tests: Seconds by test, the collecting of each worker among them.
    """

    name: str
    tests: Counter[str] = field(default_factory=Counter)
    begin: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(self.tests.values())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase."""
        self.tests[report.nodeid] += getattr(report, "processor_seconds", 0.0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add a worker's collecting."""
        self.tests["tests/(collecting)"] += getattr(node, "workeroutput", {}).get("collection_seconds", 0.0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep the times of a whole run; fail a run that passed and is over its budget."""
        meter = session.config.pluginmanager.get_plugin("meter")
        if meter is not None:
            self.tests["tests/(collecting)"] += meter.collection_seconds
        if is_whole(session.config):
            TIMES.mkdir(parents=True, exist_ok=True)
            kept = {"seconds": self.seconds, "wall_seconds": time.monotonic() - self.begin, "tests": self.tests}
            (TIMES / f"{self.name}.json").write_text(json.dumps(kept, indent=0))
        if session.exitstatus == 0 and is_over(self.name, self.seconds):
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table."""
        terminalreporter.section(f"time of {self.name}")
        for line in table(self.name, self.tests):
            terminalreporter.write_line(line)
        wall = time.monotonic() - self.begin
        terminalreporter.write_line(f"wall {wall:,.0f} s, load {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores")


def is_whole(config: pytest.Config) -> bool:
    """True for a run that names no files and no tests."""
    return config.args_source is config.ArgsSource.TESTPATHS and not config.option.keyword


def room(test: str) -> str:
    """The room of a test: its first folder, or its first two among the front ends."""
    parts = test.split("::")[0].split("/")
    folders = parts[1:-1] or parts[-1:]
    return "/".join(folders[: 2 if folders[0] == "frontends" else 1])


def table(name: str, tests: Mapping[str, float], slowest: int = 30) -> list[str]:
    """Lines of a run: seconds by room, the slowest tests, and the sum beside the budget."""
    rooms: Counter[str] = Counter()
    for test, seconds in tests.items():
        rooms[room(test)] += seconds
    lines = ["processor seconds of a quiet core, by room:"]
    lines += [f"{seconds:9.1f}  {of}" for of, seconds in rooms.most_common()]
    lines += ["", f"the {slowest} slowest tests:"]
    lines += [f"{seconds:9.1f}  {test}" for test, seconds in Counter(tests).most_common(slowest)]
    return [*lines, "", verdict(name, sum(tests.values()))]


def is_over(name: str, seconds: float) -> bool:
    """True if a run costs more than its budget and the grace allow."""
    return seconds > GRACE * BUDGETS[name].seconds


def verdict(name: str, seconds: float) -> str:
    """One line: the seconds of a run beside its budget and its target."""
    budget = BUDGETS[name]
    said = f"{name}: {seconds:,.0f} s of {budget.seconds:,.0f} s (target {budget.target:,.0f} s)"
    if is_over(name, seconds):
        return f"{said}: OVER BUDGET by {seconds / budget.seconds - 1:.0%}, and {GRACE - 1:.0%} is allowed"
    return said


def main() -> int:
    """Print what each run took and their sum; returns 1 if that is over the budget of all or not known."""
    total = 0.0
    for name in SUMMED:
        path = TIMES / f"{name}.json"
        try:
            seconds = float(json.loads(path.read_text(encoding="utf-8"))["seconds"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{name}: not measured, or the file is damaged ({error!r}); run: make {name}")
            return 1
        print(verdict(name, seconds))
        total += seconds
    print(verdict("all", total))
    return int(is_over("all", total))


if __name__ == "__main__":
    sys.exit(main())
