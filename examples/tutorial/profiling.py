"""Profiling: where the cycles and the memory of a program go, and what a better mapping does about it."""

from __future__ import annotations

import numpy as np

import abele as ab
from abele import InOut, Vector, f32


@ab.codelet
class Polish(ab.Vertex):
    """A few Newton steps towards the square root of each element."""

    x: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            root = 1.0
            for _ in range(8):
                root = 0.5 * (root + self.x[i] / root)
            self.x[i] = root


def build(tiles: np.ndarray) -> ab.Executable:
    """1,472 rows of 96 elements, row i worked on by tile ``tiles[i]``; the rows themselves lie one on each tile."""
    graph = ab.Graph("bow")
    x = graph.variable(f32, (1472, 96), name="x").map_rows(range(1472))
    step = graph.compute_set("polish")
    step.vertices(Polish, tile=tiles, x=x)
    return ab.compile_program(graph, ab.Execute(step))


MAPPINGS = {
    "all on the first 64 tiles": np.arange(1472) % 64,
    "each on the tile after its data": (np.arange(1472) + 1) % 1472,
    "each where its data is": np.arange(1472),
}


def main() -> None:
    for name, tiles in MAPPINGS.items():
        report = build(tiles).report
        cycles = report.cycles()
        print(f"vertices {name}")
        print(f"  {cycles.total:>9,.0f} cycles: compute {cycles.compute:,.0f}, exchange {cycles.exchange:,.0f}")
        print(f"  {report.steps['exchanged_bytes'].sum():>9,} bytes exchanged, tile balance {report.tile_balance:.0%}")
    print()
    print("A worker takes one turn in six, so one vertex a tile leaves five sixths of the tile idle.")
    print(report.summary())


if __name__ == "__main__":
    main()
