"""Profile of the host: times of measured runs, leaf by leaf, and their share of the machine's rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.report.table import Table
from abele.report.text import percent_text, seconds_text, source_text
from abele.terminal import shown_text
from abele.words import counted, shortened, visible

NUM_LEAVES = 25
"""Leaves that the text shows."""
NUM_FUNCTIONS = 8
"""Functions of one leaf that the text shows."""
COLUMNS = ("share", "time", "each", "best", "times", "GFLOP/s", "GB/s", "machine", "balance", "kind", "source", "leaf")
"""Columns of the text."""
NUM_WORDS = 3
"""Number of last columns that are words."""
_SHOWN_SHARE = 0.005
"""Share of all time above which the text shows a function."""
_NAME_LETTERS = 70
LOW_BALANCE = 0.8
"""Balance below which a leaf is a finding: on two threads, one of them did nothing for two fifths of the time."""
NOTABLE_SHARE = 0.02
"""Share of all time from which on it is."""


@dataclass(frozen=True)
class IdleThreads:
    """A leaf on which threads were idle, and why.

    Attributes:
        leaf: Row in the table of leaves.
        name: Steps that it carries out, shortened.
        share: Its share of all time.
        balance: Mean time that a thread worked on it / the longest.
        lost_seconds: Time that an even share of its work would save.
        reason: Why, in words.
    """

    leaf: int
    name: str
    share: float
    balance: float
    lost_seconds: float
    reason: str

    def __str__(self) -> str:
        return (
            f"threads idle: balance {percent_text(self.balance)} on {percent_text(self.share)} of the time, "
            f"{seconds_text(self.lost_seconds)} lost: {self.name}: {self.reason}"
        )


@dataclass(frozen=True, eq=False)
class HostProfile:
    """Times and rates of measured runs on the host.

    A *leaf* is a native function that all threads run between two barriers, a copy, or a call back to Python. Its time
    is that of the run from the barrier before it to the one after it, as thread 0 saw it, so that the times of all
    leaves add up to the time of the runs but for the control between leaves. Leaves of host kernels may call several
    functions, block after block of samples or side by side.

    Attributes:
        leaves: One row per leaf; columns as ``abele.report.HOST_LEAVES``.
        functions: One row per function of leaves that call several; columns as ``abele.report.HOST_FUNCTIONS``.
        facts: ``clock`` (``wall`` or ``processor``), ``threads``, ``runs`` (their number), ``run_seconds`` (their sum),
            ``host`` (the CPU), ``rates`` (fields of ``abele.host_facts.MachineRates``), ``products`` (true if shapes
            of products are in the tables), ``against`` (by shape: ``library``, ``seconds`` of one thread, and
            ``all_seconds`` of as many as ran).
    """

    leaves: Table
    functions: Table
    facts: Mapping[str, Any]

    @property
    def threads(self) -> int:
        """Host threads."""
        return max(int(self.facts.get("threads", 1)), 1)

    @property
    def seconds(self) -> float:
        """Time of all leaves."""
        return float(self.leaves["seconds"].sum())

    @property
    def run_seconds(self) -> float:
        """Time of the measured runs."""
        return float(self.facts.get("run_seconds", 0.0))

    @cached_property
    def bytes(self) -> Int64:
        """Distinct bytes that one execution of each leaf reads and writes, int64[leaves]."""
        return np.asarray(self.leaves["read_bytes"] + self.leaves["written_bytes"])

    @cached_property
    def flops_per_second(self) -> Float64:
        """Arithmetic rate of each leaf over all its executions, float64[leaves]."""
        return _ratio(self.leaves["flops"] * self.leaves["executions"], self.leaves["seconds"])

    @cached_property
    def bytes_per_second(self) -> Float64:
        """Rate at which each leaf reads and writes distinct bytes, float64[leaves]."""
        return _ratio(self.bytes * self.leaves["executions"], self.leaves["seconds"])

    @property
    def machine_flops_per_second(self) -> float:
        """Rate of these threads in f32 arithmetic; 0 when it was not measured."""
        return self._rate("flops_per_second")

    @property
    def machine_bytes_per_second(self) -> float:
        """Rate of these threads in memory traffic; 0 when it was not measured."""
        return self._rate("bytes_per_second")

    @cached_property
    def machine_share(self) -> Float64:
        """Share of the machine's rate that each leaf reaches, in arithmetic or memory, whichever is more,
        float64[leaves].

        Arithmetic counts by instructions on elements, of which the machine does one where its rate counts two
        operations. Values in a cache move faster than memory's rate.
        """
        slots = _ratio(self.leaves["slots"] * self.leaves["executions"], self.leaves["seconds"])
        return self._machine_share(np.maximum(self.flops_per_second, 2 * slots), self.bytes_per_second)

    @cached_property
    def idle_threads(self) -> tuple[IdleThreads, ...]:
        """Leaves that take two hundredths of the time or more with a balance below 80 %, the largest loss first."""
        if self.threads == 1:
            return ()
        total, found = max(self.seconds, 1e-12), []
        for number, row in enumerate(self.leaves.rows()):
            share, balance = row["seconds"] / total, row["balance"]
            if share >= NOTABLE_SHARE and balance < LOW_BALANCE:
                functions = list(self.functions.where("leaf", number).rows())
                reason = _idle_reason(row, functions, self.threads)
                lost = row["seconds"] * (1 - balance)
                found.append(IdleThreads(number, visible(_short(row["name"])), share, balance, lost, reason))
        return tuple(sorted(found, key=lambda f: -f.lost_seconds))

    def text(self, most: int = NUM_LEAVES) -> str:
        """Leaves with most time, and their calls, as a table; then those on which threads were idle, and why.

        Args:
            most: Most leaves.
        """
        table = _aligned([list(COLUMNS), *self.cells(most)])
        return shown_text("\n".join([*self.head(), *table, *map(str, self.idle_threads)]))

    def head(self) -> list[str]:
        """Clock, runs, threads and host of the measurement, in two lines."""
        clock = "" if self.facts.get("clock", "wall") == "wall" else f", {self.facts['clock']} time"
        lines = [
            f"{counted(int(self.facts.get('runs', 0)), 'run')} on {counted(self.threads, 'thread')}{clock}: "
            f"{seconds_text(self.run_seconds)}, of which leaves {seconds_text(self.seconds)}"
        ]
        if self.machine_flops_per_second:
            flops, moved = self.machine_flops_per_second / 1e9, self.machine_bytes_per_second / 1e9
            host, threads = visible(str(self.facts.get("host", ""))), counted(self.threads, "thread")
            lines.append(f"{host}; {threads} can do {flops:.0f} GFLOP/s (f32) and {moved:.0f} GB/s")
        against = self.facts.get("against")
        if against is not None and not self.product_seconds():
            lines.append("no product or convolution to compare with a library")
        elif against is not None:
            libraries = " and ".join(dict.fromkeys(str(found["library"]) for found in against.values()))
            lines.append(f"{counted(len(against), 'product')} beside {libraries or 'no library'}")
            if left := len(self.product_seconds()) - len(against):
                lines[-1] += f"; {left:,} without: time was over, or no library takes them"
        return lines

    def product_seconds(self) -> dict[str, float]:
        """Time of every shape of product or convolution, those with most first."""
        found: dict[str, float] = {}
        for table, column in ((self.leaves, "seconds"), (self.functions, "seconds")):
            for shape, seconds in zip(table["product"].tolist(), table[column].tolist(), strict=True):
                if shape:
                    found[shape] = found.get(shape, 0.0) + seconds
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def cells(self, most: int = NUM_LEAVES) -> Iterator[list[str]]:
        """Rows of the table that :meth:`text` shows, without its head: leaves, and below each its calls."""
        columns = {name: self.leaves[name] for name in self.leaves.names}
        total = max(self.seconds, 1e-12)
        for n in np.argsort(-columns["seconds"], kind="stable")[:most].tolist():
            seconds, times = float(columns["seconds"][n]), int(columns["executions"][n])
            yield [
                percent_text(seconds / total),
                seconds_text(seconds),
                seconds_text(seconds / max(times, 1)),
                seconds_text(float(columns["best_seconds"][n])),
                f"{times:,}",
                *self._rates(columns, n, times, seconds),
                percent_text(float(columns["balance"][n])),
                _kind(str(columns["kind"][n]), int(columns["lanes"][n])),
                source_text(str(columns["file"][n]), int(columns["line"][n])),
                visible(_short(str(columns["name"][n]))),
            ]
            yield from self._library_cells(str(columns["product"][n]), seconds / max(times, 1), self.threads)
            yield from self._function_cells(n, seconds, times, total)

    def to_json(self) -> dict[str, Any]:
        """The profile as plain data: ``facts``, the rows of ``leaves`` and ``functions``, and ``idle_threads``."""
        return {
            "facts": dict(self.facts),
            "leaves": list(self.leaves.rows()),
            "functions": list(self.functions.rows()),
            "idle_threads": [asdict(found) for found in self.idle_threads],
        }

    # --- inside ------------------------------------------------------------------------------------------------------

    def _function_cells(self, leaf: int, seconds: float, times: int, total: float) -> Iterator[list[str]]:
        """The functions of a leaf that take most; each has its part of the leaf's time."""
        table = self.functions.where("leaf", leaf)
        busy = table["busy_seconds"]
        shares = busy / max(float(busy.sum()), 1e-12) * seconds / total
        columns = {name: table[name] for name in table.names}
        shown = [n for n in np.argsort(-busy, kind="stable")[:NUM_FUNCTIONS].tolist() if shares[n] >= _SHOWN_SHARE]
        for n in shown:
            took = float(columns["seconds"][n])
            yield [
                percent_text(float(shares[n])),
                seconds_text(took),
                seconds_text(took / max(times, 1)),
                "",
                f"{int(columns['calls'][n]):,}",
                *self._rates(columns, n, times, took),
                percent_text(float(busy[n]) / self.threads / max(took, 1e-12)),
                _kind("", int(columns["lanes"][n])),
                source_text(str(columns["file"][n]), int(columns["line"][n])),
                "· " + visible(_short(str(columns["name"][n]))),
            ]
            # Functions may run beside others: the time of all threads is held against one thread of the library's.
            yield from self._library_cells(str(columns["product"][n]), float(busy[n]) / max(times, 1), 1)
        if shown and len(shown) < len(table):
            blank = [""] * (len(COLUMNS) - 1)
            yield [*blank, f"· … and {counted(len(table) - len(shown), 'function')} more"]

    def _library_cells(self, product: str, each: float, threads: int) -> Iterator[list[str]]:
        """Row for what a library takes for a product that takes us ``each`` seconds on some threads."""
        found = self.facts.get("against", {}).get(product)
        taken = float(found["seconds" if threads == 1 else "all_seconds"]) if found else 0.0
        if not taken or not each:
            return
        ratio = f"{each / taken:.1f} times this" if each > taken else f"this is {taken / each:.1f} times that"
        on = " a thread" if threads < self.threads else ""
        words = f"· {product}: {found['flops'] / taken / 1e9:.0f} GFLOP/s{on} by {found['library']}, {ratio}"
        yield [*[""] * (len(COLUMNS) - 1), visible(words)]

    def _rates(self, columns: Mapping[str, npt.NDArray[Any]], row: int, times: int, seconds: float) -> list[str]:
        """Cells of arithmetic, bytes and the share of the machine's rate."""
        amounts = (float(columns[name][row]) for name in ("flops", "slots", "read_bytes", "written_bytes"))
        flops, slots, *moved = (amount * times / seconds if seconds else 0.0 for amount in amounts)
        share = float(self._machine_share(np.array([max(flops, 2 * slots)]), np.array([sum(moved)]))[0])
        return [
            f"{flops / 1e9:.2f}" if flops else "",
            f"{sum(moved) / 1e9:.2f}" if sum(moved) else "",
            percent_text(share) if share else "",
        ]

    def _machine_share(self, flops: Float64, moved: Float64) -> Float64:
        most_flops, most_bytes = self.machine_flops_per_second, self.machine_bytes_per_second
        shares = [r / most if most else np.zeros(len(r)) for r, most in ((flops, most_flops), (moved, most_bytes))]
        return np.maximum(*shares)

    def _rate(self, name: str) -> float:
        """Rate of the machine for this number of threads: between that of one and of all, in a straight line."""
        rates = self.facts.get("rates", {})
        one, every, most = (float(rates.get(key, 0.0)) for key in (name, f"all_{name}", "threads"))
        return one if most <= 1 else one + (every - one) * (min(self.threads, most) - 1) / (most - 1)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"HostProfile({counted(len(self.leaves), 'leaf')}, {seconds_text(self.seconds)})"


