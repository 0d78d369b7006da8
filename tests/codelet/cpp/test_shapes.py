"""Shapes of control flow: what they compute, and whether their cost is known before they run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.codelet import compile_codelet
from abele.codelet.tables import build_tables
from codelet.cpp.conftest import load, run, zeros

FOUND = load("shapes.cpp")
RNG = np.random.default_rng(8)


def random(n: int) -> np.ndarray:
    return RNG.standard_normal(n).astype("f4")


def test_do_while__on_data__makes_the_mandelbrot_set() -> None:
    re, im = random(30), random(30)
    done = run(FOUND["Mandel"], re=re, im=im, n=zeros(30, "i4"), limit=50)["n"]
    c, z, alive = re + 1j * im, np.zeros(30, "c16"), np.ones(30, bool)
    wanted = np.zeros(30, "i4")
    for _ in range(50):
        z[alive] = z[alive] ** 2 + c[alive]
        alive &= np.abs(z) < 2
        wanted[alive] += 1
    np.testing.assert_array_equal(done, wanted)
    assert compile_codelet(FOUND["Mandel"]).data_dependent


def test_constant_table__by_data__costs_no_data() -> None:
    index = RNG.integers(0, 255, 20).astype("u1")
    done = run(FOUND["Lookup"], idx=index, out=zeros(20))["out"]
    np.testing.assert_allclose(done, 0.25 * ((index & 3) + 1.0) + index.astype("f8") ** 3, rtol=1e-6)
    assert not compile_codelet(FOUND["Lookup"]).data_dependent


def test_local_array__filters() -> None:
    x = random(40)
    done = run(FOUND["Local"], x=x, y=zeros(32), taps=9)["y"]
    taps = 0.25 * (np.arange(9) % 4 + 1)
    np.testing.assert_allclose(done, [taps @ x[i : i + 9] for i in range(32)], rtol=1e-5, atol=1e-5)


def test_early_return__counts_as_far_as_it_went() -> None:
    definition = FOUND["Early"]
    x = np.arange(100, dtype="i4")
    x[60:] *= -1
    assert run(definition, x=x, at=zeros(1, "i4"))["at"][0] == 60
    compiled = compile_codelet(definition)
    assert compiled.data_dependent
    vertices = [{"x": np.where(np.arange(100) < n, 1, -1).astype("i4"), "at": zeros(1, "i4")} for n in (10, 20, 40)]
    slots = build_tables(definition, vertices).count(compiled.run_counted)
    assert slots[2] - slots[1] == 2 * (slots[1] - slots[0]) > 0


def test_branch_on_state__costs_by_state() -> None:
    definition = FOUND["Sel"]
    a, b, order = random(20), random(20), RNG.permutation(20).astype("u4")
    wanted = [a[np.argsort(order)], b + a[order], np.fmax(a, b)]
    for mode in range(3):
        np.testing.assert_array_equal(run(definition, a=a, b=b, order=order, mode=mode)["b"], wanted[mode])
    vertices: list[dict[str, Any]] = [{"a": a, "b": b, "order": order, "mode": mode} for mode in range(3)]
    slots = build_tables(definition, vertices).count(compile_codelet(definition).slots or 0)
    assert slots[1] > slots[0] > 0


def test_nested_loops__multiply_matrices() -> None:
    a, b = random(24), random(30)
    done = run(FOUND["Nested"], A=a, B=b, C=zeros(20), m=4, n=5, k=6)["C"]
    np.testing.assert_allclose(done.reshape(4, 5), a.reshape(4, 6) @ b.reshape(6, 5), rtol=1e-5, atol=1e-6)


def test_triangular_loops__factor__with_slots_in_closed_form() -> None:
    matrix = (20 * np.eye(8) + np.ones((8, 8))).astype("f4")
    done = run(FOUND["Tri"], L=matrix.reshape(-1), n=8)["L"]
    np.testing.assert_allclose(np.tril(done.reshape(8, 8)), np.linalg.cholesky(matrix.astype("f8")), rtol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_triangular_loops__of_every_size__are_counted_alike(n: int) -> None:
    run(FOUND["Tri"], L=np.eye(max(n, 1), dtype="f4").reshape(-1), n=n)
