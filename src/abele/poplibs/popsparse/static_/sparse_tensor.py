"""Sparse tensors of static products, and the partitioner that fills and reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import PatternMismatchError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.machine import System
from abele.numerics import ElementType, to_host
from abele.poplibs.popsparse.float8 import device_values
from abele.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix, SparseMatrixBase
from abele.poplibs.popsparse.static_.cut import cut_pattern
from abele.poplibs.popsparse.static_.explain import StaticPlanningCache
from abele.poplibs.popsparse.static_.layout import StaticLayout
from abele.poplibs.popsparse.static_.params import (
    StaticMatMulParams,
    StaticOptions,
    checked_block,
    checked_type,
)
from abele.poplibs.popsparse.target import Target, system_of
from abele.poplibs.poputil.options import Options
from abele.sparsity import Pattern

AnyMatrix = COOMatrix | CSCMatrix | CSRMatrix | Pattern
"""Something with a pattern."""


def pattern_of(matrix: AnyMatrix, shape: tuple[int, int]) -> Pattern:
    """The pattern of a matrix, or itself; ``shape`` is that of a matrix without sizes."""
    if not isinstance(matrix, SparseMatrixBase | Pattern):
        raise TypeMismatchError(
            f"a sparse matrix is a COOMatrix, CSRMatrix or CSCMatrix, got {type(matrix).__name__}",
            remedy="CSRMatrix.from_dense(array) makes one of what is not zero",
        )
    return matrix if isinstance(matrix, Pattern) else matrix.with_sizes(shape).pattern


@dataclass(frozen=True, eq=False)
class StaticLayouts:
    """Layout of one product, and what it was made for.

    Attributes:
        name: Call that asks for it.
        params: Sizes.
        pattern: Pattern of the sparse operand, as its owner sees it.
        layout: Placement; of the transpose where the sparse operand is the right one.
        order: Block of ``pattern`` for each block of the layout's, int64[blocks]; None where they are alike.
    """

    name: str
    params: StaticMatMulParams
    pattern: Pattern
    layout: StaticLayout
    order: Int64 | None

    @staticmethod
    def find(
        name: str,
        graph: Graph,
        dtype: ElementType,
        *,
        params: StaticMatMulParams,
        matrix: AnyMatrix,
        options: StaticOptions,
        cache: StaticPlanningCache | None,
    ) -> StaticLayouts:
        """The layout of a product.

        Raises:
            PatternMismatchError: The matrix has another shape than the parameters say.
            OutOfMemoryError: No plan fits.
        """
        pattern = pattern_of(matrix, params.sparse_shape)
        if pattern.shape != params.sparse_shape:
            wanted = " x ".join(f"{size:,}" for size in params.sparse_shape)
            raise PatternMismatchError(f"{name}: {pattern} is no sparse operand of {wanted}", because=f"{params}")
        checked_block(name, pattern.block, dtype)
        order = None
        planned = pattern
        if not params.sparse_first:
            planned, order = pattern.transposed()
        plan = (cache or StaticPlanningCache()).plan(graph, dtype, planned, params.n, options)
        cut = cut_pattern(planned, plan.bands, plan.tiles, preprocesses=options.preprocesses)
        return StaticLayouts(name, params, pattern, StaticLayout(planned, plan, cut, params.n, dtype), order)

    def to_device(self, values: Array) -> Array:
        """Values [blocks, *block] in the pattern's order, in the device's, flat."""
        if self.order is None:
            return values.reshape(-1)
        return np.ascontiguousarray(values[self.order].transpose((0, 2, 1))).reshape(-1)

    def from_device(self, values: Array) -> Array:
        """Values in the device's order as [blocks, *block] in the pattern's."""
        if self.order is None:
            return values.reshape((-1, *self.pattern.block))
        found = np.empty((self.pattern.num_blocks, *self.pattern.block), values.dtype)
        found[self.order] = values.reshape((-1, *self.pattern.block)).transpose((0, 2, 1))
        return found


@dataclass(frozen=True, eq=False)
class StaticSparseTensor:
    """Sparse operand of a static product: the values, and the product that they were laid out for.

    Attributes:
        nzValues: Values on the device, in its order [values].
        layouts: Placement.
        options: Options that it was created with.
        system: Machine of its graph.
    """

    nzValues: Tensor
    layouts: StaticLayouts
    options: StaticOptions
    system: System = field(repr=False)

    def getNzValuesTensor(self) -> Tensor:
        """The values."""
        return self.nzValues

    @property
    def dtype(self) -> ElementType:
        """Element type of the values."""
        return self.nzValues.dtype

    @property
    def pattern(self) -> Pattern:
        """The pattern, as its owner sees it."""
        return self.layouts.pattern

    @property
    def shape(self) -> tuple[int, int, int]:
        """Groups, rows and columns."""
        return (1, *self.pattern.shape)


class StaticPartitioner:
    """Orders values for the device and back; the pattern of the first matrix is the only one that it takes.

    Args:
        params: Sizes of the product.
        dtype: Element type on the device.
        target: The machine: a name, a system, Poplar's target, or a graph.
        options: Options of the product.
        cache: Cache of plans.
        name: Name for errors.
    """

    def __init__(
        self,
        params: StaticMatMulParams,
        dtype: ElementType | str,
        target: Target,
        options: Options = None,
        cache: StaticPlanningCache | None = None,
        name: str = "Partitioner",
    ) -> None:
        if not isinstance(params, StaticMatMulParams):
            raise TypeMismatchError(f"{name}: parameters of a static product are static_.MatMulParams, got {params!r}")
        self.params, self.name = params, name
        self._graph = target if isinstance(target, Graph) else Graph(system_of(target))
        self.dtype = checked_type(name, dtype, self._graph.system)
        self.options = StaticOptions.read(name, options)
        self._cache = cache or StaticPlanningCache()
        self._layouts: StaticLayouts | None = None

    def createSparsityDataImpl(self, matrix: AnyMatrix) -> Array:
        """The values of a matrix as the device wants them.

        Raises:
            PatternMismatchError: A matrix of another shape, or of another pattern than the first.
            TypeMismatchError: A finite value that the type does not hold.
        """
        layouts = self._found(matrix)
        if isinstance(matrix, Pattern):
            raise TypeMismatchError(f"{self.name}: a pattern has no values", remedy="CSRMatrix.from_pattern(p, values)")
        return device_values(
            self.name, layouts.to_device(matrix.with_sizes(self.params.sparse_shape).values), self.dtype
        )

    def sparsityDataImplToCSRMatrix(self, values: npt.ArrayLike) -> CSRMatrix:
        """Values of the device as compressed rows."""
        return CSRMatrix.from_pattern(*self._back(values))

    def sparsityDataImplToCSCMatrix(self, values: npt.ArrayLike) -> CSCMatrix:
        """Values of the device as compressed columns."""
        return CSCMatrix.from_pattern(*self._back(values))

    def sparsityDataImplToCOOMatrix(self, values: npt.ArrayLike) -> COOMatrix:
        """Values of the device by coordinates."""
        return COOMatrix.from_pattern(*self._back(values))

    def _found(self, matrix: AnyMatrix) -> StaticLayouts:
        pattern = pattern_of(matrix, self.params.sparse_shape)
        if self._layouts is None:
            self._layouts = StaticLayouts.find(
                self.name,
                self._graph,
                self.dtype,
                params=self.params,
                matrix=pattern,
                options=self.options,
                cache=self._cache,
            )
        known = self._layouts.pattern
        if known != pattern:
            raise PatternMismatchError(
                f"{self.name}: {pattern} is not the pattern of the matrix before",
                because=f"a static product is compiled for one pattern; {known.difference_text(pattern)}",
                remedy="another Partitioner and program, or popsparse.dynamic, whose pattern may change",
            )
        return self._layouts

    def _back(self, values: npt.ArrayLike) -> tuple[Pattern, Array]:
        if self._layouts is None:
            raise PatternMismatchError(
                f"{self.name}: there was no matrix yet, so the pattern of these values is unknown",
                remedy="createSparsityDataImpl(matrix) first",
            )
        given = to_host(np.asarray(values), self.dtype)
        if given.size != self._layouts.pattern.num_values:
            raise PatternMismatchError(
                f"{self.name}: {given.size:,} values do not fill {self._layouts.pattern}",
                because=f"it holds {self._layouts.pattern.num_values:,} values",
            )
        return self._layouts.pattern, self._layouts.from_device(given)
