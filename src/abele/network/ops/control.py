"""Control flow: calls of functions, loops and branches, with their bodies as blocks.

Bodies are isolated: the op hands them what they read. The functions here take Python functions that build a body as if
it were not, and collect what it reads (see :class:`~abele.network.ir.builder.RegionBuilder`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import Const, Expr, derivative, evaluate
from abele.graph import Copy, If, Repeat, RepeatWhileTrue, Steps, Switch, Tensor, WriteUndef
from abele.graph.debug import DebugRecord
from abele.network.ir import BlockBuilder, FrozenDict, NetworkFunction, NetworkOp, OpBlock, RegionBuilder, Value
from abele.network.ops.elementwise import cast, map_
from abele.network.ops.rows import laid_for_windows, writes_every_row
from abele.network.ops.views import concat, reshape, slice_
from abele.network.registry import Gradients, LazyReader, Types, no_derivative, require, rule
from abele.numerics import bool_, i32, u32
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering
    from abele.network.interpreter import Interpreter

Body = Callable[..., Sequence[Value]]
"""Builds a body: takes the builder of the region and its own values, and gives the results."""

_MOST_NUMBERS = 1 << 16
"""Trips of a loop of which each is looked at."""
_trip = derivative.arg(0)
_TRIP_FACTOR = 0x9E3779B1
"""Number that a trip adds to the random state, so that near trips and near micro-batches draw differently."""


def call(
    net: BlockBuilder, function: NetworkFunction, arguments: Sequence[Value], *, random: int = 0
) -> tuple[Value, ...]:
    """The results of a function.

    Args:
        net: Network or block to extend.
        function: Function to run.
        arguments: A value for each parameter.
        random: First modifier of its random ops, which take ``function.num_random``.
    """
    types = [v.type for v in function.body.results]
    return net.emit_many("call", arguments, types, function=function, path="", random=random)


def loop(net: BlockBuilder, count: int, initial: Sequence[Value], body: Body) -> tuple[Value, ...]:
    """Values after ``count`` trips of a body, each of which makes new ones.

    Args:
        net: Network or block to extend.
        count: Trips.
        initial: Values before the first trip.
        body: Takes the builder, the number of the trip (i32) and the values; gives as many of the same types.
    """
    region = RegionBuilder(net)
    trip = region.trip()
    carried = [region.parameter(v, v.name) for v in initial]
    results = [region.read(v) for v in body(region, trip, *carried)]
    block = region.finish(results)
    inputs = [*initial, *region.captured]
    types = [v.type for v in initial]
    return net.emit_many("loop", inputs, types, regions=(block,), carried=len(initial), count=count)


def while_(
    net: BlockBuilder, initial: Sequence[Value], condition: Callable[..., Value], body: Body
) -> tuple[Value, ...]:
    """Values after the trips of a body for as long as a condition holds.

    Args:
        net: Network or block to extend.
        initial: Values before the first trip.
        condition: Takes the builder and the values; gives a bool.
        body: As of :func:`loop`.
    """
    captured: list[Value] = []
    test, region = RegionBuilder(net, captured), RegionBuilder(net, captured)
    holds = test.read(condition(test, *[test.parameter(v, v.name) for v in initial]))
    trip = region.trip()
    results = [region.read(v) for v in body(region, trip, *[region.parameter(v, v.name) for v in initial])]
    blocks = test.finish([holds]), region.finish(results)
    types = [v.type for v in initial]
    return net.emit_many("while", [*initial, *captured], types, regions=blocks, carried=len(initial))


def cond(net: BlockBuilder, predicate: Value, then: Body, otherwise: Body) -> tuple[Value, ...]:
    """The results of one of two bodies, by a bool; both have results of the same types."""
    return _branch(net, "cond", reshape(net, predicate, ()), (then, otherwise))


def switch(net: BlockBuilder, index: Value, cases: Sequence[Body]) -> tuple[Value, ...]:
    """The results of the case with the number that an i32 holds; of the last case for any other number."""
    return _branch(net, "switch", reshape(net, index, ()), cases)


def _branch(net: BlockBuilder, kind: str, chooser: Value, cases: Sequence[Body]) -> tuple[Value, ...]:
    captured: list[Value] = []
    regions = [RegionBuilder(net, captured) for _ in cases]
    results = [[region.read(v) for v in body(region)] for region, body in zip(regions, cases, strict=True)]
    blocks = tuple(region.finish(values) for region, values in zip(regions, results, strict=True))
    return net.emit_many(kind, [chooser, *captured], [v.type for v in results[0]], regions=blocks)


def seed_of_trip(net: BlockBuilder, seed: Value, trip: Value) -> Value:
    """A random state for one trip of a loop."""
    turn = reshape(net, cast(net, trip, u32), (1,))
    moved = derivative.arg(0) + derivative.arg(1) * Const(_TRIP_FACTOR, u32)
    return concat(net, [slice_(net, seed, 0, 0, 1), map_(net, moved, [slice_(net, seed, 0, 1, 2), turn])], 0)


# --- functions --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _instance(function: NetworkFunction, path: str, random: int, names: tuple[str, ...]) -> OpBlock:
    body = function.body
    called = {p: replace(p, name=name) for p, name in zip(body.parameters, names, strict=True) if name != p.name}
    ops = [_moved(op, path, random) for op in body.ops]
    read = tuple(replace(op, inputs=tuple(called.get(v, v) for v in op.inputs)) for op in ops)
    parameters, results = (tuple(called.get(v, v) for v in values) for values in (body.parameters, body.results))
    return OpBlock(parameters, read, results)


def _moved(op: NetworkOp, path: str, random: int) -> NetworkOp:
    attrs = dict(op.attrs)
    for name in ("modifier", "random"):
        if name in attrs:
            attrs[name] += random
    if "path" in attrs:
        attrs["path"] = joined(path, attrs["path"])
    regions = tuple(OpBlock(r.parameters, tuple(_moved(o, path, random) for o in r.ops), r.results) for r in op.regions)
    return NetworkOp(op.kind, op.inputs, op.outputs, FrozenDict(attrs), below(op.debug, path), regions)


def joined(path: str, inner: str) -> str:
    """``inner`` below ``path``."""
    return f"{path}/{inner}" if path and inner else path or inner


def below(debug: DebugRecord, path: str) -> DebugRecord:
    """Debug information of an op in a function as that of a call whose module is at ``path``."""
    if not path:
        return debug
    module, kind = split_label(debug.text)
    label = ".".join(filter(None, (path.replace("/", "."), module))) + kind if debug.text else ""
    return DebugRecord(debug.name, joined(path, debug.path), debug.file, debug.line, label)


def split_label(label: str) -> tuple[str, str]:
    """The dotted module of a label such as ``encoder.0 (Linear)``, and the rest with the space before it."""
    place = label.find("(")
    return (label[:place].rstrip(), f" {label[place:]}") if place >= 0 else (label, "")


def body_of(op: NetworkOp, names: Sequence[str] | None = None) -> OpBlock:
    """Body that a ``call`` runs: that of its function, with the modifiers and module path of the call.

    Args:
        op: The call.
        names: Names of the parameters; those of the operands when left out.
    """
    assert op.function is not None
    called = tuple(v.name for v in op.inputs) if names is None else tuple(names)
    return _instance(op.function, op.attrs["path"], op.attrs["random"], called)


@rule("call")
class CallRule(LazyReader):
    """A function's body on the operands.

    On the machine the body is there once per call, but for those of
    :class:`~abele.distribution.shared_functions.SharedFunctions`, which are asked for where memory is short.
    """

    operands = (0, None)
    attributes: ClassVar = {"function": NetworkFunction, "path": str, "random": int}

    def types(self, op: NetworkOp) -> Types:
        """Types of the function's results."""
        function: NetworkFunction = op.attrs["function"]
        _fit(f"@{function.name}", function.body, op.inputs)
        return [v.type for v in function.body.results]

    def interpret(self, run: Interpreter, op: NetworkOp, args: Sequence[Array]) -> Any:
        """The body."""
        return tuple(run.block(body_of(op), args))

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """The body, as if it stood here, or a call of the one that the machine has."""
        if op in to.functions:
            return to.functions.call(to, op, partial(body_of, op))
        unread, body = [to.is_dead(v) for v in op.outputs], body_of(op)
        owned, before = to.handed_over(body, op.inputs), _staying(to, op)
        homes = {op.inputs.index(v): n for n, v in enumerate(before) if v is not None}
        made = to.block(body, op.inputs, owned=owned, leaving=op.outputs, unread=unread, homes=homes)
        for number, state in enumerate(before):
            if state is not None:
                result = made[number]
                made[number] = result = to[state] if result is None else result
                to.changed |= {op.outputs[number]} if result.is_same_view(to[state]) else set()
        return tuple(made)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """A call of the function's backward function; the call itself also gives what that needs."""
        raise AssertionError("calls are differentiated by abele.network.autodiff.differentiate")


