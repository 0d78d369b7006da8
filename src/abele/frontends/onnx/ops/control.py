"""Graphs inside of nodes: branches, loops, and loops over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from abele.expr import apply
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Item, NodeCall, op
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_, i32

x, y = arg(0), arg(1)
MOST_UNROLLED = 8
"""Trips of a loop up to which its body is read once for each: what is known of a trip's number is known then."""


@op("If")
def branch(call: NodeCall, condition: Item, *, then_branch: Any, else_branch: Any) -> Any:
    """The results of one of two graphs; where the condition is known, only the chosen one is read."""
    if condition.known is not None and condition.fixed:
        chosen = then_branch if bool(np.asarray(condition.known).reshape(-1)[0]) else else_branch
        return tuple(call.reader.body(chosen, call.net, []))

    def read(graph: onnx.GraphProto) -> Any:
        return lambda net: _values(call, net, graph, [])

    shapes = [_shapes(call, graph) for graph in (then_branch, else_branch)]
    if shapes[0] != shapes[1]:
        raise call.refuse(
            "has branches whose results differ in shape or type",
            because=f"{shapes[0]} and {shapes[1]}",
            remedy="pad them to one shape, or make the condition a constant",
        )
    chooser = build.cast(call.net, call.reader.value(condition), bool_)
    return build.cond(call.net, chooser, read(then_branch), read(else_branch))


def _values(call: NodeCall, net: BlockBuilder, graph: onnx.GraphProto, arguments: Sequence[Item]) -> list[Value]:
    reader = call.reader.inside(net)
    return [reader.value(item) for item in reader.body(graph, net, arguments)]


def _shapes(call: NodeCall, graph: onnx.GraphProto) -> list[str]:
    """Shapes and types of what a graph gives, read for nothing."""
    from abele.network.ir.builder import RegionBuilder

    region = RegionBuilder(call.net)
    made = _values(call, region, graph, [])
    return [f"{v.dtype}{list(v.shape)}" for v in made]


def _one(item: Item | None) -> Any:
    """The number that a tensor of one element is, where it is known."""
    if item is None or item.known is None or not item.fixed:
        return None
    return np.asarray(item.known).reshape(-1)[0].item()


@dataclass(frozen=True)
class _LoopBody:
    """The graph of a loop.

    Attributes:
        call: The node.
        graph: Its graph: number of the trip and whether to go on, then what is carried; gives whether to go on, what
            is carried on, and rows.
        carried: Tensors that are carried.
    """

    call: NodeCall
    graph: onnx.GraphProto
    carried: int

    def trip(
        self, net: BlockBuilder, number: Item, holds: Item, carried: Sequence[Item]
    ) -> tuple[Item, list[Item], list[Item]]:
        """Condition after a trip, carried tensors, and its rows."""
        reader = self.call.reader.inside(net)
        made = reader.body(self.graph, net, [number, holds, *carried])
        return made[0], made[1 : 1 + self.carried], made[1 + self.carried :]


def _item(name: str, value: Value, like: Item | None = None) -> Item:
    return Item(name, value.shape, like.dtype if like is not None else value.dtype.np, value=value)


@op("Loop")
def loop(call: NodeCall, most: Item | None, condition: Item | None, *carried: Item, body: Any) -> Any:
    """Carried tensors after the trips of a graph, and rows of the trips.

    A loop whose trips are known runs on the device as one; of few trips, each is read by itself. Where a condition of
    the body ends it, the loop goes on until that fails, and gives rows only if it may not end before its last trip.
    """
    trips, begins = _one(most), _one(condition) if condition is not None else True
    graph = _LoopBody(call, body, len(carried))
    if begins is False or (trips is not None and trips <= 0):
        return _no_trips(call, graph, carried)
    goes_on = _always(call, body)
    if trips is not None and trips >= 2**31:
        # As exporters write a loop that its condition ends.
        trips, most = None, None
        if goes_on:
            raise call.wrong("has more than 2³¹ trips")
    if trips is not None and goes_on and begins is True:
        if trips <= MOST_UNROLLED or any(item.known is not None and item.fixed for item in carried):
            unrolled = _unrolled(call, graph, int(trips), carried) if trips <= 4 * MOST_UNROLLED else None
            if unrolled is not None:
                return unrolled
        return _counted(call, graph, int(trips), carried)
    return _open(call, graph, condition, most, carried, goes_on=goes_on)


