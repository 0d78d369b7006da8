"""The geometry that a partial-product vertex is given: extents, relations and strides of its slices, as one vector.

Layout (i32, by position): 0–4 extents co1, co0, b1, b0, g; 5–6 ci1, ci0; 7–9 outputs, 10–12 kernel, 13–15 inputs along
three field dimensions; 16–27 in_step, out_step, kernel_step and offset of the axes, in the slice's own indices; 28–34
strides of the input along g, b1, b0, ci1 and the field; 35–41 of the weights along g, co1, co0, ci1 and the kernel;
42–49 of the output along g, b1, b0, co1, co0 and the field. Channels ci0 follow each other in both inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.poplibs.poplin.contraction.operand import Box, Operand
from abele.poplibs.poplin.conv_params.axis import Axis, Int64
from abele.poplibs.poplin.vertices.library import FIELD_DIMS

_UNIT_AXIS = Axis(1, 1, 1)
_Strides = Mapping[tuple[str, bool], Int64]


@dataclass(frozen=True)
class Slices:
    """Where the slices of all vertices begin and how large they are, by dimension name.

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
    """The geometry vectors of all vertices, int32[n, 50]."""
    size = slices.size
    levels = {
        dim: _levels(dim, size[dim], operands) for dim, operands in (("ci", (x, w)), ("co", (w, out)), ("b", (x, out)))
    }
    block = {dim: inner for dim, (_, inner) in levels.items()}
    x_strides, w_strides, out_strides = (op.local_strides(size) for op in (x, w, out))
    padded = (None,) * (FIELD_DIMS - len(axes)) + tuple(range(len(axes)))
    ones, zeros = np.ones(slices.num, dtype=np.int64), np.zeros(slices.num, dtype=np.int64)

    def extent(name: str) -> list[Int64]:
        return [ones if d is None else size[f"{name}{d}"] for d in padded]

    def strides(table: _Strides, name: str) -> list[Int64]:
        return [zeros if d is None else table.get((f"{name}{d}", False), zeros) for d in padded]

    def two(table: _Strides, dim: str) -> list[Int64]:
        inner = table.get((dim, False), zeros)
        return [table.get((dim, True), inner * block[dim]), inner]

    columns = [*levels["co"], *levels["b"], size["g"], *levels["ci"]]
    columns += [*extent("o"), *extent("k"), *extent("i")]
    columns += _relations(axes, slices, padded)
    columns += [
        x_strides.get(("g", False), zeros),
        *two(x_strides, "b"),
        two(x_strides, "ci")[0],
        *strides(x_strides, "i"),
    ]
    columns += [
        w_strides.get(("g", False), zeros),
        *two(w_strides, "co"),
        two(w_strides, "ci")[0],
        *strides(w_strides, "k"),
    ]
    columns += [out_strides.get(("g", False), zeros), *two(out_strides, "b"), *two(out_strides, "co")]
    columns += strides(out_strides, "o")
    return np.stack(columns, axis=1).astype(np.int32)


def _levels(dim: str, size: Int64, operands: tuple[Operand, Operand]) -> tuple[Int64, Int64]:
    """Blocks, and indices in a block, of slices along a dimension; one block where no operand stores it in blocks."""
    blocks = [b for op in operands if (b := op.block(dim)) is not None]
    if not blocks:
        return np.ones_like(size), size
    return size // blocks[0], np.full_like(size, blocks[0])


def _relations(axes: tuple[Axis, ...], slices: Slices, padded: tuple[int | None, ...]) -> list[Int64]:
    """In-step, out-step, kernel-step and offset of three axes, in the indices of each slice."""
    known = [_UNIT_AXIS if d is None else axes[d] for d in padded]
    full = np.ones(slices.num, dtype=np.int64)
    offsets = []
    for d, axis in zip(padded, known, strict=True):
        shift = axis.offset * full
        if d is not None:
            start = slices.start
            shift = shift + axis.out_step * start[f"o{d}"] + axis.kernel_step * start[f"k{d}"]
            shift = shift - axis.in_step * start[f"i{d}"]
        offsets.append(shift)
    steps = [[getattr(axis, name) * full for axis in known] for name in ("in_step", "out_step", "kernel_step")]
    return [column for group in (*steps, offsets) for column in group]
