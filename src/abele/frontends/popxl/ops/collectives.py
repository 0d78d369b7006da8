"""``popxl.ops.collectives``: exchanges between replicas, and between the IPUs of one.

Groups of replicas are :class:`~abele.frontends.popxl.replicas.ReplicaGrouping` of constant stride; by default all
replicas are one group. Gradients are those of the sum of all replicas' losses, but for ``replicated_all_gather`` and
``replicated_slice``: what is computed of a gathered tensor counts once, so each takes its slice of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Literal, get_args

from abele.errors import nearest
from abele.expr import Expr, apply
from abele.expr.derivative import arg
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import get_current_graph
from abele.frontends.popxl.ops.common import change, checked, emit, one_dim
from abele.frontends.popxl.replicas import ReplicaGrouping, checked_grouping
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ir.value import Place
from abele.network.ops import build
from abele.network.ops.replicas import ALIKE, APART
from abele.poplibs.gcl import CommGroup

x, y = arg(0), arg(1)

CollectiveOps = Literal["add", "mean", "mul", "min", "max", "and", "or", "square_add", "local"]
OPS: tuple[str, ...] = get_args(CollectiveOps)
"""Ways in which values of replicas, or of IPUs, become one; ``local`` keeps the own."""
_LOGICAL, _SUMS = ("and", "or"), ("add", "mean", "square_add")

# --- between replicas -------------------------------------------------------------------------------------------------


def _checked_op(kind: str, op: str, t: Tensor) -> None:
    """Raise unless there is such an operation, and it takes elements of the tensor's type.

    Raises:
        GraphArgumentError: Not so.
    """
    if op not in OPS:
        close = nearest(str(op), OPS)
        raise GraphArgumentError(
            f"{kind} has op {op!r}", because=", ".join(OPS), remedy=f"did you mean {close!r}?" if close else None
        )
    wrong = op != "local" and (op in _LOGICAL) != (t.dtype.name == "bool")
    if wrong or (op == "mean" and not t.dtype.is_floating_point):
        raise GraphArgumentError(f"{kind} with op {op!r} does not take {t.dtype.name}", remedy="ops.cast")


def _group(group: ReplicaGrouping | None) -> CommGroup:
    found = checked_grouping(get_current_graph().ir, group, is_constant=True)
    return found.comm_group


def _combined(net: BlockBuilder, value: Value, op: str, group: CommGroup) -> Value:
    """``value`` of a group as one."""
    if op == "local":
        return value
    if op not in _SUMS:
        return build.replica_reduce(net, value, group, op)
    total = build.replica_sum(net, _before_sum(net, value, op), group, APART)
    return _after_sum(net, total, op, group.size)


def _before_sum(net: BlockBuilder, value: Value, op: str) -> Value:
    return build.map_(net, x * x, [value], value.dtype) if op == "square_add" else value


def _after_sum(net: BlockBuilder, total: Value, op: str, count: int) -> Value:
    return build.map_(net, x * (1 / count), [total], total.dtype) if op == "mean" and count > 1 else total


def replicated_all_reduce(t: Tensor, op: str = "add", group: ReplicaGrouping | None = None) -> Tensor:
    """It as one of all replicas of a group, which all have the result.

    Args:
        t: A tensor of one shape on all replicas.
        op: One of :data:`OPS`; ``and`` and ``or`` take bools.
        group: Groups of replicas; by default one of all.
    """
    checked("replicated_all_reduce", t)
    _checked_op("replicated_all_reduce", op, t)
    members = _group(group)
    return emit("replicated_all_reduce", lambda net, v: _combined(net, v, op, members), t)


def replicated_all_reduce_(t: Tensor, op: str = "add", group: ReplicaGrouping | None = None) -> Tensor:
    """:func:`replicated_all_reduce` in place."""
    checked("replicated_all_reduce_", t)
    _checked_op("replicated_all_reduce_", op, t)
    members = _group(group)
    return change("replicated_all_reduce_", lambda net, v: _combined(net, v, op, members), t)


OUTPUT_SHAPES = ("auto", "concat", "new_axis", "meta_shape")


def replicated_all_gather(
    t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None, output_shape: str = "auto"
) -> Tensor:
    """It of all replicas of a group, in the order of their ranks.

    Args:
        t: A tensor of one shape on all replicas.
        axis: Axis along which they are joined.
        group: Groups of replicas; by default one of all.
        output_shape: ``concat`` joins them along the axis, ``new_axis`` along a new one; ``meta_shape`` makes a tensor
            whole of its parts; ``auto`` is ``meta_shape`` for a part, otherwise ``concat``.

    Raises:
        GraphArgumentError: There is no such shape or axis, or the tensor is no part of one of that many replicas.
    """
    checked("replicated_all_gather", t)
    if output_shape not in OUTPUT_SHAPES:
        raise GraphArgumentError(
            f"replicated_all_gather has output_shape {output_shape!r}", remedy=", ".join(OUTPUT_SHAPES)
        )
    members = _group(group)
    how = output_shape if output_shape != "auto" else "meta_shape" if t.meta_shape else "concat"
    if how == "meta_shape":
        made = emit("replicated_all_gather", _whole(t, members), t)
    else:
        # A scalar is a vector of one element before it is joined with others.
        is_new = how == "new_axis" or t.rank == 0
        dim = one_dim("replicated_all_gather", axis, t.rank + is_new)
        shape = (*t.shape[:dim], 1, *t.shape[dim:]) if is_new else t.shape
        made = emit("replicated_all_gather", lambda net, v: _gathered(net, v, shape, dim, members), t)
    made.meta_shape = ()
    return made


def _gathered(net: BlockBuilder, v: Value, shape: tuple[int, ...], dim: int, group: CommGroup) -> Value:
    return build.replica_gather(net, build.reshape(net, v, shape), dim, group, ALIKE)


def _whole(t: Tensor, group: CommGroup) -> Callable[[BlockBuilder, Value], Value]:
    """The meaning of making a tensor whole of its parts."""
    count, shape = math.prod(t.meta_shape), t.meta_shape
    if t.nelms != -(-count // group.size) or not shape:
        raise GraphArgumentError(
            f"{t.id!r} with {t.nelms} elements is not one of {group.size} parts of a tensor {list(shape)}",
            because=f"a part has {-(-count // group.size)} elements" if shape else "it has no meta_shape",
            remedy="the group over which the tensor was cut",
        )

    def meaning(net: BlockBuilder, v: Value) -> Value:
        flat = build.replica_gather(net, build.reshape(net, v, (v.size,)), 0, group, ALIKE)
        return build.reshape(net, build.slice_(net, flat, 0, 0, count), shape)

    return meaning


def replicated_reduce_scatter(
    t: Tensor,
    op: str = "add",
    group: ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> Tensor:
    """The replica's part of :func:`replicated_all_reduce`, in one dimension.

    Args:
        t: A tensor of one shape on all replicas.
        op: One of :data:`OPS`; ``local`` gives each replica the part of its own.
        group: Groups of replicas; by default one of all.
        configure_output_for_replicated_tensor_sharding: Let the result be a part of a tensor of ``t``'s shape.

    Returns:
        [⌈n / replicas of a group⌉] of n elements; zeros behind the last element, combined as they are.
    """
    return _scattered("replicated_reduce_scatter", t, op, group, configure_output_for_replicated_tensor_sharding)


def _scattered(kind: str, t: Tensor, op: str, group: ReplicaGrouping | None, is_part: bool) -> Tensor:
    checked(kind, t)
    _checked_op(kind, op, t)
    members = _group(group)
    made = emit(kind, lambda net, v: _part(net, v, op, members), t)
    made.meta_shape = t.shape if is_part else ()
    return made


def _part(net: BlockBuilder, v: Value, op: str, group: CommGroup) -> Value:
    flat = build.reshape(net, v, (v.size,))
    padded = build.pad(net, flat, [0], [-v.size % group.size])
    if op in _SUMS:
        own = build.replica_scatter(net, _before_sum(net, padded, op), 0, group, of_sum=True)
        return _after_sum(net, own, op, group.size)
    return build.replica_scatter(net, _combined(net, padded, op, group), 0, group)


def replica_sharded_slice(t: Tensor, group: ReplicaGrouping | None = None) -> Tensor:
    """The replica's part of a tensor that all replicas of a group have, in one dimension with its ``meta_shape``."""
    return _scattered("replica_sharded_slice", t, "local", group, True)


