"""Kinds of vertices, guards for the hardware, printing and random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from abele.codelet import compile_codelet
from abele.codelet.tables import build_tables
from codelet.cpp.conftest import f32, load, run, zeros

FOUND = load("workers.cpp")


def test_multi_vertex__runs_six_workers() -> None:
    done = run(FOUND["Strided"], **{"in": np.arange(20, dtype="f4")}, out=zeros(20), who=zeros(20, "u4"))
    np.testing.assert_array_equal(done["out"], np.arange(20) + 1)
    np.testing.assert_array_equal(done["who"], np.arange(20) % 6)
    assert FOUND["Strided"].kind == "multi"


def test_multi_vertex__returning_nothing__works_on_blocks() -> None:
    x = np.arange(1, 16, dtype="i4")
    np.testing.assert_array_equal(run(FOUND["Blocks"], data=x, perWorker=3)["data"], -x)


def test_supervisor__is_known_by_its_class() -> None:
    assert FOUND["Supervised"].kind == "supervisor"
    assert run(FOUND["Supervised"], **{"in": np.arange(10, dtype="i4")}, sum=zeros(1, "i4"))["sum"][0] == 45


def test_guard__of_hardware_code__takes_the_portable_side() -> None:
    assert run(FOUND["Guarded"], **{"in": f32(1, 2, 4)}, out=zeros(1), n=3)["out"][0] == 7


def test_printf__writes_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    definition = FOUND["Printing"]
    build_tables(definition, [{"values": np.array([3, -4], "i4")}]).run(compile_codelet(definition).run)
    assert capfd.readouterr().out == "2 values: 3 -4\n"


def test_random_numbers__differ_by_draw_vertex_and_run__and_are_repeatable() -> None:
    definition = FOUND["Draws"]
    address = compile_codelet(definition).run

    def drawn() -> np.ndarray:
        out = [{"out": zeros(50, "u4"), "random numbers drawn": 0} for _ in range(3)]
        tables = build_tables(definition, out)
        tables.run(address)
        first = np.stack([v["out"].copy() for v in out])
        tables.run(address)
        return np.concatenate([first, np.stack([v["out"] for v in out])])

    numbers = drawn()
    assert len(np.unique(numbers)) == numbers.size
    np.testing.assert_array_equal(numbers, drawn())
    assert 0.45 < (numbers / 2**32).mean() < 0.55


def test_worker_number__of_a_plain_vertex__is_0() -> None:
    assert run(FOUND["Whose"], worker=zeros(1, "u4"))["worker"][0] == 6


def test_loop_on_data__is_counted_while_it_runs() -> None:
    definition = FOUND["WhileLoop"]
    start = np.array([1, 6, 27], "u4")
    done = run(definition, start=start, steps=zeros(3, "u4"))
    np.testing.assert_array_equal(done["steps"], [0, 8, 111])
    assert compile_codelet(definition).data_dependent
    assert compile_codelet(definition).slots is None


def test_hints_to_the_optimiser__change_nothing() -> None:
    x, y = f32(2, 3, 4), f32(1, 1, 1)
    np.testing.assert_array_equal(run(FOUND["Restricted"], x=x, y=y)["y"], [5, 7, 9])
