"""Flames of a lane: the names around its steps (blocks, scopes, operations), each a row of bars.

The name of a step is a path through blocks and scopes. Spans that follow each other under one path are one bar; where
the step comes again that the bar began with, the next one begins, so that the trips of a loop are told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64
from abele.report import Report
from abele.report.block_runs import meets_host
from abele.report.text_column import Text
from abele.viewer.bars import LaneBars
from abele.viewer.lanes import GroupLanes, lanes_of
from abele.viewer.open_reports import Opened

MOST_DEPTH = 10
"""Rows of a flame; deeper names stand in the last one."""


@dataclass(frozen=True, eq=False)
class Paths:
    """The paths of the steps.

    Attributes:
        node: int32[steps, depth], number of what stands in each row, -1 below the step itself.
        names: Name of each node, without what is around it.
    """

    node: Int32
    names: tuple[str, ...]


def paths_of(opened: Opened) -> Paths:
    """The paths of the steps of a report; worked out once."""
    return opened.once("paths of steps", lambda: make_paths(opened.report))


def make_paths(report: Report) -> Paths:
    """The paths of the steps: blocks around them, the scopes of their names, and what a step is to its operation."""
    block, name = (report.steps.columns[column] for column in ("block", "name"))
    assert isinstance(block, Text)
    assert isinstance(name, Text)
    pairs = block.codes.astype(np.int64) * max(len(name.words), 1) + name.codes
    distinct, which = np.unique(pairs, return_inverse=True)
    numbers: dict[tuple[int, str], int] = {}
    found = np.full((len(distinct), MOST_DEPTH), -1, np.int32)
    for row, pair in enumerate(distinct.tolist()):
        around, own = divmod(pair, len(name.words))
        above = -1
        for depth, part in enumerate(_parts(block.words[around], name.words[own])):
            above = numbers.setdefault((above, part), len(numbers))
            found[row, depth] = above
    deepest = int((found >= 0).sum(axis=1).max(initial=1))
    return Paths(found[which][:, :deepest], tuple(part for _, part in numbers))


def _parts(block: str, name: str) -> list[str]:
    parts = [part for part in (*block.split("/"), *name.split("/")) if part] or ["step"]
    operation, found, detail = parts[-1].partition(": ")
    if found and operation and detail:
        parts[-1:] = [operation, detail]
    if len(parts) > MOST_DEPTH:
        parts[MOST_DEPTH - 1 :] = ["/".join(parts[MOST_DEPTH - 1 :])]
    return parts


def flame_of(opened: Opened, program: int, held: GroupLanes, lane: int) -> list[LaneBars]:
    """The rows of a lane's flame, outermost first; each bar is of a row of spans, the first under it.

    Args:
        opened: The report.
        program: Index of the program.
        held: The lanes, of all of it or of a window.
        lane: Number of the lane.
    """
    node = paths_of(opened).node
    if held is not lanes_of(opened, program):
        return make_flame(held, node, lane)
    return opened.once(f"flame {program} {lane}", lambda: make_flame(held, node, lane))


def make_flame(lanes: GroupLanes, node: Int32, lane: int) -> list[LaneBars]:
    """As :func:`flame_of`, from the paths of steps, int32[steps, depth]."""
    spans = slice(int(lanes.first[lane]), int(lanes.first[lane + 1]))
    step, start, stop = lanes.step[spans], lanes.start[spans], lanes.stop[spans]
    if not len(step):
        return []
    breaks = np.zeros(len(step), dtype=bool)
    breaks[0] = True
    found = []
    for depth in range(node.shape[1]):
        own = node[step, depth]
        breaks = breaks | np.append(True, own[1:] != own[:-1])
        breaks = _with_repeats(breaks, step)
        at = np.flatnonzero(breaks & (own >= 0))
        if not len(at):
            break
        last = _lasts(breaks)[at]
        found.append(LaneBars(start[at], stop[last], at + spans.start))
    return found


def _with_repeats(breaks: npt.NDArray[np.bool_], step: Int32) -> npt.NDArray[np.bool_]:
    """Breaks, and one more where the step comes again that a stretch began with."""
    at = np.flatnonzero(breaks)
    begun = step[at][np.cumsum(breaks) - 1]
    return np.asarray(breaks | (step == begun), np.bool_)


def _lasts(breaks: npt.NDArray[np.bool_]) -> Int64:
    """Last place of the stretch of each place, int64[n]."""
    at = np.flatnonzero(breaks)
    ends = np.append(at[1:], len(breaks)) - 1
    return np.asarray(ends[np.cumsum(breaks) - 1], np.int64)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The runs of blocks, such as stages of a pipeline, on one lane.

    Attributes:
        bars: Times of the runs; their rows are rows of the steps table that the runs begin with.
        number: int64[n], how many times the block ran until then, this time included.
    """

    bars: LaneBars
    number: Int64


def blocks_of(opened: Opened, program: int, held: GroupLanes, lane: int) -> Blocks:
    """The runs of blocks on a lane: as ``abele.report.block_runs`` tells them, without a walk over spans.

    Of lanes of a window, runs are not numbered: what came before is not known.
    """
    if held is not lanes_of(opened, program):
        found = make_blocks(opened.report, held, lane)
        return Blocks(found.bars, np.zeros(len(found.bars), np.int64))
    return opened.once(f"blocks {program} {lane}", lambda: make_blocks(opened.report, held, lane))


def make_blocks(report: Report, lanes: GroupLanes, lane: int) -> Blocks:
    """Bars of the blocks; see :func:`blocks_of`."""
    spans = slice(int(lanes.first[lane]), int(lanes.first[lane + 1]))
    step, start, stop = lanes.step[spans], lanes.start[spans], lanes.stop[spans]
    block = report.steps.columns["block"]
    assert isinstance(block, Text)
    nothing = Blocks(LaneBars(*(np.zeros(0, np.int64) for _ in range(3))), np.zeros(0, np.int64))
    if not len(step) or not any(block.words):
        return nothing
    unnamed = [n for n, word in enumerate(block.words) if not word]
    inside = ~np.isin(block.codes, unnamed)
    stretch = np.cumsum(np.append(True, block.codes[1:] != block.codes[:-1]))
    own = stretch[step]
    breaks = _with_repeats(np.append(True, own[1:] != own[:-1]), step)
    at = np.flatnonzero(breaks)
    works = np.logical_or.reduceat(~meets_host(report)[step], at)
    kept = works & inside[step[at]]
    first, last = at[kept], _lasts(breaks)[at[kept]]
    if not len(first):
        return nothing
    return Blocks(LaneBars(start[first], stop[last], step[first].astype(np.int64)), _counted(block.codes[step[first]]))


def _counted(codes: npt.NDArray[np.int32]) -> Int64:
    """Number of times that each code came up until then, this time included."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    begins = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    sizes = np.diff(np.append(begins, len(codes)))
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.repeat(begins, sizes) + 1
    return found
