"""Functions that append ops to the current graph, for all modules of ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from abele.expr import Const, Expr
from abele.frontends.popxl.dtypes import dtype
from abele.frontends.popxl.errors import ElementTypesError, GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import get_current_graph
from abele.frontends.popxl.operations import Meaning, inlined
from abele.frontends.popxl.tensors import Tensor, check_same_types, constant
from abele.network import BlockBuilder, Value
from abele.network.ir import OpBlock
from abele.network.ops import build
from abele.numerics import ElementType, bool_

NAMES = ("lhs", "rhs")


def checked(kind: str, *tensors: Tensor) -> None:
    """Raise unless all are tensors of the current graph.

    Raises:
        GraphTypeError: One is no tensor.
        GraphArgumentError: One is of another graph.
    """
    graph = get_current_graph()
    for number, tensor in enumerate(tensors):
        what = NAMES[number] if len(tensors) == 2 else "t" if len(tensors) == 1 else f"number {number}"
        if not isinstance(tensor, Tensor):
            raise GraphTypeError(f"{kind} takes tensors, `{what}` is {tensor!r}")
        graph.check_here(tensor, what)


def check_index(kind: str, *indices: Tensor) -> None:
    """Raise unless tensors have whole numbers.

    Raises:
        ElementTypesError: One has not.
    """
    for index in indices:
        if not index.dtype.is_int:
            raise ElementTypesError(f"{kind} takes whole numbers, {index.id!r} is {index.dtype.name}")


def check_numbers(kind: str, t: Tensor) -> None:
    """Raise for bools.

    Raises:
        ElementTypesError: They are bools.
    """
    if t.dtype.name == "bool":
        raise ElementTypesError(f"{kind} takes numbers, {t.id!r} is bool", remedy="ops.cast it")


def emit(kind: str, meaning: Meaning, *tensors: Tensor) -> Tensor:
    """Append an op with one output."""
    checked(kind, *tensors)
    return get_current_graph().emit(kind, meaning, tensors)[0]


def emit_many(kind: str, meaning: Meaning, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Append an op with several outputs."""
    checked(kind, *tensors)
    return get_current_graph().emit(kind, meaning, tensors)


def change(kind: str, meaning: Meaning, *tensors: Tensor) -> Tensor:
    """Append an op that changes its first input."""
    checked(kind, *tensors)
    return get_current_graph().change(kind, meaning, tensors)


def of_floats(kind: str, meaning: Meaning, t: Tensor, in_place: bool = False) -> Tensor:
    """Append an op that takes floats alone.

    Programs may make it of other elements, as PopXL's do: a session refuses it.
    """
    checked(kind, t)
    append = change if in_place else emit
    if t.dtype.is_floating_point:
        return append(kind, meaning, t)
    made = append(kind, lambda net, v: v, t)
    operation = get_current_graph().operations[-1]
    operation.refusal = ElementTypesError(
        f"{kind} takes floats, {t.id!r} is {t.dtype.name}",
        at=f"{operation.origin.file}:{operation.origin.line}",
        remedy="ops.cast it",
    )
    return made


def emit_block(
    kind: str, block: OpBlock, tensors: Sequence[Tensor], ipus: Sequence[int] | None = None
) -> tuple[Tensor, ...]:
    """Append an op that is a block; its outputs are on some IPUs."""
    return get_current_graph().emit(kind, lambda net, *values: inlined(net, block, values), tensors, ipus=ipus)


def mapped(
    expression: Expr, result: ElementType | None = None, common: ElementType | None = None
) -> Callable[..., Value]:
    """The meaning of an op that is an expression of every element."""

    def meaning(net: BlockBuilder, *values: Value) -> Value:
        kind = common or values[0].dtype
        return build.map_of(
            net,
            expression,
            values,
            kind,
            result or kind,
            number=lambda number: Const(number, kind),
            whole=kind,
            masks=() if common == bool_ else [n for n, v in enumerate(values) if v.dtype == bool_],
        )

    return meaning


def tensor_of(value: Any, kind: dtype) -> Tensor:
    """A tensor, or a constant of a number."""
    return value if isinstance(value, Tensor) else constant(value, kind)


def dims_of(kind: str, axis: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; all if none are given.

    Raises:
        GraphArgumentError: There is no such axis.
    """
    if axis is None:
        return tuple(range(rank))
    found = [int(a) for a in (axis if isinstance(axis, list | tuple) else [axis])]
    for a in found:
        if not -rank <= a < rank:
            raise GraphArgumentError(f"{kind} has axis {a}, its tensor {rank} dimensions")
    return tuple(dict.fromkeys(a % rank for a in found))


def one_dim(kind: str, axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return dims_of(kind, [axis], rank)[0]


__all__ = [
    "change",
    "check_index",
    "check_numbers",
    "check_same_types",
    "checked",
    "dims_of",
    "emit",
    "emit_block",
    "emit_many",
    "mapped",
    "of_floats",
    "one_dim",
    "tensor_of",
]
