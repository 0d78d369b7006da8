"""``PVTI_OPTIONS``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from abele import trace
from abele.errors import InvalidOptionError
from abele.trace.environment import VARIABLE, begin_as_told


@pytest.mark.parametrize("enable", ["true", True, "True", 1])
def test_options__that_enable__begin_a_recording_in_the_directory(tmp_path: Path, enable: Any) -> None:
    options = {"enable": enable, "directory": str(tmp_path / "a" / "b"), "channels": ["one"], "other": 3}
    begin_as_told({VARIABLE: json.dumps(options)})
    path = trace.recording_path()
    assert path is not None
    assert path.parent == tmp_path / "a" / "b"
    assert path.name.endswith(f"-{os.getpid()}.abele-trace")
    assert (trace.Channel("one").is_on, trace.Channel("two").is_on) == (True, False)


@pytest.mark.parametrize("text", ["", "  ", "{}", '{"enable": "false"}', '{"enable": false, "directory": "/nowhere"}'])
def test_options__that_do_not__begin_none(text: str) -> None:
    begin_as_told({VARIABLE: text})
    assert not trace.is_recording()


@pytest.mark.parametrize("channels", [None, [], "", "one, two", ["one", "two"]])
def test_options__channels__may_be_left_out_listed_or_joined(tmp_path: Path, channels: Any) -> None:
    begin_as_told({VARIABLE: json.dumps({"enable": "true", "directory": str(tmp_path), "channels": channels})})
    assert trace.Channel("two").is_on
    assert trace.Channel("three").is_on == (not channels)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "holds no JSON"),
        ("[" * 100_000, "holds no JSON"),
        ("[1]", "holds a JSON list, not an object"),
        ('{"enable": "maybe"}', "'enable' in environment variable PVTI_OPTIONS is 'maybe'"),
        ('{"enable": "true", "directory": 5}', "'directory' in environment"),
        ('{"enable": "true", "channels": [5]}', "'channels' in environment"),
        ('{"enable": "true", "channels": {"a": 1}}', "'channels' in environment"),
    ],
)
def test_options__that_mean_nothing__are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message.replace("[", r"\[")):
        begin_as_told({VARIABLE: text})
    assert not trace.is_recording()


PROGRAM = """
import numpy as np, sys
import abele as ab
graph = ab.Graph("bow-2000:1")
x = graph.variable(ab.f32, (64,), name="x").map_linear()
y = graph.variable(ab.f32, (64,), name="y").map_linear(first_tile=9)
graph.expose(x, "x")
with ab.Engine(graph, ab.Copy(x, y)) as engine:
    engine.load()
    engine.run(name="first")
    engine.run()
"""


def test_program__untouched__is_recorded_from_compiling_to_running(tmp_path: Path) -> None:
    environment = {**os.environ, VARIABLE: json.dumps({"enable": "true", "directory": str(tmp_path)})}
    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], env=environment, check=True, cwd=tmp_path)
    loaded = trace.Trace.load(tmp_path)
    found = [(row["channel"], row["label"], row["depth"]) for row in loaded.rows()]
    assert found == [
        ("abele.compile", "compile_program", 0),
        ("abele.compile", "lower", 1),
        ("abele.compile", "supersteps", 1),
        ("abele.compile", "memory", 1),
        ("abele.run", "Engine.prepare", 0),
        ("abele.run", "Engine.load", 0),
        ("abele.run", "Engine.run", 0),
        ("abele.run", "Engine.run", 0),
    ]
    details = [row["detail"] for row in loaded.rows() if row["label"] == "Engine.run"]
    assert details == [{"program": "main", "mode": "native", "name": "first"}, {"program": "main", "mode": "native"}]
    assert loaded.note == ""


def test_program__with_a_bad_variable__is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, VARIABLE: "{"}, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "InvalidOptionError: environment variable PVTI_OPTIONS holds no JSON" in done.stderr


WORKERS = """
import multiprocessing
from abele import pvti

def work(number):
    with pvti.Tracepoint(pvti.createTraceChannel("work"), f"work {number}"):
        return number

if __name__ == "__main__":
    with pvti.Tracepoint(pvti.createTraceChannel("main"), "all"):
        for way in ("spawn", "fork"):
            with multiprocessing.get_context(way).Pool(2) as pool:
                assert pool.map(work, range(4)) == [0, 1, 2, 3]
                pool.close()
                pool.join()
"""


def test_workers__of_multiprocessing__record_to_their_ends(tmp_path: Path) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    environment = {**os.environ, VARIABLE: json.dumps({"enable": "true", "directory": str(tmp_path)})}
    ignored = ("-W", "error", "-W", "ignore::DeprecationWarning")
    subprocess.run([sys.executable, *ignored, str(program)], env=environment, check=True, timeout=120)
    loaded = trace.Trace.load(tmp_path)
    found = sorted(row["label"] for row in loaded.rows())
    assert found == sorted(["all", *[f"work {k}" for k in range(4)] * 2])
    assert loaded.note == ""