def _fit(what: str, block: OpBlock, inputs: Sequence[Value]) -> None:
    require(len(inputs) == len(block.parameters), f"{what} takes {len(block.parameters)} values, not {len(inputs)}")
    for number, (value, parameter) in enumerate(zip(inputs, block.parameters, strict=True)):
        require(value.type == parameter.type, f"operand {number} ({value}) is no {parameter} of {what}")


def _staying(to: Lowering, op: NetworkOp) -> list[Value | None]:
    """For each result of a call or branch the state whose place it takes, None where it takes none."""
    before = [to.changed_in_bodies(v) for v in op.outputs]
    is_view = [
        v is not None and to.has_layout(v) and (to[v].contains_aliases or to[v].contains_constant) for v in before
    ]
    return [None if view else v for view, v in zip(is_view, before, strict=True)]


# --- loops ------------------------------------------------------------------------------------------------------------


class Looping(LazyReader):
    """Base of counted and conditional loops: carried values, and others that do not change."""

    operands = (0, None)

    def types(self, op: NetworkOp) -> Types:
        """Types of the carried values."""
        carried = op.inputs[: op.attrs["carried"]]
        require(0 <= op.attrs["carried"] <= len(op.inputs), f"it cannot carry {op.attrs['carried']} of its operands")
        body = op.regions[-1]
        require(
            body.parameters and body.parameters[0].type == ((), i32), "the body's first parameter is the trip, i32[]"
        )
        _fit("the body", OpBlock(body.parameters[1:], (), ()), op.inputs)
        require(len(body.results) == len(carried), f"the body gives {len(body.results)} values of {len(carried)}")
        for before, after in zip(carried, body.results, strict=True):
            require(before.type == after.type, f"the body makes {after} of {before}")
        return [v.type for v in carried]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """None for loops whose number of trips only the machine knows: values of their trips are not kept."""
        raise no_derivative(op, "a loop of unknown length", "use a loop with a fixed number of trips")

    def _states(self, to: Lowering, op: NetworkOp) -> list[Tensor | None]:
        """A variable for each carried value, with its value before the first trip.

        None for tables off the chip, and for states that trips change where they lie.
        """
        body, states = op.regions[-1], list[Tensor | None]()
        for number, (value, parameter) in enumerate(
            zip(op.inputs[: op.attrs["carried"]], body.parameters[1:], strict=False)
        ):
            if to.is_table(value) or self._stays(to, op, number):
                states.append(None)
                continue
            tensor = to[value]
            with to.on(value.place):
                laid = laid_for_windows(to, body.ops, parameter, tensor)
                state = to.variable_like(tensor, value.name or "carried") if laid is None else laid
            is_written = "count" in op.attrs and writes_every_row(body, number, op.attrs["count"])
            to.prog.add(WriteUndef(state) if is_written else Copy(tensor, state, name="carried"))
            states.append(state)
        return states

    @staticmethod
    def _stays(to: Lowering, op: NetworkOp, number: int) -> bool:
        """True for a state that is the loop's variable itself: it lies well for the body, or nowhere yet."""
        body, value = op.regions[-1], op.inputs[number]
        if to.changed_in_bodies(op.outputs[number]) is not value:
            return False
        if not to.has_layout(value):
            return True
        tensor = to[value]
        if tensor.contains_aliases or tensor.contains_constant:
            return False
        with to.on(value.place):
            return laid_for_windows(to, body.ops, body.parameters[1 + number], tensor) is None

    def _ended(self, to: Lowering, op: NetworkOp, states: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Places of the carried values after the last trip."""
        made = list(states)
        for number, (before, after) in enumerate(zip(op.inputs, op.outputs, strict=False)):
            if made[number] is None and not to.is_table(before):
                made[number] = to[before]
                to.changed.add(after)
        return tuple(made)

    def _around(self, to: Lowering, op: NetworkOp) -> list[Value | Tensor]:
        """Values that the body reads from around; arrays of windows are copied to where these are cut, once."""
        body, around = op.regions[-1], list[Value | Tensor]()
        for value, parameter in zip(op.inputs, body.parameters[1:], strict=True):
            # What is constant as a whole is read where it lies; with parts that are not, it has no place of its own.
            known = to.has_layout(value) and not (to[value].contains_constant and len(to[value].variables) == 1)
            with to.on(value.place):
                laid = laid_for_windows(to, body.ops, parameter, to[value]) if known else None
            if laid is not None:
                to.prog.add(Copy(to[value], laid, name="windows"))
            around.append(value if laid is None else laid)
        return around[op.attrs["carried"] :]

    def _trip(self, to: Lowering, op: NetworkOp, region: OpBlock) -> Tensor | None:
        """A counter of trips at zero, if the body reads it."""
        trip = region.parameters[0]
        if not any(trip in inner.inputs for inner in region.ops) and trip not in region.results:
            return None
        # The body does not know that its parameter is a counter: it is a tensor like any other, advanced at the end of
        # the trip.
        counter = to.graph.map(to.graph.variable(i32, (), name="trip"), 0)
        to.prog.add(Copy(to.graph.constant(i32, (), 0, name="zero"), counter, name="first_trip"))
        return counter

    def _body(self, to: Lowering, op: NetworkOp, states: list[Tensor | None], counter: Tensor | None) -> Steps:
        """One trip: the body, then the carried values become its results."""
        region, around = op.regions[-1], self._around(to, op)
        trip: Tensor = counter if counter is not None else to.graph.constant(i32, (), 0, name="trip")
        with to.into(Steps(name="trip")) as body:
            arguments: list[Value | Tensor] = [trip, *_held(op, states), *around]
            # What trips carry is theirs to change: the next one sees the result in its place.
            own = [n for n, v in enumerate(op.inputs[: len(states)]) if not to.is_table(v)]
            owned = region.parameters[1 : 1 + len(states)]
            results = to.block(region, arguments, owned=owned, homes={n + 1: n for n in own})
            places = [to[op.inputs[n]] if n in own and s is None else s for n, s in enumerate(states)]
            carried = [(r, s) for r, s in zip(results, places, strict=True) if r is not None and s is not None]
            copy_together(to, [r for r, _ in carried], [s for _, s in carried])
            if counter is not None:
                popops.map_in_place(to.graph, _1 + 1, [counter], to.prog, name="next_trip")
        return body


def _held(op: NetworkOp, states: Sequence[Tensor | None]) -> list[Value | Tensor]:
    """Operands of a loop's body and condition for carried values."""
    return [v if s is None else s for v, s in zip(op.inputs, states, strict=False)]


def with_known_trips(body: OpBlock, count: int) -> OpBlock:
    """A loop's body with ``factor * trip + first`` in place of whole numbers that are this in each of ``count`` trips.

    The same object if there is nothing to change.
    """
    trip = body.parameters[0]
    if not 1 < count <= _MOST_NUMBERS:
        return body
    numbers = np.arange(count, dtype=np.int32)
    known, instead, ops = {trip: numbers}, dict[Value, Value](), list[NetworkOp]()
    for op in body.ops:
        read = tuple(instead.get(v, v) for v in op.inputs)
        new = op if read == op.inputs else NetworkOp(op.kind, read, op.outputs, op.attrs, op.debug, op.regions)
        if op.kind == "reshape" and op.inputs[0] in known:
            known[op.output] = known[op.inputs[0]]
        elif op.kind == "map" and op.output.type in (((), i32), ((), bool_)) and known.keys() >= set(op.inputs):
            with np.errstate(all="ignore"):
                made = np.broadcast_to(evaluate(op.attrs["expr"], [known[v] for v in op.inputs]), numbers.shape)
            known[op.output] = made
            simple = _as_progression(made) if op.output.dtype == i32 else None
            if simple is _trip:
                instead[op.output] = trip
                continue
            if simple is not None and (
                new.inputs != (trip,) or len([*op.attrs["expr"].walk()]) > len([*simple.walk()])
            ):
                attrs = FrozenDict({**op.attrs, "expr": simple})
                new = NetworkOp(op.kind, (trip,), op.outputs, attrs, op.debug, op.regions)
        ops.append(new)
    if len(ops) == len(body.ops) and all(new is op for new, op in zip(ops, body.ops, strict=True)):
        return body
    return OpBlock(body.parameters, tuple(ops), tuple(instead.get(v, v) for v in body.results))


def _as_progression(made: Array) -> Expr | None:
    """The expression of the trip's number that gives these numbers of all trips, if one with a factor does."""
    first, factor = int(made[0]), int(made[1]) - int(made[0])
    if not factor or not np.array_equal(made, first + factor * np.arange(len(made))):
        return None
    scaled = _trip if factor == 1 else _trip * factor
    return scaled + first if first else scaled


def copy_together(to: Lowering, sources: Sequence[Tensor], destinations: Sequence[Tensor], name: str = "carry") -> None:
    """Copies that all read before any of them writes.

    What is in its place already is not copied; a source that shows elements of another destination is first copied
    aside, which a swap needs.
    """
    moving = [(s, d) for s, d in zip(sources, destinations, strict=True) if s is not d and not s.is_same_view(d)]
    aside = []
    for number, (source, _) in enumerate(moving):
        others = {v for i, (_, d) in enumerate(moving) if i != number for v in d.variables}
        aside.append(source if others.isdisjoint(source.variables) else to.copied(source, "aside"))
    for source, (_, destination) in zip(aside, moving, strict=True):
        to.prog.add(Copy(source, destination, name=name))


@rule("loop")
class LoopRule(Looping):
    """A body that makes new values of carried ones, ``count`` times."""

    attributes: ClassVar = {"carried": int, "count": int}
    region_names = ("body",)

    def types(self, op: NetworkOp) -> Types:
        """Types of the carried values."""
        require(len(op.regions) == 1, f"it has one body, not {len(op.regions)}")
        require(op.attrs["count"] >= 0, f"it cannot run {op.attrs['count']} times")
        return super().types(op)

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> tuple[Value, ...] | None:
        """The loop with simple numbers of trips: a clamp of what never leaves its bounds goes away."""
        block = with_known_trips(op.regions[0], op.attrs["count"])
        if block is op.regions[0]:
            return None
        net.append(NetworkOp(op.kind, op.inputs, op.outputs, op.attrs, op.debug, (block,)))
        return op.outputs

    def interpret(self, run: Interpreter, op: NetworkOp, args: Sequence[Array]) -> Any:
        """A Python loop."""
        carried, rest = list(args[: op.attrs["carried"]]), args[op.attrs["carried"] :]
        for trip in range(op.attrs["count"]):
            carried = run.block(op.regions[0], [trip, *carried, *rest])
        return tuple(carried)

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """A Repeat."""
        states, counter = self._states(to, op), self._trip(to, op, op.regions[0])
        to.prog.add(Repeat(op.attrs["count"], self._body(to, op, states, counter)))
        return self._ended(to, op, states)


@rule("while")
class WhileRule(Looping):
    """A body that makes new values of carried ones for as long as a condition on them holds."""

    attributes: ClassVar = {"carried": int}
    region_names = ("condition", "body")

    def types(self, op: NetworkOp) -> Types:
        """Types of the carried values."""
        require(len(op.regions) == 2, f"it has a condition and a body, not {len(op.regions)} regions")
        test = op.regions[0]
        _fit("the condition", test, op.inputs)
        require([v.type for v in test.results] == [((), bool_)], "the condition gives one bool[]")
        return super().types(op)

    def interpret(self, run: Interpreter, op: NetworkOp, args: Sequence[Array]) -> Any:
        """A Python loop."""
        carried, rest, trip = list(args[: op.attrs["carried"]]), args[op.attrs["carried"] :], 0
        while run.block(op.regions[0], [*carried, *rest])[0]:
            carried, trip = run.block(op.regions[1], [trip, *carried, *rest]), trip + 1
        return tuple(carried)

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """A RepeatWhileTrue."""
        # The condition reads the same variables that the body overwrites, hence no copies between the two.
        states, counter = self._states(to, op), self._trip(to, op, op.regions[1])
        with to.into(Steps(name="condition")) as test:
            (holds,) = to.block(op.regions[0], [*_held(op, states), *op.inputs[len(states) :]])
        assert holds is not None
        to.prog.add(RepeatWhileTrue(test, holds, self._body(to, op, states, counter)))
        return self._ended(to, op, states)


# --- branches ---------------------------------------------------------------------------------------------------------


class Branching(LazyReader):
    """Base of branches: the first operand chooses a region, all regions take the others."""

    operands = (1, None)

    def types(self, op: NetworkOp) -> Types:
        """Those of the results of the first region, which are those of all."""
        require(len(op.regions) > 0, "it has no regions")
        types = [v.type for v in op.regions[0].results]
        for region in op.regions:
            _fit("a region", region, op.inputs[1:])
            require([v.type for v in region.results] == types, "its regions give values of different types")
        return types

    def choice(self, op: NetworkOp, chooser: Any) -> int:
        """Number of the region that the first operand chooses."""
        raise NotImplementedError

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> tuple[Value, ...] | None:
        """The region itself, if it is known which."""
        known = net.scalar(op.inputs[0])
        return None if known is None else net.inline(op.regions[self.choice(op, known)], op.inputs[1:])

    def interpret(self, run: Interpreter, op: NetworkOp, args: Sequence[Array]) -> Any:
        """The region that is chosen."""
        return tuple(run.block(op.regions[self.choice(op, args[0])], args[1:]))

    def _regions(self, to: Lowering, op: NetworkOp) -> tuple[list[Steps], list[Tensor | None]]:
        """The program of each region, all of which leave their results in the same variables.

        States that regions change where they lie, or hand on as they are, stay there.
        """
        before = _staying(to, op)
        homes = {op.inputs.index(v) - 1: n for n, v in enumerate(before) if v is not None}
        programs, made = list[Steps](), list[list[Tensor | None]]()
        results = list[Tensor | None]()
        for region in op.regions:
            with to.into(Steps(name="branch")) as prog:
                made.append(to.block(region, op.inputs[1:], homes=homes))
                # Laid out as the first region makes them; the others copy into that.
                fresh = [None if s is not None else t for s, t in zip(before, made[-1], strict=True)]
                results = results or [self._result_like(to, v, t) for v, t in zip(op.outputs, fresh, strict=True)]
            programs.append(prog)
        # States are laid out by the first of all regions that reads them.
        for number, state in enumerate(before):
            if state is not None:
                results[number] = to[state]
                to.changed.add(op.outputs[number])
        for prog, leaving in zip(programs, made, strict=True):
            pairs = [(t, r) for t, r in zip(leaving, results, strict=True) if t is not None and r is not None]
            with to.into(prog):
                copy_together(to, [t for t, _ in pairs], [r for _, r in pairs], "result")
        return programs, results

    def _result_like(self, to: Lowering, value: Value, made: Tensor | None) -> Tensor | None:
        if made is None:
            return None
        with to.on(value.place):
            return to.variable_like(made, "result")

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """A branch on the same operand: each region computes its forward pass again, then its backward pass."""
        raise AssertionError("branches are differentiated by abele.network.autodiff.differentiate")


@rule("cond")
class Cond(Branching):
    """One of two regions, by a bool."""

    region_names = ("then", "otherwise")

    def types(self, op: NetworkOp) -> Types:
        """Types of the results of both regions."""
        require(len(op.regions) == 2, f"it has two regions, not {len(op.regions)}")
        require(op.inputs[0].type == ((), bool_), f"its first operand is {op.inputs[0]}, it has to be bool[]")
        return super().types(op)

    def choice(self, op: NetworkOp, chooser: Any) -> int:
        """The first if the bool is true."""
        return 0 if chooser else 1

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """An If."""
        predicate = to[op.inputs[0]]
        (then, otherwise), results = self._regions(to, op)
        to.prog.add(If(predicate, then, otherwise))
        return tuple(results)


@rule("switch")
class SwitchRule(Branching):
    """The region with the number that an i32 holds; the last one for any other number."""

    region_names = ("case",)

    def types(self, op: NetworkOp) -> Types:
        """Types of the results of every region."""
        require(op.inputs[0].type == ((), i32), f"its first operand is {op.inputs[0]}, it has to be i32[]")
        return super().types(op)

    def choice(self, op: NetworkOp, chooser: Any) -> int:
        """The number, or the last."""
        last = len(op.regions) - 1
        return int(chooser) if 0 <= int(chooser) < last else last

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """A Switch whose default is the last region."""
        index = to[op.inputs[0]]
        programs, results = self._regions(to, op)
        to.prog.add(Switch(index, list(enumerate(programs[:-1])), programs[-1]))
        return tuple(results)