def replicated_slice(t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None) -> Tensor:
    """Of as many equal parts along an axis as a group has replicas, the one of the replica's rank.

    Raises:
        GraphArgumentError: The axis does not divide so.
    """
    checked("replicated_slice", t)
    members, dim = _group(group), one_dim("replicated_slice", axis, t.rank)
    if t.shape[dim] % members.size:
        raise GraphArgumentError(
            f"replicated_slice of axis {axis}, which has {t.shape[dim]}, on groups of {members.size} replicas",
            remedy="an axis that the group's size divides",
        )
    return emit("replicated_slice", lambda net, v: build.replica_scatter(net, v, dim, members), t)


# --- between the IPUs of a replica ------------------------------------------------------------------------------------

_FOLDS: dict[str, Expr] = {
    "add": x + y,
    "mean": x + y,
    "square_add": x + y,
    "mul": x * y,
    "min": apply("min", x, y),
    "max": apply("max", x, y),
    "and": apply("logical_and", x, y),
    "or": apply("logical_or", x, y),
}


def _on_all(net: BlockBuilder, values: Sequence[Value], op: str, ipus: Sequence[int]) -> list[Value]:
    """Values of several IPUs as one: made on the first, and sent to the others."""
    with net.at(place=Place(ipu=ipus[0])):
        there = [values[0], *(build.transfer(net, v) for v in values[1:])]
        terms = [_before_sum(net, v, op) for v in there]
        total = reduce(lambda a, b: build.map_(net, _FOLDS[op], [a, b], a.dtype), terms)
        made = [_after_sum(net, total, op, len(values))]
    for number in ipus[1:]:
        with net.at(place=Place(ipu=number)):
            made.append(build.transfer(net, made[0]))
    return made


