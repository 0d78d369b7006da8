"""Programs over one state: networks of which a number chooses one, and networks in loops.

A language model has two networks, prefill and decode, over one cache. :func:`looped` makes of decode one that takes
many steps without the host; :func:`joined_programs` makes of both one network whose first input says which runs. States
(parameters and buffers) of one name are one state. A program of [2, 8] tokens and one of 2 tokens have the inputs
``program``, ``prefill.tokens`` and ``decode.tokens``; inputs of the same type share one place among the inputs, as no
run reads both, and so do outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from abele.errors import NetworkError, nearest
from abele.expr import Const, apply
from abele.expr.derivative import arg
from abele.network.ir import AllowedRange, BlockBuilder, Network, NetworkBuilder, Value, verify
from abele.network.ops import build
from abele.network.ops.control import Body
from abele.numerics import bool_, i32

PROGRAM = "program"
"""Name of the input that chooses."""


@dataclass(frozen=True)
class JoinedPrograms:
    """Several networks as one.

    Attributes:
        network: The network; its first input is the number of the program that runs.
        numbers: Number of each program, by name.
        inputs: Positions among the network's inputs of those of each program, in order.
        outputs: The same of outputs. What the other programs would give is zeros.
    """

    network: Network
    numbers: Mapping[str, int]
    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]


def looped(net: Network, most: int | str, while_: str = "", *, replicas: bool = False) -> Network:
    """A network that runs another one again and again; what this changes of its state goes from trip to trip.

    Outputs are those of the last trip, zeros without any. Inputs are the same in every trip; random ops draw afresh.

    Args:
        net: One trip.
        most: Most trips; a name makes it an input, i32[].
        while_: Name of a bool buffer: there is another trip only while one of its elements is true.
        replicas: True for several replicas, which go on together while one of them has to.

    Raises:
        NetworkError: The network trains, changes its inputs or runs in stages; there is no such bool buffer.
    """
    check_program("the step", net)
    if not isinstance(most, str) and not 0 <= most < 1 << 31:
        raise NetworkError(f"a loop has no {most} trips", remedy="a number from 0 to 2³¹ − 1")
    alive = _alive(net, while_) if while_ else None
    made = NetworkBuilder.of(net, ops=False)
    made.outputs, made.updates, made.bounds = [], {}, _bounds(net)
    states = [s for s in (*net.parameters, *net.buffers) if s in net.updates]
    count = _limit(made, net, most)
    if replicas and isinstance(count, Value):
        count = build.largest_of_replicas(made, count)
    zeros = [_zeros(made, v) for v in net.outputs]
    initial = [*states, *zeros]

    def trip_of(inner: BlockBuilder, carried: Sequence[Value]) -> list[Value]:
        values = inlined(inner, net, dict(zip(states, carried, strict=False)))
        return [values[v] for v in (*(net.updates[s] for s in states), *net.outputs)]

    if isinstance(count, int) and alive is None:
        ended = build.loop(made, count, initial, lambda inner, _, *carried: trip_of(inner, carried))
    else:
        with made.at(place=None if alive is None else alive.place):
            first = made.constant(np.int32(0), i32)

        def goes_on(test: BlockBuilder, *carried: Value) -> Value:
            least = [carried[-1]] if isinstance(count, int) else [carried[-1], count]
            more = build.map_(test, arg(0) < (Const(count, i32) if isinstance(count, int) else arg(1)), least, bool_)
            if alive is None:
                return more
            held = carried[states.index(alive)] if alive in states else alive
            some = build.reduce(test, held, [*range(held.ndim)], "or") if held.ndim else held
            if replicas:
                number = build.largest_of_replicas(test, build.cast(test, some, i32))
                some = build.map_(test, arg(0) > 0, [number], bool_)
            return build.map_(test, apply("and", arg(0), arg(1)), [more, build.reshape(test, some, ())], bool_)

        def body(inner: BlockBuilder, _: Value, *carried: Value) -> list[Value]:
            after = build.map_(inner, arg(0) + Const(1, i32), [carried[-1]], i32)
            return [*trip_of(inner, carried[:-1]), after]

        ended = build.while_(made, [*initial, first], goes_on, body)
    made.updates.update(zip(states, ended, strict=False))
    for value in ended[len(states) : len(initial)]:
        made.output(value)
    found = made.finish()
    verify(found)
    return found


def joined_programs(
    programs: Mapping[str, Network],
    names: Mapping[str, Mapping[str, str]] | None = None,
    *,
    replicas: bool = False,
) -> JoinedPrograms:
    """Several networks as one, of which each run runs one; states of one name are one state.

    States and inputs are laid out as the first program that reads them wants: put the one that matters most first.

    Args:
        programs: The networks by name.
        names: For each program other names for some of its states.
        replicas: True for several replicas, which run the same program.

    Raises:
        NetworkError: No programs; one trains, changes its inputs or runs in stages; states of one name differ.
    """
    if not programs:
        raise NetworkError("there are no programs to join")
    made = NetworkBuilder()
    chosen = made.input((), i32, PROGRAM)
    states = _States(made)
    enter, leave = _Slots(), _Slots()
    entered: dict[str, dict[Value, Value]] = {}
    for name, net in programs.items():
        check_program(name, net)
        entered[name] = states.enter(name, net, (names or {}).get(name, {}))
        made.num_random = max(made.num_random, net.num_random)
    inputs = {name: enter.of(name, net.inputs, _apart(net)) for name, net in programs.items()}
    outputs = {name: leave.of(name, net.outputs, set()) for name, net in programs.items()}
    slots = [made.input(v.shape, v.dtype, f"{name}.{v.name}") for name, v in enter.values]
    for name, net in programs.items():
        entered[name] |= {v: slots[n] for v, n in zip(net.inputs, inputs[name], strict=True)}
        made.wide |= {entered[name][v] for v in net.wide if v in entered[name]}
        made.bounds += [replace(b, value=entered[name][b.value]) for b in _bounds(net)]
    changed = set().union(*(states.changed_by(net, entered[name]) for name, net in programs.items()))
    changing = [state for state in states.every if state in changed]

    def case(name: str) -> Body:
        net = programs[name]
        leaving = dict(zip(outputs[name], net.outputs, strict=True))

        def body(inner: BlockBuilder, *_: Value) -> list[Value]:
            values = inlined(inner, net, entered[name])
            new = {entered[name][s]: values[v] for s, v in net.updates.items()}
            given = [values[leaving[n]] if n in leaving else _zeros(inner, v) for n, (_, v) in enumerate(leave.values)]
            return [*(new.get(s, s) for s in changing), *given]

        return body

    if replicas:
        chosen = build.largest_of_replicas(made, chosen)
    ended = build.switch(made, chosen, [case(name) for name in programs])
    made.updates.update(zip(changing, ended, strict=False))
    for value in ended[len(changing) :]:
        made.output(value)
    network = made.finish()
    verify(network)
    numbers = {name: number for number, name in enumerate(programs)}
    behind = {name: tuple(n + 1 for n in positions) for name, positions in inputs.items()}
    return JoinedPrograms(network, numbers, behind, outputs)


def check_program(name: str, net: Network) -> None:
    """Raise unless a network may be one of several programs, or a trip of a loop.

    Raises:
        NetworkError: It trains, changes its inputs, or runs in stages or phases.
    """
    if net.loss is not None or net.gradients or net.accumulators:
        raise NetworkError(f"{name} trains", because="programs over one state run forward", remedy="train it elsewhere")
    for value in net.changed_inputs:
        raise NetworkError(
            f"{name} changes its input {value.name!r}",
            because="programs change their state alone",
            remedy="a buffer in its place, or a clone of the input",
        )
    if net.num_stages > 1 or net.num_phases > 1:
        raise NetworkError(
            f"{name} runs in {net.num_stages} stages and {net.num_phases} phases",
            because="a loop or a choice is one program of all its IPUs",
            remedy="blocks on several IPUs without a pipeline: a sharded execution",
        )


def inlined(inner: BlockBuilder, net: Network, values: Mapping[Value, Value]) -> dict[Value, Value]:
    """Copies of a network's ops inside of a block, each where it was; returns what stands for its values.

    Args:
        inner: The block.
        net: The network.
        values: Values for those that enter it; they stand for themselves when left out.
    """
    found = {v: values.get(v, v) for v in net.entries}
    if net.seed is not None:
        found[net.seed] = inner.random_state()
    for op in net.ops:
        with inner.at(op.debug, place=op.place):
            found |= zip(op.outputs, inner.copy(op, found), strict=True)
    return found


class _States:
    """States of joined programs, by name."""

    def __init__(self, made: NetworkBuilder) -> None:
        self._made = made
        self._by_name: dict[str, tuple[str, Value]] = {}

    @property
    def every(self) -> list[Value]:
        return [value for _, value in self._by_name.values()]

    def enter(self, program: str, net: Network, names: Mapping[str, str]) -> dict[Value, Value]:
        """The states that a program's stand for."""
        found: dict[Value, Value] = {}
        for state in (*net.parameters, *net.buffers):
            name = names.get(state.name, state.name)
            if name not in self._by_name:
                make = self._made.parameter if state in net.parameters else self._made.buffer
                with self._made.at(place=state.place):
                    self._by_name[name] = program, make(state.shape, state.dtype, name)
            first, one = self._by_name[name]
            if (one.type, one.place) != (state.type, state.place):
                raise NetworkError(
                    f"{first} and {program} have different states {name!r}",
                    because=f"{first} has {one.dtype}{list(one.shape)} {one.place}, "
                    f"{program} {state.dtype}{list(state.shape)} {state.place}",
                    remedy="states of one name are one state: give them two names",
                )
            found[state] = one
        return found

    @staticmethod
    def changed_by(net: Network, entered: Mapping[Value, Value]) -> set[Value]:
        return {entered[s] for s, v in net.updates.items() if v is not s}


