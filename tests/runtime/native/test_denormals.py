"""Denormal numbers in native code: zeros in all arithmetic on every thread, libraries' too, and exact in copies."""

from __future__ import annotations

import numpy as np
import pytest

from abele.graph import Copy, Graph, Sequence
from abele.numerics import f32
from abele.poplibs import poplin, popops
from abele.runtime import Engine

DENORMAL = np.float32(1e-40)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("way", ["loops", "packed", "mkl"])
def test_product__of_denormals_with_large_numbers__is_zero_on_every_thread(
    way: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "mkl":
        pytest.importorskip("torch")
        from abele.kernels.routines.multiply import loaded_library

        if loaded_library() is None:
            pytest.skip("this PyTorch has no MKL")
    monkeypatch.setenv("ABELE_PRODUCTS", way)
    graph, prog = Graph("bow-2000"), Sequence()
    x = graph.variable(f32, (96, 160), "x").map_linear()
    w = graph.variable(f32, (160, 144), "w").map_linear()
    y = poplin.matmul(graph, x, w, prog=prog, name="y")
    with Engine(graph, prog, threads=threads, keep=[x, w, y]) as engine:
        # If any thread kept denormals, its sums would be 160 · 1e-10.
        engine[x], engine[w] = np.full((96, 160), DENORMAL), np.full((160, 144), np.float32(1e30))
        engine.run()
        assert not engine[y].any()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_elements__denormal_operands_and_results__are_zeros_and_copies_exact(threads: int) -> None:
    graph, prog = Graph("bow-2000"), Sequence()
    x = graph.variable(f32, (4096,), "x").map_linear()
    moved = graph.variable(f32, (4096,), "moved").map_linear()
    raised = popops.mul(graph, x, 1e30, prog, "raised")
    lowered = popops.mul(graph, popops.add(graph, x, 1.0, prog, "one"), 1e-40, prog, "lowered")
    prog.add(Copy(x, moved))
    values = np.full(4096, DENORMAL)
    with Engine(graph, prog, threads=threads, keep=[x, moved, raised, lowered]) as engine:
        engine[x] = values
        engine.run()
        assert not engine[raised].any()
        assert not engine[lowered].any()
        np.testing.assert_array_equal(engine[moved].view(np.uint32), values.view(np.uint32))
