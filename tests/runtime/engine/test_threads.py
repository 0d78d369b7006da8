"""Threads: none is left behind, and none keeps the interpreter from ending."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.errors import EngineError
from abele.graph import Copy, Graph, Repeat
from abele.runtime import Engine


def _graph(size: int = 4) -> tuple[Graph, Copy]:
    graph = Graph("bow-2000")
    x = graph.variable("f32", (size,), "x", initial=np.arange(1, size + 1)).map(0)
    return graph, Copy(x.reverse(), x)


def _end(threads: set[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(timeout=5)
    return not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("closed", [True, False])
def test_engine__closed_or_dropped__leaves_no_thread(closed):
    before = set(threading.enumerate())
    engine = Engine(*_graph(50_000), threads=3)
    engine.run()
    hired = set(threading.enumerate()) - before
    assert len(hired) == 3
    if closed:
        engine.close()
    else:
        del engine
        gc.collect()
    assert _end(hired)


def test_interpreter__with_an_open_engine__ends():
    code = """
from abele.graph import Copy, Graph
from abele.runtime import Engine
graph = Graph("bow-2000")
x = graph.variable("f32", (4,), "x").map(0)
engine = Engine(graph, Copy(x.reverse(), x), threads=2)
engine.run()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_engine__from_an_executable__runs_it():
    executable = compile_program(*_graph())
    for threads in (1, 2):
        with Engine(executable, threads=threads) as engine:
            engine.run()
            np.testing.assert_array_equal(engine["x"], [4, 3, 2, 1])


def test_engine__run_while_running__is_refused():
    graph, copy = _graph()
    stream = graph.host_stream_in("in", "f32", 4)
    refused = []

    def again() -> list[float]:
        with pytest.raises(EngineError, match="running already"):
            engine.run()
        refused.append(True)
        return [0.0] * 4

    with Engine(graph, Repeat(1, Copy(stream, copy.destination)), threads=2) as engine:
        engine.connect(stream, again)
        engine.run()
    assert refused == [True]
