"""Views of other views: flatten, split, repeat and their like. None of them moves data."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TensorIndexError
from abele.graph.block import NotStridedError, StridedBlock
from abele.graph.block_list import BlockList
from abele.graph.concatenation import concat
from abele.graph.content import AddressList, Content
from abele.graph.expect import described
from abele.graph.variable import Variable
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor


# Reshape that is carried out on first use: views of many pieces often take their old shape again.


class Reshaped(Content):
    """Content in another shape; questions that do not depend on the shape go to the old content.

    Args:
        base: The content as it was.
        old: Its shape.
        new: The shape now, of as many elements.
        most: Blocks at most; where there would be more, the address of every element is listed.
    """

    __slots__ = ("_resolved", "base", "most", "new", "old")

    def __init__(self, base: Content, old: Sequence[int], new: Sequence[int], most: int) -> None:
        self.base, self.old, self.new, self.most = base, tuple(old), tuple(new), most
        self._resolved: Content | None = None

    @property
    def resolved(self) -> Content:
        """See :class:`Content`."""
        if self._resolved is None:
            try:
                self._resolved = self.base.reshaped(self.old, self.new, self.most)
            except NotStridedError:
                self._resolved = AddressList(self.base.addresses(self.old).reshape(self.new))
        return self._resolved

    def sliced(self, dim: int, begin: int, end: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.sliced(dim, begin, end)

    def reversed(self, dim: int, extent: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.reversed(dim, extent)

    def sampled(self, dim: int, every: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.sampled(dim, every)

    def permuted(self, order: Sequence[int]) -> Content:
        """See :class:`Content`."""
        return self.resolved.permuted(order)

    def expanded(self, dim: int, extent: int = 1) -> Content:
        """See :class:`Content`."""
        return self.resolved.expanded(dim, extent)

    def dropped(self, dim: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.dropped(dim)

    def shifted(self, dim: int, by: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.shifted(dim, by)

    def reshaped(self, old: Sequence[int], new: Sequence[int], most: int) -> Content:
        """See :class:`Content`."""
        return self.base if tuple(new) == self.old else Reshaped(self.base, self.old, new, most)

    def form(self, number: Callable[[Variable], int]) -> Hashable:
        """See :class:`Content`."""
        base = self.base.form(number)
        return None if base is None else (base, self.old, self.new, self.most)

    def with_variables(self, other: Callable[[Variable], Variable], moved: Callable[[Int64], Int64]) -> Content:
        """See :class:`Content`."""
        return Reshaped(self.base.with_variables(other, moved), self.old, self.new, self.most)

    def addresses(self, shape: Sequence[int]) -> Int64:
        """See :class:`Content`."""
        return self.base.addresses(self.old).reshape(self.new)

    def runs(self, shape: Sequence[int]) -> tuple[Int64, Int64]:
        """See :class:`Content`."""
        return self.base.runs(self.old)

    def footprint(self) -> tuple[Int64, Int64, bool]:
        """See :class:`Content`."""
        return self.base.footprint()

    @property
    def blocks(self) -> tuple[StridedBlock, ...] | None:
        """See :class:`Content`."""
        return self.resolved.blocks

    @property
    def variables(self) -> tuple[Variable, ...] | None:
        """See :class:`Content`."""
        return self.base.variables

    @property
    def bounds(self) -> tuple[int, int]:
        """See :class:`Content`."""
        return self.base.bounds

    @property
    def is_surely_distinct(self) -> bool:
        """See :class:`Content`."""
        return self.base.is_surely_distinct

    @property
    def is_cut(self) -> bool:
        """See :class:`Content`."""
        return self.resolved.is_cut


View = TypeVar("View", bound="Tensor")

_FEW_COPIES = 64
"""Copies of a view of many pieces that are joined; more are one piece with a stride of 0."""
_MOST_BLOCKS = 1 << 16
"""Blocks that a reshape may cut a view into; beyond, it is a list of addresses."""
_FEW_BLOCKS = 4
"""Most blocks of a view whose reshape is carried out at once rather than on first use."""


def as_shape(given: Sequence[Any]) -> tuple[int, ...]:
    """Numbers given one by one or as one sequence.

    Raises:
        TensorError: They are something else.
    """
    if len(given) == 1 and not isinstance(given[0], (int, np.integer)):
        given = given[0]
    try:
        return tuple(map(operator.index, given))
    except TypeError:
        raise TensorError(f"extents and dimensions are whole numbers, as in (4, 3), not {described(given)}") from None


def reshaped(tensor: View, wanted: tuple[int, ...]) -> View:
    """The view with another shape of the same number of elements; one dimension may be −1.

    Raises:
        TensorError: The number of elements differs.
    """
    if wanted == tensor.shape:
        return tensor
    wanted = _filled_in(tensor, wanted)
    if tensor.size == 0:
        return tensor.view(wanted, BlockList(()))
    # Blocks are worth it while they are far fewer than the addresses that they stand for.
    most = min(_MOST_BLOCKS, max(64, tensor.size // 8))
    content = tensor.content
    if isinstance(content, Reshaped):
        return tensor.view(wanted, content.reshaped(tensor.shape, wanted, most))
    later = Reshaped(content, tensor.shape, wanted, most)
    is_small = isinstance(content, BlockList) and len(content.blocks) <= _FEW_BLOCKS
    return tensor.view(wanted, later.resolved if is_small else later)


def _filled_in(tensor: Tensor, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with a number in place of its −1."""
    size = tensor.size
    if wanted.count(-1) == 1:
        known = -math.prod(wanted)
        if known == 0 or size % known:
            raise TensorError(f"cannot reshape {tensor!r} to {list(wanted)}: {counted(size, 'element')} do not divide")
        wanted = tuple(size // known if n == -1 else n for n in wanted)
    if math.prod(wanted) != size or any(n < 0 for n in wanted):
        raise TensorError(
            f"cannot reshape {tensor!r} to {list(wanted)}: "
            f"it has {counted(size, 'element')}, the new shape {math.prod(wanted)}"
        )
    return wanted


def squeezed(tensor: View, gone: set[int]) -> View:
    """The view without some dimensions, each of one index.

    Raises:
        TensorError: A dimension does not have one index.
    """
    content = tensor.content
    for d in sorted(gone, reverse=True):
        extent = tensor.shape[d]
        if extent != 1:
            raise TensorError(f"cannot squeeze dimension {d} of {tensor!r}: it has {counted(extent, 'index')}")
        content = content.dropped(d)
    return tensor.view([n for d, n in enumerate(tensor.shape) if d not in gone], content) if gone else tensor


def broadcast_to(tensor: View, shape: tuple[int, ...]) -> View:
    """The view broadcast to ``shape`` by NumPy's rules; an element then appears more than once.

    Raises:
        TensorError: The shapes do not broadcast.
    """
    missing = len(shape) - tensor.ndim
    own = (1,) * missing + tuple(tensor.shape)
    if missing < 0 or any(a not in (1, b) for a, b in zip(own, shape, strict=True)):
        raise TensorError(f"{tensor!r} does not broadcast to {list(shape)}")
    content = tensor.content
    for _ in range(missing):
        content = content.expanded(0)
    for d, (have, want) in enumerate(zip(own, shape, strict=True)):
        if have != want:
            # An index that is repeated is a dimension with a stride of 0.
            content = content.dropped(d).expanded(d, want) if want else BlockList(())
    return tensor.view(shape, content if 0 not in shape else BlockList(()))


def with_dims(tensor: View, first: int, last: int, shape: Sequence[int]) -> View:
    """The view with dimensions ``[first, last)`` replaced by ``shape``, which holds as many indices.

    Raises:
        TensorIndexError: There are no such dimensions.
        TensorError: The number of indices differs.
    """
    if not 0 <= first <= last <= tensor.ndim:
        raise TensorIndexError(f"{tensor!r} has {counted(tensor.ndim, 'dimension')}, not [{first}, {last})")
    return tensor.reshape((*tensor.shape[:first], *shape, *tensor.shape[last:]))


def moved_axis(tensor: View, source: int, destination: int) -> View:
    """The view with one dimension moved to another position."""
    source, destination = tensor.checked_dim(source), tensor.checked_dim(destination)
    order = [d for d in range(tensor.ndim) if d != source]
    order.insert(destination, source)
    return tensor.transpose(order)


def shuffled(tensor: View, sources: Sequence[int], destinations: Sequence[int]) -> View:
    """The view with dimension ``sources[i]`` at ``destinations[i]``; the others keep their order.

    Raises:
        TensorIndexError: A dimension is not there, or appears twice.
    """
    pairs = zip(sources, destinations, strict=False)
    moves = {tensor.checked_dim(d): tensor.checked_dim(s) for s, d in pairs}
    if not len(sources) == len(destinations) == len(moves) == len(set(moves.values())):
        raise TensorIndexError(f"cannot move dimensions {list(sources)} of {tensor!r} to {list(destinations)}")
    rest = iter([d for d in range(tensor.ndim) if d not in moves.values()])
    return tensor.transpose([moves[d] if d in moves else next(rest) for d in range(tensor.ndim)])


def tiled(tensor: View, count: int, dim: int) -> View:
    """The view repeated ``count`` times along ``dim`` as a whole (0 1 2 0 1 2).

    Raises:
        TensorError: ``count`` is negative.
    """
    dim = tensor.checked_dim(dim)
    _check_times(tensor, count, dim)
    if 0 < count <= _FEW_COPIES and tensor.ndim > 1 and not isinstance(tensor.content, BlockList):
        return concat([tensor] * count, dim)
    wide = tensor.expand_dims(dim).broadcast_to((*tensor.shape[:dim], count, *tensor.shape[dim:]))
    return wide.flatten(dim, dim + 2)


def repeated(tensor: View, count: int, dim: int) -> View:
    """The view with each index of ``dim`` repeated ``count`` times (0 0 1 1 2 2).

    Raises:
        TensorError: ``count`` is negative.
    """
    dim = tensor.checked_dim(dim)
    _check_times(tensor, count, dim)
    wide = tensor.expand_dims(dim + 1).broadcast_to((*tensor.shape[: dim + 1], count, *tensor.shape[dim + 1 :]))
    return wide.flatten(dim, dim + 2)


def _check_times(tensor: Tensor, count: int, dim: int) -> None:
    if count < 0 or not isinstance(count, (int, np.integer)):
        raise TensorError(f"cannot repeat dimension {dim} of {tensor!r} {counted(count, 'time')}")


def split(tensor: View, parts: int, dim: int) -> list[View]:
    """``parts`` views of equal size along ``dim``.

    Raises:
        TensorError: The dimension does not divide.
    """
    extent = tensor.shape[tensor.checked_dim(dim)]
    if parts <= 0 or extent % parts:
        raise TensorError(f"cannot split dimension {dim} of {tensor!r} in {parts} equal parts")
    step = extent // parts
    return [tensor.slice(i * step, (i + 1) * step, dim) for i in range(parts)]
