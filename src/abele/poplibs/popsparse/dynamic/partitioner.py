"""Partitioner: sparse matrices of the host as what is written to the device, and back.

>>> from abele.poplibs.popsparse import CSRMatrix
>>> params = DynamicMatMulParams.createWithNumNonZeroValues(SparsityParams(), 3, 1, 4, 4, 2)
>>> partitioner = DynamicPartitioner(params, "float", "bow")
>>> data = partitioner.createSparsityDataImpl(CSRMatrix(4, 4, [1, 2, 3], [1, 3, 0], [0, 2, 2, 3, 3]))
>>> partitioner.sparsityDataImplToCSRMatrix(data).to_dense()[0].tolist()
[0.0, 1.0, 0.0, 2.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import PatternMismatchError, SparseOverflowError, SparsePatternError, TypeMismatchError
from abele.numerics import ElementType, to_host
from abele.poplibs.popsparse.dynamic.buckets import PlacedBlocks, value_slots, write_meta
from abele.poplibs.popsparse.dynamic.cache import DynamicPlanningCache, plan_of
from abele.poplibs.popsparse.dynamic.params import SparseParams, SparsityParams
from abele.poplibs.popsparse.dynamic.placement import place_pattern
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.reading import read_meta
from abele.poplibs.popsparse.float8 import device_values
from abele.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix, SparseMatrixBase
from abele.poplibs.popsparse.target import Target
from abele.poplibs.poputil.options import Options
from abele.sparsity import Pattern

__all__ = ["BucketPlacement", "DynamicPartitioner", "SparsityData", "SparsityParams"]

Matrix = SparseMatrixBase | tuple[Pattern, npt.ArrayLike]
"""A matrix of the host: in one of PopLibs' formats, or a pattern and its values [blocks, *block]."""


@dataclass(frozen=True)
class SparsityData:
    """Arrays for the device.

    Attributes:
        metaInfo: Meta-info, u16; see :mod:`~abele.poplibs.popsparse.dynamic.buckets`.
        nzValues: Values in their slots, zeros in slots that hold nothing.
    """

    metaInfo: npt.NDArray[np.uint16]
    nzValues: Array


@dataclass(frozen=True, eq=False)
class BucketPlacement:
    """A pattern in the buckets of a plan.

    Attributes:
        plan: The plan.
        patterns: Pattern of each group, in the user's blocks.
        placed: Blocks of the device in their buckets.
        info: Overflow info.
        slots: Place in ``nzValues`` of each value of the patterns, groups one after the other, int64[values].
    """

    plan: DynamicPlan
    patterns: tuple[Pattern, ...]
    placed: PlacedBlocks
    info: Int64
    slots: Int64

    @cached_property
    def meta(self) -> npt.NDArray[np.uint16]:
        """The meta-info."""
        return write_meta(self.plan, self.placed, self.info)

    def pack(self, values: npt.ArrayLike) -> Array:
        """``nzValues`` of values in the order of the patterns.

        Raises:
            SparsePatternError: Another number of values.
            TypeMismatchError: A finite value that the type does not hold.
        """
        given = np.asarray(values).reshape(-1)
        if given.size != self.slots.size:
            raise SparsePatternError(f"{given.size:,} values for patterns that hold {self.slots.size:,}")
        packed = np.zeros(self.plan.num_values, self.plan.dtype.np)
        packed[self.slots] = device_values("nzValues", given, self.plan.dtype)
        return packed

    def unpack(self, packed: npt.ArrayLike) -> Array:
        """Values of the patterns' order from ``nzValues`` or a gradient of that layout."""
        return to_host(np.asarray(packed).reshape(-1)[self.slots], self.plan.dtype)

    @property
    def passes(self) -> int:
        """Passes of buckets round the grid that the program makes for this pattern, beyond the first."""
        px, py = self.plan.parts[:2]
        num_x, num_y = int(self.info[0]), int(self.info[1])
        return min(num_x * num_y, px * py) - 1


