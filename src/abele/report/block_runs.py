"""Runs of blocks: which stage of a pipeline, phase or other named block a sync group is in, and which time it runs.

Steps know the blocks around them, and spans when each step ran; what follows each other in one block is one run of it.
Where the step comes again that a run began with, the next run begins. The stages of a pipeline, and phases, run once
for each micro-batch, so that the number of a run is that of the micro-batch, counted from 1 on over all updates. A
group that does no more in a block than wait while others exchange something with the host does not run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from abele.report.report import Report

_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True, slots=True)
class BlockRun:
    """One run of a block on a sync group.

    Attributes:
        block: Names of the blocks around its steps, joined by ``/``.
        number: Number of runs of the block until then, this time included.
        start_cycle: Start of its first step on the group.
        end_cycle: End of its last step on the group.
    """

    block: str
    number: int
    start_cycle: int
    end_cycle: int


def block_runs(report: Report, group: int) -> tuple[BlockRun, ...]:
    """The runs of blocks of a row of the groups table in order, as far as the report holds spans."""
    spans = report.spans.where("group", group).sort("start_cycle")
    blocks, waits = report.steps["block"], meets_host(report)
    known = np.array([bool(b) for b in blocks], dtype=bool) if len(blocks) else np.zeros(0, dtype=bool)
    # Neighbouring steps in one block: a number for each stretch of them.
    stretch = np.cumsum(np.array([n == 0 or blocks[n] != blocks[n - 1] for n in range(len(blocks))], dtype=np.int64))
    found: list[list[int]] = []
    works: list[bool] = []
    of_block: list[str] = []
    last = -1
    for step, start, cycles in zip(*(spans[n].tolist() for n in ("step", "start_cycle", "cycles")), strict=True):
        here = int(stretch[step])
        if known[step]:
            if here != last or step == found[-1][0]:
                found.append([step, start, start + cycles])
                of_block.append(str(blocks[step]))
                works.append(False)
            else:
                found[-1][2] = start + cycles
            works[-1] = works[-1] or not waits[step]
        last = here
    times: dict[str, int] = {}
    runs = []
    for block, (_, start, end), is_own in zip(of_block, found, works, strict=True):
        if not is_own:
            continue  # It is at the barrier of what another group exchanges with the host.
        times[block] = times.get(block, 0) + 1
        runs.append(BlockRun(block, times[block], start, end))
    return tuple(runs)


def meets_host(report: Report) -> npt.NDArray[np.bool_]:
    """For each step whether it only exchanges something with the host, where groups meet that have no part in it."""
    steps = report.steps
    return np.asarray((steps["kind"] == "stream") & (steps["partner"] != "streaming memory"), np.bool_)


def run_labels(runs: Iterable[BlockRun]) -> tuple[str, dict[str, str]]:
    """Short names of blocks: a word for all of them, and a label for each.

    Numbered blocks of one name (``stage0``, ``stage1``) are their numbers.
    """
    names = list(dict.fromkeys(run.block for run in runs))
    matches = [_NUMBERED.fullmatch(name) for name in names]
    words = {match[1] for match in matches if match}
    if names and len(words) == 1 and all(matches):
        return words.pop(), {name: match[2] for name, match in zip(names, matches, strict=True) if match}
    return "block", {name: name for name in names}


def run_line(runs: Iterable[BlockRun], labels: dict[str, str], first: float, end: float, room: int) -> str:
    """Runs as a line of ``room`` characters from one cycle to another: a bar each, and its label if it fits."""
    line = [" "] * room
    scale = room / (end - first)
    for run in runs:
        left, right = round((run.start_cycle - first) * scale), round((run.end_cycle - first) * scale)
        if right <= 0 or left >= room or right <= left:
            continue
        text = f"{labels[run.block]}:{run.number}"
        width = min(right, room) - max(left, 0)
        shown = f"|{text}" if len(text) < width else "|"
        line[max(left, 0) : min(right, room)] = shown.ljust(width, "-")
    return "".join(line).rstrip()
