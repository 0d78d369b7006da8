"""Collectives inside of networks: exchanges between the replicas of a group in the middle of a model.

A network describes one replica. Where replicas share a model (tensor parallelism), some values are *alike* on all
replicas of a group and some are *parts*, which differ. These ops lead from one to the other; each has the derivative
that is right for how its result is read, and that is an op of this family again:

==================  ===============================  ==========================================================
builder             forward                          gradient
==================  ===============================  ==========================================================
``replica_copy``    the value, as it is              summed over the group: readers differ from replica to replica
``replica_sum``     the sum over the group           as it is where readers are alike; else summed over the group
``replica_gather``  the parts, side by side          the own part where readers are alike; else of the sum
``replica_scatter`` the own part, or that of the sum the parts, side by side
``replica_reduce``  the product, maximum, minimum    of the sum, where the value was reached or times the others
==================  ===============================  ==========================================================

``replica_copy`` and ``replica_sum`` are the conjugates f and g of Megatron-LM. All replicas of a group get the same
bits, as each element is summed in one place and sent from there. For example, ``replica_gather`` along dim 1 makes
[4, 6] of the parts [4, 3] on two replicas, and its gradient is a slice [4, 3] of the gradient [4, 6] on each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import select
from abele.expr.derivative import arg
from abele.graph import AssumeEqualAcrossReplicas, Copy, CrossReplicaCopy, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import map_
from abele.network.ops.reduction import reduce
from abele.network.ops.views import reshape
from abele.network.registry import Gradients, OpRule, RowWise, Types, no_derivative, only, require, rule
from abele.numerics import bool_, i32
from abele.poplibs import gcl, popops
from abele.poplibs.gcl import CommGroup
from abele.poplibs.popops.expr import Cast, Const, Expr, Op, _1
from abele.poplibs.poputil.layout import clone

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering
    from abele.network.interpreter import Interpreter

ALIKE, APART = "alike", "apart"
"""Ways in which the replicas of a group read a result: all alike, or each in its own way."""

GROUP_ATTRIBUTES = {"group": str, "size": int, "stride": int}


def group_attributes(group: CommGroup) -> dict[str, Any]:
    """A group as the attributes of an op."""
    size = 1 if group.kind == "NONE" else group.size
    return {"group": str(group.kind), "size": size, "stride": group.stride}


def group_of(op: NetworkOp) -> CommGroup:
    """The group of an op."""
    return CommGroup(op.attrs["group"], op.attrs["size"], op.attrs["stride"])


def replica_copy(net: BlockBuilder, value: Value, group: CommGroup) -> Value:
    """``value``, alike on all replicas of a group, for readers that differ from replica to replica."""
    return value if _alone(group) else net.emit_like("replica_copy", [value], value, **group_attributes(group))


def replica_sum(net: BlockBuilder, value: Value, group: CommGroup, readers: str = ALIKE) -> Value:
    """The sum of ``value`` over the replicas of a group.

    Args:
        net: The network to extend.
        value: Numbers.
        group: Group of replicas that sum, with its size.
        readers: :data:`ALIKE`, where what is computed of the sum is the same on all replicas and counts once; or
            :data:`APART`, where each replica makes something else of it.
    """
    if _alone(group):
        return value
    return net.emit_like("replica_sum", [value], value, **group_attributes(group), readers=readers)


def replica_max(net: BlockBuilder, value: Value, group: CommGroup) -> Value:
    """The largest ``value`` over the replicas of a group, element by element."""
    return replica_reduce(net, value, group, "max")


def replica_reduce(net: BlockBuilder, value: Value, group: CommGroup, operation: str) -> Value:
    """``value`` of the replicas of a group as one, element by element.

    Args:
        net: The network to extend.
        value: Numbers, or bools.
        group: Group of replicas, with its size.
        operation: ``max``, ``min`` or ``mul``; of bools ``and`` or ``or``. For sums see :func:`replica_sum`.
    """
    if _alone(group):
        return value
    return net.emit_like("replica_reduce", [value], value, **group_attributes(group), operation=operation)


def largest_of_replicas(net: BlockBuilder, value: Value) -> Value:
    """The largest ``value`` over all replicas, element by element, by which control flow may go; no derivative."""
    return net.emit_like("largest_of_replicas", [value], value)


def replica_gather(net: BlockBuilder, value: Value, dim: int, group: CommGroup, readers: str = ALIKE) -> Value:
    """Values of the replicas of a group, by rank beside each other along ``dim``; ``readers`` as of a sum."""
    if _alone(group):
        return value
    dim %= value.ndim
    shape = tuple(n * group.size if d == dim else n for d, n in enumerate(value.shape))
    attributes = group_attributes(group) | {"dim": dim, "readers": readers}
    return net.emit("replica_gather", [value], shape, value.dtype, **attributes)


def replica_scatter(net: BlockBuilder, value: Value, dim: int, group: CommGroup, *, of_sum: bool = False) -> Value:
    """Of as many equal parts of ``value`` along ``dim`` as a group has replicas, the one of the replica's rank.

    Args:
        net: The network to extend.
        value: Alike on all replicas; or numbers that differ, where it is a part of their sum.
        dim: Its extent is a multiple of the replicas of a group.
        group: Group of replicas that share.
        of_sum: True for the part of the sum over the group.
    """
    if _alone(group):
        return value
    dim %= value.ndim
    require(value.shape[dim] % group.size == 0, f"dimension {dim} of {value} has no {group.size} equal parts")
    shape = tuple(n // group.size if d == dim else n for d, n in enumerate(value.shape))
    attributes = group_attributes(group) | {"dim": dim, "of_sum": of_sum}
    return net.emit("replica_scatter", [value], shape, value.dtype, **attributes)


def replica_exchange(net: BlockBuilder, value: Value, group: CommGroup) -> Value:
    """Row r of the replica of rank p as row p of the replica of rank r, for ``value`` [size of a group, …]."""
    return value if _alone(group) else net.emit_like("replica_exchange", [value], value, **group_attributes(group))


def replica_permute(net: BlockBuilder, value: Value, group: CommGroup, sources: Sequence[int]) -> Value:
    """``value`` of the replica of rank ``sources[r]`` on the replica of rank r: a permutation of the ranks."""
    if _alone(group):
        return value
    return net.emit_like("replica_permute", [value], value, **group_attributes(group), sources=tuple(sources))


def replica_rank(net: BlockBuilder, group: CommGroup) -> Value:
    """The number of the replica in its group: i32[]."""
    return net.constant(0, i32) if _alone(group) else net.emit("replica_rank", [], (), i32, **group_attributes(group))


def _alone(group: CommGroup) -> bool:
    require(group.kind == "NONE" or group.size > 0, f"{group} does not say how many replicas it has")
    return group.kind == "NONE" or group.size == 1


class ReplicaRule(OpRule):
    """A kind whose meaning needs the operands of all replicas of a group."""

    folds = False
    depends_on_operands_alone = False

    def groups_of(self, op: NetworkOp) -> CommGroup:
        """Replicas that an op exchanges between."""
        return group_of(op)

    @abstractmethod
    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Any:
        """The results on the replica of a rank, from the operands on every replica of its group by rank."""

    def evaluate(self, op: NetworkOp, *args: Array) -> Any:
        """Result of replicas that all have the same operands: that of the first."""
        members = self.groups_of(op).size
        return self.among(op, [args] * members, 0)

    def interpret(self, run: Interpreter, op: NetworkOp, args: Sequence[Array]) -> Any:
        """The meaning among the replicas that are interpreted together; alone, all have the same."""
        if run.peers is None or self.groups_of(op).size == 1:
            return self.evaluate(op, *args)
        everyone = run.peers.exchange(run.replica, tuple(args))
        mine = next(g for g in self.groups_of(op).members(len(everyone)) if run.replica in g)
        return self.among(op, [everyone[n] for n in mine], list(mine).index(run.replica))


def _check_group(op: NetworkOp) -> None:
    require(op.attrs["size"] > 0, f"a group of {op.attrs['size']} replicas")
    _ = group_of(op)  # A kind of groups that there is.


@rule("replica_copy")
class ReplicaCopy(RowWise):
    """Value alike on the replicas of a group, before readers that differ."""

    attributes: ClassVar = GROUP_ATTRIBUTES

    def types(self, op: NetworkOp) -> Types:
        """Type of the operand."""
        _check_group(op)
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The value itself."""
        return x

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The operand as it is: nothing moves."""
        return to[op.inputs[0]]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Sum of the gradients of each replica."""
        return [replica_sum(net, only(grads), group_of(op))]


