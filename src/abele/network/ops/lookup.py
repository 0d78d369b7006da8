"""Look-ups in tables: rows by many numbers at once, and rows added up by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.graph import Copy, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, PlanHint, Shape, Value
from abele.network.ir.part import ValuePart
from abele.network.ops.constant import full
from abele.network.ops.elementwise import cast, map_
from abele.network.ops.views import concat, expand, reshape, reverse, slice_
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import ElementType, bf16, bool_, f16, f32, i32, u32
from abele.poplibs import popnn, popops
from abele.poplibs.popops.slicing import SlicePlan, embedding, is_stored_for, stored_entries, stored_parts

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


# Indices that are known while a network is built, as views: runs of even steps, which are put together.

EvenRun = tuple[int, int, int]
"""The first number, the step to the next, and how many there are."""


def even_runs(numbers: Sequence[int], *, far_pairs: bool = True) -> Iterator[EvenRun]:
    """``numbers`` as runs that count up, down or not at all, each as long as it can be.

    Args:
        numbers: In order.
        far_pairs: False to let two numbers that are more than one apart be no run, so that the second may begin one.
    """
    begin = 0
    while begin < len(numbers):
        end = begin + 1
        step = numbers[end] - numbers[begin] if end < len(numbers) else 0
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if not far_pairs and end == begin + 2 and abs(step) > 1:
            end = begin + 1
        yield numbers[begin], step, end - begin
        begin = end


def taken_runs(net: BlockBuilder, value: Value, dim: int, runs: Sequence[EvenRun]) -> Value:
    """The indices of ``runs`` of one dimension, one after the other."""
    return concat(net, [_run(net, value, dim, *run) for run in runs], dim)


def _run(net: BlockBuilder, value: Value, dim: int, first: int, step: int, count: int) -> Value:
    if step == 0 or count == 1:
        one = slice_(net, value, dim, first, first + 1)
        return expand(net, one, (*value.shape[:dim], count, *value.shape[dim + 1 :]))
    low = min(first, first + step * (count - 1))
    run = slice_(net, value, dim, low, low + abs(step) * (count - 1) + 1, abs(step))
    return run if step > 0 else reverse(net, run, [dim])


x, y, z = arg(0), arg(1), arg(2)


def look_up(net: BlockBuilder, table: Value, index: Value) -> Value:
    """Rows of ``table`` [rows, width] by their numbers: index [...] gives [..., width]."""
    flat = reshape(net, cast(net, index, i32), (index.size,))
    rows = net.emit("look_up", [table, flat], (index.size, table.shape[1]), table.dtype)
    return reshape(net, rows, (*index.shape, table.shape[1]))


def look_up_groups(net: BlockBuilder, table: Value, index: Value) -> Value:
    """Rows of each of ``table`` [groups, rows, width] by numbers of its own, [groups, n]: [groups, n, width]."""
    groups, _, width = table.shape
    if groups == 1:
        rows = look_up(net, reshape(net, table, table.shape[1:]), index)
        return reshape(net, rows, (1, index.shape[1], width))
    return net.emit("look_up", [table, cast(net, index, i32)], (*index.shape, width), table.dtype)


def add_rows(net: BlockBuilder, rows: Value, index: Value, entries: int) -> Value:
    """A table [entries, width] of zeros, to which each of ``rows`` [n, width] is added at its number of index [n].

    It is spread as weights are from which such rows are looked up. With groups in front, as rows [groups, n, width] and
    index [groups, n] then have, each has a table of its own.
    """
    shape = (*index.shape[:-1], entries, rows.shape[-1])
    return net.emit("add_rows", [rows, index], shape, rows.dtype, entries=entries)


def sum_rows(net: BlockBuilder, rows: Value, index: Value, entries: int) -> Value:
    """As :func:`add_rows`, where the table is not of a weight."""
    zeros = full(net, 0.0, (*index.shape[:-1], entries, rows.shape[-1]), rows.dtype)
    return update_rows(net, zeros, rows, index, "add")


def update_rows(net: BlockBuilder, table: Value, rows: Value, index: Value, operation: str = "set") -> Value:
    """``table`` [entries, width] with each of ``rows`` [n, width] joined with the entry of its number of index [n].

    Args:
        net: The network to extend.
        table: Table to update; with groups in front, [groups, entries, width], as rows and index then have.
        rows: Rows of the update, of its type.
        index: Numbers of entries, i32; rows whose number is none of an entry change nothing.
        operation: ``set`` (the last row of a number counts), ``add``, ``mul``, ``max`` or ``min``.
    """
    if operation == "min":
        # The maximum of what has the opposite order: of integers all bits turned, as the least has no negative.
        turned = -x if table.dtype.is_float else apply("not", x)
        negative_table, negative_rows = (map_(net, turned, [v]) for v in (table, rows))
        return map_(net, turned, [update_rows(net, negative_table, negative_rows, index, "max")])
    return net.emit_like("update_rows", [table, rows, index], table, operation=operation)


_JOINED = (f16, f32, i32, u32)
"""Element types that rows are added, multiplied and compared in."""


def join_rows(net: BlockBuilder, table: Value, rows: Value, index: Value, operation: str) -> Value:
    """As :func:`update_rows`, for elements of any type; bools count as numbers."""
    if not rows.size:
        return table
    if table.ndim == 3 and table.shape[0] == 1:
        flat_table, flat_rows, numbers = (reshape(net, v, v.shape[1:]) for v in (table, rows, index))
        return reshape(net, _joined(net, flat_table, flat_rows, numbers, operation), table.shape)
    return _joined(net, table, rows, index, operation)


def _joined(net: BlockBuilder, table: Value, rows: Value, index: Value, operation: str) -> Value:
    dtype = table.dtype
    if operation == "set" or dtype in _JOINED:
        return update_rows(net, table, rows, index, operation)
    wide = f32 if dtype == bf16 else i32
    made = update_rows(net, cast(net, table, wide), cast(net, rows, wide), index, operation)
    if dtype == bool_:
        made = map_(net, x.ne(0), [made], bool_)
    return cast(net, made, dtype)


MOST_RUNS = 16
"""Runs of known numbers that are taken as views of the table; more are looked up."""


LARGEST_ROWS = 2**16
"""Bytes of rows that every tile may receive when entries are set. Guessed: a tenth of a tile's memory."""


