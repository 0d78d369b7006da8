"""Rows of tables in streaming memory: loads, and stores that make new versions of them.

A table [1000, 768, 768] of f32 takes 2.4 GB there and nothing on the chip; a load of a row brings 2.4 MB. The row lies
as its first reader wants it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Array
from abele.errors import NetworkError
from abele.graph import Copy, RemoteBuffer, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.off_chip import LOAD, STORE
from abele.network.ops.rows import check_row
from abele.network.registry import LazyReader, Types, rule

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def load_row(net: BlockBuilder, table: Value, index: Value) -> Value:
    """Row ``index`` (i32) of a table [rows, …] in streaming memory."""
    return net.emit(LOAD, [table, index], table.shape[1:], table.dtype)


def store_row(net: BlockBuilder, table: Value, row: Value, index: Value) -> Value:
    """A table in streaming memory with row ``index`` (i32) replaced; ``table`` is read no more."""
    return net.emit_like(STORE, [table, row, index], table)


def _offset(to: Lowering, buffer: RemoteBuffer, index: Value) -> Tensor | None:
    """The row's number on the chip; None for the only one."""
    return to[index].reshape((1,)) if buffer.repeats > 1 or to.number(index) != 0 else None


def _add(to: Lowering, op: NetworkOp, copy: Copy) -> None:
    """Add a copy that reports show at the op's line."""
    if op.debug.file:
        copy.debug = replace(copy.debug, file=op.debug.file, line=op.debug.line)
    to.prog.add(copy)


@rule(LOAD)
class LoadRow(LazyReader):
    """A copy of one row to the chip."""

    operands = 2

    def types(self, op: NetworkOp) -> Types:
        """A row's."""
        table, index = op.inputs
        check_row(table, op.output, index)
        return [(table.shape[1:], table.dtype)]

    def evaluate(self, op: NetworkOp, table: Array, index: Array) -> Array:
        """NumPy's indexing."""
        return np.asarray(table[_row(op, index)])

    def waits_for_reader(self, to: Lowering, op: NetworkOp) -> bool:
        """Always: the row then lies as its reader wants it. What stores rows makes loads before it come first."""
        return True

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A copy from the buffer."""
        table, index = op.inputs
        buffer = to.table(table)
        row = to.given(op.output)
        if row is None:
            like, name = to.like(op.output), op.output.name or "row"
            row = (
                to.graph.map_linear(to.graph.variable(op.output.dtype, op.output.shape, name=name))
                if like is None
                else to.variable_like(like, name)
            )
        _add(to, op, Copy(buffer, row, name=f"load/{buffer.name}", offset=_offset(to, buffer, index)))
        return row


@rule(STORE)
class StoreRow(LazyReader):
    """A copy of one row from the chip."""

    operands = 3

    def types(self, op: NetworkOp) -> Types:
        """The table's."""
        check_row(*op.inputs)
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, table: Array, row: Array, index: Array) -> Array:
        """NumPy's indexing, on a copy."""
        result = np.array(table)
        result[_row(op, index)] = row
        return result

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[None]:
        """A copy to the buffer."""
        table, row, index = op.inputs
        buffer = to.table(table)
        _add(to, op, Copy(to[row], buffer, name=f"store/{buffer.name}", offset=_offset(to, buffer, index)))
        return (None,)


def _row(op: NetworkOp, index: Array) -> int:
    """Number of a row.

    Raises:
        NetworkError: There is no such row.
    """
    rows = op.inputs[0].shape[0]
    if not 0 <= int(index) < rows:
        raise NetworkError(f"row {int(index)} of {op.inputs[0]}, which has {rows}")
    return int(index)
