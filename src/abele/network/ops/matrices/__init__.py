"""Dense linear algebra: factorisations, solves and functions of stacks of matrices."""

from abele.network.ops.matrices.exponential import matrix_exponential
from abele.network.ops.matrices.jacobi import eigh
from abele.network.ops.matrices.lu import determinant, inverse, log_determinant, lu, permutation_of_swaps, solve
from abele.network.ops.matrices.qr import householder_columns, householder_product, qr
from abele.network.ops.matrices.svd import pseudo_inverse, svd
from abele.network.ops.matrices.triangular import cholesky, triangle, triangular_solve

__all__ = [
    "cholesky",
    "determinant",
    "eigh",
    "householder_columns",
    "householder_product",
    "inverse",
    "log_determinant",
    "lu",
    "matrix_exponential",
    "permutation_of_swaps",
    "pseudo_inverse",
    "qr",
    "solve",
    "svd",
    "triangle",
    "triangular_solve",
]
