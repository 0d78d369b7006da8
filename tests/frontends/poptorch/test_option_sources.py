"""Options from files, JSON and the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from abele import poptorch
from abele.errors import AbeleError, InvalidOptionError
from abele.frontends.poptorch.options import environment
from abele.network import parse


def written(folder: Path, text: str) -> Path:
    path = folder / "options.conf"
    path.write_text(text)
    return path


def test_file__with_setters__calls_them(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        # batches
        deviceIterations(4)
        options.Training.gradientAccumulation(2)   # a comment
        outputMode(poptorch.OutputMode.EveryN, 2)
        setAvailableMemoryProportion({"IPU0": 0.25})
        setExecutionStrategy(poptorch.ShardedExecution(poptorch.Stage("a").ipu(0), poptorch.Stage("b").ipu(1)))
        TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
        Precision.setPartialsType(torch.half)
        """,
    )
    opts = poptorch.Options().loadFromFile(path)
    assert (opts.device_iterations, opts.Training.gradient_accumulation, opts.output_return_period) == (4, 2, 2)
    assert opts.available_memory_proportion == {0: 0.25}
    assert opts._execution_strategy.stage("b")._ipu_id == 1
    assert opts.TensorLocations.location_weight == {"onChip": False}
    assert opts.Precision.partials == "f16"


WRONG = {
    "syntax": ("deviceIterations(4", r"SyntaxError at line 2 of .*options\.conf: .*\n> options\.deviceIterations\(4"),
    "setter": ("deviceIteration(4)", r"AttributeError at line 2 of (.|\n)*did you mean 'deviceIterations'"),
    "value": ("deviceIterations(0)", "at line 2 of .*takes a whole number from 1 on"),
    "name": ("deviceIterations(four)", "NameError at line 2 of .*name 'four' is not defined"),
    "no_call": ("deviceIterations", "SyntaxError at line 2"),
    "code": ("deviceIterations((lambda: 4)())", "SyntaxError at line 2 of .*invalid syntax: lambda: 4"),
    "import": ("__import__('os').system('true')", r"AttributeError at line 2|SyntaxError at line 2"),
    "private": ("__class__.__init__.__globals__.clear()", "SyntaxError at line 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_file__line_that_is_no_setter__is_named(name: str, tmp_path: Path) -> None:
    line, text = WRONG[name]
    with pytest.raises(poptorch.options.ConfigFileError, match=text):
        poptorch.Options().loadFromFile(written(tmp_path, f"# first\n{line}\n"))


def test_json__with_setters__calls_them() -> None:
    opts = poptorch.Options().from_json(
        '{"deviceIterations": 3, "Training.gradientAccumulation": 2, "outputMode": ["OutputMode.EveryN", 3],'
        ' "connectionType": "poptorch.ConnectionType.OnDemand"}'
    )
    assert (opts.device_iterations, opts.Training.gradient_accumulation) == (3, 2)
    assert (opts.output_mode, opts.output_return_period) == (poptorch.OutputMode.EveryN, 3)
    assert opts.connection_type == poptorch.ConnectionType.OnDemand


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "are no JSON"),
        ("[1]", "a JSON object of setters"),
        ('{"deviceIteration": 1}', "no setter of Options"),
        ('{"device_iterations": 1}', "no setter of Options"),
        ('{"__init__": []}', "no setter of Options"),
    ],
)
def test_json__that_is_none__is_refused(text: str, message: str) -> None:
    with pytest.raises(poptorch.ConfigFileError, match=message):
        poptorch.Options().from_json(text)


def test_environment__default_options__are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": 7, "Precision.enableStochasticRounding": true}'
    )
    opts = poptorch.Options()
    assert opts.device_iterations == 7
    assert opts.Precision.stochastic_rounding
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", "nonsense")
    with pytest.raises(poptorch.ConfigFileError, match="the environment variable POPTORCH_DEFAULT_OPTIONS are no JSON"):
        poptorch.Options()


def modelled_tiles(opts: poptorch.Options) -> tuple[str, int]:
    ipu = opts.settings("model").target().ipu
    return ipu.name, ipu.num_tiles