class _Slots:
    """Places of inputs or outputs that programs share where types agree."""

    def __init__(self) -> None:
        self.values: list[tuple[str, Value]] = []
        self._apart: set[int] = set()

    def of(self, program: str, values: Iterable[Value], apart: set[Value]) -> tuple[int, ...]:
        """A slot for each value of a program: one of the same type, or a new one for those that are to be apart."""
        taken = list[int]()
        for value in values:
            like = (value.type, value.place)
            free = (n for n, (_, v) in enumerate(self.values) if (v.type, v.place) == like)
            slot = next((n for n in free if n not in taken and n not in self._apart and value not in apart), None)
            if slot is None:
                slot = len(self.values)
                self.values.append((program, value))
                if value in apart:
                    self._apart.add(slot)
            taken.append(slot)
        return tuple(taken)


def _apart(net: Network) -> set[Value]:
    """Inputs that are checked before runs by what this network does with them."""
    return {*net.wide, *(b.value for b in net.bounds)}


def _bounds(net: Network) -> list[AllowedRange]:
    """Bounds of inputs; those of what ops make cannot be told from outside of a loop or a choice."""
    return [b for b in net.bounds if b.value in net.inputs]


def _zeros(net: BlockBuilder, like: Value) -> Value:
    with net.at(place=like.place):
        return build.full(net, 0, like.shape, like.dtype)


def _limit(made: NetworkBuilder, net: Network, most: int | str) -> int | Value:
    if isinstance(most, int):
        return most
    if any(v.name == most for v in net.inputs):
        raise NetworkError(f"the step has an input {most!r} already", remedy="another name for the number of trips")
    return made.input((), i32, most)


def _alive(net: Network, name: str) -> Value:
    """The bool buffer of a name.

    Raises:
        NetworkError: There is none; it is of another type.
    """
    names = {v.name: v for v in (*net.buffers, *net.parameters)}
    if name not in names:
        close = nearest(name, names)
        raise NetworkError(
            f"the step has no buffer {name!r}",
            because=f"it reads and changes {', '.join(sorted(names)) or 'none'}",
            remedy=f"did you mean {close!r}?" if close else "a bool buffer that the step reads or changes",
        )
    found = names[name]
    if found.dtype != bool_:
        raise NetworkError(
            f"the buffer {name!r} is {found.dtype}{list(found.shape)}",
            because="a loop goes on while a bool is true, or any of several",
            remedy="a buffer of bools",
        )
    return found
