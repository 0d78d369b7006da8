"""Budgets of the runs, on made-up durations: what is said, what fails, and what a slow machine changes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import budget
from budget import BUDGETS, GRACE, UNIT_SECONDS, Ledger, Meter, room, table, verdict

TESTS = {"tests/cli/test_a.py::test_x[1]": 30.0, "tests/cli/test_b.py::test_y": 4.0, "tests/test_names.py::test_z": 1.0}


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in place of ``build/times``."""
    monkeypatch.setattr(budget, "TIMES", tmp_path)
    return tmp_path


def finished(seconds: float, exitstatus: int = 0, *, named: bool = False) -> int:
    """Exit status of a run of smoke tests that took some seconds and had a status before."""
    ledger = Ledger("smoke")
    ledger.pytest_runtest_logreport(SimpleNamespace(nodeid="tests/test_smoke.py::test_x", processor_seconds=seconds))
    plugins, sources = SimpleNamespace(get_plugin=lambda name: None), pytest.Config.ArgsSource
    config = SimpleNamespace(
        pluginmanager=plugins,
        ArgsSource=sources,
        args_source=sources.ARGS if named else sources.TESTPATHS,
        option=SimpleNamespace(keyword=""),
    )
    session = SimpleNamespace(exitstatus=exitstatus, config=config)
    ledger.pytest_sessionfinish(session)
    return int(session.exitstatus)


@pytest.mark.parametrize(("share", "status"), [(0.5, 0), (1.19, 0), (1.21, 1)])
def test_run__over_its_budget_by_a_fifth__fails(share: float, status: int) -> None:
    assert finished(share * BUDGETS["smoke"].seconds) == status


def test_run__that_failed_already__keeps_its_status() -> None:
    assert finished(1e6, exitstatus=2) == 2


def test_run__of_named_files__does_not_take_the_place_of_a_whole_one(times: Path) -> None:
    finished(200.0)
    finished(1.0, named=True)
    assert json.loads((times / "smoke.json").read_text())["seconds"] == 200.0


def test_table__made_up_durations__has_rooms_slowest_tests_and_the_sum() -> None:
    lines = table("smoke", TESTS, slowest=2)
    assert [line.split() for line in lines[1:3]] == [["34.0", "cli"], ["1.0", "test_names.py"]]
    assert [line.split()[1] for line in lines[-4:-2]] == list(TESTS)[:2]
    assert lines[-1] == "smoke: 35 s of 240 s (target 240 s)"


def test_room__of_a_front_end__has_two_folders() -> None:
    assert room("tests/frontends/poptorch/fp8/test_casts.py::test_x") == "frontends/poptorch"
    assert room("README.md::README.md") == "README.md"


def test_verdict__over_budget__says_by_how_much() -> None:
    assert verdict("smoke", 360).endswith("OVER BUDGET by 50%, and 20% is allowed")


@pytest.mark.parametrize("slowness", [0.5, 1.0, 3.0])
def test_meter__machine_of_any_speed__gives_seconds_of_a_quiet_core(slowness: float) -> None:
    times = itertools.count(0.0, slowness)
    meter = Meter(clock=lambda: next(times), piece=lambda: UNIT_SECONDS * slowness)
    assert [meter.passed() for _ in range(9)] == [1.0] * 9


def test_meter__machine_that_slows_down__is_timed_anew() -> None:
    times, pieces = iter([0, 6, 6, 18, 18]), iter([UNIT_SECONDS, 2 * UNIT_SECONDS, 2 * UNIT_SECONDS])
    meter = Meter(clock=lambda: next(times), piece=lambda: next(pieces))
    # After more than five seconds the piece is timed, and what has passed counts by it.
    assert [meter.passed() for _ in range(2)] == [3.0, 6.0]


def test_sum_of_runs__over_the_budget_of_all__fails(times: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for share, status in ((0.9, 0), (1.3, 1)):
        seconds = share * BUDGETS["all"].seconds / 2
        for name in ("slow", "test"):
            (times / f"{name}.json").write_text(json.dumps({"seconds": seconds}))
        assert budget.main() == status
    assert "all: " in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "", '{"tests": {}}', "[]", '{"seconds": "many"}', '{"seconds": 1'])
def test_sum_of_runs__one_missing_or_damaged__is_told_and_fails(
    times: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    (times / "slow.json").write_text('{"seconds": 1}')
    (times / "another.json").write_text('{"seconds": 1e9}')
    if text is not None:
        (times / "test.json").write_text(text)
    assert budget.main() == 1
    assert "run: make test" in capsys.readouterr().out
    (times / "test.json").write_text('{"seconds": 1}')
    assert budget.main() == 0


def test_budgets__in_force__are_no_lower_than_their_targets_and_add_up() -> None:
    assert all(b.seconds >= b.target for b in BUDGETS.values())
    assert BUDGETS["all"].seconds >= BUDGETS["test"].seconds + BUDGETS["slow"].seconds
    assert GRACE == 1.2


def test_unit_of_work__takes_some_time() -> None:
    assert 0.0 < budget.unit_of_work() < 10.0


def test_plugins__of_pytest__can_be_in_sets() -> None:
    assert len({Ledger("smoke"), Ledger("smoke"), Meter()}) == 3
