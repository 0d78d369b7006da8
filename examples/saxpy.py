"""A codelet on six tiles, run a hundred times: y += 2 x."""

from __future__ import annotations

import numpy as np

import abele as ab
from abele import InOut, Input, Vector, f32


@ab.codelet
class Saxpy(ab.Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]
    a: f32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] += self.a * self.x[i]


def saxpy() -> ab.Engine:
    graph = ab.Graph(ab.systems.bow_2000())
    x = graph.variable(f32, (6, 1000), name="x").map_rows(range(6))
    y = graph.variable(f32, (6, 1000), name="y").map_rows(range(6))
    step = graph.compute_set("step")
    step.vertices(Saxpy, tile=range(6), x=x, y=y, a=2.0)  # one vertex a row; step.vertex(...) makes one
    engine = ab.Engine(graph, ab.Repeat(100, ab.Execute(step)))
    engine["x"] = np.ones((6, 1000), "f4")
    engine["y"] = np.zeros((6, 1000), "f4")
    engine.run()
    return engine


if __name__ == "__main__":
    with saxpy() as finished:
        print(finished["y"], finished.report.summary(), sep="\n")
