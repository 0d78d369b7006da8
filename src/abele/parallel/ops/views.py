"""Ops that move no data: they see the same elements in another shape, order or selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele import graph as tile_graph
from abele.errors import UnsupportedOpError
from abele.graph import Tensor
from abele.parallel.network import Network, Op, Shape, Value
from abele.parallel.registry import RULES, Array, Gradients, OpRule, rule

if TYPE_CHECKING:
    from abele.parallel.lowering import Lowering


def _view(net: Network, kind: str, inputs: Sequence[Value], shape: Sequence[int], **attrs: object) -> Value:
    """Append a view op, or apply it at once to constants."""
    output = net.value(shape, inputs[0].dtype)
    if not all(v in net.constants for v in inputs):
        return net.emit(kind, inputs, output.shape, output.dtype, **attrs)
    op = Op(kind, tuple(inputs), (output,), attrs, tile_graph.DebugInfo(kind))
    return net.constant(RULES[kind].evaluate(op, *(net.constants[v] for v in inputs)), output.dtype)


def reshape(net: Network, value: Value, shape: Sequence[int]) -> Value:
    """``value`` in another shape of as many elements; one dimension may be −1."""
    wanted = tuple(shape)
    if -1 in wanted:
        known = -int(np.prod(wanted))
        wanted = tuple(value.size // known if n == -1 else n for n in wanted)
    return value if wanted == value.shape else _view(net, "reshape", [value], wanted)


def permute(net: Network, value: Value, order: Sequence[int]) -> Value:
    """``value`` with its dimensions in ``order``."""
    axes = tuple(d % value.ndim for d in order)
    if axes == tuple(range(value.ndim)):
        return value
    return _view(net, "permute", [value], [value.shape[d] for d in axes], order=axes)


def transpose(net: Network, value: Value, first: int = -2, second: int = -1) -> Value:
    """``value`` with two dimensions swapped."""
    order = list(range(value.ndim))
    order[first], order[second] = order[second], order[first]
    return permute(net, value, order)


def expand(net: Network, value: Value, shape: Sequence[int]) -> Value:
    """``value`` repeated to ``shape`` by NumPy's broadcasting rules."""
    return value if tuple(shape) == value.shape else _view(net, "expand", [value], shape)


def slice_(net: Network, value: Value, dim: int, begin: int, end: int, step: int = 1) -> Value:
    """Indices ``begin, begin + step, …`` below ``end`` of one dimension."""
    dim %= value.ndim
    count = len(range(begin, end, step))
    if (begin, count) == (0, value.shape[dim]):
        return value
    shape = (*value.shape[:dim], count, *value.shape[dim + 1 :])
    return _view(net, "slice", [value], shape, dim=dim, begin=begin, end=end, step=step)


def concat(net: Network, values: Sequence[Value], dim: int) -> Value:
    """The values after each other along ``dim``."""
    dim %= values[0].ndim
    extent = sum(v.shape[dim] for v in values)
    shape = (*values[0].shape[:dim], extent, *values[0].shape[dim + 1 :])
    return values[0] if len(values) == 1 else _view(net, "concat", values, shape, dim=dim)


def pad(net: Network, value: Value, low: Sequence[int], high: Sequence[int], fill: float = 0.0) -> Value:
    """``value`` with ``low[d]`` elements of ``fill`` before and ``high[d]`` after it along each dimension d."""
    for dim, (before, after) in enumerate(zip(low, high, strict=True)):
        around = [_filled_like(net, value, dim, n, fill) if n else None for n in (before, after)]
        parts = [around[0], value, around[1]]
        value = concat(net, [p for p in parts if p is not None], dim)
    return value


def _filled_like(net: Network, value: Value, dim: int, count: int, fill: float) -> Value:
    return full(net, fill, (*value.shape[:dim], count, *value.shape[dim + 1 :]), value.dtype)


