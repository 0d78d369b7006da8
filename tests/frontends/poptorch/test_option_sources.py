"""Options from files, JSON and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele import poptorch


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
