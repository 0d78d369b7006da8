"""Control flow: functions that are called, loops and branches.

A ``scan`` becomes a loop that reads a row of each stacked input in a trip and writes a row of each stacked result; a
``while`` whose number of trips can be told (``i < n`` and ``i += k``, all known) becomes one as well, and others a loop
until the condition fails. Of a branch whose index is known only the case that it chooses is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jec
import numpy as np
from jax._src import core

from abele.expr.derivative import arg
from abele.frontends.jaxpr.lax.sorting import searched
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.kernels.nest.ir import select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_, i32

MOST_KNOWN_TRIPS = 64
"""Trips of a loop on constants that is run while it is read; longer ones are left to the device."""

# --- functions that are called ----------------------------------------------------------------------------------------


@primitive("jit", "pjit", "closed_call", "call", "custom_vmap_call", "linear_call")
def inlined(call: PrimitiveCall, *operands: Any) -> Any:
    """Results of a function that was traced by itself."""
    inner = next(call.params[name] for name in ("jaxpr", "call_jaxpr", "call", "callee") if name in call.params)
    if hasattr(inner, "jaxpr"):
        found = searched(call, inner, operands) if call.params.get("name") == "searchsorted" else None
        return tuple(call.reader.closed(inner, operands)) if found is None else (found,)
    return tuple(call.reader.jaxpr(inner, (), operands))


@primitive("custom_jvp_call", "custom_vjp_call")
def custom_derivative(call: PrimitiveCall, *operands: Any, call_jaxpr: Any) -> Any:
    """Results of a function with a derivative of its own.

    JAX has used that where it has differentiated. Where Abele does, gradients are those of ``jax.vjp`` of the function.
    """
    floats = [n for n, (v, a) in enumerate(zip(operands, call.avals, strict=True)) if _has_gradient(v, a)]
    if not call.reader.differentiated or not floats:
        return tuple(call.reader.closed(call_jaxpr, operands))

    def function(*given: Any) -> Any:
        return call.eqn.primitive.bind(*given, **call.eqn.primitive.get_bind_params(call.params))

    def forward(*given: Any) -> Any:
        def of_floats(*some: Any) -> Any:
            mixed = dict(zip(floats, some, strict=True))
            return list(function(*(mixed.get(n, v) for n, v in enumerate(given))))

        results, pull = jax.vjp(of_floats, *(given[n] for n in floats))
        return results, pull

    types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in call.avals]
    jaxpr, shapes = jax.make_jaxpr(forward, return_shape=True)(*types)
    plain = call.reader.inside(call.net, differentiated=False)
    made = plain.closed(jaxpr, operands)
    results, kept = made[: len(shapes[0])], made[len(shapes[0]) :]
    whole, tree = jax.tree.flatten(shapes[1])
    flowing = [jax.ShapeDtypeStruct(s.shape, _tangent(s.dtype)) for s in shapes[0]]
    back = jax.make_jaxpr(lambda saved, gradients: tree.unflatten(saved)(list(gradients)))(whole, flowing)
    returning = [n for n, s in enumerate(shapes[0]) if _tangent(s.dtype) == s.dtype]

    def backward(region: BlockBuilder, *gradients: Value) -> list[Value]:
        given = dict(zip(returning, gradients, strict=True))
        zeros = [given.get(n) or build.full(region, 0, s.shape, bool_) for n, s in enumerate(shapes[0])]
        return plain.inside(region).closed(back, [*kept, *zeros])

    own = build.own_gradient(call.net, [results[n] for n in returning], [operands[n] for n in floats], backward)
    return tuple(dict(zip(returning, own, strict=True)).get(n, v) for n, v in enumerate(results))


def _has_gradient(value: Any, aval: Any) -> bool:
    return isinstance(value, Value) and _tangent(aval.dtype) == aval.dtype


def _tangent(dtype: Any) -> Any:
    return core.primal_dtype_to_tangent_dtype(dtype)


@primitive("remat2", "checkpoint")
def checkpoint(call: PrimitiveCall, *operands: Any, jaxpr: Any, differentiated: bool, prevent_cse: bool) -> Any:
    """Results of a stretch that the backward pass computes again, from its operands alone.

    In the backward pass as JAX writes it, barriers before the operands keep the stretch apart from the one in the
    forward pass; in the body of a ``scan`` the two never meet.
    """
    if call.reader.differentiated and not differentiated:
        return build.checkpoint(call.net, lambda region: call.reader.body(jaxpr, region, operands))
    if differentiated and prevent_cse:
        operands = tuple(build.barrier(call.net, v) if _is_computed(call.net, v) else v for v in operands)
    return tuple(call.reader.jaxpr(jaxpr, (), operands))


def _is_computed(net: BlockBuilder, value: Any) -> bool:
    return isinstance(value, Value) and net.contents(value) is None


@primitive("optimization_barrier")
def optimization_barrier(call: PrimitiveCall, *values: Value) -> Any:
    """The values, for themselves: nothing that is computed of them is taken for something computed before."""
    return tuple(build.barrier(call.net, v) if _is_computed(call.net, v) else v for v in values)


@primitive("sharding_constraint", "reshard", "layout_constraint", "mesh_cast")
def placed(call: PrimitiveCall, value: Value) -> Value:
    """The value: where it lies is the compiler's choice."""
    return value


