"""Rows of tables by a number that the machine computes: what loops keep their trips' values in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.constant import full
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import i32
from abele.poplibs import popops

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def read_row(net: BlockBuilder, table: Value, index: Value) -> Value:
    """Row ``index`` (i32) of ``table`` [rows, …]."""
    return net.emit("read_row", [table, index], table.shape[1:], table.dtype)


def write_row(net: BlockBuilder, table: Value, row: Value, index: Value) -> Value:
    """``table`` with row ``index`` (i32) replaced."""
    return net.emit_like("write_row", [table, row, index], table)


def _check(table: Value, row: Value, index: Value) -> None:
    require(table.ndim > 0 and row.type == (table.shape[1:], table.dtype), f"{row} is no row of {table}")
    require(index.type == ((), i32), f"the index is {index}, it has to be i32[]")


@rule("read_row")
class ReadRow(OpRule):
    """One row of a table, whose number has to be one of its rows."""

    operands = 2

    def types(self, op: NetworkOp) -> Types:
        """A row's."""
        table, index = op.inputs
        _check(table, op.output, index)
        return [(table.shape[1:], table.dtype)]

    def evaluate(self, op: NetworkOp, table: Array, index: Array) -> Array:
        """NumPy's indexing."""
        return np.asarray(table[int(index)])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One dynamic slice."""
        table, index = to[op.inputs[0]], to[op.inputs[1]]
        taken = popops.dynamic_slice(to.graph, table, index.reshape((1,)), [0], [1], to.prog)
        return taken.reshape(op.output.shape)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Zeros, but for the row."""
        table, index = op.inputs
        zeros = full(net, 0.0, table.shape, table.dtype)
        return [write_row(net, zeros, only(grads), index), None]


@rule("write_row")
class WriteRow(OpRule):
    """A table with one row replaced."""

    operands = 3
    depends_on_operands_alone = False

    def types(self, op: NetworkOp) -> Types:
        """The table's."""
        _check(*op.inputs)
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, table: Array, row: Array, index: Array) -> Array:
        """NumPy's indexing, on a copy."""
        result = np.array(table)
        result[int(index)] = row
        return result

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One dynamic update, in place if nothing else needs the table as it was."""
        table, row, index = op.inputs
        written = to.overwritable(table)
        piece = to[row].reshape((1, *row.shape))
        popops.dynamic_update(
            to.graph, written, piece, offset=to[index].reshape((1,)), dims=[0], sizes=[1], prog=to.prog
        )
        to.own(op.output)
        return written

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient without the row, and the row."""
        (_, row, index), grad = op.inputs, only(grads)
        kept = write_row(net, grad, full(net, 0.0, row.shape, row.dtype), index) if wanted[0] else None
        return [kept, read_row(net, grad, index) if wanted[1] else None, None]