SPARSE = 32
"""Entries of a table for each row that is set, at least, if many rows are set in place. Guessed: by number all entries
are gone through, in place all rows; 128 rows of 784 in place make two layers 1.26 times as long."""

MOST_PIECES = 16
"""Pieces of rows that are set one after the other, each sent to every tile of the table. Chosen: more take more code
than tables of numbers."""


LARGE_TABLE = 128
"""A table of more than this part of an IPU's memory is spread for the least storage. Guessed: it, its sum of gradients
and its optimiser's state all lie as it does."""
OVERLAID = 0.15
"""Share of a tile's memory that its look-ups and updates may then take for a while, where their hint has none. Guessed:
what published runs give the products of an embedding's IPU, whose temporary data these overlay."""

_FASTEST: dict[str, Any] = {
    "usedForUpdate": False,
    "planMinimisationTarget": "cyclesWithTable",
    "indicesDistribution": "onePoint",
}
"""Options of a plan of look-ups in a table that is there for a moment."""

LARGEST_COPY = 32
"""A table of more than this part of an IPU's memory is not copied for look-ups. Guessed: 20 KB of a tile."""


def _plan(to: Lowering, table: Shape, rows: Value, hint: PlanHint | None = None, **options: Any) -> SlicePlan:
    """Plan of a table that ``rows`` are gathered from, or joined with."""
    memory = to.graph.system.ipu.tile.total_bytes * to.graph.num_tiles
    if not options and math.prod(table) * rows.dtype.bytes > memory // LARGE_TABLE:
        share = OVERLAID if hint is None or hint.proportion is None else hint.proportion
        options = {"planMinimisationTarget": "storage", "availableMemoryProportion": share}
    return embedding.plan(
        to.graph,
        rows.dtype,
        table[-2],
        table[-1],
        rows.shape[-2],
        group_size=math.prod(table[:-2]),
        options=options,
    )


