"""Networks: captured models as ops on values, which do not change; passes make new ones of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from abele.arrays import Array
from abele.errors import NetworkError
from abele.graph.debug import DebugRecord
from abele.network.ir.frozen import Dense, FrozenDict
from abele.network.ir.op import NetworkFunction, NetworkOp, OpBlock
from abele.network.ir.spread import ipus_of, is_spread
from abele.network.ir.value import Value
from abele.numerics import ElementType
from abele.sparsity import Pattern


@dataclass(frozen=True, slots=True)
class AllowedRange:
    """Integer elements that must lie in ``range(lowest, limit)``, or equal ``exception``.

    Attributes:
        value: The elements.
        limit: One more than the largest that is allowed.
        exception: One more number that is allowed, if any.
        what: The field's word for an element, such as ``label``.
        debug: The op that asks for it.
        lowest: The smallest that is allowed: below zero where indices count from the end.
    """

    value: Value
    limit: int
    exception: int | None
    what: str
    debug: DebugRecord
    lowest: int = 0


@dataclass(frozen=True, eq=False)
class Network:
    """A model: what enters it, its ops in order, and what leaves it.

    Networks are made by a :class:`~abele.network.ir.builder.NetworkBuilder` and by passes. Two are equal if they
    have the same structure: kinds, types, names, places, attributes and how values flow; where ops come from in the
    user's source does not count. ``str`` gives the text that :func:`~abele.network.ir.parser.parse` reads back.

    Attributes:
        inputs: Values that the host sends for every micro-batch.
        parameters: Trainable or frozen weights; their names are those of the model's state.
        buffers: State that is not trained.
        accumulators: State that is zero at the start of every step: sums over its micro-batches.
        seed: The u32[2] state of random ops, if there are any.
        ops: In an order in which every value is made before it is read.
        outputs: Results of the model.
        updates: For each parameter or state that changes, the value that it holds afterwards.
        changed_inputs: For an input that the model changes, what it holds afterwards.
        gradients: The gradient of the loss by each trained parameter, once the network is differentiated.
        loss: The scalar to differentiate, if there is one.
        wide: Integers that have 64 bits in the model and 32 on the device.
        bounds: Ranges in which integer values must lie.
        num_random: Number of random modifiers in use.
    """

    inputs: tuple[Value, ...] = ()
    parameters: tuple[Value, ...] = ()
    buffers: tuple[Value, ...] = ()
    accumulators: tuple[Value, ...] = ()
    seed: Value | None = None
    ops: tuple[NetworkOp, ...] = ()
    outputs: tuple[Value, ...] = ()
    updates: FrozenDict[Value, Value] = field(default_factory=FrozenDict)
    changed_inputs: FrozenDict[Value, Value] = field(default_factory=FrozenDict)
    gradients: FrozenDict[Value, Value] = field(default_factory=FrozenDict)
    loss: Value | None = None
    wide: frozenset[Value] = frozenset()
    bounds: tuple[AllowedRange, ...] = ()
    num_random: int = 0

    # --- questions -----------------------------------------------------------------------------------------------

    @cached_property
    def num_ipus(self) -> int:
        """IPUs of one replica that its ops are placed on: one more than the highest number."""
        inside = (max(ipus) for op in self.ops if is_spread(op) for ipus in map(ipus_of, op.blocks) if ipus)
        return 1 + max((*(op.place.ipu for op in self.ops if op.place is not None), *inside), default=0)

    @cached_property
    def num_stages(self) -> int:
        """Stages of its pipeline; one if it is none."""
        return 1 + max((op.place.pipeline_stage for op in self.ops if op.place is not None), default=0)

    @cached_property
    def num_phases(self) -> int:
        """Phases that it runs in, one after the other; one if it is not divided."""
        return 1 + max((op.place.phase for op in self.ops if op.place is not None), default=0)

    @property
    def entries(self) -> tuple[Value, ...]:
        """Every value that enters."""
        seed = () if self.seed is None else (self.seed,)
        return (*self.inputs, *self.parameters, *self.buffers, *self.accumulators, *seed)

    @property
    def leaves(self) -> tuple[Value, ...]:
        """Every value that something outside the ops asks for."""
        loss = () if self.loss is None else (self.loss,)
        changes = (*self.updates.values(), *self.changed_inputs.values(), *self.gradients.values())
        return (*self.outputs, *changes, *loss, *(b.value for b in self.bounds))

    @property
    def results(self) -> tuple[Value, ...]:
        """Values that a run has to compute: outputs, updates, changed inputs and gradients."""
        return (
            *self.outputs,
            *self.updates.values(),
            *self.changed_inputs.values(),
            *self.gradients.values(),
        )

    @cached_property
    def constants(self) -> FrozenDict[Value, Array]:
        """The contents of every constant."""
        return FrozenDict({op.output: contents_of(op) for op in self.ops if op.kind == "constant"})

    @cached_property
    def functions(self) -> tuple[NetworkFunction, ...]:
        """Functions that are called, each before its callers."""
        return functions_of(self.ops)

    def walk(self) -> Iterator[NetworkOp]:
        """Every op, those of regions and functions included (a function's once per call)."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()

    def made_by(self) -> dict[Value, NetworkOp]:
        """The op that makes each value."""
        return {v: op for op in self.ops for v in op.outputs}

    def needed(self, targets: Iterable[Value]) -> list[NetworkOp]:
        """The ops that ``targets`` depend on, in order."""
        return needed(self.ops, targets)

    # --- comparison ----------------------------------------------------------------------------------------------

    @cached_property
    def _structure(self) -> object:
        return network_key(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash(self._structure)

    def __str__(self) -> str:
        from abele.network.ir.printer import network_text

        return network_text(self)


def contents_of(op: NetworkOp) -> Array:
    """The elements of a ``constant`` op.

    Raises:
        NetworkError: ``op`` is of another kind, or its value is no array.
    """
    value = op.attrs.get("value")
    if not isinstance(value, Dense):
        raise NetworkError(
            f"a {op.kind!r} op has no elements of its own: its attribute 'value' is {value!r}",
            remedy="ask for the contents of ops of kind 'constant', whose value is a Dense",
        )
    return value.contents


def needed(ops: Iterable[NetworkOp], targets: Iterable[Value]) -> list[NetworkOp]:
    """The ops of a list that ``targets`` depend on, in order."""
    wanted = set(targets)
    kept: list[NetworkOp] = []
    for op in reversed(list(ops)):
        if wanted.intersection(op.outputs):
            wanted.update(op.inputs)
            kept.append(op)
    return kept[::-1]


def differentiable(ops: Iterable[NetworkOp], sources: Iterable[Value]) -> set[Value]:
    """``sources`` and every floating-point value computed from one of them along a path that is not detached."""
    reached = set(sources)
    for op in ops:
        if op.kind != "detach" and reached.intersection(op.inputs):
            reached.update(v for v in op.outputs if v.dtype.is_float)
    return reached


def functions_of(ops: Iterable[NetworkOp]) -> tuple[NetworkFunction, ...]:
    """Functions that ops call, directly or not, each before its callers."""
    found: dict[NetworkFunction, None] = {}

    def visit(inner: Iterable[NetworkOp]) -> None:
        for op in inner:
            called = op.function
            if called is not None and called in found:
                continue
            for block in op.blocks:
                visit(block.ops)
            if called is not None:
                found[called] = None

    visit(ops)
    return tuple(found)


# Equality of networks: their structure as nested tuples that compare and hash.
#
# Values are numbered in the order in which they are made, so that only the flow between them counts. Floating-point
# numbers compare by their text, which tells 0 from −0 and lets a NaN equal itself.

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
        case Pattern():
            return ("pattern", value.digest)
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


_KEYS: WeakKeyDictionary[OpBlock, Key] = WeakKeyDictionary()
"""Structures of blocks that are alive: passes ask for that of a function at each of its calls."""


def block_key(block: OpBlock) -> Key:
    """The structure of a block."""
    found = _KEYS.get(block)
    if found is None:
        numbers = _Numbering()
        entered = numbers.define(block.parameters)
        found = _KEYS[block] = (entered, _ops_key(block.ops, numbers), numbers.read(block.results))
    return found


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
