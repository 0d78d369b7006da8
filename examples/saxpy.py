"""A tile program by hand: y += a * x on six tiles, a hundred times, and what it costs on a Bow-2000."""

from __future__ import annotations

import numpy as np

import abele as ab
from abele import InOut, Input, Vector, f32

TILES = 6
ELEMENTS = 1000


@ab.codelet
class Saxpy(ab.Vertex):
    """One row of y += a * x."""

    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]
    a: f32

    def compute(self) -> None:
        """Add the scaled row."""
        for i in range(len(self.x)):
            self.y[i] += self.a * self.x[i]


def main() -> None:
    """Build, run, check and report."""
    graph = ab.Graph(ab.systems.bow_2000())
    x = graph.variable(f32, (TILES, ELEMENTS), name="x").map_rows(range(TILES))
    y = graph.variable(f32, (TILES, ELEMENTS), name="y").map_rows(range(TILES))
    step = graph.compute_set("step")
    step.vertices(Saxpy, tile=range(TILES), x=x, y=y, a=2.0)

    engine = ab.Engine(graph, ab.Repeat(100, ab.Execute(step)))
    engine["x"] = np.ones((TILES, ELEMENTS), np.float32)
    engine["y"] = np.zeros((TILES, ELEMENTS), np.float32)
    engine.run()
    assert np.all(engine["y"] == 200.0)
    print(engine.report.summary())


if __name__ == "__main__":
    main()
