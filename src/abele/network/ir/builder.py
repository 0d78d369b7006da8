"""Builders: the mutable side of networks, used while a model is captured and while a pass makes a new network.

A builder simplifies as it goes: an op whose rule knows something simpler (a view of a constant, a map that is the
identity) is not appended, and what it stands for is returned instead. The pass ``canonicalise`` does the same to ops
that are there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import ElementRangeError
from abele.graph.debug import DebugRecord
from abele.network.ir.frozen import Dense, FrozenDict
from abele.network.ir.network import AllowedRange, Network, contents_of
from abele.network.ir.op import NetworkOp, OpBlock, PlanHint
from abele.network.ir.spread import ipus_of
from abele.network.ir.value import HERE, Place, Shape, Stage, Value
from abele.numerics import as_element_type, i32, u32

Simplified = Value | tuple[Value, ...] | None


class BlockBuilder:
    """Ops in the making: of a network, a function, or a region.

    Attributes:
        ops: So far.
        constants: Contents of the constants among the values made here.
        makers: The op that makes each of the values made here.
    """

    def __init__(self) -> None:
        self.ops: list[NetworkOp] = []
        self.constants: dict[Value, Array] = {}
        self.makers: dict[Value, NetworkOp] = {}
        self._defined: set[Value] = set()
        self._origin = DebugRecord("")
        self._stage = Stage.FORWARD
        self._place = HERE
        self._hint: PlanHint | None = None
        self._instead: Callable[[Value], Value] | None = None

    # --- the network around -------------------------------------------------------------------------------------------

    @property
    def root(self) -> NetworkBuilder:
        """The builder of the network that this is part of."""
        raise NotImplementedError

    def random_state(self) -> Value:
        """The seed that random ops read: u32[2], advanced after every micro-batch."""
        return self.root.random_state()

    def next_random(self) -> int:
        """A modifier that no random op of the network has yet."""
        return self.root.next_random()

    def bound(self, value: Value, limit: int, what: str, exception: int | None = None, *, lowest: int = 0) -> None:
        """Ask for the integers of ``value`` to lie in ``range(lowest, limit)``; see :class:`AllowedRange`."""
        self.root.bounds.append(AllowedRange(value, limit, exception, what, self._origin, lowest))

    def read(self, value: Value) -> Value:
        """Value under which ``value`` is known here: itself, or the parameter through which it enters a region."""
        return value

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, shape: Sequence[int], dtype: Any, name: str = "") -> Value:
        """A new value of the current stage and place that nothing makes yet."""
        return Value(tuple(int(n) for n in shape), as_element_type(dtype), name, self._stage, self._place)

    def constant(self, array: npt.ArrayLike, dtype: Any, name: str = "") -> Value:
        """A new constant of ``dtype`` with the contents of ``array``.

        Raises:
            ElementRangeError: An integer that ``dtype`` cannot hold.
        """
        element = as_element_type(dtype)
        given = np.asarray(array)
        # A broadcast number is checked and kept as one element, whatever its shape: a large constant of zeros costs
        # nothing.
        uniform = given.size > 1 and not any(given.strides)
        source = given.reshape(-1)[:1].reshape((1,) * given.ndim) if uniform else given
        with np.errstate(invalid="ignore", over="ignore"):
            contents = source.astype(element.np)
        # Floats may lose precision, integers may not wrap round.
        if element.kind in ("int", "uint") and given.dtype != contents.dtype and (contents != np.trunc(source)).any():
            raise ElementRangeError(
                f"the constant {source[contents != source].flat[0]} does not fit in {element}, as the device has it",
                at=self._origin.location or None,
                remedy="keep integers within ±2³¹, or compute with float32",
            )
        return self._constant(Dense(np.broadcast_to(contents, given.shape) if uniform else contents), name)

    def _constant(self, contents: Dense, name: str = "") -> Value:
        dtype = as_element_type(contents.contents.dtype)
        made = self.value(contents.contents.shape, dtype, name)
        self.append(NetworkOp("constant", (), (made,), FrozenDict({"value": contents}), self._origin))
        return made

    def contents(self, value: Value) -> Array | None:
        """The elements of ``value``, if they are known."""
        return self.constants.get(value)

    def scalar(self, value: Value) -> float | int | bool | None:
        """The number that ``value`` is at every element, if it is a constant with one; else None."""
        contents = self.contents(value)
        if contents is None or not contents.size:
            return None
        if any(contents.strides) and not (contents == contents.flat[0]).all():
            return None
        number: float | int | bool = contents.flat[0].item()
        # NaN is not equal to itself: no caller's comparison with it would hold.
        return number if number == number else None

    # --- ops ----------------------------------------------------------------------------------------------------------

    @property
    def origin(self) -> DebugRecord:
        """Name and source line of the ops that are made now."""
        return self._origin

    @property
    def place(self) -> Place:
        """Place of the ops that are made now."""
        return self._place

    @contextmanager
    def at(
        self,
        origin: DebugRecord | None = None,
        *,
        stage: Stage | None = None,
        place: Place | None = None,
        hint: PlanHint | None = None,
    ) -> Iterator[None]:
        """Give the ops made inside the name and source line of ``origin``, a stage and a place.

        Those whose kinds are planned get ``hint`` as well.
        """
        before = self._origin, self._stage, self._place, self._hint
        self._origin = origin or self._origin
        self._stage = stage or self._stage
        self._place = place or self._place
        self._hint = hint or self._hint
        try:
            yield
        finally:
            self._origin, self._stage, self._place, self._hint = before

    @contextmanager
    def reading(self, instead: Callable[[Value], Value] | None) -> Iterator[None]:
        """Let ops that are emitted inside read ``instead(value)`` for each operand; None: operands as they are."""
        before, self._instead = self._instead, instead
        try:
            yield
        finally:
            self._instead = before

    def emit(self, kind: str, inputs: Iterable[Value], shape: Sequence[int], dtype: Any, **attrs: Any) -> Value:
        """Append an op with one output, or its simpler form; returns the output."""
        return self.emit_many(kind, inputs, [(tuple(shape), dtype)], **attrs)[0]

    def emit_like(self, kind: str, inputs: Iterable[Value], like: Value, **attrs: Any) -> Value:
        """As :meth:`emit`, with the shape and type of ``like``."""
        return self.emit(kind, inputs, like.shape, like.dtype, **attrs)

    def emit_many(
        self,
        kind: str,
        inputs: Iterable[Value],
        outputs: Iterable[tuple[Shape, Any]],
        *,
        regions: tuple[OpBlock, ...] = (),
        **attrs: Any,
    ) -> tuple[Value, ...]:
        """Append an op with any number of outputs, given as (shape, type), or its simpler form; returns them."""
        made = tuple(self.value(shape, dtype) for shape, dtype in outputs)
        given = inputs if self._instead is None else [*map(self._instead, inputs)]
        read = tuple(map(self.read, given))
        if self._hint is not None and _is_planned(kind):
            attrs.setdefault("hint", self._hint)
        return self.simplified(NetworkOp(kind, read, made, FrozenDict(attrs), self._origin, regions))

    def simplified(self, op: NetworkOp) -> tuple[Value, ...]:
        """Results of an op that reads values of this block: something simpler, or the op appended."""
        from abele.network.registry import RULES

        rule = RULES.get(op.kind)
        simpler = rule.simplify(self, op) if rule is not None else None
        if simpler is not None:
            return simpler if isinstance(simpler, tuple) else (simpler,)
        self.append(op)
        return op.outputs

    def append(self, op: NetworkOp) -> None:
        """Append an op as it is."""
        self.ops.append(op)
        self._defined.update(op.outputs)
        self.makers |= dict.fromkeys(op.outputs, op)
        if op.kind == "constant":
            self.constants[op.output] = contents_of(op)

    def replace(self, op: NetworkOp, by: NetworkOp) -> None:
        """Put an op in the place of another, whose results it makes among others."""
        self.ops[self.ops.index(op)] = by
        self._defined.update(by.outputs)
        self.makers |= dict.fromkeys(by.outputs, by)

    def before(self, op: NetworkOp, types: Iterable[tuple[Shape, Any]]) -> tuple[Value, ...]:
        """Zeros of the given types, made before ``op``, which is here already."""
        place, after = self.ops.index(op), len(self.ops)
        made = tuple(self.constant(np.broadcast_to(np.zeros((), np.int8), shape), dtype) for shape, dtype in types)
        # `constant` appends; what it appended moves in front of `op`.
        self.ops[place:place] = self.ops[after:]
        del self.ops[len(self.ops) - len(made) :]
        return made

    def enter(self, values: Iterable[Value]) -> None:
        """Let values be parameters of the block."""
        self._defined.update(values)

    def copy(self, op: NetworkOp, values: Mapping[Value, Value]) -> tuple[Value, ...]:
        """Append a copy of an op of another block, with ``values`` in place of its operands; see :meth:`emit`."""
        made = tuple(Value(v.shape, v.dtype, v.name, self._stage, self._place) for v in op.outputs)
        read = tuple(self.read(values[v]) for v in op.inputs)
        return self.simplified(NetworkOp(op.kind, read, made, op.attrs, self._origin, op.regions))

    def inline(self, block: OpBlock, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Append copies of the ops of a block, and give its results.

        They are where ops are made now, or each on its own IPU if they are on several.

        Args:
            block: Block to copy.
            arguments: A value for each parameter.
        """
        values = dict(zip(block.parameters, arguments, strict=True))
        own = len(ipus_of(block)) > 1
        for op in block.ops:
            with self.at(op.debug, place=op.place if own else None):
                values |= zip(op.outputs, self.copy(op, values), strict=True)
        return tuple(values[v] for v in block.results)


