"""Sorting along a dimension, of keys alone and with values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.expr import check_computes
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import u32
from abele.poplibs.popops.sorting.blocks import RecordBlocks
from abele.poplibs.popops.sorting.codelets import Record
from abele.poplibs.popops.sorting.host import host_sort
from abele.poplibs.popops.sorting.network import SortingNetwork
from abele.poplibs.poputil.host_body import note_host


def sort(graph: Graph, tensor: Tensor, dim: int, prog: Steps, name: str = "sort") -> Tensor:
    """The elements of ``tensor`` in ascending order along ``dim``, as a new tensor.

    Numbers that are NaN are in no order, and may leave others out of order.

    Raises:
        TensorError: The tensor has no such dimension.
        TypeMismatchError: Its elements are truth values.
    """
    return _sorted(graph, [tensor], dim, prog, name, "popops.sort", in_place=False)[0]


def sort_in_place(graph: Graph, tensor: Tensor, dim: int, prog: Steps, name: str = "sort") -> None:
    """Overwrite ``tensor`` with its :func:`sort`.

    Raises:
        ConstantWriteError: ``tensor`` is constant; see also :func:`sort`.
    """
    _sorted(graph, [tensor], dim, prog, name, "popops.sort", in_place=True)


def sort_key_value(
    graph: Graph, keys: Tensor, values: Tensor, dim: int, prog: Steps, name: str = "sort"
) -> tuple[Tensor, Tensor]:
    """``keys`` in ascending order along ``dim``, and ``values`` in the order of their keys, as new tensors.

    Values with equal keys are in any order, which is the same in every run.

    Raises:
        TensorError: The shapes differ; see also :func:`sort`.
    """
    found = _sorted(graph, [keys, values], dim, prog, name, "popops.sort_key_value", in_place=False)
    return found[0], found[1]


def sort_key_value_in_place(
    graph: Graph, keys: Tensor, values: Tensor, dim: int, prog: Steps, name: str = "sort"
) -> None:
    """Overwrite ``keys`` and ``values`` with their :func:`sort_key_value`.

    Raises:
        ConstantWriteError: One of them is constant; see also :func:`sort_key_value`.
    """
    _sorted(graph, [keys, values], dim, prog, name, "popops.sort_key_value", in_place=True)


def sort_with_permutation(
    graph: Graph, tensor: Tensor, dim: int, prog: Steps, *, largest_first: bool = False, name: str = "sort"
) -> tuple[Tensor, Tensor]:
    """The elements of ``tensor`` in order along ``dim``, and their positions in it, u32; equal ones keep their order.

    Args:
        graph: Graph in which vertices and results are made.
        tensor: Numbers. Those that are NaN are in no order, and may leave others out of order.
        dim: The dimension that is sorted along.
        prog: Sequence that the steps are appended to.
        largest_first: True for descending order.
        name: Name of the steps.

    Raises:
        TensorError: The tensor has no such dimension.
        TypeMismatchError: Its elements are truth values.
    """
    keys, record = tensor, Record(tensor.dtype, (u32,), largest_first, by_second=True)
    check_keys(keys, [], name)
    axis = checked_axis(keys, dim, name)
    moved = keys.moveaxis(axis, keys.ndim - 1)
    length = moved.shape[-1]
    if keys.size == 0:
        return graph.clone(keys, name=f"{name}/out"), graph.map(
            graph.variable(u32, keys.shape, name=f"{name}/places"), 0
        )
    blocks = RecordBlocks.plan(graph, keys.size // length, length)
    columns = [blocks.variable(graph, t, f"{name}/{n}") for n, t in record.columns.items()]
    rows = moved.reshape(columns[0].shape)
    results = [c.reshape(moved.shape).moveaxis(keys.ndim - 1, axis) for c in columns]
    call = graph.library_call(
        prog,
        "popops.sort_with_permutation",
        inputs=(keys,),
        outputs=tuple(results),
        kernel=None,
        flops=0,
        debug_name=name,
    )
    with call as body:
        body.add(Copy(rows, columns[0]))
        numbers = graph.constant(u32, (length,), np.arange(length, dtype=np.uint32), name=f"{name}/numbers")
        body.add(Copy(graph.map_linear(numbers).broadcast_to(rows.shape), columns[1]))
        SortingNetwork(graph, body, blocks, record, columns, name).sort()
    note_host(prog, host_sort(graph, rows, columns[0], columns[1], largest_first=record.largest_first, name=name))
    return results[0], results[1]


def checked_axis(keys: Tensor, dim: int, name: str) -> int:
    """``dim``, not negative.

    Raises:
        TensorError: There is no such dimension.
    """
    axis = dim + keys.ndim if dim < 0 else dim
    if not 0 <= axis < keys.ndim:
        raise TensorError(f"{name}: {keys!r} has no dimension {dim}")
    return axis


def _sorted(
    graph: Graph, tensors: Sequence[Tensor], dim: int, prog: Steps, name: str, library: str, *, in_place: bool
) -> list[Tensor]:
    keys = tensors[0]
    check_keys(keys, tensors[1:], name)
    axis = checked_axis(keys, dim, name)
    order = [d for d in range(keys.ndim) if d != axis] + [axis]
    views = [t.transpose(order) for t in tensors]
    shape = views[0].shape
    length = shape[-1]
    if keys.size == 0:
        return [graph.clone(t, name=f"{name}/out") for t in tensors]
    blocks = RecordBlocks.plan(graph, keys.size // length, length)
    columns = [blocks.variable(graph, t.dtype, f"{name}/out") for t in tensors]
    inverse = sorted(range(keys.ndim), key=order.__getitem__)
    results = list(tensors) if in_place else [c.reshape(shape).transpose(inverse) for c in columns]
    call = graph.library_call(
        prog, library, inputs=tuple(tensors), outputs=tuple(results), kernel=None, flops=0, debug_name=name
    )
    with call as body:
        for view, column in zip(views, columns, strict=True):
            body.add(Copy(view.reshape(column.shape), column))
        record = Record(keys.dtype, tuple(t.dtype for t in tensors[1:]))
        SortingNetwork(graph, body, blocks, record, columns, name).sort()
        if in_place:
            for view, column in zip(views, columns, strict=True):
                body.add(Copy(column.reshape(view.shape), view))
    return results


def check_keys(keys: Tensor, values: Sequence[Tensor], name: str) -> None:
    """Check the operands of a sort.

    Raises:
        TensorError: A scalar, or values of another shape.
        TypeMismatchError: Keys that have no order.
    """
    if keys.ndim == 0:
        raise TensorError(f"{name}: {keys!r} has no dimension to sort along")
    check_computes(keys.dtype, name=name)
    for other in values:
        if other.shape != keys.shape:
            raise TensorError(f"{name}: keys {keys!r} and values {other!r} differ in shape")
    if keys.dtype.kind == "bool":
        raise TypeMismatchError(f"{name}: keys are numbers, got {keys.dtype}", remedy="cast them first")
