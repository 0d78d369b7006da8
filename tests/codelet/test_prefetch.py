"""Prefetches of the next vertex' rows: made for blocks of short rows, and without effect on results."""

from __future__ import annotations

import numpy as np
import pytest

import abele as ab
from abele import Input, Output, Vector, f32
from abele.codelet.driver import value_module
from abele.codelet.sizes import UNKNOWN, Size, Sizes
from abele.codelet.statements import read_compute


@ab.codelet
class Doubled(ab.MultiVertex):
    x: Vector[Input[Vector[f32]]]
    y: Vector[Output[Vector[f32]]]

    def compute(self, worker_id):
        for r in range(worker_id, len(self.x), self.num_workers):
            for c in range(len(self.x[r])):
                self.y[r][c] = 2.0 * self.x[r][c]


def sizes(rows: int, length: int) -> Sizes:
    return Sizes.of([Size("x", rows, length), Size("y", rows, length)])


@pytest.mark.parametrize(
    ("known", "made"),
    [(sizes(8, 30), True), (sizes(8, 200), False), (sizes(1, 30), False), (sizes(5000, 8), False), (UNKNOWN, False)],
    ids=["short rows", "long rows", "one row", "too many rows", "unknown sizes"],
)
def test_value_module__rows_of_the_next_vertex__are_asked_for_where_they_are_short(known: Sizes, made: bool) -> None:
    definition = Doubled.codelet
    assert ("llvm.prefetch" in value_module(definition, read_compute(definition), sizes=known)) == made


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_engine__blocks_of_short_rows__are_all_run(threads: int) -> None:
    graph, blocks, shape = ab.Graph("bow"), 37, (37 * 7, 11)
    x, y = (graph.variable(f32, shape, name).map_linear() for name in "xy")
    rows = [[t[b * 7 + r] for r in range(7)] for t in (x, y) for b in range(blocks)]
    step = graph.compute_set("double")
    step.vertices(Doubled, tile=np.arange(blocks), x=rows[:blocks], y=rows[blocks:])
    engine = ab.Engine(graph, ab.Execute(step), threads=threads)
    given = np.arange(37 * 7 * 11, dtype=np.float32).reshape(shape)
    engine["x"] = given
    engine.run()
    np.testing.assert_array_equal(engine["y"], 2 * given)
