"""The vertices that slice and update rows of a table by indices."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType, f32
from abele.poplibs.popops.expressions.generated import build, type_name
from abele.poplibs.popops.slicing.multi_cost import add_cycles, slice_cycles

Int64 = npt.NDArray[np.int64]
Operation = Literal["none", "add", "max", "mul"]
"""How an update joins a row with what the table holds; ``none`` puts it in its place."""
Scaled = Literal["", "number", "tensor"]

CHECK_SLOTS = 5
"""Slots of an index that is compared with the number of entries: as one that MultiUpdateAdd passes over.
Source: machine reference §4.9 (MultiUpdateAdd, out of range)."""


@lru_cache(maxsize=64)
def slice_codelet(dtype: ElementType, index: ElementType, width: int = 0, *, fills: bool) -> type:
    """Rows of ``base`` by ``offsets``: row i of ``sub`` is entry ``offsets[i]``; see :func:`short` for ``width``.

    ``base`` holds ``entries`` rows of ``width`` elements, the first of them entry ``first``. Rows of other entries are
    left as they are, or set to zero where the vertex ``fills``.
    """
    zero = ["else:", "    for j in range(width):", f"        self.sub[i * width + j] = {_zero(dtype)}"]
    lines = [
        *_sizes(width),
        "n = len(self.offsets)",
        "for i in range(worker_id * n // self.num_workers, (worker_id + 1) * n // self.num_workers):",
        "    row = u32(self.offsets[i]) - first",
        "    if row < entries:",
        "        at = i64(row) * width",
        "        for j in range(width):",
        "            self.sub[i * width + j] = self.base[at + j]",
        *(f"    {line}" for line in (zero if fills else [])),
    ]
    fields = [*_indexed(index), _edge("base", "Input", dtype), _edge("sub", "Output", dtype), *_STATE]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return slice_cycles(v.offsets, np.asarray(v.width, np.int64), dtype).astype(np.int64)

    return build("MultiSlice", "MultiVertex", fields, lines, cycles, extra=(dtype, fills))


@lru_cache(maxsize=64)
def select_codelet(dtype: ElementType, index: ElementType) -> type:
    """Row i of ``sub`` is row i of that of ``parts`` whose entries hold ``offsets[i]``.

    Part p holds what was sliced from the entries p · ``entries`` on; an index beyond all parts gives zeros.
    """
    lines = [
        "total = self.total",
        "entries = self.entries",
        "width = i64(self.width)",
        "n = len(self.offsets)",
        "for i in range(worker_id * n // self.num_workers, (worker_id + 1) * n // self.num_workers):",
        "    entry = u32(self.offsets[i])",
        "    if entry < total:",
        "        part = i64(entry // entries)",
        "        for j in range(width):",
        "            self.sub[i * width + j] = self.parts[part][i * width + j]",
        "    else:",
        "        for j in range(width):",
        f"            self.sub[i * width + j] = {_zero(dtype)}",
    ]
    parts = f"parts: Input[VectorList[{type_name(dtype)}]]"
    state = ["total: u32", "entries: u32", "width: u32"]
    fields = [*_indexed(index), parts, _edge("sub", "Output", dtype), *state]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return slice_cycles(v.offsets, np.asarray(v.width, np.int64), dtype).astype(np.int64)

    return build("MultiSliceSelect", "MultiVertex", fields, lines, cycles, extra=dtype)


@lru_cache(maxsize=128)
def update_codelet(
    dtype: ElementType,
    given: ElementType,
    index: ElementType,
    operation: Operation,
    scaled: Scaled,
    scale_type: ElementType = f32,
    width: int = 0,
) -> type:
    """Rows of ``sub`` joined with those of ``base`` that ``offsets`` name, in order.

    Args:
        dtype: Element type of ``base``.
        given: Element type of ``sub``.
        index: Element type of ``offsets``.
        operation: How rows are joined.
        scaled: What multiplies rows of ``sub`` first: a number, a tensor of one element, or nothing.
        scale_type: Element type of that tensor.
        width: See :func:`short`.

    A row of the table is the business of one worker, so rows that are named twice are joined one after the other.
    """
    kind = f32 if dtype.is_float else dtype
    value = _as("self.sub[i * width + j]", kind, given)
    if scaled:
        value = f"{_as('self.scale', kind, scale_type if scaled == 'tensor' else f32)} * {value}"
    at = "self.base[at + j]"
    old = _as(at, kind, dtype)
    joined = {"none": "e", "add": f"{old} + e", "mul": f"{old} * e", "max": f"max({old}, e)"}[operation]
    lines = [
        *_sizes(width),
        "for i in range(len(self.offsets)):",
        "    row = u32(self.offsets[i]) - first",
        "    if row < entries:",
        "        at = i64(row) * width",
        "        for j in range(width):",
        f"            e = {value}",
        f"            {at} = {_as(joined, dtype, kind)}",
    ]
    scale = {"": [], "number": ["scale: f32"], "tensor": [f"scale: Input[{type_name(scale_type)}]"]}[scaled]
    fields = [*_indexed(index), _edge("base", "InOut", dtype), _edge("sub", "Input", given), *_STATE, *scale]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        num, width = np.asarray(v.offsets, np.int64), np.asarray(v.width, np.int64)
        if operation == "none":
            return slice_cycles(num, width, dtype, update=True).astype(np.int64)
        return add_cycles(num, width, dtype, scaled=bool(scaled)).astype(np.int64)

    name = {"none": "MultiUpdate", "add": "MultiUpdateAdd", "max": "MultiUpdateMax", "mul": "MultiUpdateMul"}[operation]
    return build(name, "SupervisorVertex", fields, lines, cycles, extra=(dtype, operation, bool(scaled)))


@lru_cache(maxsize=8)
def check_codelet(index: ElementType) -> type:
    """True if any of ``offsets`` is no entry of a table of ``entries`` rows."""
    lines = [
        "bad = 0",
        "for i in range(len(self.offsets)):",
        "    bad = bad | (0 if u32(self.offsets[i]) < self.entries else 1)",
        "self.found = bad != 0",
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return 11 + CHECK_SLOTS * np.asarray(v.offsets, np.int64)

    return build("CheckIndices", "Vertex", [*_indexed(index), "found: Output[bool_]", "entries: u32"], lines, cycles)


_STATE = ["first: u32", "entries: u32", "width: u32"]
SHORT_WIDTH = 4
"""Elements up to which rows of one width have code of their own, without a loop. Guessed."""


def short(width: int) -> int:
    """``width`` if rows of so many elements have code of their own, else 0: then the vertex's state tells."""
    return width if width <= SHORT_WIDTH else 0


def _sizes(width: int) -> list[str]:
    """What is read once. Offsets are compared without sign, so a negative one is large and out of range."""
    return ["first = self.first", "entries = self.entries", f"width = {width or 'i64(self.width)'}"]


def _indexed(index: ElementType) -> list[str]:
    return [_edge("offsets", "Input", index)]


def _edge(name: str, direction: str, dtype: ElementType) -> str:
    return f"{name}: {direction}[Vector[{type_name(dtype)}]]"


def _zero(dtype: ElementType) -> str:
    return f"{type_name(dtype)}({'0.0' if dtype.is_float else '0'})"


def _as(text: str, wanted: ElementType, given: ElementType) -> str:
    return text if wanted == given else f"{type_name(wanted)}({text})"
