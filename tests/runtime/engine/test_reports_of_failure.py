"""Programs that do not fit: their report is there all the same, whole, by the error or by autoReport options."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import abele as ab
from abele import poplar
from abele.errors import OutOfMemoryError
from abele.machine import systems
from abele.report import Report
from abele.runtime.engine.run_log import REPORT_NAME


def too_large() -> tuple[ab.Graph, ab.Program]:
    """A program whose tile 1 needs twice what it has."""
    graph = ab.Graph(systems.get("bow-2000").evolve(ipu={"num_tiles": 4}, num_ipus=1, name="small"))
    kept = graph.variable(ab.f32, (300_000,), name="kept").map(1)
    part = graph.variable(ab.f32, (1000,), name="part").map(2)
    return graph, ab.Sequence(ab.Copy(kept[:1000], part), ab.Copy(part, kept[1000:2000]))


def check(report: Report) -> None:
    """It says what would have to go, and everything else."""
    assert not report.memory.fits
    assert report.memory.fullest_tile == 1
    largest = report.variables.sort("bytes", descending=True)
    assert (largest["name"][0], largest["role"][0], largest["line"][0] > 0) == ("kept", "kept", True)
    assert report.variable_by_tile("kept").tolist() == [0, 1_200_000, 0, 0]
    assert len(report.steps)
    assert len(report.program_tree) == 4
    assert len(report.superstep_variables) == 4
    assert report.total_cycles > 0


def test_error__of_a_program_that_does_not_fit__has_its_report(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        ab.compile_program(*too_large())
    check(caught.value.report)
    assert caught.value.report_path is None
    caught.value.report.save(tmp_path / "r")
    check(Report.load(tmp_path / "r"))


def test_error__pickled__leaves_the_report_behind_and_keeps_the_rest() -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        ab.compile_program(*too_large())
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.tiles, again.report) == (str(caught.value), caught.value.tiles, None)


@pytest.mark.parametrize("option", ["autoReport.all", "autoReport.outputGraphProfile"])
def test_auto_report__program_that_does_not_fit__writes_it_and_says_where(tmp_path: Path, option: str) -> None:
    options = {option: True, "autoReport.directory": str(tmp_path / "deep")}
    with pytest.raises(OutOfMemoryError) as caught:
        ab.Engine(*too_large(), options=options)
    path = tmp_path / "deep" / REPORT_NAME
    assert caught.value.report_path == path
    assert caught.value.__notes__ == [f"its report is in {path}"]
    check(Report.load(path))


def test_auto_report__off__writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemoryError):
        ab.Engine(*too_large(), options={"autoReport.directory": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def test_auto_report__folder_that_cannot_be__leaves_the_error_that_matters(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutOfMemoryError) as caught:
        ab.Engine(*too_large(), options={"autoReport.all": True, "autoReport.directory": str(tmp_path / "file")})
    assert caught.value.report_path is None
    assert caught.value.__notes__[0].startswith("its report could not be written: ")


def test_auto_report__out_of_memory_allowed__writes_and_runs(tmp_path: Path) -> None:
    options = {"autoReport.all": True, "autoReport.directory": str(tmp_path), "debug.allowOutOfMemory": "true"}
    with ab.Engine(*too_large(), options=options) as engine:
        check(Report.load(tmp_path / REPORT_NAME))
        engine.run()
    report = Report.load(tmp_path / REPORT_NAME)
    check(report)
    assert len(report.runs) == 1


def test_compile_graph__program_that_does_not_fit__writes_its_report(tmp_path: Path) -> None:
    graph, program = too_large()
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    with pytest.raises(poplar.graph_memory_allocation_error):
        poplar.compileGraph(graph, [program], options)
    check(Report.load(tmp_path / REPORT_NAME))
