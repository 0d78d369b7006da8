"""Training beside the network itself: sums of gradients over micro-batches, and updates of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor, concat
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.joined_copies import joined_copies
from abele.network.ops.replicas import GROUP_ATTRIBUTES, ReplicaRule, group_attributes, group_of
from abele.network.optimisers import Optimiser
from abele.network.registry import OpRule, Stateful, Types, require, rule
from abele.network.replicated_sharding import ShardedGradient, Shards, buckets
from abele.numerics import ElementType, f32
from abele.poplibs import gcl, popops
from abele.poplibs.gcl import CommGroup
from abele.poplibs.popops.expr import _1, _2, _3, _4, converted

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def accumulate(net: BlockBuilder, total: Value, gradient: Value, scale: float) -> Value:
    """``total`` plus ``scale`` times ``gradient``."""
    return net.emit_like("accumulate", [total, gradient], total, scale=scale)


def add_to_momentum(net: BlockBuilder, momentum: Value, gradient: Value, group: int) -> Value:
    """``momentum`` plus a gradient times what the optimiser of its ``group`` of parameters has for it."""
    return net.emit_like("add_to_momentum", [momentum, gradient], momentum, group=group)


def running_mean(net: BlockBuilder, mean: Value, gradient: Value) -> Value:
    """The mean of the gradients of all micro-batches so far, from that of those before."""
    return net.emit_like("running_mean", [mean, gradient], mean)


def magnitudes(net: BlockBuilder, gradient: Value, edge: float) -> Value:
    """Number of elements of a gradient with a magnitude below ``edge``, and number of the others: f32[2]."""
    return net.emit("magnitudes", [gradient], (2,), f32, edge=edge)


def sum_counts(net: BlockBuilder, counts: Sequence[Value]) -> Value:
    """The sum of counts, each of :func:`magnitudes`."""
    return net.emit("sum_counts", counts, (2,), f32)


def add_counts(net: BlockBuilder, total: Value, counts: Value) -> Value:
    """``total``, an accumulator, plus counts of :func:`magnitudes`."""
    return net.emit_like("add_counts", [total, counts], total)


def loss_scale(net: BlockBuilder, initial: float, dtype: ElementType) -> Value:
    """Factor of the loss: a number on the device that may change from step to step."""
    return net.emit("loss_scale", [], (), dtype, initial=initial)


def all_reduce(
    net: BlockBuilder, values: Sequence[Value], group: CommGroup, size: int, *, scale: float, in_place: bool
) -> tuple[Value, ...]:
    """``values``, each multiplied by ``scale`` and summed over the replicas of a group, of which there are ``size``.

    Args:
        net: Network or block to extend.
        values: Floats of one type.
        group: Group of replicas that sum.
        size: Replicas of each group.
        scale: Factor of each replica's values before they are sent.
        in_place: True if nothing else reads the values, so that the sums may take their place.
    """
    types = [(v.shape, v.dtype) for v in values]
    return net.emit_many(
        "all_reduce",
        values,
        types,
        **(group_attributes(group) | {"size": size}),
        scale=scale,
        in_place=in_place,
    )


def reduce_scatter(
    net: BlockBuilder, values: Sequence[Value], like: Sequence[Value], size: int, *, scale: float, in_place: bool
) -> tuple[Value, ...]:
    """As :func:`all_reduce` over all ``size`` replicas, of which each is given an equal share of every sum.

    Args:
        net: Network or block to extend.
        values: Floats of one type.
        like: For each of them the parameter that is cut as its sum is.
        size: Replicas.
        scale: Factor of each replica's values before they are sent.
        in_place: True if nothing else reads the values.
    """
    types = [(v.shape, v.dtype) for v in values]
    return net.emit_many("reduce_scatter", [*values, *like], types, size=size, scale=float(scale), in_place=in_place)


def update(net: BlockBuilder, parameter: Value, gradient: Value, optimiser: Optimiser, group: int) -> Value:
    """``parameter`` after one step of an optimiser, whose state is that of its ``group``."""
    return net.emit_like("update", [parameter, gradient], parameter, group=group, optimiser=optimiser)


def _widens_gradient(operand: int, dtype: ElementType) -> bool:
    """True for the gradient of a sum or an update: its arithmetic is f32 whatever the gradient's type."""
    return operand == 1 and dtype.is_float