def full(net: Network, fill: float, shape: Shape, dtype: object) -> Value:
    """A constant of one number."""
    return net.constant(np.broadcast_to(np.float64(fill), shape), dtype)


def detach(net: Network, value: Value) -> Value:
    """``value``, through which no gradient flows."""
    return _view(net, "detach", [value], value.shape)


@rule("reshape")
class Reshape(OpRule):
    """The same elements in row-major order in another shape."""

    def evaluate(self, op: Op, x: Array) -> Array:
        """NumPy's reshape."""
        return x.reshape(op.output.shape)

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """A view."""
        return to[op.inputs[0]].reshape(op.output.shape)

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """The gradient in the shape of the input."""
        return [reshape(net, grad, op.inputs[0].shape)]


@rule("permute")
class Permute(OpRule):
    """Dimensions in another order."""

    def evaluate(self, op: Op, x: Array) -> Array:
        """NumPy's transpose."""
        return x.transpose(op.attrs["order"])

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """A view."""
        return to[op.inputs[0]].transpose(op.attrs["order"])

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """The inverse permutation of the gradient."""
        order = op.attrs["order"]
        return [permute(net, grad, sorted(range(len(order)), key=order.__getitem__))]


@rule("expand")
class Expand(OpRule):
    """Elements repeated along dimensions."""

    def evaluate(self, op: Op, x: Array) -> Array:
        """NumPy's broadcast_to."""
        return np.broadcast_to(x, op.output.shape)

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """A view."""
        return to[op.inputs[0]].broadcast_to(op.output.shape)

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """The gradient summed over the repetitions."""
        from abele.parallel.ops.reduction import sum_to

        return [sum_to(net, grad, op.inputs[0].shape)]


@rule("slice")
class Slice(OpRule):
    """Some indices of one dimension."""

    def evaluate(self, op: Op, x: Array) -> Array:
        """NumPy's slice."""
        attrs = op.attrs
        taken = slice(attrs["begin"], attrs["end"], attrs["step"])
        return np.asarray(np.moveaxis(np.moveaxis(x, attrs["dim"], 0)[taken], 0, attrs["dim"]))

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """A view."""
        attrs = op.attrs
        part = to[op.inputs[0]].slice(attrs["begin"], attrs["end"], attrs["dim"])
        return part if attrs["step"] == 1 else part.sub_sample(attrs["step"], attrs["dim"])

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """The gradient with zeros where the input was not taken."""
        value, dim, begin = op.inputs[0], op.attrs["dim"], op.attrs["begin"]
        if op.attrs["step"] != 1:
            raise UnsupportedOpError(
                f"a slice with step {op.attrs['step']} has no derivative",
                at=str(op.debug),
                remedy="reshape, then slice",
            )
        low, high = [0] * value.ndim, [0] * value.ndim
        low[dim], high[dim] = begin, value.shape[dim] - begin - grad.shape[dim]
        return [pad(net, grad, low, high)]


@rule("concat")
class Concat(OpRule):
    """Values after each other along one dimension."""

    def evaluate(self, op: Op, *inputs: Array) -> Array:
        """NumPy's concatenate."""
        return np.concatenate(inputs, axis=op.attrs["dim"])

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """A view."""
        return tile_graph.concat([to[v] for v in op.inputs], op.attrs["dim"])

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """The part of the gradient that belongs to each input."""
        dim = op.attrs["dim"]
        ends = np.cumsum([v.shape[dim] for v in op.inputs]).tolist()
        begins = [0, *ends[:-1]]
        return [
            slice_(net, grad, dim, begin, end) if want else None
            for begin, end, want in zip(begins, ends, wanted, strict=True)
        ]


@rule("detach")
class Detach(OpRule):
    """The same elements, through which no gradient flows."""

    def evaluate(self, op: Op, x: Array) -> Array:
        """The input."""
        return x

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """The same view."""
        return to[op.inputs[0]]

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """No gradient."""
        return [None]
