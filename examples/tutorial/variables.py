"""Variables: storage on tiles, views of it, copies between them, and reading from the host."""

from __future__ import annotations

import numpy as np

import abele as ab
from abele import f32


def build() -> ab.Engine:
    graph = ab.Graph("bow")  # one IPU: 1,472 tiles

    # A variable is an array of one type. It has no place until its elements are mapped to tiles.
    v1 = graph.variable(f32, (4,), name="v1")
    for i in range(4):
        v1[i].map(i)  # a slice is a view: mapping it maps part of v1

    # A constant has its contents in the program. It is on tile 0 until mapped elsewhere.
    c1 = graph.constant(f32, (4,), [1.0, 1.5, 2.0, 2.5], name="c1")

    # Views can be turned, joined and repeated; nothing moves.
    v2 = graph.variable(f32, (2, 4), name="v2").map_rows([5, 6])
    v3 = graph.variable(f32, (4, 4), name="v3").map_linear(min_elements=4)

    program = ab.Sequence()
    program.add(ab.Copy(c1, v1))
    program.add(ab.PrintTensor(v1, "v1"))
    program.add(ab.Copy(v1, v2[1]))
    program.add(ab.Copy(ab.concat([v2, v2[::-1]]), v3.T))
    return ab.Engine(graph, program)


def main() -> None:
    with build() as engine:
        engine["v2"] = np.array([[9, 8, 7, 6], [0, 0, 0, 0]], np.float32)
        engine.run()
        print("v2 is", engine["v2"].tolist())
        print("v3 is", engine["v3"].tolist())
        print("v1 lies on tiles", engine.graph.whole(engine.graph.find("v1")[0]).mapping.tile.tolist())


if __name__ == "__main__":
    main()
