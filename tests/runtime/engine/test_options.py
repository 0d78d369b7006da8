"""Options under Poplar's names: values, mistakes, the environment, and what the honoured ones do."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

from abele.errors import InvalidOptionError, OutOfMemoryError, ProfilingDisabledError
from abele.graph import Copy, Graph, Sequence
from abele.report import Report
from abele.runtime import Checks, Engine
from abele.runtime.engine.options import OPTIONS, VARIABLES, read_options
from abele.runtime.engine.run_log import REPORT_NAME


@pytest.fixture(autouse=True)
def _no_options_around(monkeypatch):
    for variable in (*VARIABLES, "POPLAR_LOG_LEVEL"):
        monkeypatch.delenv(variable, raising=False)


def _engine(options: dict[str, object] | None = None, *, size: int = 4, **more: object) -> Engine:
    graph = Graph("bow-2000")
    x, y = (graph.variable("f32", size, n).map(0) for n in "xy")
    programs = {"copy": Sequence(Copy(x, y)), "back": Sequence(Copy(y, x))}
    return Engine(graph, programs, options=options, threads=1, **more)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("debug.instrument", "false", False),
        ("debug.instrument", "True", True),
        ("debug.instrument", 1, True),
        ("prng.seed", "0x10", 16),
        ("prng.seed", 7, 7),
        ("streamCallbacks.numWorkerThreads", "auto", "auto"),
        ("streamCallbacks.numWorkerThreads", "3", 3),
        ("debug.computeInstrumentationLevel", "IPU", "ipu"),
        ("target.deterministicWorkers", True, "true"),
        ("autoReport.directory", "somewhere", "somewhere"),
    ],
)
def test_option__value_as_text_or_not__is_read(name, given, value):
    options = read_options({name: given}, {})
    assert options[name] == value
    assert type(options[name]) is type(value)


def test_options__not_given__have_their_defaults():
    options = read_options(None, {})
    assert len(options) == len(OPTIONS)
    assert dict(options) == {name: option.default for name, option in OPTIONS.items()}
    assert options.given == {}


def test_options__every_default__is_a_value_that_the_option_takes():
    for option in OPTIONS.values():
        assert option.parse(option.default) == option.default
        assert option.doc
        assert option.takes != "anything"


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("debug.instrument", "maybe", "takes true or false"),
        ("prng.seed", -1, "takes a whole number from 0 on"),
        ("prng.seed", 1.5, "takes a whole number from 0 on"),
        ("prng.seed", True, "takes a whole number from 0 on"),
        ("streamCallbacks.numWorkerThreads", "many", "takes a whole number from 0 on, or auto"),
        ("exchange.streamBufferOverlap", "some", "takes one of any, hostRearrangeOnly, none"),
        ("autoReport.directory", 3, "takes text"),
    ],
)
def test_option__value_that_it_does_not_take__says_what_it_takes(name, value, takes):
    told = re.escape(f"the engine: option '{name}' {takes}, got {value!r}")
    with pytest.raises(InvalidOptionError, match=told):
        _engine({name: value})


def test_option__misspelt__names_the_nearest():
    with pytest.raises(InvalidOptionError, match=r"the engine has no option 'debug\.instrumnt'") as caught:
        _engine({"debug.instrumnt": True})
    assert "did you mean 'debug.instrument'?" in str(caught.value)


def test_option__without_effect__is_accepted_with_a_line_in_the_log(caplog):
    with caplog.at_level(logging.DEBUG, "abele"):
        _engine({"opt.maxCompilationThreads": 4})
    assert "engine option 'opt.maxCompilationThreads' has no effect here" in caplog.text


# --- environment -----------------------------------------------------------------------------------------------------


def test_environment__overrides_the_program_and_later_variables_the_earlier():
    environment = {
        "POPLAR_ENGINE_OPTIONS": '{"prng.seed": "1", "debug.instrument": "false"}',
        "POPLAR_RUNTIME_OPTIONS": '{"prng.seed": "2"}',
        "ABELE_ENGINE_OPTIONS": '{"prng.seed": 3}',
    }
    given = {"prng.seed": 9, "debug.instrument": True, "exchange.enablePrefetch": False}
    assert read_options(given, environment)["prng.seed"] == 3
    del environment["ABELE_ENGINE_OPTIONS"]
    options = read_options(given, environment)
    assert (options["prng.seed"], options["debug.instrument"], options["exchange.enablePrefetch"]) == (2, False, False)


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(("text", "says"), [("{oops", "holds no JSON"), ("[1]", "holds a JSON list, not an object")])
def test_environment__text_that_is_no_json_object__names_the_variable(monkeypatch, variable, text, says):
    monkeypatch.setenv(variable, text)
    with pytest.raises(InvalidOptionError, match=f"environment variable {variable} {says}"):
        _engine()


def test_environment__misspelt_option__names_the_variable(monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoreport.all": "true"}')
    with pytest.raises(InvalidOptionError, match=r"did you mean 'autoReport.all'") as caught:
        _engine()
    assert "environment variable POPLAR_ENGINE_OPTIONS" in str(caught.value)


def test_environment__log_level__is_set_on_the_logger(monkeypatch):
    logger = logging.getLogger("abele")
    before = logger.level
    try:
        monkeypatch.setenv("POPLAR_LOG_LEVEL", "err")
        _engine()
        assert logger.level == logging.ERROR
        monkeypatch.setenv("POPLAR_LOG_LEVEL", "LOUD")
        with pytest.raises(InvalidOptionError, match="POPLAR_LOG_LEVEL holds 'LOUD'"):
            _engine()
    finally:
        logger.setLevel(before)


# --- reports ---------------------------------------------------------------------------------------------------------


def test_auto_report__all__writes_the_report_after_compiling_and_after_runs(tmp_path):
    folder = tmp_path / "deep" / "down"
    with _engine({"autoReport.all": "true", "autoReport.directory": str(folder)}) as engine:
        assert len(Report.load(folder / REPORT_NAME).runs) == 0
        engine.run("copy")
        assert Report.load(folder / REPORT_NAME).runs["name"].tolist() == ["copy"]


def test_auto_report__run_count__is_the_number_of_runs_of_a_program_that_are_written(tmp_path):
    options = {
        "autoReport.outputExecutionProfile": True,
        "autoReport.executionProfileProgramRunCount": 2,
        "autoReport.directory": str(tmp_path),
    }
    with _engine(options) as engine:
        assert not (tmp_path / REPORT_NAME).exists()
        for _ in range(4):
            engine.run("copy")
        assert len(Report.load(tmp_path / REPORT_NAME).runs) == 2
        engine.run("back")
        assert len(Report.load(tmp_path / REPORT_NAME).runs) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"debug.instrument": "false"},
        {"debug.instrumentCompute": "false"},
        {"debug.computeInstrumentationLevel": "off"},
    ],
)
def test_profile__instrumentation_off__cannot_be_asked_for(options, capsys):
    with _engine(options) as engine:
        engine.run()
        assert len(engine.report.runs) == 0
        engine.print_profile_summary()
        assert "cycles" in capsys.readouterr().out
        with pytest.raises(ProfilingDisabledError, match="there is no execution profile") as caught:
            engine.print_profile_summary(options={"showExecutionSteps": "true"})
        assert next(iter(options)) in str(caught.value)
        with pytest.raises(ProfilingDisabledError):
            _ = engine.runs


def test_profile__switched_on_and_off__records_what_ran_meanwhile():
    with _engine() as engine:
        engine.run("copy")
        engine.disable_execution_profiling()
        engine.run("back")
        engine.enable_execution_profiling()
        engine.run("back", "second")
        assert engine.runs["name"].tolist() == ["copy", "second"]
        assert engine.report.runs["program"].tolist() == [0, 1]
        engine.reset_execution_profile()
        assert len(engine.runs) == 0
        engine.disable_execution_profiling()
        with pytest.raises(ProfilingDisabledError, match="no execution profile"):
            _ = engine.runs


def test_profile__filter_of_programs__records_only_those():
    with _engine({"profiler.programs.filter": "^b"}) as engine:
        engine.run("copy")
        engine.run("back")
        assert engine.runs["name"].tolist() == ["back"]


def test_profile__filter_that_is_no_expression__is_refused():
    with pytest.raises(InvalidOptionError, match=r"'profiler.programs.filter' does not take '\('"):
        _engine({"profiler.programs.filter": "("})


def test_summary__with_options__lists_steps_and_variables(tmp_path):
    path = tmp_path / "summary.txt"
    with _engine() as engine, path.open("w", encoding="utf-8") as stream:
        engine.run("back", "the run")
        engine.print_profile_summary(stream, {"showExecutionSteps": "true", "showVarStorage": True})
    text = path.read_text(encoding="utf-8")
    assert re.search(r"variables\n +bytes +tiles +type  name\n +16 +1 +f32  x", text)
    assert "the run" in text
    assert re.search(r"execution steps\n +executions +cycles +compute", text)


@pytest.mark.parametrize(("name", "value"), [("showExecutionStep", "true"), ("showVarStorage", "perhaps")])
def test_summary__bad_option__is_refused(name, value):
    with _engine() as engine, pytest.raises(InvalidOptionError, match=name):
        engine.print_profile_summary(options={name: value})


# --- what else is honoured -------------------------------------------------------------------------------------------


def test_out_of_memory__allowed_by_an_option__runs():
    size = 1 << 18
    with pytest.raises(OutOfMemoryError):
        _engine(size=size)
    with _engine({"debug.allowOutOfMemory": "true"}, size=size) as engine:
        engine["x"] = np.arange(size)
        engine.run()
        np.testing.assert_array_equal(engine["y"], np.arange(size))


def test_runtime_verify__turns_checks_on():
    engine = _engine({"debug.runtimeVerify": "true"}, checks=Checks(nan=True))
    assert engine.checks == Checks(uninitialised=True, bounds=True, inputs=True, nan=True)
    assert engine.mode == "tiles"
