"""Reports of several sync groups: figures, picture and file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from abele.errors import FileFormatError, InvalidOptionError
from abele.report import GROUPS, SPANS, Report, file
from support.earlier_reports import save_as


def test_cycles__groups_that_overlap__end_with_the_last_and_say_what_is_hidden(overlapped: Report) -> None:
    cycles = overlapped.cycles()
    assert (cycles.total, cycles.hidden) == (100, 30)
    assert sum(cycles.shares().values()) == pytest.approx(1.0)
    assert cycles.per(10).hidden == 3.0
    assert overlapped.total_cycles == 100


def test_tile_balance__of_groups__counts_a_tile_where_its_group_computes(overlapped: Report) -> None:
    assert overlapped.tile_balance == pytest.approx(0.5)


def test_timeline_text__two_groups__is_a_lane_of_letters_each(overlapped: Report) -> None:
    assert overlapped.timeline_text(57).splitlines() == [
        "cycles 0 to 100 of 100; one character is 2",
        "IPU 0  SSSSSCCCCCCCCCC.....SSSSSXXXXXAAAAAAAAAAAAAAAAAAAA",
        "io     SSSSSHHHHHHHHHHHHHHHSSSSSXXXXX....................",
        "S sync  X exchange  H host streams  C compute  A arrange  . idle",
    ]


def test_timeline_text__some_cycles__shows_these_alone(overlapped: Report) -> None:
    lines = overlapped.timeline_text(17, first=40, cycles=20).splitlines()
    assert lines[0] == "cycles 40 to 60 of 100; one character is 2"
    assert lines[1:3] == ["IPU 0  SSSSSXXXXX", "io     SSSSSXXXXX"]


def test_timeline_text__what_the_report_does_not_hold__is_marked(overlapped: Report) -> None:
    short = replace(overlapped, spans=overlapped.spans.select(slice(0, 2)))
    lines = short.timeline_text(27, cycles=100).splitlines()
    assert lines[1] == "IPU 0  SSCCCC~~~~~~~~~~~~~~"
    assert lines[2] == "io     SSHHHHHH~~~~........"
    assert lines[3].endswith(". idle  ~ not recorded")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"width": 12}, "a timeline of width 12 leaves 5 characters per lane"),
        ({"program": 3}, "the report holds no timeline of program 3"),
        ({"first": 100}, "no cycles from 100 to 100 to show"),
        ({"first": 5, "cycles": 0}, "no cycles from 5 to 5 to show"),
    ],
)
def test_timeline_text__nothing_to_show__is_refused(overlapped: Report, arguments: dict[str, int], text: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        overlapped.timeline_text(**arguments)
    assert text in str(caught.value)


def test_save_and_load__with_groups__is_the_identity(overlapped: Report, tmp_path: Path) -> None:
    overlapped.save(tmp_path / "a.abele")
    again = Report.load(tmp_path / "a.abele")
    assert again.to_json() == overlapped.to_json()
    assert again.timeline_text() == overlapped.timeline_text()
    json.dumps(again.to_json())


def test_load__file_of_the_first_version__has_no_groups_and_steps_in_a_row(report: Report, tmp_path: Path) -> None:
    old = Report.load(save_as(report, tmp_path / "old.abele", 1))
    assert old.summary() == report.summary()
    assert old.cycles() == report.cycles()
    assert (len(old.groups), len(old.spans)) == (0, 0)
    assert set(old.steps["start_cycle"].tolist()) == {-1}
    assert old.groups.names == tuple(GROUPS.columns)
    with pytest.raises(InvalidOptionError, match="the report holds no timeline of program 0"):
        old.timeline_text()
    assert old.compute_cycles_by_tile.tolist() == report.compute_cycles_by_tile.tolist()
    assert old.memory.bytes.tolist() == report.memory.bytes.tolist()


def test_load__file_of_the_second_version__has_the_relation_of_steps_and_groups(
    overlapped: Report, tmp_path: Path
) -> None:
    old = Report.load(save_as(overlapped, tmp_path / "old.abele", 2))
    assert old.summary() == overlapped.summary()
    assert old.timeline_text() == overlapped.timeline_text()
    assert [old.groups_of(s) for s in range(4)] == [["io"], ["IPU 0"], ["IPU 0", "io"], ["IPU 0"]]
    assert [overlapped.groups_of(s) for s in range(4)] == [old.groups_of(s) for s in range(4)]
    assert set(old.steps["phase"].tolist()) == {-1}
    assert len(old.phase_tiles) == len(old.lifetimes) == 0


@pytest.mark.parametrize("column", ["group", "step"])
def test_load__spans_that_point_nowhere__are_refused(overlapped: Report, tmp_path: Path, column: str) -> None:
    columns = {name: overlapped.spans[name] for name in SPANS.columns}
    bad = replace(overlapped, spans=SPANS.table(**columns | {column: np.full(6, 99)}))
    bad.save(tmp_path / "bad.abele")
    with pytest.raises(FileFormatError, match="the report is damaged") as caught:
        Report.load(tmp_path / "bad.abele")
    assert f"spans/{column}.npy points outside" in str(caught.value)


def test_format_version__of_plain_data__is_that_of_files(overlapped: Report) -> None:
    assert overlapped.to_json()["version"] == file.KIND.version
