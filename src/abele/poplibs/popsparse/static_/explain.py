"""Explanation of static plans, and the cache of plans."""

from __future__ import annotations

import math
import warnings

import numpy as np

from abele.arrays import Bool
from abele.graph import Graph
from abele.machine import System
from abele.numerics import ElementType, f8_143
from abele.poplibs.popsparse.explanation import SparseExplanation, SparseProblem
from abele.poplibs.popsparse.static_.params import StaticOptions, checked_block, checked_type
from abele.poplibs.popsparse.static_.plan import StaticPlan, StaticShape, find_plan
from abele.poplibs.poputil.kinds import PlanningCache
from abele.poplibs.poputil.options import Options
from abele.sparsity import Pattern

LIGHT_PROPORTION = 0.1
"""Share of the mean count below which a row or column goes last. Source: popsparse.md §6."""


class StaticPlanningCache(PlanningCache):
    """Plans of static sparse products, by everything that they depend on: machine, type, sizes, pattern, options."""

    def __init__(self) -> None:
        self._plans: dict[tuple[System, ElementType, int, str, StaticOptions], StaticPlan] = {}

    def size(self) -> int:
        """Plans that are kept."""
        return len(self._plans)

    def plan(
        self, graph: Graph, dtype: ElementType, pattern: Pattern, dense: int, options: StaticOptions
    ) -> StaticPlan:
        """The plan of a pattern by ``dense`` columns.

        Raises:
            OutOfMemoryError: No plan fits.
        """
        # 8-bit floats of any format and scale are planned alike.
        kind = f8_143 if dtype.is_quarter else dtype
        key = (graph.system, kind, dense, pattern.digest, options)
        if key not in self._plans:
            self._plans[key] = plan_pattern(graph, kind, pattern, dense, options)
        return self._plans[key]


def plan_pattern(graph: Graph, dtype: ElementType, pattern: Pattern, dense: int, options: StaticOptions) -> StaticPlan:
    """The plan of a pattern by ``dense`` columns.

    Raises:
        OutOfMemoryError: No plan fits.
    """
    rows, columns = pattern.grid
    if options.preprocesses:
        rows, columns = (int((~light).sum()) for light in light_lines(pattern))
    side = pattern.block[0]
    shape = StaticShape(rows, columns, pattern.num_blocks, side, dense, all_rows=pattern.grid[0], dtype=dtype)
    plan = find_plan(shape, graph.system.ipu, options)
    if options.verbose:
        terms = ", ".join(f"{name} {cycles:,}" for name, cycles in plan.terms)
        warnings.warn(
            f"static sparse product: {plan.bands} bands, {plan.splits} parts of {plan.columns} columns; {terms} cycles",
            stacklevel=2,
        )
    return plan


def light_lines(pattern: Pattern) -> tuple[Bool, Bool]:
    """True for block rows, and for block columns, with less than a tenth of the mean number of blocks."""
    found = []
    for lines, size in zip((pattern.rows, pattern.columns), pattern.grid, strict=True):
        count = np.bincount(lines, minlength=size)
        found.append(count < LIGHT_PROPORTION * pattern.num_blocks / max(size, 1))
    return found[0], found[1]


def explain_static(graph: Graph, problem: SparseProblem, *, options: Options = None) -> SparseExplanation:
    """The plan of a pattern whose blocks lie evenly.

    Raises:
        OutOfMemoryError: No plan fits.
        SparsePatternError: Blocks without a vertex.
        TypeMismatchError: A type or chip without one.
    """
    dtype = checked_type("static", problem.dtype, graph.system)
    side = checked_block("static", (problem.block, problem.block), dtype)
    rows, columns = problem.m // side, problem.k // side
    blocks = math.ceil(round(rows * columns * problem.density, 6))
    shape = StaticShape(rows, columns, blocks, side, problem.n, all_rows=rows, dtype=dtype)
    plan = find_plan(shape, graph.system.ipu, StaticOptions.read("popsparse.static_", options))
    split = (
        ("parts of the dense columns", plan.splits),
        ("dense columns of a part", plan.columns),
        ("tiles of a part", plan.tiles),
        ("bands", plan.bands),
        *plan.sizes,
    )
    return SparseExplanation(problem, split, plan.terms, plan.memory, plan.available_bytes)
