"""Host formats of sparse matrices, under PopLibs' names: coordinates, compressed rows, compressed columns.

``nzValues`` has the values of block after block, each block row-major. Indices count elements, so they are multiples of
the block's side; pointers count values, so they are multiples of its area. Explicit zeros count as held.

>>> a = CSRMatrix(2, 4, [1, 2, 3, 4, 5, 6, 7, 8], [2, 0], [0, 8], (2, 2))
>>> a.to_dense()[0].tolist()  # unsorted columns are put in order
[5.0, 6.0, 1.0, 2.0]
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, overload

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import SparsePatternError, TypeMismatchError
from abele.sparsity import Pattern, even_array, whole_sizes

_FIELDS: tuple[str, ...] = ("numRows", "numColumns", "nzValues", "columnIndices", "rowIndices", "blockDimensions")


class SparseMatrixBase:
    """Fields that the three formats share. PopLibs' three constructors work, and so does assignment of each field.

    ``CSRMatrix(numRows, numColumns, nzValues, columnIndices, rowIndices, blockDimensions)`` is checked at once;
    ``CSRMatrix(nzValues, columnIndices, rowIndices, blockDimensions)`` has no sizes, for which a Partitioner takes its
    parameters'; ``CSRMatrix(blockDimensions)`` has nothing yet. These are checked when they are used.

    Attributes:
        numRows: Rows of the matrix, in elements.
        numColumns: Columns of the matrix, in elements.
        nzValues: Values [blocks · area]; float16, float32 or float64, integers become float64.
        columnIndices: Columns of blocks in elements, or pointers of columns (CSC). Read-only.
        rowIndices: Rows of blocks in elements, or pointers of rows (CSR). Read-only.
        blockDimensions: Rows and columns of a block, in elements.

    Raises:
        SparsePatternError: An index is out of range, off the grid of blocks or doubled, or a length is wrong.
        TypeMismatchError: Values are no numbers, or indices no whole ones.
    """

    FORMAT: ClassVar[str] = ""
    numRows: int
    numColumns: int
    nzValues: Array
    columnIndices: Int64
    rowIndices: Int64
    blockDimensions: tuple[int, int]
    _found: tuple[Pattern, Int64] | None

    @overload
    def __init__(
        self,
        numRows: int,
        numColumns: int,
        nzValues: npt.ArrayLike,
        columnIndices: npt.ArrayLike,
        rowIndices: npt.ArrayLike,
        blockDimensions: tuple[int, int] = (1, 1),
    ) -> None: ...

    @overload
    def __init__(
        self,
        nzValues: npt.ArrayLike,
        columnIndices: npt.ArrayLike,
        rowIndices: npt.ArrayLike,
        blockDimensions: tuple[int, int] = (1, 1),
        /,
    ) -> None: ...

    @overload
    def __init__(self, blockDimensions: tuple[int, int] = (1, 1)) -> None: ...

    def __init__(self, *given: Any, **named: Any) -> None:
        fields = {"numRows": 0, "numColumns": 0, "nzValues": (), "columnIndices": (), "rowIndices": ()}
        read = _read_call(self.FORMAT, given, named)
        for name, value in {**fields, "blockDimensions": (1, 1), **read}.items():
            setattr(self, name, value)
        if len(read) >= len(fields):
            self._sized()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; what was found from the others is found again."""
        if name in _FIELDS:
            value = self._checked(name, value)
            object.__setattr__(self, "_found", None)
        object.__setattr__(self, name, value)

    def _checked(self, name: str, value: Any) -> Any:
        if name == "nzValues":
            return _values_of(value, self.FORMAT)
        if name.endswith("Indices"):
            return _whole_numbers(value, f"{self.FORMAT} {name}")
        sizes = whole_sizes(f"{self.FORMAT} {name}", value if name == "blockDimensions" else (value,))
        return sizes if name == "blockDimensions" else sizes[0]

    @property
    def pattern(self) -> Pattern:
        """Held blocks, in the order of compressed rows."""
        return self._sized()[0]

    @property
    def numCols(self) -> int:
        """Another name of ``numColumns``."""
        return self.numColumns

    @numCols.setter
    def numCols(self, columns: int) -> None:
        self.numColumns = columns

    @property
    def has_sizes(self) -> bool:
        """False for a matrix with values whose rows and columns were not given."""
        return bool(self.numRows or self.numColumns or not self.nzValues.size)

    def with_sizes(self, shape: tuple[int, int]) -> Self:
        """The matrix; one of ``shape`` (rows, columns) if it has no sizes of its own."""
        if self.has_sizes:
            return self
        return type(self)(*shape, self.nzValues, self.columnIndices, self.rowIndices, self.blockDimensions)

    def _sized(self) -> tuple[Pattern, Int64]:
        """The pattern, and for each of its blocks the block here that holds it."""
        if self._found is None:
            if not self.has_sizes:
                raise SparsePatternError(
                    f"{self.FORMAT}: {self.nzValues.size:,} values of a matrix without sizes",
                    remedy="assign numRows and numColumns, or give them to the constructor",
                )
            # A pattern without blocks checks sizes against the block.
            Pattern.from_coordinates((self.numRows, self.numColumns), [], [], self.blockDimensions)
            self._found = self._sorted()
        return self._found

    def _sorted(self) -> tuple[Pattern, Int64]:
        """The pattern, and for each of its blocks the block here that holds it."""
        raise NotImplementedError

    @classmethod
    def from_pattern(cls, pattern: Pattern, values: npt.ArrayLike) -> Self:
        """The matrix of ``values`` [blocks, *block] in the pattern's order."""
        if not isinstance(pattern, Pattern):
            raise TypeMismatchError(f"{cls.FORMAT}: a pattern is an abele.sparsity.Pattern, got {pattern!r}")
        held = np.asarray(values)
        if held.size != pattern.num_values:
            raise SparsePatternError(f"{held.size:,} values do not fill {pattern}", remedy=_fill(pattern))
        return cls(*pattern.shape, *cls._fields_of(pattern, held.reshape((-1, *pattern.block))), pattern.block)

    @classmethod
    def _fields_of(cls, pattern: Pattern, values: Array) -> tuple[Array, Int64, Int64]:
        """``nzValues``, ``columnIndices`` and ``rowIndices`` of values [blocks, *block] in the pattern's order."""
        raise NotImplementedError

    @classmethod
    def from_dense(cls, matrix: npt.ArrayLike, block: tuple[int, int] = (1, 1)) -> Self:
        """The blocks of ``matrix`` that are not all zero."""
        return cls.from_pattern(*Pattern.from_dense(matrix, block))

    @property
    def values(self) -> Array:
        """Values in the pattern's order [blocks, *block]."""
        return self.nzValues.reshape((-1, *self.blockDimensions))[self._sized()[1]]

    def to_pattern(self) -> tuple[Pattern, Array]:
        """The pattern, and the values in its order [blocks, *block]."""
        return self.pattern, self.values

    def to_dense(self) -> Array:
        """The matrix with zeros where nothing is held."""
        return self.pattern.to_dense(self.values)

    def to_csr(self) -> CSRMatrix:
        """The matrix by compressed rows, canonical: columns of a row ascend."""
        return CSRMatrix.from_pattern(*self.to_pattern())

    def to_csc(self) -> CSCMatrix:
        """The matrix by compressed columns, canonical: rows of a column ascend."""
        return CSCMatrix.from_pattern(*self.to_pattern())

    def to_coo(self) -> COOMatrix:
        """The matrix by coordinates, in the order of rows."""
        return COOMatrix.from_pattern(*self.to_pattern())

    def canonicalise(self) -> Self:
        """The same matrix with its blocks in order."""
        return type(self).from_pattern(*self.to_pattern())

    def getNumRowsInBlock(self) -> int:
        """Rows of a block."""
        return self.blockDimensions[0]

    def getNumColumnsInBlock(self) -> int:
        """Columns of a block."""
        return self.blockDimensions[1]

    def getBlockSize(self) -> int:
        """Elements of a block."""
        return self.blockDimensions[0] * self.blockDimensions[1]

    def _block_places(self, field: str, count: int, block: int, side: str) -> Int64:
        """Indices of ``field``, one for each of ``count`` blocks, in blocks of ``block`` elements."""
        indices: Int64 = getattr(self, field)
        if len(indices) != count:
            raise SparsePatternError(
                f"{self.FORMAT} {field} has {len(indices):,} indices for {count:,} blocks",
                because=f"{len(self.nzValues):,} values in blocks of {self._block_text} are {count:,} blocks",
                remedy="give one index for each block, not for each value",
            )
        _check_multiples(indices, block, f"{self.FORMAT} {field}", f"{block} {side} of a block")
        size = self.numRows if side == "rows" else self.numColumns
        outside = np.flatnonzero((indices < 0) | (indices >= size))
        if outside.size:
            at = int(outside[0])
            raise SparsePatternError(
                f"{self.FORMAT} {field}[{at:,}] is {indices[at]:,}; the matrix has {size:,} {side}",
                because=f"{outside.size:,} of {len(indices):,} indices are outside",
            )
        return indices // block

    def _spread_pointers(self, field: str, lines: int) -> Int64:
        """Block row or column of each block, by the pointers in ``field``."""
        pointers: Int64 = getattr(self, field)
        name = f"{self.FORMAT} {field}"
        if len(pointers) != lines + 1:
            raise SparsePatternError(
                f"{name} has {len(pointers):,} pointers; {lines:,} lines of blocks have {lines + 1:,}",
                remedy="give one pointer to the start of each line of blocks, and one to the end",
            )
        _check_multiples(pointers, self.getBlockSize(), name, f"{self.getBlockSize()} values of a block")
        down = np.flatnonzero(np.diff(pointers) < 0)
        if down.size:
            at = int(down[0])
            raise SparsePatternError(f"{name} falls from {pointers[at]:,} to {pointers[at + 1]:,} at {at + 1:,}")
        if pointers[0] != 0 or pointers[-1] != len(self.nzValues):
            raise SparsePatternError(
                f"{name} goes from {pointers[0]:,} to {pointers[-1]:,}; there are {len(self.nzValues):,} values",
                remedy="pointers count values, not blocks: the first is 0, the last the number of values",
            )
        return np.repeat(np.arange(lines), np.diff(pointers) // self.getBlockSize())

    def _num_blocks(self) -> int:
        blocks, rest = divmod(len(self.nzValues), self.getBlockSize())
        if rest:
            raise SparsePatternError(
                f"{len(self.nzValues):,} values are no whole number of blocks of {self._block_text}",
                because=f"{rest:,} values are left over",
            )
        return blocks

    @property
    def _block_text(self) -> str:
        return f"{self.blockDimensions[0]} x {self.blockDimensions[1]}"

    def _by_coordinates(self, rows: Int64, columns: Int64) -> tuple[Pattern, Int64]:
        return Pattern.from_coordinates((self.numRows, self.numColumns), rows, columns, self.blockDimensions)

    def __repr__(self) -> str:
        text = f"{self.numRows:,} x {self.numColumns:,}, {self.nzValues.size:,} values"
        blocks = "" if self.blockDimensions == (1, 1) else f" in blocks of {self._block_text}"
        return f"{type(self).__name__}({text}{blocks}, {self.nzValues.dtype})"


class COOMatrix(SparseMatrixBase):
    """A sparse matrix by coordinates: a row and a column for each block, in any order."""

    FORMAT: ClassVar[str] = "COO"

    def _sorted(self) -> tuple[Pattern, Int64]:
        count = self._num_blocks()
        rows = self._block_places("rowIndices", count, self.blockDimensions[0], "rows")
        return self._by_coordinates(
            rows, self._block_places("columnIndices", count, self.blockDimensions[1], "columns")
        )

    @classmethod
    def _fields_of(cls, pattern: Pattern, values: Array) -> tuple[Array, Int64, Int64]:
        return values.reshape(-1), pattern.columns * pattern.block[1], pattern.rows * pattern.block[0]


class CSRMatrix(SparseMatrixBase):
    """A sparse matrix by compressed rows: a column for each block, a pointer for each block row and the end."""

    FORMAT: ClassVar[str] = "CSR"

    def _sorted(self) -> tuple[Pattern, Int64]:
        count = self._num_blocks()
        rows = self._spread_pointers("rowIndices", self.numRows // self.blockDimensions[0])
        return self._by_coordinates(
            rows, self._block_places("columnIndices", count, self.blockDimensions[1], "columns")
        )

    @classmethod
    def _fields_of(cls, pattern: Pattern, values: Array) -> tuple[Array, Int64, Int64]:
        area = pattern.block[0] * pattern.block[1]
        return values.reshape(-1), pattern.columns * pattern.block[1], pattern.row_starts * area


class CSCMatrix(SparseMatrixBase):
    """A sparse matrix by compressed columns: a row for each block, a pointer for each block column and the end.

    Blocks are row-major here too.
    """

    FORMAT: ClassVar[str] = "CSC"

    def _sorted(self) -> tuple[Pattern, Int64]:
        count = self._num_blocks()
        columns = self._spread_pointers("columnIndices", self.numColumns // self.blockDimensions[1])
        return self._by_coordinates(self._block_places("rowIndices", count, self.blockDimensions[0], "rows"), columns)

    @classmethod
    def _fields_of(cls, pattern: Pattern, values: Array) -> tuple[Array, Int64, Int64]:
        transposed, order = pattern.transposed()
        area = pattern.block[0] * pattern.block[1]
        return values[order].reshape(-1), transposed.row_starts * area, transposed.columns * pattern.block[0]


def _read_call(format_: str, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Fields by name of a call of one of the constructors."""
    if not given or np.ndim(given[0]) == 0:
        names = _FIELDS
    elif len(given) == 1:
        names = _FIELDS[5:]
    else:
        names = _FIELDS[2:]
    wrong = [name for name in named if name not in _FIELDS or name in names[: len(given)]]
    if len(given) > len(names) or wrong:
        raise SparsePatternError(
            f"{format_}Matrix: {wrong[0]} is no field, or given twice"
            if wrong
            else f"{format_}Matrix: {len(given)} arguments, at most {len(names)} are taken",
            remedy=f"the order is {', '.join(names)}",
        )
    return {**dict(zip(names, given, strict=False)), **named}


def _values_of(values: npt.ArrayLike, format_: str) -> Array:
    held = even_array(values, f"{format_} nzValues")
    if held.size == 0 and held.dtype.kind not in "f":
        held = held.astype(np.float64)
    if held.dtype.kind not in "fiub" or held.dtype.itemsize > 8:
        raise TypeMismatchError(f"{format_} nzValues are {held.dtype}; values are float16, float32 or float64")
    return held.reshape(-1) if held.dtype.kind == "f" else held.reshape(-1).astype(np.float64)


def _whole_numbers(indices: npt.ArrayLike, name: str) -> Int64:
    found = even_array(indices, name)
    if found.ndim != 1:
        raise SparsePatternError(f"{name} are one row of numbers, got {found.ndim} dimensions")
    if found.size and found.dtype.kind not in "iu":
        raise TypeMismatchError(f"{name} are whole numbers, got {found.dtype}")
    whole: Int64 = found.astype(np.int64)
    whole.setflags(write=False)
    return whole


def _check_multiples(numbers: Int64, unit: int, name: str, what: str) -> None:
    off = np.flatnonzero(numbers % unit)
    if off.size:
        at = int(off[0])
        raise SparsePatternError(
            f"{name}[{at:,}] is {numbers[at]:,}, which is no multiple of the {what}",
            because=f"{off.size:,} of {numbers.size:,} are off the grid of blocks",
            remedy="indices count elements and pointers values, neither counts blocks",
        )


def _fill(pattern: Pattern) -> str:
    return f"give {pattern.num_blocks:,} blocks of {pattern.block[0]} x {pattern.block[1]} in the pattern's order"
