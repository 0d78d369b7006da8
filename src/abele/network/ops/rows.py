"""Rows and windows of arrays where the machine computes: what loops keep their trips' values in, among others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import evaluate
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, OpBlock, Value
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


def read_window(net: BlockBuilder, array: Value, starts: Value, dims: Sequence[int], sizes: Sequence[int]) -> Value:
    """A window of ``array``: ``sizes`` indices of ``dims`` from ``starts`` (i32 [dims]) on, all of other dimensions.

    What of it lies outside the array is zero.
    """
    size = dict(zip(dims, sizes, strict=True))
    shape = [size.get(d, extent) for d, extent in enumerate(array.shape)]
    return net.emit("read_window", [array, starts], shape, array.dtype, dims=tuple(dims))


def write_window(net: BlockBuilder, array: Value, window: Value, starts: Value, dims: Sequence[int]) -> Value:
    """``array`` with its part of the window of ``dims`` from ``starts`` (i32 [dims]) on replaced."""
    return net.emit_like("write_window", [array, window, starts], array, dims=tuple(dims))


def check_row(table: Value, row: Value, index: Value) -> None:
    """Raise unless a row and its number fit a table.

    Raises:
        NetworkError: They do not.
    """
    require(table.ndim > 0 and row.type == (table.shape[1:], table.dtype), f"{row} is no row of {table}")
    require(index.type == ((), i32), f"the index is {index}, it has to be i32[]")


def _window(op: NetworkOp) -> tuple[int, int]:
    """The dimension along which an op's windows are cut first, and their extent along it."""
    if op.kind in ("read_row", "write_row"):
        return 0, 1
    array, window = op.inputs[0], op.output if op.kind == "read_window" else op.inputs[1]
    dim = min(op.attrs["dims"], key=lambda d: window.shape[d] / array.shape[d])
    return dim, window.shape[dim]


def _sliceable(to: Lowering, op: NetworkOp) -> Tensor:
    array, (dim, size) = op.inputs[0], _window(op)
    return popops.create_sliceable_tensor(to.graph, array.dtype, array.shape, [dim], [size], name=array.name or "array")


def laid_for_windows(to: Lowering, ops: Sequence[NetworkOp], array: Value, tensor: Tensor) -> Tensor | None:
    """A new variable for an array of which ``ops`` read or write windows; None where there are none, or it lies well.

    Each window of an array that lies otherwise would have all of it moved first.
    """
    for op in ops:
        if op.kind in ("read_row", "read_window", "write_row", "write_window") and op.inputs[0] is array:
            if not tensor.contains_constant and popops.is_held_along(to.graph, tensor, _window(op)[0]):
                return None
            return _sliceable(to, op)
    return None


def writes_every_row(body: OpBlock, carried: int, trips: int) -> bool:
    """True if the trips of a loop write every row of a carried table, and read none: what it held is of no use."""
    trip, table = body.parameters[0], body.parameters[1 + carried]
    users = [op for op in body.ops if table in op.inputs]
    if len(users) != 1 or users[0].kind != "write_row" or users[0].inputs.index(table) or table in body.results:
        return False
    (_, _, index), written = users[0].inputs, users[0].output
    if table in users[0].inputs[1:] or body.results[carried] is not written or body.results.count(written) > 1:
        return False
    if any(written in op.inputs for op in body.ops):
        return False
    rows = np.arange(trips, dtype=np.int32)
    if index is not trip:
        maker = next((op for op in body.ops if index in op.outputs), None)
        if maker is None or maker.kind != "map" or maker.inputs != (trip,):
            return False
        rows = np.asarray(evaluate(maker.attrs["expr"], [rows]))
    return bool(np.isin(np.arange(table.shape[0]), rows).all())


@rule("read_row")
class ReadRow(OpRule):
    """One row of a table, whose number has to be one of its rows."""

    operands = 2

    def types(self, op: NetworkOp) -> Types:
        """A row's."""
        table, index = op.inputs
        check_row(table, op.output, index)
        return [(table.shape[1:], table.dtype)]

    def evaluate(self, op: NetworkOp, table: Array, index: Array) -> Array:
        """NumPy's indexing."""
        return np.asarray(table[int(index)])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One dynamic slice."""
        table, index = to[op.inputs[0]], to[op.inputs[1]]
        taken = popops.dynamic_slice(to.graph, table, index.reshape((1,)), [0], [1], to.prog)
        return taken.reshape(op.output.shape)

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The table with all rows of a column on one tile."""
        return _sliceable(to, op) if operand == 0 else None

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
        check_row(*op.inputs)
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