@rule("replica_sum")
class ReplicaSum(ReplicaRule, RowWise):
    """A sum over the replicas of a group."""

    attributes: ClassVar = GROUP_ATTRIBUTES | {"readers": str}

    def types(self, op: NetworkOp) -> Types:
        """Type of the operand."""
        (value,) = op.inputs
        _check_group(op)
        require(value.dtype != bool_, f"numbers are summed over replicas, not {value}")
        _check_readers(op)
        return [value.type]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """The sum in NumPy."""
        return np.asarray(sum(x for (x,) in group))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One all-reduce."""
        return gcl.all_reduce_cross_replica(to.graph, to[op.inputs[0]], "add", to.prog, group_of(op))

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient as it is, where it is the same on all replicas; otherwise its sum."""
        grad = only(grads)
        if op.attrs["readers"] == APART:
            return [replica_sum(net, grad, group_of(op), APART)]
        return [replica_copy(net, grad, group_of(op))]


def _check_readers(op: NetworkOp) -> None:
    readers = op.attrs["readers"]
    require(readers in (ALIKE, APART), f"readers are {ALIKE} or {APART}, not {readers!r}")


_COMBINED: dict[str, Callable[..., Any]] = {
    "max": np.max,
    "min": np.min,
    "mul": np.prod,
    "and": np.all,
    "or": np.any,
}
_LOGICAL = ("and", "or")