def _is_planned(kind: str) -> bool:
    from abele.network.registry import RULES

    return kind in RULES and (RULES[kind].planned or RULES[kind].hinted)


class NetworkBuilder(BlockBuilder):
    """A network in the making.

    >>> net = NetworkBuilder()
    >>> x = net.input((2,), "f32", "x")
    >>> net.output(net.emit("nonlinearity", [x], (2,), "f32", function="tanh"))
    >>> print(net.finish())
    network {
      input %x: f32[2]
      %0: f32[2] = nonlinearity(%x) function=tanh
      output %0
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._origin = DebugRecord("")
        self.inputs: list[Value] = []
        self.parameters: list[Value] = []
        self.buffers: list[Value] = []
        self.accumulators: list[Value] = []
        self.outputs: list[Value] = []
        self.updates: dict[Value, Value] = {}
        self.changed_inputs: dict[Value, Value] = {}
        self.gradients: dict[Value, Value] = {}
        self.wide: set[Value] = set()
        self.bounds: list[AllowedRange] = []
        self.loss: Value | None = None
        self.seed: Value | None = None
        self.num_random = 0

    @classmethod
    def of(cls, net: Network, *, ops: bool = True) -> NetworkBuilder:
        """A builder that goes on from ``net``; its values stay the same objects.

        Args:
            net: Network to continue.
            ops: True to start with its ops; False for a pass that makes them anew.
        """
        made = cls()
        made.inputs, made.parameters = list(net.inputs), list(net.parameters)
        made.buffers, made.accumulators = list(net.buffers), list(net.accumulators)
        made.outputs, made.bounds = list(net.outputs), list(net.bounds)
        made.updates, made.changed_inputs = dict(net.updates), dict(net.changed_inputs)
        made.gradients, made.wide = dict(net.gradients), set(net.wide)
        made.loss, made.seed, made.num_random = net.loss, net.seed, net.num_random
        made._defined.update(net.entries)
        for op in net.ops if ops else ():
            made.append(op)
        return made

    def finish(self) -> Network:
        """The network as it is now."""
        return Network(
            inputs=tuple(self.inputs),
            parameters=tuple(self.parameters),
            buffers=tuple(self.buffers),
            accumulators=tuple(self.accumulators),
            seed=self.seed,
            ops=tuple(self.ops),
            outputs=tuple(self.outputs),
            updates=FrozenDict(self.updates),
            changed_inputs=FrozenDict(self.changed_inputs),
            gradients=FrozenDict(self.gradients),
            loss=self.loss,
            wide=frozenset(self.wide),
            bounds=tuple(self.bounds),
            num_random=self.num_random,
        )

    @property
    def root(self) -> NetworkBuilder:
        """Itself."""
        return self

    # --- values that enter and leave ----------------------------------------------------------------------------------

    def _enter(self, group: list[Value], shape: Sequence[int], dtype: Any, name: str) -> Value:
        with self.at(stage=Stage.FORWARD):
            made = self.value(shape, dtype, name)
        group.append(made)
        self._defined.add(made)
        return made

    def input(self, shape: Sequence[int], dtype: Any, name: str) -> Value:
        """A new input."""
        return self._enter(self.inputs, shape, dtype, name)

    def parameter(self, shape: Sequence[int], dtype: Any, name: str) -> Value:
        """A new parameter."""
        return self._enter(self.parameters, shape, dtype, name)

    def buffer(self, shape: Sequence[int], dtype: Any, name: str) -> Value:
        """A new buffer."""
        return self._enter(self.buffers, shape, dtype, name)

    def accumulator(self, shape: Sequence[int], dtype: Any, name: str) -> Value:
        """A new sum over the micro-batches of a step."""
        return self._enter(self.accumulators, shape, dtype, name)

    def output(self, value: Value) -> None:
        """Return ``value``, after the outputs so far."""
        self.outputs.append(value)

    def random_state(self) -> Value:
        """The seed that random ops read: u32[2], advanced after every micro-batch."""
        if self.seed is None:
            self.seed = Value((2,), u32, "random_state")
            self._defined.add(self.seed)
        return self.seed

    def next_random(self) -> int:
        """A modifier that no random op of this network has yet."""
        self.num_random += 1
        return self.num_random - 1


class RegionBuilder(BlockBuilder):
    """A block in the making inside another one.

    A region is isolated, but is written as if it were not: a value of the block around that it reads becomes a
    parameter, and the op that has the region is handed the value (:attr:`captured`). Constants are copied.

    Args:
        outer: The block around.
        captured: Values of ``outer`` read so far by sibling regions, which are to have the same parameters.
    """

    def __init__(self, outer: BlockBuilder, captured: list[Value] | None = None) -> None:
        super().__init__()
        self.outer = outer
        self.captured: list[Value] = captured if captured is not None else []
        self.parameters: list[Value] = []
        self._inside: dict[Value, Value] = {}
        self._entering: dict[Value, Value] = {}
        self._seed: Value | None = None
        self._trip: Value | None = None
        self._origin, self._stage, self._place, self._hint = outer._origin, outer._stage, outer._place, outer._hint

    @property
    def root(self) -> NetworkBuilder:
        """The builder of the network around."""
        return self.outer.root

    def parameter(self, like: Value, name: str = "") -> Value:
        """A new parameter with the shape and type of ``like``."""
        return self._parameter(Value(like.shape, like.dtype, name, place=self._place))

    def _parameter(self, made: Value) -> Value:
        self.parameters.append(made)
        self._defined.add(made)
        return made

    def bound(self, value: Value, limit: int, what: str, exception: int | None = None, *, lowest: int = 0) -> None:
        """As around, for values from there; the host never sees those that are made here, and cannot check them."""
        if value not in self._defined:
            self.outer.bound(value, limit, what, exception, lowest=lowest)

    def trip(self) -> Value:
        """A new parameter that counts the trips of a loop, from 0; random ops draw afresh for each."""
        self._trip = self._parameter(Value((), i32, "trip", place=self._place))
        return self._trip

    def read(self, value: Value) -> Value:
        """``value``, or the parameter through which it enters."""
        if value in self._defined:
            return value
        if value not in self._inside:
            self._inside[value] = self._import(value)
        return self._inside[value]

    def _import(self, value: Value) -> Value:
        contents = self.outer.contents(value)
        if contents is not None:
            return self._constant(Dense(contents), value.name)
        value = self.outer.read(value)
        if value not in self.captured:
            self.captured.append(value)
        made = self._entering[value] = Value(value.shape, value.dtype, value.name, place=self._place)
        self._defined.add(made)
        return made

    def contents(self, value: Value) -> Array | None:
        """The elements of ``value``, if they are known here or around."""
        own = self.constants.get(value)
        return own if own is not None or value in self._defined else self.outer.contents(value)

    def random_state(self) -> Value:
        """The seed; in a loop, another one for each trip."""
        if self._trip is None:
            return self.outer.random_state()
        if self._seed is None:
            from abele.network.ops.control import seed_of_trip

            self._seed = seed_of_trip(self, self.outer.random_state(), self._trip)
        return self._seed

    def finish(self, results: Sequence[Value]) -> OpBlock:
        """The block, with a parameter for everything that it or a sibling read from around."""
        leaving = tuple(map(self.read, results))
        entering = [self._entering.get(v) or Value(v.shape, v.dtype, v.name, place=self._place) for v in self.captured]
        return OpBlock((*self.parameters, *entering), tuple(self.ops), leaving)
