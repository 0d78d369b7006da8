"""Tensors: views of variables. No operation here moves data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import view
from abele.graph.intervals import Int64, merge_adjacent
from abele.graph.mapping import TileMapping
from abele.graph.tensor_names import Shape, TensorNames
from abele.graph.variable import Variable
from abele.numerics import ElementType

if TYPE_CHECKING:
    from abele.graph.graph import Graph

Index = int | slice | None | type(Ellipsis)


@dataclass(frozen=True, slots=True)
class Strided:
    """A view that is one strided block of one variable.

    Attributes:
        variable: The storage.
        offset: Element of the variable that index (0, …, 0) reads.
        factors: Per dimension of the view, ``(extent, stride)`` pairs in elements, outermost first.
    """

    variable: Variable
    offset: int
    factors: tuple[view.Factors, ...]


class Tensor(TensorNames):
    """A view: an ordered selection of elements of one or more variables, with a shape.

    Slicing, reshaping, transposing, broadcasting, reversing and concatenating give new views of the same elements.
    Indexing follows NumPy for integers, slices, ``None`` and ``...``. Two tensors may share elements.
    """

    __slots__ = ("__dict__", "_addresses", "_blocks", "dtype", "graph", "shape")

    def __init__(
        self,
        graph: Graph,
        dtype: ElementType,
        shape: tuple[int, ...],
        blocks: tuple[view.Block, ...] | None,
        addresses: Int64 | None = None,
    ) -> None:
        self.graph = graph
        self.dtype = dtype
        self.shape = shape if type(shape) is Shape else Shape(shape)
        self._blocks = blocks
        self._addresses = addresses

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

    def __repr__(self) -> str:
        variables = self.variables
        of = ", ".join(repr(v.name) for v in variables[:3]) + (", …" if len(variables) > 3 else "")
        return f"Tensor({self.dtype}{list(self.shape)} of {of})"

    @property
    def name(self) -> str:
        """Name of the first variable that the view shows."""
        variables = self.variables
        return variables[0].name if variables else "empty"

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that the view shows, in order of first appearance."""
        if self._blocks is not None:
            return tuple(dict.fromkeys(b.variable for b in self._blocks))
        assert self._addresses is not None
        return self.graph.variables_at(self._addresses)

    # --- views -------------------------------------------------------------------------------------------------

    def _view(self, shape: Sequence[int], blocks: tuple[view.Block, ...]) -> Tensor:
        return Tensor(self.graph, self.dtype, tuple(shape), blocks)

    def _explicit(self, addresses: Int64) -> Tensor:
        return Tensor(self.graph, self.dtype, tuple(addresses.shape), None, addresses)

    def addresses(self) -> Int64:
        """Global address of every element, int64 of this shape."""
        if self._blocks is None:
            assert self._addresses is not None
            return self._addresses
        return view.addresses(self._blocks, self.shape)

    def __getitem__(self, index: Any) -> Tensor:
        items = _full_index(index, self.ndim)
        result, dim = self, 0
        for item in items:
            if item is None:
                result, dim = result.expand_dims(dim), dim + 1
            elif isinstance(item, slice):
                result, dim = result._slice(item, dim), dim + 1
            else:
                at = result._position(int(item), dim)
                result = result.slice(at, at + 1, dim).squeeze(dim)
        return result

    def _position(self, index: int, dim: int) -> int:
        extent = self.shape[dim]
        if not -extent <= index < extent:
            raise TensorError(f"index {index} is out of range for dimension {dim} of {self!r}, which has {extent}")
        return index % extent

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
        """The view of indices ``[begin, end)`` along ``dim``.

        Poplar's other forms: ``slice(Interval, dim)``; ``slice(begins, ends)``, a pair for each leading dimension.

        Raises:
            TensorError: The interval is not inside the dimension.
        """
        if isinstance(begin, (tuple, list)):
            return self._slice_of(begin, end, dim)
        dim = self._dim(dim)
        if not 0 <= begin <= end <= self.shape[dim]:
            raise TensorError(
                f"slice [{begin}, {end}) is outside dimension {dim} of {self!r}, which has {self.shape[dim]} indices"
            )
        shape = (*self.shape[:dim], end - begin, *self.shape[dim + 1 :])
        if self._blocks is None:
            return self._explicit(self.addresses()[(slice(None),) * dim + (slice(begin, end),)])
        return self._view(shape, view.sliced(self._blocks, dim, begin, end))

    def sub_sample(self, step: int, dim: int = 0) -> Tensor:
        """The view of every ``step``-th index along ``dim``, the first included."""
        dim = self._dim(dim)
        count = -(-self.shape[dim] // step)
        shape = (*self.shape[:dim], count, *self.shape[dim + 1 :])
        try:
            if self._blocks is not None:
                return self._view(shape, view.strided(self._blocks, dim, step))
        except view.NotStridedError:
            pass
        return self._explicit(self.addresses()[(slice(None),) * dim + (slice(None, None, step),)])

    def reverse(self, dim: int = 0) -> Tensor:
        """The view with ``dim`` reversed."""
        dim = self._dim(dim)
        if self._blocks is None:
            return self._explicit(np.flip(self.addresses(), dim))
        return self._view(self.shape, view.reversed_along(self._blocks, dim, self.shape[dim]))

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The view with another shape of the same number of elements; one dimension may be −1.

        Raises:
            TensorError: The number of elements differs.
        """
        wanted = _as_shape(shape)
        if wanted.count(-1) == 1:
            known = -math.prod(wanted)
            if known == 0 or self.size % known:
                raise TensorError(f"cannot reshape {self!r} to {list(wanted)}: {self.size} elements do not divide")
            wanted = tuple(self.size // known if n == -1 else n for n in wanted)
        if math.prod(wanted) != self.size or any(n < 0 for n in wanted):
            raise TensorError(
                f"cannot reshape {self!r} to {list(wanted)}: "
                f"it has {self.size} elements, the new shape {math.prod(wanted)}"
            )
        if wanted == self.shape:
            return self
        if self.size == 0:
            return self._view(wanted, ())
        try:
            if self._blocks is not None:
                return self._view(wanted, view.reshaped(self._blocks, self.shape, wanted))
        except view.NotStridedError:
            pass
        return self._explicit(self.addresses().reshape(wanted))

    def flatten(self, first: int = 0, last: int | None = None) -> Tensor:
        """The view with dimensions ``[first, last)`` joined into one, in row-major order."""
        last = self.ndim if last is None else last
        return self.reshape((*self.shape[:first], math.prod(self.shape[first:last]), *self.shape[last:]))

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """The view with dimensions permuted; reversed when no order is given."""
        order = _as_shape(axes) if axes else tuple(reversed(range(self.ndim)))
        order = tuple(self._dim(a) for a in order)
        if sorted(order) != list(range(self.ndim)):
            raise TensorError(f"{list(order)} is no permutation of the {self.ndim} dimensions of {self!r}")
        if self._blocks is None:
            return self._explicit(self.addresses().transpose(order))
        return self._view([self.shape[d] for d in order], view.permuted(self._blocks, order))

    @property
    def T(self) -> Tensor:
        """The view with all dimensions in reverse order."""
        return self.transpose()

    def moveaxis(self, source: int, destination: int) -> Tensor:
        """The view with one dimension moved to another position."""
        order = [d for d in range(self.ndim) if d != self._dim(source)]
        order.insert(self._dim(destination), self._dim(source))
        return self.transpose(order)

    def expand_dims(self, dim: int = 0) -> Tensor:
        """The view with a new dimension of one index before ``dim``."""
        if self._blocks is None:
            return self._explicit(np.expand_dims(self.addresses(), dim))
        dim = dim if dim >= 0 else dim + self.ndim + 1
        return self._view((*self.shape[:dim], 1, *self.shape[dim:]), view.expanded(self._blocks, dim))

    def squeeze(self, *dims: int | Sequence[int]) -> Tensor:
        """The view without the given dimensions of one index (all such when none is given)."""
        gone = {self._dim(d) for d in _as_shape(dims)} if dims else {d for d, n in enumerate(self.shape) if n == 1}
        for d in gone:
            if self.shape[d] != 1:
                raise TensorError(f"cannot squeeze dimension {d} of {self!r}: it has {self.shape[d]} indices")
        return self.reshape([n for d, n in enumerate(self.shape) if d not in gone]) if gone else self

    def broadcast(self, count: int, dim: int) -> Tensor:
        """The view repeated ``count`` times along ``dim``; an aliasing view, so not writable.

        A dimension of one index becomes ``count`` indices; a longer one repeats as a whole.
        """
        dim = self._dim(dim)
        return self.expand_dims(dim).broadcast_to((*self.shape[:dim], count, *self.shape[dim:])).flatten(dim, dim + 2)

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        """The view broadcast to ``shape`` by NumPy's rules.

        Raises:
            TensorError: The shapes do not broadcast.
        """
        shape = tuple(shape)
        result = self
        while result.ndim < len(shape):
            result = result.expand_dims(0)
        fits = result.ndim == len(shape) and all(a in (1, b) for a, b in zip(result.shape, shape, strict=True))
        if not fits:
            raise TensorError(f"{self!r} does not broadcast to {list(shape)}")
        if result._blocks is None:
            return self._explicit(np.ascontiguousarray(np.broadcast_to(result.addresses(), shape)))
        blocks = result._blocks
        for d, (have, want) in enumerate(zip(result.shape, shape, strict=True)):
            if have != want:
                blocks = view.expanded(view.dropped(blocks, d), d, want)
        return self._view(shape, blocks)

    def reinterpret(self, dtype: ElementType) -> Tensor:
        """The same bits seen as another element type of the same width."""
        if dtype.bits != self.dtype.bits:
            raise TypeMismatchError(f"cannot see {self!r} as {dtype}: {self.dtype} has {self.dtype.bits} bits")
        return Tensor(self.graph, dtype, self.shape, self._blocks, self._addresses)

    def split(self, parts: int, dim: int = 0) -> list[Tensor]:
        """``parts`` views of equal size along ``dim``."""
        extent = self.shape[self._dim(dim)]
        if parts <= 0 or extent % parts:
            raise TensorError(f"cannot split dimension {dim} of {self!r} in {parts} equal parts")
        step = extent // parts
        return [self.slice(i * step, (i + 1) * step, dim) for i in range(parts)]

    def _dim(self, dim: int) -> int:
        if not -self.ndim <= dim < self.ndim:
            raise TensorError(f"{self!r} has no dimension {dim}")
        return dim % self.ndim

    # --- what the view shows -------------------------------------------------------------------------------------

    def strided(self) -> Strided | None:
        """The view as one strided block of one variable, or None when it is not."""
        if self._blocks is None or len(self._blocks) != 1:
            return None
        block = self._blocks[0]
        return Strided(block.variable, block.offset, tuple(view.simplified(f) for f in block.factors))

    @property
    def blocks(self) -> tuple[view.Block, ...] | None:
        """The strided blocks that fill the view, or None when it has no such form."""
        return self._blocks

    @cached_property
    def _intervals(self) -> tuple[Int64, Int64]:
        if self._blocks is None:
            flat = self.addresses().reshape(-1)
            begin, length = flat, np.ones_like(flat)
        else:
            begin, length = view.flat_runs(self._blocks, self.shape)
        begin, length, _ = merge_adjacent(begin, length)
        return begin, length

    def intervals(self) -> tuple[Int64, Int64]:
        """Global begins and lengths of the view's contiguous pieces, int64[k] each, in flattened order."""
        return self._intervals

    @property
    def is_contiguous(self) -> bool:
        """Whether the flattened view is one interval of one variable."""
        return self.size == 0 or (len(self._intervals[0]) == 1 and len(self.variables) == 1)

    @cached_property
    def contains_aliases(self) -> bool:
        """Whether an element appears more than once."""
        begin, length = self._intervals
        order = np.argsort(begin, kind="stable")
        end = (begin + length)[order]
        return bool((begin[order][1:] < end[:-1]).any())

    @property
    def contains_constant(self) -> bool:
        """Whether an element belongs to a constant."""
        return any(v.is_constant for v in self.variables)

    @property
    def writable(self) -> bool:
        """Whether every element may be written in parallel: none is constant, none appears twice."""
        return not self.contains_constant and not self.contains_aliases

    def overlaps(self, other: Tensor) -> bool:
        """Whether the two views share an element."""
        begin, length = self._intervals
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate((begin + length)[order])
        low, size = other.intervals()
        slot = np.searchsorted(begin, low + size, side="left") - 1
        return bool(((slot >= 0) & (end[np.maximum(slot, 0)] > low)).any())

    def is_same_view(self, other: Tensor) -> bool:
        """Whether both views have the same shape and show the same elements in the same order."""
        if self is other:
            return True
        if self.shape != other.shape or self.dtype != other.dtype:
            return False
        mine, theirs = self.strided(), other.strided()
        if mine is not None and theirs is not None and mine == theirs:
            return True
        return all(np.array_equal(a, b) for a, b in zip(self._intervals, other.intervals(), strict=True))

    # --- mapping -----------------------------------------------------------------------------------------------

    @property
    def mapping(self) -> TileMapping:
        """Tile of every element of the flattened view."""
        return self.graph.mapping_of(self)

    def map(self, mapping: Any) -> Tensor:
        """Place the view's elements: on one tile, by ``{tile: [intervals]}`` or by a list of intervals a tile.

        Intervals are of the flattened view. Elements already placed move. Returns the view.

        Raises:
            TileMappingError: A tile that the system lacks, or an interval outside the view.
        """
        self.graph.map(self, mapping)
        return self

    def map_rows(self, tiles: Sequence[int]) -> Tensor:
        """Place row i of the first dimension on ``tiles[i]``. Returns the view."""
        self.graph.map_rows(self, tiles)
        return self

    def map_linear(self, min_elements: int | None = None, grain: int | None = None, first_tile: int = 0) -> Tensor:
        """Spread the flattened view over all tiles in equal chunks. Returns the view.

        Args:
            min_elements: Smallest chunk; by default as many as 128 bytes hold.
            grain: Chunks are multiples of this; by default as many as 8 bytes hold.
            first_tile: Tile of the first chunk; later chunks follow in order and wrap around.
        """
        self.graph.map_linear(self, min_elements, grain, first_tile)
        return self


def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The view of several tensors after each other along ``dim``.

    Raises:
        TensorError: None is given, or shapes differ elsewhere than along ``dim``.
        TypeMismatchError: Element types differ.
    """
    if not tensors:
        raise TensorError("nothing to concatenate")
    first = tensors[0]
    dim = first._dim(dim)
    for t in tensors[1:]:
        if t.dtype != first.dtype:
            raise TypeMismatchError(f"cannot concatenate {first!r} and {t!r}: the element types differ")
        rest = [n for d, n in enumerate(t.shape) if d != dim]
        if t.ndim != first.ndim or rest != [n for d, n in enumerate(first.shape) if d != dim]:
            raise TensorError(f"cannot concatenate {first!r} and {t!r} along dimension {dim}: the shapes differ")
    extent = sum(t.shape[dim] for t in tensors)
    shape = (*first.shape[:dim], extent, *first.shape[dim + 1 :])
    if any(t._blocks is None for t in tensors):
        return first._explicit(np.concatenate([t.addresses() for t in tensors], axis=dim))
    blocks: list[view.Block] = []
    at = 0
    for t in tensors:
        assert t._blocks is not None
        blocks.extend(view.shifted(t._blocks, dim, at))
        at += t.shape[dim]
    return first._view(shape, tuple(blocks))


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The view of several tensors of one shape along a new dimension."""
    return concat([t.expand_dims(dim) for t in tensors], dim)


def _as_shape(given: Sequence[Any]) -> tuple[int, ...]:
    if len(given) == 1 and not isinstance(given[0], (int, np.integer)):
        given = given[0]
    return tuple(int(n) for n in given)


def _full_index(index: Any, ndim: int) -> list[Any]:
    """The index as one item a dimension (plus None for each new one)."""
    items = list(index) if isinstance(index, tuple) else [index]
    for item in items:
        if not (item is None or item is Ellipsis or isinstance(item, (int, np.integer, slice))):
            raise TensorError(f"a tensor view takes integers, slices, None and ..., not {item!r}")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > ndim:
        raise TensorError(f"{used} indices for a tensor of {ndim} dimensions")
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (ndim - used)
    else:
        items += [slice(None)] * (ndim - used)
    return items
