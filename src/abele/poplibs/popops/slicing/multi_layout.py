"""Tables, slices and indices laid out for a plan.

A table of G groups, E entries and C columns in parts of W columns is a view of a variable [G, C/W, E, W], so that what
a tile has of it is one stretch of memory. Slices are stored in the same way, with indices in place of entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError
from abele.graph import Graph, LibraryCall, Regions, Tensor, TileMapping, boxes
from abele.graph.program import Steps
from abele.numerics import ElementType, as_element_type, u32
from abele.poplibs.popops.slicing.embedding import PLAN_OPTIONS
from abele.poplibs.popops.slicing.plan import Parts, SlicePlan, part_range
from abele.poplibs.popops.slicing.plan_search import Wish, column_splits, search
from abele.poplibs.poputil.mapping import map_tensor_linearly, set_mapping
from abele.poplibs.poputil.options import Options, read_options
from abele.poplibs.poputil.regions import flat_regions
from abele.words import counted

ON_TILE_PROPORTION = 0.5
"""Share of a tile's memory up to which a table without a plan has all its entries of a column on one tile. Guessed: the
rest is for other data of the program.
"""


def create_sliceable_tensor(
    graph: Graph,
    dtype: ElementType | str,
    shape: Sequence[int],
    dims: Sequence[int],
    sizes: Sequence[int],
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "sliceable",
) -> Tensor:
    """A new tensor of ``shape`` to be sliced along ``dims``, laid out for ``plan``.

    Without a plan each tile has all entries of some columns, as far as memory allows.

    Args:
        graph: Graph in which it is made.
        dtype: Element type.
        shape: Its shape.
        dims: Dimensions that offsets are given for.
        sizes: Extent of a slice along each of ``dims``.
        plan: From :func:`~abele.poplibs.popops.slicing.embedding.plan`.
        options: Those of the plan, which decides; only their names and values are checked.
        name: Name of the variable.

    Raises:
        TensorError: Dimensions that the shape lacks, sizes that do not fit, or a plan for another table.
        InvalidOptionError: A misspelt option.
    """
    read_options(name, options, PLAN_OPTIONS)
    return _sliceable(
        graph, as_element_type(dtype), 1, shape=tuple(shape), dims=dims, sizes=sizes, plan=plan, name=name
    )[0]


def create_grouped_sliceable_tensor(
    graph: Graph,
    dtype: ElementType | str,
    group_size: int,
    shape: Sequence[int],
    dims: Sequence[int],
    sizes: Sequence[int],
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "sliceable",
) -> Tensor:
    """A new tensor [group_size, *shape], every group as of :func:`create_sliceable_tensor`; ``dims`` count in shape.

    Raises:
        TensorError: As for :func:`create_sliceable_tensor`.
        InvalidOptionError: A misspelt option.
    """
    read_options(name, options, PLAN_OPTIONS)
    return _sliceable(
        graph, as_element_type(dtype), group_size, shape=tuple(shape), dims=dims, sizes=sizes, plan=plan, name=name
    )


def create_slice_tensor(
    graph: Graph,
    tensor: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    num_indices: int,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "slices",
) -> Tensor:
    """A new tensor for ``num_indices`` slices of ``tensor``: [num_indices, *shape], ``sizes`` in place of ``dims``.

    Raises:
        TensorError: As for :func:`create_sliceable_tensor`.
        InvalidOptionError: A misspelt option.
    """
    read_options(name, options, PLAN_OPTIONS)
    return _slices(graph, tensor.expand_dims(0), dims, sizes=sizes, num=num_indices, plan=plan, name=name)[0]


def create_grouped_slice_tensor(
    graph: Graph,
    tensor: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    num_indices: int,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "slices",
) -> Tensor:
    """A new tensor [groups, num_indices, *slice] for slices of ``tensor`` [groups, *shape]; ``dims`` count in shape.

    Raises:
        TensorError: As for :func:`create_sliceable_tensor`.
        InvalidOptionError: A misspelt option.
    """
    read_options(name, options, PLAN_OPTIONS)
    return _slices(graph, tensor, dims, sizes=sizes, num=num_indices, plan=plan, name=name)


def create_indices_tensor(
    graph: Graph,
    dims: Sequence[int],
    num_indices: int,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "indices",
) -> Tensor:
    """A new u32 tensor [num_indices, dims], spread over the tiles; a plan needs no other layout.

    Args:
        graph: Graph in which it is made.
        dims: Dimensions that indices are given for.
        num_indices: Number of indices.
        plan: Not needed for the layout.
        options: Those of the plan; only their names and values are checked.
        name: Name of the variable.

    Raises:
        TensorError: A negative number of indices.
        InvalidOptionError: A misspelt option.
    """
    read_options(name, options, PLAN_OPTIONS)
    return map_tensor_linearly(graph, graph.variable(u32, (num_indices, len(dims)), name=name))


def create_grouped_indices_tensor(
    graph: Graph,
    group_size: int,
    dims: Sequence[int],
    num_indices: int,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "indices",
) -> Tensor:
    """As :func:`create_indices_tensor`, [group_size, num_indices, dims].

    Raises:
        TensorError: A negative number of groups or indices.
        InvalidOptionError: A misspelt option.
    """
    read_options(name, options, PLAN_OPTIONS)
    return map_tensor_linearly(graph, graph.variable(u32, (group_size, num_indices, len(dims)), name=name))


def checked_dims(shape: tuple[int, ...], dims: Sequence[int], sizes: Sequence[int], name: str) -> tuple[int, ...]:
    """``dims`` of a slice of a tensor of ``shape``, not negative.

    Raises:
        TensorError: A dimension that it lacks or that is given twice, or a size that it does not have.
    """
    found = tuple(int(d) for d in dims)
    if not found or len(found) != len(sizes) or len(set(found)) != len(found):
        raise TensorError(
            f"{name}: dims {list(dims)} and sizes {list(sizes)} do not go together",
            remedy="one size for each dimension, no dimension twice",
        )
    for dim, size in zip(found, sizes, strict=True):
        if not 0 <= dim < len(shape):
            raise TensorError(f"{name}: no dimension {dim} in shape {list(shape)}")
        if not 1 <= size <= shape[dim]:
            raise TensorError(f"{name}: slices of {size} along dimension {dim} of shape {list(shape)}")
    return found


def as_table(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """[groups, *shape] seen as [groups, entries, columns], where ``dims`` of shape are the entries."""
    front = [1 + d for d in dims]
    rest = [d for d in range(1, tensor.ndim) if d not in front]
    entries = math.prod(tensor.shape[d] for d in front)
    columns = math.prod(tensor.shape[d] for d in rest)
    return tensor.transpose((0, *front, *rest)).reshape((tensor.shape[0], entries, columns))


def plan_for(
    graph: Graph, dtype: ElementType, groups: int, entries: int, columns: int, plan: SlicePlan | None, name: str
) -> SlicePlan:
    """``plan``, or a layout for a table without one.

    Raises:
        TensorError: The plan is for another table.
    """
    if plan is None:
        return _unplanned(graph, SlicePlan(dtype, entries, columns, 1, groups))
    planned = (plan.num_groups, plan.num_entries, plan.output_size)
    if planned != (groups, entries, columns):
        raise TensorError(
            f"{name}: the plan is for {planned[0]} x {planned[1]} x {counted(planned[2], 'element')}, not for "
            f"{groups} x {entries} x {columns}"
        )
    return plan if plan.dtype == dtype else replace(plan, dtype=dtype)


def plan_of_call(graph: Graph, table: Tensor, num: int, plan: SlicePlan | None, name: str) -> SlicePlan:
    """``plan``, or one for ``num`` slices of ``table`` [groups, entries, columns], by how it is stored.

    A table that was not made in parts of columns is not cut into such, which would gather it element by element.

    Raises:
        TensorError: The plan is for another table.
    """
    groups, entries, columns = table.shape
    layout = plan_for(graph, table.dtype, groups, entries=entries, columns=columns, plan=plan, name=name)
    if plan is not None or is_stored_for(table, layout):
        return layout
    rows = SlicePlan(table.dtype, entries, columns, num, groups)
    return search(graph.system, rows, Wish(aim="cycles", splits=(("column_split", 1),)))


def is_stored_for(table: Tensor, plan: SlicePlan) -> bool:
    """True if each part of ``plan`` has one stretch of ``table`` [groups, entries, columns].

    Others would be gathered piece by piece: a plan without parts of columns goes through whole rows instead.
    """
    return plan.column_split == 1 or not table.size or _is_one_stretch(table, plan)


def stored_parts(table: Tensor, num_lookups: int, num_tiles: int) -> int:
    """Parts of columns in which ``table`` [groups, entries, columns] is stored, if there are tiles for all of them.

    Columns that lie apart and are more than there are tiles are taken together. Rows that are whole, of which there are
    fewer than would keep all tiles busy, are cut as far as there are tiles: each piece is still one stretch.
    """
    groups, entries, columns = table.shape
    splits = column_splits(columns, table.dtype) if table.size else np.ones(1, np.int64)
    stored = 1
    for split in splits[splits <= num_tiles].tolist():
        if _is_one_stretch(table, SlicePlan(table.dtype, entries, columns, 1, groups, column_split=split)):
            stored = int(split)
            break
    whole = max(groups * entries * num_lookups, 1)
    return stored if stored > 1 else int(splits[splits * whole <= max(num_tiles, whole)].max(initial=1))


def stored_entries(graph: Graph, table: Tensor, column_split: int) -> int | None:
    """Parts of entries in which ``table`` [1, entries, columns] lies on the tiles of a plan; None if on others."""
    groups, entries, columns = table.shape
    plan = SlicePlan(table.dtype, entries, columns, 1, groups, column_split=column_split)
    if groups != 1 or not table.size or not is_stored_for(table, plan):
        return None
    stored = graph.mapping_of(blocked(table, plan).flatten())
    size, rest = divmod(int(stored.begin[1]), plan.width) if len(stored.begin) > 1 else (entries, 0)
    if rest or not 0 < size <= entries:
        return None
    plan = replace(plan, entry_split=-(-entries // size))
    if plan.tiles > graph.num_tiles or plan.entries_per_part != size:
        return None
    parts = plan.parts
    first, rows = own_entries(plan, parts)
    begin = (parts.column * entries + first) * plan.width
    order = np.flatnonzero(rows)[np.argsort(begin[np.flatnonzero(rows)], kind="stable")]
    lies = np.array_equal(stored.begin, begin[order]) and np.array_equal(stored.tile, parts.tile[order])
    return plan.entry_split if lies else None


def _is_one_stretch(table: Tensor, plan: SlicePlan) -> bool:
    """True if the first two rows of the first part of the columns follow each other."""
    zero = np.zeros(1, np.int64)
    corner = Parts(zero, zero, zero, zero, zero.astype(np.int32))
    return bool(row_regions(table, plan, corner, zero, zero + min(2, plan.num_entries)).counts[0] == 1)


def blocked(view: Tensor, plan: SlicePlan) -> Tensor:
    """[groups, rows, columns] in the form in which it is stored, [groups, parts, rows, width]."""
    groups, rows, _ = view.shape
    return view.reshape((groups, rows, plan.column_split, plan.width)).transpose((0, 2, 1, 3))


def row_regions(view: Tensor, plan: SlicePlan, parts: Parts, first: Int64, rows: Int64) -> Regions:
    """Regions of [groups, rows, columns] for each of ``parts``: ``rows`` rows from ``first`` on of its columns."""
    stored = blocked(view, plan)
    if stored.content.resolved.single_run is not None:
        block = (parts.group * plan.column_split + parts.column) * view.shape[1]
        return flat_regions(stored.flatten(), (block + first) * plan.width, rows * plan.width)
    zero, one = np.zeros_like(first), np.ones_like(first)
    start = np.stack([parts.group, parts.column, first, zero], axis=1)
    return boxes(stored, start, np.stack([one, one, rows, one * plan.width], axis=1))


def entry_rows(plan: SlicePlan, parts: Parts) -> tuple[Int64, Int64]:
    """First and number of the entries of each of ``parts``."""
    return part_range(plan.num_entries, plan.entry_split, parts.entry)


def own_entries(plan: SlicePlan, parts: Parts) -> tuple[Int64, Int64]:
    """First and number of the entries that each of ``parts`` holds: those that share a part have a share each."""
    first, rows = entry_rows(plan, parts)
    return _share(first, rows, plan.lookup_split, parts.lookup)


def lookup_rows(plan: SlicePlan, parts: Parts, num: int) -> tuple[Int64, Int64]:
    """First and number of the indices of each of ``parts``, ``num`` in all."""
    return part_range(num, plan.lookup_split, parts.lookup)


def own_lookups(plan: SlicePlan, parts: Parts, num: int) -> tuple[Int64, Int64]:
    """First and number of the slices that each of ``parts`` holds."""
    first, rows = lookup_rows(plan, parts, num)
    return _share(first, rows, plan.entry_split, parts.entry)


def create_blocked(
    graph: Graph, dtype: ElementType, plan: SlicePlan, rows: int, own: tuple[Int64, Int64], name: str
) -> Tensor:
    """A new tensor [groups, rows, columns]; each of the plan's parts holds the rows that ``own`` says."""
    shape = (plan.num_groups, plan.column_split, rows, plan.width)
    variable = graph.variable(dtype, shape, name=name)
    map_blocked(graph, variable, plan, plan.parts, own)
    return variable.transpose((0, 2, 1, 3)).reshape((plan.num_groups, rows, plan.output_size))


