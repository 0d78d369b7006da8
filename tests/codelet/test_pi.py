"""Monte-Carlo pi on every tile of a Bow, end to end, against what silicon took.

Source: machine reference §1.2 and §7.1: 1,000 iterations on each of 1,472 tiles took 90,084 cycles.
"""

from __future__ import annotations

import numpy as np
import pytest

import abele as ab
from abele.codelet import Output, Vector, Vertex, codelet, random_u32
from abele.numerics import f32, i32, u32

MEASURED_CYCLES = 90_084
ITERATIONS = 1000


@codelet
class Pi(Vertex):
    """Written straight down."""

    seed: Vector[u32]
    iterations: i32
    hits: Output[u32]

    def compute(self):
        hits = u32(0)
        for i in range(self.iterations):
            x = f32(random_u32(self.seed[0], self.seed[1], 0, i)) / 4294967296.0
            y = f32(random_u32(self.seed[0], self.seed[1], 1, i)) / 4294967296.0
            hits += x * x + y * y < 1.0
        self.hits = hits


@codelet
class BranchingPi(Vertex):
    """With a branch, so that what it costs depends on data and is counted as it runs."""

    seed: Vector[u32]
    iterations: i32
    hits: Output[u32]

    def compute(self):
        hits = u32(0)
        for i in range(self.iterations):
            x = f32(random_u32(self.seed[0], self.seed[1], 0, i)) / 4294967296.0
            y = f32(random_u32(self.seed[0], self.seed[1], 1, i)) / 4294967296.0
            if x * x + y * y < 1.0:
                hits += 1
        self.hits = hits


@pytest.mark.parametrize("kind", [Pi, BranchingPi])
def test_pi__on_every_tile_of_a_bow__takes_what_silicon_took_within_15_percent(kind: type) -> None:
    system = ab.systems.get("bow-2000:1")
    graph = ab.Graph(system)
    tiles = range(system.num_tiles)
    hits = graph.variable(u32, (len(tiles),), "hits").map_linear(1, 1)
    step = graph.compute_set("pi")
    seeds = np.stack([np.arange(len(tiles)), np.full(len(tiles), 7)], axis=1)
    step.vertices(kind, tile=tiles, seed=seeds, iterations=ITERATIONS, hits=hits)
    program = ab.Execute(step)
    engine = ab.Engine(graph, program)
    engine.run()
    assert 4 * engine["hits"].sum() / (ITERATIONS * len(tiles)) == pytest.approx(np.pi, abs=0.01)
    assert len(tiles) == 1472
    cycles = engine.report.total_cycles
    assert cycles == pytest.approx(MEASURED_CYCLES, rel=0.15)
