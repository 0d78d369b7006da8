"""Look-ups and updates by number, order, and scans."""

from __future__ import annotations

import math

import numpy as np

from abele.arrays import Array
from abele.frontends.onnx.exporting.graph import GraphWriter, Written, writer
from abele.network.ir import NetworkOp, Value
from abele.numerics import ElementType, bool_, f32, i32, i64

# --- numbers of rows --------------------------------------------------------------------------------------------------


def _is_inside(to: GraphWriter, index: Value, extent: int) -> bool:
    """True if numbers are known to be those of rows."""
    low, limit = to.valid.get(index, (-1, extent + 1))
    return low >= 0 and limit <= extent


def _inside(to: GraphWriter, index: str, extent: int, dtype: ElementType = i32) -> str:
    """Bools: true for numbers of rows."""
    least = to.node("GreaterOrEqual", index, to.number(0, dtype))
    return to.node("And", least, to.node("Less", index, to.number(extent, dtype)))


def _zeroed(to: GraphWriter, keep: str, name: str, dtype: ElementType) -> str:
    return to.node("Where", keep, name, to.number(0, dtype))


@writer("look_up")
def _look_up(to: GraphWriter, op: NetworkOp, table: str, index: str) -> Written:
    """Zeros where a number is none of a row, unless the model says that all are."""
    (of_rows, numbers), dtype = op.inputs, op.output.dtype
    entries = of_rows.shape[-2]
    known, keep, place = _is_inside(to, numbers, entries), "", index
    if not known:
        keep = _inside(to, index, entries)
        place = _zeroed(to, keep, index, i32)
    if of_rows.ndim == 2:
        made = to.node("Gather", table, place, axis=0)
    else:
        wide = to.cast(to.node("Unsqueeze", place, to.ints([2])), i32, i64)
        made = to.node("GatherND", table, wide, batch_dims=1)
    return made if known else _zeroed(to, to.node("Unsqueeze", keep, to.ints([numbers.ndim])), made, dtype)


_JOINED = {"add": "add", "mul": "mul", "max": "max", "set": None}


def _scattered(to: GraphWriter, table: str, rows: str, index: str, given: tuple[Value, Value], operation: str) -> str:
    """A table with rows joined by number."""
    of_rows, numbers = given
    shape, dim = of_rows.shape, of_rows.ndim - 2
    if operation == "max":
        to.require_opset(18, "maxima of rows")
    return to.node(
        "ScatterElements",
        table,
        to.expand(to.node("Unsqueeze", index, to.ints([numbers.ndim])), shape),
        rows,
        axis=dim,
        reduction=_JOINED[operation],
    )


