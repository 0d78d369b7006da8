"""Parameters and options of static sparse products, by PopLibs' names."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import SparsePatternError, TypeMismatchError, UnsupportedOpError
from abele.machine import System
from abele.numerics import ElementType, as_element_type, f16, f32
from abele.poplibs.popsparse.float8 import check_chip
from abele.poplibs.poputil.options import PROPORTION, Options, flag, integer, read_options
from abele.sparsity import whole_sizes

STATIC_OPTIONS = {
    "availableMemoryProportion": PROPORTION,
    "numBands": integer(0, 0, doc="Bands of columns of the sparse matrix; 0 to search."),
    "nSplit": integer(0, 0, doc="Parts of the dense columns; 0 to search."),
    "enablePreprocessing": flag(True, doc="Rows and columns with few values go last, and are no part of estimates."),
    "verboseLogging": flag(False, doc="Warns with the plan's terms."),
}
"""Options of :mod:`abele.poplibs.popsparse.static_`. Source: popsparse.md §6."""
BLOCKS = (1, 4, 8, 16)
"""Sides of blocks with a vertex. Source: popsparse.md §6."""
QUARTER_BLOCKS = (8, 16)
"""The same of 8-bit floats: a row of a smaller block fills no word of the matrix units' input. Source: derived."""


@dataclass(frozen=True)
class StaticMatMulParams:
    """Sizes of a product; ``m`` rows of the sparse matrix's view, ``k`` that are summed, ``n`` of the dense one.

    Attributes:
        numGroups: Products side by side; only 1.
        m: Rows of the result of sparse by dense, columns of that of dense by sparse.
        k: Elements that are summed.
        n: Columns of the result of sparse by dense, rows of that of dense by sparse.
        sparse_first: True for sparse [m, k] by dense [k, n], False for dense [n, k] by sparse [k, m].
    """

    numGroups: int
    m: int
    k: int
    n: int
    sparse_first: bool = True

    def __post_init__(self) -> None:
        for field in ("numGroups", "m", "k", "n"):
            object.__setattr__(self, field, whole_sizes(field, (getattr(self, field),))[0])
        if self.numGroups != 1:
            raise UnsupportedOpError(
                f"a static sparse product has one group, got {self.numGroups:,}",
                remedy="one product for each group; popsparse.dynamic has groups",
            )
        if min(self.m, self.k, self.n) < 1:
            raise SparsePatternError(f"sizes of a product are at least 1, got m {self.m}, k {self.k}, n {self.n}")

    @staticmethod
    def createForSparseDense(numGroups: int, m: int, k: int, n: int) -> StaticMatMulParams:
        """Sparse [groups, m, k] by dense [groups, k, n]."""
        return StaticMatMulParams(numGroups, m, k, n)

    @staticmethod
    def createForDenseSparse(numGroups: int, n: int, k: int, m: int) -> StaticMatMulParams:
        """Dense [groups, n, k] by sparse [groups, k, m]."""
        return StaticMatMulParams(numGroups, m, k, n, sparse_first=False)

    def getNumGroups(self) -> int:
        """Products side by side."""
        return self.numGroups

    def getM(self) -> int:
        """Rows of the result of sparse by dense, columns of that of dense by sparse."""
        return self.m

    def getK(self) -> int:
        """Elements that are summed."""
        return self.k

    def getN(self) -> int:
        """Columns of the result of sparse by dense, rows of that of dense by sparse."""
        return self.n

    @property
    def sparse_shape(self) -> tuple[int, int]:
        """Shape of the sparse operand."""
        return (self.m, self.k) if self.sparse_first else (self.k, self.m)

    @property
    def dense_shape(self) -> tuple[int, int, int]:
        """Shape of the dense operand, with the group."""
        return (1, self.k, self.n) if self.sparse_first else (1, self.n, self.k)


@dataclass(frozen=True)
class StaticOptions:
    """Options of one call.

    Attributes:
        proportion: Share of a tile's memory for what is there for a time.
        bands: Bands of columns; 0 to search.
        splits: Parts of the dense columns; 0 to search.
        preprocesses: True to leave rows and columns with few values out of estimates.
        verbose: True to warn with the plan.
    """

    proportion: float = PROPORTION.default
    bands: int = 0
    splits: int = 0
    preprocesses: bool = True
    verbose: bool = False

    @staticmethod
    def read(function: str, options: Options) -> StaticOptions:
        """Options as given.

        Raises:
            InvalidOptionError: An unknown option, or a value that it does not take.
        """
        found = read_options(function, options, STATIC_OPTIONS)
        return StaticOptions(
            found["availableMemoryProportion"],
            found["numBands"],
            found["nSplit"],
            found["enablePreprocessing"],
            found["verboseLogging"],
        )


def checked_type(name: str, dtype: ElementType | str, system: System) -> ElementType:
    """Element type of a sparse product: f16, f32, or an 8-bit float where the chip multiplies them.

    Raises:
        TypeMismatchError: Another one, or another chip.
    """
    found = as_element_type(dtype)
    if found not in (f16, f32) and not found.is_quarter:
        raise TypeMismatchError(
            f"{name}: a static sparse product is of half, float or 8-bit floats, got {found}",
            remedy="cast values and dense operand to half",
        )
    check_chip(name, found, system)
    return found


def checked_block(name: str, block: tuple[int, int], dtype: ElementType) -> int:
    """Side of the blocks.

    Raises:
        SparsePatternError: Blocks without a vertex, for any type.
        TypeMismatchError: Blocks without a vertex for 8-bit floats.
    """
    if block[0] != block[1] or block[0] not in BLOCKS:
        raise SparsePatternError(
            f"{name}: blocks are {block[0]} x {block[1]}",
            because=f"there are vertices for square blocks of {', '.join(map(str, BLOCKS))}",
            remedy="Pattern.recut(block) cuts blocks into smaller ones, down to 1 x 1",
        )
    if dtype.is_quarter and block[0] not in QUARTER_BLOCKS:
        raise TypeMismatchError(
            f"{name}: blocks of {block[0]} x {block[0]} of {dtype} have no vertex",
            because="single elements are multiplied by vector units, which take no 8-bit floats"
            if block[0] == 1
            else "a row of four 8-bit floats fills half a word of the matrix units' input",
            remedy="blocks of 8 or 16 · values and dense operand of half",
        )
    return block[0]
