"""Matrix times vector: one vertex for each row of the matrix."""

from __future__ import annotations

import argparse

import numpy as np

import abele as ab
from abele import Input, Output, Vector, f32


@ab.codelet
class DotProduct(ab.Vertex):
    """The product of two vectors."""

    a: Input[Vector[f32]]
    b: Input[Vector[f32]]
    out: Output[f32]

    def compute(self):
        total = 0.0
        for i in range(len(self.a)):
            total += self.a[i] * self.b[i]
        self.out = total


def build(rows: int, columns: int, system: str = "bow") -> ab.Engine:
    graph = ab.Graph(system)
    tile = np.arange(rows) * graph.num_tiles // rows  # rows in equal shares, in order
    matrix = graph.variable(f32, (rows, columns), name="matrix").map_rows(tile)
    vector = graph.variable(f32, (columns,), name="vector").map_linear()
    result = graph.variable(f32, (rows,), name="result").map_rows(tile)
    step = graph.compute_set("multiply")
    step.vertices(DotProduct, tile=tile, a=matrix, b=ab.shared(vector), out=result)

    # The host's data comes and goes through streams.
    ways = [graph.host_stream_in(f"{t.name} in", f32, t.shape) for t in (matrix, vector)]
    back = graph.host_stream_out("result out", f32, (rows,))
    program = ab.Sequence(ab.Copy(ways[0], matrix), ab.Copy(ways[1], vector), ab.Execute(step), ab.Copy(result, back))
    return ab.Engine(graph, program)


def multiply(engine: ab.Engine, matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The product, by one run of the engine."""
    result = np.empty(len(matrix), np.float32)
    engine.connect("matrix in", matrix)
    engine.connect("vector in", vector)
    engine.connect("result out", result)
    engine.run()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=1_000)
    sizes = parser.parse_args()
    rng = np.random.default_rng(0)
    matrix = rng.random((sizes.rows, sizes.columns), dtype=np.float32)
    vector = rng.random(sizes.columns, dtype=np.float32)
    with build(sizes.rows, sizes.columns) as engine:
        error = np.abs(multiply(engine, matrix, vector) / (matrix.astype(float) @ vector) - 1).max()
        print(f"{sizes.rows} x {sizes.columns}: largest relative error {error:.1e}")
        print(engine.report.summary())


if __name__ == "__main__":
    main()