# --- loops ------------------------------------------------------------------------------------------------------------


@primitive("scan")
def scan(
    call: PrimitiveCall,
    *operands: Value,
    jaxpr: Any,
    length: int,
    num_consts: int,
    num_carry: int,
    reverse: bool,
    unroll: int,
) -> Any:
    """Carried values after a trip for each row of stacked inputs, and the rows that trips give, stacked."""
    consts, carry = operands[:num_consts], list(operands[num_consts : num_consts + num_carry])
    stacked = operands[num_consts + num_carry :]
    if not length:
        return (*carry, *(build.full(call.net, 0, *each) for each in call.results[num_carry:]))
    if call.eqn.effects:
        return _scan_with_effects(call, consts, carry, stacked, jaxpr, length=length, reverse=reverse)
    group = min(max(int(unroll), 1), length)
    trips = length // group

    def trip(net: BlockBuilder, number: Value, carried: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Carried values and rows of one trip, on the row of a number."""
        made = call.reader.body(jaxpr, net, [*consts, *carried, *(_row(net, table, number) for table in stacked)])
        return made[:num_carry], made[num_carry:]

    def place(net: BlockBuilder, number: Value, step: int = 0) -> Value:
        """Number of the row of a trip: those of a reversed loop go backwards."""
        factor, first = (-group, length - 1 - step) if reverse else (group, step)
        return number if (factor, first) == (1, 0) else build.map_(net, arg(0) * factor + first, [number], i32)

    if trips == 1:
        rows = {}
        for number in reversed(range(length)) if reverse else range(length):
            carry, rows[number] = trip(call.net, call.net.constant(number, i32), carry)
        parts = ([build.reshape(call.net, v, (1, *v.shape)) for v in rows[number]] for number in range(length))
        return (*carry, *(build.concat(call.net, each, 0) for each in zip(*parts, strict=True)))

    counters = _counters(call.net, jaxpr.jaxpr, num_consts, carry, length)

    def several(net: BlockBuilder, number: Value, *values: Value, steps: int = group) -> list[Value]:
        carried, tables = (
            counters.among(net, values[: num_carry - len(counters)]),
            list(values[num_carry - len(counters) :]),
        )
        for step in range(steps):
            index = place(net, number, step)
            carried = counters.at(net, carried, number, group, step)
            carried, made = trip(net, index, carried)
            tables = [build.write_row(net, t, net.read(r), index) for t, r in zip(tables, made, strict=True)]
        return [*counters.without(carried), *tables]

    tables = [build.full(call.net, 0, *each) for each in call.results[num_carry:]]
    state = build.loop(call.net, trips, [*counters.without(carry), *tables], several)
    left = several(call.net, call.net.constant(trips, i32), *state, steps=length % group)
    kept = num_carry - len(counters)
    return (*counters.among(call.net, left[:kept]), *left[kept:])


@dataclass(frozen=True)
class _Counters:
    """Carried whole numbers that each trip of a loop adds a known number to: they follow from the number of the trip.

    Attributes:
        steps: By place among the carried values, the number before the first trip, and what a trip adds.
        trips: Trips of the loop.
    """

    steps: Mapping[int, tuple[int, int]]
    trips: int

    def __len__(self) -> int:
        return len(self.steps)

    def without(self, carried: Sequence[Value]) -> list[Value]:
        """The carried values that are no counters."""
        return [v for n, v in enumerate(carried) if n not in self.steps]

    def among(self, net: BlockBuilder, others: Sequence[Value]) -> list[Value]:
        """All carried values, counters as after the last trip."""
        rest, count = iter(others), len(others) + len(self.steps)
        ends = {n: first + step * self.trips for n, (first, step) in self.steps.items()}
        return [net.constant(ends[n], i32) if n in ends else next(rest) for n in range(count)]

    def at(
        self, net: BlockBuilder, carried: Sequence[Value], number: Value, group: int = 1, after: int = 0
    ) -> list[Value]:
        """Carried values in trip ``group * number + after``."""
        made = list(carried)
        for n, (first, step) in self.steps.items():
            factor, addend = step * group, first + step * after
            plain = (factor, addend) == (1, 0)
            made[n] = number if plain else build.map_(net, arg(0) * factor + addend, [number], i32)
        return made


def _counters(net: BlockBuilder, body: Any, consts: int, carry: Sequence[Value], trips: int) -> _Counters:
    """The counters of a loop."""
    steps: dict[int, tuple[int, int]] = {}
    for place, value in enumerate(carry):
        first = net.scalar(value) if value.type == ((), i32) else None
        step = None if first is None else _step_of(body, place, consts)
        if step and first is not None and max(abs(first), abs(first + step * trips)) < 1 << 31:
            steps[place] = int(first), step
    return _Counters(steps, trips)


def _scan_with_effects(
    call: PrimitiveCall,
    consts: Sequence[Value],
    carry: Sequence[Value],
    stacked: Sequence[Value],
    jaxpr: Any,
    *,
    length: int,
    reverse: bool,
) -> Any:
    """A scan whose trips call the host: their order is carried too."""
    num_carry = len(carry)
    tables = [build.full(call.net, 0, *each) for each in call.results[num_carry:]]

    def trip(net: BlockBuilder, number: Value, last: Value, *values: Value) -> list[Value]:
        index = build.map_(net, (length - 1) - arg(0), [number], i32) if reverse else number
        rows = [build.read_row(net, table, index) for table in stacked]
        *made, after = call.reader.effects(jaxpr, net, [*consts, *values[:num_carry], *rows], last)
        written = zip(values[num_carry:], made[num_carry:], strict=True)
        return [after, *made[:num_carry], *(build.write_row(net, t, net.read(r), index) for t, r in written)]

    call.reader.order.last, *state = build.loop(call.net, length, [call.reader.last_effect, *carry, *tables], trip)
    return tuple(state)


def _row(net: BlockBuilder, table: Value, number: Value) -> Value:
    """A row of a table: a slice where the number is known."""
    known = net.scalar(number)
    if known is None:
        return build.read_row(net, table, number)
    return build.reshape(net, build.slice_(net, table, 0, int(known), int(known) + 1), table.shape[1:])


@primitive("while")
def while_(
    call: PrimitiveCall, *operands: Value, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
) -> Any:
    """Carried values after trips for as long as a condition holds."""
    tested, consts = operands[:cond_nconsts], operands[cond_nconsts : cond_nconsts + body_nconsts]
    carry = operands[cond_nconsts + body_nconsts :]

    def each_holds(net: BlockBuilder, *values: Value) -> Value:
        return call.reader.body(cond_jaxpr, net, [*tested, *values])[0]  # type: ignore[no-any-return]

    def holds(net: BlockBuilder, *values: Value) -> Value:
        each = each_holds(net, *values)
        return build.reduce(net, each, range(each.ndim), "or") if each.ndim else each

    def trip(net: BlockBuilder, number: Value, *values: Value) -> list[Value]:
        made = call.reader.body(body_jaxpr, net, [*consts, *values])
        if not is_batched:
            return made
        goes_on = each_holds(net, *values)
        return [_chosen(net, goes_on, new, old) for new, old in zip(made, values, strict=True)]

    # Of a batch, trips go on while any condition holds; what is done stays as it is.
    is_batched = bool(cond_jaxpr.out_avals[0].shape)

    if cond_jaxpr.effects:
        raise call.refuse("calls the host in its condition", "call it in the body of the loop")
    if call.eqn.effects:

        def with_effects(net: BlockBuilder, number: Value, last: Value, *values: Value) -> list[Value]:
            *made, after = call.reader.effects(body_jaxpr, net, [*consts, *values], last)
            return [after, *made]

        first = [call.reader.last_effect, *carry]
        call.reader.order.last, *state = build.while_(call.net, first, lambda n, _, *v: holds(n, *v), with_effects)
        return tuple(state)
    trips = _known_trips(call, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts, operands)
    if trips is None:
        return build.while_(call.net, carry, holds, trip)
    if trips == 0:
        return tuple(carry)
    if trips == 1:
        return tuple(trip(call.net, call.net.constant(0, i32), *carry))
    counters = _counters(call.net, body_jaxpr.jaxpr, body_nconsts, carry, trips)

    def counted(net: BlockBuilder, number: Value, *others: Value) -> list[Value]:
        return counters.without(trip(net, number, *counters.at(net, counters.among(net, others), number)))

    return tuple(counters.among(call.net, build.loop(call.net, trips, counters.without(carry), counted)))


def _chosen(net: BlockBuilder, which: Value, new: Value, old: Value) -> Value:
    """``new`` in the rows where a mask of the first dimensions is true, ``old`` in the others."""
    mask = build.reshape(net, which, (*which.shape, *(1,) * (new.ndim - which.ndim)))
    return build.map_(net, select(arg(2), arg(0), arg(1)), [new, net.read(old), net.read(mask)], new.dtype)


def _known_trips(
    call: PrimitiveCall, test: Any, body: Any, tested: int, consts: int, operands: Sequence[Value]
) -> int | None:
    """Trips of a loop that counts a known number up to a known limit; None of another loop."""
    if len(test.jaxpr.eqns) != 1 or test.jaxpr.eqns[0].primitive.name not in ("lt", "le", "gt", "ge"):
        return None
    (eqn,) = test.jaxpr.eqns
    if test.jaxpr.outvars[0] is not eqn.outvars[0]:
        return None

    def known(atom: Any) -> tuple[int | None, Any]:
        """Number of a carried value, and the number that an operand of the test is before the loop."""
        if isinstance(atom, jec.Literal):
            return None, np.asarray(atom.val).item()
        place = next((n for n, v in enumerate(test.jaxpr.invars) if v is atom), None)
        if place is None:
            return None, None
        value = operands[place] if place < tested else operands[place + consts]
        return (place - tested if place >= tested else None), call.net.scalar(value)

    (left, first), (right, limit) = map(known, eqn.invars)
    steps = [None if place is None else _step_of(body.jaxpr, place, consts) for place in (left, right)]
    counting = [bool(step) for step in steps]
    still = [place is None or step == 0 for place, step in zip((left, right), steps, strict=True)]
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (first, limit))
    if not whole or counting == still or sum(counting) != 1 or not any(still):
        return None
    compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}[eqn.primitive.name]
    step = steps[0 if counting[0] else 1] or 0
    if not compare(first, limit):
        return 0
    # The difference that the test looks at moves towards its end by the step of each trip.
    towards = step * (1 if counting[0] else -1) * (1 if eqn.primitive.name in ("lt", "le") else -1)
    if towards <= 0:
        return None
    left_over = int(abs(limit - first)) + (1 if eqn.primitive.name in ("le", "ge") else 0)
    return -(-left_over // towards)


def _step_of(body: Any, place: int, consts: int) -> int | None:
    """Number that a body adds to a carried one in each trip; None where it does something else to it."""
    before, after = body.invars[consts + place], body.outvars[place]
    if after is before:
        return 0
    made = next((e for e in body.eqns if any(v is after for v in e.outvars)), None)
    if made is None or made.primitive.name not in ("add", "sub"):
        return None
    a, b = made.invars
    sign = 1 if made.primitive.name == "add" else -1
    for number, other in ((b, a), (a, b)) if sign == 1 else ((b, a),):
        if isinstance(number, jec.Literal) and other is before and np.ndim(number.val) == 0:
            return sign * int(number.val)
    return None


@primitive("empty2")
def empty(call: PrimitiveCall) -> Value:
    """Zeros, to be overwritten."""
    return build.full(call.net, 0, call.shape, call.dtype)


# --- branches ---------------------------------------------------------------------------------------------------------


@primitive("platform_index")
def platform_index(call: PrimitiveCall, *, platforms: Sequence[Sequence[str] | None]) -> Value:
    """The case of ``platform_dependent`` for this device: one for any platform, or else the one for CPUs."""
    cases = [number for wanted in ("ipu", None, "cpu") for number, of in enumerate(platforms) if _names(of, wanted)]
    if not cases:
        raise call.refuse("has no case for this device", "give platform_dependent a default")
    return build.full(call.net, cases[0], (), call.dtype)


def _names(platforms: Sequence[str] | None, wanted: str | None) -> bool:
    return platforms is None if wanted is None else platforms is not None and wanted in platforms


@primitive("cond")
def cond(call: PrimitiveCall, index: Value, *operands: Value, branches: Sequence[Any]) -> Any:
    """Results of the case of an index."""
    known = call.net.scalar(index)
    if known is not None:
        chosen = branches[min(max(int(known), 0), len(branches) - 1)]
        return tuple(call.reader.closed(chosen, operands))
    last = call.reader.last_effect if call.eqn.effects else None
    cases = [_case(call, branch, operands, last) for branch in branches]
    if len(cases) == 2:
        made = build.cond(call.net, _as_bool(call.net, index), cases[1], cases[0])
    else:
        made = build.switch(call.net, index, cases)
    if last is None:
        return made
    *results, call.reader.order.last = made
    return tuple(results)


def _case(
    call: PrimitiveCall, branch: Any, operands: Sequence[Value], last: Value | None
) -> Callable[[BlockBuilder], list[Value]]:
    if last is None:
        return lambda region: call.reader.body(branch, region, operands)
    return lambda region: call.reader.effects(branch, region, operands, last)


def _as_bool(net: BlockBuilder, index: Value) -> Value:
    """The bool that an index of two cases was converted from, or whether it is not zero."""
    made = net.makers.get(index)
    if made is not None and made.kind == "cast" and made.inputs[0].dtype == bool_:
        return made.inputs[0]
    return index if index.dtype == bool_ else build.map_(net, arg(0).ne(0), [index], bool_)


def _is_long(params: Any) -> bool:
    return bool(params["length"] > MOST_KNOWN_TRIPS)


scan.runs = _is_long  # type: ignore[attr-defined]
while_.runs = True  # type: ignore[attr-defined]
