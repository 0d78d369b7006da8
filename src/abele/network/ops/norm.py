"""Norms: activations less their mean, over their deviation, by channels; layer, group, instance and batch norm are one.

Activations are [batch, channels, *field]. Statistics are of groups of channels, sample by sample: one group is a layer
norm, as many as there are channels an instance norm; of no groups they are of each channel over the batch. So
activations [2, 6, 4, 4] in 3 groups have 2 · 3 means, each of 2 · 4 · 4 = 32 elements. Statistics are f32, also of
narrower activations: where the mean is large, its rounding error in f16 would exceed the difference from it. The
gradient needs the whitened activations and the deviations; the activations themselves need not be kept.

A batch norm may take its statistics over the samples of several consecutive replicas: the sums of the elements and of
their squares are all-reduced, in one collective. Stable norms sum the squared distances from the mean of all, in a
second one. On the way back the two sums of the gradient are all-reduced together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Graph, Steps, Tensor, concat
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import ValuePart
from abele.network.ops.replicas import ReplicaRule
from abele.network.registry import Gradients, OpRule, Types, no_derivative, require, rule
from abele.numerics import f32
from abele.poplibs import gcl
from abele.poplibs.gcl import CommGroup
from abele.poplibs.poplin import norms as poplin_norms
from abele.poplibs.poplin.norms.parts import PARAMETER_SEEDS
from abele.poplibs.popnn.norms import view as popnn_norms
from abele.poplibs.popnn.norms.view import NormView
from abele.poplibs.poputil.mapping import map_small

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

BATCH = 0
"""Groups of a batch norm."""
NORM_ATTRIBUTES = {"groups": int, "replicas": int}


def norm(
    net: BlockBuilder,
    x: Value,
    groups: int,
    eps: float,
    gain: Value | None = None,
    shift: Value | None = None,
    *,
    replicas: int = 1,
) -> tuple[Value, Value, Value]:
    """``x`` [batch, channels, *field] normalised; beside it the f32 means and inverse deviations, one per statistic.

    Args:
        net: The network to extend.
        x: The activations.
        groups: Groups of channels with statistics of their own for each sample, or :data:`BATCH`.
        eps: Added to the variance.
        gain: Factor of each channel.
        shift: Addend of each channel.
        replicas: Consecutive replicas whose samples share statistics, of a batch norm.
    """
    from abele.network.ops.constant import full

    inputs = [x]
    if gain is not None or shift is not None:
        given = (gain, 1.0), (shift, 0.0)
        inputs += [full(net, fill, (x.shape[1],), x.dtype) if v is None else v for v, fill in given]
    statistic = ((_num_statistics(x, groups),), f32)
    made = (x.type, x.type, statistic, statistic)
    out, _, mean, inverse = net.emit_many("norm", inputs, made, groups=groups, replicas=replicas, eps=float(eps))
    return out, mean, inverse


def whiten(net: BlockBuilder, x: Value, mean: Value, inverse: Value, groups: int) -> Value:
    """``x`` less means, times inverse deviations, as :func:`norm` makes them of it."""
    return net.emit_like("whiten", [x, mean, inverse], x, groups=groups)


def _num_statistics(x: Value, groups: int) -> int:
    return x.shape[0] * groups if groups else x.shape[1]


def _check_replicas(op: NetworkOp) -> None:
    replicas = op.attrs["replicas"]
    require(replicas > 0, f"statistics of {replicas} replicas")
    require(replicas == 1 or op.attrs["groups"] == BATCH, "only batch norms take statistics over several replicas")


def _check(x: Value, groups: int, *per_channel: Value) -> None:
    require(x.ndim > 1, f"{x} has no channels: activations are [batch, channels, *field]")
    require(groups >= 0 and (groups == BATCH or x.shape[1] % groups == 0), f"{x} has no {groups} groups of channels")
    fits = all(v.shape == x.shape[1:2] for v in per_channel)
    require(fits, f"gain and shift have to be one number for each of the {x.shape[1]} channels")


def _grouped(x: Array, groups: int) -> tuple[Array, tuple[int, ...]]:
    """Activations in f64 with the dimensions of each statistic, and these dimensions."""
    wide = x.astype(np.float64)
    if groups == BATCH:
        return wide, (0, *range(2, x.ndim))
    return wide.reshape(x.shape[0], groups, -1), (2,)


def _beside(statistic: Array, x: Array, groups: int) -> Array:
    """A flat statistic with the dimensions of :func:`_grouped`."""
    shape = (1, -1, *(1,) * (x.ndim - 2)) if groups == BATCH else (x.shape[0], groups, 1)
    return statistic.reshape(shape)


def _channels(parameter: Array, x: Array) -> Array:
    return parameter.reshape(-1, *(1,) * (x.ndim - 2))


def _all_reduce(graph: Graph, tensors: Sequence[Tensor], prog: Steps, replicas: int) -> list[Tensor]:
    """Sums of statistics over groups of consecutive replicas, in one collective."""
    together = concat([t.flatten() for t in tensors])
    total = gcl.all_reduce_cross_replica(graph, together, "add", prog, CommGroup.consecutive(replicas))
    ends = np.cumsum([0, *(t.size for t in tensors)]).tolist()
    return [total[a:b].reshape(t.shape) for t, a, b in zip(tensors, ends, ends[1:], strict=False)]


def _view(op: NetworkOp) -> NormView:
    return NormView(op.kind, op.attrs["groups"], strided=False)


class _OfReplicas(ReplicaRule):
    folds = True
    depends_on_operands_alone = True

    def groups_of(self, op: NetworkOp) -> CommGroup:
        """Consecutive replicas."""
        return CommGroup.consecutive(op.attrs["replicas"])


@rule("norm")
class Norm(_OfReplicas):
    """Activations normalised, whitened (as they are before gain and shift), means and inverse deviations."""

    operands = (1, 3)
    attributes: ClassVar = NORM_ATTRIBUTES | {"eps": float}

    def types(self, op: NetworkOp) -> Types:
        """Activations twice, statistics in f32; what gain and shift were applied to may have another float type."""
        x, *sides = op.inputs
        require(len(sides) != 1, "it takes gain and shift, or neither")
        _check_replicas(op)
        _check(x, op.attrs["groups"], *sides)
        statistic = ((_num_statistics(x, op.attrs["groups"]),), f32)
        require(op.output.dtype == x.dtype or (sides and op.output.dtype.is_float), f"{op.output} is no norm of {x}")
        return [(x.shape, op.output.dtype), x.type, statistic, statistic]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> tuple[Array, ...]:
        """Two passes in NumPy, over the samples of all."""
        x, *sides = group[rank]
        seen, dims = _grouped(x, op.attrs["groups"])
        every = np.concatenate([_grouped(other, op.attrs["groups"])[0] for other, *_ in group])
        every = seen if len(group) == 1 else every
        mean = every.mean(dims, keepdims=True)
        inverse = 1 / np.sqrt(((every - mean) ** 2).mean(dims, keepdims=True) + op.attrs["eps"])
        white = ((seen - mean) * inverse).reshape(x.shape)
        out = white * _channels(sides[0], x) + _channels(sides[1], x) if sides else white
        return out, white, mean.reshape(-1), inverse.reshape(-1)

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same samples, which have statistics of their own in all norms but one."""
        x, *sides = op.inputs
        samples = 1 if op.attrs["groups"] else 0
        made = part.with_whole(*range(samples, x.ndim))
        return made, [made, *(ValuePart.whole(v.shape) for v in sides)]

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """The norm of fewer samples."""
        x, *sides = inputs
        return norm(net, x, op.attrs["groups"], op.attrs["eps"], *sides)[0]

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The shift lies where its gradient does, apart from the gain."""
        if operand != 2:
            return None
        value = op.inputs[operand]
        return map_small(to.graph, to.graph.variable(value.dtype, value.shape, name=value.name), PARAMETER_SEEDS[1])

    def rounds(self, op: NetworkOp) -> bool:
        """True with gain and shift: what is whitened stays as it is."""
        return len(op.inputs) > 1

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """Statistics, and one step that normalises; it writes what is read, whitened, normalised or both."""
        view, (x, *sides) = _view(op), (to[v] for v in op.inputs)
        mean, inverse = self._statistics(to, op, x)
        if not sides or to.is_dead(op.outputs[0]):
            white = popnn_norms.whiten(to.graph, view, x, (mean, inverse), to.prog)
            return None if sides else white, white, mean, inverse
        gamma, beta = sides
        out, kept = popnn_norms.normalise(
            to.graph,
            view,
            x,
            (gamma, beta),
            (mean, inverse),
            to.prog,
            keeps=to.is_read(op.outputs[1]),
            out_type=op.output.dtype,
        )
        return out, kept, mean, inverse

    @staticmethod
    def _statistics(to: Lowering, op: NetworkOp, x: Tensor) -> tuple[Tensor, Tensor]:
        eps, replicas = op.attrs["eps"], op.attrs["replicas"]
        if replicas == 1:
            return popnn_norms.statistics(
                to.graph, _view(op), x, eps, to.prog, unbiased=False, stable=to.stable_norms, output_type=f32
            )
        return poplin_norms.distributed_norm_statistics(
            to.graph,
            x,
            eps,
            to.prog,
            _all_reduce,
            x.shape[0] * replicas,
            stable=to.stable_norms,
            output_type=f32,
            name=op.kind,
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """One op for the activations and one for gain and shift, from the whitened activations."""
        grad, *others = grads
        if any(g is not None for g in others):
            raise no_derivative(op, "the statistics of a norm")
        assert grad is not None
        x, *sides = op.inputs
        white, inverse = op.outputs[1], op.outputs[3]
        inputs = [white, grad, inverse, *sides[:1]]
        attributes = {name: op.attrs[name] for name in NORM_ATTRIBUTES}
        by_x = net.emit_like("norm_grad", inputs, x, **attributes) if wanted[0] else None
        if not sides:
            return [by_x]
        if not any(wanted[1:]):
            return [by_x, None, None]
        return [by_x, *net.emit_many("norm_grad_parameters", [white, grad], [v.type for v in sides])]


@rule("norm_grad")
class NormGrad(_OfReplicas):
    """The gradient of the activations, through their statistics, of whitened ones, gradient, deviations and gain."""

    operands = (3, 4)
    attributes: ClassVar = NORM_ATTRIBUTES

    def types(self, op: NetworkOp) -> Types:
        """Activations."""
        white, grad, inverse, *gain = op.inputs
        _check_replicas(op)
        _check(white, op.attrs["groups"], *gain)
        require(white.shape == grad.shape, f"{grad} is no gradient of {white}")
        statistics = (_num_statistics(white, op.attrs["groups"]),)
        require(inverse.shape == statistics, f"{inverse} is not one deviation for each of {statistics[0]} statistics")
        return [white.type]

    def among(self, op: NetworkOp, group: Sequence[Sequence[Array]], rank: int) -> Array:
        """The gradient in NumPy."""
        groups, (white, _, inverse, *_) = op.attrs["groups"], group[rank]
        every = []
        for w, grad, _, *gain in group:
            given = grad * _channels(gain[0], grad) if gain else grad
            every.append((_grouped(w, groups)[0], *_grouped(given, groups)))
        w, g, dims = every[rank]
        # Parts are of one size, so that the mean of all is that of their means.
        mean = np.mean([g.mean(dims, keepdims=True) for _, g, _ in every], axis=0)
        slope = np.mean([(g * w).mean(dims, keepdims=True) for w, g, _ in every], axis=0)
        along = mean + w * slope
        return np.asarray(((g - along) * _beside(inverse, white, groups)).reshape(white.shape))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn gradient."""
        white, grad, inverse, *gain = (to[v] for v in op.inputs)
        gamma, replicas = gain[0] if gain else None, op.attrs["replicas"]
        if replicas > 1:
            name = op.kind
            scaled = grad if gamma is None else poplin_norms.norm_gradients(to.graph, grad, gamma, to.prog, name)
            return poplin_norms.distributed_norm_statistics_gradients(
                to.graph,
                white,
                scaled,
                inv_std_dev=inverse,
                prog=to.prog,
                all_reduce=_all_reduce,
                norm_batch_size=white.shape[0] * replicas,
                name=name,
            )
        return popnn_norms.gradients(to.graph, _view(op), white, grad, to.prog, inv_std_dev=inverse, gamma=gamma)

    def beside(self, op: NetworkOp, operand: int) -> Sequence[Value]:
        """The activations, for their gradient."""
        return op.inputs[:1] if operand == 1 else ()


