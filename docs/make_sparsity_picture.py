"""Draw pictures/sparsity.png, where sparsity pays, and print its page's table: python docs/make_sparsity_picture.py.

Square matrices by 256 columns in f16, on one IPU: cycles of the compiled products, dense ones over sparse ones.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import sys
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from abele.errors import OutOfMemoryError
from abele.machine import systems
from abele.numerics import f16
from abele.poplibs.popsparse.explanation import SparseProblem
from abele.validation.sparse_dynamic import dynamic_seconds
from abele.validation.sparse_modes import dense_seconds, static_seconds

PICTURE = Path(__file__).parent / "pictures" / "sparsity.png"
MACHINES = {"bow": "GC200, Bow, C600", "gc2": "GC2"}
"""Chips by one of them; those of a name take the same cycles."""
MODES = {"static": static_seconds, "dynamic": dynamic_seconds, "dense": dense_seconds}
SIZES, COLUMNS, BLOCKS = (512, 1024, 2048, 4096), 256, (1, 4, 8, 16)
DENSITIES = tuple(2.0**-i for i in range(1, 7))

Case = tuple[str, str, int, int, float]
"""Machine, mode, size, block and density."""


def seconds(case: Case) -> float:
    """Seconds of a product; infinity where it does not fit."""
    machine, mode, size, block, density = case
    try:
        with warnings.catch_warnings(action="ignore"):
            return MODES[mode](SparseProblem(size, size, COLUMNS, density, block, f16), systems.get(machine))
    except OutOfMemoryError:
        return math.inf


def speed_ups(jobs: int) -> dict[Case, float]:
    """Seconds of dense products over those of all sparse ones."""
    dense: list[Case] = [(machine, "dense", size, 1, 1.0) for machine, size in itertools.product(MACHINES, SIZES)]
    # Equal patterns one after the other.
    sparse: list[Case] = [
        (machine, mode, size, block, density)
        for size, block in itertools.product(SIZES, BLOCKS)
        for density in densities(block)
        for machine, mode in itertools.product(MACHINES, ("static", "dynamic"))
    ]
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = dict(zip(dense + sparse, pool.map(seconds, dense + sparse, chunksize=6), strict=True))
    return {case: found[case[0], "dense", case[2], 1, 1.0] / found[case] for case in sparse}


def densities(block: int) -> tuple[float, ...]:
    """Densities that are tried: half of single elements never pays, and takes longest to model."""
    return DENSITIES[block == 1 :]


def pays_from(ups: Mapping[Case, float], machine: str, mode: str, size: int, block: int) -> str:
    """The largest density of a speed-up of 1, between those that were tried, as 1 over a number."""
    tried = densities(block)
    known = [ups[machine, mode, size, block, density] for density in tried]
    faster = next((i for i, up in enumerate(known) if up >= 1), None)
    if faster is None:
        return f"below 1/{1 / tried[-1]:.0f}"
    if faster == 0:
        return f"1/{1 / tried[0]:.0f} or more"
    left, right = known[faster - 1], known[faster]
    share = math.log(1 / left) / math.log(right / left) if left else 1.0
    return f"1/{2 ** (math.log2(1 / tried[faster - 1]) + share):.2g}"


def table(ups: Mapping[Case, float]) -> str:
    """Densities from which products pay, as Markdown; machines with equal rows share them."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for mode, block, machine in itertools.product(("static", "dynamic"), BLOCKS, MACHINES):
        cells = tuple(pays_from(ups, machine, mode, size, block) for size in SIZES)
        rows.setdefault((mode, str(block), *cells), []).append(MACHINES[machine])
    head = ["| product | block | machine | " + " | ".join(f"{size:,}" for size in SIZES) + " |"]
    head.append("|---|--:|---|" + "--:|" * len(SIZES))
    lines = [
        f"| {mode} | {block} | {', '.join(machines)} | " + " | ".join(cells) + " |"
        for (mode, block, *cells), machines in rows.items()
    ]
    return "\n".join(head + lines)


def draw(ups: Mapping[Case, float]) -> None:
    """A picture for each product and size: speed-up by density, a colour for each block, a dash for each machine."""
    picture = Figure(figsize=(12, 6), dpi=110, layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots(2, len(SIZES), sharex=True, sharey=True)
    for row, mode in enumerate(("static", "dynamic")):
        for column, size in enumerate(SIZES):
            _panel(axes[row, column], ups, mode, size)
    axes[0, 0].legend(fontsize=7, frameon=False)
    picture.supxlabel("density", fontsize=9)
    picture.supylabel("speed-up over the dense product", fontsize=9)
    picture.savefig(PICTURE, metadata={"Software": None})


def _panel(axes, ups: Mapping[Case, float], mode: str, size: int) -> None:  # type: ignore[no-untyped-def]
    colours, dashes = colormaps["viridis"], dict(zip(MACHINES, ("-", ":"), strict=True))
    axes.axhline(1, color="black", linewidth=0.8)
    for i, block in enumerate(BLOCKS):
        for machine, title in MACHINES.items():
            values: Sequence[float] = [ups[machine, mode, size, block, d] or math.nan for d in densities(block)]
            label = f"blocks of {block}" if machine == "bow" else title if i == 0 else None
            axes.plot(densities(block), values, dashes[machine], color=colours(i / 3.5), label=label, linewidth=1.2)
    axes.set(xscale="log", yscale="log", title=f"{mode}, {size:,} x {size:,}")
    axes.set_xticks(DENSITIES, [f"1/{1 / d:.0f}" for d in DENSITIES], fontsize=7)
    axes.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"], fontsize=7)
    axes.minorticks_off()
    axes.title.set_fontsize(9)
    axes.grid(visible=True, linewidth=0.3)


def main() -> None:
    """Model and draw."""
    ups = speed_ups(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    draw(ups)
    print(table(ups))


if __name__ == "__main__":
    main()
