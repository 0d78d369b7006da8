"""Real-time control of adaptive optics: a telescope's matrix in tiles of low rank, times a vector of slopes.

Wavefront sensors measure slopes of the light's phase on sub-apertures of the pupil, each sensor towards a guide star of
its own; deformable mirrors at several altitudes correct it. A matrix turns 19,078 slopes into 4,802 commands, within a
fraction of a millisecond and always at the same time. Its entries follow from the turbulence alone (von Kármán), and
change smoothly with the distance between points, so tiles of it have low rank.

The matrices are computed here, not taken from an instrument: ``covariance`` between phase at the actuators and slopes,
``reconstructor`` of least mean square error from it (small size), and two kernels of distance.
"""

from __future__ import annotations

import argparse

import numpy as np

from abele import lowrank
from abele.compiler import compile_program
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.poplibs import poplin

DIAMETER = 8.0
"""Of the pupil, in metres."""
OUTER_SCALE = 25.0
"""Size of the largest eddies, in metres."""
ALTITUDES = np.array([0.0, 6000.0, 13500.0])
"""Of layers and mirrors, in metres."""
STARS_ARCSEC = 17.5
"""Angle of the guide stars from the axis."""
SIZES = {"small": (512, 1600, 4), "medium": (1200, 4800, 4), "full": (4802, 19078, 8)}
"""Actuators, slopes and guide stars; the full size is that of MAVIS on the VLT."""
TILES = {"small": 64, "medium": 128, "full": 128}
"""Rows and columns of a tile."""
MACHINES = {
    "GC200": systems.get("gc200"),
    "Bow": systems.get("bow"),
    "2 Bow": systems.get("bow-2000").with_ipus(2),
    "4 Bow": systems.get("bow-2000"),
}


def disc(count: int, diameter: float) -> np.ndarray:
    """``count`` points of a square grid that fill a disc, along a Morton curve."""
    side = int(np.ceil(np.sqrt(count * 4 / np.pi))) + 2
    axis = (np.arange(side) - (side - 1) / 2) / side * 1.1
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    points = grid[np.argsort(np.hypot(*grid.T), kind="stable")[:count]]
    points *= diameter / 2 / np.hypot(*points.T).max()
    return points[lowrank.morton_order(points)]