@rule("replica_reduce")
class ReplicaReduce(ReplicaRule, RowWise):
    """A product, an extremum, or a logical operation over the replicas of a group."""

    attributes: ClassVar = GROUP_ATTRIBUTES | {"operation": str}

    def types(self, op: NetworkOp) -> Types:
        """Type of the operand."""
        (value,), operation = op.inputs, op.attrs["operation"]
        _check_group(op)
        require(operation in _COMBINED, f"no reduction {operation!r} over replicas: {', '.join(_COMBINED)}")
        require((operation in _LOGICAL) == (value.dtype == bool_), f"{operation} over replicas takes no {value}")
        return [value.type]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """The reduction in NumPy."""
        rows = np.stack([x for (x,) in group])
        return np.asarray(_COMBINED[op.attrs["operation"]](rows, axis=0)).astype(rows.dtype, copy=False)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One all-reduce."""
        operation = op.attrs["operation"]
        how = f"logical_{operation}" if operation in _LOGICAL else operation
        return gcl.all_reduce_cross_replica(to.graph, to[op.inputs[0]], how, to.prog, group_of(op))

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The sum of the gradients: by the product of the others' values, or where the extremum is, shared by equals.

        Raises:
            UnsupportedOpError: A logical operation, which has no derivative.
        """
        (value,), group, operation = op.inputs, group_of(op), op.attrs["operation"]
        if operation in _LOGICAL:
            raise no_derivative(op, f"{operation} over several replicas")
        summed = replica_sum(net, only(grads), group, APART)
        x, y, z = (arg(n) for n in range(3))
        if operation == "mul":
            return [map_(net, x * y, [summed, _others(net, value, group)], value.dtype)]
        # NaN is an extreme that equals nothing.
        hit = map_(net, select(x.eq(y), 1.0, select(x.ne(x), 1.0, 0.0)), [value, op.output], value.dtype)
        return [map_(net, x * y / z, [summed, hit, replica_sum(net, hit, group)], value.dtype)]


