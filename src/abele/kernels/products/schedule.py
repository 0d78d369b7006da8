"""Schedule of a matrix product: shares of its results, each by one call, and the epilogue of each share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from abele.kernels.nest.loop_nest import ElementAccess, LoopNest
from abele.kernels.products.matrix_product import MatrixProduct
from abele.kernels.routines.blocking import Blocking, Kept
from abele.kernels.routines.multiply import Places, places_of
from abele.layout import Modes


@dataclass(frozen=True)
class DenseMatrix:
    """An operand as libraries take it: rows apart by ``stride`` elements, columns next to each other.

    Attributes:
        stride: Between rows.
        is_turned: True if it is the transpose of what the product reads.
    """

    stride: int
    is_turned: bool


@dataclass(frozen=True)
class ShareProduct:
    """Call of a library for one share.

    Attributes:
        name: Name of the library.
        left: Stride and transposition of the left operand.
        right: Stride and transposition of the right operand.
        result: Elements between rows of the results.
    """

    name: str
    left: DenseMatrix
    right: DenseMatrix
    result: int


@dataclass(frozen=True)
class ProductSchedule:
    """A nest run as a matrix product, share by share.

    Attributes:
        product: Product to multiply.
        rows: Rows of a share; the last may have fewer.
        columns: Columns of a share.
        sizes: Blocking of the packed routine.
        kept: Operand that stays packed for the next share: shares with the same part of it follow each other.
        library: Call of a library for a share; None: the packed routine multiplies it.
    """

    product: MatrixProduct
    rows: int
    columns: int
    sizes: Blocking
    kept: Kept = Kept.COLUMNS
    library: ShareProduct | None = None

    @property
    def parts(self) -> tuple[int, int]:
        """Shares along rows and along columns."""
        m, n, _ = self.product.shape
        return -(-m // self.rows), -(-n // self.columns)

    def num_units(self, extents: dict[str, int]) -> int:
        """Units of a nest over ``extents``: one is one share of one product of the batch."""
        return math.prod(self.parts) * math.prod(extents[d] for d, _ in self.product.batch)

    @property
    def is_direct(self) -> bool:
        """True if sums go where they belong at once: columns of a vector then lie next to each other."""
        product = self.product
        inner = product.length(product.columns[-1:])
        return product.result is not None and (len(product.columns) == 1 or inner % self.sizes.lanes == 0)

    def places(self) -> Places:
        """Offsets of the matrices' elements; sums of a share that are not stored in place have rows of its width."""
        product = self.product
        extents = dict(product.extents)

        def digits(names: tuple[str, ...], access: ElementAccess) -> Modes:
            return tuple((extents[d], access.stride(d)) for d in names)

        m, n, _ = product.shape
        left, right, result = product.left, product.right, product.result
        dims = [(product.rows, left), (product.summed, left), (product.summed, right), (product.columns, right)]
        sums: list[Modes] = [((m, self.columns),), ((n, 1),)]
        if result is not None and self.is_direct:
            sums = [digits(product.rows, result), digits(product.columns, result)]
        return places_of([*(digits(*dim) for dim in dims), *sums], self.kept)

    @property
    def tile_offset(self) -> int:
        """Offset of the sums of a share in its scratch memory, in bytes."""
        if self.library is not None:
            return 64
        work = self.sizes.work_bytes((self.rows, self.columns, self.product.shape[2]), self.kept)
        return -(-work // 64) * 64

    @property
    def scratch_bytes(self) -> int:
        """Memory of the thread that a share works in."""
        return self.tile_offset + (0 if self.is_direct else 4 * self.rows * self.columns)

    def __str__(self) -> str:
        m, n, k = self.product.shape
        batch = "".join(f"{extent}×" for _, extent in self.product.batch)
        name = self.library.name if self.library is not None else "packed"
        return f"product {batch}[{m}, {k}]x[{k}, {n}] by {name} in shares of {self.rows}×{self.columns}"


@dataclass(frozen=True)
class Epilogue:
    """Operations on the sums of a share, as a nest that reads them from its last array.

    Attributes:
        nest: Its units are the batch, and shares along rows and columns where these are not the last.
        last_rows: True if it is of the last, shorter shares along rows.
        last_columns: True if it is of the last, shorter shares along columns.
    """

    nest: LoopNest
    last_rows: bool
    last_columns: bool
