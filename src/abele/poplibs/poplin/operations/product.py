"""Call of a matrix product: the operand that the matrix units hold, and the charge for rearranging."""

from __future__ import annotations

from dataclasses import replace

from abele.graph import Graph, Tensor
from abele.poplibs.poplin.contraction.binding import Binding
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.lowering.call import ContractionCall, cheapest
from abele.poplibs.poplin.options import Planning
from abele.poplibs.poplin.planner.rearranging import SIDES


def product_call(
    graph: Graph,
    function: str,
    name: str,
    problem: Contraction,
    a: Tensor,
    b: Tensor,
    planning: Planning,
    like: Tensor | None = None,
    *,
    swapped: bool | None = None,
) -> ContractionCall:
    """The call that makes the product: rows as the batch, or columns (swapped: the left operand is held as weights).

    Columns are the batch where that is said, where that writes ``like`` along its memory, or where that is faster.
    PopLibs lays operands out for swapped products and takes all three sides to be rearranged for others, so it keeps
    the left operand in the units unless the other way saves more than that. Source: machine.md §4.16.
    """
    if swapped is None and like is not None:
        swapped = Binding(like, roles_of(like, "b", "co"), problem.groups).operand().innermost == "b"
    if swapped is None:
        swapped = True if planning.split is not None else planning.swaps
    calls = []
    for swap in (True, False) if swapped is None else (swapped,):
        asked = replace(problem, batch=problem.out_channels, out_channels=problem.batch) if swap else problem
        row, column = ("co", "b") if swap else ("b", "co")
        left = Binding(a, roles_of(a, row, "ci"), problem.groups)
        right = Binding(b, roles_of(b, "ci", column), problem.groups)
        x, w = (right, left) if swap else (left, right)
        calls.append(
            ContractionCall(
                graph,
                function=function,
                name=name,
                problem=asked,
                x=x,
                w=w,
                out_roles=roles_of(a, row, column),
                planning=planning,
                like=like,
                charged=_charged(planning) if swap else SIDES,
            )
        )
    return cheapest(calls)


def _charged(planning: Planning) -> tuple[str, ...]:
    """Sides of a swapped product that PopLibs takes to be rearranged. Source: machine.md §4.16."""
    if planning.training_pass == "TRAINING_WU":
        return ("input",) if planning.split is not None else ("input", "output")
    return ("input",) if planning.training_pass == "TRAINING_BWD" and planning.split is None else ()


def is_swapped(call: ContractionCall) -> bool:
    """True if the columns of a product take the part of the rows."""
    return call.out_roles[-1] == "b"


def roles_of(tensor: Tensor, *roles: str) -> tuple[str, ...]:
    """Roles of a matrix's dimensions, groups before them where there are any."""
    return ("g", *roles) if tensor.ndim == 3 else roles
