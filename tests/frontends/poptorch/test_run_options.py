"""Options that change how a compiled model runs, and what is told of its runs."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from test_executor import LABELS, X, classifier, options
from torch import nn

from abele import poptorch
from abele.report import Report
from abele.runtime.engine.run_log import REPORT_NAME
from abele.viewer.open_reports import Shelf

HALF = torch.full((64, 64), 1.0, dtype=torch.float16)


def stochastic(threads: int = 0) -> poptorch.Options:
    opts = options()
    opts.Precision.enableStochasticRounding(True)
    opts.Abele.threads(threads)
    return opts


def test_stochastic_rounding__of_sums_between_two_halves__gives_both_by_how_near_they_are() -> None:
    # Halves near 1 are 2⁻¹⁰ apart: a quarter of that rounds up once in four times.
    def add(x: torch.Tensor) -> torch.Tensor:
        return x + 2**-12

    got = poptorch.inferenceModel(add, stochastic())(HALF).float()
    up = (got > 1).float().mean()
    assert set(got.unique().tolist()) == {1.0, 1 + 2**-10}
    # Three standard deviations of 4,096 draws.
    assert abs(up - 0.25) < 3 * np.sqrt(0.25 * 0.75 / 4096)
    assert torch.equal(poptorch.inferenceModel(add, options())(HALF).float(), torch.ones(64, 64))


def test_stochastic_rounding__same_seed__gives_the_same_bits_for_any_number_of_threads() -> None:
    got = [poptorch.inferenceModel(lambda x: x + 2**-12, stochastic(n))(HALF) for n in (1, 2)]
    assert torch.equal(*got)


def test_synthetic_data__runs_without_the_hosts() -> None:
    model = poptorch.trainingModel(classifier(), options(2, 3).enableSyntheticData(True))
    before = model.model.first.weight.detach().clone()
    scores, loss = model(X * torch.nan, LABELS + 100)
    assert scores.shape == (4, 4)
    assert loss == 0
    assert model.model.first.weight.isfinite().all()
    assert not torch.equal(model.model.first.weight, before)
    plain = poptorch.trainingModel(classifier(), options(2, 3))
    plain.compile(X, LABELS)
    assert model.report().total_cycles < plain.report().total_cycles


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("shift", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift


def test_named_buffers__that_may_be_updated__are_copied_alone() -> None:
    model = Scaled()
    inference = poptorch.inferenceModel(model, options().updatableNamedBuffers(["scale"]))
    assert torch.equal(inference(X), X)
    model.scale.fill_(3)
    model.shift.fill_(5)
    assert torch.equal(inference(X), X)
    inference.copyNamedBuffersToDevice()
    assert torch.equal(inference(X), X * 3)
    with pytest.raises(poptorch.Error, match="No named buffers marked as updatable via updatableNamedBuffers option"):
        poptorch.inferenceModel(model, options()).copyNamedBuffersToDevice()
    other = poptorch.inferenceModel(model, options().updatableNamedBuffers(["other"]))
    other.compile(X)
    with pytest.raises(poptorch.Error, match="'other' is no buffer of the model"):
        other.copyNamedBuffersToDevice()


def test_counters__of_the_last_call__have_a_time_for_each_tensor_and_iteration() -> None:
    model = poptorch.inferenceModel(lambda x, y: (x + y, x, y), options(3))
    assert model.getPerfCounters() == {name: [[]] for name in ("input", "input_complete", "output", "output_complete")}
    assert model.getLatency() == (0.0, 0.0, 0.0)
    model(X, X)
    counters = model.getPerfCounters()
    assert {name: (len(table), len(table[0])) for name, table in counters.items()} == {
        "input": (2, 3),
        "input_complete": (2, 3),
        "output": (3, 3),
        "output_complete": (3, 3),
    }
    first = [table[0][0] for table in counters.values()]
    assert first == sorted(first)
    parts = [model.getHostIpuLatency(), model.getComputeLatency(), model.getIpuHostLatency()]
    assert sum(part[2] for part in parts) == pytest.approx(model.getLatency()[2])
    assert all(low <= mean <= high for low, high, mean in parts)


class SlowData(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.full((2,), float(index))


@pytest.mark.parametrize("mode", list(poptorch.DataLoaderMode))
def test_report__of_calls_on_loaded_batches__tells_waiting_sending_running_and_reading(
    mode: poptorch.DataLoaderMode,
) -> None:
    opts = options()
    model = poptorch.inferenceModel(lambda x: x + 1, opts)
    loader = poptorch.DataLoader(opts, SlowData(), batch_size=2, mode=mode)
    for x in loader:
        model(x)
    loader.terminate()
    model(torch.zeros(2, 2))
    report = model.report()
    waited = report.runs["waiting_seconds"]
    assert len(waited) == 4
    assert waited[0] >= 0.02, "nothing is there yet"
    assert waited[:3].sum() >= (0.06 if mode == poptorch.DataLoaderMode.Sync else 0.02)
    assert waited[3] < 0.01, "the last call waited for no loader but for its end"
    assert min(report.runs[f"{name}_seconds"].min() for name in ("sending", "wall", "reading")) > 0
    seconds = report.host_seconds
    assert list(seconds) == ["waiting", "sending", "running", "reading"]
    assert seconds["waiting"] == waited.sum()
    assert model.getHostIpuLatency()[2] == pytest.approx(report.runs["sending_seconds"][-1])
    assert model.getIpuHostLatency()[2] == pytest.approx(report.runs["reading_seconds"][-1])
    assert model.getComputeLatency()[2] >= report.runs["wall_seconds"][-1]
    assert "host           waiting for data" in report.summary()


def test_loader__iterated__is_as_long_as_pytorchs_iterator() -> None:
    loader = poptorch.DataLoader(options(), SlowData(), batch_size=2)
    batches = iter(loader)
    assert len(batches) == 3
    assert iter(batches) is batches
    with pytest.raises(AttributeError):
        _ = batches.nothing_of_the_kind


def test_cycle_count__before_a_run__asks_for_one() -> None:
    model = poptorch.inferenceModel(lambda x: x + 1, options().logCycleCount(True))
    model.compile(X)
    with pytest.raises(poptorch.Error, match="Please run the model at least once before obtaining cycle count"):
        model.cycleCount()


def test_cycle_count__of_each_call__is_logged(caplog: pytest.LogCaptureFixture) -> None:
    model = poptorch.inferenceModel(lambda x: x + 1, options().logCycleCount(True))
    with caplog.at_level(logging.INFO, "poptorch::python"):
        model(X)
    assert f"Total number of IPU cycles: {model.cycleCount()}" in caplog.text


def test_profiling__of_a_folder__writes_the_report_there(tmp_path: Path) -> None:
    opts = options().modelName("a model").enableProfiling(tmp_path / "profile")
    model = poptorch.inferenceModel(lambda x: x + 1, opts)
    model.compile(X)
    (path,) = (tmp_path / "profile").rglob("*.abele-report")
    assert path.relative_to(tmp_path / "profile") == Path("a_model", REPORT_NAME)
    assert Report.load(path).total_cycles == model.report().total_cycles


def test_profiling__of_training_and_inference__writes_to_folders_of_their_own(tmp_path: Path) -> None:
    opts = options().enableProfiling(tmp_path)
    poptorch.trainingModel(classifier(), opts).compile(X, LABELS)
    poptorch.inferenceModel(lambda x: x + 1, opts).compile(X)
    assert {path.parent.name for path in tmp_path.rglob(REPORT_NAME)} == {"training", "inference"}


@pytest.mark.parametrize("name", [None, "my model", "../up"])
def test_auto_report__of_the_environment__keeps_training_and_inference_apart(
    name: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "d")}
    asked["autoReport.streamAtEachRun"] = "true"
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
    model, opts = classifier(), options()
    poptorch.trainingModel(model, opts)(X, LABELS)
    if name is not None:
        opts = options().modelName(name)
    poptorch.inferenceModel(model, opts)(X)
    inference = {None: "inference", "my model": "my_model", "../up": "_up"}[name]
    found = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.abele-report")}
    assert found == {"d/training", f"d/{inference}"}
    trained, inferred = (Report.load(tmp_path / "d" / part / REPORT_NAME) for part in ("training", inference))
    assert trained.total_cycles > inferred.total_cycles
    assert sorted(opened.title for opened in Shelf([tmp_path / "d"])) == sorted([inference, "training"])


def test_profiling__without_a_folder__is_where_logs_are() -> None:
    assert poptorch.Options().logDir("logs").enableProfiling().profile_dir == "logs"


def test_report__of_instrumented_programs__has_their_spans() -> None:
    model = poptorch.inferenceModel(lambda x: x + 1, options())
    with poptorch.profiling.Channel("calls").tracepoint("first call"):
        model(X)
    assert [span["name"] for span in model.report().meta["tracepoints"]][-1] == "first call"


def test_recorded_model__as_json__lists_its_operations() -> None:
    model = poptorch.inferenceModel(classifier(), options())
    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed"):
        model._debugGetPopartIR()
    model.compile(X)
    ops = json.loads(model._debugGetPopartIR())["maingraph"]
    assert ops[0]["inputs"][0] == {"name": "x", "type": "f32", "shape": [24, 12]}
    assert {op["type"] for op in ops}


def test_names__without_modules__have_none() -> None:
    model = classifier()
    with_modules, without = (poptorch.inferenceModel(model, opts) for opts in (options(), options()))
    without = poptorch.inferenceModel(model, options().disableModuleNamescope())
    for wrapped in (with_modules, without):
        wrapped.compile(X)
    paths = [[op["name"] for op in json.loads(w._debugGetPopartIR())["maingraph"]] for w in (with_modules, without)]
    assert any("first" in path for path in paths[0])
    assert not any("first" in path for path in paths[1])


def test_source_locations__that_are_excluded__are_not_shown() -> None:
    def lines(opts: poptorch.Options) -> bool:
        model = poptorch.inferenceModel(classifier(), opts)
        model.compile(X)
        return any("poptorch_kit" in op.debug.file for op in model._compiled.captured.net.ops)

    assert lines(options())
    assert not lines(options().appendToLocationExcludes("poptorch_kit"))


GROUPS = {
    "all": (1, poptorch.CommGroupType.All, "CommGroupType.All is not supported"),
    "large": (8, poptorch.CommGroupType.Consecutive, r"\(8\) must not be larger than the replication factor \(4\)"),
    "factor": (3, poptorch.CommGroupType.Orthogonal, r"\(3\) must be a factor of the replication factor \(4\)"),
}


@pytest.mark.parametrize("name", GROUPS)
def test_input_groups__that_do_not_fit__are_refused(name: str) -> None:
    size, kind, text = GROUPS[name]
    with pytest.raises(ValueError, match=text):
        poptorch.Options().replicationFactor(4).inputReplicaGrouping(size, kind)
    opts = poptorch.Options().replicationFactor(4).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    assert (opts.input_group_size, opts.input_cgt) == (2, poptorch.CommGroupType.Consecutive)


def test_io_tiles__out_of_range__are_refused() -> None:
    for number in (30, 33, 194, True):
        with pytest.raises(AssertionError, match=r"numIOTiles must be an even number between 32 and 192\."):
            poptorch.Options().TensorLocations.numIOTiles(number)
    assert poptorch.Options().TensorLocations.numIOTiles(64).num_io_tiles == 64


def test_synthetic_data__counters__have_no_times() -> None:
    wrapped = poptorch.inferenceModel(lambda x, y: (x + y, x), poptorch.Options().enableSyntheticData(True))
    wrapped(torch.ones(2), torch.ones(2))
    assert all(times == [[], []] for times in wrapped.getPerfCounters().values())
    assert wrapped.getLatency() == wrapped.getComputeLatency() == (0.0, 0.0, 0.0)


def test_output_mode__that_was_not_chosen__is_what_the_wrapper_uses() -> None:
    options, model = poptorch.Options(), torch.nn.Linear(2, 2)
    assert poptorch.trainingModel(model, options).options.output_mode == poptorch.OutputMode.Final
    assert poptorch.inferenceModel(model, options).options.output_mode == poptorch.OutputMode.All
    assert options.defaultOutputMode()


def test_implicit_copies__of_weights__are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    class Trained(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.fc(x)
            return poptorch.identity_loss(y, "sum") if self.training else y

    model, x = Trained(), torch.ones(1, 2)
    training, inference = poptorch.trainingModel(model), poptorch.inferenceModel(model)
    with caplog.at_level("DEBUG", "poptorch::python"):
        training(x)
        inference(x)
        caplog.clear()
        training(x)
        assert model.fc.weight.sum() + model.fc.bias.sum() != 0
        assert not training.copyWeightsToHostIfNeeded()
        assert [r.message for r in caplog.records if "Implicit" in r.message] == ["Implicit copyWeightsToHost()"]
        caplog.clear()
        inference(x)
        inference(x)
        assert [r.message for r in caplog.records if "Implicit" in r.message] == ["Implicit copyWeightsToDevice()"]


def test_every_n__of_fewer_micro_batches__is_refused_before_compiling() -> None:
    options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.EveryN, 3)
    with pytest.raises(AssertionError, match="output_return_period is 3, and a call has 2 micro-batches"):
        poptorch.inferenceModel(lambda x: x, options)(torch.ones(2))