def _others(net: BlockBuilder, value: Value, group: CommGroup) -> Value:
    """The product of ``value`` over all replicas of a group but this one."""
    rows = replica_gather(net, reshape(net, value, (1, *value.shape)), 0, group)
    number = net.constant(np.arange(group.size, dtype=np.int32).reshape(-1, *[1] * value.ndim), i32)
    x, y, z = (arg(n) for n in range(3))
    others = map_(net, select(x.eq(y), 1.0, z), [number, replica_rank(net, group), rows], value.dtype)
    return reduce(net, others, [0], "mul")


@rule("largest_of_replicas")
class LargestOfReplicas(ReplicaRule):
    """The largest over all replicas, however many there are: the same in each, so that loops may depend on it."""

    def types(self, op: NetworkOp) -> Types:
        """Type of the operand."""
        require(op.inputs[0].dtype != bool_, f"numbers are compared over replicas, not {op.inputs[0]}")
        return [op.inputs[0].type]

    def groups_of(self, op: NetworkOp) -> CommGroup:
        """All replicas."""
        return CommGroup.all()

    def evaluate(self, op: NetworkOp, *args: Array) -> Any:
        """The value itself, which all replicas have."""
        return args[0]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """The maximum in NumPy."""
        return np.asarray(np.max([x for (x,) in group], axis=0))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One all-reduce into a variable of its own, with the promise that all replicas have the same."""
        value = to[op.inputs[0]]
        if to.graph.replicas == 1:
            return value
        found = gcl.all_reduce_cross_replica(to.graph, value, "max", to.prog, CommGroup.all())
        made = clone(to.graph, found, "largest")
        to.prog.add(Copy(found, made, name="largest"))
        to.prog.add(AssumeEqualAcrossReplicas(made))
        return made

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradients."""
        raise no_derivative(op, "the largest of several replicas")


@rule("replica_gather")
class ReplicaGather(ReplicaRule):
    """The parts of all replicas of a group along a dimension."""

    attributes: ClassVar = GROUP_ATTRIBUTES | {"dim": int, "readers": str}

    def types(self, op: NetworkOp) -> Types:
        """As many times the extent as there are replicas in a group."""
        (value,), dim = op.inputs, op.attrs["dim"]
        _check_group(op)
        _check_readers(op)
        require(0 <= dim < value.ndim, f"{value} has no dimension {dim}")
        return [(tuple(n * op.attrs["size"] if d == dim else n for d, n in enumerate(value.shape)), value.dtype)]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """All parts in NumPy."""
        return np.concatenate([x for (x,) in group], op.attrs["dim"])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One all-gather; the parts of the replicas are put side by side as a view."""
        dim = op.attrs["dim"]
        parts = gcl.all_gather_cross_replica(to.graph, to[op.inputs[0]], to.prog, group_of(op))
        order = [*range(1, dim + 1), 0, *range(dim + 1, parts.ndim)]
        return parts.transpose(order).reshape(op.output.shape)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The own part of the gradient, or of its sum."""
        return [replica_scatter(net, only(grads), op.attrs["dim"], group_of(op), of_sum=op.attrs["readers"] == APART)]