def _slice_plan(to: Lowering, table: Value, rows: Value, hint: PlanHint | None) -> SlicePlan:
    """Plan of the rows that are looked up in ``table``.

    A weight is laid out for the least memory, where it stays. What is computed is there for a moment: its plan is the
    fastest, for indices that all may fall anywhere, as vertices are charged.
    """
    memory = to.graph.system.ipu.tile.total_bytes * to.graph.num_tiles
    if not to.is_computed(table) or table.size * table.dtype.bytes > memory // LARGE_TABLE:
        return _plan(to, table.shape, rows, hint)
    share = OVERLAID if hint is None or hint.proportion is None else hint.proportion
    return _plan(to, table.shape, rows, **_FASTEST, availableMemoryProportion=share)


def _plan_as_stored(to: Lowering, table: Shape, rows: Value, stored: Tensor, **options: Any) -> SlicePlan:
    """Plan for a table other than a weight, with the column parts of ``stored``.

    Other parts would be gathered piece by piece. Such tables live as long as they are used, so cycles count.
    """
    parts = {"unslicedDimSplit": stored_parts(_grouped(stored, 2), rows.shape[-2], to.graph.num_tiles)}
    return _plan(to, table, rows, **{"planMinimisationTarget": "cycles"} | options, planConstraints=parts)


def _plan_in_place(to: Lowering, table: Shape, rows: Value, stored: Tensor, **options: Any) -> SlicePlan:
    """As :func:`_plan_as_stored`, on the tiles of the entries, if a plan can name them.

    Rows that are set are few, and the table is large: each tile is sent all of them, and none of the table moves.
    """
    given = _grouped(stored, 2)
    for columns in (stored_parts(given, rows.shape[-2], to.graph.num_tiles), 1):
        entries = stored_entries(to.graph, given, columns)
        if entries is not None:
            parts = {"unslicedDimSplit": columns, "slicedDimSplit": entries, "lookupSplit": 1}
            return _plan(to, table, rows, **{"planMinimisationTarget": "cycles"} | options, planConstraints=parts)
    return _plan_as_stored(to, table, rows, stored, **options)


def _read_from(to: Lowering, table: Value, rows: Value, stored: Tensor) -> tuple[SlicePlan, Tensor]:
    """Plan for rows of a table that lies as its maker left it, and the table: as it lies, or a copy in columns.

    A table in whole rows is sent to each tile that slices some of them, in as many pieces as it lies in. Products leave
    rows in pieces, so a copy that goes once to the columns of the plan is the cheaper one unless rows are few: of
    [2560, 256] in f16 it takes 12,500 cycles instead of 345,000.
    """
    whole = _plan_as_stored(to, table.shape, rows, stored, **_FASTEST)
    memory = to.graph.system.ipu.tile.total_bytes * to.graph.num_tiles
    if table.size * table.dtype.bytes > memory // LARGEST_COPY:
        return whole, stored
    cut = _plan(to, table.shape, rows, **_FASTEST)
    if cut.costs["cycles"] >= whole.costs["cycles"]:
        return whole, stored
    made = _new_table(to, table.shape, table.dtype, cut, "table")
    to.prog.add(Copy(to[table], made, name="table"))
    return cut, _grouped(made, 2)


def _added_from(to: Lowering, table: Shape, rows: Value, stored: Tensor, operation: str) -> tuple[SlicePlan, Tensor]:
    """Plan of an update of a table, and its rows: as they lie, or a copy in columns; as of :func:`_read_from`."""
    options: dict[str, Any] = {"usedForSlice": False, "operationForUpdate": operation}
    whole = _plan_as_stored(to, table, rows, stored, **options)
    memory = to.graph.system.ipu.tile.total_bytes * to.graph.num_tiles
    if whole.column_split > 1 or not rows.size or rows.size * rows.dtype.bytes > memory // LARGEST_COPY:
        return whole, stored
    cut = _plan(to, table, rows, **options, planMinimisationTarget="cycles")
    if cut.costs["cycles"] >= whole.costs["cycles"] or cut.column_split == 1:
        return whole, stored
    parts = {"unslicedDimSplit": cut.column_split}
    order = _plan(to, rows.shape, Value(table, rows.dtype), planConstraints=parts, usedForUpdate=False)
    made = _new_table(to, rows.shape, rows.dtype, order, "rows")
    to.prog.add(Copy(stored, made, name="rows"))
    return cut, made


