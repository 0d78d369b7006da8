"""Dense linear algebra: Cholesky factorisation, triangular solves, masks and grids."""

from abele.poplibs.poplin.linalg.cholesky import cholesky, create_cholesky_input
from abele.poplibs.poplin.linalg.grids import linspace, meshgrid2d
from abele.poplibs.poplin.linalg.masks import triangular_mask
from abele.poplibs.poplin.linalg.triangular import (
    create_triangular_solve_input_lhs,
    create_triangular_solve_input_rhs,
    triangular_solve,
)

__all__ = [
    "cholesky",
    "create_cholesky_input",
    "create_triangular_solve_input_lhs",
    "create_triangular_solve_input_rhs",
    "linspace",
    "meshgrid2d",
    "triangular_mask",
    "triangular_solve",
]