@rule("replica_scatter")
class ReplicaScatter(ReplicaRule):
    """The part of a replica along a dimension, of what all have or of its sum."""

    attributes: ClassVar = GROUP_ATTRIBUTES | {"dim": int, "of_sum": bool}

    def types(self, op: NetworkOp) -> Types:
        """A part of the extent."""
        (value,), dim, size = op.inputs, op.attrs["dim"], op.attrs["size"]
        _check_group(op)
        require(0 <= dim < value.ndim, f"{value} has no dimension {dim}")
        require(value.shape[dim] % size == 0, f"dimension {dim} of {value} has no {size} equal parts")
        require(value.dtype != bool_ or not op.attrs["of_sum"], f"numbers are summed over replicas, not {value}")
        return [(tuple(n // size if d == dim else n for d, n in enumerate(value.shape)), value.dtype)]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """The part in NumPy."""
        whole = sum(x for (x,) in group) if op.attrs["of_sum"] else group[rank][0]
        return np.asarray(np.split(np.asarray(whole), op.attrs["size"], op.attrs["dim"])[rank])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One reduce-scatter, which also picks parts of a common value."""
        dim, size, value = op.attrs["dim"], op.attrs["size"], to[op.inputs[0]]
        each = value.shape[dim] // size
        cut = value.reshape((*value.shape[:dim], size, each, *value.shape[dim + 1 :]))
        rows = cut.transpose([dim, *range(dim), *range(dim + 1, cut.ndim)])
        how = "add" if op.attrs["of_sum"] else "local"
        own = gcl.reduce_scatter_cross_replica(to.graph, rows, how, to.prog, group_of(op))
        return own.reshape(op.output.shape)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The parts of all replicas."""
        readers = APART if op.attrs["of_sum"] else ALIKE
        return [replica_gather(net, only(grads), op.attrs["dim"], group_of(op), readers)]


@rule("replica_exchange")
class ReplicaExchange(ReplicaRule):
    """Rows that each replica of a group has for each, sent to them."""

    attributes: ClassVar = GROUP_ATTRIBUTES

    def types(self, op: NetworkOp) -> Types:
        """Type of the operand."""
        (value,) = op.inputs
        _check_group(op)
        require(value.ndim > 0 and value.shape[0] == op.attrs["size"], f"{value} has no {op.attrs['size']} rows")
        return [value.type]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """The own row of everyone."""
        return np.stack([x[rank] for (x,) in group])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One all-to-all."""
        return gcl.all_to_all_cross_replica(to.graph, to[op.inputs[0]], to.prog, group_of(op))

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradients, sent back."""
        return [replica_exchange(net, only(grads), group_of(op))]


@rule("replica_permute")
class ReplicaPermute(ReplicaRule, RowWise):
    """Values that change places within a group of replicas."""

    attributes: ClassVar = GROUP_ATTRIBUTES | {"sources": tuple}

    def types(self, op: NetworkOp) -> Types:
        """Type of the operand."""
        _check_group(op)
        sources, size = op.attrs["sources"], op.attrs["size"]
        require(sorted(sources) == list(range(size)), f"{sources} is no permutation of the ranks below {size}")
        return [op.inputs[0].type]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """The value of the one that sends here."""
        return np.asarray(group[op.attrs["sources"][rank]][0])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One copy from each replica to one other."""
        members = group_of(op).members(to.graph.replicas)
        senders, value = members[:, op.attrs["sources"]], to[op.inputs[0]]
        made = clone(to.graph, value, "permuted")
        onto = dict(zip(senders.ravel().tolist(), members.ravel().tolist(), strict=True))
        to.prog.add(CrossReplicaCopy(value, made, onto))
        return made

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradients, sent back."""
        return [replica_permute(net, only(grads), group_of(op), np.argsort(op.attrs["sources"]).tolist())]


@rule("replica_rank")
class ReplicaRank(ReplicaRule):
    """The number of the replica in its group."""

    operands = 0
    attributes: ClassVar = GROUP_ATTRIBUTES

    def types(self, op: NetworkOp) -> Types:
        """One number."""
        _check_group(op)
        return [((), i32)]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """The rank."""
        return np.asarray(rank, np.int32)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """Made of the number of the replica, by one vertex."""
        members = group_of(op).members(to.graph.replicas)
        stride = int(members[0, 1] - members[0, 0])
        number: Expr = Cast(_1, i32)
        place = number if stride == 1 else Op("div", number, Const(stride, i32))
        replica = to.graph.replica_index("replica")
        rank = Op("rem", place, Const(op.attrs["size"], i32))
        return popops.map(to.graph, rank, [replica], to.prog, name="rank")

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradients: there are no operands."""
        return []
