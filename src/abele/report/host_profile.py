"""The profile of the host: what measured runs took, leaf by leaf, and what that is of the machine's rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.report.table import Table
from abele.report.text import percent_text, seconds_text, source_text
from abele.words import counted, shortened, visible

NUM_LEAVES = 25
"""Leaves that the text shows."""
_NAME_LETTERS = 70

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HostProfile:
    """What measured runs took on the host.

    A *leaf* is a native function that all threads run between two barriers, a copy, or a call back to Python. Its time
    is that of the run from the barrier before it to the one after it, as thread 0 saw it, so that the times of all
    leaves add up to the time of the runs but for the control between leaves.

    Attributes:
        leaves: One row per leaf; columns as ``abele.report.HOST_LEAVES``.
        facts: ``clock`` (``wall`` or ``processor``), ``threads``, ``runs`` (how many), ``run_seconds`` (their sum).
    """

    leaves: Table
    facts: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """Time of all leaves."""
        return float(self.leaves["seconds"].sum())

    @property
    def run_seconds(self) -> float:
        """Time of the measured runs."""
        return float(self.facts.get("run_seconds", 0.0))

    @cached_property
    def bytes(self) -> npt.NDArray[np.int64]:
        """Distinct bytes that one execution of each leaf reads and writes, int64[leaves]."""
        return np.asarray(self.leaves["read_bytes"] + self.leaves["written_bytes"])

    @cached_property
    def flops_per_second(self) -> Float64:
        """Arithmetic rate of each leaf over all its executions, float64[leaves]."""
        return _rate(self.leaves["flops"] * self.leaves["executions"], self.leaves["seconds"])

    @cached_property
    def bytes_per_second(self) -> Float64:
        """Rate at which each leaf reads and writes distinct bytes, float64[leaves]."""
        return _rate(self.bytes * self.leaves["executions"], self.leaves["seconds"])

    def text(self, most: int = NUM_LEAVES) -> str:
        """The leaves with most time, as a table.

        Args:
            most: How many.
        """
        return "\n".join([self._head(), *_aligned(self._cells(most))])

    def _head(self) -> str:
        runs, threads = int(self.facts.get("runs", 0)), int(self.facts.get("threads", 1))
        clock = "" if self.facts.get("clock", "wall") == "wall" else f", {self.facts['clock']} time"
        return (
            f"{counted(runs, 'run')} on {counted(threads, 'thread')}{clock}: {seconds_text(self.run_seconds)}, "
            f"of which leaves {seconds_text(self.seconds)}"
        )

    def _cells(self, most: int) -> list[list[str]]:
        rows = [["share", "time", "each", "best", "times", "GFLOP/s", "GB/s", "balance", "kind", "source", "leaf"]]
        total, leaves = max(self.seconds, 1e-12), self.leaves
        order = np.argsort(-leaves["seconds"], kind="stable")[:most]
        flops, moved = self.flops_per_second, self.bytes_per_second
        columns = {name: leaves[name] for name in leaves.names}
        for n in order.tolist():
            seconds, times = float(columns["seconds"][n]), int(columns["executions"][n])
            rows.append(
                [
                    percent_text(seconds / total),
                    seconds_text(seconds),
                    seconds_text(seconds / max(times, 1)),
                    seconds_text(float(columns["best_seconds"][n])),
                    f"{times:,}",
                    f"{flops[n] / 1e9:.2f}" if columns["flops"][n] else "",
                    f"{moved[n] / 1e9:.2f}" if self.bytes[n] else "",
                    percent_text(float(columns["balance"][n])),
                    str(columns["kind"][n]),
                    source_text(str(columns["file"][n]), int(columns["line"][n])),
                    visible(_short(str(columns["name"][n]))),
                ]
            )
        return rows

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"HostProfile({counted(len(self.leaves), 'leaf')}, {seconds_text(self.seconds)})"


def _rate(amounts: npt.NDArray[Any], seconds: npt.NDArray[Any]) -> Float64:
    """Amounts per second; 0 where no time went by."""
    return np.asarray(np.divide(amounts, seconds, out=np.zeros(len(seconds)), where=seconds > 0), np.float64)


def _short(name: str) -> str:
    """The first of the names of a leaf, and how many more there are."""
    first, *others = name.split(", ")
    more = f" … and {len(others):,} more" if others else ""
    return shortened(first, _NAME_LETTERS) + more


def _aligned(rows: list[list[str]]) -> list[str]:
    """Rows of cells as lines: the last three columns to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = len(widths) - 3
    lines = []
    for row in rows:
        cells = [c.rjust(w) if n < left else c.ljust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