def _grouped(tensor: Tensor, rank: int) -> Tensor:
    """A tensor of ``rank`` dimensions, or of one more for the groups, with that of the groups."""
    return tensor if tensor.ndim > rank else tensor.expand_dims(0)


def _new_table(to: Lowering, shape: Shape, dtype: ElementType, plan: SlicePlan, name: str) -> Tensor:
    """A new table as the plan spreads it."""
    groups = math.prod(shape[:-2])
    made = popops.create_grouped_sliceable_tensor(
        to.graph, dtype, groups, shape[-2:], dims=[0], sizes=[1], plan=plan, name=name
    )
    return made.reshape(shape)


def _check_rows(rows: Value, index: Value) -> None:
    require(rows.ndim in (2, 3), f"{rows} are no rows")
    numbers = list(rows.shape[:-1])
    require(index.type == (rows.shape[:-1], i32), f"the numbers are {index}, they have to be i32{numbers}")


@rule("look_up")
class LookUp(OpRule):
    """Rows of a table by number; a number that is none of a row gives zeros."""

    operands = 2
    hinted = True
    depends_on_operands_alone = False

    def types(self, op: NetworkOp) -> Types:
        """One row for each number."""
        table, index = op.inputs
        require(table.ndim in (2, 3), f"{table} is no table of rows")
        of_table = index.ndim == table.ndim - 1 and index.shape[:-1] == table.shape[:-2] and index.dtype == i32
        wanted = ", ".join([*map(str, table.shape[:-2]), "n"])
        require(of_table, f"the numbers are {index}, they have to be i32[{wanted}]")
        return [((*index.shape, table.shape[-1]), table.dtype)]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The part's numbers, and the tables of the same groups."""
        made, table = part.with_whole(-1), ValuePart.whole(op.inputs[0].shape)
        return made, [ValuePart((*made.dims[:-2], *table.dims[-2:])), ValuePart(made.dims[:-1])]

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """Views of the table put together, where the numbers are known and follow each other in a few runs."""
        table, index = op.inputs
        known = net.contents(index)
        if known is None or not known.size or known.min() < 0 or known.max() >= table.shape[-2]:
            return None
        if known.ndim > 1 and (known != known[:1]).any():
            return None  # groups that have numbers of their own
        numbers = known.reshape(-1, index.shape[-1])[0].tolist()
        runs = list(islice(even_runs(numbers, far_pairs=False), MOST_RUNS + 1))
        if len(runs) > MOST_RUNS:
            return None
        return taken_runs(net, table, table.ndim - 2, runs)

    def evaluate(self, op: NetworkOp, table: Array, index: Array) -> Array:
        """NumPy's indexing; zeros by numbers that are none of a row."""
        inside = (index >= 0) & (index < table.shape[-2])
        places = np.where(inside, index, 0)
        rows = table[places] if index.ndim == 1 else np.take_along_axis(table, places[..., None], 1)
        return np.where(inside[..., None], rows, np.zeros((), rows.dtype))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One multi-slice."""
        table, index = op.inputs
        if not op.output.size:
            return to.graph.map(to.graph.variable(op.output.dtype, op.output.shape, name="rows"), 0)
        plan, tables, numbers = (
            _slice_plan(to, table, op.output, op.hint),
            _grouped(to[table], 2),
            _grouped(to[index], 1),
        )
        if not is_stored_for(tables, plan):
            plan, tables = _read_from(to, table, op.output, tables)
        rows = popops.grouped_multi_slice(to.graph, tables, numbers, [0], [1], to.prog, plan=plan, name="multi_slice")
        return rows.reshape(op.output.shape)

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The table as the plan spreads it."""
        table = op.inputs[0]
        if operand != 0:
            return None
        plan = _slice_plan(to, table, op.output, op.hint)
        return _new_table(to, table.shape, table.dtype, plan, table.name or "table")

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Rows of the gradient added up by their numbers."""
        table, index = op.inputs
        if table in net.root.parameters:
            return [add_rows(net, only(grads), index, table.shape[-2]), None]
        return [sum_rows(net, only(grads), index, table.shape[-2]), None]


@rule("add_rows")
class AddRows(OpRule):
    """Rows added up by number in a table of zeros."""

    operands = 2
    hinted = True
    attributes: ClassVar = {"entries": int}
    adds_to_sums = True

    def types(self, op: NetworkOp) -> Types:
        """[entries, width], for each group."""
        rows, index = op.inputs
        _check_rows(rows, index)
        return [((*rows.shape[:-2], op.attrs["entries"], rows.shape[-1]), rows.dtype)]

    def evaluate(self, op: NetworkOp, rows: Array, index: Array) -> Array:
        """NumPy's unbuffered addition."""
        return _updated(np.zeros(op.output.shape, rows.dtype), rows, index, np.add)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A table of zeros, and one multi-update."""
        rows, index = op.inputs
        plan = _plan(to, op.output.shape, rows, op.hint)
        table = _new_table(to, op.output.shape, rows.dtype, plan, "rows")
        popops.zero(to.graph, table, to.prog)
        _update(to, table, _rows(to, rows), index=to[index], operation="add", plan=plan)
        return table

    def lower_onto(self, to: Lowering, op: NetworkOp, total: Tensor, scale: float) -> None:
        """Rows are added to the total itself, where that has their type and lies as they are added up."""
        rows, index = op.inputs
        plan = _plan(to, op.output.shape, rows, op.hint)
        if total.dtype == rows.dtype and is_stored_for(_grouped(total, 2), plan):
            _update(to, total, _rows(to, rows), index=to[index], operation="add", plan=plan, scale=scale)
        else:
            popops.scaled_add_to(to.graph, total, self.lower(to, op), scale, to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The rows of the gradient with these numbers."""
        return [_rows_of(net, only(grads), op.inputs[1]), None]


