"""Tensors: views of variables. No operation here moves data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.errors import TensorError, TensorIndexError, TypeMismatchError
from abele.graph.block import NotStridedError
from abele.graph.block_list import BlockList
from abele.graph.content import AddressList, Content
from abele.graph.expect import expect
from abele.graph.intervals import Int64
from abele.graph.join import joined
from abele.graph.reshaped import Reshaped
from abele.graph.strided import Strided
from abele.graph.tensor_names import Shape, TensorNames
from abele.graph.tensor_shown import TensorShown
from abele.graph.tensor_views import TensorViews
from abele.numerics import ElementType, as_element_type
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.graph import Graph

__all__ = ["Strided", "Tensor", "concat", "stack"]

Index = int | slice | None | type(Ellipsis)

_MOST_BLOCKS = 1 << 16
_FEW = 4


class _Pending:
    """A concatenation that nobody has looked into yet, so that joining piece by piece takes linear time."""

    __slots__ = ("dim", "parts")

    def __init__(self, dim: int, parts: tuple[Tensor, ...]) -> None:
        self.dim = dim
        self.parts = parts


class Tensor(TensorNames, TensorViews, TensorShown):
    """A view: an ordered selection of elements of one or more variables, with a shape.

    Slicing, reshaping, transposing, broadcasting, reversing and concatenating give new views of the same elements.
    Indexing follows NumPy for integers, slices, ``None`` and ``...``. Two tensors may share elements.

    Attributes:
        graph: The whole graph that holds the variables (also where a view was made through a virtual graph of it).
        dtype: Element type.
        shape: Extent of each dimension.
    """

    __slots__ = ("__weakref__", "_aliases", "_content", "_intervals", "dtype", "graph", "shape")

    def __init__(self, graph: Graph, dtype: ElementType, shape: Sequence[int], content: Content | _Pending) -> None:
        self.graph = graph
        self.dtype = dtype
        self.shape = shape if type(shape) is Shape else Shape(shape)
        self._content = content
        self._intervals: tuple[Int64, Int64] | None = None
        self._aliases: bool | None = None

    @property
    def content(self) -> Content:
        """The elements, without their shape."""
        if isinstance(self._content, _Pending):
            self._content = _resolved(self._content)
        return self._content

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of all elements, repeated ones counted each time."""
        return self.size * self.dtype.bytes

    def __len__(self) -> int:
        if not self.shape:
            raise TensorError("a scalar tensor has no length")
        return self.shape[0]

    def _view(self, shape: Sequence[int], content: Content) -> Tensor:
        return Tensor(self.graph, self.dtype, shape, content)

    def __getitem__(self, index: Any) -> Tensor:
        if type(index) is int and self.shape:
            return self._picked(index, 0)
        items = _full_index(index, self)
        result, dim = self, 0
        for item in items:
            if item is None:
                result, dim = result.expand_dims(dim), dim + 1
            elif isinstance(item, slice):
                result, dim = result._slice(item, dim), dim + 1
            else:
                result = result._picked(int(item), dim)
        return result

    def _picked(self, index: int, dim: int) -> Tensor:
        """The view of one index along ``dim``, without that dimension; negative ones count from the end."""
        extent = self.shape[dim]
        if not -extent <= index < extent:
            raise TensorIndexError(
                f"index {index} is out of range for dimension {dim} of {self!r}, which has {counted(extent, 'index')}"
            )
        content = self.content.picked(dim, index + extent if index < 0 else index)
        return self._view(self.shape[:dim] + self.shape[dim + 1 :], content)

    def _slice(self, item: slice, dim: int) -> Tensor:
        begin, end, step = item.indices(self.shape[dim])
        if step == 1:
            return self.slice(begin, max(begin, end), dim)
        count = len(range(begin, end, step))
        if count == 0:
            return self.slice(0, 0, dim)
        last = begin + (count - 1) * step
        low, high = min(begin, last), max(begin, last)
        part = self.slice(low, high + 1, dim)
        if step < 0:
            part = part.reverse(dim)
        return part.sub_sample(abs(step), dim)

    def slice(self, begin: Any, end: Any = None, dim: int = 0) -> Tensor:
        """The view of indices ``[begin, end)`` along ``dim``; negative ones are refused.

        Poplar's other forms: ``slice(Interval, dim)``; ``slice(begins, ends)``, a pair for each leading dimension.

        Raises:
            TensorIndexError: The interval is not inside the dimension.
        """
        if isinstance(begin, (tuple, list)):
            return self._slice_of(begin, end, dim)
        dim = self._dim(dim)
        extent = self.shape[dim]
        if not 0 <= begin <= end <= extent:
            raise TensorIndexError(
                f"slice [{begin}, {end}) is outside dimension {dim} of {self!r}, which has {counted(extent, 'index')}",
                remedy="t[-2:] counts from the end; slice() takes indices from the start" if begin < 0 else None,
            )
        if end - begin == extent:
            return self
        shape = (*self.shape[:dim], end - begin, *self.shape[dim + 1 :])
        return self._view(shape, self.content.sliced(dim, begin, end))

    def sub_sample(self, step: int, dim: int = 0) -> Tensor:
        """The view of every ``step``-th index along ``dim``, the first included.

        Raises:
            TensorError: ``step`` is not positive.
        """
        dim = self._dim(dim)
        if step < 1:
            raise TensorError(f"cannot take every {step}th index along dimension {dim} of {self!r}")
        if step == 1:
            return self
        count = -(-self.shape[dim] // step)
        shape = (*self.shape[:dim], count, *self.shape[dim + 1 :])
        try:
            return self._view(shape, self.content.sampled(dim, step))
        except NotStridedError:
            return self._view(shape, AddressList(self.addresses()).sampled(dim, step))

    def reverse(self, dim: int = 0) -> Tensor:
        """The view with ``dim`` reversed."""
        dim = self._dim(dim)
        return self._view(self.shape, self.content.reversed(dim, self.shape[dim]))

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The view with another shape of the same number of elements; one dimension may be −1.

        Raises:
            TensorError: The number of elements differs.
        """
        wanted = as_shape(shape)
        if wanted == self.shape:
            return self
        if wanted.count(-1) == 1:
            known = -math.prod(wanted)
            if known == 0 or self.size % known:
                raise TensorError(
                    f"cannot reshape {self!r} to {list(wanted)}: {counted(self.size, 'element')} do not divide"
                )
            wanted = tuple(self.size // known if n == -1 else n for n in wanted)
        if math.prod(wanted) != self.size or any(n < 0 for n in wanted):
            raise TensorError(
                f"cannot reshape {self!r} to {list(wanted)}: "
                f"it has {counted(self.size, 'element')}, the new shape {math.prod(wanted)}"
            )
        if self.size == 0:
            return self._view(wanted, BlockList(()))
        most = min(_MOST_BLOCKS, max(64, self.size // 8))
        content = self.content
        if isinstance(content, Reshaped):
            return self._view(wanted, content.reshaped(self.shape, wanted, most))
        later = Reshaped(content, self.shape, wanted, most)
        is_small = isinstance(content, BlockList) and len(content.blocks) <= _FEW
        return self._view(wanted, later.resolved if is_small else later)

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """The view with dimensions permuted; reversed when no order is given.

        Raises:
            TensorError: The order is no permutation of the dimensions.
        """
        order = as_shape(axes) if axes else tuple(reversed(range(self.ndim)))
        order = tuple([self._dim(a) for a in order])
        if sorted(order) != list(range(self.ndim)):
            raise TensorError(f"{list(order)} is no permutation of the {counted(self.ndim, 'dimension')} of {self!r}")
        return self._view([self.shape[d] for d in order], self.content.permuted(order))

    def expand_dims(self, dim: int = 0) -> Tensor:
        """The view with a new dimension of one index before ``dim``; the rank itself, or −1, means at the end.

        Raises:
            TensorIndexError: There is no such place.
        """
        if not -self.ndim - 1 <= dim <= self.ndim:
            raise TensorIndexError(f"{self!r} has {counted(self.ndim, 'dimension')}; none can be added before {dim}")
        dim = dim if dim >= 0 else dim + self.ndim + 1
        return self._view((*self.shape[:dim], 1, *self.shape[dim:]), self.content.expanded(dim))

    def squeeze(self, *dims: int | Sequence[int]) -> Tensor:
        """The view without the given dimensions of one index (all such when none is given).

        Raises:
            TensorError: A dimension does not have one index.
        """
        gone = {self._dim(d) for d in as_shape(dims)} if dims else {d for d, n in enumerate(self.shape) if n == 1}
        content = self.content
        for d in sorted(gone, reverse=True):
            if self.shape[d] != 1:
                raise TensorError(f"cannot squeeze dimension {d} of {self!r}: it has {counted(self.shape[d], 'index')}")
            content = content.dropped(d)
        return self._view([n for d, n in enumerate(self.shape) if d not in gone], content) if gone else self

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        """The view broadcast to ``shape`` by NumPy's rules; an element then appears more than once.

        Raises:
            TensorError: The shapes do not broadcast.
        """
        shape = tuple(shape)
        missing = len(shape) - self.ndim
        own = (1,) * missing + tuple(self.shape)
        if missing < 0 or any(a not in (1, b) for a, b in zip(own, shape, strict=True)):
            raise TensorError(f"{self!r} does not broadcast to {list(shape)}")
        content = self.content
        for _ in range(missing):
            content = content.expanded(0)
        for d, (have, want) in enumerate(zip(own, shape, strict=True)):
            if have != want:
                content = content.dropped(d).expanded(d, want) if want else BlockList(())
        return self._view(shape, content if 0 not in shape else BlockList(()))

    def reinterpret(self, dtype: ElementType | str) -> Tensor:
        """The same bits seen as another element type of the same width.

        Raises:
            TypeMismatchError: The widths differ.
        """
        dtype = as_element_type(dtype)
        if dtype.bits != self.dtype.bits:
            raise TypeMismatchError(
                f"cannot see {self!r} as {dtype}, which has {dtype.bits} bits: {self.dtype} has {self.dtype.bits} bits"
            )
        return Tensor(self.graph, dtype, self.shape, self.content)

    def _dim(self, dim: int) -> int:
        if not -self.ndim <= dim < self.ndim:
            raise TensorIndexError(f"{self!r} has no dimension {dim}: it has {self.ndim}")
        return dim % self.ndim


def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The view of several tensors after each other along ``dim``.

    Raises:
        TensorError: None is given, or shapes differ elsewhere than along ``dim``.
        TypeMismatchError: Element types differ.
    """
    if not tensors:
        raise TensorError("nothing to concatenate")
    for t in tensors:
        expect(t, Tensor, "concat takes tensors")
    first = tensors[0]
    dim = first._dim(dim)
    shape, extent = first.shape, 0
    for t in tensors:
        if t.dtype != first.dtype:
            raise TypeMismatchError(f"cannot concatenate {first!r} and {t!r}: the element types differ")
        own = t.shape
        if len(own) != len(shape) or own[:dim] != shape[:dim] or own[dim + 1 :] != shape[dim + 1 :]:
            raise TensorError(f"cannot concatenate {first!r} and {t!r} along dimension {dim}: the shapes differ")
        if isinstance(t._content, _Pending) and t._content.dim != dim:
            t._content = _resolved(t._content)
        extent += own[dim]
    if len(tensors) == 1:
        return first
    whole = (*shape[:dim], extent, *shape[dim + 1 :])
    return Tensor(first.graph, first.dtype, whole, _Pending(dim, tuple(tensors)))


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The view of several tensors of one shape along a new dimension."""
    return concat([t.expand_dims(dim) for t in tensors], dim)


def as_shape(given: Sequence[Any]) -> tuple[int, ...]:
    """Numbers given one by one or as one sequence."""
    if len(given) == 1 and not isinstance(given[0], (int, np.integer)):
        given = given[0]
    return tuple([int(n) for n in given])


def _resolved(pending: _Pending) -> Content:
    """The content of a concatenation; those inside it along the same dimension are joined in one go."""
    parts: list[tuple[Content, tuple[int, ...]]] = []
    left = list(reversed(pending.parts))
    while left:
        tensor = left.pop()
        inner = tensor._content
        if isinstance(inner, _Pending):
            left.extend(reversed(inner.parts))
        else:
            parts.append((inner, tensor.shape))
    return joined(parts, pending.dim)


def _full_index(index: Any, tensor: Tensor) -> list[Any]:
    """The index as one item a dimension (plus None for each new one)."""
    items = list(index) if isinstance(index, tuple) else [index]
    for item in items:
        if not (item is None or item is Ellipsis or isinstance(item, (int, np.integer, slice))):
            raise TensorIndexError(f"{tensor!r} takes integers, slices, None and ..., not {item!r}")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > tensor.ndim:
        raise TensorIndexError(
            f"{counted(used, 'index')} for a tensor of {counted(tensor.ndim, 'dimension')}, {tensor!r}"
        )
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (tensor.ndim - used)
    else:
        items += [slice(None)] * (tensor.ndim - used)
    return items
