"""The facts that must never break, one per test: read them first.

``make smoke`` runs these alone. The machine is a Bow-2000 whose IPUs have 16 tiles, so that nothing here takes long.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele import InOut, Input, Vector, f32, poplar
from abele.errors import OutOfMemoryError
from abele.machine import System, systems
from abele.packing import pack
from abele.poplibs import poplin, popops
from abele.report import Report
from abele.viewer import static_page

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn

from abele import poptorch

X = np.arange(24, dtype=np.float32).reshape(4, 6)
SAMPLES = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(8) % 3

CPP = """
#include <poplar/Vertex.hpp>
class Twice : public poplar::Vertex {
public:
  poplar::InOut<poplar::Vector<float>> x;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      x[i] *= 2;
    return true;
  }
};
"""


@ab.codelet
class Saxpy(ab.Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]
    a: f32

    def compute(self) -> None:
        for i in range(len(self.x)):
            self.y[i] += self.a * self.x[i]


class Classifier(nn.Module):
    """Two layers and a loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        scores = self.second(torch.tanh(self.first(x)))
        return scores if labels is None else (scores, nn.functional.cross_entropy(scores, labels))


def machine(ipus: int = 1) -> System:
    return systems.bow_2000().evolve(ipu={"num_tiles": 16}).with_ipus(ipus)


def options(ipus: int = 1) -> poptorch.Options:
    opts = poptorch.Options()
    opts.Abele.system(machine(ipus))
    return opts


def twelve_times_x() -> tuple[ab.Graph, ab.Program]:
    """Four vertices on four tiles, six times: ``y += 2 x``."""
    graph = ab.Graph(machine())
    x = graph.variable(f32, X.shape, name="x", initial=X).map_rows(range(4))
    y = graph.variable(f32, X.shape, name="y", initial=np.zeros_like(X)).map_rows(range(4))
    step = graph.compute_set("saxpy")
    step.vertices(Saxpy, tile=range(4), x=x, y=y, a=2.0)
    return graph, ab.Repeat(6, ab.Execute(step))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The saved report of a tile program."""
    path = tmp_path_factory.mktemp("smoke") / "saxpy.abele-report"
    graph, program = twelve_times_x()
    with ab.Engine(graph, program) as engine:
        engine.run()
        engine.report.save(path)
    return path


# --- tile programs ----------------------------------------------------------------------------------------------------


def test_tile_program__python_codelet__runs_and_is_profiled() -> None:
    graph, program = twelve_times_x()
    with ab.Engine(graph, program) as engine:
        engine.run()
        np.testing.assert_array_equal(engine["y"], 12 * X)
        assert engine.report.cycles().total > 0
        assert engine.report.memory_at(0) is not None


def test_tile_program__cpp_codelet__runs_unmodified() -> None:
    pytest.importorskip("ziglang", reason="needs a C++ compiler")
    graph = ab.Graph(machine())
    graph.codelets.add(CPP)
    x = graph.variable(f32, X.shape, name="x", initial=X).map_rows(range(4))
    step = graph.compute_set("twice")
    step.vertices("Twice", tile=range(4), x=x)
    with ab.Engine(graph, ab.Execute(step)) as engine:
        engine.run()
        np.testing.assert_array_equal(engine["x"], 2 * X)


def test_libraries__product_and_sum__equal_numpy() -> None:
    graph, prog = ab.Graph(machine()), ab.Sequence()
    x = graph.variable(f32, X.shape, name="x", initial=X).map(0)
    square = poplin.matmul(graph, x, x.T, prog)
    out = popops.add(graph, square, square, prog)
    with ab.Engine(graph, prog, keep=[out]) as engine:
        engine.run()
        np.testing.assert_allclose(engine[out], 2 * X @ X.T, rtol=1e-6)


def test_poplar_names__the_introductions_graph__runs() -> None:
    graph = poplar.Graph(poplar.IPUModel().createDevice())
    a = graph.addConstant(poplar.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    b = graph.addVariable(poplar.FLOAT, [4], "b")
    for tensor in (a, b):
        graph.setTileMapping(tensor, 0)
    graph.createHostRead("b", b)
    engine = poplar.Engine(graph, poplar.program.Copy(a, b))
    engine.load(poplar.IPUModel().createDevice())
    engine.run(0)
    got = np.zeros(4, np.float32)
    engine.readTensor("b", got)
    np.testing.assert_array_equal(got, [1, 2, 3, 4])


def test_memory__more_than_a_tile_has__says_the_tile_and_the_bytes() -> None:
    graph = ab.Graph(machine())
    big = graph.variable(f32, (200_000,), name="big", initial=0.0).map(3)
    with pytest.raises(OutOfMemoryError, match="tile 3 of IPU 0 needs 8") as caught:
        ab.compile_program(graph, ab.PrintTensor(big))
    assert "always-live variables 800,000 B (big 800,000 B)" in str(caught.value)


def test_executable__saved_and_loaded__gives_the_same_numbers(tmp_path: Path) -> None:
    graph, program = twelve_times_x()
    ab.compile_program(graph, {"main": program}).save(tmp_path / "saxpy.abele-exe")
    with ab.Engine(ab.Executable.load(tmp_path / "saxpy.abele-exe")) as engine:
        engine.run("main")
        np.testing.assert_array_equal(engine["y"], 12 * X)


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def test_poptorch__inference__equals_pytorch() -> None:
    model = Classifier()
    expected = model(SAMPLES).detach()
    got = poptorch.inferenceModel(model, options())(SAMPLES)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def trained_on_the_host(model: nn.Module, micro_batches: int) -> nn.Module:
    """A copy of a model after one step of PyTorch's SGD on the mean gradient of some micro-batches."""
    eager = copy.deepcopy(model)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.5)
    for x, labels in zip(SAMPLES.chunk(micro_batches), LABELS.chunk(micro_batches), strict=True):
        (eager(x, labels)[1] / micro_batches).backward()
    optimizer.step()
    return eager


