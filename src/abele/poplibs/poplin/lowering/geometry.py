"""The geometry that a partial-product vertex is given: extents, relations and strides of its slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.poplibs.poplin.contraction.operand import Box, Operand
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.vertices import geometry_fields as at
from abele.poplibs.poplin.vertices.field_table import field_table

_UNIT_AXIS = Axis(1, 1, 1)
_Fields = dict[int, Int64 | int]
_Strides = Mapping[tuple[str, bool], Int64]


@dataclass(frozen=True)
class Slices:
    """First index and size of the slices of all vertices, by dimension name.

    Attributes:
        start: First index, int64[n] each: split dimensions, and the inputs that they reach.
        size: Number of indices, int64[n] each.
    """

    start: Box
    size: Box

    @property
    def num(self) -> int:
        """Number of vertices."""
        return len(self.size["g"])


def geometry(axes: tuple[Axis, ...], slices: Slices, x: Operand, w: Operand, out: Operand) -> npt.NDArray[np.int32]:
    """The geometry vectors of all vertices, int32[n, 50].

    Elements are named in :mod:`~abele.poplibs.poplin.vertices.geometry_fields`. A vertex walks each operand by local
    strides: its slice is contiguous on the tile, whatever the operand's storage looks like around it.
    """
    size = slices.size
    inner = {dim: _inner(dim, operands) for dim, operands in (("ci", (x, w)), ("co", (w, out)), ("b", (x, out)))}
    fields = _extents(axes, size, inner)
    for d, place in _placed(axes):
        fields |= _relation(axes, slices, d, place)
    strides = {"x": x.local_strides(size), "w": w.local_strides(size), "y": out.local_strides(size)}
    fields |= _channel_strides(strides, size, inner)
    fields |= _field_strides(axes, strides)
    return field_table(fields, at.NUM_FIELDS, slices.num)


def _placed(axes: tuple[Axis, ...]) -> list[tuple[int | None, int]]:
    """Field dimensions of the vertex as (axis, place); leading ones that the contraction lacks have no axis."""
    missing = at.FIELD_DIMS - len(axes)
    return [(None if place < missing else place - missing, place) for place in range(at.FIELD_DIMS)]


def _inner(dim: str, operands: tuple[Operand, Operand]) -> int | None:
    """Indices in a block of a dimension, or None where no operand stores it in blocks."""
    return next((b for op in operands if (b := op.block(dim)) is not None), None)


def _extents(axes: tuple[Axis, ...], size: Box, inner: Mapping[str, int | None]) -> _Fields:
    """Numbers of indices; of channels and samples in two levels, one block where they are not stored in blocks."""
    fields: _Fields = {at.NUM_G: size["g"]}
    two_levels = (("co", at.NUM_CO1, at.NUM_CO0), ("b", at.NUM_B1, at.NUM_B0), ("ci", at.NUM_CI1, at.NUM_CI0))
    for dim, outer_field, inner_field in two_levels:
        block = inner[dim]
        fields[outer_field] = 1 if block is None else size[dim] // block
        fields[inner_field] = size[dim] if block is None else block
    for d, place in _placed(axes):
        for name, field in (("o", at.NUM_O), ("k", at.NUM_K), ("i", at.NUM_I)):
            fields[field[place]] = 1 if d is None else size[f"{name}{d}"]
    return fields


def _relation(axes: tuple[Axis, ...], slices: Slices, d: int | None, place: int) -> _Fields:
    """Fields that relate inputs to outputs and kernel positions, in the indices of each slice.

    The axis holds for indices of the whole contraction. With i = start_i + i', and o and k likewise, the starts join
    the offset and the steps stay what they are.
    """
    axis = _UNIT_AXIS if d is None else axes[d]
    offset: Int64 | int = axis.offset
    if d is not None:
        start = slices.start
        # Indices of a slice count from its own start: the starts join the constant of the relation, and steps stay.
        offset = offset + axis.out_step * start[f"o{d}"] + axis.kernel_step * start[f"k{d}"]
        offset = offset - axis.in_step * start[f"i{d}"]
    steps = {at.IN_STEP: axis.in_step, at.OUT_STEP: axis.out_step, at.KERNEL_STEP: axis.kernel_step}
    return {at.OFFSET[place]: offset} | {field[place]: step for field, step in steps.items()}


def _channel_strides(strides: Mapping[str, _Strides], size: Box, inner: Mapping[str, int | None]) -> _Fields:
    """Strides along groups, samples and channels: of blocks, and of places in a block."""
    fields: _Fields = {f: strides[op].get(("g", False), 0) for f, op in ((at.X_G, "x"), (at.W_G, "w"), (at.Y_G, "y"))}

    def blocks(op: str, dim: str) -> Int64 | int:
        block = inner[dim]
        # One block alone has no stride between blocks: a step over the whole block stands for it.
        whole = strides[op].get((dim, False), 0) * (size[dim] if block is None else block)
        return strides[op].get((dim, True), whole)

    for field, op, dim in (
        (at.X_B1, "x", "b"),
        (at.X_CI1, "x", "ci"),
        (at.W_CO1, "w", "co"),
        (at.W_CI1, "w", "ci"),
        (at.Y_B1, "y", "b"),
        (at.Y_CO1, "y", "co"),
    ):
        fields[field] = blocks(op, dim)
    for field, op, dim in (
        (at.X_B0, "x", "b"),
        (at.W_CO0, "w", "co"),
        (at.Y_B0, "y", "b"),
        (at.Y_CO0, "y", "co"),
    ):
        fields[field] = strides[op].get((dim, False), 0)
    return fields


def _field_strides(axes: tuple[Axis, ...], strides: Mapping[str, _Strides]) -> _Fields:
    """Strides along inputs, kernel positions and outputs."""
    fields: _Fields = {}
    for d, place in _placed(axes):
        for op, name, field in (("x", "i", at.X_I), ("w", "k", at.W_K), ("y", "o", at.Y_O)):
            fields[field[place]] = 0 if d is None else strides[op].get((f"{name}{d}", False), 0)
    return fields