def shares(total: int, parts: int) -> list[int]:
    """``total`` as evenly as it goes."""
    return [(k + 1) * total // parts - k * total // parts for k in range(parts)]


def von_karman(distance: np.ndarray) -> np.ndarray:
    """Covariance of phase at a distance over its variance: (2πr/L)^(5/6) K_(5/6)(2πr/L), 1 at 0.

    K is integrated, K_ν(x) = ∫ exp(−x cosh t) cosh(νt) dt, for a table that the distances are looked up in.
    """
    r = np.linspace(0, distance.max() + 1e-9, 20_000)[1:]
    x = 2 * np.pi * r / OUTER_SCALE
    t = np.linspace(0, 12, 400)
    bessel = np.trapezoid(np.exp(-x[:, None] * np.cosh(t)) * np.cosh(5 / 6 * t), t, axis=1)
    gamma = 1.1287870299081259  # of 5/6
    table = 2 ** (1 / 6) / gamma * x ** (5 / 6) * bessel
    return np.interp(distance, np.append(0, r), np.append(1, table))


def distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Distances between points [m, 2] and [n, 2]."""
    return np.hypot(one[:, :1] - other[:, 0], one[:, 1:] - other[:, 1])


class Telescope:
    """Places of actuators and slopes on each layer, mirror after mirror and star after star."""

    def __init__(self, actuators: int, slopes: int, stars: int) -> None:
        angle = STARS_ARCSEC / 206_265
        circle = 2 * np.pi * np.arange(stars) / stars
        self.directions = angle * np.stack([np.cos(circle), np.sin(circle)], 1)
        meta = DIAMETER + 2 * angle * ALTITUDES
        self.mirrors = [disc(n, d) for n, d in zip(shares(actuators, len(ALTITUDES)), meta, strict=True)]
        self.apertures = [disc(-(-n // 2), DIAMETER) for n in shares(slopes, stars)]
        self.slopes = shares(slopes, stars)
        self.pitch = DIAMETER / np.sqrt(len(self.apertures[0]) * 4 / np.pi)

    def ends(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Both ends [n, 2] of each slope, where its light passes a layer: x slopes of a star, then y slopes."""
        begin, end = [], []
        for points, direction, count in zip(self.apertures, self.directions, self.slopes, strict=True):
            centre = np.concatenate([points, points])[:count] + direction * ALTITUDES[layer]
            along = np.repeat(np.eye(2), len(points), axis=0)[:count] * self.pitch / 2
            begin.append(centre - along)
            end.append(centre + along)
        return np.concatenate(begin), np.concatenate(end)

    def covariance(self) -> np.ndarray:
        """Covariance [actuators, slopes] of phase at the actuators with slopes; each mirror sees its own layer."""
        rows = []
        for layer, points in enumerate(self.mirrors):
            begin, end = self.ends(layer)
            rows.append(von_karman(distances(points, end)) - von_karman(distances(points, begin)))
        return np.concatenate(rows)

    def reconstructor(self) -> np.ndarray:
        """Commands of least mean square error from slopes with noise: C_as (C_ss + N)⁻¹."""
        between = 0.0
        for layer in range(len(ALTITUDES)):
            begin, end = self.ends(layer)
            one, across = von_karman(distances(end, end)), von_karman(distances(end, begin))
            between = between + 2 * one - across - across.T
        noise = 0.05 * between.diagonal().mean() * np.eye(len(between))
        return np.linalg.solve(between + noise, self.covariance().T).T


def kernels(actuators: int, slopes: int) -> dict[str, np.ndarray]:
    """Kernels of distance between points on a disc, and of the sum of two indices."""
    r = distances(disc(actuators, DIAMETER), disc(slopes, DIAMETER))
    index = np.arange(actuators)[:, None] / actuators + np.arange(slopes) / slopes
    return {"Cauchy": 1 / (1 + np.square(r)), "Hankel": 1 / (index + 1 / slopes)}


def matrices(size: str) -> dict[str, np.ndarray]:
    """The matrices of one size, by name."""
    actuators, slopes, stars = SIZES[size]
    telescope = Telescope(actuators, slopes, stars)
    found = {"covariance": telescope.covariance()}
    if size == "small":
        found["reconstructor"] = telescope.reconstructor()
    return found if size == "full" else found | kernels(actuators, slopes)


def low_rank_seconds(matrix: lowrank.TileLowRank, system, dtype: str) -> float:
    """Modelled time of one product on a machine."""
    graph, prog = Graph(system), Sequence()
    operator = lowrank.create_low_rank_operator(graph, matrix, dtype)
    lowrank.low_rank_multiply(graph, operator, lowrank.create_low_rank_input(graph, operator), prog)
    return compile_program(graph, prog).report.total_cycles / system.ipu.clock_hz


def dense_tiles(shape: tuple[int, int], tile: int) -> lowrank.TileLowRank:
    """A matrix that is held dense in all of its tiles; its numbers do not matter for the time."""
    grid = -(-shape[0] // tile), -(-shape[1] // tile)
    no_rank, thin = np.zeros(grid, np.int64), np.empty((0, tile))
    numbers = np.zeros((no_rank.size, tile, tile))
    return lowrank.TileLowRank(shape, (tile, tile), no_rank, no_rank == 0, thin, thin, numbers, norm=0.0, error=0.0)


def poplin_seconds(shape: tuple[int, int], system, dtype: str) -> float:
    """Modelled time of poplin's product of a vector with the transpose of a dense matrix, the better way around."""
    graph, prog = Graph(system), Sequence()
    sides = (1, shape[1]), (shape[1], shape[0])
    x = poplin.create_matmul_input_lhs(graph, dtype, *sides, name="x")
    a = poplin.create_matmul_input_rhs(graph, dtype, *sides, name="a")
    poplin.matmul(graph, x, a, prog)
    return compile_program(graph, prog).report.total_cycles / system.ipu.clock_hz


def cycles_of_two_vectors(matrix: lowrank.TileLowRank) -> tuple[int, int]:
    """Cycles for zeros and for random numbers."""
    with lowrank.LowRankProduct(matrix) as product:
        found = []
        for x in (np.zeros(matrix.shape[1]), np.random.default_rng(0).standard_normal(matrix.shape[1])):
            product(x)
            found.append(product.cycles)
    return found[0], found[1]


def error_of_product(matrix: lowrank.TileLowRank, dense: np.ndarray, dtype: str) -> float:
    """Error of a product on the machine, over the length of the true one."""
    x = np.random.default_rng(1).standard_normal(matrix.shape[1])
    with lowrank.LowRankProduct(matrix, dtype=dtype) as product:
        y = product(x).astype(np.float64)
    return float(np.linalg.norm(y - dense @ x) / np.linalg.norm(dense @ x))


def print_table(name: str, dense: np.ndarray, tile: int, hows: list[dict[str, float]]) -> None:
    """A row for each tolerance or rank, and the cycles of two vectors."""
    print(f"\n{name}: {dense.shape[0]:,} x {dense.shape[1]:,} in tiles of {tile}; times in microseconds")
    print("                 mean  error of  of Ax  of Ax  MB f32  of     ", *(f"{m:>7}" for m in MACHINES), " Bow half")
    print("                 rank         A    f32   half          dense")
    for how in hows:
        matrix = lowrank.compress(dense, tile, method="randomised", **how)
        errors = [error_of_product(matrix, dense, dtype) for dtype in ("float", "half")]
        times = [low_rank_seconds(matrix, system, "float") for system in MACHINES.values()]
        times.append(low_rank_seconds(matrix, MACHINES["Bow"], "half"))
        (key, value), *_ = how.items()
        print(
            f"{key:>9} {value:<7g}{matrix.mean_rank:4.1f}  {matrix.relative_error:8.1e}"
            f"{errors[0]:8.0e}{errors[1]:7.0e} {matrix.num_bytes() / 1e6:7.2f}  {matrix.compression:5.3f} "
            + "".join(f"{1e6 * t:8.2f}" for t in times)
        )
    print(f"cycles of the last one for two vectors: {' and '.join(f'{c:,}' for c in cycles_of_two_vectors(matrix))}")


def print_dense(shape: tuple[int, int], tile: int) -> None:
    """Rows of a dense matrix: by poplin, and by the vertices of low-rank products."""
    cases = [(MACHINES["GC200"], "float"), (MACHINES["Bow"], "float"), (MACHINES["Bow"], "half")]
    size = f"{shape[0] * shape[1] * 4 / 1e6:10.2f}  1.000 "
    one, other, half = (f"{1e6 * poplin_seconds(shape, *case):8.2f}" for case in cases)
    print(f"\n{'dense, by poplin':<44}{size}{one}{other}{'-':>8}{'-':>8}{half}")
    matrix = dense_tiles(shape, tile)
    times = [low_rank_seconds(matrix, system, "float") for system in MACHINES.values()]
    times.append(low_rank_seconds(matrix, MACHINES["Bow"], "half"))
    print(f"{'dense, by the vertices of low-rank products':<44}{size}" + "".join(f"{1e6 * t:8.2f}" for t in times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--small", action="store_true", help="512 x 1,600, with the reconstructor")
    which.add_argument("--full", action="store_true", help="4,802 x 19,078, minutes instead of seconds")
    given = parser.parse_args()
    size = "small" if given.small else "full" if given.full else "medium"
    for name, dense in matrices(size).items():
        print_table(name, dense, TILES[size], [{"tolerance": 1e-2}, {"tolerance": 1e-4}, {"rank": 8}])
    print_dense(SIZES[size][:2], TILES[size])
    print("\nThere is no jitter: exchange is scheduled when the program is compiled, nothing is cached or arbitrated,")
    print("and tiles go on together at each barrier, so a product takes the same cycles whatever the numbers are.")


if __name__ == "__main__":
    main()
