"""Operators of collectives: how the values of the replicas are combined."""

from __future__ import annotations

from enum import Enum

from abele.errors import InvalidOptionError, TypeMismatchError, nearest
from abele.expr import check_computes
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType
from abele.poplibs import popops


class CollectiveOperator(Enum):
    """Reduction that combines the values of replicas; ``LOCAL`` keeps each replica's own."""

    ADD = "add"
    MEAN = "mean"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    LOGICAL_AND = "logical_and"
    LOGICAL_OR = "logical_or"
    SQUARE_ADD = "square_add"
    LOCAL = "local"


_COMBINE = {
    CollectiveOperator.ADD: popops.add_in_place,
    CollectiveOperator.MEAN: popops.add_in_place,
    CollectiveOperator.SQUARE_ADD: popops.add_in_place,
    CollectiveOperator.MUL: popops.mul_in_place,
    CollectiveOperator.MIN: popops.min_in_place,
    CollectiveOperator.MAX: popops.max_in_place,
    CollectiveOperator.LOGICAL_AND: popops.logical_and_in_place,
    CollectiveOperator.LOGICAL_OR: popops.logical_or_in_place,
}
_COMBINE_WITH_OUTPUT = {
    CollectiveOperator.ADD: popops.add_with_output,
    CollectiveOperator.MEAN: popops.add_with_output,
    CollectiveOperator.SQUARE_ADD: popops.add_with_output,
    CollectiveOperator.MUL: popops.mul_with_output,
    CollectiveOperator.LOGICAL_AND: popops.logical_and_with_output,
    CollectiveOperator.LOGICAL_OR: popops.logical_or_with_output,
}
COMMUTATIVE = frozenset(_COMBINE_WITH_OUTPUT)
"""Operators that give the same bits if the operands change places; the smaller of 0 and −0 may be either."""
_LOGICAL = (CollectiveOperator.LOGICAL_AND, CollectiveOperator.LOGICAL_OR)


def read_operator(given: CollectiveOperator | str, dtype: ElementType, function: str) -> CollectiveOperator:
    """The operator that ``given`` names, fit for elements of ``dtype``.

    Raises:
        InvalidOptionError: No such operator.
        TypeMismatchError: A logical operator of numbers, arithmetic of truth values or of 8-bit floats, or the
            mean of integers.
    """
    names = [o.value for o in CollectiveOperator]
    word = given.value if isinstance(given, CollectiveOperator) else str(given).lower()
    try:
        op = CollectiveOperator(word)
    except ValueError:
        close = nearest(word, names)
        raise InvalidOptionError(
            f"{function}: no collective operator {given!r}" + (f"; did you mean {close!r}?" if close else ""),
            because=f"there are {', '.join(names)}",
        ) from None
    if op is not CollectiveOperator.LOCAL:
        check_computes(dtype, name=function)
    wrong = op is not CollectiveOperator.LOCAL and (op in _LOGICAL) != (dtype.kind == "bool")
    if wrong or (op is CollectiveOperator.MEAN and not dtype.is_float):
        raise TypeMismatchError(f"{function}: operator {op.value} does not take {dtype.name}")
    return op


def combine(graph: Graph, op: CollectiveOperator, into: Tensor, other: Tensor, prog: Sequence, name: str) -> None:
    """into ← into op other."""
    _COMBINE[op](graph, into, other, prog, name=name)


def combine_with_output(
    graph: Graph, op: CollectiveOperator, one: Tensor, other: Tensor, out: Tensor, prog: Sequence, name: str
) -> None:
    """out ← one op other."""
    _COMBINE_WITH_OUTPUT[op](graph, one, other, out, prog, name=name)


def before_sending(graph: Graph, op: CollectiveOperator, tensor: Tensor, prog: Sequence, name: str) -> Tensor:
    """``tensor`` as the collective sends it: its squares for ``SQUARE_ADD``, else itself."""
    if op is not CollectiveOperator.SQUARE_ADD:
        return tensor
    return popops.square(graph, tensor, prog, name=f"{name}/square")


def after_receiving(graph: Graph, op: CollectiveOperator, tensor: Tensor, size: int, prog: Sequence, name: str) -> None:
    """The last step on the reduced values: division by the number of replicas for ``MEAN``."""
    if op is CollectiveOperator.MEAN and size > 1:
        popops.mul_in_place(graph, tensor, 1.0 / size, prog, name=f"{name}/mean")
