"""Made-up reports of the viewer's benchmarks and tests are ones that a compiler could have written."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from abele.report import Report
from abele.report.file import load


@pytest.fixture(scope="module", params=["small", "tiny", "empty", "out_of_memory", "pod64"])
def made(request: pytest.FixtureRequest, generators: ModuleType) -> Report:
    report: Report = generators.MADE[request.param]()
    return report


def test_made_report__saved__passes_every_check_of_the_file(made: Report, tmp_path: Path) -> None:
    path = tmp_path / "made.abele-report"
    made.save(path)
    assert len(load(path, whole=True).spans) == len(made.spans)


def test_made_report__cycles__are_those_of_the_slowest_tile_and_add_up(made: Report) -> None:
    steps, work = made.steps, made.phase_tiles
    slowest = np.zeros(len(steps), np.int64)
    np.maximum.at(slowest, work["phase"], work["compute_cycles"])
    np.testing.assert_array_equal(slowest, steps["compute_cycles"])
    parts = sum(steps[f"{part}_cycles"] for part in ("compute", "exchange", "sync", "host"))
    np.testing.assert_array_equal(parts, steps["cycles"])
    for program in np.unique(made.critical["program"]):
        assert made.critical.where("program", program)["cycles"].sum() == made.cycles(int(program)).total


def test_made_report__spans__fill_their_groups_without_overlap(made: Report) -> None:
    spans, groups = made.spans, made.groups
    for group in range(int((groups["program"] == 0).sum())):
        mine = spans.where("group", group)
        ends = mine["start_cycle"] + mine["cycles"]
        assert (mine["start_cycle"][1:] >= ends[:-1]).all()
        assert mine["cycles"].sum() == groups["busy_cycles"][group]
        assert ends[-1] == groups["end_cycle"][group]
    first = np.full(len(made.steps), np.iinfo(np.int64).max)
    np.minimum.at(first, spans["step"], spans["start_cycle"])
    seen = first < np.iinfo(np.int64).max
    np.testing.assert_array_equal(first[seen], made.steps["start_cycle"][seen])


def test_made_report__runs_of_tiles__lie_beside_each_other_and_send_what_they_receive(made: Report) -> None:
    for table, owner in ((made.phase_tiles, "phase"), (made.variable_tiles, "variable")):
        same = table[owner][1:] == table[owner][:-1]
        assert (table["first_tile"][1:] >= (table["first_tile"] + table["num_tiles"])[:-1])[same].all()
    work = made.phase_tiles
    assert (work["sent_bytes"] * work["num_tiles"]).sum() == (work["received_bytes"] * work["num_tiles"]).sum()


def test_pod64__sizes__are_those_that_the_viewer_is_measured_with(pod64: Report) -> None:
    assert pod64.memory.num_tiles == 94_208
    assert pod64.memory.fits
    assert (len(pod64.spans), len(pod64.variables), len(pod64.liveness)) == (1_000_000, 100_000, 50_000)
    assert len(pod64.groups.where("program", 0)) == 64


def test_made_report__liveness__is_that_of_its_variables(made_small: Report) -> None:
    tables = made_small.lifetimes, made_small.variable_tiles
    by_variable = np.bincount(
        tables[1]["variable"], tables[1]["padded_bytes"] * tables[1]["num_tiles"], len(made_small.variables)
    )
    for step in (0, 57, 150):
        live = (tables[0]["first_step"] <= step) & (step <= tables[0]["last_step"])
        assert by_variable[tables[0]["variable"][live]].sum() == made_small.liveness["live_bytes"][step]
        assert made_small.memory_at(step).max() <= made_small.memory.available_bytes


def test_out_of_memory__its_tiles__do_not_fit(generators: ModuleType) -> None:
    assert not generators.out_of_memory().memory.fits


def test_made_report__program_tree__holds_each_step_once_and_parts_within_wholes(pod64: Report) -> None:
    tree = pod64.program_tree
    parent, first, count = tree["parent"], tree["first_step"], tree["num_steps"]
    inner = parent >= 0
    assert (parent[inner] < np.flatnonzero(inner)).all()
    assert (first[inner] >= first[parent[inner]]).all()
    assert ((first + count)[inner] <= (first + count)[parent[inner]]).all()
    leaf = np.ones(len(tree), dtype=bool)
    leaf[parent[inner]] = False
    np.testing.assert_array_equal(first[leaf], np.arange(len(pod64.steps)))
    assert (count[leaf] == 1).all()
    assert (tree["kind"] == "Repeat").sum() == 64


def test_made_report__loops__unfold_to_the_spans(made_small: Report) -> None:
    spans, loops = made_small.run_spans.where("program", 0), made_small.run_loops
    inside = spans["loop"] >= 0
    trips = np.where(inside, loops["trips"][spans["loop"]], 1)
    rows = np.repeat(np.arange(len(spans)), trips)
    trip = np.arange(len(rows)) - np.repeat(np.cumsum(trips) - trips, trips)
    start = spans["start_cycle"][rows] + trip * np.where(inside, loops["period_cycles"][spans["loop"]], 0)[rows]
    order = np.argsort(start, kind="stable")
    np.testing.assert_array_equal(start[order], made_small.spans["start_cycle"])
    np.testing.assert_array_equal(spans["step"][rows][order], made_small.spans["step"])
