"""Updates of a table's rows by many indices: set, add, maximum, product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Tensor, shared
from abele.graph.program import Steps
from abele.numerics import ElementType, f32, u32
from abele.poplibs.popops.elementwise.fill import FillCycles
from abele.poplibs.popops.elementwise.placement import execute_elementwise
from abele.poplibs.popops.expr import Const
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.popops.slicing.host_kernel import update_kernel
from abele.poplibs.popops.slicing.multi_check import (
    check_single,
    check_update,
    checked_offsets,
    prepared_offsets,
    read_multi_options,
)
from abele.poplibs.popops.slicing.multi_codelets import Operation, Scaled, short, update_codelet
from abele.poplibs.popops.slicing.multi_join import emit_join
from abele.poplibs.popops.slicing.multi_layout import (
    as_table,
    checked_dims,
    entry_rows,
    lookup_rows,
    map_blocked,
    note_plan,
    own_entries,
    plan_of_call,
    row_regions,
)
from abele.poplibs.popops.slicing.multi_slice import Offsets, offset_regions, static_offsets
from abele.poplibs.popops.slicing.plan import Parts, SlicePlan
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.record_calls import takes_fields_of
from abele.words import counted

Scale = float | Tensor
REDUCTION: dict[str, str] = {"add": "ADD", "max": "MAX", "mul": "MUL"}
"""Reduction that joins partial results of each operation."""


@dataclass(frozen=True)
class TableUpdate:
    """An update of entries of a table; arguments as of :func:`multi_update`."""

    graph: Graph
    tensor: Tensor
    slices: Tensor
    offsets: Offsets
    dims: Sequence[int]
    sizes: Sequence[int]
    prog: Steps
    plan: SlicePlan | None = None
    _: KW_ONLY
    options: Options = None
    name: str = ""

    def single(self, operation: Operation, scale: Scale = 1.0) -> None:
        """Append the update of one table, as a group of its own."""
        tensor, offsets, name = self.tensor, self.offsets, self.name
        if not isinstance(offsets, Tensor):
            found = checked_dims(tensor.shape, self.dims, self.sizes, name)
            numbers = static_offsets(offsets, tensor.shape[found[0]], name)
            values = np.array(numbers, np.uint32)
            offsets = self.graph.constant(u32, (len(numbers),), values, name=f"{name}/offsets")
        given = checked_offsets(offsets, None, name)
        self._check(operation, scale, tensor.shape, given.shape[1:])
        one = replace(self, tensor=tensor.expand_dims(0), slices=self.slices.expand_dims(0))
        one._emit(operation, scale, given)

    def grouped(self, operation: Operation, scale: Scale = 1.0) -> None:
        """Append the update of several tables side by side."""
        tensor, name = self.tensor, self.name
        if tensor.ndim < 2:
            raise TensorError(f"{name}: {tensor!r} has shape {list(tensor.shape)}, without groups")
        assert isinstance(self.offsets, Tensor)
        given = checked_offsets(self.offsets, tensor.shape[0], name)
        self._check(operation, scale, tensor.shape[1:], given.shape)
        self._emit(operation, scale, given)

    def _check(self, operation: Operation, scale: Scale, shape: tuple[int, ...], indices: tuple[int, ...]) -> None:
        """Refuse arguments that do not fit; ``shape`` is that of a group, ``indices`` that of the offsets."""
        found = checked_dims(shape, self.dims, self.sizes, self.name)
        check_single(found, tuple(self.sizes), self.name)
        slice_shape = tuple(1 if d in found else n for d, n in enumerate(shape))
        check_update(self.tensor, self.slices, (*indices, *slice_shape), operation, self.name)
        _check_scale(scale, self.tensor, self.name)

    def _emit(self, operation: Operation, scale: Scale, offsets: Tensor) -> None:
        """Append the library call; tensors have groups, and checked arguments are not checked again."""
        graph, tensor, slices, prog, name = self.graph, self.tensor, self.slices, self.prog, self.name
        chosen = read_multi_options(name, self.options)
        factor = scale.reshape(()) if isinstance(scale, Tensor) else float(scale)
        table = as_table(tensor, self.dims)
        rows = as_table(slices.squeeze((2 + self.dims[0],)), (0,))
        layout = plan_of_call(graph, table, offsets.shape[1], self.plan, name)
        offsets = prepared_offsets(
            graph, offsets, layout.num_entries, plan=self.plan, chosen=chosen, prog=prog, name=name
        )
        if not rows.size:
            return
        inputs = (table, rows, offsets, *((factor,) if isinstance(factor, Tensor) else ()))
        kernel = update_kernel(table, rows, offsets, operation, factor)
        library = "popops.multi_update" + ("" if operation == "none" else f"_{operation}")
        flops = 0 if operation == "none" else rows.size
        given = _UpdateRows(rows, offsets, operation, factor)
        call = graph.library_call(
            prog, library, inputs=inputs, outputs=(table,), kernel=kernel, flops=flops, debug_name=name
        )
        with call as body:
            # The last of equal offsets counts where entries are set, so indices cannot be parted; operations that are
            # joined in any order can.
            if operation == "none" or layout.lookup_split == 1:
                body.add(_in_place(graph, layout, table, given))
            else:
                _emit_parted(graph, body, layout, table, given)
        note_plan(prog, layout)


@dataclass(frozen=True)
class GroupsUpdate(TableUpdate):
    """An update of entries of several tables side by side; arguments as of :func:`grouped_multi_update`."""

    offsets: Tensor


@dataclass(frozen=True)
class NamedGroupsUpdate(GroupsUpdate):
    """The same with the name of the operation.

    Attributes:
        operation: ``none``, ``add``, ``max`` or ``mul``.
        scale: Multiplies slices that are added.
    """

    operation: Operation = field(default="none", kw_only=True)
    scale: Scale = field(default=1.0, kw_only=True)


@takes_fields_of(TableUpdate)
def multi_update(call: TableUpdate) -> None:
    """The entry ``offsets[i]`` of ``tensor`` becomes slice i; of equal offsets the last one counts.

    Args:
        graph: Graph in which vertices are made.
        tensor: Tensor to update, in place.
        slices: [n, *shape], 1 in place of the sliced dimension; of the type of ``tensor``.
        offsets: u32 or i32 of shape [n, 1] or [n], or n whole numbers. Indices out of range change nothing.
        dims: The dimension that is sliced.
        sizes: (1,).
        prog: Sequence that the steps are appended to.
        plan: From :func:`~abele.poplibs.popops.slicing.embedding.plan`; by default the layout of tables without plans.
        options: See :data:`~abele.poplibs.popops.slicing.multi_check.MULTI_OPTIONS`.
        name: Name of the steps.

    Raises:
        TensorError: Shapes or dimensions that do not go together, a plan for another table, or a number out of range.
        TypeMismatchError: Offsets that are no 32-bit integers, or elements that do not go together.
        UnsupportedOpError: Slices of more than one entry, or along several dimensions.
        InvalidOptionError: A misspelt option.
    """
    call.single("none")


def multi_update_add(
    graph: Graph,
    tensor: Tensor,
    slices: Tensor,
    offsets: Offsets,
    scale: Scale,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "multi_update_add",
) -> None:
    """``scale`` times slice i is added to the entry ``offsets[i]`` of ``tensor``; equal offsets add up.

    Args:
        scale: A number or a floating-point tensor of one element.

    The others are those of :func:`multi_update`.

    Raises:
        TensorError: A scale of several elements; see also :func:`multi_update`.
        TypeMismatchError: A scale that is not whole for integers.
    """
    call = TableUpdate(
        graph, tensor, slices, offsets, dims=dims, sizes=sizes, prog=prog, plan=plan, options=options, name=name
    )
    call.single("add", scale)


@takes_fields_of(TableUpdate)
def multi_update_max(call: TableUpdate) -> None:
    """The entry ``offsets[i]`` of ``tensor`` becomes the maximum of itself and slice i.

    Arguments and errors as of :func:`multi_update`.
    """
    call.single("max")


@takes_fields_of(TableUpdate)
def multi_update_mul(call: TableUpdate) -> None:
    """The entry ``offsets[i]`` of ``tensor`` is multiplied by slice i.

    Arguments and errors as of :func:`multi_update`.
    """
    call.single("mul")


@takes_fields_of(NamedGroupsUpdate)
def grouped_multi_update(call: NamedGroupsUpdate) -> None:
    """The update called ``operation`` for every group.

    Args:
        tensor: [groups, *shape].
        slices: [groups, n, *slice].
        offsets: [groups, n, 1] or [groups, n].
        operation: ``none``, ``add``, ``max`` or ``mul``.
        scale: Multiplies slices that are added.

    The others are those of :func:`multi_update`.

    Raises:
        InvalidOptionError: No such operation, or a scale where nothing is added; see also :func:`multi_update`.
    """
    operation, scale = call.operation, call.scale
    if operation not in ("none", *REDUCTION):
        raise InvalidOptionError(f"{call.name}: no operation {operation!r}", remedy="none, add, max or mul")
    if operation != "add" and (isinstance(scale, Tensor) or scale != 1.0):
        raise InvalidOptionError(f"{call.name}: operation {operation!r} takes no scale")
    call.grouped(operation, scale)


@dataclass(frozen=True)
class _UpdateRows:
    """Rows, offsets and operation of an update of a table.

    Attributes:
        slices: The rows, [groups, n, width].
        offsets: The entry that each is for, [groups, n].
        operation: Operation that joins a row and its entry.
        scale: Multiplies rows that are added: a number, or a tensor of one element.
    """

    slices: Tensor
    offsets: Tensor
    operation: Operation
    scale: Scale


def _check_scale(scale: Scale, tensor: Tensor, name: str) -> None:
    if isinstance(scale, Tensor):
        if scale.size != 1:
            raise TensorError(f"{name}: the scale {scale!r} has {counted(scale.size, 'element')}, it must be one")
        if not scale.dtype.is_float or not tensor.dtype.is_float:
            raise TypeMismatchError(f"{name}: the scale {scale!r} is {scale.dtype}, {tensor!r} is {tensor.dtype}")
    elif not tensor.dtype.is_float and not float(scale).is_integer():
        raise TypeMismatchError(f"{name}: {tensor!r} is {tensor.dtype}, so the scale {scale} must be a whole number")


def _in_place(graph: Graph, plan: SlicePlan, table: Tensor, given: _UpdateRows) -> Execute:
    """Update the rows on each tile; every tile reads all indices."""
    first, rows = own_entries(plan, plan.parts)
    parts, first, rows = plan.parts.where(rows > 0), first[rows > 0], rows[rows > 0]
    low, num = np.zeros_like(first), np.full_like(first, given.offsets.shape[1])
    codelet, fields = _codelet(plan, table.dtype, given)
    of_slices, slices_part = parts.alike("group", "column")
    step = graph.compute_set("update")
    step.vertices(
        codelet,
        tile=parts.tile % graph.num_tiles,
        offsets=offset_regions(given.offsets, parts.group, low, num),
        base=row_regions(table, plan, parts, first, rows),
        sub=(row_regions(given.slices, plan, parts.where(of_slices), low[of_slices], num[of_slices]), slices_part),
        first=first,
        entries=rows,
        width=plan.width,
        **fields,
    )
    return Execute(step)


def _emit_parted(graph: Graph, body: Steps, plan: SlicePlan, table: Tensor, given: _UpdateRows) -> None:
    """Join on each tile the rows of its indices; the sums of all then join the table."""
    type_ = plan.partial_type or table.dtype
    shape = (plan.lookup_split, plan.num_groups, plan.column_split, plan.num_entries, plan.width)
    partials = graph.variable(type_, shape, name="partials")
    parts = plan.parts
    # Each part of the indices has a whole table of partials of its own, which starts at the identity: no two tiles
    # write one element, and a part without an index changes nothing.
    block = parts.lookup * plan.num_groups + parts.group
    flat = partials.reshape((shape[0] * shape[1], *shape[2:]))
    where = Parts(block, parts.entry, parts.column, parts.lookup, parts.tile)
    map_blocked(graph, flat, plan, where, entry_rows(plan, parts))
    empty = fuse([Const(_identity(given.operation, type_), type_)], (), [type_])
    body.add(execute_elementwise(graph, empty, [], [partials], "fill", FillCycles(type_)))
    body.add(_parted(graph, plan, flat, where, given))
    emit_join(graph, body, partials, table, REDUCTION[given.operation])


def _parted(graph: Graph, plan: SlicePlan, partials: Tensor, where: Parts, given: _UpdateRows) -> Execute:
    parts = plan.parts
    first, rows = entry_rows(plan, parts)
    low, num = lookup_rows(plan, parts, given.offsets.shape[1])
    used = np.flatnonzero(num)
    view = partials.transpose((0, 2, 1, 3)).reshape((partials.shape[0], plan.num_entries, plan.output_size))
    codelet, fields = _codelet(plan, partials.dtype, given)
    of_slices, slices_part = parts.alike("group", "column", "lookup")
    sub = row_regions(given.slices, plan, parts.where(of_slices), low[of_slices], num[of_slices])
    step = graph.compute_set("update")
    step.vertices(
        codelet,
        tile=parts.tile[used],
        offsets=(offset_regions(given.offsets, parts.group, low, num), used),
        base=(row_regions(view, plan, where, first, rows), used),
        sub=(sub, slices_part[used]),
        first=first[used],
        entries=rows[used],
        width=plan.width,
        **fields,
    )
    return Execute(step)


def _codelet(plan: SlicePlan, dtype: ElementType, given: _UpdateRows) -> tuple[type, dict[str, Any]]:
    """The vertex of an update, and its scale if it has one."""
    slices, offsets, operation, scale = given.slices, given.offsets, given.operation, given.scale
    scaled: Scaled = "tensor" if isinstance(scale, Tensor) else "" if scale == 1.0 else "number"
    kind = scale.dtype if isinstance(scale, Tensor) else f32
    fields = {"scale": shared(scale) if isinstance(scale, Tensor) else scale} if scaled else {}
    codelet = update_codelet(
        dtype, slices.dtype, offsets.dtype, operation=operation, scaled=scaled, scale_type=kind, width=short(plan.width)
    )
    return codelet, fields


def _identity(operation: Operation, dtype: ElementType) -> float:
    """Identity of an operation in type ``dtype``."""
    if operation != "max":
        return {"add": 0.0, "mul": 1.0}[operation]
    return -float("inf") if dtype.is_float else int(np.iinfo(dtype.np).min)
