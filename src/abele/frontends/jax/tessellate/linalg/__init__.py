"""Linear algebra with a row or a pair of columns on each tile."""

from abele.frontends.jax.tessellate.linalg.jacobi import (
    ipu_eigh,
    ipu_jacobi_eigh,
    jacobi_initial_rotation_set,
    jacobi_next_rotation_set,
    jacobi_sort_rotation_set,
    jacobi_update_eigenvectors_p,
    jacobi_update_first_step_p,
    jacobi_update_second_step_p,
    tile_rotate_columns,
)
from abele.frontends.jax.tessellate.linalg.reflections import (
    dot_product1d_p,
    ipu_hessenberg,
    ipu_qr,
    ipu_qr_iterations,
    ipu_qr_shard_inputs,
    qr_correction_vector_p,
    qr_householder_row_update_p,
)

__all__ = [
    "dot_product1d_p",
    "ipu_eigh",
    "ipu_hessenberg",
    "ipu_jacobi_eigh",
    "ipu_qr",
    "ipu_qr_iterations",
    "ipu_qr_shard_inputs",
    "jacobi_initial_rotation_set",
    "jacobi_next_rotation_set",
    "jacobi_sort_rotation_set",
    "jacobi_update_eigenvectors_p",
    "jacobi_update_first_step_p",
    "jacobi_update_second_step_p",
    "qr_correction_vector_p",
    "qr_householder_row_update_p",
    "tile_rotate_columns",
]