def test_environment__small_model__has_four_tiles_unless_the_whole_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ABELE_SYSTEM", raising=False)
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    assert modelled_tiles(poptorch.Options()) == ("Bow", 4)
    assert modelled_tiles(poptorch.Options().system("gc200")) == ("GC200", 1472), "the program's choice comes first"
    model = poptorch.inferenceModel(nn.Linear(3, 2), poptorch.Options().showCompilationProgressBar(False))
    x = torch.ones(4, 3)
    torch.testing.assert_close(model(x), model.model(x).detach())
    assert model.report().target["tiles_per_ipu"] == 4
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    assert modelled_tiles(poptorch.Options()) == ("Bow", 1472)
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "0")
    monkeypatch.setenv("ABELE_SYSTEM", "m2000")
    assert modelled_tiles(poptorch.Options()) == ("GC200", 1472)


@pytest.mark.usefixtures("whole_machine")
@pytest.mark.parametrize(("version", "name"), [(1, "GC2"), (2, "Bow"), (21, "C600")])
def test_useOfflineIpuTarget__of_a_version__models_it(version: int, name: str) -> None:
    assert modelled_tiles(poptorch.Options().useOfflineIpuTarget(version))[0] == name


@pytest.mark.parametrize(("version", "name"), [("ipu1", "GC2"), ("ipu2", "Bow"), ("ipu21", "C600")])
def test_environment__model_version__is_modelled_where_nothing_else_is_chosen(
    version: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ABELE_SYSTEM", raising=False)
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", version)
    assert modelled_tiles(poptorch.Options())[0] == name
    assert modelled_tiles(poptorch.Options().system("gc200"))[0] == "GC200"
    assert modelled_tiles(poptorch.Options().useOfflineIpuTarget(1))[0] == "GC2"


def test_environment__model_version_that_is_none__is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABELE_SYSTEM", raising=False)
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu3")
    with pytest.raises(InvalidOptionError, match="POPTORCH_IPU_MODEL_VERSION is 'ipu3'") as raised:
        modelled_tiles(poptorch.Options())
    assert "ipu1, ipu2, ipu21" in str(raised.value)


def test_useOfflineIpuTarget__of_no_version__is_refused() -> None:
    with pytest.raises(ValueError, match="there is no version 3 of the IPU"):
        poptorch.Options().useOfflineIpuTarget(3)


def test_environment__export_file__has_the_recorded_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "model.proto"
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(path))
    model = poptorch.inferenceModel(nn.Linear(3, 2), poptorch.Options().showCompilationProgressBar(False))
    model.compile(torch.ones(4, 3))
    assert [op.kind for op in parse(path.read_text()).ops] == ["linear"]
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(path / "below"))
    model.destroy()
    with pytest.raises(AbeleError, match="cannot be written"):
        model.compile(torch.ones(4, 3))


def test_environment__wait_for_ipu__says_once_that_nothing_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment._tell_once.cache_clear()
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    for _ in range(2):
        model = poptorch.inferenceModel(nn.Linear(3, 2), poptorch.Options().showCompilationProgressBar(False))
        model(torch.ones(4, 3))
    told = [r.getMessage() for r in caplog.records if "POPTORCH_WAIT_FOR_IPU" in r.getMessage()]
    assert told == ["POPTORCH_WAIT_FOR_IPU has no effect: the IPU is modelled, and never in use by others"]


def test_environment__engine_options__reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({"profiler.host": True}))
    model = poptorch.inferenceModel(nn.Linear(3, 2), poptorch.Options().showCompilationProgressBar(False))
    model(torch.ones(4, 3))
    assert len(model.report().host_leaves)


def test_environment__processes__are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    distributed = poptorch.Options().Distributed
    assert (distributed.processId, distributed.numProcesses) == (3, 4)
    monkeypatch.setenv("WORLD", "2")
    monkeypatch.setenv("RANK", "1")
    distributed.setEnvVarNames("WORLD", "RANK")
    assert (distributed.processId, distributed.numProcesses) == (1, 2)
    distributed.configureProcessId(5, 6)
    assert (distributed.processId, distributed.numProcesses) == (5, 6)
    distributed.disable()
    assert (distributed.processId, distributed.numProcesses) == (0, 1)
    with pytest.raises(ValueError, match="process 2 is none of 2 processes"):
        distributed.configureProcessId(2, 2)
