"""Equality of networks: their structure as nested tuples that compare and hash.

Values are numbered in the order in which they are made, so that only the flow between them counts. Floating-point
numbers compare by their text, which tells 0 from −0 and lets a NaN equal itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from abele.network.ir.frozen import Dense
from abele.network.ir.network import Network
from abele.network.ir.op import NetworkFunction, NetworkOp, OpBlock
from abele.network.ir.value import Value
from abele.numerics import ElementType

Key = tuple[Any, ...]


def attribute_key(value: Any) -> Any:
    """An attribute as something that compares by structure and hashes."""
    match value:
        case float():
            return ("float", repr(value))
        case None | bool() | int() | str():
            return (type(value).__name__, value)
        case ElementType():
            return ("type", str(value))
        case NetworkFunction():
            return ("function", value.name, value.num_random, block_key(value.body))
        case Dense():
            return value.key
        case tuple() | list():
            return ("tuple", *map(attribute_key, value))
        case frozenset():
            return ("set", *sorted(map(attribute_key, value)))
    if is_dataclass(value):
        compared = (f.name for f in fields(value) if f.compare)
        return (type(value).__name__, *(attribute_key(getattr(value, name)) for name in compared))
    raise TypeError(f"{value!r} is no attribute of an op")


def attributes_key(attrs: Mapping[str, Any]) -> Key:
    """Attributes, whatever their order."""
    return tuple((name, attribute_key(attrs[name])) for name in sorted(attrs))


def value_key(value: Value) -> Key:
    """Type, name, stage and place of a value."""
    return (value.shape, str(value.dtype), value.name, value.stage.value, value.place)


class _Numbering:
    """Numbers of values in the order in which they are made."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}

    def define(self, values: Sequence[Value]) -> Key:
        for value in values:
            self._numbers[value] = len(self._numbers)
        return tuple(map(value_key, values))

    def of(self, value: Value) -> int:
        return self._numbers.get(value, -1)

    def read(self, values: Sequence[Value]) -> Key:
        return tuple(map(self.of, values))


def op_key(op: NetworkOp, read: Callable[[Sequence[Value]], Key], made: Key) -> Key:
    """Key of an op, from keys of the values that it reads and makes."""
    return (op.kind, read(op.inputs), made, attributes_key(op.attrs), tuple(map(block_key, op.regions)))


def _ops_key(ops: Sequence[NetworkOp], numbers: _Numbering) -> Key:
    return tuple(op_key(op, numbers.read, numbers.define(op.outputs)) for op in ops)


def block_key(block: OpBlock) -> Key:
    """The structure of a block."""
    numbers = _Numbering()
    entered = numbers.define(block.parameters)
    return (entered, _ops_key(block.ops, numbers), numbers.read(block.results))


def network_key(net: Network) -> Key:
    """The structure of a network."""
    numbers = _Numbering()
    groups = (net.inputs, net.parameters, net.buffers, net.accumulators, () if net.seed is None else (net.seed,))
    entered = tuple(map(numbers.define, groups))
    ops = _ops_key(net.ops, numbers)

    def pairs(mapping: Mapping[Value, Value]) -> frozenset[Key]:
        return frozenset((numbers.of(k), numbers.of(v)) for k, v in mapping.items())

    return (
        entered,
        ops,
        numbers.read(net.outputs),
        pairs(net.updates),
        pairs(net.changed_inputs),
        tuple((numbers.of(k), numbers.of(v)) for k, v in net.gradients.items()),
        None if net.loss is None else numbers.of(net.loss),
        frozenset(numbers.read(tuple(net.wide))),
        tuple((numbers.of(b.value), b.limit, b.lowest, b.exception, b.what) for b in net.bounds),
        net.num_random,
    )
