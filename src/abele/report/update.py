"""Timeline of an update: work and waiting of each IPU in a run, and the steps that bound the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Float64, Int64
from abele.errors import InvalidOptionError
from abele.report.block_runs import BlockRun, block_runs, meets_host
from abele.report.text import count_text, percent_text, seconds_text
from abele.report.timeline import timeline_text
from abele.words import counted, shortened, visible

if TYPE_CHECKING:
    from abele.report.report import Report

PARTS = ("compute", "arrange", "exchange", "replicas", "sync", "host", "streaming_memory")
"""Kinds of an IPU's time while it does not wait: vertices, copies on tiles, exchanges between tiles and IPUs, and
between replicas, barriers, streams of the host, and streaming memory.
"""
OUTSIDE = ("host", "streaming_memory")
"""Those that go on beside the chip."""
_TITLES = {"streaming_memory": "memory"}
_MOST_LINKS = 12
_MOST_NAMES = 3
_LEAST_PART = 200
"""Parts of a link that take less than 1 / 200 of the run are not named."""


@dataclass(frozen=True)
class LaneTime:
    """Cycles of one sync group by kind, or of several groups that do the same.

    Attributes:
        names: The groups: ``IPU 2``, or the user's names.
        stages: Blocks of the program that they run, in order of their first start.
        cycles: Cycles of each of ``PARTS`` in a run.
        bubble: Cycles in which the group waits for others, or is done.
        hidden: Part of its exchanges with host and streaming memory that pass while another group computes or
            exchanges; None where it exchanges nothing, or the report does not hold times.
    """

    names: tuple[str, ...]
    stages: tuple[str, ...]
    cycles: dict[str, int]
    bubble: int
    hidden: float | None

    @property
    def bubble_share(self) -> float:
        """Part of the run in which it waits."""
        whole = sum(self.cycles.values()) + self.bubble
        return self.bubble / whole if whole else 0.0

    @property
    def title(self) -> str:
        """Its names as one."""
        if len(self.names) <= 1:
            return "".join(self.names)
        ends = [name.removeprefix("IPU ") for name in self.names]
        numbered = all(name.startswith("IPU ") and end.isdecimal() for name, end in zip(self.names, ends, strict=True))
        if numbered and len(ends) == 2:
            return f"IPU {ends[0]} and {ends[1]}"
        if numbered and int(ends[-1]) - int(ends[0]) == len(ends) - 1:
            return f"IPU {ends[0]} to {ends[-1]}"
        return ", ".join(self.names[:_MOST_NAMES]) + (" …" if len(self.names) > _MOST_NAMES else "")


@dataclass(frozen=True)
class ChainLink:
    """Part of the critical path in one stage or operation, on the sync groups that it keeps busy.

    Attributes:
        name: The block of the program; the operation, outside of blocks.
        where: Its sync groups.
        cycles: Cycles on the path by part, as in ``PARTS``.
        start_cycle: Start of the first of its steps.
    """

    name: str
    where: tuple[str, ...]
    cycles: dict[str, int]
    start_cycle: int

    @property
    def total(self) -> int:
        """Its cycles on the path."""
        return sum(self.cycles.values())

    @property
    def title(self) -> str:
        """Name and place."""
        place = LaneTime(self.where, (), {}, 0, None).title
        return f"{self.name} on {place}" if place else self.name


@dataclass(frozen=True)
class Timeline:
    """A run of a program over its sync groups.

    Attributes:
        report: The report.
        program: Index of the program.
    """

    report: Report
    program: int = 0

    @property
    def total(self) -> int:
        """Cycles of the run."""
        return int(self.report.cycles(self.program).total)

    @property
    def replicas(self) -> int:
        """Replicas that each do the same."""
        return int(self.report.target.get("num_replicas", 1))

    @property
    def bubble_share(self) -> float:
        """Part of the run in which the groups wait, their mean."""
        shares = [lane.bubble_share for lane in self.lanes for _ in lane.names]
        return float(np.mean(shares)) if shares else 0.0

    @cached_property
    def lanes(self) -> tuple[LaneTime, ...]:
        """The sync groups, those that do the same as one.

        Raises:
            InvalidOptionError: The report holds no sync groups of the program.
        """
        alike: dict[Any, list[LaneTime]] = {}
        for lane in map(self._lane, self._groups):
            # Equal stages on different IPUs: as many blocks, and the same cycles for everything.
            key = (len(lane.stages), tuple(lane.cycles.values()), lane.bubble)
            alike.setdefault(key, []).append(lane)
        return tuple(_joined(lanes) for lanes in alike.values())

    @cached_property
    def runs(self) -> dict[str, tuple[BlockRun, ...]]:
        """For each sync group when it runs which block of the program, such as stages of a pipeline by micro-batch.

        As far as the report holds spans: the first executions of steps.

        Raises:
            InvalidOptionError: The report holds no sync groups of the program.
        """
        return {str(self.report.groups["name"][group]): block_runs(self.report, group) for group in self._groups}

    @cached_property
    def critical_path(self) -> tuple[ChainLink, ...]:
        """The chain of steps that bounds the run, by stage or operation and place; the largest first.

        Each step on it starts when the one before it ends, which no other that it waits for does later; cycles add up
        to the run. Empty where the report does not hold it: a file of format version 5 or earlier.
        """
        report, steps = self.report, self.report.steps
        mine = report.critical.where("program", self.program)
        links: dict[tuple[str, tuple[str, ...]], tuple[dict[str, float], int]] = {}
        for step, cycles in zip(mine["step"].tolist(), mine["cycles"].tolist(), strict=True):
            key = (self._name_of(step), tuple(report.groups_of(step)))
            parts, start = links.setdefault(key, ({}, int(steps["start_cycle"][step])))
            whole = max(int(steps["cycles"][step]), 1)
            for part, each in self._parts.items():
                if each[step]:
                    parts[part] = parts.get(part, 0.0) + float(each[step]) * cycles / whole
            links[key] = (parts, min(start, int(steps["start_cycle"][step])))
        found = [ChainLink(*key, _rounded(parts), start) for key, (parts, start) in links.items()]
        return tuple(sorted(found, key=lambda link: -link.total))

    def text(self, width: int = 100) -> str:
        """Cycles of each group by kind, the critical path, and lanes of letters.

        Args:
            width: Characters of a line of lanes.

        Raises:
            InvalidOptionError: The report holds no timeline of the program, or the width leaves no room.
        """
        lanes = timeline_text(self.report, width, program=self.program)
        return "\n\n".join(["\n".join(self._head()), self._lanes_text(), self._path_text(), lanes])

    def to_json(self) -> dict[str, Any]:
        """The figures as plain data."""
        return {
            "cycles": self.total,
            "seconds": self.report.seconds(self.total),
            "replicas": self.replicas,
            "bubble_share": self.bubble_share,
            "runs": {name: [asdict(run) for run in runs] for name, runs in self.runs.items()},
            "lanes": [asdict(lane) | {"bubble_share": lane.bubble_share} for lane in self.lanes],
            "critical_path": [
                asdict(link) | {"share": link.total / self.total if self.total else 0.0} for link in self.critical_path
            ],
        }

    def __str__(self) -> str:
        return self.text()

    def _head(self) -> list[str]:
        report = self.report
        groups, updates = len(self._groups), report.steps_per_run if self.program == 0 else 1
        what = "one run" if updates == 1 else f"one run of {updates:,} steps"
        busy = sum(sum(lane.cycles.values()) * len(lane.names) for lane in self.lanes)
        at_once = busy / self.total if self.total else 0.0
        lines = [f"{what}: {count_text(self.total)} cycles = {seconds_text(report.seconds(self.total))}"]
        if groups > 1:
            lines[0] += f"; of {counted(groups, 'sync group')} {at_once:.1f} work at a time"
            lines[0] += f", bubbles {percent_text(self.bubble_share)}"
        if self.replicas > 1:
            lines.append(f"each of {counted(self.replicas, 'replica')} does the same")
        return lines

    def _lanes_text(self) -> str:
        used = [part for part in PARTS if any(lane.cycles[part] for lane in self.lanes)]
        hides = any(lane.hidden is not None for lane in self.lanes)
        head = ["bubble", *(_TITLES.get(part, part) for part in used), *(["hidden"] if hides else [])]
        rows = []
        for lane in self.lanes:
            whole = max(self.total, 1)
            shares = [lane.bubble / whole, *(lane.cycles[part] / whole for part in used)]
            cells = [percent_text(share) if share else "-" for share in shares]
            if hides:
                cells.append("-" if lane.hidden is None else percent_text(lane.hidden))
            rows.append((cells, f"{lane.title}  {_stages_text(lane)}".rstrip()))
        note = "\nhidden: part of the traffic with host and streaming memory in which another works" if hides else ""
        return _table(head, rows, "where  stages") + note

    def _path_text(self) -> str:
        path = self.critical_path
        if not path:
            return "critical path: not recorded; compile again, files of format version 5 and earlier have none"
        shown, others = path[:_MOST_LINKS], path[_MOST_LINKS:]
        rows = []
        for link in shown:
            parts = sorted(link.cycles.items(), key=lambda item: -item[1])
            large = [(part.replace("_", " "), n / self.total) for part, n in parts if n * _LEAST_PART >= self.total]
            words = ": " + ", ".join(f"{part} {percent_text(share)}" for part, share in large) if large else ""
            figures = [percent_text(link.total / self.total), f"{link.total:,}"]
            rows.append((figures, visible(link.title) + words))
        if others:
            left = sum(link.total for link in others)
            rows.append(([percent_text(left / self.total), f"{left:,}"], counted(len(others), "other")))
        return _table(["share", "cycles"], rows, "critical path: the chain of steps that bounds the run")

    @cached_property
    def _groups(self) -> list[int]:
        found: list[int] = np.flatnonzero(self.report.groups["program"] == self.program).tolist()
        if not found:
            raise InvalidOptionError(
                f"the report holds no timeline of program {self.program}",
                remedy="compile again: files of format version 1 have none, and a program without steps has none",
            )
        return found

    @cached_property
    def _parts(self) -> dict[str, Int64]:
        """Cycles of one execution of each step by part, int64[steps] each."""
        steps = self.report.steps
        kind, partner = steps["kind"], steps["partner"]
        compute, exchange, host = (steps[f"{name}_cycles"] for name in ("compute", "exchange", "host"))
        is_copy, between, is_memory = kind == "copy", partner == "replicas", partner == "streaming memory"
        return {
            "compute": np.where(is_copy, 0, compute),
            "arrange": np.where(is_copy, compute, 0),
            "exchange": np.where(between, 0, exchange),
            "replicas": np.where(between, exchange, 0),
            "sync": np.asarray(steps["sync_cycles"]),
            "host": np.where(is_memory, 0, host),
            "streaming_memory": np.where(is_memory, host, 0),
        }

    def _lane(self, group: int) -> LaneTime:
        report, steps = self.report, self.report.steps
        relation = report.step_groups
        first = relation["first_group"]
        inside = (first <= group) & (group < first + relation["num_groups"])
        rows = relation["step"][inside]
        times = steps["executions"][rows]
        cycles = {part: int(np.dot(times, each[rows])) for part, each in self._parts.items()}
        ran = rows[times > 0]
        order = ran[np.argsort(steps["start_cycle"][ran], kind="stable")]
        own = order[~meets_host(report)[order]]
        stages = tuple(dict.fromkeys(str(block) for block in steps["block"][own] if block))
        idle = int(report.groups["idle_cycles"][group])
        return LaneTime((str(report.groups["name"][group]),), stages, cycles, idle, self._hidden(group))

    def _hidden(self, group: int) -> float | None:
        """Part of a group's traffic with host and streaming memory during which another group works."""
        report, spans = self.report, self.report.spans
        steps = report.steps.select(spans["step"])
        outside = (steps["host_cycles"] > 0) & (spans["program"] == self.program)
        mine = outside & (spans["group"] == group)
        if not mine.any():
            return None
        working = (spans["program"] == self.program) & (spans["group"] != group) & ~outside
        start, length = spans["start_cycle"], spans["cycles"]
        begin, end = _united(start[working], (start + length)[working])
        # Covered cycles before an instant, so that what lies between two is a difference.
        covered = np.concatenate([[0.0], np.cumsum(end - begin)])

        def before(at: Int64) -> Float64:
            n = np.searchsorted(begin, at, side="right")
            inside = np.clip(end[np.maximum(n - 1, 0)] - at, 0, None) if len(end) else np.zeros(len(at))
            return np.asarray(covered[n] - np.where(n > 0, inside, 0.0))

        total = float(length[mine].sum())
        return float((before((start + length)[mine]) - before(start[mine])).sum()) / total if total else None

    def _name_of(self, step: int) -> str:
        """Block of a step; outside of blocks its operation, without the suffix of its parts."""
        block = str(self.report.steps["block"][step])
        if block:
            return block
        op = int(self.report.steps["op"][step])
        return str(self.report.ops["name"][op]) if op >= 0 else str(self.report.steps["name"][step])