class DynamicPartitioner:
    """Places matrices of the host in the buckets of a plan, and reads them back.

    Args:
        params: Parameters of the product or layer, as given where the tensor was made.
        dataType: Type of the values on the device: ``half``, ``float`` or an 8-bit float.
        target: The machine: a name, a system, Poplar's target, or a graph.
        options: Options, as given where the tensor was made.
        cache: Plans; shared with the calls that make tensors, if any.
        name: Name for errors.

    Raises:
        InvalidOptionError: An option or value that there is not.
        SparsePatternError: The batch is off the grain.
    """

    def __init__(
        self,
        params: SparseParams,
        dataType: ElementType | str,
        target: Target,
        options: Options = None,
        cache: DynamicPlanningCache | None = None,
        name: str = "Partitioner",
    ) -> None:
        self.params = params
        self.plan = plan_of(name, params, dataType, target, options, cache)

    # PopLibs' names.

    def createSparsityDataImpl(self, matrix: Matrix | Sequence[Matrix]) -> SparsityData:
        """Meta-info and values of a matrix, or of one for each group.

        Raises:
            SparsePatternError: Sizes, blocks or number of matrices that are not the parameters'.
            SparseOverflowError: More values than declared, or more than buckets hold.
        """
        pairs = self._pairs(matrix)
        placement = self.place([pattern for pattern, _ in pairs])
        values = np.concatenate([np.asarray(v).reshape(-1) for _, v in pairs])
        return SparsityData(placement.meta, placement.pack(values))

    def sparsityDataImplToCSRMatrix(self, data: SparsityData, group: int = 0) -> CSRMatrix:
        """The matrix of a group by compressed rows."""
        return CSRMatrix.from_pattern(*self._group(data, group))

    def sparsityDataImplToCSCMatrix(self, data: SparsityData, group: int = 0) -> CSCMatrix:
        """The matrix of a group by compressed columns."""
        return CSCMatrix.from_pattern(*self._group(data, group))

    def sparsityDataImplToCOOMatrix(self, data: SparsityData, group: int = 0) -> COOMatrix:
        """The matrix of a group by coordinates."""
        return COOMatrix.from_pattern(*self._group(data, group))

    def getPlanPartitions(self) -> tuple[int, int, int]:
        """Parts of rows, columns and dense columns."""
        return self.plan.parts

    def getMetaInfoBucketElements(self) -> tuple[int, int]:
        """Entries of a bucket of the forward list, and of one of the list of columns."""
        return self.plan.meta_slots, self.plan.grad_a_slots

    # On patterns.

    def place(self, patterns: Pattern | Sequence[Pattern]) -> BucketPlacement:
        """The placement of a pattern, or of one for each group."""
        given = (patterns,) if isinstance(patterns, Pattern) else tuple(patterns)
        self._check(given)
        cut = [p.recut(self.plan.block) for p in given]
        placed, info = place_pattern(self.plan, [pattern for pattern, _ in cut])
        before = np.cumsum([0, *(p.num_values for p in given)])
        of_block = np.concatenate(
            [order.reshape((-1, self.plan.area)) + n for (_, order), n in zip(cut, before[:-1], strict=True)]
        )
        slots = np.empty(int(before[-1]), np.int64)
        at = value_slots(self.plan, placed)[:, None] * self.plan.area + np.arange(self.plan.area)
        slots[of_block[placed.source]] = at
        return BucketPlacement(self.plan, given, placed, info, slots)

    def read(self, data: SparsityData) -> list[tuple[Pattern, Array]]:
        """Pattern and values [blocks, *block] of each group, in the user's blocks.

        Raises:
            PatternMismatchError: The data are not of this plan.
        """
        layer, plan = self.plan.layer, self.plan
        if not isinstance(data, SparsityData):
            raise TypeMismatchError(
                f"meta-info and values are read from SparsityData, got {type(data).__name__}",
                remedy="SparsityData(metaInfo, nzValues)",
            )
        values = to_host(np.asarray(data.nzValues).reshape(-1), plan.dtype)
        if values.size != plan.num_values:
            raise PatternMismatchError(f"{values.size:,} values, this plan's buckets hold {plan.num_values:,}")
        group, row, column, slot = read_meta(plan, data.metaInfo)
        blocks, found = values.reshape((-1, *plan.block)), []
        for number in range(layer.numGroups):
            mine = group == number
            fine, order = Pattern.from_coordinates(layer.shape, row[mine], column[mine], plan.block)
            found.append(_joined(fine, blocks[slot[mine][order]], layer.sparsity.blockDimensions))
        return found

    def _group(self, data: SparsityData, group: int) -> tuple[Pattern, Array]:
        found = self.read(data)
        if group not in range(len(found)):
            raise SparsePatternError(f"there is no group {group!r}; the parameters have {len(found):,}, from 0")
        return found[group]

    def _pairs(self, matrix: Matrix | Sequence[Matrix]) -> list[tuple[Pattern, Array]]:
        if isinstance(matrix, SparseMatrixBase):
            return [matrix.with_sizes(self.plan.layer.shape).to_pattern()]
        if not isinstance(matrix, Sequence | np.ndarray):
            raise _no_matrix(matrix)
        items: Sequence[object] = matrix
        if len(items) == 2 and isinstance(items[0], Pattern):
            return [(items[0], np.asarray(items[1]))]
        pairs = []
        for item in items:
            if not isinstance(item, SparseMatrixBase | tuple):
                raise _no_matrix(item)
            pairs.extend(self._pairs(item))
        return pairs

    def _check(self, patterns: tuple[Pattern, ...]) -> None:
        layer = self.plan.layer
        if len(patterns) != layer.numGroups:
            raise SparsePatternError(f"{len(patterns):,} matrices for {layer.numGroups:,} groups")
        for pattern in patterns:
            if pattern.shape != layer.shape:
                raise SparsePatternError(
                    f"a matrix of {pattern.shape[0]:,} x {pattern.shape[1]:,}, declared were "
                    f"{layer.shape[0]:,} x {layer.shape[1]:,}"
                )
            if pattern.block != layer.sparsity.blockDimensions:
                raise SparsePatternError(
                    f"blocks of {pattern.block[0]} x {pattern.block[1]}, declared were "
                    f"{layer.sparsity.blockDimensions[0]} x {layer.sparsity.blockDimensions[1]}"
                )
        held, area = sum(p.num_values for p in patterns), layer.sparsity.area
        # What is declared is rounded up to whole blocks of each group, as the buckets are.
        if held > layer.numGroups * area * -(-layer.numNonZeroValues // (layer.numGroups * area)):
            raise SparseOverflowError(
                f"{held:,} values, declared were {layer.numNonZeroValues:,} ({layer.nzRatio:.3g} of the elements)",
                because="buckets are sized for what is declared, where the tensor is made",
                remedy=f"createWithNumNonZeroValues with {held:,} or more",
            )


def _no_matrix(given: object) -> TypeMismatchError:
    return TypeMismatchError(
        f"a sparse matrix is a COOMatrix, CSRMatrix or CSCMatrix, got {type(given).__name__}",
        remedy="CSRMatrix.from_dense(array) makes one of what is not zero; or (pattern, values)",
    )


def _joined(fine: Pattern, values: Array, block: tuple[int, int]) -> tuple[Pattern, Array]:
    """Pattern and values of blocks that were cut for the device, in the user's blocks."""
    if fine.block == block:
        return fine, values
    down, across = block[0] // fine.block[0], block[1] // fine.block[1]
    whole, at = np.unique(
        (fine.rows // down) * (fine.shape[1] // block[1]) + fine.columns // across, return_inverse=True
    )
    width = fine.shape[1] // block[1]
    pattern = Pattern.from_coordinates(fine.shape, whole // width, whole % width, block)[0]
    joined = np.zeros((len(whole), down, fine.block[0], across, fine.block[1]), values.dtype)
    joined[at, fine.rows % down, :, fine.columns % across, :] = values
    return pattern, joined.reshape((-1, *block))
