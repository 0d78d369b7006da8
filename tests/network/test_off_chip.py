"""Tables in streaming memory as values: their text, their meaning, and which values are tables."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import NetworkError
from abele.network import NetworkBuilder, Value
from abele.network.interpreter import evaluate
from abele.network.ir.parser import parse
from abele.network.off_chip import tables
from abele.network.ops import build
from abele.numerics import f32, i32

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def rotated() -> tuple[NetworkBuilder, Value]:
    """Rows that move on by one, in a loop."""
    net = NetworkBuilder()
    table = net.buffer((3, 2), f32, "table")
    last = build.load_row(net, table, net.constant(np.int32(2), i32))

    def body(inner: NetworkBuilder, trip: Value, carried: Value, row: Value) -> list[Value]:
        before = build.load_row(inner, carried, trip)
        return [build.store_row(inner, carried, row, trip), before]

    net.updates[table], _ = build.loop(net, 3, [table, last], body)
    return net, table


def test_a_table__through_a_loop__is_one_and_means_what_an_array_does() -> None:
    net, table = rotated()
    found = tables(net.ops, net.buffers)
    assert found.used == found.stored == {table}
    assert net.updates[table] in found
    assert table in found.old
    made = net.finish()
    assert parse(str(made)) == made
    np.testing.assert_array_equal(evaluate(made, {table: ROWS})[made.updates[table]], ROWS[[2, 0, 1]])


def test_a_table__read_after_another_version_was_made__is_refused() -> None:
    net, table = rotated()
    build.load_row(net, table, net.constant(np.int32(0), i32))
    with pytest.raises(NetworkError, match=r"load_row is of rows of table: .*, which has another row since"):
        tables(net.ops, net.buffers)


def test_rows__of_what_is_not_kept__are_refused() -> None:
    net = NetworkBuilder()
    build.load_row(net, build.full(net, 0.0, (3, 2), f32), net.constant(np.int32(0), i32))
    with pytest.raises(NetworkError, match="which is not kept from run to run"):
        tables(net.ops, net.buffers)
    table = net.buffer((3, 2), f32, "table")
    row = build.load_row(net, table, net.constant(np.int32(7), i32))
    net.output(row)
    with pytest.raises(NetworkError, match="row 7 of table"):
        evaluate(net.finish(), {table: ROWS})
