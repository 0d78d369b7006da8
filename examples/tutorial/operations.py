"""Operations: library functions add vertices to the graph and steps to the program."""

from __future__ import annotations

import numpy as np

import abele as ab
from abele import f32, popops
from abele.poplibs.popops.expr import exp


def build() -> ab.Engine:
    graph = ab.Graph("bow")
    v1 = graph.variable(f32, (2, 2), name="v1").map_linear(min_elements=1)
    v2 = graph.variable(f32, (2, 2), name="v2").map_linear(min_elements=1)
    program = ab.Sequence()

    # Every function takes the graph, its operands and the program that it adds to, and gives a new, mapped tensor.
    total = popops.add(graph, v1, v2, program, "total")
    popops.scaled_add_to(graph, total, v1, 0.5, program)  # in place: total += 0.5 v1

    # A whole expression is one operation: one codelet is made for it, and the data is read once.
    mixed = popops.map(graph, lambda t, v: exp(-t) * v + 1.0, [total, v2], program, "mixed")

    # Reductions run in as many stages as the data's place on the tiles asks for.
    rows = popops.reduce(graph, mixed, [1], "ADD", program, name="rows")

    # The host reads results by name. Fused kernels keep nothing that nobody asks for: ``keep`` asks.
    for name, tensor in {"total": total, "mixed": mixed, "rows": rows}.items():
        graph.expose(tensor, name, writable=False)
    return ab.Engine(graph, program, keep=[total, mixed, rows])


def reference(v1: np.ndarray, v2: np.ndarray) -> dict[str, np.ndarray]:
    total = v1 + v2 + 0.5 * v1
    mixed = np.exp(-total) * v2 + 1
    return {"total": total, "mixed": mixed, "rows": mixed.sum(axis=1)}


def main() -> None:
    v1, v2 = np.array([[1, 2], [3, 4]], np.float32), np.array([[4, 3], [2, 1]], np.float32)
    with build() as engine:
        engine["v1"], engine["v2"] = v1, v2
        engine.run()
        for name in reference(v1, v2):
            print(f"{name:<10} {engine[name].tolist()}")
        print(engine.report.summary())


if __name__ == "__main__":
    main()
