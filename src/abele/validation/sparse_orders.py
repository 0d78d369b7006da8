"""Orders of published sparse rates, and the cells that ran out of memory.

At m = k = 4,096 in halves with 64 columns or more: static is faster than dynamic, larger blocks than smaller ones, and
static overtakes dense at density 1/16 with single elements, at 1/8 with blocks of 4, above 1/4 with larger ones.
Source: popsparse.md §10.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from abele.numerics import f16
from abele.poplibs.popsparse.explanation import SparseProblem
from abele.validation.figures import Bars, Comparison, Figure

if TYPE_CHECKING:
    from abele.validation.sparse import Predictions, SparseRow, Work

SIDE, COLUMNS = 4096, (64, 256, 1024)
BLOCKS = (1, 4, 8, 16)
DENSITIES = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
FASTER = {1: (1 / 32,), 4: (1 / 16, 1 / 32), 8: DENSITIES, 16: DENSITIES}
SLOWER = {1: (1 / 4, 1 / 8), 4: (1 / 4,)}
"""Densities at which static is faster or slower than dense for certain, by block."""
OUT_OF_MEMORY = tuple(
    (m, n, density, block)
    for m, n, blocks, densities in (
        (8192, 1024, (4, 8, 16), (1 / 4, 1 / 8)),
        (8192, 1024, (1,), (1 / 4, 1 / 8, 1 / 16)),
        (4096, 1024, (1,), (1 / 4,)),
        (8192, 256, (1,), (1 / 4,)),
    )
    for block in blocks
    for density in densities
)
"""Static cells of the published heat map that ran out of memory: m, n, density, block. Source: popsparse.md §10."""
MEMORY_BAR = 0.10
"""Share of cells that may differ."""


def _problem(n: int, density: float, block: int, m: int = SIDE) -> SparseProblem:
    return SparseProblem(m, m, n, density, block, f16)


def order_works(known: set[Work]) -> Iterator[Work]:
    """Products for orders and memory besides ``known`` ones, of the modes that are there."""
    modes = {mode for mode, _ in known}
    wanted = [
        (mode, _problem(n, d, b)) for mode in ("static", "dynamic") for n in COLUMNS for d in DENSITIES for b in BLOCKS
    ]
    wanted += [("dense", _problem(n, 1.0, 1)) for n in COLUMNS]
    wanted += [("static", _problem(n, d, b, m)) for m, n, d, b in OUT_OF_MEMORY]
    yield from (work for work in wanted if work[0] in modes and work not in known)


def order_comparison(found: Predictions) -> Comparison:
    """Shares of the required orders that hold."""
    figures = tuple(
        Figure(name, "orders", sum(held) / len(held), 1.0, "", "popsparse.md §10")
        for name, held in _orders(found).items()
        if held
    )
    about = (
        f"Share of the published orders that hold at m = k = {SIDE:,} in halves, with {COLUMNS[0]} columns or more: "
        "larger blocks are faster, static is faster than dynamic, and faster than dense below the crossover."
    )
    return Comparison("sparse_orders", "orders of sparse rates", about, figures, Bars(0.0))


def _orders(found: Predictions) -> dict[str, list[bool]]:
    orders: dict[str, list[bool]] = {}

    def note(name: str, more: float, less: float) -> None:
        if more > 0 and less > 0 and math.isfinite(more) and math.isfinite(less):
            orders.setdefault(name, []).append(more > less)

    for n in COLUMNS:
        dense = found.rate("dense", _problem(n, 1.0, 1))
        for density in DENSITIES:
            rates = {b: found.rate("static", _problem(n, density, b)) for b in BLOCKS}
            spilt = {b: found.rate("dynamic", _problem(n, density, b)) for b in BLOCKS}
            for small, large in ((1, 4), (4, 8), (8, 16)):
                note("static: larger blocks are faster", rates[large], rates[small])
                note("dynamic: larger blocks are faster", spilt[large], spilt[small])
            for block in BLOCKS:
                note("static is faster than dynamic", rates[block], spilt[block])
                if density in FASTER.get(block, ()):
                    note("static is faster than dense", rates[block], dense * density)
                if density in SLOWER.get(block, ()):
                    note("static is slower than dense", dense * density, rates[block])
    return orders


def memory_comparison(rows: list[SparseRow], found: Predictions) -> Comparison:
    """Share of the cells that fit here as they did there."""
    fitting = [row for row in rows if row.problem.n and row.value is not None and row.mode != "dense"]
    cells = {(row.mode, row.problem): row.value is not None for row in rows if row.problem.n and row.mode != "dense"}
    if fitting:
        cells |= {("static", _problem(n, d, b, m)): False for m, n, d, b in OUT_OF_MEMORY}
    agree: dict[str, list[bool]] = {"cells that ran": [], "cells out of memory": [], "all cells": []}
    for (mode, problem), ran in cells.items():
        rate = found.rate(mode, replace(problem))
        if math.isnan(rate):
            continue
        for kind in ("cells that ran" if ran else "cells out of memory", "all cells"):
            agree[kind].append((rate > 0) == ran)
    figures = tuple(
        Figure(
            f"{kind}: share of {len(held)} predicted alike",
            "memory",
            sum(held) / len(held),
            1.0,
            "",
            "popsparse.md §10",
        )
        for kind, held in agree.items()
        if held
    )
    about = "Cells of the published heat map that ran, or ran out of memory, and do so here."
    # The bar is for all cells together.
    return Comparison(
        "sparse_memory", "sparse products out of memory", about, figures[-1:], Bars(MEMORY_BAR), _words(figures)
    )


def _words(figures: tuple[Figure, ...]) -> str:
    return "".join(f"- {figure.name}: {figure.predicted:.0%}\n" for figure in figures)
