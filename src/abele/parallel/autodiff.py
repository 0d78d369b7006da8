"""Reverse-mode differentiation of networks: gradient ops are appended to the network that they differentiate."""

from __future__ import annotations

from collections.abc import Iterable

from abele.errors import TensorError
from abele.parallel.network import Network, Op, Value
from abele.parallel.ops import build
from abele.parallel.registry import rule_of


def differentiate(net: Network, wanted: Iterable[Value], *, scale: float = 1.0) -> dict[Value, Value]:
    """Append the backward ops of ``net`` and give the gradient of its loss by each of ``wanted``.

    Args:
        net: A network with a loss; its ops grow.
        wanted: Usually the trained parameters. Those that the loss does not depend on are left out of the result.
        scale: Gradient of the loss by itself: 1, or a loss scale.

    Raises:
        TensorError: The network has no loss.
        UnsupportedOpError: An op between them has no derivative.
    """
    loss = net.loss
    if loss is None:
        raise TensorError("the network has no loss to differentiate")
    sources = list(wanted)
    reached = net.differentiable(sources)
    pending: dict[Value, list[Value]] = {loss: [build.full(net, scale, loss.shape, loss.dtype)]}
    for op in reversed(net.needed([loss])):
        if op.output in pending and reached.intersection(op.inputs):
            _differentiate_op(net, op, reached, pending)
    return {v: _total(net, pending[v]) for v in sources if v in pending}


def _differentiate_op(net: Network, op: Op, reached: set[Value], pending: dict[Value, list[Value]]) -> None:
    wanted = [v in reached for v in op.inputs]
    if not any(wanted):
        return
    with net.at(op.debug.renamed(f"{op.debug.name}/grad")):
        grad = _total(net, pending.pop(op.output))
        gradients = rule_of(op).backward(net, op, grad, wanted)
        for value, gradient in zip(op.inputs, gradients, strict=True):
            if gradient is not None and value in reached:
                assert gradient.shape == value.shape, f"{op}: gradient {gradient} of {value}"
                pending.setdefault(value, []).append(gradient)


def _total(net: Network, parts: list[Value]) -> Value:
    """The sum of gradients that reach one value along several paths, as one op."""
    return parts[0] if len(parts) == 1 else build.total(net, parts)
