"""Shares of threads: all units once, about the same work for each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import InOut, Vector, Vertex, codelet
from abele.graph import Execute, Graph, Repeat
from abele.numerics import f32, i32
from abele.runtime import Engine
from abele.runtime.supersteps.native_supersteps import cost_cuts, even_cuts


@given(costs=st.lists(st.integers(0, 1000), min_size=1, max_size=200), threads=st.integers(1, 7))
def test_cost_cuts__of_any_costs__are_within_one_unit_of_equal_work(costs, threads):
    work = np.array(costs)
    cuts = cost_cuts(work, threads)
    if cuts is None:
        cuts = even_cuts(len(work), threads)
        busiest = max(work[a:b].sum() for a, b in pairwise(cuts))
        assert threads == 1 or len(work) < 2 or busiest <= 1.05 * work.sum() / threads
        return
    assert cuts[0] == 0
    assert cuts[-1] == len(work)
    assert (np.diff(cuts) >= 0).all()
    shares = [work[a:b].sum() for a, b in pairwise(cuts)]
    assert max(shares) <= work.sum() / threads + work.max()


@pytest.mark.parametrize(("num", "threads"), [(0, 2), (1, 3), (7, 2), (10, 4)])
def test_even_cuts__as_the_virtual_machine_has_them(num, threads):
    cuts = even_cuts(num, threads)
    assert cuts[0] == 0
    assert cuts[-1] == num
    assert np.ptp(np.diff(cuts)) <= 1


@codelet
class Collatz(Vertex):
    """Steps until 1: the work depends on the data alone."""

    x: InOut[Vector[i32]]

    def compute(self):
        for i in range(len(self.x)):
            steps = 0
            n = self.x[i]
            while n > 1:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                steps += 1
            self.x[i] = steps


@codelet
class Sums(Vertex):
    x: InOut[Vector[f32]]

    def compute(self):
        for i in range(1, len(self.x)):
            self.x[i] += self.x[i - 1]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_vertices__of_unequal_cost__have_the_same_results_on_any_threads(threads):
    graph = Graph("bow-2000")
    numbers = graph.variable("i32", (64, 64), "numbers").map_rows(range(64))
    lines = graph.variable("f32", 64 * 65 // 2 * 8, "lines", initial=1.0).map_linear()
    compute_set = graph.compute_set()
    compute_set.vertices(Collatz, tile=range(64), x=numbers)
    ends = np.cumsum(np.arange(65) * 8)
    for n in range(64):
        compute_set.vertex(Sums, tile=n, x=lines[int(ends[n]) : int(ends[n + 1])])
    start = np.where(np.arange(64)[:, None] < 60, 1, 27) * np.ones((1, 64), np.int32)
    with Engine(graph, Repeat(1, Execute(compute_set)), mode="tiles", threads=threads) as engine:
        # Shares are cut anew by what earlier runs counted; the results are the same all the same.
        for _ in range(3):
            engine["numbers"] = start
            engine["lines"] = 1.0
            engine.run()
            np.testing.assert_array_equal(engine["numbers"], np.where(start == 27, 111, 0))
            expected = np.concatenate([np.arange(1, 8 * n + 1) for n in range(1, 65)])
            np.testing.assert_array_equal(engine["lines"], expected)
