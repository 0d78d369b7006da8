"""Two adder vertices on two tiles: Poplar's introduction in this library's own style.

``adder_vertex_poplar.py`` is the same program line by line under Poplar's names.
"""

from __future__ import annotations

import numpy as np

import abele as ab
from abele import Input, Output, f32


@ab.codelet
class Adder(ab.Vertex):
    x: Input[f32]
    y: Input[f32]
    z: Output[f32]
    bias: f32

    def compute(self):
        self.z = self.x + self.y + self.bias


def adder() -> ab.Engine:
    """The program, compiled: ``t2[0] = t1[1, 1] + t1[3, 1] + 0.5`` and ``t2[3] = t1[0, 3] + t1[2, 2] + 0.5``."""
    graph = ab.Graph("gc200")
    t1 = graph.variable(f32, (4, 5), name="t1")
    t1[:, :2].map(0)
    t1[:, 2:].map(1)
    t2 = graph.variable(f32, 4, name="t2").map(2)
    step = graph.compute_set("add")
    step.vertex(Adder, tile=0, x=t1[1, 1], y=t1[3, 1], z=t2[0], bias=0.5)
    step.vertex(Adder, tile=1, x=t1[0, 3], y=t1[2, 2], z=t2[3], bias=0.5)
    return ab.Engine(graph, ab.Execute(step))


def main() -> np.ndarray:
    """Run it on the numbers 0 to 19; returns the two results."""
    with adder() as engine:
        engine["t1"] = np.arange(20).reshape(4, 5)
        engine.run()
        t2 = engine["t2"]
        print(f"t2[0] = {t2[0]}, t2[3] = {t2[3]}")
        print(engine.report.summary())
    return t2[[0, 3]]


if __name__ == "__main__":
    main()
