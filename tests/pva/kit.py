"""Helpers of several tests of ``abele.pva``."""

from __future__ import annotations

from collections.abc import Sequence

from abele.machine import systems
from abele.report import LIVENESS, OPS, STEPS, VARIABLES, Memory, Report


def intervals_overlap(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> int:
    """Cycles that lie in an interval of both; intervals of one do not overlap each other."""
    return sum(max(0, min(b, d) - max(a, c)) for a, b in first for c, d in second)


def bare_report(**tables: object) -> Report:
    """A report of a machine of one IPU with eight tiles that has these tables."""
    target = {**systems.bow_2000().with_ipus(1).figures(), "num_tiles": 8}
    known = {
        "steps": STEPS.empty(),
        "ops": OPS.empty(),
        "variables": VARIABLES.empty(),
        "liveness": LIVENESS.empty(),
        "memory": Memory.of(8, 1000, variables=10, gaps=4),
    }
    return Report(**({"target": target, "graph": {}} | known | tables))  # type: ignore[arg-type]
