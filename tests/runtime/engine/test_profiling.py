"""The profile of the host: what runs took, leaf by leaf."""

from contextlib import nullcontext

import numpy as np
import pytest

import abele as ab
from abele.errors import InvalidOptionError, ProfilingDisabledError
from abele.poplibs import poplin, popops
from abele.report import Report

ROWS, INNER, COLUMNS = 96, 64, 80


def product(**options):
    """A product with a map behind it, from a stream to a stream, three times."""
    graph = ab.Graph("bow-2000:1")
    source = graph.host_stream_in("source", ab.f32, ROWS * INNER)
    result = graph.host_stream_out("result", ab.f32, ROWS * COLUMNS)
    x = graph.variable(ab.f32, (ROWS, INNER), "x").map_linear()
    w = graph.variable(ab.f32, (INNER, COLUMNS), "w").map_linear()
    graph.expose(w, "w")
    body = ab.Sequence(ab.Copy(source, x))
    y = poplin.matmul(graph, x, w, prog=body, name="dense")
    popops.relu_in_place(graph, y, prog=body)
    body.add(ab.Copy(y, result))
    engine = ab.Engine(graph, ab.Repeat(3, body), **options)
    engine["w"] = np.ones((INNER, COLUMNS), np.float32)
    engine.connect("source", np.ones((3, ROWS * INNER), np.float32))
    engine.connect("result", np.zeros((3, ROWS * COLUMNS), np.float32))
    return engine


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_profile__of_a_product__counts_its_runs_arithmetic_and_bytes(threads):
    with product(threads=threads) as engine:
        with engine.profiling():
            engine.run()
            engine.run()
        engine.run()  # not measured
        leaves = engine.profile().leaves
    kernels = leaves.where("kind", "kernel")
    found = next(row for row in kernels.rows() if "poplin.matmul" in row["calls"])
    assert found["executions"] == 6
    assert found["flops"] == 2 * ROWS * INNER * COLUMNS + ROWS * COLUMNS  # the map takes the larger of two numbers
    assert found["slots"] >= ROWS * INNER * COLUMNS + ROWS * COLUMNS
    assert found["read_bytes"] == 4 * (ROWS * INNER + INNER * COLUMNS)
    assert found["written_bytes"] == 4 * ROWS * COLUMNS
    assert "dense" in found["name"]
    assert found["file"] == __file__
    assert 0 < found["best_seconds"] <= found["seconds"]
    assert found["busy_seconds"] <= threads * found["seconds"] * 1.0001
    assert 1 / threads - 1e-9 <= found["balance"] <= 1


def test_profile__against_a_library__has_the_time_of_the_product_alone():
    with product(threads=1) as engine:
        with engine.profiling():
            engine.run()
        assert "against" not in engine.profile().facts
        found = engine.profile(against=True)
    shape = f"{ROWS}x{COLUMNS}x{INNER} f32"
    assert [*found.facts["against"]] == [shape]
    assert f"· {shape}: " in found.text()


def test_profile__times_of_leaves__add_up_to_no_more_than_the_runs():
    with product(threads=2) as engine:
        with engine.profiling():
            for _ in range(5):
                engine.run()
        profile = engine.profile()
    assert profile.facts["runs"] == 5
    assert 0 < profile.seconds <= profile.run_seconds


def test_profile__of_the_processor_clock__has_no_waiting():
    with product(threads=2) as engine:
        with engine.profiling("processor"):
            engine.run()
        leaves = engine.profile().leaves
    assert (leaves["seconds"] <= leaves["busy_seconds"] + 1e-12).all()


def test_profile__without_a_measured_run__says_how_to_get_one():
    with (
        product() as engine,
        pytest.raises(ProfilingDisabledError, match=r"no run was measured\n  try +with engine\.profiling"),
    ):
        engine.profile()


def test_profiling__of_an_unknown_clock__names_the_nearest():
    with (
        product() as engine,
        pytest.raises(InvalidOptionError, match="there is no clock 'procesor'"),
        engine.profiling("procesor"),
    ):
        pass


def test_profiling__results__are_the_same_bits():
    found = []
    for measured in (False, True):
        with product(threads=2, options={"profiler.host": measured}) as engine:
            out = np.zeros((3, ROWS * COLUMNS), np.float32)
            engine.connect("result", out)
            engine.run()
            found.append(out)
    assert np.array_equal(*found)


