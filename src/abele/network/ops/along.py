"""Elements along one dimension by numbers that the machine computes: taken, put, and joined with what is there.

An index along one dimension of a tensor makes of each other dimension either groups, which have indices of their own,
or columns, which share them: an index that is repeated along a dimension, as message passing has it, leaves whole rows
to move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from abele.network.ir import BlockBuilder, Value
from abele.network.ops.lookup import join_rows, look_up, look_up_groups
from abele.network.ops.views import concat, expand, permute, reshape, slice_


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
                value = slice_(self.net, value, d, 0, extent)
        moved = permute(self.net, value, [*self.groups, self.dim, *self.columns])
        return reshape(self.net, moved, (self._size(self.groups), value.shape[self.dim], self._size(self.columns)))

    def numbers(self, index: Value) -> Value:
        """The index as [groups, n]."""
        for d in self.columns:
            index = slice_(self.net, index, d, 0, 1)
        moved = permute(self.net, index, [*self.groups, self.dim, *self.columns])
        return reshape(self.net, moved, (self._size(self.groups), index.shape[self.dim]))

    def back(self, rows: Value) -> Value:
        """[groups, n, columns] as a tensor with n indices along the dimension."""
        order = [*self.groups, self.dim, *self.columns]
        shape = [rows.shape[1] if d == self.dim else self.shape[d] for d in order]
        made = reshape(self.net, rows, shape)
        return permute(self.net, made, [order.index(d) for d in range(len(order))])

    def _size(self, dims: Sequence[int]) -> int:
        return math.prod(self.shape[d] for d in dims)


def take_along(net: BlockBuilder, value: Value, index: Value, dim: int) -> Value:
    """Elements of ``value`` by their ``index`` (i32, none negative) along ``dim``."""
    if not value.ndim:
        return expand(net, value, index.shape)
    along = Along.of(net, index, dim)
    return along.back(look_up_groups(net, along.rows(value), along.numbers(index)))


def put_along(net: BlockBuilder, value: Value, index: Value, source: Value, *, dim: int, operation: str) -> Value:
    """``value`` with each element of ``source`` joined at its ``index`` (i32, none negative) along ``dim``."""
    if not value.ndim:
        shaped = [reshape(net, v, (1,)) for v in (value, index, source)]
        made = put_along(net, *shaped, dim=0, operation=operation)
        return reshape(net, made, ())
    along = Along.of(net, index, dim)
    table, rows = along.rows(value), along.rows(_cut(net, source, index.shape))
    made = along.back(join_rows(net, table, rows, along.numbers(index), operation))
    return _put_back(net, value, made, dim)


def _cut(net: BlockBuilder, value: Value, shape: Sequence[int]) -> Value:
    for dim, extent in enumerate(shape):
        value = slice_(net, value, dim, 0, extent)
    return value


def _put_back(net: BlockBuilder, value: Value, part: Value, but: int) -> Value:
    """``value`` with its first indices of every dimension replaced by ``part``."""
    for dim in reversed(range(value.ndim)):
        if dim != but and part.shape[dim] < value.shape[dim]:
            beside = slice_(net, value, dim, part.shape[dim], value.shape[dim])
            for other in range(dim):
                beside = slice_(net, beside, other, 0, part.shape[other])
            part = concat(net, [part, beside], dim)
    return part


def take(net: BlockBuilder, value: Value, index: Value, dim: int) -> Value:
    """``value`` with its dimension ``dim`` replaced by those of ``index`` (i32, none negative), entries by number."""
    if not value.ndim:
        return expand(net, value, index.shape)
    groups = math.prod(value.shape[:dim])
    if groups == 1:
        table = reshape(net, value, (value.shape[dim], math.prod(value.shape[dim + 1 :])))
        rows = look_up(net, table, index)
    else:
        rows = look_up_groups(net, _rows_along(net, value, dim), _for_each(net, index, groups))
    return reshape(net, rows, (*value.shape[:dim], *index.shape, *value.shape[dim + 1 :]))


def put(net: BlockBuilder, value: Value, index: Value, source: Value, *, dim: int, operation: str) -> Value:
    """``value`` with entries of ``dim`` joined with those of ``source`` by their number in ``index`` [n]."""
    table, rows = _rows_along(net, value, dim), _rows_along(net, source, dim)
    numbers = _for_each(net, index, math.prod(value.shape[:dim]))
    return reshape(net, join_rows(net, table, rows, numbers, operation), value.shape)


def _rows_along(net: BlockBuilder, value: Value, dim: int) -> Value:
    """[groups, entries of ``dim``, columns]: what lies before the dimension are groups, so that nothing moves."""
    before, after = math.prod(value.shape[:dim]), math.prod(value.shape[dim + 1 :])
    return reshape(net, value, (before, value.shape[dim], after))


def _for_each(net: BlockBuilder, index: Value, groups: int) -> Value:
    """Numbers repeated for every group, [groups, n]."""
    return expand(net, reshape(net, index, (1, index.size)), (groups, index.size))