@rule("accumulate")
class AccumulateRule(OpRule):
    """A sum over micro-batches that grows in place."""

    operands = 2
    attributes: ClassVar = {"scale": (float, int)}
    folds = False
    repeats = False

    def types(self, op: NetworkOp) -> Types:
        """The sum's."""
        total, gradient = op.inputs
        require(total.dtype.is_float and total.shape == gradient.shape, f"{total} is no sum of {gradient}")
        return [total.type]

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True for the gradient."""
        return _widens_gradient(operand, dtype)

    def evaluate(self, op: NetworkOp, total: Array, gradient: Array) -> Array:
        """The sum in NumPy."""
        return np.asarray(total + op.attrs["scale"] * gradient)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One scaled addition in place."""
        total, gradient = to[op.inputs[0]], to[op.inputs[1]]
        popops.scaled_add_to(to.graph, total, gradient, op.attrs["scale"], to.prog)
        return total


@rule("add_to_momentum")
class AddToMomentum(Stateful):
    """A momentum that takes up a gradient, in place; see :mod:`abele.distribution.combined_momenta`."""

    operands = 2
    attributes: ClassVar = {"group": int}

    def types(self, op: NetworkOp) -> Types:
        """The momentum's."""
        momentum, gradient = op.inputs
        require(momentum.dtype.is_float and momentum.shape == gradient.shape, f"{momentum} is no sum of {gradient}")
        return [momentum.type]

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True for the gradient."""
        return _widens_gradient(operand, dtype)

    def evaluate(self, op: NetworkOp, momentum: Array, gradient: Array) -> Array:
        """The sum in NumPy, for an optimiser that takes gradients as they are."""
        return np.asarray(momentum + gradient)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """v ← v + fresh·g, in f32 and rounded once."""
        momentum, gradient = to[op.inputs[0]], to[op.inputs[1]]
        assert to.momenta is not None
        grown = converted(_1, momentum.dtype, f32) + converted(_2, gradient.dtype, f32) * _3
        stored = converted(grown, f32, momentum.dtype)
        operands = [momentum, gradient, to.momenta.fresh(op.attrs["group"], op.output.place)]
        popops.map_with_output(to.graph, stored, operands, momentum, to.prog, name="add_to_momentum")
        return momentum


@rule("running_mean")
class RunningMean(Stateful):
    """The mean of micro-batches so far, which moves in place: no sum has to fit in its type."""

    operands = 2

    def types(self, op: NetworkOp) -> Types:
        """The mean's."""
        mean, gradient = op.inputs
        require(mean.dtype.is_float and mean.shape == gradient.shape, f"{mean} is no mean of {gradient}")
        return [mean.type]

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True for the gradient."""
        return _widens_gradient(operand, dtype)

    def evaluate(self, op: NetworkOp, mean: Array, gradient: Array) -> Array:
        """Mean after the first micro-batch."""
        return np.asarray(gradient.astype(mean.dtype))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """m ← m·k/(k + 1) + g/(k + 1) in one pass, in f32."""
        mean, gradient = to[op.inputs[0]], to[op.inputs[1]]
        assert to.shares is not None
        moved = converted(_1, mean.dtype, f32) * _3 + converted(_2, gradient.dtype, f32) * _4
        stored = converted(moved, f32, mean.dtype)
        operands = [mean, gradient, *to.shares]
        popops.map_with_output(to.graph, stored, operands, mean, to.prog, name="running_mean")
        return mean


@rule("magnitudes")
class Magnitudes(OpRule):
    """Counts of small and large elements of a gradient. NaNs count as large."""

    operands = 1
    attributes: ClassVar = {"edge": (float, int)}
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """Two counts."""
        require(op.inputs[0].dtype.is_float, "gradients are floats")
        return [((2,), f32)]

    def evaluate(self, op: NetworkOp, gradient: Array) -> Array:
        """The counts in NumPy."""
        below = int(np.count_nonzero(np.abs(gradient) < op.attrs["edge"]))
        return np.array([below, gradient.size - below], np.float32)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A histogram with one edge."""
        gradient = to[op.inputs[0]]
        edge = to.graph.constant(gradient.dtype, (1,), op.attrs["edge"], name="edge")
        floats = {"useFloatArithmetic": True}
        return popops.histogram(to.graph, gradient.flatten(), edge, True, to.prog, options=floats, name="magnitudes")