def _always(call: NodeCall, graph: onnx.GraphProto) -> bool:
    """True if the body hands on its condition as it came, or a constant that holds."""
    name, entering = graph.output[0].name, graph.input[1].name if len(graph.input) > 1 else ""
    makers = {output: node for node in graph.node for output in node.output}
    known = {t.name: t for t in graph.initializer}
    passed: set[str] = set()
    while name != entering and name not in passed:
        passed.add(name)
        if name in known:
            return bool(onnx.numpy_helper.to_array(known[name]).reshape(-1)[0])
        node = makers.get(name)
        if node is None:
            try:
                return bool(_one(call.reader.item(name)))
            except Exception:
                return False
        if node.op_type in ("Identity", "Cast"):
            name = node.input[0]
            continue
        if node.op_type == "Constant":
            held = next((a.t for a in node.attribute if a.name == "value"), None)
            return held is not None and bool(onnx.numpy_helper.to_array(held).reshape(-1)[0])
        return False
    return bool(name == entering)


def _unrolled(call: NodeCall, graph: _LoopBody, trips: int, carried: Sequence[Item]) -> Any:
    """Trips read one after the other."""
    net, items = call.net, list(carried)
    rows: list[list[Item]] = []
    for number in range(trips):
        at = call.reader.known("trip", np.asarray(number, np.int64))
        holds = call.reader.known("holds", np.asarray(True))
        going, items, made = graph.trip(net, at, holds, items)
        rows.append(made)
        if _one(going) is False:
            break
    return (*items, *(_stacked(call, [row[n] for row in rows]) for n in range(len(rows[0]))))


def _stacked(call: NodeCall, items: Sequence[Item]) -> Any:
    if all(item.known is not None and item.fixed for item in items):
        return np.stack([np.asarray(item.known) for item in items])
    net = call.net
    rows = [build.reshape(net, call.reader.value(item), (1, *item.shape)) for item in items]
    return build.concat(net, rows, 0)


def _types_of_trip(call: NodeCall, graph: _LoopBody, carried: Sequence[Item]) -> tuple[list[Value], list[Value]]:
    """Types of what a trip carries on and of its rows, read for nothing."""
    from abele.network.ir.builder import RegionBuilder

    region = RegionBuilder(call.net)
    number, holds = build.full(region, 0, (), i32), build.full(region, 1, (), bool_)
    opened = [_item(item.name, region.parameter(call.reader.value(item)), item) for item in carried]
    _, kept, rows = graph.trip(region, _hidden(region, number), _hidden(region, holds), opened)
    reader = call.reader.inside(region)
    made, given = [reader.value(i) for i in kept], [reader.value(i) for i in rows]
    for before, after in zip(carried, made, strict=True):
        if before.shape != after.shape:
            raise call.refuse(
                f"carries {before.name!r} of {list(before.shape)}, which a trip makes {list(after.shape)}",
                because="the machine's loops have one program for all trips",
                remedy="write rows into a tensor of the full size",
            )
    return made, given


def _hidden(net: Any, value: Value) -> Item:
    """A value whose elements the body shall not know, since they differ by trip."""
    return Item("trip", value.shape, value.dtype.np, value=net.parameter(value))


