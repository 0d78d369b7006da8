"""Swapping operands: the weights slide past, and the vertices hold the input.

A contraction is symmetric: with samples and out-channels, inputs and kernel positions exchanged it is the same sums.
The matrix units fill their weights with out-channels and want long runs of positions, so where a convolution has few
out-channels and many kernel positions, the other way round does the same work in fewer passes. Operands and result lie
as convolutions want them, so PopLibs takes all three sides to be rearranged. Source: machine.md §4.16.
"""

from __future__ import annotations

from dataclasses import replace

from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.lowering.call import ContractionCall, Meaning
from abele.poplibs.poplin.planner.target import SIDES, target_of

_TURNED = {"b": "co", "co": "b", "i": "k", "k": "i"}


def swapped(call: ContractionCall) -> ContractionCall:
    """``call`` with its operands exchanged."""
    problem = call.problem
    turned = replace(
        problem,
        batch=problem.out_channels,
        out_channels=problem.batch,
        axes=tuple(axis.swapped() for axis in problem.axes),
    )
    meaning = call.meaning or Meaning(problem, call.x, call.w, call.out_roles, lambda out: out)
    return replace(
        call,
        problem=turned,
        x=turned_roles(call.w),
        w=turned_roles(call.x),
        out_roles=tuple(map(_turned_role, call.out_roles)),
        meaning=meaning,
        charged=SIDES,
        follows=False,
    )


def fills_units_better(call: ContractionCall) -> bool:
    """True if fewer channels of the matrix units idle with operands exchanged.

    Where none do, the same multiply-accumulates and three sides to rearrange cannot take less.
    """
    problem = call.problem
    units, _ = target_of(call.graph.system, call.planning).conv_units(problem.dtype, problem.partials)
    idle, turned = (-n % max(units, 1) / n for n in (problem.out_channels, problem.batch))
    return turned < idle


def is_turned(call: ContractionCall) -> bool:
    """True if ``call`` is a convolution with operands exchanged."""
    roles = call.out_roles if call.unfold is None else call.unfold.roles
    return call.meaning is not None and (call.meaning.out_roles[0], roles[0]) == ("b", "co")


def turned_roles(binding: Binding) -> Binding:
    """An operand in the place of the other one."""
    return replace(binding, roles=tuple(map(_turned_role, binding.roles)))


def _turned_role(role: str) -> str:
    """The role that takes this one's place, groups before it where they are folded into it."""
    head, star, name = role.rpartition("*")
    if name in _TURNED:
        return head + star + _TURNED[name]
    turned = _TURNED.get(name[0])
    return head + star + (turned + name[1:] if turned and name[1:].isdigit() else name)
