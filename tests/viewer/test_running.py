"""Looking at a program while it runs: its engine writes the report again and again, and the page is offered each."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import abele as ab
from abele.errors import FileFormatError
from abele.poplibs import popops
from abele.viewer.answers import answer
from abele.viewer.open_reports import Shelf
from abele.viewer.params import Params


def run_often(folder: Path, stop: threading.Event, failures: list[BaseException]) -> None:
    """Run a small program until told to stop; its engine writes a report after each run."""
    try:
        graph = ab.Graph("bow-2000:1")
        a, b = (graph.variable(ab.f32, (64,), name=name).map_linear() for name in "ab")
        program = ab.Sequence()
        popops.add(graph, a, b, program, name="sum")
        options = {
            "autoReport.all": "true",
            "autoReport.directory": str(folder),
            "autoReport.executionProfileProgramRunCount": "100000",
        }
        engine = ab.Engine(graph, program, options=options)
        for name in "ab":
            engine[name] = np.ones(64, np.float32)
        while not stop.is_set():
            engine.run()
    except BaseException as error:
        failures.append(error)


@pytest.mark.filterwarnings("error")
def test_folder_of_a_running_engine__each_state__is_offered_and_whole(tmp_path: Path) -> None:
    stop, failures = threading.Event(), list[BaseException]()
    worker = threading.Thread(target=run_often, args=(tmp_path, stop, failures))
    worker.start()
    try:
        shelf = _opened(tmp_path)
        (opened,) = shelf
        runs = []
        limit = time.monotonic() + 20
        while len(runs) < 5 and time.monotonic() < limit:
            if shelf.changed():
                assert shelf.changed() == [opened.key]
                shelf.reload(opened.key)
            now = shelf[opened.key]
            now.check()
            told = answer(now, "table", Params({"of": "runs"})).head["total"]
            if told and (not runs or told > runs[-1]):
                runs.append(told)
            assert answer(now, "facts", Params({})).head["cycles"] == now.cycles
    finally:
        stop.set()
        worker.join(30)
    assert failures == []
    assert len(runs) == 5
    assert sorted(set(runs)) == runs
    assert [path.name for path in tmp_path.iterdir()] == [shelf[opened.key].path.name]  # type: ignore[union-attr]


def _opened(folder: Path) -> Shelf:
    """The folder's shelf, as soon as there is a report."""
    limit = time.monotonic() + 20
    while True:
        try:
            return Shelf([folder])
        except FileFormatError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.02)


def test_engine__that_writes_its_report__says_once_how_to_look_at_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = ab.Graph("bow-2000:1")
    a = graph.variable(ab.f32, (64,), name="a").map_linear()
    program = ab.Sequence()
    popops.add(graph, a, a, program, name="sum")
    folder = tmp_path / "a folder"
    engine = ab.Engine(graph, program, options={"autoReport.all": "true", "autoReport.directory": str(folder)})
    engine["a"] = np.ones(64, np.float32)
    engine.run()
    engine.run()
    (path,) = folder.iterdir()
    assert capsys.readouterr().err == f"report written: abele view '{path}'\n"
