"""C++ codelets in programs: in every mode they do what Python codelets do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele import Engine, Execute, Graph, Repeat, Sequence, f16, systems
from abele import f32 as f32_type
from abele import u32 as u32_type
from codelet.cpp.conftest import FILES, load

SYSTEM = systems.get("bow-2000:1")
MODES = [{"mode": "native"}, {"mode": "tiles"}, {"mode": "tiles", "debug": True}, {"mode": "tiles", "threads": 2}]


@pytest.mark.parametrize("options", MODES, ids=str)
def test_vertices__over_tiles__run_and_are_costed(options: dict[str, Any]) -> None:
    graph = Graph(SYSTEM)
    x = graph.variable(f32_type, (64, 100), name="x").map_rows(range(64))
    y = graph.variable(f32_type, (64, 100), name="y").map_rows(range(64))
    step = graph.compute_set("step")
    step.vertices(load("twins.cpp")["Saxpy"], tile=range(64), x=x, y=y, a=2.0)
    engine = Engine(graph, Repeat(3, Execute(step)), **options)
    values = np.random.default_rng(1).standard_normal((64, 100)).astype("f4")
    engine["x"], engine["y"] = values, np.ones((64, 100), "f4")
    engine.run()
    wanted = np.ones((64, 100), "f4")
    for _ in range(3):
        wanted += np.float32(2) * values
    np.testing.assert_array_equal(engine["y"], wanted)
    assert engine.report.summary()


@pytest.mark.parametrize("options", MODES[1:3], ids=str)
def test_multi_vertex_with_rows_and_state__keeps_state(options: dict[str, Any]) -> None:
    codelets = load("kinds.cpp")
    graph = Graph(SYSTEM)
    x = graph.variable(f32_type, (4,), name="x").map(0)
    count = graph.variable(u32_type, (), name="count").map(0)
    step = graph.compute_set("step")
    step.vertex(codelets["Running"], tile=0, sums=np.zeros(4, "f4"), count=count, steps=5, odd=False, **{"in": x})
    engine = Engine(graph, Execute(step), **options)
    engine["x"] = np.ones(4, "f4")
    for _ in range(4):
        engine.run()
    assert engine["count"] == 1009


def test_rows_from_a_list_of_tensors__are_wired() -> None:
    graph = Graph(SYSTEM)
    rows = [graph.variable(f32_type, (n,), name=f"row{n}").map(n) for n in (3, 5)]
    out = graph.variable(f32_type, (2,), name="out").map(1)
    step = graph.compute_set("step")
    step.vertex(load("kinds.cpp")["RowSums"], tile=1, out=out, **{"in": rows})
    engine = Engine(graph, Execute(step))
    for row in rows:
        engine[row.name if hasattr(row, "name") else f"row{row.size}"] = np.arange(row.size, dtype="f4")
    engine.run()
    np.testing.assert_array_equal(engine["out"], [3, 10])


def test_overlapping_fields__see_one_another() -> None:
    graph = Graph(SYSTEM)
    data = graph.variable(f32_type, (1, 10), name="data").map(0)
    step = graph.compute_set("step")
    step.vertices(load("kinds.cpp")["Span<float>"], tile=[0], out=data, **{"in": data})
    engine = Engine(graph, Execute(step))
    engine["data"] = np.arange(10, dtype="f4").reshape(1, 10)
    engine.run()
    np.testing.assert_array_equal(engine["data"][0], np.arange(10) + 1)


def test_half_vertices__are_true_halves() -> None:
    graph = Graph(SYSTEM)
    x, y, out = (graph.variable(f16, (6, 40), name=n).map_rows(range(6)) for n in ("x", "y", "out"))
    step = graph.compute_set("step")
    step.vertices(load("halves.cpp")["HalfSteps"], tile=range(6), x=x, y=y, out=out, scale=1.7)
    engine = Engine(graph, Execute(step))
    a, b = np.random.default_rng(2).standard_normal((2, 6, 40)).astype("f2")
    engine["x"], engine["y"] = a, b
    engine.run()
    np.testing.assert_array_equal(engine["out"], a * np.float16(1.7) + b)


def test_random_numbers__of_two_compute_sets__differ() -> None:
    graph = Graph(SYSTEM)
    steps, outs = [], []
    draws = load("workers.cpp")["Draws"]
    for n in range(2):
        out = graph.variable(u32_type, (3, 20), name=f"out{n}").map_rows(range(3))
        steps.append(graph.compute_set(f"step{n}"))
        steps[n].vertices(draws, tile=range(3), out=out)
        outs.append(f"out{n}")
    engine = Engine(graph, Sequence(*map(Execute, steps)), mode="tiles")
    found = []
    for _ in range(2):
        engine.run()
        found += [np.asarray(engine[o]).copy() for o in outs]
    assert len(np.unique(np.stack(found))) == 4 * 60


def test_files__by_name_in_a_graph__are_loaded() -> None:
    graph = Graph(SYSTEM)
    graph.addCodelets(str(FILES / "wild.cpp"))
    x = graph.variable(f32_type, (5,), name="x").map(0)
    total = graph.variable(f32_type, (), name="total").map(0)
    step = graph.compute_set("step")
    graph_vertex = step.vertex("SumVertex", tile=0)
    graph_vertex["in"] = x
    graph_vertex["out"] = total
    engine = Engine(graph, Execute(step))
    engine["x"] = np.arange(5, dtype="f4")
    engine.run()
    assert engine["total"] == 10