def _joined(lanes: list[LaneTime]) -> LaneTime:
    names = tuple(name for lane in lanes for name in lane.names)
    stages = tuple(dict.fromkeys(stage for lane in lanes for stage in lane.stages))
    return LaneTime(names, stages, lanes[0].cycles, lanes[0].bubble, lanes[0].hidden)


def _rounded(parts: dict[str, float]) -> dict[str, int]:
    """Whole cycles whose sum is that of the parts."""
    edges = np.rint(np.cumsum(list(parts.values()))).astype(np.int64)
    return dict(zip(parts, np.diff(edges, prepend=0).tolist(), strict=True))


def _united(begin: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Intervals without overlaps, in order, that cover the same."""
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order]) if len(end) else end
    first = np.flatnonzero(np.append(True, begin[1:] > reach[:-1])) if len(begin) else np.zeros(0, np.int64)
    last = np.append(first[1:], len(begin)) - 1 if len(begin) else first
    return begin[first], reach[last]


def _stages_text(lane: LaneTime) -> str:
    shown = ", ".join(visible(shortened(stage, 30)) for stage in lane.stages[:6])
    return shown + (f" and {len(lane.stages) - 6} more" if len(lane.stages) > 6 else "")


def _table(head: list[str], rows: list[tuple[list[str], str]], last: str) -> str:
    """Columns of figures, right-aligned, and words behind them."""
    lines = [(head, last), *rows]
    widths = [max(len(line[0][n]) for line in lines) for n in range(len(head))]
    return "\n".join(
        "  ".join([*(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)), words])
        for cells, words in lines
    )
