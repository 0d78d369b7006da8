"""A bound below every plan of a contraction, from its multiply-accumulates alone.

The fastest vertex at its fastest, on every tile, without exchange or launch. For the matrix units channels count as
those of whole units: a unit that has no out-channel of its own idles. Ways of doing the work whose bound lies above the
plan of another need no plan of their own, which leaves the choice as it is and saves most of the planning.
Source: machine.md §5.14.
"""

from __future__ import annotations

from abele.numerics import f16
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.vertices.cost import weights_per_unit
from abele.poplibs.poplin.vertices.slic_cost import slic_takes

_SLIC_RATE = 32
"""Multiply-accumulates of SLIC per cycle: 4 in-channels, 4 positions, 2 chains. Source: machine.md §1.3."""
_VECTOR_RATE = 4
"""The same without the matrix units: a vector of halves per cycle. Source: machine.md §1.3."""
_LEAST_IN_CHANNELS = 4
"""In-channels that a unit takes at least: a load of weights holds up to four kernel rows. Source: machine.md §4.1."""


def least_cycles(problem: Contraction, target: PlanningTarget) -> int:
    """Cycles that no split of ``problem`` over the tiles takes less than."""
    if problem.diagonal:
        # Vertices that take the diagonal alone do a fraction of the multiply-accumulates.
        return 0
    macs = problem.macs
    found = [macs / _VECTOR_RATE]
    units, core = target.conv_units(problem.dtype, problem.partials)
    if units:
        ins = min(_LEAST_IN_CHANNELS, weights_per_unit(problem.dtype))
        whole = _padded(problem.out_channels, units) * _padded(problem.in_channels, ins) * macs
        rate = units * weights_per_unit(problem.dtype) / core
        found.append(whole / (problem.out_channels * problem.in_channels) / rate)
    if problem.rank and problem.dtype == f16 and slic_takes(problem.axes[-1], problem.dtype):
        found.append(macs / _SLIC_RATE)
    return int(min(found) / target.tiles)


def _padded(channels: int, group: int) -> int:
    return -(-channels // group) * group