class CountsRule(OpRule):
    """Base of kinds whose operands are counts of small and large elements."""

    folds = False

    def types(self, op: NetworkOp) -> Types:
        """Two counts."""
        for value in op.inputs:
            require(value.dtype == f32 and value.shape == (2,), f"{value} is no pair of f32 counts")
        return [((2,), f32)]

    def evaluate(self, op: NetworkOp, *counts: Array) -> Array:
        """The sum in NumPy."""
        return np.asarray(np.sum(counts, 0), np.float32)


@rule("sum_counts")
class CountsSum(CountsRule):
    """Counts of several gradients together."""

    operands = (1, None)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One sum of all."""
        rows = concat([to[v].reshape((1, 2)) for v in op.inputs])
        return popops.reduce(to.graph, rows, [0], "ADD", to.prog, name="sum_counts")


@rule("add_counts")
class CountsOfStep(CountsRule):
    """Counts over micro-batches, which grow in place."""

    operands = 2
    repeats = False
    depends_on_operands_alone = False

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One addition in place."""
        total, counts = to[op.inputs[0]], to[op.inputs[1]]
        popops.add_in_place(to.graph, total, counts, to.prog, name="add_counts")
        return total


@rule("loss_scale")
class LossScale(Stateful):
    """The scale of the loss on the device."""

    operands = 0
    attributes: ClassVar = {"initial": (float, int)}

    def types(self, op: NetworkOp) -> Types:
        """One number."""
        require(op.output.shape == () and op.output.dtype.is_float, f"{op.output} is no scalar")
        return [op.output.type]

    def evaluate(self, op: NetworkOp) -> Array:
        """Initial value of the scale."""
        return np.asarray(op.attrs["initial"], op.output.dtype.np)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The program's scalar, in the type of the loss."""
        assert to.loss_scale is not None
        if op.output.dtype == f32:
            return to.loss_scale
        return popops.cast(to.graph, to.loss_scale, op.output.dtype, to.prog, name="loss_scale")


@rule("all_reduce")
class AllReduceRule(ReplicaRule):
    """Sums over the replicas of a group, which all of them have."""

    operands = (1, None)
    attributes: ClassVar = GROUP_ATTRIBUTES | {"scale": (float, int), "in_place": bool}
    repeats = False

    def types(self, op: NetworkOp) -> Types:
        """Types of the operands."""
        require(all(v.dtype.is_float for v in op.inputs), "floats are summed over replicas")
        return [v.type for v in op.inputs]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> tuple[Array, ...] | Array:
        """The sums in NumPy."""
        scale = op.attrs["scale"]
        sums = tuple(np.asarray(sum(scale * v for v in parts), parts[0].dtype) for parts in zip(*group, strict=True))
        return sums if len(sums) > 1 else sums[0]

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """Collectives of several tensors each, on rings; see :func:`~abele.network.replicated_sharding.buckets`."""
        given = [to[v] for v in op.inputs]
        alone, group = op.attrs["size"] == 1, group_of(op)
        sums = given if op.attrs["in_place"] or alone else [to.variable_like(t, "sum_of_replicas") for t in given]
        if op.attrs["scale"] != 1.0:
            _scale(to, given, sums, op.attrs["scale"])
            given = sums
        sizes = [t.size * t.dtype.bytes for t in given]
        for bucket in buckets(sizes, to.graph.system.num_tiles) if group.size > 1 else ():
            source, into = (concat([tensors[n].flatten() for n in bucket]) for tensors in (given, sums))
            gcl.all_reduce_cross_replica_to_destination(to.graph, source, into, "add", to.prog, group)
        return tuple(sums)