def _ratio(amounts: npt.NDArray[Any], seconds: npt.NDArray[Any]) -> Float64:
    """Amounts per second; 0 where no time went by."""
    return np.asarray(np.divide(amounts, seconds, out=np.zeros(len(seconds)), where=seconds > 0), np.float64)


def _idle_reason(leaf: Mapping[str, Any], functions: Sequence[Mapping[str, Any]], threads: int) -> str:
    """Why threads were idle on a leaf, from its units, its kind and its functions."""
    units = int(leaf["units"])
    if leaf["kind"] == "callback":
        return "Python runs it on one thread"
    if units <= 1:
        return "one unit: nothing in it is shared among threads"
    # Each thread has a run of units, of which one may have a unit more.
    most = -(-units // threads)
    if units < LOW_BALANCE * threads * most:
        return f"{counted(units, 'unit')} for {counted(threads, 'thread')}: one of them has {most}"
    busiest = max(functions, key=lambda f: f["busy_seconds"], default=None)
    if busiest is not None and busiest["seconds"] > LOW_BALANCE * busiest["busy_seconds"]:
        return f"its functions run side by side, and one thread ran most of {visible(_short(str(busiest['name'])))}"
    return f"{counted(units, 'unit')} of unequal time, or threads that something else kept from running"


def _kind(kind: str, lanes: int) -> str:
    """The kind of a leaf, and that its code is scalar."""
    return f"{kind} (scalar)".strip() if lanes == 1 else kind


def _short(name: str) -> str:
    """The first of the names of a leaf, and how many more there are."""
    first, *others = name.split(", ")
    more = f" … and {len(others):,} more" if others else ""
    return shortened(first, _NAME_LETTERS) + more


def _aligned(rows: list[list[str]]) -> list[str]:
    """Rows of cells as lines: words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = len(widths) - NUM_WORDS
    lines = []
    for row in rows:
        cells = [c.rjust(w) if n < left else c.ljust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