@writer("update_rows", "add_rows")
def _update_rows(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    """Rows by numbers outside the table go to one more entry, which is cut off."""
    dtype, shape = op.output.dtype, op.output.shape
    *table, rows, index = names
    operation = op.attrs.get("operation", "add")
    of_rows, numbers = op.inputs[-2:]
    entries, dim = shape[-2], len(shape) - 2
    start = table[0] if table else to.constant(np.broadcast_to(np.zeros((), dtype.np), shape), "zeros")
    if _is_inside(to, numbers, entries):
        return _scattered(to, start, rows, index, (of_rows, numbers), operation)
    one = to.constant(np.broadcast_to(np.zeros((), dtype.np), (*shape[:-2], 1, shape[-1])), "zeros")
    place = to.node("Where", _inside(to, index, entries), index, to.number(entries, i32))
    made = _scattered(to, to.node("Concat", start, one, axis=dim), rows, place, (of_rows, numbers), operation)
    return to.slice(made, dim, 0, entries)


# --- one row, and windows ---------------------------------------------------------------------------------------------


@writer("read_row")
def _read_row(to: GraphWriter, op: NetworkOp, table: str, index: str) -> Written:
    return to.node("Gather", table, index, axis=0)


@writer("write_row")
def _write_row(to: GraphWriter, op: NetworkOp, table: str, row: str, index: str) -> Written:
    place = to.reshape(to.cast(index, i32, i64), (1, 1))
    return to.node("ScatterND", table, place, to.node("Unsqueeze", row, to.ints([0])))


def _along(array: Array, dim: int, ndim: int) -> Array:
    return array.reshape([-1 if d == dim else 1 for d in range(ndim)])


def _start(to: GraphWriter, starts: str, number: int) -> str:
    return to.slice(starts, 0, number, number + 1)


@writer("read_window")
def _read_window(to: GraphWriter, op: NetworkOp, array: str, starts: str) -> Written:
    """Indices from the start on along each dimension; zeros for those outside."""
    ndim, shape = op.output.ndim, op.inputs[0].shape
    for number, dim in enumerate(op.attrs["dims"]):
        window = np.arange(op.output.shape[dim], dtype=np.int32)
        index = to.node("Add", _start(to, starts, number), to.constant(window, "window"))
        keep = _inside(to, index, shape[dim])
        taken = to.node("Gather", array, _zeroed(to, keep, index, i32), axis=dim)
        beside = [-1 if d == dim else 1 for d in range(ndim)]
        array = to.node("Where", to.reshape(keep, beside), taken, to.number(0, op.output.dtype))
    return array


@writer("write_window")
def _write_window(to: GraphWriter, op: NetworkOp, array: str, window: str, starts: str) -> Written:
    """The window where the indices of the array lie in it, along each dimension."""
    of_array, of_window, _ = op.inputs
    written = ""
    for number, dim in enumerate(op.attrs["dims"]):
        every = to.constant(np.arange(of_array.shape[dim], dtype=np.int32), "indices")
        index = to.node("Sub", every, _start(to, starts, number))
        keep = _inside(to, index, of_window.shape[dim])
        window = to.node("Gather", window, _zeroed(to, keep, index, i32), axis=dim)
        mask = to.reshape(keep, [-1 if d == dim else 1 for d in range(of_array.ndim)])
        written = to.node("And", written, mask) if written else mask
    return to.node("Where", written, window, array) if written else window


# --- order ------------------------------------------------------------------------------------------------------------


@writer("sort", "top_k")
def _ordered(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    largest = op.attrs["descending"] if op.kind == "sort" else op.attrs["largest"]
    count = to.ints([op.output.shape[-1]])
    made, places = to.nodes_of("TopK", [name, count], 2, axis=-1, largest=int(largest), sorted=1)
    return made, to.cast(places, i64, i32)


@writer("search")
def _search(to: GraphWriter, op: NetworkOp, rows: str, values: str) -> Written:
    """The count of elements of a row that are below each value."""
    each, beside = to.node("Unsqueeze", rows, to.ints([1])), to.node("Unsqueeze", values, to.ints([2]))
    below = to.node("LessOrEqual" if op.attrs["right"] else "Less", each, beside)
    return to.reduce("ReduceSum", to.cast(below, bool_, i32), [2])


# --- scans ------------------------------------------------------------------------------------------------------------


def _before(to: GraphWriter, name: str, value: Value, op: NetworkOp, by: int, fill: float) -> str:
    """The elements ``by`` indices before, against the way of the scan; ``fill`` where there are none."""
    dim, extent = op.attrs["dim"], value.shape[op.attrs["dim"]]
    shape = (*value.shape[:dim], by, *value.shape[dim + 1 :])
    none = to.constant(np.broadcast_to(np.asarray(fill).astype(value.dtype.np), shape), "fill")
    if op.attrs["reverse"]:
        return to.node("Concat", to.slice(name, dim, by, extent), none, axis=dim)
    return to.node("Concat", none, to.slice(name, dim, 0, extent - by), axis=dim)


def _joined(to: GraphWriter, operation: str, a: str, b: str) -> str:
    if operation != "logaddexp":
        return to.node({"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[operation], a, b)
    # Of two infinities of one sign the difference is no number, and their maximum is the sum.
    most, least = to.node("Max", a, b), to.node("Min", a, b)
    away = to.node("Sub", least, most)
    more = to.node("Log", to.node("Add", to.node("Exp", away), to.number(1, f32)))
    return to.node(
        "Where",
        to.node("Equal", most, least),
        to.node("Add", most, to.number(math.log(2), f32)),
        to.node("Add", most, more),
    )


def _neutral(operation: str, dtype: ElementType) -> float:
    if operation in ("add", "mul"):
        return float(operation == "mul")
    above = operation == "min"
    if dtype.is_float:
        return math.inf if above else -math.inf
    limits = np.iinfo(dtype.np)
    return int(limits.max if above else limits.min)


@writer("scan")
def _scan(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    """A sum is an operator; others join ever more indices: 1, 2, 4 and so on."""
    value, operation, dim = op.inputs[0], op.attrs["operation"], op.attrs["dim"]
    if operation == "add":
        return to.node("CumSum", name, to.constant(np.array(dim, np.int64), "axis"), reverse=int(op.attrs["reverse"]))
    by, fill = 1, _neutral(operation, value.dtype)
    while by < value.shape[dim]:
        name = _joined(to, operation, name, _before(to, name, value, op, by, fill))
        by *= 2
    return name


@writer("recurrence")
def _recurrence(to: GraphWriter, op: NetworkOp, factor: str, addend: str) -> Written:
    """Pairs of a factor and an addend, of which ever more are joined to one: 1, 2, 4 and so on."""
    value, by = op.output, 1
    while by < value.shape[op.attrs["dim"]]:
        earlier = _before(to, addend, value, op, by, 0.0)
        addend = to.node("Add", addend, to.node("Mul", factor, earlier))
        factor = to.node("Mul", factor, _before(to, factor, value, op, by, 0.0))
        by *= 2
    return addend