def map_blocked(graph: Graph, variable: Tensor, plan: SlicePlan, parts: Parts, own: tuple[Int64, Int64]) -> None:
    """Place [groups, parts, rows, width]: each of ``parts`` holds the rows that ``own`` says of its columns."""
    first, rows = own
    begin = ((parts.group * plan.column_split + parts.column) * variable.shape[2] + first) * plan.width
    keep = np.flatnonzero(rows)
    keep = keep[np.argsort(begin[keep], kind="stable")]
    set_mapping(graph, variable, TileMapping(variable.size, begin[keep], parts.tile[keep]))


def _share(first: Int64, rows: Int64, split: int, part: Int64) -> tuple[Int64, Int64]:
    size = -(-rows // split)
    begin = np.minimum(part * size, rows)
    return first + begin, np.minimum(begin + size, rows) - begin


def _sliceable(
    graph: Graph,
    dtype: ElementType,
    groups: int,
    shape: tuple[int, ...],
    dims: Sequence[int],
    sizes: Sequence[int],
    plan: SlicePlan | None,
    name: str,
) -> Tensor:
    found = checked_dims(shape, dims, sizes, name)
    rest = [d for d in range(len(shape)) if d not in found]
    entries, columns = math.prod(shape[d] for d in found), math.prod(shape[d] for d in rest)
    if plan is None:
        layout = _unplanned(graph, SlicePlan(dtype, entries, columns, 1, groups), tuple(shape[d] for d in rest))
    else:
        layout = plan_for(graph, dtype, groups, entries=entries, columns=columns, plan=plan, name=name)
    made = create_blocked(graph, dtype, layout, entries, own_entries(layout, layout.parts), name)
    order = [*found, *rest]
    return made.reshape((groups, *(shape[d] for d in order))).transpose(
        (0, *(1 + order.index(d) for d in range(len(shape))))
    )


def _slices(
    graph: Graph,
    tensor: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    num: int,
    plan: SlicePlan | None,
    name: str,
) -> Tensor:
    shape = tensor.shape[1:]
    found = checked_dims(shape, dims, sizes, name)
    groups, entries, columns = as_table(tensor, found).shape
    layout = plan_for(graph, tensor.dtype, groups, entries=entries, columns=columns, plan=plan, name=name)
    rows = num * math.prod(sizes)
    made = create_blocked(graph, tensor.dtype, layout, rows, own_lookups(layout, layout.parts, rows), name)
    return as_slices(made, shape, found, tuple(sizes))


def as_slices(rows: Tensor, shape: tuple[int, ...], dims: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """[groups, slices · entries of each, columns] seen as [groups, slices, *slice]."""
    rest = [d for d in range(len(shape)) if d not in dims]
    order = [*dims, *rest]
    num = rows.shape[1] // math.prod(sizes)
    view = rows.reshape((rows.shape[0], num, *sizes, *(shape[d] for d in rest)))
    return view.transpose((0, 1, *(2 + order.index(d) for d in range(len(shape)))))


def _unplanned(graph: Graph, table: SlicePlan, columns: tuple[int, ...] = ()) -> SlicePlan:
    """A layout for a table whose columns have these dims, if that is known."""
    groups = min(table.num_groups, graph.system.num_tiles)
    splits = column_splits(table.output_size, table.dtype)
    splits = splits[splits <= graph.system.num_tiles // groups]
    if len(splits) == 0:
        splits = np.ones(1, np.int64)
    # Parts that end inside of a row of the last dims make views of many pieces; they are left for somewhat larger ones.
    even = [n for n in splits.tolist() if 2 * n > splits[-1] and _divides(table.output_size // n, columns)]
    on_tile = replace(table, group_split=groups, column_split=int(even[-1] if even else splits[-1]))
    held = -(-table.num_groups // groups) * table.num_entries * on_tile.width * table.dtype.bytes
    if held <= ON_TILE_PROPORTION * graph.system.ipu.tile.total_bytes:
        return on_tile
    return search(graph.system, table, Wish(for_update=None))


def _divides(width: int, extents: tuple[int, ...]) -> bool:
    """True if ``width`` elements are a part of a row of the last of some dims, or rows, of the last two, and so on."""
    for extent in reversed(extents):
        if extent % width == 0:
            return True
        if width % extent:
            return False
        width //= extent
    return width == 1


def note_plan(prog: Steps, plan: SlicePlan) -> None:
    """Give the library call that ``prog`` ends with its plan."""
    call = prog.steps[-1]
    assert isinstance(call, LibraryCall)
    call.attributes["plan"] = plan