def _counted(call: NodeCall, graph: _LoopBody, trips: int, carried: Sequence[Item]) -> Any:
    """A loop of a known number of trips."""
    net = call.net
    made, rows = _types_of_trip(call, graph, carried)
    initial = [build.cast(net, call.reader.value(i), v.dtype) for i, v in zip(carried, made, strict=True)]
    tables = [build.full(net, 0, (trips, *v.shape), v.dtype) for v in rows]

    def body(region: BlockBuilder, number: Value, *values: Value) -> list[Value]:
        own = [_item(i.name, v, i) for i, v in zip(carried, values, strict=False)]
        held = list(values[len(carried) :])
        going = call.reader.known("holds", np.asarray(True))
        _, kept, given = graph.trip(region, _item("trip", number), going, own)
        reader = call.reader.inside(region)
        written = [
            build.write_row(region, table, region.read(reader.value(row)), number)
            for table, row in zip(held, given, strict=True)
        ]
        return [*(reader.value(i) for i in kept), *written]

    return build.loop(net, trips, [*initial, *tables], body)


def _open(
    call: NodeCall,
    graph: _LoopBody,
    condition: Item | None,
    most: Item | None,
    carried: Sequence[Item],
    *,
    goes_on: bool,
) -> Any:
    """A loop whose end the device finds: it has no rows, since their number would depend on values."""
    net = call.net
    made, rows = _types_of_trip(call, graph, carried)
    if rows and any(call.wants(len(carried) + n) for n in range(len(rows))):
        if most is not None and most.known is None and goes_on:
            raise call.unknown(most, "the number of its trips, each of which gives a row,")
        raise call.refuse(
            "gives a row for each trip of a loop whose end depends on values",
            because="shapes of results are known before the model runs",
            remedy="give it a number of trips that is a constant, and a condition that stays true",
        )
    first = call.reader.value(condition) if condition is not None else build.full(net, 1, (), bool_)
    initial = [build.cast(net, call.reader.value(i), v.dtype) for i, v in zip(carried, made, strict=True)]
    limit = None if most is None else build.cast(net, build.reshape(net, call.reader.value(most), ()), i32)
    going = build.reshape(net, build.cast(net, first, bool_), ())
    count = build.full(net, 0, (), i32)

    def holds(region: BlockBuilder, *values: Value) -> Value:
        if limit is None:
            return values[1]
        return build.map_(region, apply("and", x, y < arg(2)), [values[1], values[0], region.read(limit)], bool_)

    def body(region: BlockBuilder, trip: Value, *values: Value) -> list[Value]:
        own = [_item(i.name, v, i) for i, v in zip(carried, values[2:], strict=True)]
        going_on, kept, _ = graph.trip(region, _item("trip", values[0]), _item("holds", values[1]), own)
        reader = call.reader.inside(region)
        again = build.reshape(region, build.cast(region, reader.value(going_on), bool_), ())
        counted = build.map_(region, x + 1, [values[0]], i32)
        return [counted, again, *(reader.value(i) for i in kept)]

    return build.while_(net, [count, going, *initial], holds, body)[2:]


def _no_trips(call: NodeCall, graph: _LoopBody, carried: Sequence[Item]) -> Any:
    _, rows = _types_of_trip(call, graph, carried)
    empty = [build.full(call.net, 0, (0, *v.shape), v.dtype) for v in rows]
    return (*carried, *empty)


# --- Scan -------------------------------------------------------------------------------------------------------------


