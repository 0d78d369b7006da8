"""Tensors by Poplar's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import IO, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from abele import graph as g
from abele.errors import InvalidOptionError, TensorIndexError
from abele.graph import Interval, Variable
from abele.numerics import ElementType

View = TypeVar("View", bound="Tensor")


class Shape(tuple[int, ...]):
    """A tensor's dimensions: ``t.shape`` and, in Poplar's way, ``t.shape()``."""

    __slots__ = ()

    def __call__(self) -> Shape:
        """The dimensions."""
        return self


class UpsampleMethod(Enum):
    """Method of making a tensor larger: only repetition needs no arithmetic."""

    REPEAT = "repeat"


class VariableInterval(NamedTuple):
    """A range of elements of one variable.

    Attributes:
        var: The variable.
        interval: Elements of its row-major order.
    """

    var: Variable
    interval: Interval


class Tensor(g.Tensor):
    """A view with Poplar's names beside those of :class:`abele.Tensor`; so have its variable and its views.

    ``t.shape`` is a tuple that may also be called, so ``t.shape`` and ``t.shape()`` are the same.
    """

    __slots__ = ()

    shape: Shape
    shape_type: ClassVar[type[tuple[int, ...]]] = Shape

    # --- shape -------------------------------------------------------------------------------------------------------

    def dim(self, i: int) -> int:
        """Extent of dimension ``i``."""
        return self.shape[self.checked_dim(i)]

    def rank(self) -> int:
        """Number of dimensions."""
        return self.ndim

    def numElements(self) -> int:
        """Number of elements."""
        return self.size

    def elementType(self) -> ElementType:
        """Type of an element."""
        return self.dtype

    def shapeToString(self) -> str:
        """The shape as text, as in ``{4, 5}``."""
        return "{" + ", ".join(map(str, self.shape)) + "}"

    def valid(self) -> bool:
        """True: a tensor that was never set is ``None`` in Python."""
        return True

    # --- views -------------------------------------------------------------------------------------------------------

    def slice(self, begin: Any, end: Any = None, dim: int = 0) -> Self:
        """The view of indices ``[begin, end)`` along ``dim``.

        Also ``slice(Interval, dim)``, and ``slice(begins, ends)`` with a pair for each leading dimension.

        Raises:
            TensorIndexError: The interval is not inside the dimension.
        """
        if isinstance(begin, (tuple, list)):
            return _slice_of(self, begin, end, dim)
        return super().slice(begin, end, dim)

    def index(self, indices: Sequence[int]) -> Self:
        """The view at one index of each leading dimension."""
        return self[tuple(indices)]

    def slices(self, intervals: Iterable[Any], dim: int = 0) -> list[Self]:
        """A view for each interval of ``dim``; for a list of intervals, of all of them after each other."""
        result: list[Self] = []
        for item in intervals:
            parts = [item] if len(item) == 2 and isinstance(item[0], (int, np.integer)) else list(item)
            views = [self.slice(int(begin), int(end), dim) for begin, end in parts]
            result.append(g.concat(views, dim) if views else self.slice(0, 0, dim))
        return result

    def reshapePartial(self, begin: int, end: int, shape: Sequence[int]) -> Self:
        """The view with dimensions ``[begin, end)`` replaced by ``shape``."""
        return self.reshape_partial(begin, end, shape)

    def expand(self, dims: Iterable[int]) -> Self:
        """The view with a dimension of one index before each of the listed ones; the rank itself means at the end.

        Raises:
            TensorIndexError: A dimension beyond the rank.
        """
        result = self
        for added, dim in enumerate(sorted(int(d) for d in dims)):
            if not 0 <= dim <= self.ndim:
                raise TensorIndexError(f"{self!r} has no dimension {dim} to expand before")
            result = result.expand_dims(dim + added)
        return result

    def dimShuffle(self, permutation: Sequence[int]) -> Self:
        """The view whose dimension i is dimension ``permutation[i]`` of this one."""
        return self.transpose(list(permutation)) if self.ndim else self

    def dimShufflePartial(self, source: Sequence[int], destination: Sequence[int]) -> Self:
        """The view with dimension ``source[i]`` moved to ``destination[i]``; the others keep their order."""
        return self.dim_shuffle_partial(source, destination)

    def dimRoll(self, dimIdx: int, newIdx: int = 0) -> Self:
        """The view with dimension ``dimIdx`` moved to ``newIdx``."""
        return self.dim_roll(dimIdx, newIdx)

    def subSample(self, stride: int, dim: int) -> Self:
        """The view of every ``stride``-th index of ``dim``, the first included."""
        return self.sub_sample(stride, dim)

    def upsample(self, scale: int, dim: int, method: UpsampleMethod = UpsampleMethod.REPEAT) -> Self:
        """The view with each index of ``dim`` repeated ``scale`` times in a row; it aliases.

        Raises:
            InvalidOptionError: Another method, or a negative scale.
        """
        if method is not UpsampleMethod.REPEAT or scale < 0:
            raise InvalidOptionError(f"upsample by {scale} with {method}", remedy="0 or more, UpsampleMethod.REPEAT")
        return self.repeat(scale, dim)

    # --- what a view shows -------------------------------------------------------------------------------------------

    def isContiguous(self) -> bool:
        """True if the flattened view is one interval of one variable."""
        return self.is_contiguous

    def isParallelWriteable(self) -> bool:
        """True if no element is constant or shown twice."""
        return self.writable

    def containsAliases(self) -> bool:
        """True if an element is shown more than once."""
        return self.contains_aliases

    def containsConstant(self) -> bool:
        """True if an element belongs to a constant."""
        return self.contains_constant

    def intersectsWith(self, other: g.Tensor) -> bool:
        """True if the two views share an element."""
        return self.overlaps(other)

    def getContiguousRegions(self) -> list[Interval]:
        """Intervals of the flattened view that are contiguous in one variable each."""
        return self.contiguous_regions()

    def getVarRegions(self) -> list[VariableInterval]:
        """The variables and elements that the flattened view shows, in order."""
        return [VariableInterval(variable, interval) for variable, interval in self.var_regions()]

    # --- text --------------------------------------------------------------------------------------------------------

    def getDebugStr(self) -> str:
        """Poplar's name for :meth:`Tensor.debug_str`."""
        return self.debug_str()

    def dump(self) -> str:
        """Poplar's name for :meth:`Tensor.text`."""
        return self.text()

    def outputRegions(self, os: IO[str]) -> None:
        """Write :meth:`Tensor.text` to a file."""
        print(self.text(), file=os)


def _slice_of(tensor: View, begin: Any, end: Any, dim: int) -> View:
    """``slice(Interval, dim)`` or ``slice(begins, ends)``, one pair per leading dimension."""
    if isinstance(begin, Interval):
        return tensor.slice(begin[0], begin[1], dim if end is None else end)
    begins, ends = list(begin), list(end)
    if len(begins) != len(ends) or len(begins) > tensor.ndim:
        raise TensorIndexError(
            f"slice from {begins} to {ends} of {tensor!r}: one begin and one end for each of up to {tensor.ndim} "
            "dimensions"
        )
    result = tensor
    for d, (low, high) in enumerate(zip(begins, ends, strict=True)):
        result = result.slice(int(low), int(high), d)
    return result
