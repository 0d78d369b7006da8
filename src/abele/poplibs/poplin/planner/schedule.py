"""Schedules: plans that run one after the other where one plan for all of a contraction needs too much memory.

Serial parts are of the out-channels, of the batch, or of the in-channels of products of matrices. Parts of the first
two have outputs of their own. Those of the in-channels are added onto the sum of those before, as PopLibs adds them in
place (machine.md §5.3), and cut both operands: the gradient by 1,024 inputs of 50,272 outputs would read all gradients
anew in each part of another kind. The temporary memory of one part is free for the next. Numbers of parts are doubled
until a plan fits, and on while memory keeps out splits that might be faster and twice the parts are: every part repeats
the supersteps and an operand that it does not cut is sent again, but a split that only just fits may take longer than
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from abele.errors import InvalidOptionError, OutOfMemoryError
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.options import Planning
from abele.poplibs.poplin.planner.plan import ContractionPlan, cuts_of
from abele.poplibs.poplin.planner.search import find_plan
from abele.poplibs.poplin.planner.target import SIDES, PlanningTarget
from abele.poplibs.poplin.vertices import cost

_MOST_PARTS = 64
"""Serial parts of a dimension that are tried. Chosen."""
SERIAL_SIDES = {"co": ("weights",), "b": ("input",), "ci": ("input", "weights")}
"""The dimensions of serial parts, each with the sides that are cut; all parts read all of the others."""


@dataclass(frozen=True)
class PlanSeries:
    """A contraction as a series of plans, each for some of the out-channels, of the batch or of the in-channels.

    Attributes:
        dim: The dimension that is cut.
        plans: One for each part, in order.
        adding: Expected cycles of adding parts onto each other.
    """

    dim: str
    plans: tuple[ContractionPlan, ...]
    adding: int = 0

    @property
    def cycles(self) -> int:
        """Expected cycles of all plans."""
        return sum(plan.cycles for plan in self.plans) + self.adding

    @property
    def adds_up(self) -> bool:
        """True if parts are addends of one output."""
        return self.dim == "ci" and len(self.plans) > 1

    @property
    def sums(self) -> bool:
        """True if every plan sums partials after the vertices."""
        return all(plan.depth > 1 for plan in self.plans)

    def parts(self) -> Iterator[tuple[ContractionPlan, int, int]]:
        """Every plan, with the first index and the number of indices of its part."""
        at = 0
        for plan in self.plans:
            size = plan.problem.extents[self.dim]
            yield plan, at, size
            at += size

    def __str__(self) -> str:
        if len(self.plans) == 1:
            return str(self.plans[0])
        head = (
            f"{len(self.plans)} plans one after the other, over parts of {self.dim}: {self.cycles:,} cycles; the first:"
        )
        return f"{head}\n{self.plans[0]}"


def make_schedule(
    problem: Contraction, grains: tuple[int, ...], target: PlanningTarget, planning: Planning, *, halves: bool = False
) -> PlanSeries:
    """Schedule that is expected to take the fewest cycles within the memory allowed.

    Where none does, one plan with as much memory as it needs, and where a tile has less than that, the schedule for
    twice the memory allowed. For the arguments and errors see :func:`~abele.poplibs.poplin.planner.search.find_plan`.
    """
    parts, best = 1, None
    # Fewest parts first: a part more repeats all supersteps and one operand's exchange.
    while parts <= _MOST_PARTS:
        found = [_in_parts(problem, grains, target, planning, d, parts, halves=halves) for d in _serial_dims(problem)]
        fitting = [schedule for schedule in found if schedule is not None]
        if best is not None and not any(schedule.cycles < best.cycles for schedule in fitting):
            return best
        best = min(fitting, key=lambda schedule: schedule.cycles, default=None)
        if best is not None and not any(plan.is_limited for plan in best.plans):
            return best
        parts *= 2
    if best is not None:
        return best
    try:
        return PlanSeries("co", (find_plan(problem, grains, target, planning, halves=halves),))
    except OutOfMemoryError:
        if not 0 < planning.proportion < 1:
            raise
    more = replace(planning, proportion=min(2 * planning.proportion, 1.0))
    return make_schedule(problem, grains, target, more, halves=halves)


def _serial_dims(problem: Contraction) -> tuple[str, ...]:
    """Dimensions of which serial parts are tried."""
    return tuple(dim for dim in SERIAL_SIDES if dim != "ci" or not problem.axes)


def _part(problem: Contraction, dim: str, size: int) -> Contraction:
    """A part of ``size`` indices of a dimension; what is summed further stays in the type of partials."""
    match dim:
        case "co":
            return replace(problem, out_channels=size)
        case "b":
            return replace(problem, batch=size)
    whole = size == problem.in_channels
    return replace(problem, in_channels=size, output=problem.output if whole else problem.partials)


def _adding(problem: Contraction, parts: int, target: PlanningTarget) -> int:
    """Cycles of adding parts of the in-channels: a superstep for each but the first, and a cast of the sum."""
    share = np.asarray(-(-prod(problem.extents[d] for d in problem.out_dims) // target.tiles), dtype=np.int64)
    kind = problem.partials
    each = target.superstep_cycles + int(cost.reduce_add(share, 2, kind, kind))
    casting = target.superstep_cycles + int(cost.cast(share, kind, problem.output)) if kind != problem.output else 0
    return (parts - 1) * each + casting


def _in_parts(
    problem: Contraction,
    grains: tuple[int, ...],
    target: PlanningTarget,
    planning: Planning,
    dim: str,
    parts: int,
    *,
    halves: bool,
) -> PlanSeries | None:
    """Schedule of ``parts`` parts along a dimension, or None where it does not fit."""
    extent, grain = problem.extents[dim], grains[problem.split_dims.index(dim)]
    if parts > -(-extent // grain):
        return None
    cuts = [int(n) for n in cuts_of(extent, parts, grain)]
    problems = [_part(problem, dim, end - begin) for begin, end in pairwise(cuts)]
    adding = 0
    if parts > 1:
        # What all parts read is written anew once, before the first.
        planning = replace(planning, lasting=tuple(s for s in SIDES[:2] if s not in SERIAL_SIDES[dim]))
        if dim == "ci":
            adding = _adding(problem, parts, target)
    try:
        plans = tuple(find_plan(p, grains, target, planning, strict=True, halves=halves) for p in problems)
        return PlanSeries(dim, plans, adding)
    except OutOfMemoryError:
        return None
    except InvalidOptionError:
        # What is asked for fits no part at all: an error. With more parts it only rules this number out.
        if parts == 1:
            raise
        return None
