"""Parameters of questions about the timeline: lanes and window; names and sums for their answers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.report import Report
from abele.report.programs import check_program, num_programs
from abele.report.text_column import Text
from abele.viewer.answers.registry import Frozen
from abele.viewer.bars import window
from abele.viewer.lanes import FIRST, GroupLanes, lanes_in, lanes_of, looped_covered
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.words import shortened

MOST_LEVEL = 40
"""The deepest level of map tiles: 2^40 of them."""
_NAME_LETTERS = 240
_FROZEN_LEVELS = 5
_FROZEN_PROGRAMS = 4


def lanes_asked(opened: Opened, params: Params) -> tuple[int, GroupLanes]:
    """The program that is asked about, and its lanes as far as they are at hand.

    Raises:
        InvalidOptionError: The report has no such program.
    """
    program = params.number("program")
    check_program(opened.report, program)
    return program, lanes_of(opened, program)


def window_asked(opened: Opened, params: Params) -> tuple[int, GroupLanes, int, int]:
    """The program of a map tile, its lanes as far as that needs them, level, index."""
    program, whole = lanes_asked(opened, params)
    level, index = _place(params)
    low, high = window(index, level, 0.0, float(whole.total))
    return program, lanes_in(opened, program, low, high), level, index


def _place(params: Params) -> tuple[int, int]:
    """Level and index of a map tile."""
    level = params.number("level", high=MOST_LEVEL)
    return level, params.number("index", high=(1 << level) - 1)


def is_beyond_held(opened: Opened, held: GroupLanes, high: float) -> bool:
    """True if the report knows more executions before a cycle than are at hand."""
    return high > held.held and held.made_of == FIRST and bool(len(opened.report.run_spans))


def covered_in(opened: Opened, held: GroupLanes, program: int, lane: int, edges: npt.NDArray[np.float64]) -> Array:
    """Cycles of each part and of the unknown rest, float64[cells, parts + 1]."""
    if is_beyond_held(opened, held, float(edges[-1])) and held.group[lane] >= 0:
        covered = looped_covered(opened, held, program, lane, edges)
        return np.concatenate([covered, np.zeros((len(covered), 1))], axis=1)
    return np.concatenate([held.covered(lane, edges), held.unknown(lane, edges)[:, None]], axis=1)


def step_names(report: Report, step: Array) -> dict[str, str]:
    """Names of some steps by their rows, written as text."""
    different = np.unique(step)
    return dict(zip(map(str, different.tolist()), map(short_name, words_of(report, "name", different)), strict=True))


def words_of(report: Report, column: str, rows: Array) -> list[str]:
    """Texts of a column of the steps table in some rows."""
    held = report.steps.columns[column]
    assert isinstance(held, Text)
    return [held.words[code] for code in held.codes[rows].tolist()]


def short_name(text: str) -> str:
    """A name at the length at which it is sent."""
    return shortened(text, _NAME_LETTERS)


def frozen_programs(opened: Opened) -> Frozen:
    """The first programs of a report."""
    for program in range(min(num_programs(opened.report), _FROZEN_PROGRAMS)):
        yield {"program": str(program)}


def frozen_tiles(opened: Opened) -> Frozen:
    """The coarse map tiles of the first program."""
    for level in range(_FROZEN_LEVELS):
        for index in range(1 << level):
            yield {"program": "0", "level": str(level), "index": str(index)}
