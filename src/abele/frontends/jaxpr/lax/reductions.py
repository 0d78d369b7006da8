"""Reductions over dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.network import Value
from abele.network.ops import build

_OPERATIONS = {
    "reduce_sum": "add",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "mul",
    "reduce_and": "and",
    "reduce_or": "or",
}


def _register(name: str, operation: str) -> None:
    @primitive(name)
    def reduced(call: PrimitiveCall, value: Value, *, axes: Sequence[int]) -> Value:
        return build.reduce(call.net, value, axes, operation)


for _name, _operation in _OPERATIONS.items():
    _register(_name, _operation)
