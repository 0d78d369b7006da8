"""Assertions of libpva's users about their programs, word for word, on ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import abele as ab
from abele import pva
from pva.kit import intervals_overlap


def test_peak__always_live_and_the_most_of_the_others__is_what_lives_then(dense: pva.Report) -> None:
    always = sum(var.size for var in dense.compilation.alwaysLiveVariables)
    others = max(step.notAlwaysLiveMemory.bytes for step in dense.compilation.livenessProgramSteps)
    # The two operands live always; what else does is counted step by step from lifetimes and from data in motion.
    assert always == 4 * (64 * 32 + 32 * 48)
    columns = dense.columns
    size = columns.variables["bytes"].tolist()
    moving = {}
    for row in columns.buffer_tiles.rows():
        moving[row["superstep"]] = moving.get(row["superstep"], 0) + row["bytes"] * row["num_tiles"]
    lives, sent = list(columns.lifetimes.rows()), list(columns.sent_tiles.rows())
    by_step = [
        sum(size[life["variable"]] for life in lives if life["first_step"] <= row <= life["last_step"])
        + moving.get(columns.steps["superstep"][row], 0)
        - sum(r["bytes"] * r["num_tiles"] for r in sent if r["first_step"] <= row <= r["last_step"])
        for row in range(len(columns.steps))
    ]
    assert others == max(by_step)
    assert always + others == always + int(dense.compilation.livenessProgramSteps.bytes.max())


def test_memory__excluding_gaps_over_all_tiles__is_the_sum_of_the_categories(dense: pva.Report) -> None:
    total = sum(tile.memory.total.excludingGaps for tile in dense.compilation.tiles)
    with_gaps = sum(tile.memory.total.includingGaps for tile in dense.compilation.tiles)
    totals = dense.columns.memory.totals()
    assert total == sum(totals.values()) - totals["gaps"]
    assert with_gaps == dense.columns.memory.total_bytes
    assert total == sum(t.memory.alwaysLiveBytes + t.memory.notAlwaysLiveBytes for t in dense.compilation.tiles)
    categories = dense.compilation.tiles[0].memory.category
    assert categories.vertexCode.total == dense.columns.memory.of_tile(0)["vertex_code"]
    by_category = sum(int(dense.compilation.tiles.category(name).sum()) for name in pva.tiles.CATEGORIES)
    assert by_category == total


def test_cycles__steps_added_up__are_those_of_the_run(dense: pva.Report) -> None:
    run = dense.execution.runs[0]
    cycles = sum(step.ipus[0].cycles for step in run.steps)
    assert cycles == pytest.approx(dense.columns.cycles(0).total, rel=0.01)
    assert dense.execution.totalCycles.total == pytest.approx(sum(r.cycles for r in dense.execution.runs), rel=0.01)
    ends = [step.ipus[0].activeCycles.cyclesTo.max for step in run.steps]
    assert ends[-1] == run.cyclesTo


def test_overlap__compute_and_io__is_what_the_report_hides(overlapped: pva.Report) -> None:
    """As overlapped-IO tests measure it: what part of the stream copies goes on while vertices run."""
    compute, streams = [], []
    for step in overlapped.execution.steps:
        active = step.ipus[0].activeCycles
        span = (active.cyclesFrom.max, active.cyclesTo.max)
        if step.program.type == pva.Program.Type.OnTileExecute:
            compute.append(span)
        if step.program.type == pva.Program.Type.StreamCopyMid:
            streams.append(span)
    shared = intervals_overlap(compute, streams)
    assert len(streams) == 10
    assert shared == overlapped.columns.cycles().hidden
    assert shared / sum(end - begin for begin, end in streams) > 0.85


def test_rearrangement__of_a_program_without__is_in_none_of_its_programs(dense: pva.Report) -> None:
    def arranges(program: pva.Program) -> bool:
        return program.kind == "copy" or "PreArrange" in program.name or "OnTileCopy" in program.name

    train, tidy = dense.compilation.controlPrograms
    assert not any(arranges(program) for program in tidy.walk())
    # The product brings its operands into the order that its vertices read.
    assert any(arranges(program) for program in train.walk())


def test_runs__number_and_names__are_those_of_the_engine(dense: pva.Report) -> None:
    assert len(dense.execution.runs) == 3
    assert [run.name for run in dense.execution.runs] == ["train", "tidy", "train"]
    assert [run.program.name for run in dense.execution.runs] == ["train", "tidy", "train"]


def test_cached_executable__loaded_and_not_run__has_no_cycles(tmp_path: Path) -> None:
    graph = ab.Graph("bow-2000:1")
    x = graph.variable(ab.f32, (64,), "x").map_linear()
    path = tmp_path / "program.abele"
    ab.compile_program(graph, ab.Copy(x, graph.variable(ab.f32, (64,), "y").map(1))).save(path)
    report = pva.openReport(ab.compiler.Executable.load(path).report)
    assert report.execution.totalCycles.total == 0
    assert len(report.execution.runs) == 0
    assert len(report.execution.steps) == 0
    assert report.execution.modelled[0].cycles > 0


def test_visitor__of_all_programs__sees_each_step_once(dense: pva.Report) -> None:
    class Visitor(pva.ProgramVisitor):
        def __init__(self) -> None:
            super().__init__()
            self.vertices: list[int] = []
            self.exchanges: list[str] = []

        def visitOnTileExecute(self, program: pva.Program) -> None:
            self.vertices.append(program.computeset.numVertices)

        def visitDoExchange(self, program: pva.Program) -> None:
            self.exchanges.append(program.name)

    visitor = Visitor()
    for program in dense.compilation.programs:
        program.accept(visitor)
    steps = dense.columns.steps
    assert sum(visitor.vertices) == steps["num_vertices"].sum()
    assert visitor.exchanges == steps.where("kind", "exchange")["name"].tolist()
    assert len(visitor.exchanges) >= 2


def test_operations__of_a_training__have_file_and_line() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from abele import poptorch

    class Digits(torch.nn.Module):
        """One convolution and one linear layer on images of 8 x 8."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 4, 3)
            self.fc = torch.nn.Linear(4 * 36, 10)

        def forward(self, x, labels):
            y = self.fc(torch.relu(self.conv(x)).flatten(1))
            return y, torch.nn.functional.cross_entropy(y, labels)

    torch.manual_seed(0)
    net = Digits()
    model = poptorch.trainingModel(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    for _ in range(2):
        model(torch.rand(4, 1, 8, 8), torch.tensor([1, 2, 3, 4]))
    report = pva.openReport(model.report())
    assert [run.cycles > 0 for run in report.execution.runs] == [True, True]
    operations = pva.OperationAnalysis(report).operations
    convolutions = [op for op in operations if op.kind.startswith("poplin.conv")]
    assert convolutions
    for op in convolutions:
        location = op.debugContext.location
        assert location.fileName.endswith("test_users_assertions.py")
        lines = Path(__file__).read_text(encoding="utf-8").splitlines()
        assert "self.conv(x)" in lines[location.lineNumber - 1]
        assert json.loads(op.debugContext.json)["lineNumber"] == location.lineNumber
        assert op.replacedDebugContext is None
        assert sum(p.executions * step_cycles(report, p) for p in op.programs) == op.cycles
    assert operations.column("cycles").sum() == sum(op.cycles for op in operations)


def step_cycles(report: pva.Report, program: pva.Program) -> int:
    """Cycles of one execution of a step."""
    return int(report.columns.steps["cycles"][program.row])


def test_network__memory_of_weights__is_among_the_always_live_variables() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from abele import poptorch

    model = poptorch.inferenceModel(torch.nn.Linear(96, 40))
    model(torch.zeros(8, 96))
    variables = pva.openReport(model.report()).compilation.alwaysLiveVariables
    sizes = [var.size for var in variables]
    assert 96 * 40 * 4 in sizes
    assert sizes == variables.bytes.tolist()
    assert [var.name for var in variables] == variables.names.tolist()
    assert np.array_equal(variables[sizes.index(96 * 40 * 4)].bytesByTile.sum(), 96 * 40 * 4)
