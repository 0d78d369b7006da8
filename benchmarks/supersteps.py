"""Cost of a superstep on the host: a barrier, a superstep with next to nothing to do, and one vertex more.

python benchmarks/supersteps.py [--json] [--threads N ...]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import abele as ab
from abele import Input, Output, Vector, f32

ROUNDS = 2_000
REPEATS = 25


@ab.codelet
class Twice(ab.Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i] * 2.0


def workload(num_vertices: int, elements: int) -> tuple[ab.Graph, ab.Program]:
    """A superstep of vertices that each read and write ``elements`` elements."""
    graph = ab.Graph("bow-2000")
    if num_vertices == 0:
        return graph, ab.Sequence()
    tiles = np.arange(num_vertices) % graph.num_tiles
    x, y = (graph.variable(f32, (num_vertices, elements), name).map_rows(tiles) for name in "xy")
    step = graph.compute_set("twice")
    step.vertices(Twice, tile=tiles, x=x, y=y)
    return graph, ab.Execute(step)


def best_seconds(engine: ab.Engine) -> float:
    """Shortest wall time of a run: other processes can only lengthen it."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        engine.run()
        times.append(time.perf_counter() - start)
    return min(times)


def rows(threads: list[int]) -> Iterator[dict[str, Any]]:
    cases = {"barrier": (0, 0), "empty superstep": (1, 1), "vertices of 1": (5888, 1), "vertices of 256": (5888, 256)}
    for name, (num_vertices, elements) in cases.items():
        graph, body = workload(num_vertices, elements)
        rounds = ROUNDS if num_vertices < 100 else 50
        for count in threads:
            with ab.Engine(graph, [ab.Repeat(rounds, body), ab.Sequence()], mode="tiles", threads=count) as engine:
                engine.run(1)
                seconds = best_seconds(engine) / rounds
            yield {
                "workload": name,
                "threads": count,
                "ns_a_superstep": round(seconds * 1e9, 1),
                "ns_a_vertex": round(seconds * 1e9 / num_vertices, 2) if num_vertices else None,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    options = parser.parse_args()
    table = list(rows(options.threads))
    if options.json:
        print(json.dumps({"rows": table}))
        return
    print(f"{'workload':<18} {'threads':>7} {'ns a superstep':>15} {'ns a vertex':>12}")
    for row in table:
        vertex = "" if row["ns_a_vertex"] is None else f"{row['ns_a_vertex']:.2f}"
        print(f"{row['workload']:<18} {row['threads']:>7} {row['ns_a_superstep']:>15,.1f} {vertex:>12}")


if __name__ == "__main__":
    main()
