"""Countable: the cycles of a program must fit 64 bits."""

from __future__ import annotations

from collections.abc import Sequence

from abele.compiler.lower import Step
from abele.compiler.superstep import Superstep
from abele.compiler.timeline import parts_of
from abele.errors import ControlProgramError
from abele.machine import System

_MOST = 1 << 62
_YEAR_SECONDS = 31_557_600
_OFTEN = 1 << 24
"""Executions of steps below which a program is not checked: none lasts 2^38 cycles."""


def check_countable(steps: Sequence[Step], supersteps: Sequence[Superstep], system: System) -> None:
    """No run takes 2^62 cycles or more.

    Raises:
        ControlProgramError: One does.
    """
    if sum(s.executions for s in steps) < _OFTEN:
        return
    total = 0
    for step in steps:
        total += step.executions * (1 + sum(p.cycles for p in parts_of(supersteps[step.superstep], system)))
        if total >= _MOST:
            raise ControlProgramError(
                f"the program runs for {_shown(total)} cycles, and 2^62 is the most"
                f" ({system.seconds(_MOST) / _YEAR_SECONDS:,.0f} years)",
                at=step.node.debug.location or None,
                because=f"{step.name} is executed {_shown(step.executions)} times",
                remedy="fewer turns of its loops",
            )


def _shown(count: int) -> str:
    return f"{count:,}" if count < _MOST else f"2^{count.bit_length() - 1} or more"
