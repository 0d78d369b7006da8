"""The heat equation on a 2-D grid that four IPUs share.

A plate starts cold, with two hot edges. Each tile of a Bow-2000 holds one block of the grid. In every step its six
workers update the block's rows, and exchange brings the edges of the neighbours' blocks, also from one IPU to another.
"""

from __future__ import annotations

import argparse

import numpy as np

import abele as ab
from abele import Input, Output, Vector, f32

TILE_GRID = (64, 92)
"""Blocks along both sides of the plate: one for each of the 4 × 1,472 tiles."""


@ab.codelet
class Diffuse(ab.MultiVertex):
    """One step of the block that ``after`` shows; ``before`` is the same block with a border of one cell."""

    before: Vector[Input[Vector[f32]]]
    after: Vector[Output[Vector[f32]]]
    alpha: f32

    def compute(self, worker_id):
        height = len(self.after)
        for r in range(worker_id * height // 6, (worker_id + 1) * height // 6):
            north = self.before[r]
            row = self.before[r + 1]
            south = self.before[r + 2]
            after = self.after[r]
            for c in range(len(after)):
                around = (north[c + 1] + south[c + 1]) + (row[c] + row[c + 2])
                after[c] = row[c + 1] + self.alpha * (around - 4.0 * row[c + 1])


def add_step(graph, before, after, block, alpha):
    """A compute set that diffuses all cells but the outermost of ``before`` into ``after``, one block per tile."""
    height, width = block
    down, across = (before.shape[0] - 2) // height, (before.shape[1] - 2) // width
    tiles = np.arange(down * across)
    top, left = tiles // across * height, tiles % across * width
    step = graph.compute_set("diffuse")
    step.vertices(
        Diffuse,
        tile=tiles,
        before=block_rows(before, top, left, height + 2, width + 2),
        after=block_rows(after, top + 1, left + 1, height, width),
        alpha=alpha,
    )
    return step


def block_rows(plate, top, left, height, width):
    """The rows of each block, for a field of rows: regions, the region of each row, the rows of each vertex."""
    row = (top[:, None] + np.arange(height)).reshape(-1)
    start = np.stack([row, np.repeat(left, height)], axis=1)
    regions = ab.boxes(plate, start, [1, width])
    return regions, np.arange(len(row)), np.arange(len(top) + 1) * height


def map_blocks(plate, block):
    """Place each cell on the tile of its block; the outermost cells go with the nearest block."""
    sides = zip(block, plate.shape, strict=True)
    edges = [np.array([0, *range(1 + side, extent - 1, side), extent]) for side, extent in sides]
    down, across = (len(edge) - 1 for edge in edges)
    tile = np.arange(down * across)
    start = np.stack([edges[0][tile // across], edges[1][tile % across]], axis=1)
    end = np.stack([edges[0][tile // across + 1], edges[1][tile % across + 1]], axis=1)
    plate.graph.map_regions(ab.boxes(plate, start, end - start), tile)


def heat(block=(12, 8), steps=100, alpha=0.2, system="bow-2000", tile_grid=TILE_GRID):
    """An engine with a plate that is hot along its top and left edges, for ``steps`` steps (an even number)."""
    shape = (tile_grid[0] * block[0] + 2, tile_grid[1] * block[1] + 2)
    graph = ab.Graph(system)
    start = np.zeros(shape, np.float32)
    start[0, :], start[:, 0] = 1.0, 1.0
    plates = [graph.variable(f32, shape, name=name, initial=start) for name in ("plate", "next plate")]
    for plate in plates:
        map_blocks(plate, block)
    there = add_step(graph, plates[0], plates[1], block, alpha)
    back = add_step(graph, plates[1], plates[0], block, alpha)
    program = ab.Repeat(steps // 2, ab.Sequence(ab.Execute(there), ab.Execute(back)))
    return ab.Engine(graph, program)


def reference(start, steps, alpha=0.2):
    """The same in NumPy, in float64."""
    plate = np.array(start, np.float64)
    for _ in range(steps):
        inner = plate[1:-1, 1:-1]
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        plate[1:-1, 1:-1] = inner + alpha * (around - 4 * inner)
    return plate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="time steps, an even number")
    steps = parser.parse_args().steps
    with heat(steps=steps) as engine:
        start = engine["plate"]
        engine.run()
        error = np.abs(engine["plate"] - reference(start, steps)).max()
        print(f"{start.shape[0]} x {start.shape[1]} cells, {steps} steps; largest error against float64 {error:.1e}")
        print(engine.report.summary())


if __name__ == "__main__":
    main()
