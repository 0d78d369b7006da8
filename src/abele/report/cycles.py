"""Cycles of a run, by kind."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from abele.report.table import Table

PARTS = ("compute", "exchange", "sync", "host")


@dataclass(frozen=True)
class Cycles:
    """Modelled cycles of a run, split by kind of work.

    Attributes:
        total: From the start of the first step to the end of the last.
        compute: The slowest tile of each compute phase.
        exchange: Exchange phases.
        sync: Barriers and launches.
        host: Streams between host and tiles.
        hidden: Cycles of these that pass while another sync group is at work: the sum of the four less the total.
    """

    total: float
    compute: float
    exchange: float
    sync: float
    host: float
    hidden: float = 0

    def per(self, count: float) -> Cycles:
        """The same divided by ``count``."""
        return Cycles(**{name: value / count for name, value in asdict(self).items()})

    def shares(self) -> dict[str, float]:
        """Part of the sum of the four that each takes; zeros when there are no cycles."""
        busy = self.total + self.hidden
        return {name: getattr(self, name) / busy if busy else 0.0 for name in PARTS}


def run_cycles(steps: Table, program: int = 0, groups: Table | None = None) -> Cycles:
    """Cycles of one run of ``program``; without sync groups, its steps run one after the other."""
    mask = steps["program"] == program
    times = steps["executions"][mask]
    sums = {name: int(np.dot(times, steps[f"{name}_cycles"][mask])) for name in PARTS}
    busy = int(np.dot(times, steps["cycles"][mask]))
    ends = np.zeros(0) if groups is None else groups["end_cycle"][groups["program"] == program]
    total = int(ends.max()) if len(ends) else busy
    return Cycles(total=total, **sums, hidden=busy - total)


def sum_by_op(steps: Table, num_ops: int) -> dict[str, np.ndarray]:
    """Cycles of one run by operation: int64[num_ops] for ``cycles`` and each of its four parts, and ``share``.

    Args:
        steps: Steps of one program; rows with op -1 belong to no operation.
        num_ops: Rows of the ops table.
    """
    mask = steps["op"] >= 0
    op, times = steps["op"][mask], steps["executions"][mask]
    names = ("cycles", *(f"{part}_cycles" for part in PARTS))
    sums: dict[str, np.ndarray] = {}
    for name in names:
        sums[name] = np.zeros(num_ops, np.int64)
        np.add.at(sums[name], op, times * steps[name][mask])
    total = int(np.dot(steps["executions"], steps["cycles"]))
    return {**sums, "share": sums["cycles"] / max(total, 1)}