def _check_window(op: NetworkOp, array: Value, window: Value, starts: Value) -> None:
    dims = op.attrs["dims"]
    inside = all(0 <= d < array.ndim for d in dims) and len(set(dims)) == len(dims)
    require(inside, f"dims={list(dims)} are not dimensions of {list(array.shape)}")
    fits = array.ndim == window.ndim and array.dtype == window.dtype
    fits = fits and all(
        n <= extent if d in dims else n == extent
        for d, (n, extent) in enumerate(zip(window.shape, array.shape, strict=True))
    )
    require(fits, f"{window} is no window of {array} along dims={list(dims)}")
    require(starts.type == ((len(dims),), i32), f"the starts are {starts}, they have to be i32[{len(dims)}]")


def _overlap(op: NetworkOp, array: Array, window: Array, starts: Array) -> tuple[Array, Array]:
    """Views of the elements that an array and a window of it share, from either."""
    for dim, begin in zip(op.attrs["dims"], starts.tolist(), strict=True):
        low, high = max(begin, 0), max(begin, 0, min(begin + window.shape[dim], array.shape[dim]))
        array = np.moveaxis(np.moveaxis(array, dim, 0)[low:high], 0, dim)
        window = np.moveaxis(np.moveaxis(window, dim, 0)[low - begin : high - begin], 0, dim)
    return array, window


@rule("read_window")
class ReadWindow(OpRule):
    """A window of an array, with zeros for what lies outside."""

    operands = 2
    attributes: ClassVar = {"dims": tuple}

    def types(self, op: NetworkOp) -> Types:
        """The array's with the extents that the op says."""
        array, starts = op.inputs
        _check_window(op, array, op.output, starts)
        return [(op.output.shape, array.dtype)]

    def evaluate(self, op: NetworkOp, array: Array, starts: Array) -> Array:
        """NumPy's slices."""
        result = np.zeros(op.output.shape, array.dtype)
        source, destination = _overlap(op, array, result, starts)
        destination[...] = source
        return result

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One dynamic slice."""
        dims = op.attrs["dims"]
        sizes = [op.output.shape[d] for d in dims]
        return popops.dynamic_slice(to.graph, to[op.inputs[0]], to[op.inputs[1]], dims, sizes, to.prog)

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The array with all windows of an element on one tile."""
        return _sliceable(to, op) if operand == 0 else None

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Zeros, but for the window."""
        array, starts = op.inputs
        zeros = full(net, 0.0, array.shape, array.dtype)
        return [write_window(net, zeros, only(grads), starts, op.attrs["dims"]), None]


@rule("write_window")
class WriteWindow(OpRule):
    """An array with a window replaced."""

    operands = 3
    attributes: ClassVar = {"dims": tuple}
    depends_on_operands_alone = False

    def types(self, op: NetworkOp) -> Types:
        """The array's."""
        _check_window(op, *op.inputs)
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, array: Array, window: Array, starts: Array) -> Array:
        """NumPy's slices, of a copy."""
        result = np.array(array)
        destination, source = _overlap(op, result, window, starts)
        destination[...] = source
        return result

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One dynamic update, in place if nothing else needs the array as it was."""
        array, window, starts = op.inputs
        written, dims = to.overwritable(array), op.attrs["dims"]
        popops.dynamic_update(
            to.graph,
            written,
            to[window],
            offset=to[starts],
            dims=dims,
            sizes=[window.shape[d] for d in dims],
            prog=to.prog,
        )
        to.own(op.output)
        return written

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The array with all windows of an element on one tile."""
        return _sliceable(to, op) if operand == 0 else None

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient without the window, and the window."""
        (_, window, starts), grad, dims = op.inputs, only(grads), op.attrs["dims"]
        zeros = full(net, 0.0, window.shape, window.dtype)
        kept = write_window(net, grad, zeros, starts, dims) if wanted[0] else None
        sizes = [window.shape[d] for d in dims]
        return [kept, read_window(net, grad, starts, dims, sizes) if wanted[1] else None, None]
