"""Lattice-Boltzmann flow around obstacles: D2Q9 with the BGK collision, on every tile of a Bow.

Nine populations of particles live in each cell and move to its neighbours. One superstep is one time step: exchange
brings the populations that stream in from neighbouring blocks, vertices pull them together and collide. Cells inside
an obstacle send back what hits them (bounce-back). The flow runs in a channel that is periodic along x, between walls
at top and bottom, pushed by a constant force.
"""

from __future__ import annotations

import argparse

import numpy as np

import abele as ab
from abele import Input, Output, Vector, f32, u8

VELOCITIES = np.array([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, -1), (-1, 1)])
"""Steps in (y, x) of the nine populations."""
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]
WEIGHTS = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
W0, W1, W5 = (float(np.float32(WEIGHTS[i])) for i in (0, 1, 5))


@ab.codelet
class Flow(ab.MultiVertex):
    """One time step of a block of cells.

    ``came`` has nine groups of rows: each population of the block's cells where it comes from, one step before.
    ``left`` has as many rows: the populations after the collision. ``solid`` has the block's rows of the obstacle map.
    """

    came: Vector[Input[Vector[f32]]]
    solid: Vector[Input[Vector[u8]]]
    left: Vector[Output[Vector[f32]]]
    omega: f32
    force: f32

    def compute(self, worker_id):
        height = len(self.solid)
        for y in range(worker_id, height, self.num_workers):
            self.row(y, height)

    def row(self, y, height):
        solid = self.solid[y]
        f0 = self.came[y]
        f1 = self.came[height + y]
        f2 = self.came[2 * height + y]
        f3 = self.came[3 * height + y]
        f4 = self.came[4 * height + y]
        f5 = self.came[5 * height + y]
        f6 = self.came[6 * height + y]
        f7 = self.came[7 * height + y]
        f8 = self.came[8 * height + y]
        g0 = self.left[y]
        g1 = self.left[height + y]
        g2 = self.left[2 * height + y]
        g3 = self.left[3 * height + y]
        g4 = self.left[4 * height + y]
        g5 = self.left[5 * height + y]
        g6 = self.left[6 * height + y]
        g7 = self.left[7 * height + y]
        g8 = self.left[8 * height + y]
        keep = 1.0 - self.omega
        for x in range(len(solid)):
            wall = solid[x] != 0
            rho = f0[x] + (f1[x] + f3[x]) + (f2[x] + f4[x]) + (f5[x] + f7[x]) + (f6[x] + f8[x])
            ux = ((f1[x] - f3[x]) + (f5[x] - f7[x]) + (f8[x] - f6[x])) / rho + self.force
            uy = ((f2[x] - f4[x]) + (f5[x] - f7[x]) + (f6[x] - f8[x])) / rho
            rest = 1.0 - 1.5 * (ux * ux + uy * uy)
            a = self.omega * W1 * rho
            b = self.omega * W5 * rho
            sum_ = ux + uy
            difference = uy - ux
            g0[x] = f0[x] if wall else keep * f0[x] + self.omega * W0 * rho * rest
            g1[x] = f3[x] if wall else keep * f1[x] + a * (rest + ux * (3.0 + 4.5 * ux))
            g3[x] = f1[x] if wall else keep * f3[x] + a * (rest - ux * (3.0 - 4.5 * ux))
            g2[x] = f4[x] if wall else keep * f2[x] + a * (rest + uy * (3.0 + 4.5 * uy))
            g4[x] = f2[x] if wall else keep * f4[x] + a * (rest - uy * (3.0 - 4.5 * uy))
            g5[x] = f7[x] if wall else keep * f5[x] + b * (rest + sum_ * (3.0 + 4.5 * sum_))
            g7[x] = f5[x] if wall else keep * f7[x] + b * (rest - sum_ * (3.0 - 4.5 * sum_))
            g6[x] = f8[x] if wall else keep * f6[x] + b * (rest + difference * (3.0 + 4.5 * difference))
            g8[x] = f6[x] if wall else keep * f8[x] + b * (rest - difference * (3.0 - 4.5 * difference))


def roll(plane, step, dim):
    """The view of ``plane`` moved by ``step`` along ``dim``, around the edge."""
    at = -step % plane.shape[dim]
    return ab.concat([plane.slice(at, plane.shape[dim], dim), plane.slice(0, at, dim)], dim) if at else plane


