"""Errors and warnings under PopTorch's names."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from poptorch_kit import Classifier
from test_executor import LABELS, X, classifier, options
from torch import nn

from abele import poptorch
from abele.errors import TensorIndexError, UnsupportedOpError
from abele.frontends.poptorch.logs import LOGGER

core = poptorch.poptorch_core


@pytest.mark.parametrize("kind", core.TestErrorType)
def test_test_errors__of_each_layer__are_of_their_kinds(kind: core.TestErrorType) -> None:
    expected = {
        core.TestErrorType.PoplarUnrecoverable: poptorch.UnrecoverableError,
        core.TestErrorType.PoplarRecoverableFullReset: poptorch.RecoverableError,
    }.get(kind, poptorch.Error)
    with pytest.raises(expected) as caught:
        core._throwTestError(kind)
    error = caught.value
    assert str(error).startswith(f"'{error.type}': {error.message}")
    assert isinstance(error, RuntimeError)
    assert error.location
    if isinstance(error, poptorch.RecoverableError):
        assert error.recovery_action == "FULL_RESET"


def test_created_error__has_poptorchs_attributes() -> None:
    error = poptorch.createPoptorchError("no such thing")
    assert (error.type, error.message, error.location) == ("poptorch_py_error", "no such thing", "")
    assert str(error) == "'poptorch_py_error': no such thing"


def test_errors__of_other_rooms__are_poptorchs_too() -> None:
    training = poptorch.trainingModel(classifier(), options())
    with pytest.raises(poptorch.Error) as caught:
        training(X, LABELS + 9)
    assert isinstance(caught.value, TensorIndexError)
    assert caught.value.type == "poptorch_py_error"
    with pytest.raises(poptorch.Error, match=r"'poptorch_py_error': .* have no lowering") as refused:
        poptorch.inferenceModel(lambda x: torch.fft.fft(x).real, options())(X)
    assert isinstance(refused.value, UnsupportedOpError)


@pytest.mark.parametrize(
    ("options_", "text"),
    [
        ({"no_such_option": True}, "Unknown bool option no_such_option"),
        ({"no_such_option": 1.5}, "Unknown double option no_such_option"),
        ({"enableOutlining": object()}, "Unknown value type <class 'object'> for option enableOutlining"),
        ({"enableOutlining": "yes"}, "Unknown value type <class 'str'> for option enableOutlining"),
    ],
)
def test_validate_options__unknown_ones__are_refused(options_: dict[str, object], text: str) -> None:
    with pytest.raises(poptorch.Error, match=text):
        core._validateOptions(options_)


def test_validate_options__known_ones__are_logged(caplog: pytest.LogCaptureFixture) -> None:
    opts = poptorch.Options().deviceIterations(3)
    opts._Popart.set("dotChecks", ["Final"]).set("enableOutlining", False).setEngineOptions({"debug.checks": "true"})
    poptorch.setLogLevel("DEBUG")
    try:
        core._validateOptions(opts.toDict())
    finally:
        poptorch.setLogLevel("WARN")
    lines = [record.getMessage() for record in caplog.records]
    assert "poptorch.Options set device_iterations to value 3" in lines
    assert "poptorch.Options set enableOutlining to value false" in lines
    assert "poptorch.Options added Final to dotChecks" in lines
    assert "poptorch.Options set engineOptions[debug.checks] to true" in lines


def test_wrapper__with_an_unknown_session_option__is_refused_when_compiling() -> None:
    opts = options()
    opts._Popart.set("enableOutlinings", True)
    with pytest.raises(poptorch.Error, match="Unknown bool option enableOutlinings"):
        poptorch.inferenceModel(lambda x: x + 1, opts)(X)


@pytest.mark.parametrize(
    ("level", "text"), [(5, "Invalid log level integer"), ("WARNING", "Unknown log level: WARNING.")]
)
def test_log_level__that_does_not_exist__is_refused(level: str | int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        poptorch.setLogLevel(level)
    with pytest.raises(ValueError, match="Level must be one of"):
        poptorch._logging.setPopartLogLevel(level)


def test_log_level__by_number__is_taken() -> None:
    poptorch.setLogLevel(4)
    assert not LOGGER.isEnabledFor(30)
    poptorch.setLogLevel("WARN")
    assert LOGGER.isEnabledFor(30)


def test_compile__a_second_time__warns_and_logs(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    model = poptorch.inferenceModel(Classifier(), options())
    model.compile(X)
    with pytest.warns(UserWarning, match=r"compile\(\) ignored"):
        model.compile(X)
    assert "compile() ignored" in caplog.text
    assert "[warning] Call to compile() ignored" in capsys.readouterr().err
    # Where warnings are errors, as in these tests, PopTorch's end no program.
    model.compile(X)


@pytest.mark.parametrize(("most", "lines"), [(2, 2), (None, 5)])
def test_max_repeat_logs__of_each_wrapper__are_the_equal_lines_written(
    most: int | None, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        model = poptorch.inferenceModel(Classifier(), options().maxRepeatLogs(most))
        model.compile(X)
        for _ in range(5):
            model.compile(X)
        assert capsys.readouterr().err.count("Call to compile() ignored") == lines


def test_warnings__by_default__are_lines_of_the_log_alone() -> None:
    program = "from abele.frontends.poptorch import logs; logs.warn('look here')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [line.split("] ", 1)[1] for line in done.stderr.splitlines()] == ["[poptorch:python] [warning] look here"]


def test_hooks__around_recording__run_in_order() -> None:
    seen: list[str] = []

    class Seen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append("forward")
            return x + 1

    before = poptorch.registerPreCompileHook(lambda: seen.append("before"))
    after = poptorch.registerPostCompileHook(lambda: seen.append("after"))
    poptorch.inferenceModel(Seen(), options())(X)
    before.remove()
    after.remove()
    poptorch.inferenceModel(Seen(), options())(X)
    assert seen == ["before", "forward", "after", "forward"]
    with pytest.raises(RuntimeError, match="Pre-compile hook must be callable"):
        poptorch.registerPreCompileHook(3)
    with pytest.raises(RuntimeError, match="Post-compile hook must be callable"):
        poptorch.registerPostCompileHook(None)


def test_user_model__while_it_is_wrapped__is_of_a_class_that_can_let_go() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options())
    assert type(model).__name__ == "PoptorchClassifier"
    assert isinstance(model, Classifier)
    with pytest.raises(RuntimeError, match=r"Model has already been wrapped in 'poptorch\.trainingModel'"):
        poptorch.trainingModel(model, options())
    training(X, LABELS)
    model.destroy()
    assert type(model) is Classifier
    assert not training.isCompiled()
    assert type(model.first.weight) is nn.Parameter
    again = poptorch.trainingModel(training, options())
    assert again.model is model


def test_user_model__whose_compilation_failed__can_be_wrapped_again() -> None:
    model = classifier()
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        poptorch.trainingModel(model, options(7))(X, LABELS)
    assert type(model) is Classifier
    poptorch.trainingModel(model, options())(X, LABELS)


def test_channel__tracepoints_and_methods__are_recorded() -> None:
    class Work:
        def run(self, x: int) -> int:
            return x + 1

    channel = poptorch.profiling.Channel("host")
    work = Work()
    channel.instrument(work, "run")
    with channel.tracepoint("all"):
        assert work.run(2) == 3
    spans = poptorch.profiling.tracepoints("host")[-2:]
    assert [span.name for span in spans] == ["Work.run", "all"]
    assert spans[1].seconds >= spans[0].seconds >= 0
    with pytest.raises(AttributeError):
        channel.instrument(work, "walk")


def test_allclose__of_nested_results__compares_structure_and_values() -> None:
    close = poptorch.testing.allclose
    reference = {"a": [X, (X, 3)], "b": None}
    assert close(reference, {"a": [X + 1e-9, (X, 3)], "b": None})
    assert not close(reference, {"a": [X + 1, (X, 3)], "b": None})
    assert not close(reference, {"a": [X, (X, 4)], "b": None})
    assert not close(reference, {"a": [X, (X,)], "b": None})
    assert not close(X, X[:1])
