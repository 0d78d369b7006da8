"""Real programs, run, and what libpva's names say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import abele as ab
from abele import pva
from abele.graph import Block
from abele.poplibs import poplin, popops

ROUNDS = 3


@ab.codelet
class Halve(ab.Vertex):
    """Halves elements many times: something to do while a stream goes on."""

    x: ab.InOut[ab.Vector[ab.f32]]

    def compute(self):
        for _ in range(40):
            for i in range(len(self.x)):
                self.x[i] = self.x[i] * 0.5


def dense_engine() -> ab.Engine:
    """A product and an exponential in nested blocks, three rounds of them, and a second program that halves."""
    graph = ab.Graph("bow-2000:1")
    x = graph.variable(ab.f32, (64, 32), "x").map_linear()
    w = graph.variable(ab.f32, (32, 48), "w").map_linear()
    graph.expose(x, "x")
    product, power = ab.Sequence(), ab.Sequence()
    with graph.scope("layer"):
        y = poplin.matmul(graph, x, w, prog=product, name="dense")
        popops.exp_in_place(graph, y, prog=power)
    inner = ab.Sequence(Block(product, "product"), power)
    halves = graph.compute_set("halves")
    halves.vertices(Halve, tile=np.arange(64), x=x)
    main = ab.Repeat(ROUNDS, Block(inner, "round"))
    return ab.Engine(graph, {"train": main, "tidy": ab.Execute(halves)}, threads=1)


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> pva.Report:
    """The report of two runs of ``train`` and one of ``tidy``, from a file."""
    path = tmp_path_factory.mktemp("pva") / "dense.abele-report"
    with dense_engine() as engine:
        engine["x"] = np.full((64, 32), 0.01, np.float32)
        for name in ("train", "tidy", "train"):
            engine.run(name)
        engine.report.save(path)
    return pva.openReport(path)


@pytest.fixture(scope="session")
def overlapped() -> pva.Report:
    """Tiles that take the next rows from the host while others work on those before."""
    graph = ab.Graph("bow-2000:1")
    graph.sync_group([0, 1], "io")
    stream = graph.host_stream_in("rows", ab.f32, (2, 1000))
    inbox = graph.variable(ab.f32, (2, 1000), "inbox").map_rows([0, 1])
    here = graph.variable(ab.f32, (2, 1000), "here").map_rows([2, 3])
    work = graph.compute_set("work")
    work.vertices(Halve, tile=[2, 3], x=here)
    body = ab.Sequence(Block(ab.Copy(stream, inbox), "load"), ab.Copy(inbox, here), Block(ab.Execute(work), "work"))
    with ab.Engine(graph, ab.Repeat(10, body), threads=1) as engine:
        engine.connect("rows", iter(np.ones((10, 2, 1000), np.float32)))
        engine.run()
        return pva.openReport(engine.report)


@pytest.fixture
def dense_file(dense: pva.Report, tmp_path: Path) -> Path:
    """The report of ``dense`` as a file."""
    path = tmp_path / "dense.abele-report"
    dense.columns.save(path)
    return path
