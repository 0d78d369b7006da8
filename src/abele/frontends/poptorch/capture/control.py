"""Control flow of PyTorch's: branches, loops and scans, with bodies that were recorded as graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch.fx

from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.registry import element_type
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import ElementType, bool_

if TYPE_CHECKING:
    from abele.frontends.poptorch.capture.reader import NodeReader

Reading = Callable[["NodeReader", torch.fx.Node], Any]

CONTROL: dict[str, Reading] = {}
"""Readings of control flow operators, by name."""


def _control(*names: str) -> Callable[[Reading], Reading]:
    def register(function: Reading) -> Reading:
        for name in names:
            CONTROL[name] = function
        return function

    return register


def _types(node: torch.fx.Node) -> list[ElementType]:
    """Element types of the results of a call."""
    return [element_type(fake.dtype) for fake in torch_export.fake(node)]


def _as(net: BlockBuilder, values: Sequence[Value], types: Sequence[ElementType]) -> list[Value]:
    """Values in the types that the operator says."""
    return [build.cast(net, v, t) for v, t in zip(values, types, strict=True)]


@_control("cond")
def _cond(reader: NodeReader, node: torch.fx.Node) -> Any:
    predicate, then, otherwise, operands = (*node.args, ())[:4]
    assert isinstance(operands, Sequence)
    types, arguments = _types(node), [reader.value(v) for v in operands]

    def case(body: Any) -> Callable[[BlockBuilder], list[Value]]:
        return lambda region: _as(region, reader.body(body, region, arguments), types)

    chooser = reader.value(predicate)
    if not isinstance(chooser, Value):
        return case(then if chooser else otherwise)(reader.net)
    return list(build.cond(reader.net, build.cast(reader.net, chooser, bool_), case(then), case(otherwise)))


@_control("while_loop")
def _while(reader: NodeReader, node: torch.fx.Node) -> Any:
    condition, body, carried, further = (*node.args, ())[:4]
    assert isinstance(carried, Sequence)
    assert isinstance(further, Sequence)
    types = [element_type(torch_export.fake(v).dtype) if isinstance(v, torch.fx.Node) else None for v in carried]
    initial = [reader.tensor(v) for v in carried]
    read = [reader.value(v) for v in further]
    assert types

    def holds(region: BlockBuilder, *now: Value) -> Value:
        (result,) = reader.body(condition, region, [*now, *read])
        return build.reshape(region, build.cast(region, result, bool_), ())

    def trip(region: BlockBuilder, _: Value, *now: Value) -> list[Value]:
        return _as(region, reader.body(body, region, [*now, *read]), [v.dtype for v in initial])

    return list(build.while_(reader.net, initial, holds, trip))


@_control("scan")
def _scan(reader: NodeReader, node: torch.fx.Node) -> Any:
    body, carried, rows, further = (*node.args, ())[:4]
    assert isinstance(carried, Sequence)
    assert isinstance(rows, Sequence)
    assert isinstance(further, Sequence)
    return _looped(reader, node, body, carried=carried, rows=rows, further=further)


@_control("map_impl")
def _map(reader: NodeReader, node: torch.fx.Node) -> Any:
    body, rows, further = (*node.args, ())[:3]
    assert isinstance(rows, Sequence)
    assert isinstance(further, Sequence)
    return _looped(reader, node, body, carried=(), rows=rows, further=further)


def _looped(
    reader: NodeReader,
    node: torch.fx.Node,
    body: Any,
    *,
    carried: Sequence[Any],
    rows: Sequence[Any],
    further: Sequence[Any],
) -> list[Value]:
    """Results of a loop whose body takes carried values and one row of each table after the other; results per trip are
    rows of further tables.
    """
    initial, tables = [reader.tensor(v) for v in carried], [reader.tensor(v) for v in rows]
    read = [reader.value(v) for v in further]
    count, stacked = tables[0].shape[0], torch_export.fake(node)[len(initial) :]
    kept = [build.full(reader.net, 0, tuple(t.shape), element_type(t.dtype)) for t in stacked]

    def trip(region: BlockBuilder, number: Value, *now: Value) -> list[Value]:
        taken = [build.read_row(region, t, number) for t in tables]
        made = reader.body(body, region, [*now[: len(initial)], *taken, *read])
        after = _as(region, made[: len(initial)], [v.dtype for v in initial])
        results = _as(region, made[len(initial) :], [v.dtype for v in kept])
        written = zip(now[len(initial) :], results, strict=True)
        return [*after, *(build.write_row(region, table, row, number) for table, row in written)]

    return list(build.loop(reader.net, count, [*initial, *kept], trip))
