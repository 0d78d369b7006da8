"""Dense linear algebra: Cholesky, QR and LU factorisations, triangular solves, masks and grids."""

from abele.poplibs.poplin.linalg.blocks import linspace, meshgrid2d
from abele.poplibs.poplin.linalg.cholesky import cholesky, create_cholesky_input
from abele.poplibs.poplin.linalg.lu import lu_factorization
from abele.poplibs.poplin.linalg.masks import triangular_mask
from abele.poplibs.poplin.linalg.qr import create_qr_factorization_matrices, qr_factorization
from abele.poplibs.poplin.linalg.triangular import (
    create_triangular_solve_input_lhs,
    create_triangular_solve_input_rhs,
    triangular_solve,
)
from abele.poplibs.poputil.arguments import Forms
from abele.poplibs.poputil.guard import guarded_functions

__all__ = [
    "cholesky",
    "create_cholesky_input",
    "create_qr_factorization_matrices",
    "create_triangular_solve_input_lhs",
    "create_triangular_solve_input_rhs",
    "linspace",
    "lu_factorization",
    "meshgrid2d",
    "qr_factorization",
    "triangular_mask",
    "triangular_solve",
]

FORMS: Forms = {
    "create_cholesky_input": ("dtype shape =bool",),
    "create_triangular_solve_input_lhs": ("dtype =type a_shape b_shape left_side",),
    "create_triangular_solve_input_rhs": ("dtype =type a_shape b_shape left_side",),
}
globals().update(guarded_functions(globals(), __all__, FORMS))
