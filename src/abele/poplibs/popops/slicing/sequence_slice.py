"""Sequences of rows copied from one tensor to another, at offsets that are data: padding is put in or taken out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Copy, Execute, Graph, Tensor, concat, shared
from abele.graph.program import Steps
from abele.numerics import i32, u32
from abele.poplibs.popops.elementwise.fill import FillCycles
from abele.poplibs.popops.elementwise.placement import execute_elementwise
from abele.poplibs.popops.expr import Const
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.popops.slicing.sequence_vertices import sequence_codelet
from abele.poplibs.popops.slicing.step_slice import tile_rows
from abele.words import counted

Numbers = Tensor | Sequence[int]
"""A number for each sequence: u32 or i32 of shape [sequences], or known when the program is built."""


def sequence_slice(
    graph: Graph,
    source: Tensor,
    target: Tensor,
    lengths: Numbers,
    source_offsets: Numbers,
    target_offsets: Numbers,
    zero_unused: bool,
    prog: Steps,
    *,
    name: str = "sequence_slice",
) -> None:
    """``target[target_offsets[i] + k] = source[source_offsets[i] + k]`` for all k below ``lengths[i]``, for every i.

    Rows that a tensor lacks are passed over. Sequences of the target must not overlap.

    Args:
        graph: Graph in which vertices are made.
        source: [rows, ...].
        target: [other rows, ...]; rows lie on tiles as its layout has them.
        lengths: Rows of each sequence.
        source_offsets: First row of each in ``source``.
        target_offsets: First row of each in ``target``.
        zero_unused: True if rows of ``target`` that no sequence has become zero; otherwise they stay as they are.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.

    Raises:
        TensorError: Shapes that do not go together, or a number out of range.
        TypeMismatchError: Tensors of two types, or numbers that are no 32-bit integers.
    """
    given = (lengths, source_offsets, target_offsets)
    if source.ndim == 0 or source.shape[1:] != target.shape[1:] or target.ndim == 0:
        raise TensorError(f"{name}: rows of {source!r} do not fit {target!r}")
    if source.dtype != target.dtype:
        raise TypeMismatchError(f"{name}: {source!r} is {source.dtype}, {target!r} is {target.dtype}")
    tensors = [t for t in given if isinstance(t, Tensor)]
    if tensors and len(tensors) < len(given):
        raise TensorError(f"{name}: lengths and offsets are all tensors or all numbers")
    num = tensors[0].size if tensors else len(lengths)
    _check_tensors(tensors, num, name)
    runs = [] if tensors else _runs(source, target, given, name)
    if not target.size or (not num and not zero_unused):
        return
    inputs = (source, *tensors, *(() if zero_unused else (target,)))
    with graph.library_call(prog, "popops.sequence_slice", inputs=inputs, outputs=(target,), debug_name=name) as body:
        if zero_unused:
            empty = fuse([Const(0, target.dtype)], (), [target.dtype])
            body.add(execute_elementwise(graph, empty, [], [target], "zero", FillCycles(target.dtype)))
        if tensors and num and source.size:
            _emit(graph, body, source, target, tensors, name)
        elif runs:
            rows = [(source[a : a + n], target[b : b + n]) for n, a, b in runs]
            body.add(Copy(concat([s for s, _ in rows], 0), concat([t for _, t in rows], 0)))


def _check_tensors(tensors: Sequence[Tensor], num: int, name: str) -> None:
    for t in tensors:
        if t.dtype not in (u32, i32) or t.dtype != tensors[0].dtype:
            raise TypeMismatchError(f"{name}: lengths and offsets must be all u32 or all i32, {t!r} is {t.dtype}")
        if t.shape != (num,):
            raise TensorError(f"{name}: {t!r} has shape {list(t.shape)}, not [{num}]")


def _runs(source: Tensor, target: Tensor, given: tuple[Any, ...], name: str) -> list[tuple[int, int, int]]:
    """Length, source and target offset of each sequence that is not empty."""
    numbers = [[int(n) for n in column] for column in given]
    if len({len(column) for column in numbers}) != 1:
        raise TensorError(f"{name}: {' and '.join(str(len(c)) for c in numbers)} lengths and offsets")
    runs = [(n, a, b) for n, a, b in zip(*numbers, strict=True) if n]
    for n, a, b in runs:
        if min(n, a, b) < 0 or a + n > source.shape[0] or b + n > target.shape[0]:
            raise TensorError(
                f"{name}: {counted(n, 'row')} from row {a} of {source!r} to row {b} of {target!r} are out of range"
            )
    return runs


def _emit(graph: Graph, body: Steps, source: Tensor, target: Tensor, numbers: Sequence[Tensor], name: str) -> None:
    rows = tile_rows(graph, target, [source, target])
    step = graph.compute_set(name)
    numbering = np.arange(len(rows.width), dtype=np.int64)
    lengths, source_offsets, target_offsets = numbers
    step.vertices(
        sequence_codelet(source.dtype, lengths.dtype),
        tile=rows.tile,
        source=(rows.regions[0], numbering, rows.begin),
        target=(rows.regions[1], numbering, rows.begin),
        width=np.split(rows.width.astype(np.uint32), rows.begin[1:-1]),
        lengths=shared(lengths),
        source_offsets=shared(source_offsets),
        target_offsets=shared(target_offsets),
        source_rows=source.shape[0],
        target_rows=target.shape[0],
    )
    body.add(Execute(step))
