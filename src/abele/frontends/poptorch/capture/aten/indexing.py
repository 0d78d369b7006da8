"""Indexing of all kinds in one form: rows of tables by number, for each group of rows by themselves.

An index along one dimension of a tensor makes of each other dimension either groups, which have indices of their own,
or columns, which share them: an index that is repeated along a dimension, as message passing has it, leaves whole rows
to move. Several indices at once are one number, that of an entry of all indexed dimensions together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.call_errors import FOR_EXPERTS
from abele.frontends.poptorch.capture.registry import OperatorCall
from abele.kernels.nest.ir import Const, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import i32

x, y = arg(0), arg(1)


def wrapped(call: OperatorCall, index: Value, extent: int, *, negative: bool = True) -> Value:
    """``index`` as i32 from 0 on; where ``negative`` numbers are allowed, they count from the end.

    Numbers that are known are checked here, and those that follow from inputs before every run.
    """
    net = call.net
    known = net.contents(index)
    if known is not None:
        return net.constant(_known(call, known, extent, negative=negative), i32)
    numbers = build.cast(net, index, i32)
    if negative:
        net.bound(index, extent, "index", lowest=-extent)
        return build.map_(net, select(x < 0, x + Const(extent, i32), x), [numbers])
    net.bound(index, extent, "index")
    return numbers


def _known(call: OperatorCall, numbers: np.ndarray, extent: int, *, negative: bool) -> np.ndarray:
    wide = numbers.astype(np.int64)
    outside = (wide < (-extent if negative else 0)) | (wide >= extent)
    if outside.any():
        raise call.refuse(
            f"has an index {wide[outside].flat[0]} that is out of bounds: there are {extent:,}",
            f"indices of {-extent if negative else 0} to {extent - 1}",
        )
    return np.where(wide < 0, wide + extent, wide)


@dataclass(frozen=True)
class Along:
    """A tensor and an index of the same rank seen as groups of rows along one dimension.

    Attributes:
        net: The network.
        shape: Of the index: what there is of the tensor's other dimensions.
        dim: The dimension that is indexed.
        groups: Dimensions along which indices differ.
        columns: Dimensions along which they are the same.
    """

    net: BlockBuilder
    shape: tuple[int, ...]
    dim: int
    groups: tuple[int, ...]
    columns: tuple[int, ...]

    @staticmethod
    def of(net: BlockBuilder, index: Value, dim: int) -> Along:
        """Groups and columns, by whether the index is repeated along a dimension."""
        maker = net.makers.get(index)
        rest = [d for d in range(index.ndim) if d != dim]
        repeated: list[int] = []
        known = net.contents(index)
        if known is not None and known.size:
            repeated = [d for d in rest if known.strides[d] == 0 or index.shape[d] == 1]
        elif maker is not None and maker.kind == "expand":
            before = maker.inputs[0].shape
            before = (1,) * (index.ndim - len(before)) + before
            repeated = [d for d in rest if before[d] == 1]
        repeated += [d for d in rest if index.shape[d] == 1 and d not in repeated]
        groups = tuple(d for d in rest if d not in repeated)
        return Along(net, index.shape, dim, groups, tuple(sorted(repeated)))

    def rows(self, value: Value) -> Value:
        """A tensor as [groups, extent, columns]; of its other dimensions as much as the index has."""
        for d, extent in enumerate(self.shape):
            if d != self.dim:
                value = build.slice_(self.net, value, d, 0, extent)
        moved = build.permute(self.net, value, [*self.groups, self.dim, *self.columns])
        return build.reshape(
            self.net, moved, (self._size(self.groups), value.shape[self.dim], self._size(self.columns))
        )

    def numbers(self, index: Value) -> Value:
        """The index as [groups, n]."""
        for d in self.columns:
            index = build.slice_(self.net, index, d, 0, 1)
        moved = build.permute(self.net, index, [*self.groups, self.dim, *self.columns])
        return build.reshape(self.net, moved, (self._size(self.groups), index.shape[self.dim]))

    def back(self, rows: Value) -> Value:
        """[groups, n, columns] as a tensor with n indices along the dimension."""
        order = [*self.groups, self.dim, *self.columns]
        shape = [rows.shape[1] if d == self.dim else self.shape[d] for d in order]
        made = build.reshape(self.net, rows, shape)
        return build.permute(self.net, made, [order.index(d) for d in range(len(order))])

    def _size(self, dims: Sequence[int]) -> int:
        return math.prod(self.shape[d] for d in dims)


def take_along(net: BlockBuilder, value: Value, index: Value, dim: int) -> Value:
    """Elements of ``value`` by their ``index`` (i32, none negative) along ``dim``."""
    if not value.ndim:
        return build.expand(net, value, index.shape)
    along = Along.of(net, index, dim)
    return along.back(build.look_up_groups(net, along.rows(value), along.numbers(index)))


def put_along(net: BlockBuilder, value: Value, index: Value, source: Value, *, dim: int, operation: str) -> Value:
    """``value`` with each element of ``source`` joined at its ``index`` (i32, none negative) along ``dim``."""
    if not value.ndim:
        shaped = [build.reshape(net, v, (1,)) for v in (value, index, source)]
        made = put_along(net, *shaped, dim=0, operation=operation)
        return build.reshape(net, made, ())
    along = Along.of(net, index, dim)
    table, rows = along.rows(value), along.rows(_cut(net, source, index.shape))
    made = along.back(build.join_rows(net, table, rows, along.numbers(index), operation))
    return _put_back(net, value, made, dim)


def _cut(net: BlockBuilder, value: Value, shape: Sequence[int]) -> Value:
    for dim, extent in enumerate(shape):
        value = build.slice_(net, value, dim, 0, extent)
    return value


def _put_back(net: BlockBuilder, value: Value, part: Value, but: int) -> Value:
    """``value`` with its first indices of every dimension replaced by ``part``."""
    for dim in reversed(range(value.ndim)):
        if dim != but and part.shape[dim] < value.shape[dim]:
            beside = build.slice_(net, value, dim, part.shape[dim], value.shape[dim])
            for other in range(dim):
                beside = build.slice_(net, beside, other, 0, part.shape[other])
            part = build.concat(net, [part, beside], dim)
    return part


def take(net: BlockBuilder, value: Value, index: Value, dim: int) -> Value:
    """``value`` with its dimension ``dim`` replaced by those of ``index`` (i32, none negative), entries by number."""
    if not value.ndim:
        return build.expand(net, value, index.shape)
    groups = math.prod(value.shape[:dim])
    if groups == 1:
        table = build.reshape(net, value, (value.shape[dim], math.prod(value.shape[dim + 1 :])))
        rows = build.look_up(net, table, index)
    else:
        rows = build.look_up_groups(net, _rows_along(net, value, dim), _for_each(net, index, groups))
    return build.reshape(net, rows, (*value.shape[:dim], *index.shape, *value.shape[dim + 1 :]))


def put(net: BlockBuilder, value: Value, index: Value, source: Value, *, dim: int, operation: str) -> Value:
    """``value`` with entries of ``dim`` joined with those of ``source`` by their number in ``index`` [n]."""
    table, rows = _rows_along(net, value, dim), _rows_along(net, source, dim)
    numbers = _for_each(net, index, math.prod(value.shape[:dim]))
    return build.reshape(net, build.join_rows(net, table, rows, numbers, operation), value.shape)


def _rows_along(net: BlockBuilder, value: Value, dim: int) -> Value:
    """[groups, entries of ``dim``, columns]: what lies before the dimension are groups, so that nothing moves."""
    before, after = math.prod(value.shape[:dim]), math.prod(value.shape[dim + 1 :])
    return build.reshape(net, value, (before, value.shape[dim], after))


def _for_each(net: BlockBuilder, index: Value, groups: int) -> Value:
    """Numbers repeated for every group, [groups, n]."""
    return build.expand(net, build.reshape(net, index, (1, index.size)), (groups, index.size))


@dataclass(frozen=True)
class AdvancedIndex:
    """Several indices at once, as NumPy has them.

    Attributes:
        net: The network.
        dims: The dimensions that are indexed.
        rest: The others.
        number: The number of the entry of all indexed dimensions, i32, of the indices' common shape.
        place: First of the result's dimensions for the indices.
    """

    net: BlockBuilder
    dims: tuple[int, ...]
    rest: tuple[int, ...]
    number: Value
    place: int

    @staticmethod
    def of(call: OperatorCall, value: Value, indices: Sequence[Value | None]) -> AdvancedIndex:
        """The indices of a call, masks that are known among them.

        Raises:
            UnsupportedOpError: A mask that only the machine knows, or a known index out of bounds.
        """
        net, given = call.net, _without_masks(call, indices)
        dims = tuple(d for d, index in enumerate(given) if index is not None)
        numbers = [wrapped(call, index, value.shape[d]) for d, index in enumerate(given) if index is not None]
        shape = np.broadcast_shapes(*(n.shape for n in numbers))
        number = _number(net, numbers, [value.shape[d] for d in dims])
        number = build.expand(net, number, shape)
        # Indices side by side stay where they are; others come to the front.
        place = dims[0] if dims == tuple(range(dims[0], dims[0] + len(dims))) else 0
        rest = tuple(d for d in range(value.ndim) if d not in dims)
        return AdvancedIndex(net, dims, rest, number, place)

    def table(self, value: Value) -> Value:
        """The tensor as [entries, columns]."""
        moved = build.permute(self.net, value, [*self.dims, *self.rest])
        entries = math.prod(value.shape[d] for d in self.dims)
        return build.reshape(self.net, moved, (entries, math.prod(value.shape[d] for d in self.rest)))

    def back(self, table: Value, like: Value) -> Value:
        """[entries, columns] as a tensor like the one that is indexed."""
        order = [*self.dims, *self.rest]
        moved = build.reshape(self.net, table, [like.shape[d] for d in order])
        return build.permute(self.net, moved, [order.index(d) for d in range(len(order))])

    def shape(self, value: Value) -> tuple[int, ...]:
        """Shape of the indexed elements."""
        rest = [value.shape[d] for d in self.rest]
        return (*rest[: self.place], *self.number.shape, *rest[self.place :])

    def taken(self, value: Value) -> Value:
        """Elements of the tensor at the indices."""
        rows = build.look_up(self.net, self.table(value), self.number)
        made = build.reshape(self.net, rows, (*self.number.shape, *(value.shape[d] for d in self.rest)))
        n, place = self.number.ndim, self.place
        return build.permute(self.net, made, [*range(n, n + place), *range(n), *range(n + place, made.ndim)])

    def rows(self, source: Value) -> Value:
        """Rows [n, columns] to put at the indices, from a source in the shape of the indexed elements."""
        n, place = self.number.ndim, self.place
        order = [*range(place, place + n), *range(place), *range(place + n, source.ndim)]
        moved = build.permute(self.net, source, order)
        return build.reshape(self.net, moved, (self.number.size, source.size // max(self.number.size, 1)))


def _number(net: BlockBuilder, numbers: Sequence[Value], extents: Sequence[int]) -> Value:
    """The numbers of entries in row-major order, of indices of each dimension."""
    known = [net.contents(n) for n in numbers]
    if all(k is not None for k in known):
        wide = np.broadcast_arrays(*(k for k in known if k is not None))
        return net.constant(np.asarray(np.ravel_multi_index(wide, tuple(extents))), i32)
    made = numbers[0]
    for number, extent in zip(numbers[1:], extents[1:], strict=True):
        made = build.map_(net, x * Const(extent, i32) + y, [made, number], i32)
    return made


def _without_masks(call: OperatorCall, indices: Sequence[Value | None]) -> list[Value | None]:
    """Masks as the indices of their true elements, one for each of their dimensions."""
    made: list[Value | None] = []
    for index in indices:
        if index is None or index.dtype.kind not in ("bool", "uint"):
            made.append(index)
            continue
        known = call.net.contents(index)
        if known is None:
            raise call.refuse(
                "with a mask that the device computes has a result whose shape depends on values",
                f"use torch.where(mask, x, 0), or torch.nonzero_static with a size of your own; {FOR_EXPERTS}",
            )
        made += [call.net.constant(places, i32) for places in np.nonzero(known)]
    return made
