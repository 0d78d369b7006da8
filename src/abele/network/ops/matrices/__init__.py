"""Dense linear algebra: factorisations, solves and functions of stacks of matrices."""

from abele.network.ops.matrices.cholesky import cholesky
from abele.network.ops.matrices.determinant import determinant, log_determinant
from abele.network.ops.matrices.eigen import eigh
from abele.network.ops.matrices.exponential import matrix_exponential
from abele.network.ops.matrices.lu import lu, permutation_of_swaps
from abele.network.ops.matrices.pseudo_inverse import pseudo_inverse
from abele.network.ops.matrices.qr import householder_columns, householder_product, qr
from abele.network.ops.matrices.solve import inverse, solve
from abele.network.ops.matrices.svd import svd
from abele.network.ops.matrices.triangular import triangle, triangular_solve

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
