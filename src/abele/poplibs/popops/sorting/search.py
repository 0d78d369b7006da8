"""Binary search for the places of numbers in an ordered row.

Tiles share the numbers, and each of them needs the row. A row too long for that is cut into parts: the count of
elements below a number is the sum of the parts' counts, whatever the cut.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import Input, MultiVertex, Output, Vector, codelet
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Tensor, boxes
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType, i32, i64
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.reduction import Reduction
from abele.poplibs.poputil.host_body import host_rows, note_host
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.poplibs.poputil.regions import split_evenly

LARGEST_PART = 2**15
"""Bytes of a row that one tile receives. Guessed: a twentieth of a tile's memory."""
STEP_SLOTS, VALUE_SLOTS, ENTRY_SLOTS = 6, 6, 20
"""Issue slots of a step of a search, of the instructions around the steps, and of entering the vertex. A step has an
address, a load, a comparison, a choice of both ends and a branch. Counted by hand from the loop below.
"""


@cache
def search_codelet(dtype: ElementType, right: bool) -> type:
    """For each of ``values`` how many of the ordered ``row`` are below it, or with ``right`` not above it."""

    @codelet
    class SearchSorted(MultiVertex):
        row: Input[Vector[dtype]]
        values: Input[Vector[dtype]]
        found: Output[Vector[i32]]

        def compute(self, worker_id):
            n = len(self.values)
            length = i64(len(self.row))
            for i in range(worker_id * n // self.num_workers, (worker_id + 1) * n // self.num_workers):
                value = self.values[i]
                low = i64(0)
                count = length
                while count > 0:
                    half = count // 2
                    at = self.row[low + half]
                    # What is no number comes last, and belongs there.
                    before = (not at > value) if right else at < value or (value != value and at == at)
                    if before:
                        low = low + half + 1
                        count = count - half - 1
                    else:
                        count = half
                self.found[i] = i32(low)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            share = -(-np.asarray(v.values, np.int64) // ipu.num_workers)
            steps = np.ceil(np.log2(np.asarray(v.row, np.float64) + 1)).astype(np.int64)
            return ipu.num_workers * (ENTRY_SLOTS + share * (VALUE_SLOTS + STEP_SLOTS * steps))

    return SearchSorted


def search_sorted(
    graph: Graph, rows: Tensor, values: Tensor, prog: Sequence, *, right: bool = False, name: str = "search"
) -> Tensor:
    """Place of each of ``values`` in its row, i32: the number of the row's elements that are below it.

    Args:
        graph: Graph in which vertices and the result are made.
        rows: Ordered rows, [rows, n].
        values: Numbers to look for, [rows, m], of the type of the rows.
        prog: Sequence that the steps are appended to.
        right: True to count elements that equal a value as well.
        name: Name of the steps.

    Raises:
        TensorError: Not the same number of rows.
        TypeMismatchError: Different types, or truth values.
    """
    if rows.ndim != 2 or values.ndim != 2 or rows.shape[0] != values.shape[0]:
        raise TensorError(f"{name}: rows {rows!r} and values {values!r} are not [rows, n] and [rows, m]")
    if rows.dtype != values.dtype or rows.dtype.kind == "bool":
        raise TypeMismatchError(f"{name}: rows and values are numbers of one type, got {rows!r} and {values!r}")
    out = map_tensor_linearly(graph, graph.variable(i32, values.shape, name=f"{name}/out"))
    if not values.size:
        return out
    call = graph.library_call(
        prog, "popops.search_sorted", inputs=(rows, values), outputs=(out,), flops=0, debug_name=name
    )
    with call as body:
        _emit(graph, body, rows, values, out, right=right, name=name)
    note_host(prog, host_rows(graph, name, search_codelet(rows.dtype, right), row=rows, values=values, found=out))
    return out


def _emit(graph: Graph, body: Sequence, rows: Tensor, values: Tensor, out: Tensor, *, right: bool, name: str) -> None:
    count, length = rows.shape
    parts = max(1, -(-length * rows.dtype.bytes // LARGEST_PART))
    shares = max(1, min(graph.num_tiles // (count * parts), values.shape[1]))
    # One vertex for each row, part of it and share of the values.
    _, first, size = split_evenly(np.array([length]), np.array([parts]))
    _, low, num = split_evenly(np.array([values.shape[1]]), np.array([shares]))
    row, part, share = (i.reshape(-1) for i in np.indices((count, len(first), len(low))))
    total = len(row)
    tile = (np.arange(total, dtype=np.int64) * min(graph.num_tiles, total) // total).astype(np.int32)
    found = out
    if parts > 1:
        found = graph.variable(i32, (parts, *values.shape), name=f"{name}/partials")
        map_tensor_linearly(graph, found)
    one = np.ones_like(row)
    of_values = boxes(values, np.stack([row, low[share]], 1), np.stack([one, num[share]], 1))
    where = found if parts > 1 else out.expand_dims(0)
    step = graph.compute_set(name)
    step.vertices(
        search_codelet(rows.dtype, right),
        tile=tile,
        row=boxes(rows, np.stack([row, first[part]], 1), np.stack([one, size[part]], 1)),
        values=of_values,
        found=boxes(where, np.stack([part, row, low[share]], 1), np.stack([one, one, num[share]], 1)),
    )
    body.add(Execute(step))
    if parts > 1:
        add = find_reduce_op("ADD")
        Reduction(graph, tensor=found, kept=(1, 2), op=add, finish=Finish(i32), scale=None, name="total").emit(
            body, out
        )
