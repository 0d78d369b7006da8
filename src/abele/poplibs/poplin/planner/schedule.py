"""Schedules: plans that run one after the other where one plan for all of a contraction needs too much memory.

Serial parts are of the out-channels or of the batch. Each part then has outputs of its own, so nothing is summed
between parts, and the temporary memory of one is free for the next. Parts of the in-channels would also need room for
the sums so far. Numbers of parts are doubled until a plan fits, and on while memory keeps out splits that might be
faster and twice the parts are: every part repeats the supersteps and one of the operands is sent again, but a split
that only just fits may take longer than both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from abele.errors import InvalidOptionError, OutOfMemoryError
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.options import Planning
from abele.poplibs.poplin.planner.plan import ContractionPlan, cuts_of
from abele.poplibs.poplin.planner.search import find_plan
from abele.poplibs.poplin.planner.target import PlanningTarget

_MOST_PARTS = 64
"""Serial parts of a dimension that are tried. Chosen."""
SERIAL_SIDES = {"co": "weights", "b": "input"}
"""The dimensions of serial parts, each with the side that is cut; all parts read all of the other side."""
_OTHERS = {"weights": "input", "input": "weights"}


@dataclass(frozen=True)
class PlanSeries:
    """A contraction as a series of plans, each for some of the out-channels or of the batch.

    Attributes:
        dim: The dimension that is cut.
        plans: One for each part, in order.
    """

    dim: str
    plans: tuple[ContractionPlan, ...]

    @property
    def cycles(self) -> int:
        """Expected cycles of all plans."""
        return sum(plan.cycles for plan in self.plans)

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
        found = [_in_parts(problem, grains, target, planning, d, parts, halves=halves) for d in SERIAL_SIDES]
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
    sizes = [end - begin for begin, end in pairwise(cuts)]
    problems = [replace(problem, out_channels=n) if dim == "co" else replace(problem, batch=n) for n in sizes]
    if parts > 1:
        # What all parts read is written anew once, before the first.
        planning = replace(planning, lasting=(_OTHERS[SERIAL_SIDES[dim]],))
    try:
        return PlanSeries(
            dim, tuple(find_plan(p, grains, target, planning, strict=True, halves=halves) for p in problems)
        )
    except OutOfMemoryError:
        return None
    except InvalidOptionError:
        # What is asked for fits no part at all: an error. With more parts it only rules this number out.
        if parts == 1:
            raise
        return None