@rule("reduce_scatter")
class ReduceScatterRule(Stateful):
    """Sums over all replicas, of which each has an equal share; what reads them works on that share alone.

    The operands are what is summed and then, for each of these, the parameter that is cut in the same way.
    """

    operands = (2, None)
    attributes: ClassVar = {"size": int, "scale": (float, int), "in_place": bool}

    def types(self, op: NetworkOp) -> Types:
        """Types of the sums: the shares of all replicas together."""
        values, like = _halves(op.inputs)
        require(len(values) == len(like), "there is a parameter for each sum")
        for value, parameter in zip(values, like, strict=True):
            require(value.dtype.is_float, "floats are summed over replicas")
            require(value.shape == parameter.shape, f"{value} is not cut like {parameter}")
        return [v.type for v in values]

    def evaluate(self, op: NetworkOp, *values: Array) -> tuple[Array, ...] | Array:
        """Result of replicas that all have the same values: all shares together."""
        half = len(values) // 2
        sums = tuple(np.asarray(v * (op.attrs["scale"] * op.attrs["size"]), v.dtype) for v in values[:half])
        return sums if len(sums) > 1 else sums[0]

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[None, ...]:
        """Collectives of several tensors each, as of an all-reduce; the shares are spread over all tiles."""
        summed, like = _halves(op.inputs)
        given = [to[v] for v in summed]
        if op.attrs["scale"] != 1.0:
            into = given if op.attrs["in_place"] else [to.variable_like(t, "scaled") for t in given]
            _scale(to, given, into, op.attrs["scale"])
            given = into
        shards = [Shards.of(to[v], op.attrs["size"]) for v in like]
        sizes = [s.width * s.replicas * t.dtype.bytes for s, t in zip(shards, given, strict=True)]
        for bucket in buckets(sizes, to.graph.system.num_tiles):
            rows = concat([shards[n].rows(to.graph, given[n]) for n in bucket], 1)
            own = gcl.reduce_scatter_cross_replica(to.graph, rows.flatten(), "add", to.prog, CommGroup.all())
            pairs, begin = [], 0
            for n in bucket:
                end = begin + shards[n].width
                share = to.graph.variable(own.dtype, (shards[n].width,), name=f"{like[n].name}/gradient_share")
                pairs.append((own[begin:end], to.graph.map_linear(share)))
                to.shares_of[op.outputs[n]] = ShardedGradient(pairs[-1][1], shards[n])
                begin = end
            for copy in joined_copies(pairs, "spread_shares"):
                to.prog.add(copy)
        return (None,) * len(op.outputs)


def _halves(values: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
    half = -(-len(values) // 2)
    return values[:half], values[half:]


def _scale(to: Lowering, tensors: Sequence[Tensor], into: Sequence[Tensor], scale: float) -> None:
    """Append what multiplies tensors by a number."""
    for tensor, scaled in zip(tensors, into, strict=True):
        popops.map_with_output(to.graph, _1 * scale, [tensor], scaled, to.prog, name="scale")


@rule("update")
class Update(Stateful):
    """A parameter after one step of an optimiser; it changes in place, as does what the optimiser remembers.

    Where replicas share its gradient each makes a step on its share, and all gather the parameter again.
    """

    operands = 2
    attributes: ClassVar = {"optimiser": Optimiser, "group": int}

    def types(self, op: NetworkOp) -> Types:
        """The parameter's."""
        parameter, gradient = op.inputs
        require(parameter.shape == gradient.shape, f"{gradient} is no gradient of {parameter}")
        return [parameter.type]

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True for the gradient."""
        return _widens_gradient(operand, dtype)

    def evaluate(self, op: NetworkOp, parameter: Array, gradient: Array) -> Array:
        """The first step of the optimiser, when it remembers nothing yet."""
        return np.asarray(op.attrs["optimiser"].first_step(parameter, gradient))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The fused update of the group that the program has for the optimiser."""
        parameter, share = to[op.inputs[0]], to.shares_of.get(op.inputs[1])
        gradient = to[op.inputs[1]] if share is None else share
        group = to.updates[op.attrs["group"], op.output.place.ipu]
        # A variable may be called after the layer in which it is first read.
        name = op.inputs[0].name or parameter.name
        sums = None if to.sums is None else to.sums.waiting(op.inputs[1])
        group.take(parameter, gradient, to.prog, name, row=to.rows.get(op.inputs[0]), sums=sums)
        return parameter
