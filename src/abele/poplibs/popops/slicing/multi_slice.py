"""Slices of a table by many indices: the lookup of embeddings."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError
from abele.graph import Copy, Execute, Graph, Regions, Tensor, boxes, concat
from abele.graph.program import Steps
from abele.poplibs.popops.slicing.host_kernel import slice_kernel
from abele.poplibs.popops.slicing.multi_check import check_single, checked_offsets, prepared_offsets, read_multi_options
from abele.poplibs.popops.slicing.multi_codelets import select_codelet, short, slice_codelet
from abele.poplibs.popops.slicing.multi_layout import (
    as_slices,
    as_table,
    checked_dims,
    create_blocked,
    entry_rows,
    lookup_rows,
    map_blocked,
    note_plan,
    own_lookups,
    plan_of_call,
    row_regions,
)
from abele.poplibs.popops.slicing.plan import Parts, SlicePlan
from abele.poplibs.poputil.options import Options
from abele.words import counted

Offsets = Tensor | Sequence[int]
"""Indices as data, or numbers that are known when the program is built."""


def multi_slice(
    graph: Graph,
    tensor: Tensor,
    offsets: Offsets,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "multi_slice",
) -> Tensor:
    """Slice i of the result is the entry ``offsets[i]`` of ``tensor`` along ``dims``.

    Args:
        graph: Graph in which vertices and the result are made.
        tensor: Tensor to slice; [entries, columns] for an embedding. Best laid out by
            :func:`~abele.poplibs.popops.slicing.multi_layout.create_sliceable_tensor` with the same plan.
        offsets: u32 or i32 of shape [n, 1] or [n], or n whole numbers. A slice by an index out of range is zero.
        dims: The dimension that is sliced.
        sizes: (1,).
        prog: Sequence that the steps are appended to.
        plan: From :func:`~abele.poplibs.popops.slicing.embedding.plan`; by default the layout of tables without plans.
        options: See :data:`~abele.poplibs.popops.slicing.multi_check.MULTI_OPTIONS`.
        name: Name of the steps.

    Returns:
        [n, *shape], 1 in place of the sliced dimension.

    Raises:
        TensorError: Shapes or dimensions that do not go together, a plan for another table, or a number out of range.
        TypeMismatchError: Offsets that are no 32-bit integers.
        UnsupportedOpError: Slices of more than one entry, or along several dimensions.
        InvalidOptionError: A misspelt option.
    """
    if not isinstance(offsets, Tensor):
        return _static_slice(
            graph, tensor, offsets, dims=dims, sizes=sizes, prog=prog, plan=plan, options=options, name=name
        )
    given = checked_offsets(offsets, None, name)
    return _slice(
        graph, tensor.expand_dims(0), given, dims=dims, sizes=sizes, prog=prog, plan=plan, options=options, name=name
    )[0]


def grouped_multi_slice(
    graph: Graph,
    tensor: Tensor,
    offsets: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "grouped_multi_slice",
) -> Tensor:
    """:func:`multi_slice` for every group: ``tensor`` [groups, *shape], ``offsets`` [groups, n, 1]; ``dims`` of shape.

    Returns:
        [groups, n, *shape], 1 in place of the sliced dimension.

    Raises:
        TensorError: ``tensor`` has no dimension of groups; see also :func:`multi_slice`.
    """
    if tensor.ndim < 2:
        raise TensorError(f"{name}: {tensor!r} has shape {list(tensor.shape)}, without groups")
    given = checked_offsets(offsets, tensor.shape[0], name)
    return _slice(graph, tensor, given, dims=dims, sizes=sizes, prog=prog, plan=plan, options=options, name=name)


def _slice(
    graph: Graph,
    tensor: Tensor,
    offsets: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    plan: SlicePlan | None,
    options: Options,
    name: str,
) -> Tensor:
    chosen = read_multi_options(name, options)
    shape, num = tensor.shape[1:], offsets.shape[1]
    found = checked_dims(shape, dims, sizes, name)
    check_single(found, tuple(sizes), name)
    table = as_table(tensor, found)
    layout = plan_of_call(graph, table, num, plan, name)
    offsets = prepared_offsets(graph, offsets, layout.num_entries, plan=plan, chosen=chosen, prog=prog, name=name)
    out = create_blocked(graph, tensor.dtype, layout, num, own_lookups(layout, layout.parts, num), f"{name}/out")
    if out.size:
        call = graph.library_call(
            prog,
            "popops.multi_slice",
            inputs=(table, offsets),
            outputs=(out,),
            kernel=slice_kernel(table, offsets, out),
            debug_name=name,
        )
        with call as body:
            _emit(graph, body, layout, table, offsets, out)
        note_plan(prog, layout)
    return as_slices(out, shape, found, (1,))


def _emit(graph: Graph, body: Steps, plan: SlicePlan, table: Tensor, offsets: Tensor, out: Tensor) -> None:
    if plan.entry_split == 1:
        body.add(_sliced(graph, plan, table, offsets, out, None))
        return
    shape = (plan.entry_split, plan.num_groups, plan.column_split, offsets.shape[1], plan.width)
    partials = graph.variable(table.dtype, shape, name="partials")
    body.add(_sliced(graph, plan, table, offsets, out, partials))
    body.add(_selected(graph, plan, partials, offsets, out))


def _sliced(
    graph: Graph, plan: SlicePlan, table: Tensor, offsets: Tensor, out: Tensor, partials: Tensor | None
) -> Execute:
    """Slice on each tile its part of the entries, into ``partials`` or, where it has all, into ``out``."""
    parts = plan.parts
    low, num = lookup_rows(plan, parts, offsets.shape[1])
    first, rows = entry_rows(plan, parts)
    of_table, table_part = parts.alike("group", "entry", "column")
    base = row_regions(table, plan, parts.where(of_table), first[of_table], rows[of_table])
    if partials is None:
        sub = row_regions(out, plan, parts, low, num)
    else:
        _map_partials(graph, plan, partials, parts, low, num)
        sub = _partial_rows(partials, parts.entry, parts, low, num)
    # Combinations whose part of the indices is empty have no vertex.
    used = np.flatnonzero(num)
    step = graph.compute_set("slice")
    step.vertices(
        slice_codelet(table.dtype, offsets.dtype, short(plan.width), fills=partials is None),
        tile=parts.tile[used] % graph.num_tiles,
        offsets=(offset_regions(offsets, parts.group, low, num), used),
        base=(base, table_part[used]),
        sub=(sub, used),
        first=first[used],
        entries=rows[used],
        width=plan.width,
    )
    return Execute(step)


def _selected(graph: Graph, plan: SlicePlan, partials: Tensor, offsets: Tensor, out: Tensor) -> Execute:
    """Each tile takes its rows of the result from the partial results of the entries that they belong to."""
    low, num = own_lookups(plan, plan.parts, offsets.shape[1])
    parts, low, num = plan.parts.where(num > 0), low[num > 0], num[num > 0]
    split = plan.entry_split
    entry = np.tile(np.arange(split, dtype=np.int64), len(parts))
    every = np.repeat(np.arange(len(parts), dtype=np.int64), split)
    own = Parts(*(getattr(parts, n)[every] for n in ("group", "entry", "column", "lookup", "tile")))
    given = _partial_rows(partials, entry, own, low[every], num[every])
    step = graph.compute_set("select")
    step.vertices(
        select_codelet(out.dtype, offsets.dtype),
        tile=parts.tile,
        offsets=offset_regions(offsets, parts.group, low, num),
        parts=(given, np.arange(len(every), dtype=np.int64), np.arange(len(parts) + 1, dtype=np.int64) * split),
        sub=row_regions(out, plan, parts, low, num),
        total=plan.num_entries,
        entries=plan.entries_per_part,
        width=plan.width,
    )
    return Execute(step)


def _map_partials(graph: Graph, plan: SlicePlan, partials: Tensor, parts: Parts, low: Int64, num: Int64) -> None:
    flat = partials.reshape((plan.entry_split * plan.num_groups, *partials.shape[2:]))
    block = parts.entry * plan.num_groups + parts.group
    map_blocked(graph, flat, plan, Parts(block, parts.entry, parts.column, parts.lookup, parts.tile), (low, num))


def _partial_rows(partials: Tensor, entry: Int64, parts: Parts, low: Int64, num: Int64) -> Regions:
    one, zero = np.ones_like(low), np.zeros_like(low)
    start = np.stack([entry, parts.group, parts.column, low, zero], axis=1)
    return boxes(partials, start, np.stack([one, one, one, num, one * partials.shape[-1]], axis=1))


def offset_regions(offsets: Tensor, group: Int64, low: Int64, num: Int64) -> Regions:
    """``num`` of ``offsets`` [groups, indices] from ``low`` on, for each vertex."""
    return boxes(offsets, np.stack([group, low], axis=1), np.stack([np.ones_like(num), num], axis=1))


def _static_slice(
    graph: Graph,
    tensor: Tensor,
    offsets: Sequence[int],
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    plan: SlicePlan | None,
    options: Options,
    name: str,
) -> Tensor:
    """Rows that are known when the program is built are copied."""
    read_multi_options(name, options)
    found = checked_dims(tensor.shape, dims, sizes, name)
    check_single(found, tuple(sizes), name)
    numbers = static_offsets(offsets, tensor.shape[found[0]], name)
    table, num = as_table(tensor.expand_dims(0), found), len(numbers)
    layout = plan_of_call(graph, table, num, plan, name)
    out = create_blocked(graph, tensor.dtype, layout, num, own_lookups(layout, layout.parts, num), f"{name}/out")
    if out.size:
        picked = concat([table[0, n : n + 1] for n in numbers], 0)
        with graph.library_call(prog, "popops.multi_slice", inputs=(tensor,), outputs=(out,), debug_name=name) as body:
            body.add(Copy(picked, out[0]))
    return as_slices(out, tensor.shape, found, (1,))[0]


def static_offsets(offsets: Sequence[int], entries: int, name: str) -> list[int]:
    """``offsets`` as whole numbers.

    Raises:
        TensorError: One is no whole number, or no entry.
    """
    try:
        numbers = [operator.index(n) for n in offsets]
    except TypeError:
        raise TensorError(f"{name}: offsets must be whole numbers or a tensor, got {list(offsets)}") from None
    for n in numbers:
        if not 0 <= n < entries:
            raise TensorError(f"{name}: offset {n} is out of range: the table has {counted(entries, 'entry')}")
    return numbers