def _check_ipus(kind: str, ts: Sequence[Tensor], ipus: Sequence[int] | None) -> tuple[list[Tensor], list[int]]:
    """Tensors, and the IPU of each.

    Raises:
        GraphTypeError: No sequence of tensors.
        GraphArgumentError: Other numbers of tensors and IPUs, IPUs twice, or tensors that differ in shape or type.
    """
    if isinstance(ts, Tensor):
        raise GraphTypeError(f"{kind} takes a sequence of tensors, one per IPU, not {ts!r}")
    found = list(ts)
    if not found:
        raise GraphArgumentError(f"{kind} takes at least one tensor")
    checked(kind, *found)
    numbers = [t.ipu for t in found] if ipus is None else [int(n) for n in ipus]
    if len(numbers) != len(found) or len(set(numbers)) != len(numbers) or min(numbers) < 0:
        raise GraphArgumentError(f"{kind} takes an IPU per tensor, each once: {len(found)} tensors on IPUs {numbers}")
    if len({(t.shape, t.dtype.name) for t in found}) > 1:
        raise GraphArgumentError(f"{kind} takes tensors of one shape and type, not {', '.join(map(repr, found))}")
    return found, numbers


def all_reduce(ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add") -> tuple[Tensor, ...]:
    """Tensors of several IPUs as one, on each of them.

    Args:
        ts: A tensor of each IPU.
        ipus: Their IPUs; by default those that the tensors are on.
        op: One of :data:`OPS` but ``local``.
    """
    found, numbers = _check_ipus("all_reduce", ts, ipus)
    _check_fold("all_reduce", op, found[0])
    return get_current_graph().emit(
        "all_reduce", lambda net, *values: _on_all(net, values, op, numbers), found, ipus=numbers
    )


def _check_fold(kind: str, op: str, t: Tensor) -> None:
    _checked_op(kind, op, t)
    if op == "local":
        raise GraphArgumentError(f"{kind} has op 'local', which is the tensors as they are")


def _itself(net: BlockBuilder, *values: Value) -> list[Value]:
    return list(values)


def all_reduce_identical_inputs(
    ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add"
) -> tuple[Tensor, ...]:
    """Equal tensors of several IPUs as they are; the gradient of each is :func:`all_reduce` of the gradients."""
    found, numbers = _check_ipus("all_reduce_identical_inputs", ts, ipus)
    _check_fold("all_reduce_identical_inputs", op, found[0])
    back = partial(_reduced, op=op, ipus=numbers)
    return get_current_graph().emit("all_reduce_identical_inputs", _itself, found, ipus=numbers, backward=back)


def _reduced(net: BlockBuilder, *values: Value, op: str, ipus: Sequence[int]) -> list[Value]:
    return _on_all(net, values, op, ipus)


def all_reduce_identical_grad_inputs(
    ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add"
) -> tuple[Tensor, ...]:
    """:func:`all_reduce` of tensors whose gradients are equal on all IPUs: these go through as they are."""
    found, numbers = _check_ipus("all_reduce_identical_grad_inputs", ts, ipus)
    _check_fold("all_reduce_identical_grad_inputs", op, found[0])
    return get_current_graph().emit(
        "all_reduce_identical_grad_inputs",
        partial(_reduced, op=op, ipus=numbers),
        found,
        ipus=numbers,
        backward=_itself,
    )


__all__ = [
    "all_reduce",
    "all_reduce_identical_grad_inputs",
    "all_reduce_identical_inputs",
    "replica_sharded_slice",
    "replicated_all_gather",
    "replicated_all_reduce",
    "replicated_all_reduce_",
    "replicated_reduce_scatter",
    "replicated_slice",
]
