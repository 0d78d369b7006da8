"""Vertices: a codelet of one's own, its instances on tiles, and the superstep that runs them."""

from __future__ import annotations

import numpy as np

import abele as ab
from abele import Input, Output, Vector, f32


@ab.codelet
class Sum(ab.Vertex):
    """Adds up a vector."""

    x: Input[Vector[f32]]
    total: Output[f32]

    def compute(self):
        total = 0.0
        for i in range(len(self.x)):
            total += self.x[i]
        self.total = total


def build() -> ab.Engine:
    graph = ab.Graph("bow")
    v = graph.variable(f32, (5, 1000), name="v").map_rows(range(5))
    sums = graph.variable(f32, (5,), name="sums").map_linear(min_elements=1)

    # One vertex after another, as in C++ ...
    first = graph.compute_set("first")
    vertex = first.vertex(Sum, tile=0)
    vertex["x"] = v[0]
    vertex["total"] = sums[0]

    # ... or many at once: row i of v and element i of sums go to vertex i, on tile i.
    others = graph.compute_set("others")
    others.vertices(Sum, tile=range(1, 5), x=v[1:], total=sums[1:])

    return ab.Engine(graph, ab.Sequence(ab.Execute(first), ab.Execute(others)))


def main() -> None:
    v = np.random.default_rng(0).random((5, 1000), dtype=np.float32)
    with build() as engine:
        engine["v"] = v
        engine.run()
        print("sums    ", engine["sums"].tolist())
        print("in NumPy", v.sum(axis=1).tolist())
        print(engine.report.summary())


if __name__ == "__main__":
    main()
