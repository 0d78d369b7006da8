"""Look-ups in tables: rows by many numbers at once, and rows added up by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.graph import Tensor
from abele.numerics import i32
from abele.parallel.network import BlockBuilder, NetworkOp, Value
from abele.parallel.network.part import ValuePart
from abele.parallel.ops.elementwise import cast
from abele.parallel.ops.views import concat, expand, reshape, reverse, slice_
from abele.parallel.registry import Array, Gradients, OpRule, Types, only, require, rule
from abele.poplibs import popops
from abele.poplibs.popops.slicing import SlicePlan, embedding

if TYPE_CHECKING:
    from abele.parallel.lowering import Lowering


def look_up(net: BlockBuilder, table: Value, index: Value) -> Value:
    """Rows of ``table`` [rows, width] by their numbers: index [...] gives [..., width]."""
    flat = reshape(net, cast(net, index, i32), (index.size,))
    rows = net.emit("look_up", [table, flat], (index.size, table.shape[1]), table.dtype)
    return reshape(net, rows, (*index.shape, table.shape[1]))


def add_rows(net: BlockBuilder, rows: Value, index: Value, entries: int) -> Value:
    """A table [entries, width] of zeros, to which each of ``rows`` [n, width] is added at its number of index [n]."""
    return net.emit("add_rows", [rows, index], (entries, rows.shape[1]), rows.dtype, entries=entries)


MOST_RUNS = 16
"""Runs of known numbers that are taken as views of the table; more are looked up."""


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """``numbers`` as runs that count up, down or not at all: first, step and how many of each."""
    begin = 0
    while begin < len(numbers):
        end = begin + 1
        step = numbers[end] - numbers[begin] if end < len(numbers) else 0
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        # Two numbers far apart are no run.
        end = begin + 1 if end == begin + 2 and abs(step) > 1 else end
        yield numbers[begin], step, end - begin
        begin = end


def _run(net: BlockBuilder, table: Value, first: int, step: int, count: int) -> Value:
    """The rows of one run."""
    if step == 0 or count == 1:
        return expand(net, slice_(net, table, 0, first, first + 1), (count, *table.shape[1:]))
    low = min(first, first + step * (count - 1))
    rows = slice_(net, table, 0, low, low + abs(step) * (count - 1) + 1, abs(step))
    return rows if step > 0 else reverse(net, rows, [0])


def _plan(to: Lowering, table: tuple[int, ...], rows: Value) -> SlicePlan:
    entries, width = table
    return embedding.plan(to.graph, rows.dtype, entries, width, rows.shape[0])


def _offsets(to: Lowering, index: Value) -> Tensor:
    return to[index].reshape((index.size, 1))


@rule("look_up")
class LookUp(OpRule):
    """Rows of a table by number; the numbers have to be those of rows."""

    operands = 2

    def types(self, op: NetworkOp) -> Types:
        """One row for each number."""
        table, index = op.inputs
        require(table.ndim == 2, f"{table} is no table of rows")
        require(index.ndim == 1 and index.dtype == i32, f"the numbers are {index}, they have to be i32[n]")
        return [((index.size, table.shape[1]), table.dtype)]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same numbers, and the table."""
        made = part.with_whole(1)
        return made, [ValuePart.whole(op.inputs[0].shape), ValuePart(made.dims[:1])]

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """Views of the table put together, where the numbers are known and follow each other in a few runs."""
        table, index = op.inputs
        known = net.contents(index)
        if known is None or not known.size or known.min() < 0 or known.max() >= table.shape[0]:
            return None
        runs = list(islice(_runs(known.tolist()), MOST_RUNS + 1))
        if len(runs) > MOST_RUNS:
            return None
        return concat(net, [_run(net, table, *run) for run in runs], 0)

    def evaluate(self, op: NetworkOp, table: Array, index: Array) -> Array:
        """NumPy's indexing."""
        return np.asarray(table[index])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One multi-slice."""
        table, index = op.inputs
        plan = _plan(to, table.shape, op.output)
        rows = popops.multi_slice(to.graph, to[table], _offsets(to, index), [0], [1], to.prog, plan=plan)
        return rows.reshape(op.output.shape)

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The table as the plan spreads it."""
        table = op.inputs[0]
        if operand != 0:
            return None
        plan = _plan(to, table.shape, op.output)
        return popops.create_sliceable_tensor(to.graph, table.dtype, table.shape, [0], [1], plan=plan, name=table.name)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Rows of the gradient added up by their numbers."""
        table, index = op.inputs
        return [add_rows(net, only(grads), index, table.shape[0]), None]


@rule("add_rows")
class AddRows(OpRule):
    """Rows added up by number in a table of zeros."""

    operands = 2
    attributes: ClassVar = {"entries": int}

    def types(self, op: NetworkOp) -> Types:
        """[entries, width]."""
        rows, index = op.inputs
        require(rows.ndim == 2, f"{rows} are no rows")
        require(index.type == (rows.shape[:1], i32), f"the numbers are {index}, they have to be i32[{rows.shape[0]}]")
        return [((op.attrs["entries"], rows.shape[1]), rows.dtype)]

    def evaluate(self, op: NetworkOp, rows: Array, index: Array) -> Array:
        """NumPy's unbuffered addition."""
        table = np.zeros(op.output.shape, rows.dtype)
        np.add.at(table, index, rows)
        return table

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A table of zeros, and one multi-update."""
        rows, index = op.inputs
        shape, graph, prog = op.output.shape, to.graph, to.prog
        plan = _plan(to, shape, rows)
        table = popops.create_sliceable_tensor(graph, rows.dtype, shape, [0], [1], plan, name="rows")
        popops.zero(graph, table, prog)
        added = to[rows].reshape((rows.shape[0], 1, rows.shape[1]))
        popops.multi_update_add(
            graph, table, added, _offsets(to, index), 1.0, dims=[0], sizes=[1], prog=prog, plan=plan
        )
        return table

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The rows of the gradient with these numbers."""
        return [look_up(net, only(grads), op.inputs[1]), None]