def test_report__of_measured_runs__keeps_the_profile_in_its_file(tmp_path):
    with product(options={"profiler.host": True}) as engine:
        engine.run()
        report, profile = engine.report, engine.profile()
    report.save(tmp_path / "run.abele-report", full_paths=True)
    loaded = Report.load(tmp_path / "run.abele-report").host
    assert loaded.text() == profile.text()
    assert loaded.facts == profile.facts
    assert loaded.leaves.to_lists() == profile.leaves.to_lists()


def test_reset__of_the_execution_profile__forgets_what_was_measured():
    with product() as engine:
        with engine.profiling():
            engine.run()
        engine.reset_execution_profile()
        assert len(engine.report.host.leaves) == 0


def test_profile__of_vertices_and_callbacks__names_them():
    graph = ab.Graph("bow-2000:1")
    source = graph.host_stream_in("numbers", ab.f32, 8)
    x = graph.variable(ab.f32, 8, "x").map(0)
    y = graph.variable(ab.f32, 8, "y").map(1)
    step = ab.Sequence(ab.Copy(source, x))
    popops.add(graph, x, y, prog=step, name="sum")
    engine = ab.Engine(graph, step, mode="tiles", threads=1, options={"profiler.host": True})
    engine.connect("numbers", lambda: np.ones(8, np.float32))
    engine.run()
    kinds = {row["kind"]: row for row in engine.profile().leaves.rows()}
    assert set(kinds) >= {"callback", "copy", "vertices"}
    assert kinds["callback"]["name"] == "from numbers (host)"
    assert kinds["vertices"]["calls"] == "popops.add" or "popops" in kinds["vertices"]["calls"]


def chain(threads):
    """Three layers of which the second has no storage: they run as one leaf, block after block of samples."""
    graph = ab.Graph("bow-2000:1")
    x = graph.variable(ab.f32, (512, 24), "x").map_linear()
    body, values = ab.Sequence(), x
    for n in range(3):
        w = graph.variable(ab.f32, (24, 24), f"w{n}").map_linear()
        values = popops.relu(graph, poplin.matmul(graph, values, w, prog=body, name=f"dense{n}"), prog=body)
    graph.expose(values, "y")
    return ab.Engine(graph, ab.Repeat(4, body), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_profile__of_a_leaf_that_calls_several_functions__tells_them_apart(threads):
    with chain(threads) as engine:
        with engine.profiling():
            engine.run()
        profile = engine.profile()
    (leaf,) = profile.leaves.rows()
    functions = {row["name"].partition(",")[0]: row for row in profile.functions.rows()}
    assert {"dense0", "dense1", "dense2"} <= set(functions)
    # Executions, and blocks of samples, which are as many as this CPU's caches make them.
    calls = functions["dense0"]["calls"]
    assert calls % 4 == 0
    assert calls > 4
    assert 512 % (calls // 4) == 0
    for n in range(3):
        assert functions[f"dense{n}"]["flops"] == 2 * 512 * 24 * 24 + 512 * 24
        assert functions[f"dense{n}"]["calls"] == calls
        assert functions[f"dense{n}"]["file"] == __file__
        # Values between the layers live in a thread's scratch memory: they are bytes of the functions alone.
        assert functions[f"dense{n}"]["read_bytes"] == 4 * (512 * 24 + 24 * 24)
    assert leaf["flops"] == sum(row["flops"] for row in functions.values())
    assert leaf["read_bytes"] == 4 * (512 * 24 + 3 * 24 * 24)
    assert sum(row["busy_seconds"] for row in functions.values()) <= leaf["busy_seconds"]
    assert "dense2" in profile.text()


def test_profiling__of_leaves_that_call_several_functions__gives_the_same_bits():
    values = np.random.default_rng(0).normal(size=(512, 24)).astype(np.float32)
    found = []
    for measured in (False, True):
        with chain(2) as engine:
            engine["x"] = values
            for n in range(3):
                engine[f"w{n}"] = values[24 * n : 24 * n + 24]
            with engine.profiling() if measured else nullcontext():
                engine.run()
            found.append(engine["y"])
    assert np.abs(found[0]).max() > 0
    assert np.array_equal(*found)
