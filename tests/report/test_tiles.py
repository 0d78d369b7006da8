"""Questions about tiles, on a report whose figures one can check in the head."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import InvalidOptionError
from abele.report import Memory, Report


def test_program_by_tile__each_program__has_its_own(report: Report) -> None:
    assert report.compute_cycles_by_tile.tolist() == [440] * 8
    assert report.program_by_tile("compute_cycles", 1).tolist() == [7, 7, 0, 0, 0, 0, 0, 0]
    assert report.program_by_tile("compute_cycles", 5).tolist() == [0] * 8


def test_step_by_tile__exchange__says_who_sends_and_receives(report: Report) -> None:
    assert report.step_by_tile("sent_bytes", 1).tolist() == [8] * 4 + [0] * 4
    assert report.step_by_tile("received_bytes", 1).tolist() == [0] * 4 + [8] * 4
    assert report.step_by_tile("compute_cycles", 3).tolist() == [0, 0, 40, 40, 40, 0, 0, 0]
    assert not report.step_by_tile("compute_cycles", 0).any()


@pytest.mark.parametrize("step", [-1, 5])
def test_step_by_tile__no_such_step__is_refused(report: Report, step: int) -> None:
    with pytest.raises(InvalidOptionError, match=f"no step {step}\n  try      the report has rows 0 to 4"):
        report.step_by_tile("compute_cycles", step)


def test_variable_by_tile__by_row_and_by_name__are_the_same(report: Report) -> None:
    assert report.variable_by_tile("x").tolist() == [0] * 4 + [8] * 4
    assert report.variable_by_tile(1).tolist() == report.variable_by_tile("x").tolist()
    with pytest.raises(InvalidOptionError, match="the report knows no variable 'z'"):
        report.variable_by_tile("z")
    with pytest.raises(InvalidOptionError, match="no variable 2\n  try      the report has rows 0 to 1"):
        report.variable_by_tile(2)


def test_memory_at__step_with_live_variable_and_buffer__adds_both_to_what_always_lives(report: Report) -> None:
    always = np.arange(8) * 10 + 104
    assert report.memory_at(1).tolist() == (always + np.array([0] * 4 + [12, 44, 44, 12])).tolist()
    assert report.memory_at(2).tolist() == (always + np.array([0] * 5 + [32, 32, 0])).tolist()
    assert report.memory_at(3).tolist() == (always + np.array([0] * 4 + [12] * 4)).tolist()


def test_memory__tiles_that_are_alike__are_stored_once() -> None:
    memory = Memory.of(94_208, 1000, variables=5, stacks=np.repeat([1, 2], 47_104))
    assert memory.run_bytes.shape == (9, 2)
    assert (memory.num_tiles, memory.total_bytes, memory.fullest_tile) == (94_208, 94_208 * 5 + 47_104 * 3, 47_104)
    assert memory.of_tile(47_103)["stacks"] == 1
    assert memory.by_tile[[0, 47_104]].tolist() == [6, 7]
    assert memory.totals()["variables"] == 5 * 94_208
    with pytest.raises(InvalidOptionError, match="no tile 94208\n  try      tiles are numbered 0 to 94207"):
        memory.of_tile(94_208)
