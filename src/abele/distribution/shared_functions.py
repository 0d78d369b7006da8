"""Functions on the machine: equal calls run one copy of a body, with arguments copied in and results out.

The first call lowers the body on variables of its own, the *formals*; every call copies its arguments into them, runs
the body, and copies the results into variables that are the call's. That is right because a body reads nothing but its
parameters and the constants in it, draws of random numbers included: calls whose random ops have other modifiers are
not equal. What each call reads is written just before, so formals take memory only while the body runs, and one layer's
at a time. An argument that is the same value at all calls is read where it lies. A stage of a pipeline and the backward
stage that computes it again call one body: they are on one IPU, at different times.

A formal is laid out as the body's first reader wants it, or like the argument of the first call if that has a layout; a
weight is laid out like its formal, so that copies of weights stay on their tiles. Arguments of one type are copied
together in one step, and so are results. A large weight is there anyway, and its formal beside it: so it is copied just
before what first reads it, between two parts of the body. Where all arguments are the same values at all calls, nothing
is copied: every call makes the same results. So it is with a checkpoint, whose forward pass the backward pass computes
again.

It saves the code, exchange code and vertex state of all calls but one, and the time to compile them: 12 equal layers
take those of 1. Its cost is the copies. So it is done only where asked for: :mod:`abele.session.remedies` asks where a
program does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from abele.graph import Call, Copy, Execute, LibraryCall, Program, Steps, Tensor, Variable
from abele.graph.program import Function
from abele.network.ir import NetworkFunction, NetworkOp, OpBlock, Place, Value
from abele.network.joined_copies import joined
from abele.poplibs.poputil.layout import StoredLayout, laid_out, layout_of
from abele.poplibs.poputil.mapping import is_small, map_small

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


Body = Callable[[Sequence[str]], OpBlock]


_SAME_PLACE = 8
"""Calls whose small vectors for one operand begin on one tile, so that copies are equal. Chosen: 1 KB per tile."""
_LARGE_WEIGHT = 1024
"""Bytes of each tile from which on a weight is copied just before its first reader, in a step of its own. Chosen."""


class _Part(NamedTuple):
    """Steps of a body that follow each other.

    Attributes:
        function: The steps, whose parameters are joined by type.
        operands: Numbers of the operands that are copied before them.
    """

    function: Function
    operands: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Shared:
    """A body on the machine.

    Attributes:
        parts: Its parts, in order.
        formals: For each operand of a call its formal; None where it is not copied.
        results: Tensors that the body leaves, in order; None for tables in streaming memory.
        own: Variables that the body made, but for its parameters.
    """

    parts: tuple[_Part, ...]
    formals: tuple[Tensor | None, ...]
    results: tuple[Tensor | None, ...]
    own: frozenset[Variable]


@dataclass
class SharedFunctions:
    """The functions of one program of which the machine has one copy each.

    Attributes:
        common: For each function that is called more than once, which operands are the same value at all calls.
        unread: Results that nothing reads.
        made: Results of ops; other operands of calls enter the network, as weights do.
    """

    common: dict[Hashable, tuple[bool, ...]] = field(default_factory=dict)
    unread: frozenset[Value] = frozenset()
    made: frozenset[Value] = frozenset()
    _made: dict[Hashable, _Shared] = field(default_factory=dict)
    _layouts: dict[Tensor, StoredLayout] = field(default_factory=dict)
    _small: dict[tuple[Tensor, Place | None], list[Tensor]] = field(default_factory=dict)
    _spread: int = 0

    @classmethod
    def of(cls, ops: Sequence[NetworkOp], leaving: Iterable[Value] = ()) -> SharedFunctions:
        """Shared functions of the calls that ``ops`` repeat; ``leaving`` are the results that something outside
        reads.
        """
        calls: dict[Hashable, list[_Called]] = {}
        for call in _calls(ops):
            calls.setdefault(_key(call.op), []).append(call)
        lasting = _lasting(ops)
        repeated = {key: equal for key, equal in calls.items() if _is_shared(equal, lasting)}
        results = {value for equal in repeated.values() for call in equal for value in call.op.outputs}
        unread = results.difference(leaving, _read(ops))
        made = frozenset(value for op in ops for value in op.outputs)
        return cls({key: _common(equal, lasting) for key, equal in repeated.items()}, frozenset(unread), made)

    def __contains__(self, op: NetworkOp) -> bool:
        return _key(op) in self.common

    def call(self, to: Lowering, op: NetworkOp, body: Body) -> tuple[Tensor | None, ...]:
        """Append a call; returns its results, None for those that nothing reads.

        Args:
            to: Lowering of the op.
            op: A ``call`` that is in this.
            body: Gives what it runs, for names of parameters.
        """
        # Rows of tables are copied from and to the buffers that the body names.
        buffers = tuple(to.table(v) if to.is_table(v) else None for v in op.inputs)
        key = _key(op)
        which = (key, buffers)
        if which not in self._made:
            # A value computed at its first reader would be computed inside of the function.
            common = [same and not to.is_waiting(v) for v, same in zip(op.inputs, self.common[key], strict=True)]
            self._made[which] = self._lowered(to, op, body, common)
        shared = self._made[which]
        arguments = {
            number: (to.enter(value, partial(self._laid_out, to, value, formal)), formal)
            for number, (value, formal) in enumerate(zip(op.inputs, shared.formals, strict=True))
            if formal is not None
        }
        for function, operands in shared.parts:
            to.prog.add(Call(function, joined([arguments[number] for number in operands])))
        if not arguments and not any(buffers):
            # Every call makes the same of the same: what reads a result may find that of a later call as well.
            self._leave_behind(to, op, shared)
            return shared.results
        # Results that nothing reads stay behind: a stage that is computed again leaves its last result alone.
        results = tuple(
            None if value in self.unread or left is None else self._result(to, value, left)
            for value, left in zip(op.outputs, shared.results, strict=True)
        )
        ends = zip(shared.results, results, strict=True)
        read = [(left, made) for left, made in ends if left is not None and made is not None]
        sources, destinations = joined([(a, a) for a, _ in read]), joined([(b, a) for a, b in read])
        for source, destination in zip(sources, destinations, strict=True):
            to.prog.add(Copy(source, destination, name=f"{shared.parts[0].function.debug.name} results"))
        self._leave_behind(to, op, shared)
        return results

    def _laid_out(self, to: Lowering, value: Value, formal: Tensor) -> Tensor:
        """A new tensor for a weight: like its formal, so that copies stay on their tiles.

        Small vectors begin on tiles of their own: those of all layers would be on few. Those of some calls for one
        operand lie alike, so that their copies have one exchange.
        """
        name = value.name or "value"
        with to.on(value.place):
            if formal.ndim > 1 or not is_small(to.graph, formal):
                return self._like(to, formal, name)
            alike = self._small.setdefault((formal, value.place), [])
            since = len(alike) % _SAME_PLACE
            if since:
                made = self._like(to, alike[-since], name)
            else:
                self._spread += 1
                made = map_small(to.graph, to.graph.variable(formal.dtype, formal.shape, name=name), self._spread)
            alike.append(made)
            return made

    def _result(self, to: Lowering, value: Value, left: Tensor) -> Tensor:
        """A new tensor for a result, on its IPU."""
        with to.on(value.place):
            return self._like(to, left, "result")

    def _like(self, to: Lowering, tensor: Tensor, name: str) -> Tensor:
        """A new tensor like a formal or a result of a body; the layout is worked out once for all calls."""
        if tensor.contains_aliases or tensor.contains_constant:
            return to.variable_like(tensor, name)
        if tensor not in self._layouts:
            self._layouts[tensor] = layout_of(to.graph, tensor, name)
        return laid_out(to.graph, tensor.dtype, self._layouts[tensor], name)

    def _leave_behind(self, to: Lowering, op: NetworkOp, shared: _Shared) -> None:
        """End the lives of results that nothing reads.

        Otherwise they would count as meant for the host, and live to the end of the program.
        """
        unread = [value in self.unread for value in op.outputs]
        to.forget(shared.results, unread, shared.own)

    def _lowered(self, to: Lowering, op: NetworkOp, body: Body, common: Sequence[bool]) -> _Shared:
        assert op.function is not None
        # weight of encoder.0.weight, as one of the function's own
        names = [f"{op.function.name}/{v.name.rpartition('.')[2]}" if v.name else "" for v in op.inputs]
        given = [_argument(to, value, same) for value, same in zip(op.inputs, common, strict=True)]
        before = len(to.graph.variables)
        with to.into(Steps(name=op.function.name)) as steps:
            read, results = to.function_body(body(names), given, leaving=op.outputs)
        formals = tuple(None if same else tensor for tensor, same in zip(read, common, strict=True))
        entering = {v for t in read if t is not None for v in t.variables}
        own = frozenset(to.graph.variables[before:]).difference(entering)
        return _Shared(tuple(self._parts(to, op, steps, formals)), formals, tuple(results), own)

    def _parts(self, to: Lowering, op: NetworkOp, steps: Steps, formals: Sequence[Tensor | None]) -> Iterator[_Part]:
        """The steps of a body, cut where what first reads a large weight begins."""
        assert op.function is not None
        touched = [_touched(step) for step in steps]
        places = dict.fromkeys((number for number, formal in enumerate(formals) if formal is not None), 0)
        for number in places:
            formal = formals[number]
            assert formal is not None
            is_large = formal.size * formal.dtype.bytes >= _LARGE_WEIGHT * to.graph.num_tiles
            if is_large and op.inputs[number] not in self.made:
                own = set(formal.variables)
                places[number] = next((n for n, those in enumerate(touched) if those is None or own & those), 0)
        begins = sorted({0, *places.values()})
        for begin, end in pairwise([*begins, len(touched)]):
            operands = tuple(number for number, place in places.items() if place == begin)
            parameters = joined([(formal, formal) for number in operands if (formal := formals[number]) is not None])
            body = Steps(*steps.steps[begin:end], name=op.function.name)
            yield _Part(to.graph.function(body, op.function.name, parameters=parameters), operands)


def _touched(step: Program) -> set[Variable] | None:
    """Variables that a step and those inside it read or write; None where that is not known."""
    found: set[Variable] = set()
    waiting = [step]
    while waiting:
        step = waiting.pop()
        if isinstance(step, Execute):
            return None
        is_call = isinstance(step, LibraryCall)
        tensors = (*step.inputs, *step.outputs) if isinstance(step, LibraryCall) else step.touches()
        found.update(variable for tensor in tensors for variable in tensor.variables)
        waiting += () if is_call else step.children()
    return found


def _key(op: NetworkOp) -> Hashable:
    """Key of calls that may share a body; a body is on one IPU."""
    assert op.function is not None
    return op.function, op.attrs["random"] if op.function.num_random else 0, None if op.place is None else op.place.ipu


class _Called(NamedTuple):
    """A call, perhaps in the region of a checkpoint or loop.

    Attributes:
        op: The call.
        operands: Its operands, as values of the network.
        place: IPU and stage of it.
        again: True in a checkpoint.
        counts: False if it was seen before, in a function that is called more than once.
    """

    op: NetworkOp
    operands: tuple[Value, ...]
    place: Place | None
    again: bool
    counts: bool = True

    def around(self, outside: Mapping[Value, Value], *, counts: bool | None = None) -> _Called:
        """It with values around the block that it is in."""
        operands = tuple(outside.get(v, v) for v in self.operands)
        return self._replace(operands=operands, counts=self.counts if counts is None else counts)


def _calls(ops: Iterable[NetworkOp], seen: set[NetworkFunction] | None = None) -> Iterator[_Called]:
    """The calls of a network, with those in its blocks. Operands are values around these, where they are known.

    What a function calls counts once, however often it is called.
    """
    seen = set() if seen is None else seen
    for op in ops:
        if op.kind == "call" and op.function is not None:
            yield _Called(op, op.inputs, op.place, again=False)
            is_new = op.function not in seen
            seen.add(op.function)
            outside = dict(zip(op.function.body.parameters, op.inputs, strict=True))
            for call in _calls(op.function.body.ops, seen):
                yield call.around(outside, counts=is_new and call.counts)
        elif op.kind == "checkpoint":
            outside = dict(zip(op.regions[0].parameters, op.inputs, strict=True))
            for call in _calls(op.regions[0].ops, seen):
                yield call.around(outside)._replace(place=op.place, again=True)
        elif op.kind in ("loop", "while", "cond", "switch"):
            # What a loop carries is another value in each trip.
            around = op.inputs[op.attrs["carried"] :] if "carried" in op.attrs else op.inputs[1:]
            for block in op.regions:
                outside = dict(zip(reversed(block.parameters), reversed(around), strict=False))
                for call in _calls(block.ops, seen):
                    yield call.around(outside)


def _read(ops: Iterable[NetworkOp]) -> Iterator[Value]:
    """The values that ops read, also in their blocks."""
    for op in ops:
        yield from op.inputs
        for block in op.blocks:
            yield from _read(block.ops)
            yield from block.results


def _lasting(ops: Iterable[NetworkOp]) -> frozenset[Value]:
    """Constants, and what they are on other IPUs: one tensor whenever it is read."""
    found: set[Value] = set()
    for op in ops:
        if op.kind == "constant" or (op.kind == "transfer" and op.inputs[0] in found):
            found.add(op.output)
    return frozenset(found)


def _is_shared(calls: Sequence[_Called], lasting: frozenset[Value]) -> bool:
    """True for calls that are worth one copy of their function; in a checkpoint only if nothing is copied for it, or if
    it is one op.
    """
    function = calls[0].op.function
    is_short = function is not None and len(function.body.ops) == 1
    return sum(call.counts for call in calls) > 1 and (
        is_short or all(_common(calls, lasting)) or not any(call.again for call in calls)
    )


def _common(calls: Sequence[_Called], lasting: frozenset[Value]) -> tuple[bool, ...]:
    # Stages of a pipeline work on different micro-batches, so one value is another tensor in each of them.
    in_one_stage = len({call.place for call in calls}) == 1
    operands = zip(*(call.operands for call in calls), strict=True)
    return tuple((in_one_stage or values[0] in lasting) and all(v is values[0] for v in values) for values in operands)


def _argument(to: Lowering, value: Value, same: bool) -> Value | Tensor | None:
    """Operand in the body: the value itself, a formal, or None for one that the body lays out.

    What shows few elements often, as the gradient of a mean, has no layout that readers would want.
    """
    if same or to.is_table(value):
        return value
    if not to.has_layout(value) or to[value].contains_aliases:
        return None
    with to.on(value.place):
        return to.variable_like(to[value], value.name or "argument")