@op("Scan", since=9)
def scan(
    call: NodeCall,
    *given: Item,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> Any:
    """Carried tensors after a trip for each row of some inputs, and rows of the trips, stacked."""
    net, count = call.net, len(given) - num_scan_inputs
    carried, scanned = given[:count], given[count:]
    axes = list(scan_input_axes or [0] * num_scan_inputs)
    turned = list(scan_input_directions or [0] * num_scan_inputs)
    tables: list[Value] = []
    for item, axis, back in zip(scanned, axes, turned, strict=True):
        value = call.reader.value(item)
        dim = call.axis(axis, value.ndim)
        moved = build.permute(net, value, [dim, *(d for d in range(value.ndim) if d != dim)])
        tables.append(build.reverse(net, moved, [0]) if back else moved)
    lengths = {t.shape[0] for t in tables}
    if len(lengths) != 1:
        raise call.wrong(f"goes over inputs of {sorted(lengths)} rows")
    made = _rows(call, body, list(carried), list(scanned), tables)
    outputs = list(made[count:])
    out_axes = list(scan_output_axes or [0] * len(outputs))
    out_turned = list(scan_output_directions or [0] * len(outputs))
    for place, (axis, back) in enumerate(zip(out_axes, out_turned, strict=True)):
        value = build.reverse(net, outputs[place], [0]) if back else outputs[place]
        dim = call.axis(axis, value.ndim)
        order = [*range(1, dim + 1), 0, *range(dim + 1, value.ndim)]
        outputs[place] = build.permute(net, value, order)
    return (*made[:count], *outputs)


@op("Scan", until=9)
def scan_of_batch(
    call: NodeCall,
    sequence_lens: Item | None,
    *given: Item,
    body: Any,
    num_scan_inputs: int,
    directions: Sequence[int] | None = None,
) -> Any:
    """As :func:`scan`, for each sample of a batch by itself."""
    net = call.net
    if sequence_lens is not None:
        raise call.refuse("has sequences of lengths of their own", remedy="mask the rows after their ends")
    values = [call.reader.value(item) for item in given]
    count, batch = len(given) - num_scan_inputs, values[0].shape[0]
    turned = list(directions or [0] * num_scan_inputs)
    results: list[list[Value]] = []
    for sample in range(batch):
        own = [build.reshape(net, build.slice_(net, v, 0, sample, sample + 1), v.shape[1:]) for v in values]
        items = [_item(i.name, v, i) for i, v in zip(given, own, strict=True)]
        tables = [build.reverse(net, v, [0]) if back else v for v, back in zip(own[count:], turned, strict=True)]
        results.append(list(_rows(call, body, items[:count], items[count:], tables)))
    return tuple(
        build.concat(net, [build.reshape(net, r[n], (1, *r[n].shape)) for r in results], 0)
        for n in range(len(results[0]))
    )


def _rows(
    call: NodeCall, graph: onnx.GraphProto, carried: list[Item], scanned: list[Item], tables: list[Value]
) -> tuple[Value, ...]:
    """Carried values after a trip for each row of tables, and the rows that trips give."""
    from abele.network.ir.builder import RegionBuilder

    net, trips = call.net, tables[0].shape[0]
    probe = RegionBuilder(net)
    opened = [_item(i.name, probe.parameter(call.reader.value(i)), i) for i in carried]
    rows = [
        _item(i.name, probe.parameter(build.full(net, 0, t.shape[1:], t.dtype)), i)
        for i, t in zip(scanned, tables, strict=True)
    ]
    reader = call.reader.inside(probe)
    made = [reader.value(i) for i in reader.body(graph, probe, [*opened, *rows])]
    count = len(carried)
    initial = [build.cast(net, call.reader.value(i), v.dtype) for i, v in zip(carried, made, strict=False)]
    stacked = [build.full(net, 0, (trips, *v.shape), v.dtype) for v in made[count:]]

    def body(region: BlockBuilder, number: Value, *values: Value) -> list[Value]:
        own = [_item(i.name, v, i) for i, v in zip(carried, values, strict=False)]
        here = [
            _item(i.name, build.read_row(region, region.read(t), number), i)
            for i, t in zip(scanned, tables, strict=True)
        ]
        inner = call.reader.inside(region)
        given = [inner.value(i) for i in inner.body(graph, region, [*own, *here])]
        written = [
            build.write_row(region, table, region.read(row), number)
            for table, row in zip(values[count:], given[count:], strict=True)
        ]
        return [*given[:count], *written]

    return build.loop(net, trips, [*initial, *stacked], body)
