"""Matrix times vector, optimised: columns are split too, and partial sums added in a second superstep.

With one vertex per row, every tile needs the whole vector, and the few long vertices of a tile balance badly over its
six workers. Splitting the columns in parts means less of the vector for each tile and more, shorter vertices, at the
price of a reduction. The best number of parts is decided before the program is built, by a cost function of the
machine's constants alone, and checked against the full model.
"""

from __future__ import annotations

import argparse

import numpy as np

import abele as ab
from abele import Input, Output, Vector, f32
from abele.poplar import Target

from matvec import DotProduct, multiply


@ab.codelet
class Reduce(ab.Vertex):
    """Adds up the partial sums of a row."""

    partials: Input[Vector[f32]]
    out: Output[f32]

    def compute(self):
        total = 0.0
        for i in range(len(self.partials)):
            total += self.partials[i]
        self.out = total


def estimated_cycles(target: Target, rows: int, columns: int, parts: int) -> int:
    """Cycles of compute and exchange of both supersteps, by the machine's constants alone."""
    tiles, workers, per_cycle = target.getNumTiles(), target.getNumWorkerContexts(), target.getExchangeBytesPerCycle()
    part = -(-columns // parts)
    vertices = max(-(-rows * parts // tiles), 1)
    reductions = max(-(-rows // tiles), 1)
    exchange = -(-vertices // rows) * part * 4 // per_cycle + reductions * parts * 4 // per_cycle
    multiply_cycles = -(-vertices // workers) * workers * (5 + (part + 1) // 2)
    reduce_cycles = -(-reductions // workers) * workers * (5 + (parts + 1) // 2)
    return int(exchange + multiply_cycles + reduce_cycles)


def best_parts(target: Target, rows: int, columns: int) -> int:
    """The number of parts that the estimate likes best."""
    return min(range(1, columns), key=lambda parts: estimated_cycles(target, rows, columns, parts))


def build(rows: int, columns: int, parts: int, system: str = "bow") -> ab.Engine:
    graph = ab.Graph(system)
    matrix = graph.variable(f32, (rows, columns), name="matrix")
    vector = graph.variable(f32, (columns,), name="vector").map_linear()
    result = graph.variable(f32, (rows,), name="result")
    partials = graph.variable(f32, (rows, parts), name="partials")

    # Piece p of row r is vertex r * parts + p; vertices go to the tiles in equal shares, with the pieces they read.
    edges = np.arange(parts + 1) * columns // parts
    row, part = (index.reshape(-1) for index in np.indices((rows, parts)))
    start = np.stack([row, edges[part]], axis=1)
    size = np.stack([np.ones_like(row), np.diff(edges)[part]], axis=1)
    pieces = ab.boxes(matrix, start, size)
    tile = np.arange(rows * parts) * graph.num_tiles // (rows * parts)
    graph.map_regions(pieces, tile)
    partials.flatten().map_rows(tile)
    multiply_step = graph.compute_set("multiply")
    columns_of = ab.boxes(vector, edges[:-1, None], np.diff(edges)[:, None])
    multiply_step.vertices(DotProduct, tile=tile, a=pieces, b=(columns_of, part), out=partials.flatten())

    home = np.arange(rows) * graph.num_tiles // rows
    result.map_rows(home)
    reduce_step = graph.compute_set("reduce")
    reduce_step.vertices(Reduce, tile=home, partials=partials, out=result)

    ways = [graph.host_stream_in(f"{t.name} in", f32, t.shape) for t in (matrix, vector)]
    back = graph.host_stream_out("result out", f32, (rows,))
    steps = [ab.Execute(multiply_step), ab.Execute(reduce_step)]
    program = ab.Sequence(ab.Copy(ways[0], matrix), ab.Copy(ways[1], vector), *steps, ab.Copy(result, back))
    return ab.Engine(graph, program)


def device_cycles(report: ab.Report) -> int:
    """Cycles of the two supersteps, without the host's streams."""
    return sum(int(row["cycles"]) for row in report.steps.rows() if row["kind"] == "compute")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=1_000)
    sizes = parser.parse_args()
    rows, columns = sizes.rows, sizes.columns
    best = best_parts(Target(ab.systems.get("bow")), rows, columns)
    print(f"{rows} x {columns}; the estimate's choice is {best} parts")
    print("parts   estimate    modelled")
    for parts in sorted({1, 2, 4, best, 2 * best, 32}):
        with build(rows, columns, parts) as engine:
            estimate = estimated_cycles(Target(ab.systems.get("bow")), rows, columns, parts)
            print(f"{parts:>5} {estimate:>10,} {device_cycles(engine.report):>11,}")
    rng = np.random.default_rng(0)
    matrix, vector = rng.random((rows, columns), dtype=np.float32), rng.random(columns, dtype=np.float32)
    with build(rows, columns, best) as engine:
        error = np.abs(multiply(engine, matrix, vector) / (matrix.astype(float) @ vector) - 1).max()
        print(f"largest relative error {error:.1e}")


if __name__ == "__main__":
    main()
