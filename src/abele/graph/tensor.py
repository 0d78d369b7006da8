"""Tensors: views of variables. No operation here moves data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TensorError, TensorIndexError, TypeMismatchError
from abele.graph import elements, views
from abele.graph.block import NotStridedError, StridedBlock, strides_of
from abele.graph.concatenation import Concatenation, concat, stack
from abele.graph.content import AddressList, Content
from abele.graph.intervals import Interval, merge_adjacent
from abele.graph.mapping import TileMapping
from abele.graph.variable import Shaped, Variable
from abele.layout import Modes
from abele.numerics import ElementType, as_element_type
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.clone import TensorCloneMethod
    from abele.graph.graph import Graph


# The simplest views: one strided block of one variable.


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
    factors: tuple[Modes, ...]

    def of(self, elements: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """View of the elements of its variable, an array of one dim: in place, with a dim for every factor."""
        pairs = [pair for factors in self.factors for pair in factors]
        return np.lib.stride_tricks.as_strided(
            elements[self.offset :], [n for n, _ in pairs], [step * elements.itemsize for _, step in pairs]
        )


# NumPy's way of indexing: integers, slices, ``None`` and ``...``.

View = TypeVar("View", bound="Tensor")


def indexed(tensor: View, index: Any) -> View:
    """The view that ``tensor[index]`` means.

    Raises:
        TensorIndexError: Too many items, one of another kind, or an integer out of range.
    """
    result, dim = tensor, 0
    for item in _full_index(index, tensor):
        if item is None:
            result, dim = result.expand_dims(dim), dim + 1
        elif isinstance(item, slice):
            result, dim = _sliced(result, item, dim), dim + 1
        else:
            result = picked(result, int(item), dim)
    return result


def picked(tensor: View, index: int, dim: int) -> View:
    """The view of one index along ``dim``, without that dimension; negative ones count from the end.

    Raises:
        TensorIndexError: There is no such index.
    """
    extent = tensor.shape[dim]
    if not -extent <= index < extent:
        raise TensorIndexError(
            f"index {index} is out of range for dimension {dim} of {tensor!r}, which has {counted(extent, 'index')}"
        )
    content = tensor.content.picked(dim, index + extent if index < 0 else index)
    return tensor.view(tensor.shape[:dim] + tensor.shape[dim + 1 :], content)


def _sliced(tensor: View, item: slice, dim: int) -> View:
    """The view of a Python slice: an interval first, turned round for a negative step, then every step-th index."""
    try:
        begin, end, step = item.indices(tensor.shape[dim])
    except (TypeError, ValueError) as error:
        raise TensorIndexError(f"{item} of dimension {dim} of {tensor!r}: {error}") from None
    if step == 1:
        return tensor.slice(begin, max(begin, end), dim)
    count = len(range(begin, end, step))
    if count == 0:
        return tensor.slice(0, 0, dim)
    last = begin + (count - 1) * step
    low, high = min(begin, last), max(begin, last)
    part = tensor.slice(low, high + 1, dim)
    if step < 0:
        part = part.reverse(dim)
    return part.sub_sample(abs(step), dim)


def _full_index(index: Any, tensor: Tensor) -> list[Any]:
    """The index as one item per dimension (plus None for each new one)."""
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


__all__ = ["Strided", "Tensor", "concat", "stack"]


class Tensor(Shaped):
    """A view: an ordered selection of elements of one or more variables, with a shape.

    Slicing, reshaping, transposing, broadcasting, reversing and concatenating give new views of the same elements.
    Indexing follows NumPy for integers, slices, ``None`` and ``...``. Two tensors may share elements.

    Attributes:
        graph: The whole graph that holds the variables (also where a view was made through a virtual graph of it).
        dtype: Element type.
        shape: Extent of each dimension.
    """

    __slots__ = ("__weakref__", "_aliases", "_content", "_intervals", "dtype", "graph", "shape")

    shape: tuple[int, ...]
    shape_type: ClassVar[type[tuple[int, ...]]] = tuple
    """Class of shapes."""

    def __init__(
        self, graph: Graph, dtype: ElementType, shape: Sequence[int], content: Content | Concatenation
    ) -> None:
        kind = self.shape_type
        self.graph = graph
        self.dtype = dtype
        self.shape = shape if type(shape) is kind else kind(shape)
        self._content = content
        self._intervals: tuple[Int64, Int64] | None = None
        self._aliases: bool | None = None

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def content(self) -> Content:
        """The elements, without their shape."""
        if isinstance(self._content, Concatenation):
            self._content = self._content.resolved()
        return self._content

    @property
    def unresolved(self) -> Content | Concatenation:
        """The elements as far as they have been looked into."""
        return self._content

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """Name of the first variable that the view shows."""
        variables = self.variables
        return variables[0].name if variables else "empty"

    def __len__(self) -> int:
        if not self.shape:
            raise TensorError("a scalar tensor has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        from abele.graph.display import tensor_line

        return tensor_line(self)

    def _repr_html_(self) -> str:
        from abele.graph.display import tensor_card

        return tensor_card(self)

    def debug_str(self) -> str:
        """Type, shape, variables, tiles and permissions of the view, in one line."""
        from abele.graph.tensor_text import facts_text

        return facts_text(self)

    def text(self) -> str:
        """:meth:`debug_str`, then a line per contiguous piece: place in the view, variable, tiles."""
        from abele.graph.tensor_text import pieces_text

        return pieces_text(self)

    # --- views -------------------------------------------------------------------------------------------------------

    def view(self, shape: Sequence[int], content: Content | Concatenation) -> Self:
        """A view of other elements of the same graph and type; every operation here ends in one of these."""
        return type(self)(self.graph, self.dtype, shape, content)

    def checked_dim(self, dim: int) -> int:
        """A dimension counted from the front; negative ones count from the end.

        Raises:
            TensorIndexError: There is no such dimension.
        """
        if not -self.ndim <= dim < self.ndim:
            raise TensorIndexError(f"{self!r} has no dimension {dim}: it has {self.ndim}")
        return dim % self.ndim

    def __getitem__(self, index: Any) -> Self:
        if type(index) is int and self.shape:
            return picked(self, index, 0)
        return indexed(self, index)

    def slice(self, begin: int, end: int, dim: int = 0) -> Self:
        """The view of indices ``[begin, end)`` along ``dim``; negative ones are refused.

        Raises:
            TensorIndexError: The interval is not inside the dimension.
        """
        dim = self.checked_dim(dim)
        extent = self.shape[dim]
        if not 0 <= begin <= end <= extent:
            raise TensorIndexError(
                f"slice [{begin}, {end}) is outside dimension {dim} of {self!r}, which has {counted(extent, 'index')}",
                remedy="t[-2:] counts from the end; slice() takes indices from the start" if begin < 0 else None,
            )
        if end - begin == extent:
            return self
        shape = (*self.shape[:dim], end - begin, *self.shape[dim + 1 :])
        return self.view(shape, self.content.sliced(dim, begin, end))

    def sub_sample(self, step: int, dim: int = 0) -> Self:
        """The view of every ``step``-th index along ``dim``, the first included.

        Raises:
            TensorError: ``step`` is not positive.
        """
        dim = self.checked_dim(dim)
        if step < 1:
            raise TensorError(f"cannot take every {step}th index along dimension {dim} of {self!r}")
        if step == 1:
            return self
        count = -(-self.shape[dim] // step)
        shape = (*self.shape[:dim], count, *self.shape[dim + 1 :])
        try:
            return self.view(shape, self.content.sampled(dim, step))
        except NotStridedError:
            # A form that cannot be sampled as it is becomes a list of addresses, which always can.
            return self.view(shape, AddressList(self.addresses()).sampled(dim, step))

    def reverse(self, dim: int = 0) -> Self:
        """The view with ``dim`` reversed."""
        dim = self.checked_dim(dim)
        return self.view(self.shape, self.content.reversed(dim, self.shape[dim]))

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The view with another shape of the same number of elements; one dimension may be −1.

        Raises:
            TensorError: The number of elements differs.
        """
        return views.reshaped(self, views.as_shape(shape))

    def reshape_partial(self, first: int, last: int, shape: Sequence[int]) -> Self:
        """The view with dimensions ``[first, last)`` replaced by ``shape``, which holds as many indices.

        Raises:
            TensorIndexError: There are no such dimensions.
            TensorError: The number of indices differs.
        """
        return views.with_dims(self, first, last, shape)

    def flatten(self, first: int = 0, last: int | None = None) -> Self:
        """The view with dimensions ``[first, last)`` joined into one, in row-major order.

        Raises:
            TensorIndexError: There are no such dimensions.
        """
        last = self.ndim if last is None else last
        return views.with_dims(self, first, last, (math.prod(self.shape[first:last]),))

    def transpose(self, *axes: int | Sequence[int]) -> Self:
        """The view with dimensions permuted; reversed when no order is given.

        Raises:
            TensorError: The order is no permutation of the dimensions.
        """
        order = views.as_shape(axes) if axes else tuple(reversed(range(self.ndim)))
        order = tuple([self.checked_dim(a) for a in order])
        if sorted(order) != list(range(self.ndim)):
            raise TensorError(f"{list(order)} is no permutation of the {counted(self.ndim, 'dimension')} of {self!r}")
        return self.view([self.shape[d] for d in order], self.content.permuted(order))

    @property
    def T(self) -> Self:
        """The view with all dimensions in reverse order."""
        return self.transpose()

    def moveaxis(self, source: int, destination: int) -> Self:
        """The view with one dimension moved to another position."""
        return views.moved_axis(self, source, destination)

    def dim_roll(self, source: int, destination: int = 0) -> Self:
        """The view with one dimension moved, by default to the front: :meth:`moveaxis` in PopLibs' words."""
        return views.moved_axis(self, source, destination)

    def dim_shuffle_partial(self, sources: Sequence[int], destinations: Sequence[int]) -> Self:
        """The view with dimension ``sources[i]`` at ``destinations[i]``; the others keep their order.

        Raises:
            TensorIndexError: A dimension is not there, or appears twice.
        """
        return views.shuffled(self, sources, destinations)

    def expand_dims(self, dim: int = 0) -> Self:
        """The view with a new dimension of one index before ``dim``; the rank itself, or −1, means at the end.

        Raises:
            TensorIndexError: There is no such place.
        """
        if not -self.ndim - 1 <= dim <= self.ndim:
            raise TensorIndexError(f"{self!r} has {counted(self.ndim, 'dimension')}; none can be added before {dim}")
        dim = dim if dim >= 0 else dim + self.ndim + 1
        return self.view((*self.shape[:dim], 1, *self.shape[dim:]), self.content.expanded(dim))

    def squeeze(self, *dims: int | Sequence[int]) -> Self:
        """The view without the given dimensions of one index (all such when none is given).

        Raises:
            TensorError: A dimension does not have one index.
        """
        if dims:
            return views.squeezed(self, {self.checked_dim(d) for d in views.as_shape(dims)})
        return views.squeezed(self, {d for d, n in enumerate(self.shape) if n == 1})

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """The view broadcast to ``shape`` by NumPy's rules; an element then appears more than once.

        Raises:
            TensorError: The shapes do not broadcast.
        """
        return views.broadcast_to(self, tuple(shape))

    def broadcast(self, count: int, dim: int = 0) -> Self:
        """The view repeated ``count`` times along ``dim`` as a whole (0 1 2 0 1 2); aliasing, so not writable.

        Raises:
            TensorError: ``count`` is negative.
        """
        return views.tiled(self, count, dim)

    def repeat(self, count: int, dim: int = 0) -> Self:
        """The view with each index of ``dim`` repeated ``count`` times (0 0 1 1 2 2); aliasing, so not writable.

        Raises:
            TensorError: ``count`` is negative.
        """
        return views.repeated(self, count, dim)

    def append(self, other: Tensor, dim: int = 0) -> Tensor:
        """The view with ``other`` after it along ``dim``; one dimension less counts as one index."""
        return concat([self, other.expand_dims(dim) if other.ndim == self.ndim - 1 else other], dim)

    def split(self, parts: int, dim: int = 0) -> list[Self]:
        """``parts`` views of equal size along ``dim``.

        Raises:
            TensorError: The dimension does not divide.
        """
        return views.split(self, parts, dim)

    def reinterpret(self, dtype: ElementType | str) -> Self:
        """The same bits seen as another element type of the same width.

        Raises:
            TypeMismatchError: The widths differ.
        """
        dtype = as_element_type(dtype)
        if dtype.bits != self.dtype.bits:
            raise TypeMismatchError(
                f"cannot see {self!r} as {dtype}, which has {dtype.bits} bits: {self.dtype} has {self.dtype.bits} bits"
            )
        return type(self)(self.graph, dtype, self.shape, self.content)

    def clone(self, dtype: Any = None, name: str | None = None, method: TensorCloneMethod | None = None) -> Tensor:
        """A view of a new variable with the shape and mapping of this one; see :meth:`Graph.clone`."""
        options = {} if method is None else {"method": method}
        return self.graph.clone(self, dtype, name, **options)

    # --- which elements it shows -------------------------------------------------------------------------------------

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that the view shows, in order of first appearance."""
        found = self.content.variables
        return self.graph.variables_at(self.content.addresses(self.shape)) if found is None else found

    def addresses(self) -> Int64:
        """Global address of every element, int64 of this shape."""
        return self.content.addresses(self.shape)

    def strided(self) -> Strided | None:
        """The view as one strided block of one variable, or None when it is not."""
        blocks = self.content.blocks
        if blocks is None or len(blocks) != 1:
            return None
        block = blocks[0]
        factors: tuple[Modes, ...] = tuple(strides_of(f) for f in block.factors)
        return Strided(block.variable, block.offset, factors)

    @property
    def blocks(self) -> tuple[StridedBlock, ...] | None:
        """The strided blocks that the view was joined from, each a box of it.

        None when it has no such form: a reshape cut across the blocks, or only addresses are known.
        """
        return None if self.content.is_cut else self.content.blocks

    def intervals(self) -> tuple[Int64, Int64]:
        """Global begins and lengths of the view's contiguous pieces, int64[k] each, in flattened order."""
        found = self._intervals
        if found is None:
            run = self.content.single_run
            # Not kept: making it again is as cheap as keeping it.
            if run is not None:
                return np.array(run[:1], dtype=np.int64), np.array(run[1:], dtype=np.int64)
            begin, length, _ = merge_adjacent(*self.content.runs(self.shape))
            found = self._intervals = (begin, length)
        return found

    def variable_runs(self) -> tuple[Int64, Int64]:
        """As :meth:`intervals`, cut where one variable ends and its neighbour begins."""
        return elements.variable_runs(self)

    def contiguous_regions(self) -> list[Interval]:
        """Intervals of the flattened view, in order, that are contiguous in one variable each."""
        return elements.contiguous_regions(self)

    def var_regions(self) -> list[tuple[Variable, Interval]]:
        """Variable and interval of its elements for each contiguous piece of the flattened view, in order."""
        return elements.var_regions(self)

    @property
    def is_contiguous(self) -> bool:
        """True if the flattened view is one interval of one variable."""
        return self.size == 0 or (len(self.variables) == 1 and len(self.intervals()[0]) == 1)

    @property
    def contains_aliases(self) -> bool:
        """True if an element appears more than once."""
        found = self._aliases
        if found is None:
            found = self._aliases = elements.has_repeats(self.content, self.size)
        return found

    @property
    def contains_constant(self) -> bool:
        """True if an element belongs to a constant."""
        return any(v.is_constant for v in self.variables)

    @property
    def writable(self) -> bool:
        """True if every element may be written in parallel: none is constant, none appears twice."""
        return not self.contains_constant and not self.contains_aliases

    @property
    def is_parallel_writeable(self) -> bool:
        """The same as :attr:`writable`, in Poplar's words."""
        return self.writable

    def overlaps(self, other: Tensor) -> bool:
        """True if the two views share an element."""
        return elements.overlap(self, other)

    def is_same_view(self, other: Tensor) -> bool:
        """True if both views have the same shape and type and show the same elements in the same order."""
        return elements.same_view(self, other)

    # --- mapping -----------------------------------------------------------------------------------------------------

    @property
    def mapping(self) -> TileMapping:
        """Tile of every element of the flattened view, in the numbering of the whole graph."""
        return self.graph.mapping_of(self)

    def map(self, mapping: Any) -> Self:
        """Place the view's elements: on one tile, by ``{tile: [intervals]}`` or by a list of intervals per tile.

        Intervals are of the flattened view; tiles are numbered as in the whole graph. Elements already placed move.
        Returns the view.

        Raises:
            TileMappingError: A tile that the system lacks, or an interval outside the view.
        """
        return self.graph.map(self, mapping)

    def map_rows(self, tiles: Sequence[int]) -> Self:
        """Place row i of the first dimension on ``tiles[i]``. Returns the view."""
        return self.graph.map_rows(self, tiles)

    def map_linear(self, min_elements: int | None = None, grain: int | None = None, first_tile: int = 0) -> Self:
        """Spread the flattened view over all tiles in equal chunks. Returns the view.

        Args:
            min_elements: Smallest chunk; by default as many as 128 bytes hold.
            grain: Chunks are multiples of this; by default as many as 8 bytes hold.
            first_tile: Tile of the first chunk; later chunks follow in order and wrap around.
        """
        return self.graph.map_linear(self, min_elements, grain, first_tile)
