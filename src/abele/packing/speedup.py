"""Expected speed-up of training by packing: the packing factor, less the extra cost of packed attention and losses."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import PackingError
from abele.packing.plan import PackingPlan

PROFILED = {2: 0.04283, 3: 0.04287, 4: 0.04294, 8: 0.04481, 16: 0.04477}
"""Cycles that packing adds to a step, as a proportion, by depth: profiled by its authors on an IPU-M2000.

Pre-training of BERT with 512 tokens: the mask between sequences in attention, and losses by sequence.
Source: arXiv 2107.02027, table 1; deck 004. Depths between are taken to cost as the next one that was profiled.
"""


@dataclass(frozen=True)
class ExpectedSpeedUp:
    """Expected speed-up of packing over one sequence per row.

    Attributes:
        speed_up: Ratio of sequences per second.
        overhead: Extra time of a step of packs over one of single sequences, as a proportion.
        source: Source of the overhead.
    """

    speed_up: float
    overhead: float
    source: str


def expected_speed_up(
    plan: PackingPlan, machine: str = "IPU-M2000", *, overhead: float | None = None
) -> ExpectedSpeedUp:
    """The packing factor over one plus the overhead.

    Args:
        plan: The packs.
        machine: Name of the machine that trains: says whether the profiled overhead is its own or taken over.
        overhead: Extra time of a step by packing, as a proportion, where that was measured or modelled. None takes
            the published figure for the plan's depth.

    Raises:
        PackingError: The overhead is negative or not a number.
    """
    if overhead is not None:
        if not 0 <= overhead < float("inf"):
            raise PackingError(f"an overhead is a proportion of at least 0, got {overhead}")
        return ExpectedSpeedUp(plan.factor / (1 + overhead), overhead, "given")
    deepest = int(plan.strategies.depths.max())
    if deepest == 1:
        return ExpectedSpeedUp(1.0, 0.0, "none: nothing lies beside anything")
    depth = min((known for known in PROFILED if known >= deepest), default=max(PROFILED))
    source = f"published: BERT at 512 tokens and depth {depth}, profiled on an IPU-M2000 (arXiv 2107.02027)"
    if "M2000" not in machine:
        source += f"; taken over for {machine}, not modelled for it"
    return ExpectedSpeedUp(plan.factor / (1 + PROFILED[depth]), PROFILED[depth], source)
