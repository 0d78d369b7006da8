"""Parameters of dynamic sparse products: block, number of values that a matrix may hold, and sizes.

Example: ``MatMulParams.createWithNzRatio(SparsityParams(), 0.1, 1, 100, 200, 32)`` is a sparse matrix of 100 × 200 with
at most ⌈0.1 · 20,000⌉ = 2,000 values, times a dense one of 200 × 32.
"""

from __future__ import annotations

import enum
import math
import numbers
from dataclasses import dataclass
from typing import Self

from abele.errors import InvalidOptionError, SparsePatternError, TypeMismatchError
from abele.sparsity import whole_pair, whole_sizes


class SparseGetters:
    """PopLibs' getters of what parameters of both kinds have."""

    sparsity: SparsityParams
    numNonZeroValues: int
    numGroups: int

    def getSparsityParams(self) -> SparsityParams:
        """Block of the sparse matrix."""
        return self.sparsity

    def getNumNonZeroValues(self) -> int:
        """Values of the matrices of all groups together, at most."""
        return self.numNonZeroValues

    def getNumGroups(self) -> int:
        """Independent products."""
        return self.numGroups

    def getNzRatio(self) -> float:
        """Share of the elements that may be held."""
        return self.nzRatio

    @property
    def nzRatio(self) -> float:
        """Share of the elements that may be held."""
        rows, columns = self.shape
        return self.numNonZeroValues / (self.numGroups * rows * columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a group's sparse matrix."""
        raise NotImplementedError


class SparsityType(enum.Enum):
    """Granularity of a pattern: single elements or blocks."""

    Element = "element"
    Block = "block"


class SparsityStructure(enum.Enum):
    """Structure that patterns promise to have: none."""

    Unstructured = "unstructured"


@dataclass(frozen=True)
class SparsityParams:
    """Block of a sparse matrix.

    Attributes:
        type: Follows from the block; what is given is replaced.
        structure: ``SparsityStructure.Unstructured``.
        blockDimensions: Rows and columns of a block, in elements.

    Raises:
        SparsePatternError: The block is not two whole numbers of at least 1.
    """

    type: SparsityType = SparsityType.Element
    structure: SparsityStructure = SparsityStructure.Unstructured
    blockDimensions: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        block = whole_pair("a block", self.blockDimensions)
        if min(block) < 1:
            raise SparsePatternError(f"a block has rows and columns, at least 1 each, got {self.blockDimensions!r}")
        object.__setattr__(self, "blockDimensions", block)
        kind = SparsityType.Element if block == (1, 1) else SparsityType.Block
        object.__setattr__(self, "type", kind)

    @property
    def area(self) -> int:
        """Values of a block."""
        return self.blockDimensions[0] * self.blockDimensions[1]


@dataclass(frozen=True)
class DynamicFullyConnectedParams(SparseGetters):
    """Sizes of a layer whose weights [out channels, in channels] are sparse.

    Attributes:
        sparsity: Block of the weights.
        numNonZeroValues: Values of the weights of all groups together, at most.
        batchSize: Rows of the dense input.
        numGroups: Independent layers side by side.
        inputChannelsPerGroup: Columns of the weights of a group.
        outputChannelsPerGroup: Rows of the weights of a group.

    Raises:
        SparsePatternError: A size below 1, sizes off the block, or more values than elements.
    """

    sparsity: SparsityParams
    numNonZeroValues: int
    batchSize: int
    numGroups: int
    inputChannelsPerGroup: int
    outputChannelsPerGroup: int

    def __post_init__(self) -> None:
        _check_sparsity(self.sparsity)
        for field in (
            "numNonZeroValues",
            "batchSize",
            "numGroups",
            "inputChannelsPerGroup",
            "outputChannelsPerGroup",
        ):
            object.__setattr__(self, field, whole_sizes(field, (getattr(self, field),))[0])
        sizes = {
            "batch": self.batchSize,
            "groups": self.numGroups,
            "in channels": self.inputChannelsPerGroup,
            "out channels": self.outputChannelsPerGroup,
        }
        for what, size in sizes.items():
            if size < 1:
                raise SparsePatternError(f"{what} of a sparse product are at least 1, got {size}")
        rows, columns = self.sparsity.blockDimensions
        for what, size, part in (
            ("rows (out channels)", self.outputChannelsPerGroup, rows),
            ("columns (in channels)", self.inputChannelsPerGroup, columns),
        ):
            if size % part:
                raise SparsePatternError(
                    f"{size:,} {what} are no multiple of a block's {part:,}",
                    remedy=f"{size - size % part:,} or {size + part - size % part:,}, or a block that divides them",
                )
        if not 0 <= self.numNonZeroValues <= self.dense_size:
            raise SparsePatternError(
                f"{self.numNonZeroValues:,} values are declared for {self.dense_size:,} elements",
                because=f"{self.numGroups:,} groups of {self.outputChannelsPerGroup:,} x "
                f"{self.inputChannelsPerGroup:,} elements",
            )

    @classmethod
    def createWithNzRatio(
        cls,
        sparsityParams: SparsityParams,
        nzRatio: float,
        batchSize: int,
        numGroups: int,
        inputChannels: int,
        outputChannels: int,
    ) -> Self:
        """Parameters with ⌈ratio · elements⌉ values; channels are those of a group."""
        size = math.prod(whole_sizes("groups and channels", (numGroups, inputChannels, outputChannels)))
        return cls(sparsityParams, _count(nzRatio, size), batchSize, numGroups, inputChannels, outputChannels)

    @classmethod
    def createWithNumNonZeroValues(
        cls,
        sparsityParams: SparsityParams,
        numNonZeroValues: int,
        batchSize: int,
        numGroups: int,
        inputChannels: int,
        outputChannels: int,
    ) -> Self:
        """Parameters with a number of values of all groups; channels are those of a group."""
        return cls(sparsityParams, numNonZeroValues, batchSize, numGroups, inputChannels, outputChannels)

    @property
    def dense_size(self) -> int:
        """Elements of the weights of all groups, as if dense."""
        return self.numGroups * self.inputChannelsPerGroup * self.outputChannelsPerGroup

    def getBatchSize(self) -> int:
        """Rows of the dense input."""
        return self.batchSize

    def getInputChannelsPerGroup(self) -> int:
        """Columns of the weights of a group."""
        return self.inputChannelsPerGroup

    def getOutputChannelsPerGroup(self) -> int:
        """Rows of the weights of a group."""
        return self.outputChannelsPerGroup

    def getInputChannels(self) -> int:
        """Channels in of all groups."""
        return self.numGroups * self.inputChannelsPerGroup

    def getOutputChannels(self) -> int:
        """Channels out of all groups."""
        return self.numGroups * self.outputChannelsPerGroup

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a group's sparse matrix."""
        return self.outputChannelsPerGroup, self.inputChannelsPerGroup


@dataclass(frozen=True)
class DynamicMatMulParams(SparseGetters):
    """Sizes of a product [groups, m, k] · [groups, k, n] whose left side is sparse.

    Attributes:
        sparsity: Block of the sparse matrix.
        numNonZeroValues: Values of the matrices of all groups together, at most.
        numGroups: Independent products.
        m: Rows of the sparse matrix.
        k: Columns of the sparse matrix.
        n: Columns of the dense matrix.

    Raises:
        SparsePatternError: A size below 1, sizes off the block, or more values than elements.
    """

    sparsity: SparsityParams
    numNonZeroValues: int
    numGroups: int
    m: int
    k: int
    n: int

    def __post_init__(self) -> None:
        _check_sparsity(self.sparsity)
        for field in ("numNonZeroValues", "numGroups", "m", "k", "n"):
            object.__setattr__(self, field, whole_sizes(field, (getattr(self, field),))[0])
        _ = self.as_layer

    @classmethod
    def createWithNzRatio(
        cls, sparsityParams: SparsityParams, nzRatio: float, numGroups: int, m: int, k: int, n: int
    ) -> Self:
        """Parameters with ⌈ratio · elements⌉ values."""
        size = math.prod(whole_sizes("groups, m and k", (numGroups, m, k)))
        return cls(sparsityParams, _count(nzRatio, size), numGroups, m, k, n)

    @classmethod
    def createWithNumNonZeroValues(
        cls, sparsityParams: SparsityParams, numNonZeroValues: int, numGroups: int, m: int, k: int, n: int
    ) -> Self:
        """Parameters with a number of values of all groups."""
        return cls(sparsityParams, numNonZeroValues, numGroups, m, k, n)

    @property
    def as_layer(self) -> DynamicFullyConnectedParams:
        """The layer with the same product: out channels are rows, in channels columns, the batch the dense columns."""
        return DynamicFullyConnectedParams(self.sparsity, self.numNonZeroValues, self.n, self.numGroups, self.k, self.m)

    def getM(self) -> int:
        """Rows of the sparse matrix."""
        return self.m

    def getK(self) -> int:
        """Columns of the sparse matrix."""
        return self.k

    def getN(self) -> int:
        """Columns of the dense matrix."""
        return self.n

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a group's sparse matrix."""
        return self.m, self.k


SparseParams = DynamicMatMulParams | DynamicFullyConnectedParams
"""Parameters of either kind."""


def layer_of(params: SparseParams) -> DynamicFullyConnectedParams:
    """The layer that parameters of either kind stand for.

    Raises:
        TypeMismatchError: They are of no kind.
    """
    if not isinstance(params, SparseGetters):
        raise TypeMismatchError(
            f"parameters of a dynamic sparse product are MatMulParams or FullyConnectedParams, got {params!r}",
            remedy="popsparse.dynamic's; those of static_ are others",
        )
    return params.as_layer if isinstance(params, DynamicMatMulParams) else params


def _check_sparsity(sparsity: object) -> None:
    if not isinstance(sparsity, SparsityParams):
        raise TypeMismatchError(f"the first of parameters is SparsityParams, got {sparsity!r}")


def _count(ratio: float, size: int) -> int:
    if isinstance(ratio, bool) or not isinstance(ratio, numbers.Real) or not 0 <= ratio <= 1:
        raise InvalidOptionError(f"a share of values that are held is between 0 and 1, got {ratio!r}")
    return math.ceil(round(ratio * size, 6))
