"""Products that a library can multiply: those whose matrices have one stride along rows and none along columns."""

from __future__ import annotations

from abele.kernels.nest.loop_nest import ElementAccess
from abele.kernels.products.matrix_product import MatrixProduct
from abele.kernels.products.schedule import DenseMatrix, ShareProduct
from abele.numerics import f32

MAX_INT = (1 << 31) - 1


def library_call(product: MatrixProduct, name: str, columns: int, *, is_direct: bool) -> ShareProduct | None:
    """Arguments with which library ``name`` multiplies shares of ``columns`` of ``product``; None where it cannot.

    Args:
        product: Product to multiply.
        name: Name of the library.
        columns: Columns of a share; sums that are not stored in place directly lie in rows of so many.
        is_direct: True if sums are stored in place directly.
    """
    if product.left.type != f32 or product.right.type != f32:
        return None
    left = _dense(product, product.left, product.rows, product.summed)
    right = _dense(product, product.right, product.summed, product.columns)
    result = columns
    if is_direct and product.result is not None:
        placed = _dense(product, product.result, product.rows, product.columns)
        if placed is None or placed.is_turned:
            return None
        result = placed.stride
    if left is None or right is None or max(*product.shape, left.stride, right.stride, result) > MAX_INT:
        return None
    return ShareProduct(name, left, right, result)


def _dense(
    product: MatrixProduct, access: ElementAccess, rows: tuple[str, ...], columns: tuple[str, ...]
) -> DenseMatrix | None:
    row, column = (stride_of(product, access, dims) for dims in (rows, columns))
    m, n = product.length(rows), product.length(columns)
    if column == 1 and row is not None and row >= n:
        return DenseMatrix(row, False)
    if row == 1 and column is not None and column >= m:
        return DenseMatrix(column, True)
    return None


def stride_of(product: MatrixProduct, access: ElementAccess, dims: tuple[str, ...]) -> int | None:
    """The stride between neighbours of the dim with digits ``dims``; None where it is not always the same."""
    stride = access.stride(dims[-1])
    step = stride * product.length(dims[-1:])
    for dim in reversed(dims[:-1]):
        if access.stride(dim) != step:
            return None
        step *= product.length((dim,))
    return stride