def _rows_of(net: BlockBuilder, table: Value, index: Value) -> Value:
    return look_up(net, table, index) if table.ndim == 2 else look_up_groups(net, table, index)


def _updated(table: Array, rows: Array, index: Array, join: np.ufunc | None) -> Array:
    """``table``, updated in place; numbers that are none of an entry change nothing."""
    inside = (index >= 0) & (index < table.shape[-2])
    places = (*(n[inside] for n in np.indices(index.shape)[:-1]), index[inside])
    if join is None:
        table[places] = rows[inside]
    else:
        join.at(table, places, rows[inside])
    return table


def _rows(to: Lowering, rows: Value) -> Tensor:
    """The tensor of rows; one number that stands for all of them is written out where it is needed.

    Regions of a repeated element have an interval for each time that it is shown.
    """
    number = to.number(rows)
    if number is None:
        return to[rows]
    made = to.graph.map_linear(to.graph.variable(rows.dtype, rows.shape, name="rows"))
    popops.fill(to.graph, made, to.prog, number)
    return made


def _update(
    to: Lowering,
    table: Tensor,
    rows: Tensor,
    index: Tensor,
    operation: Any,
    plan: SlicePlan,
    *,
    scale: float = 1.0,
) -> None:
    if not rows.size:
        return
    given = _grouped(rows, 2)
    popops.grouped_multi_update(
        to.graph,
        _grouped(table, 2),
        given.reshape((*given.shape[:2], 1, given.shape[2])),
        _grouped(index, 1),
        dims=[0],
        sizes=[1],
        prog=to.prog,
        plan=plan,
        operation=operation,
        scale=scale,
        name="multi_update",
    )


