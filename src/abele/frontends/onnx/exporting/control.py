"""Calls, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.frontends.onnx.exporting.graph import GraphWriter, Written, info, writer
from abele.network.ir import NetworkOp, OpBlock, Value
from abele.network.ops.control import body_of
from abele.numerics import bool_, i32, i64


@writer("call")
def _call(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    """The body where it is called: a function of ONNX sees no initialisers."""
    return tuple(to.block(body_of(op), names))


@writer("checkpoint")
def _checkpoint(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    return tuple(to.block(op.regions[0], names))


# --- branches ---------------------------------------------------------------------------------------------------------


def _types(values: Sequence[Value]) -> list[tuple[tuple[int, ...], object]]:
    return [v.type for v in values]


@writer("cond")
def _cond(to: GraphWriter, op: NetworkOp, predicate: str, *names: str) -> Written:
    return _branch(to, predicate, names, op.regions)


@writer("switch")
def _switch(to: GraphWriter, op: NetworkOp, index: str, *names: str) -> Written:
    if len(op.regions) == 1:
        return tuple(to.block(op.regions[0], names))
    return _branch(to, _is(to, index, 0), names, op.regions, index)


def _is(to: GraphWriter, index: str, number: int) -> str:
    return to.node("Equal", index, to.number(number, i32))


def _branch(
    to: GraphWriter, predicate: str, names: Sequence[str], regions: Sequence[OpBlock], index: str = "", number: int = 0
) -> tuple[str, ...]:
    """The region of a number, or the next; of the last two it is one or the other."""
    then, other = regions[number : number + 2]
    types = _types(then.results)

    def chosen() -> list[tuple[str, object]]:
        return list(zip(to.block(then, names), types, strict=True))

    def another() -> list[tuple[str, object]]:
        if number + 2 == len(regions):
            made: Sequence[str] = to.block(other, names)
        else:
            made = _branch(to, _is(to, index, number + 1), names, regions, index, number + 1)
        return list(zip(made, types, strict=True))

    graphs = {"then_branch": to.graph("then", [], chosen), "else_branch": to.graph("otherwise", [], another)}
    return to.nodes_of("If", [predicate], len(types), fresh=True, **graphs)


# --- loops ------------------------------------------------------------------------------------------------------------


def _loop_of(to: GraphWriter, op: NetworkOp, names: Sequence[str], test: OpBlock | None, count: str) -> Written:
    """A loop whose body sees what it does not change by its name outside."""
    body, carried = op.regions[-1], op.attrs["carried"]
    states, around = op.inputs[:carried], names[carried:]
    if not carried:
        return ()
    holds = to.number(True, bool_) if test is None else to.block(test, names)[0]
    trip, going = to.unique("trip"), to.unique("going")
    entering = [to.unique(v.name or "carried") for v in states]
    inputs = [
        info(trip, (), i64),
        info(going, (), bool_),
        *(info(n, *v.type) for n, v in zip(entering, states, strict=True)),
    ]

    def one_trip() -> list[tuple[str, object]]:
        number = to.cast(trip, i64, i32)
        made = to.block(body, [number, *entering, *around])
        again = going if test is None else to.block(test, [*made, *around])[0]
        return [(again, ((), bool_)), *zip(made, _types(states), strict=True)]

    graph = to.graph("body", inputs, one_trip)
    return to.nodes_of("Loop", [count, holds, *names[:carried]], carried, fresh=True, body=graph)


@writer("loop")
def _loop(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    return _loop_of(to, op, names, None, to.constant(np.array(op.attrs["count"], np.int64), "trips"))


@writer("while")
def _while(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    return _loop_of(to, op, names, op.regions[0], "")
