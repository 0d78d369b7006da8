"""A 3 × 3 Gaussian blur of a large image on GC2, phase by phase.

Measurements: L. Louw and S. McIntosh-Smith, "Using the Graphcore IPU for traditional HPC applications" and the data of
its repository (machine.md §2.6 and §7.5): an image of 2,200 × 1,122 pixels of 4 channels, two steps per iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from abele.arrays import Int64
from abele.compiler import compile_program
from abele.graph import ComputeSet, Execute, Graph, Regions, Tensor, boxes
from abele.machine import System, systems
from abele.numerics import ElementType, f16, f32
from abele.validation.blur_vertex import WEIGHTS, blur_vertex
from abele.validation.figures import Comparison, Figure

Weights: TypeAlias = "tuple[float, float, float]"

IMAGE = (1122, 2200)
"""Rows and columns of the image."""
CHANNELS = 4
GRIDS = {1: (32, 38), 4: (76, 64), 16: (152, 128)}
"""Blocks down and across the image, by number of IPUs: one per tile, numbered row by row."""
WORKERS = 6
_STEPS = 200
"""Steps of a measured run."""

PHASES = ("sync", "exchange", "copies before", "copies after", "compute")
"""Phases of a step: barriers, all exchange, copies on tiles before and after the vertices, the vertices with their
launch."""


@dataclass(frozen=True)
class Variant:
    """One way that the image is stored and worked on.

    Attributes:
        name: As it was published.
        dtype: Element type.
        width: Elements that one instruction works on.
        phases: Measured cycles of a step in the order of ``PHASES``, by number of IPUs; exchange is that on the chips
            and that between them.
        milliseconds: Measured time of 100 iterations, by number of IPUs.
    """

    name: str
    dtype: ElementType
    width: int
    phases: dict[int, tuple[int, int, int, int, int]]
    milliseconds: dict[int, float]


VARIANTS = (
    Variant("half4", f16, 4, {1: (64, 637, 5741, 4826, 63531)}, {1: 9.200, 4: 3.748}),
    Variant("float2", f32, 2, {1: (117, 1173, 8279, 6954, 100257)}, {1: 14.61, 4: 5.31}),
    Variant(
        "float",
        f32,
        1,
        {1: (117, 1173, 8279, 6954, 210249), 16: (640, 397 + 4048, 1894, 954, 13152)},
        {1: 28.36, 4: 8.55},
    ),
)
"""Source: machine.md §2.6 (phases) and §7.5 (times)."""


def compare() -> Comparison:
    """Figures of every variant on one and on four GC2."""
    figures = tuple(figure for variant in VARIANTS for ipus in GRIDS for figure in _figures(variant, ipus))
    about = (
        "The image lies in blocks, one per tile. Its six workers deal out the rows or the columns of the block, "
        "whichever is the more even, and halo cells are exchanged. The vertex is in our codelet language and counted "
        "instruction by instruction, one per slot, as was learnt from compute on one IPU. For half4 and float2 one "
        "instruction works on a whole vector. Rows come with their halo cells in one piece, so blocks are copied "
        "before every step. The measured program is known by its description alone. Its copies moved the whole block, "
        "one 32-bit word per cycle, where ours move 64 bits, and results were copied once more afterwards; ours are "
        "written in place. Exchange follows from the layout alone. On four IPUs only the time of whole runs was "
        "published, on sixteen only the phases; their exchange is that on the chips and that between them."
    )
    return Comparison("blur", "Gaussian blur on GC2", about, figures)


def _figures(variant: Variant, ipus: int) -> list[Figure]:
    if ipus not in variant.phases | variant.milliseconds:
        return []
    found = phases(variant, ipus)
    title = f"{variant.name}, {ipus} IPU" + "s" * (ipus > 1)
    source = "LBM repository, exchange-vs-compute.csv"
    rows = []
    if ipus in variant.phases:
        measured = zip(PHASES, variant.phases[ipus], strict=True)
        rows = [Figure(f"{title}: {p}", p, found[p], cycles, "cycles", source) for p, cycles in measured]
    if ipus not in variant.milliseconds:
        return rows
    clock = systems.get("gc2").ipu.clock_hz
    cycles = variant.milliseconds[ipus] * 1e-3 / _STEPS * clock
    whole = sum(found.values())
    return [*rows, Figure(f"{title}: step", "step", whole, round(cycles), "cycles", "LBM repository, timings")]


def phases(variant: Variant, ipus: int) -> dict[str, float]:
    """Modelled cycles of one step by phase."""
    machine = systems.get("gc2").with_ipus(ipus)
    step = _step(machine, variant.dtype, CHANNELS, GRIDS[ipus])
    # The vertex works on one f32 where the measured code works on a vector by one instruction: compute is that of an
    # image with as many fewer channels, everything else that of the image itself.
    vectors = _step(machine, f32, CHANNELS // variant.width, GRIDS[ipus], _in_words(variant.dtype))
    return {**step, "compute": vectors["compute"]}


def _in_words(dtype: ElementType) -> Weights:
    """f32 numbers with the bits that a register holds of each weight: of f16 two alike, which take an instruction more
    to make."""
    if dtype == f32:
        return WEIGHTS
    middle, side, corner = np.repeat(np.array(WEIGHTS, dtype.np), 2).view(np.float32).tolist()
    return middle, side, corner


def _step(
    machine: System, dtype: ElementType, channels: int, grid: tuple[int, int], weights: Weights = WEIGHTS
) -> dict[str, float]:
    """Cycles of one step of an image of so many channels by phase."""
    graph = Graph(machine)
    step = blur_step(graph, blur_vertex(dtype, channels, weights), dtype, channels, grid)
    executable = compile_program(graph, Execute(step), allow_out_of_memory=True)
    superstep, cycles = executable.plan[0], executable.report.cycles()
    before, after = (0 if c is None else int(c.by_tile.max()) for c in (superstep.gather, superstep.scatter))
    compute = superstep.compute
    assert compute is not None
    vertices = int(compute.by_tile.max()) + compute.launch
    barriers = cycles.sync - compute.launch
    return dict(zip(PHASES, (barriers, cycles.exchange, before, after, vertices), strict=True))


def blur_step(graph: Graph, vertex: Any, dtype: ElementType, channels: int, grid: tuple[int, int]) -> ComputeSet:
    """A compute set that blurs an image with a border of one pixel into another, a block of ``grid`` per tile."""
    rows, columns = IMAGE
    before, after = (
        graph.variable(dtype, (rows + 2, (columns + 2) * channels), name=name) for name in ("image", "blurred")
    )
    down, across = (1 + np.arange(n + 1) * extent // n for n, extent in zip(grid, IMAGE, strict=True))
    for image in (before, after):
        _map_blocks(graph, image, down, across, channels)
    tile = np.arange(grid[0] * grid[1], dtype=np.int64)
    top, left = down[tile // grid[1]], across[tile % grid[1]]
    height, width = down[tile // grid[1] + 1] - top, across[tile % grid[1] + 1] - left
    step = graph.compute_set("blur")
    step.vertices(
        vertex,
        tile=tile,
        before=_rows(before, top - 1, (left - 1) * channels, height + 2, (width + 2) * channels),
        after=_rows(after, top, left * channels, height, width * channels),
        shares=_shares(height, width, channels),
    )
    return step


def _shares(height: Int64, width: Int64, channels: int) -> Int64:
    """First and last row and first and last element of each worker, by block: its rows or its columns are dealt out,
    whichever makes the largest share the smaller."""
    by_rows = (-(-height // WORKERS) * width <= height * -(-width // WORKERS))[:, None]
    first, last = np.arange(WORKERS), np.arange(WORKERS) + 1
    down, across = height[:, None], width[:, None]
    found = [np.where(by_rows, down * first // WORKERS, 0), np.where(by_rows, down * last // WORKERS, down)]
    found += [
        channels * np.where(by_rows, whole, across * part // WORKERS) for whole, part in ((0, first), (across, last))
    ]
    return np.stack(found, axis=2).reshape(len(height), 4 * WORKERS)


def _map_blocks(graph: Graph, image: Tensor, down: Int64, across: Int64, channels: int) -> None:
    """Every pixel on the tile of its block; those of the border with the nearest block."""
    # The first and the last block reach over the border.
    cuts = [np.array([0, *cut[1:-1], cut[-1] + 1]) for cut in (down, across)]
    tile = np.arange((len(down) - 1) * (len(across) - 1), dtype=np.int64)
    at = tile // (len(across) - 1), tile % (len(across) - 1)
    start = np.stack([cuts[0][at[0]], cuts[1][at[1]] * channels], axis=1)
    end = np.stack([cuts[0][at[0] + 1], cuts[1][at[1] + 1] * channels], axis=1)
    graph.map_regions(boxes(image, start, end - start), tile.astype(np.int32))


def _rows(image: Tensor, top: Int64, left: Int64, height: Int64, width: Int64) -> tuple[Regions, Int64, Int64]:
    """The rows of every block, for a field of rows: regions, the region of each row, the rows of each vertex."""
    ends = np.concatenate([[0], np.cumsum(height)])
    row = np.arange(ends[-1]) - np.repeat(ends[:-1], height) + np.repeat(top, height)
    start = np.stack([row, np.repeat(left, height)], axis=1)
    size = np.stack([np.ones_like(row), np.repeat(width, height)], axis=1)
    return boxes(image, start, size), np.arange(len(row), dtype=np.int64), ends