def _update_in_pieces(
    to: Lowering, state: Tensor, rows: Value, index: Value, operation: str, plan: SlicePlan, *, pieces: int
) -> None:
    """Updates of a state with some rows each, in their order; 32 rows of 8 KiB are sent as 4 times 8 rows."""
    given, numbers = _rows(to, rows), to[index]
    count = rows.shape[-2]
    each = -(-count // max(1, pieces))
    for begin in range(0, count, max(1, each)):
        end = min(begin + each, count)
        part, of_part = given[..., begin:end, :], numbers[..., begin:end]
        _update(to, state, part, index=of_part, operation=operation, plan=plan)


_NUMPY: dict[str, np.ufunc | None] = {"set": None, "add": np.add, "mul": np.multiply, "max": np.maximum}


@rule("update_rows")
class UpdateRows(OpRule):
    """A table whose entries are joined with rows by number."""

    operands = 3
    attributes: ClassVar = {"operation": str}
    depends_on_operands_alone = False

    def types(self, op: NetworkOp) -> Types:
        """The table's."""
        table, rows, index = op.inputs
        operation = op.attrs["operation"]
        require(operation in _NUMPY, f"there is no update {operation!r}; there are {', '.join(_NUMPY)}")
        _check_rows(rows, index)
        fits = table.ndim == rows.ndim and (table.shape[:-2], table.shape[-1]) == (rows.shape[:-2], rows.shape[-1])
        require(fits and table.dtype == rows.dtype, f"{rows} are no rows of {table}")
        return [table.type]

    def evaluate(self, op: NetworkOp, table: Array, rows: Array, index: Array) -> Array:
        """NumPy's unbuffered update of a copy."""
        return _updated(np.array(table), rows, index, _NUMPY[op.attrs["operation"]])

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """A table that becomes a cache as attention over pages wants it; others as they come."""
        table = op.inputs[0]
        shape = to.cache_of(table) if operand == 0 else None
        if shape is None:
            return None
        return popnn.attention.create_cache(to.graph, table.dtype, shape, name=table.name or "cache").reshape(
            table.shape
        )

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One multi-update: of the state that the table is, or of a copy as the plan for its updates spreads it."""
        table, rows, index = op.inputs
        state = to.given(op.output) if op.output in to.changed else None
        operation = {"set": "none"}.get(op.attrs["operation"], op.attrs["operation"])
        sent = rows.size * rows.dtype.bytes // math.prod(rows.shape[:-2])
        if state is not None:
            made_for = _plan_in_place if operation == "none" else _plan_as_stored
            plan = made_for(to, table.shape, rows, state, usedForSlice=False, operationForUpdate=operation)
            if is_stored_for(_grouped(state, 2), plan):
                pieces = -(-sent // (LARGEST_ROWS * plan.column_split)) if operation == "none" else 1
                sparse = sent <= LARGEST_ROWS or operation != "none" or table.shape[-2] >= SPARSE * rows.shape[-2]
                if pieces <= MOST_PIECES and sparse:
                    _update_in_pieces(to, state, rows, index, operation, plan, pieces=pieces)
                    return state
        by_number = operation == "none" and sent > LARGEST_ROWS
        made = _set_by_number(to, table, rows, index) if by_number else self._copied(to, op, operation)
        if state is None:
            return made
        to.prog.add(Copy(made, state, name="table"))
        return state

    @staticmethod
    def _copied(to: Lowering, op: NetworkOp, operation: str) -> Tensor:
        table, rows, index = op.inputs
        plan, given = _added_from(to, table.shape, rows, _rows(to, rows), operation)
        made, number = _new_table(to, table.shape, table.dtype, plan, "table"), to.number(table)
        if number is None:
            to.prog.add(Copy(to[table], made, name="table"))
        else:
            popops.fill(to.graph, made, to.prog, number)
        _update(to, made, given, index=to[index], operation=operation, plan=plan)
        return made

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Of what is set: to the rows, and to entries that none replaces; of extrema: shared by equal ones."""
        of_table, of_rows = _BACKWARD[op.attrs["operation"]](net, op, only(grads))
        return [of_table, of_rows, None]


def _set_by_number(to: Lowering, table: Value, rows: Value, index: Value) -> Tensor:
    """A table with many entries set: for each entry the number of the last row for it, by which rows are looked up.

    Of maxima of numbers tiles may take a share each, where an entry that is set needs all rows in their order.
    """
    graph, prog, count = to.graph, to.prog, rows.shape[-2]
    shape = (*table.shape[:-1], 1)
    numbers = Value((*index.shape, 1), i32)
    plan = _plan(to, shape, numbers, usedForSlice=False, operationForUpdate="max", planMinimisationTarget="cycles")
    last = _new_table(to, shape, i32, plan, "last")
    popops.fill(graph, last, prog, -1)
    places = graph.map_linear(graph.variable(i32, numbers.shape, name="numbers"))
    order = graph.map_linear(graph.constant(i32, (count, 1), np.arange(count, dtype=np.int32)[:, None], name="order"))
    prog.add(Copy(order.broadcast_to(numbers.shape), places, name="numbers"))
    _update(to, last, places, index=to[index], operation="max", plan=plan)
    stored = _grouped(_rows(to, rows), 2)
    taken_by = _plan_as_stored(to, rows.shape, table, stored, usedForUpdate=False)
    by = _grouped(last.reshape(shape[:-1]), 1)
    taken = popops.grouped_multi_slice(graph, stored, by, [0], [1], prog, plan=taken_by, name="rows")
    chosen = popops.expr.select(popops.expr.PlaceHolder(1), popops.expr.PlaceHolder(2), popops.expr.PlaceHolder(3) >= 0)
    return popops.map(graph, chosen, [taken.reshape(table.shape), to[table], last.broadcast_to(table.shape)], prog)


def _of_set(net: BlockBuilder, op: NetworkOp, grad: Value) -> tuple[Value, Value]:
    _, rows, index = op.inputs
    kept = update_rows(net, grad, full(net, 0.0, rows.shape, rows.dtype), index)
    return kept, _rows_of(net, grad, index)


def _of_sum(net: BlockBuilder, op: NetworkOp, grad: Value) -> tuple[Value, Value]:
    return grad, _rows_of(net, grad, op.inputs[2])


def _of_maximum(net: BlockBuilder, op: NetworkOp, grad: Value) -> tuple[Value, Value]:
    table, rows, index = op.inputs
    hit, share = select(x.eq(y), 1.0, 0.0), x / y
    of_table = map_(net, hit, [table, op.output])
    of_rows = map_(net, hit, [rows, _rows_of(net, op.output, index)])
    # An entry that neither it nor a row reaches does not exist: its count is not zero.
    count = map_(net, x + y, [of_table, sum_rows(net, of_rows, index, table.shape[-2])])
    shared = map_(net, share, [grad, count])
    return map_(net, x * y, [of_table, shared]), map_(net, x * y, [of_rows, _rows_of(net, shared, index)])


def _of_product(net: BlockBuilder, op: NetworkOp, grad: Value) -> tuple[Value, Value]:
    """The gradient times the product of all other factors.

    That is the product divided by the factor; of the only factor that is zero, the product without it.
    """
    table, rows, index = op.inputs

    def rows_of(value: Value) -> Value:
        return _rows_of(net, value, index)

    def product(table: Value, rows: Value) -> Value:
        return update_rows(net, table, rows, index, "mul")

    filled = map_(net, select(x.eq(0.0), 1.0, x), [table])
    of_table = map_(net, x * y / z, [grad, product(filled, rows), filled])
    is_zero = map_(net, select(x.eq(0.0), 1.0, 0.0), [rows])
    zeros = rows_of(sum_rows(net, is_zero, index, table.shape[-2]))
    only_one = apply("and", x.eq(0.0), y.eq(1.0))
    others = rows_of(product(table, map_(net, select(only_one, 1.0, x), [rows, zeros])))
    divided = z / select(x.eq(0.0), 1.0, x)
    left = map_(net, select(only_one, arg(3), divided), [rows, zeros, rows_of(op.output), others])
    return of_table, map_(net, x * y, [rows_of(grad), left])


_BACKWARD: dict[str, Callable[[BlockBuilder, NetworkOp, Value], tuple[Value, Value]]] = {
    "set": _of_set,
    "add": _of_sum,
    "max": _of_maximum,
    "mul": _of_product,
}