def streamed(populations):
    """The view in which every cell holds what comes to it in the next step."""
    moved = [roll(roll(populations[i], int(v[0]), 0), int(v[1]), 1) for i, v in enumerate(VELOCITIES)]
    return ab.stack(moved)


def block_rows(view, tile_grid):
    """Rows of all planes of each tile's block: regions, the region of each row, the rows of each vertex."""
    planes, height, width = view.shape
    down, across = tile_grid
    h, w = height // down, width // across
    tile, plane, y = (i.reshape(-1) for i in np.indices((down * across, planes, h)))
    start = np.stack([plane, tile // across * h + y, tile % across * w], axis=1)
    return ab.boxes(view, start, [1, 1, w]), np.arange(len(tile)), np.arange(down * across + 1) * planes * h


def map_blocks(view, tile_grid):
    """Place all planes of each block on its tile."""
    planes, height, width = view.shape
    down, across = tile_grid
    tile = np.arange(down * across)
    start = np.stack([0 * tile, tile // across * (height // down), tile % across * (width // across)], axis=1)
    view.graph.map_regions(ab.boxes(view, start, [planes, height // down, width // across]), tile)


def cylinder(shape):
    """An obstacle map: walls at top and bottom, and a disc in the stream."""
    y, x = np.indices(shape)
    height, width = shape
    disc = (y - height / 2 + 0.5) ** 2 + (x - width / 4) ** 2 < (height / 8) ** 2
    return (disc | (y == 0) | (y == height - 1)).astype(np.uint8)


def flow(solid, steps=100, omega=1.6, force=1e-5, tile_grid=(32, 46), system="bow"):
    """An engine with fluid at rest around ``solid``, ready to run ``steps`` time steps (an even number)."""
    shape = (9, *solid.shape)
    graph = ab.Graph(system)
    rest = np.broadcast_to(WEIGHTS[:, None, None], shape).astype(np.float32)
    obstacle = graph.constant(u8, (1, *solid.shape), solid[None], name="obstacle")
    buffers = [graph.variable(f32, shape, name=name, initial=rest) for name in ("populations", "next populations")]
    for tensor in (obstacle, *buffers):
        map_blocks(tensor, tile_grid)
    there_and_back = []
    for before, after in (buffers, reversed(buffers)):
        step = graph.compute_set("flow")
        step.vertices(
            Flow,
            tile=range(tile_grid[0] * tile_grid[1]),
            came=block_rows(streamed(before), tile_grid),
            solid=block_rows(obstacle, tile_grid),
            left=block_rows(after, tile_grid),
            omega=omega,
            force=force,
        )
        there_and_back.append(ab.Execute(step))
    return ab.Engine(graph, ab.Repeat(steps // 2, ab.Sequence(*there_and_back)))


def velocity(populations):
    """Density and velocity (y, x) of every cell."""
    rho = populations.sum(axis=0)
    return rho, np.einsum("iyx,id->dyx", populations, VELOCITIES.astype(populations.dtype)) / rho


def reference(solid, steps, omega=1.6, force=1e-5):
    """The same in NumPy, in float64."""
    f = np.broadcast_to(WEIGHTS[:, None, None], (9, *solid.shape)).astype(np.float64)
    for _ in range(steps):
        f = np.stack([np.roll(f[i], tuple(v), axis=(0, 1)) for i, v in enumerate(VELOCITIES)])
        rho, u = velocity(f)
        u[1] += force
        along = np.einsum("id,dyx->iyx", VELOCITIES, u)
        equilibrium = WEIGHTS[:, None, None] * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * (u**2).sum(axis=0))
        f = np.where(solid, f[OPPOSITE], (1 - omega) * f + omega * equilibrium)
    return f


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="time steps, an even number")
    steps = parser.parse_args().steps
    solid = cylinder((128, 276))
    with flow(solid, steps) as engine:
        engine.run()
        populations = engine["populations"]
        error = np.abs(populations - reference(solid, steps)).max()
        speed = np.where(solid, 0, velocity(populations)[1][1])
        print(f"{solid.shape[0]} x {solid.shape[1]} cells, {steps} steps; largest error against float64 {error:.1e}")
        print(f"mean speed {speed.mean():.2e}, fastest {speed.max():.2e} cells a step")
        print(engine.report.summary())


if __name__ == "__main__":
    main()