def assert_alike(model: nn.Module, eager: nn.Module) -> None:
    for got, expected in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got.detach(), expected.detach(), rtol=1e-5, atol=1e-6)


def test_poptorch__training__equals_pytorch() -> None:
    model = Classifier()
    eager = trained_on_the_host(model, 1)
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    scores, _ = training(SAMPLES, LABELS)
    torch.testing.assert_close(scores, Classifier()(SAMPLES).detach(), rtol=1e-5, atol=1e-6)
    assert_alike(model, eager)


def test_poptorch__pipeline_over_two_ipus__equals_pytorch() -> None:
    model = Classifier()
    eager = trained_on_the_host(model, 4)
    poptorch.BeginBlock(model.second, "second", ipu_id=1)
    opts = options(2)
    opts.Training.gradientAccumulation(4)
    training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.5))
    training(SAMPLES, LABELS)
    assert_alike(model, eager)


# --- what users look at -----------------------------------------------------------------------------------------------


def test_report__loaded_again__says_the_same(report: Path) -> None:
    loaded = Report.load(report)
    assert "saxpy" in loaded.summary()
    assert loaded.to_json()["target"]["num_ipus"] == 1


def test_viewer__report_as_a_page__needs_nothing_else(report: Path, tmp_path: Path) -> None:
    static_page(Report.load(report), tmp_path / "saxpy.html")
    page = (tmp_path / "saxpy.html").read_text()
    assert "abele-frozen" in page
    assert 'src="http' not in page


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["systems"], "bow-2000"),
        (["report", "REPORT"], "saxpy"),
        (["plan", "matmul", "64", "64", "64", "--system", "bow"], "cycles"),
        (["cache"], "objects"),
    ],
    ids=["systems", "report", "plan", "cache"],
)
def test_command__each_verb__prints_what_it_is_for(
    command: list[str], said: str, report: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from abele.cli import main

    monkeypatch.setattr("sys.argv", ["abele", *(str(report) if word == "REPORT" else word for word in command)])
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    assert said in capsys.readouterr().out


def test_packing__lengths__packs_are_as_few_as_the_bound_says() -> None:
    lengths = np.repeat([100, 28, 64], [30, 30, 20])
    plan = pack(lengths, 128)
    assert plan.num_packs == plan.bound == 40
    assert all(lengths[items].sum() <= 128 for items in plan.assign(lengths))
