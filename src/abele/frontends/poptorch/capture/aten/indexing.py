"""Indices as PyTorch has them: checked, counted from the end, masks among them, several at once.

Several indices at once are one number, that of an entry of all indexed dimensions together.
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