@rule("whiten")
class Whiten(OpRule):
    """Whitened activations, of statistics that are known."""

    operands = 3
    attributes: ClassVar = {"groups": int}

    def types(self, op: NetworkOp) -> Types:
        """The type of the activations."""
        x, *statistics = op.inputs
        _check(x, op.attrs["groups"])
        count = _num_statistics(x, op.attrs["groups"])
        require(all(v.shape == (count,) for v in statistics), f"{x} has {count} means and inverse deviations")
        return [x.type]

    def evaluate(self, op: NetworkOp, x: Array, mean: Array, inverse: Array) -> Array:
        """The whitened activations in NumPy."""
        groups = op.attrs["groups"]
        seen, _ = _grouped(x, groups)
        white: Array = (seen - _beside(mean, x, groups)) * _beside(inverse, x, groups)
        return white.reshape(x.shape)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The part of a norm behind its statistics."""
        x, mean, inverse = (to[v] for v in op.inputs)
        return popnn_norms.whiten(to.graph, _view(op), x, (mean, inverse), to.prog)


@rule("norm_grad_parameters")
class NormGradParameters(OpRule):
    """The gradients of gain and shift, of whitened activations and gradient."""

    operands = 2

    def types(self, op: NetworkOp) -> Types:
        """One number per channel each, in the types that the op says."""
        white, grad = op.inputs
        _check(white, BATCH)
        require(white.shape == grad.shape, f"{grad} is no gradient of {white}")
        return [(white.shape[1:2], v.dtype) for v in op.outputs]

    def evaluate(self, op: NetworkOp, white: Array, grad: Array) -> tuple[Array, Array]:
        """Two sums in NumPy."""
        dims = (0, *range(2, white.ndim))
        wide = grad.astype(np.float64)
        return (wide * white).sum(dims), wide.sum(dims)

    def beside(self, op: NetworkOp, operand: int) -> Sequence[Value]:
        """The activations, for their gradient."""
        return op.inputs[:1] if operand == 1 else ()

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """One popnn call for both."""
        white, grad = to[op.inputs[0]], to[op.inputs[1]]
        view = NormView(op.kind, BATCH)
        types = op.outputs[0].dtype, op.outputs[1].dtype
        return popnn_norms.param_gradients(to.graph, view, white, grad, to.prog, types=types)
