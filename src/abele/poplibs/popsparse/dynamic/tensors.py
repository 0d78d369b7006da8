"""Tensors of dynamic sparse products: where values, meta-info, dense operands and partials lie.

Each tile has its own bucket of meta-info and of values. A dense slice that the tiles of several cells need is spread
over them. Sizes that do not divide are padded: all tiles have slices of one size, and the tensor is a view without the
rest.

Example: 100 rows in 3 cells of 34 are 102 rows of storage, of which the tensor shows 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import PatternMismatchError, TypeMismatchError
from abele.graph import Copy, Graph, Tensor, concat
from abele.numerics import ElementType, u16
from abele.poplibs.popsparse.dynamic.options import DynamicOptions
from abele.poplibs.popsparse.dynamic.params import SparseParams
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan


@dataclass(frozen=True)
class OpMetaData:
    """Purpose of a sparse tensor.

    Attributes:
        operation: ``matMul`` or ``fullyConnected``.
        params: Parameters.
        plan: The plan, with the options.
    """

    operation: str
    params: SparseParams
    plan: DynamicPlan

    @property
    def options(self) -> DynamicOptions:
        """Options that it was made with."""
        return self.plan.options


@dataclass(frozen=True)
class DynamicSparseTensor:
    """A sparse operand: meta-info and values, whose pattern is written when the program runs.

    Attributes:
        metaInfo: Meta-info, u16; see :mod:`~abele.poplibs.popsparse.dynamic.buckets`.
        nzValues: Values in their slots.
        opMetaData: Purpose; None for a tensor put together by hand.

    Raises:
        TypeMismatchError: Meta-info or values are no tensor.
    """

    metaInfo: Tensor
    nzValues: Tensor
    opMetaData: OpMetaData | None = None

    def __post_init__(self) -> None:
        for name in ("metaInfo", "nzValues"):
            if not isinstance(getattr(self, name), Tensor):
                raise TypeMismatchError(f"{name} of a sparse tensor is a tensor, got {getattr(self, name)!r}")

    def getMetaInfoTensor(self) -> Tensor:
        """The meta-info."""
        return self.metaInfo

    def getNzValuesTensor(self) -> Tensor:
        """The values."""
        return self.nzValues

    def getOpMetaData(self) -> OpMetaData | None:
        """The purpose, or None."""
        return self.opMetaData


@dataclass(frozen=True)
class SliceShape:
    """A dense operand or result by tiles.

    Attributes:
        parts: Parts of its rows.
        each: Rows of a part.
        rows: Rows.
        by_x: True if parts are those of x, False if of y.
    """

    parts: int
    each: int
    rows: int
    by_x: bool


def rows_shape(plan: DynamicPlan, by_x: bool) -> SliceShape:
    """Rows of the sparse matrix (``by_x``) or its columns, as rows of a dense operand."""
    side = 0 if by_x else 1
    return SliceShape(plan.parts[side], plan.cell[side] * plan.block[side], plan.layer.shape[side], by_x)


def tile_numbers(plan: DynamicPlan) -> Int64:
    """Tiles [groups, x, y, z]."""
    return np.arange(plan.num_tiles).reshape((plan.layer.numGroups, *plan.parts))


def create_sparse(graph: Graph, plan: DynamicPlan, meta: OpMetaData, name: str) -> DynamicSparseTensor:
    """A sparse tensor, each tile with its own buckets."""
    tiles = np.arange(plan.num_tiles)
    info = graph.variable(u16, (plan.info_slots,), name=f"{name}/metaInfo/overflow", map=0)
    parts = [info]
    for slots in (plan.meta_slots, plan.grad_a_slots):
        if slots:
            buckets = graph.variable(u16, (plan.num_tiles, slots), name=f"{name}/metaInfo")
            parts.append(graph.map_rows(buckets, tiles.tolist()).flatten())
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.append(part)
    values = graph.variable(plan.dtype, (plan.num_tiles, plan.nz_slots * plan.area), name=f"{name}/nzValues")
    return DynamicSparseTensor(whole, graph.map_rows(values, tiles.tolist()).flatten(), meta)


@dataclass(frozen=True)
class SparseViews:
    """A sparse tensor by tiles.

    Attributes:
        info: Overflow info.
        meta: Buckets of meta-info [tiles, entries].
        columns: Lists of columns [tiles, entries], or None.
        values: Buckets of values [tiles, values]; those of the meta-info where there are no values.
    """

    info: Tensor
    meta: Tensor
    columns: Tensor | None
    values: Tensor


def views_of(plan: DynamicPlan, meta: Tensor, values: Tensor | None, function: str) -> SparseViews:
    """The buckets of a sparse tensor.

    Raises:
        PatternMismatchError: Tensors of another plan's sizes or types.
    """
    for what, tensor, size, dtype in (
        ("metaInfo", meta, plan.num_meta, u16),
        ("nzValues", values, plan.num_values, plan.dtype),
    ):
        if tensor is not None and (tensor.size != size or tensor.dtype != dtype):
            raise PatternMismatchError(
                f"{function}: {what} is {tensor.size:,} elements of {tensor.dtype}, the plan's {size:,} of {dtype}",
                because="parameters, type, machine and options decide the plan, and differ from the tensor's",
                remedy="the same parameters and options where the tensor is made, where it is used, and in Partitioner",
            )
    flat = meta.flatten()
    first, second = plan.info_slots, plan.info_slots + plan.num_tiles * plan.meta_slots
    lists = flat[second:].reshape((plan.num_tiles, plan.grad_a_slots)) if plan.grad_a_slots else None
    buckets = flat[first:second].reshape((plan.num_tiles, plan.meta_slots))
    held = buckets if values is None else values.reshape((plan.num_tiles, plan.nz_slots * plan.area))
    return SparseViews(flat[:first], buckets, lists, held)


def create_dense(graph: Graph, plan: DynamicPlan, shape: SliceShape, name: str) -> Tensor:
    """A dense operand [groups, rows, columns], each slice spread over the tiles that use it."""
    groups, (px, py, pz) = plan.layer.numGroups, plan.parts
    others = py if shape.by_x else px
    size = shape.each * plan.columns
    chunk = -(-size // others)
    chunk += -chunk % (8 // plan.dtype.bytes)
    tiles = tile_numbers(plan)
    tiles = tiles.transpose((0, 1, 3, 2) if shape.by_x else (0, 2, 3, 1))  # [groups, parts, z, others]
    stored = graph.variable(plan.dtype, (tiles.size, chunk), name=name)
    graph.map_rows(stored, tiles.reshape(-1).tolist())
    stored = stored.reshape((groups, shape.parts, pz, others * chunk))[:, :, :, :size]
    return joined(plan, stored, shape)


def joined(plan: DynamicPlan, slices: Tensor, shape: SliceShape) -> Tensor:
    """The tensor [groups, rows, columns] whose slices are [groups, parts, z, each · columns]."""
    groups, parts, pz, _ = slices.shape
    apart = slices.reshape((groups, parts, pz, shape.each, plan.columns)).transpose((0, 1, 3, 2, 4))
    whole = apart.reshape((groups, parts * shape.each, pz * plan.columns))
    return whole[:, : shape.rows, : plan.layer.batchSize]


@dataclass(frozen=True)
class Zone:
    """Parts of one dimension that are equally large: all whole ones, or the last that is smaller.

    Attributes:
        first: First part.
        count: Parts.
        begin: First element.
        each: Elements of a part.
    """

    first: int
    count: int
    begin: int
    each: int

    @property
    def parts(self) -> slice:
        """The parts."""
        return slice(self.first, self.first + self.count)

    @property
    def elements(self) -> slice:
        """Their elements."""
        return slice(self.begin, self.begin + self.count * self.each)


def zones(parts: int, each: int, size: int) -> list[Zone]:
    """The zones of ``size`` elements in parts of ``each``."""
    whole = min(parts, size // each)
    found = [Zone(0, whole, 0, each)] if whole else []
    if whole < parts and size > whole * each:
        found.append(Zone(whole, 1, whole * each, size - whole * each))
    return found


def dense_slices(dense: Tensor, rows: Zone, columns: Zone) -> Tensor:
    """Slices of a zone of rows and one of columns of ``dense`` [groups, …]: [groups, row parts, column parts, …]."""
    part = dense[:, rows.elements, columns.elements]
    groups = dense.shape[0]
    apart = part.reshape((groups, rows.count, rows.each, columns.count, columns.each))
    return apart.transpose((0, 1, 3, 2, 4)).reshape((groups, rows.count, columns.count, rows.each * columns.each))


def create_by_tile(graph: Graph, plan: DynamicPlan, dtype: ElementType, size: int, name: str) -> Tensor:
    """A variable [tiles, size] with a row on each tile."""
    made = graph.variable(dtype, (plan.num_tiles, size), name=name)
    return graph.map_rows(made, np.arange(plan.num_tiles).tolist())


def at_once(plan: DynamicPlan, tensors: list[Tensor]) -> bool:
    """True if tensors by tile have elements of one width, so that one exchange moves them."""
    return len({t.dtype.bits for t in tensors}) == 1


def create_together(graph: Graph, plan: DynamicPlan, like: list[Tensor], name: str) -> list[Tensor]:
    """Variables by tile of the shapes of ``like`` [tiles, size]; neighbours in memory where the widths are equal."""
    if not at_once(plan, like):
        return [create_by_tile(graph, plan, t.dtype, t.shape[1], name) for t in like]
    sizes = [t.shape[1] for t in like]
    whole = create_by_tile(graph, plan, like[-1].dtype, sum(sizes), name)
    ends = np.cumsum(sizes).tolist()
    return [whole[:, e - s : e].reinterpret(t.dtype) for t, s, e in zip(like, sizes, ends, strict=True)]


def copies(sources: list[Tensor], targets: list[Tensor]) -> list[Copy]:
    """Copies of tensors, those of one width by one exchange."""
    found = []
    for bits in sorted({t.dtype.bits for t in sources}):
        pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s.dtype.bits == bits]
        kind = pairs[-1][0].dtype
        ends = [concat([side.reinterpret(kind).flatten() for side in sides]) for sides in zip(*pairs, strict=True)]
        found.append(Copy(*ends))
    return found


def flops_of(plan: DynamicPlan) -> int:
    """Operations of a product, on as many values as were declared."""
    return 2 * plan.layer.numNonZeroValues * plan.layer.batchSize


def shape_text(shape: Any) -> str:
    """A shape as errors have it."""
    return f"[{', '.join(f'{n:,}' for n in shape)}]"


def check_shape(function: str, what: str, tensor: Tensor, shape: tuple[int, ...], dtype: ElementType) -> None:
    """Raise unless an operand has the shape and type of the plan; 8-bit floats may differ in format and scale.

    Raises:
        PatternMismatchError: It has not.
    """
    alike = tensor.dtype == dtype or (tensor.dtype.is_quarter and dtype.is_quarter)
    if tensor.shape != shape or not alike:
        raise PatternMismatchError(
            f"{function}: {what} is {shape_text(tensor.shape)} of {tensor.dtype}, "
            f"the parameters ask for {shape_text(shape)} of {dtype}"
        )
