"""Poplar's names for what a tensor can do, so that a C++ program ports line by line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from abele.errors import InvalidOptionError, TensorIndexError
from abele.graph.intervals import Interval
from abele.numerics import ElementType

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor
    from abele.graph.variable import Variable


class Shape(tuple[int, ...]):
    """A tensor's dimensions: ``t.shape`` and, in Poplar's way, ``t.shape()``."""

    __slots__ = ()

    def __call__(self) -> Shape:
        """The dimensions."""
        return self


class UpsampleMethod(Enum):
    """How a tensor is made larger: only repetition needs no arithmetic."""

    REPEAT = "repeat"


class VariableInterval(NamedTuple):
    """A range of elements of one variable.

    Attributes:
        var: The variable.
        interval: Elements of its row-major order.
    """

    var: Variable
    interval: Interval


class TensorNames:
    """Mix-in of :class:`Tensor`: each method is Poplar's name for something that a tensor can do."""

    __slots__ = ()

    # --- shape -------------------------------------------------------------------------------------------------------

    def dim(self: Tensor, i: int) -> int:  # type: ignore[misc]
        """Extent of dimension ``i``."""
        return self.shape[self._dim(i)]

    def rank(self: Tensor) -> int:  # type: ignore[misc]
        """Number of dimensions."""
        return self.ndim

    def numElements(self: Tensor) -> int:  # type: ignore[misc]
        """Number of elements."""
        return self.size

    def elementType(self: Tensor) -> ElementType:  # type: ignore[misc]
        """Type of an element."""
        return self.dtype

    def shapeToString(self: Tensor) -> str:  # type: ignore[misc]
        """The shape as text, as in ``{4, 5}``."""
        return "{" + ", ".join(map(str, self.shape)) + "}"

    def valid(self: Tensor) -> bool:  # type: ignore[misc]
        """True: a tensor that was never set is ``None`` in Python."""
        return True

    # --- views -------------------------------------------------------------------------------------------------------

    def _slice_of(self: Tensor, begin: Any, end: Any, dim: Any) -> Tensor:  # type: ignore[misc]
        """``slice(Interval, dim)`` or ``slice(begins, ends)``, one pair a leading dimension."""
        if isinstance(begin, Interval):
            return self.slice(begin[0], begin[1], dim if end is None else end)
        begins, ends = list(begin), list(end)
        if len(begins) != len(ends) or len(begins) > self.ndim:
            raise TensorIndexError(
                f"slice from {begins} to {ends} of {self!r}: one begin and one end for each of up to {self.ndim} "
                "dimensions"
            )
        result = self
        for d, (low, high) in enumerate(zip(begins, ends, strict=True)):
            result = result.slice(int(low), int(high), d)
        return result

    def index(self: Tensor, indices: Sequence[int]) -> Tensor:  # type: ignore[misc]
        """The view at one index of each leading dimension."""
        return self[tuple(indices)]

    def slices(self: Tensor, intervals: Iterable[Any], dim: int = 0) -> list[Tensor]:  # type: ignore[misc]
        """A view for each interval of ``dim``; for a list of intervals, of all of them after each other."""
        from abele.graph.tensor import concat

        result = []
        for item in intervals:
            parts = [item] if len(item) == 2 and isinstance(item[0], (int, np.integer)) else list(item)
            views = [self.slice(int(begin), int(end), dim) for begin, end in parts]
            result.append(concat(views, dim) if views else self.slice(0, 0, dim))
        return result

    def reshapePartial(self: Tensor, begin: int, end: int, shape: Sequence[int]) -> Tensor:  # type: ignore[misc]
        """The view with dimensions ``[begin, end)`` replaced by ``shape``."""
        return self.reshape_partial(begin, end, shape)

    def expand(self: Tensor, dims: Iterable[int]) -> Tensor:  # type: ignore[misc]
        """The view with a dimension of one index before each of the listed ones; the rank itself means at the end."""
        result = self
        for added, dim in enumerate(sorted(int(d) for d in dims)):
            if not 0 <= dim <= self.ndim:
                raise TensorIndexError(f"{self!r} has no dimension {dim} to expand before")
            result = result.expand_dims(dim + added)
        return result

    def dimShuffle(self: Tensor, permutation: Sequence[int]) -> Tensor:  # type: ignore[misc]
        """The view whose dimension i is dimension ``permutation[i]`` of this one."""
        return self.transpose(list(permutation)) if self.ndim else self

    def dimShufflePartial(  # type: ignore[misc]
        self: Tensor, source: Sequence[int], destination: Sequence[int]
    ) -> Tensor:
        """The view with dimension ``source[i]`` moved to ``destination[i]``; the others keep their order."""
        return self.dim_shuffle_partial(source, destination)

    def dimRoll(self: Tensor, dimIdx: int, newIdx: int = 0) -> Tensor:  # type: ignore[misc]
        """The view with dimension ``dimIdx`` moved to ``newIdx``."""
        return self.dim_roll(dimIdx, newIdx)

    def subSample(self: Tensor, stride: int, dim: int) -> Tensor:  # type: ignore[misc]
        """The view of every ``stride``-th index of ``dim``, the first included."""
        return self.sub_sample(stride, dim)

    def upsample(  # type: ignore[misc]
        self: Tensor, scale: int, dim: int, method: UpsampleMethod = UpsampleMethod.REPEAT
    ) -> Tensor:
        """The view with each index of ``dim`` repeated ``scale`` times in a row; it aliases.

        Raises:
            InvalidOptionError: Another method, or a negative scale.
        """
        if method is not UpsampleMethod.REPEAT or scale < 0:
            raise InvalidOptionError(f"upsample by {scale} with {method}", remedy="0 or more, UpsampleMethod.REPEAT")
        return self.repeat(scale, dim)

    # --- what a view shows -------------------------------------------------------------------------------------------

    def isContiguous(self: Tensor) -> bool:  # type: ignore[misc]
        """Whether the flattened view is one interval of one variable."""
        return self.is_contiguous

    def isParallelWriteable(self: Tensor) -> bool:  # type: ignore[misc]
        """Whether no element is constant or shown twice."""
        return self.writable

    def containsAliases(self: Tensor) -> bool:  # type: ignore[misc]
        """Whether an element is shown more than once."""
        return self.contains_aliases

    def containsConstant(self: Tensor) -> bool:  # type: ignore[misc]
        """Whether an element belongs to a constant."""
        return self.contains_constant

    def intersectsWith(self: Tensor, other: Tensor) -> bool:  # type: ignore[misc]
        """Whether the two views share an element."""
        return self.overlaps(other)

    def getContiguousRegions(self: Tensor) -> list[Interval]:  # type: ignore[misc]
        """Intervals of the flattened view that are contiguous in one variable each."""
        return self.contiguous_regions()

    def getVarRegions(self: Tensor) -> list[VariableInterval]:  # type: ignore[misc]
        """The variables and elements that the flattened view shows, in order."""
        return [VariableInterval(variable, interval) for variable, interval in self.var_regions()]

    # --- text --------------------------------------------------------------------------------------------------------

    def getDebugStr(self: Tensor) -> str:  # type: ignore[misc]
        """Poplar's name for :meth:`Tensor.debug_str`."""
        return self.debug_str()

    def dump(self: Tensor) -> str:  # type: ignore[misc]
        """Poplar's name for :meth:`Tensor.text`."""
        return self.text()

    def outputRegions(self: Tensor, os: IO[str]) -> None:  # type: ignore[misc]
        """Write :meth:`Tensor.text` to a file."""
        print(self.text(), file=os)
