"""Operators that users wrote and registered, in models: the op of the network of that domain, name and version."""

from __future__ import annotations

from typing import Any

from abele.errors import AbeleError
from abele.frontends.onnx.registry import NodeCall
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.own_op import OwnOp


def own_results(call: NodeCall, own: OwnOp, attributes: dict[str, Any]) -> tuple[Value, ...]:
    """Results of a registered operator; in training its author's gradient is around it.

    Raises:
        UnsupportedOpError: Its author did not say its shapes.
        ModelError: Its shapes do not follow from these inputs.
    """
    if own.types is None:
        raise call.refuse("is registered without its results' shapes", remedy="register it with shapes()")
    values = [call.reader.value(item) for item in call.items if item is not None]
    try:
        types = list(own.types([v.type for v in values], attributes))
    except AbeleError:
        raise
    except Exception as error:  # Whatever the author's function raises.
        raise call.wrong(f"does not tell its shapes: {type(error).__name__}: {error}") from error
    made = build.own_op(call.net, own.name, values, types, attributes)
    gradient = own.gradient
    if gradient is None or not call.reader.parts.training:
        return made

    def backward(region: BlockBuilder, *grads: Value) -> list[Value]:
        return list(gradient(region, values, made, grads, attributes))

    return build.own_gradient(call.net, made, values, backward)
