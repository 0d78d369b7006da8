"""``tf.linalg``: products and factors of matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..dtypes import as_dtype
from ..tensors import narrowed, tensor_of
from .arrays import ARRAYS
from .math import MATH
from .table import NameTable, axes

LINALG = NameTable()
LINALG |= {"eye": ARRAYS["eye"], "l2_normalize": MATH["l2_normalize"], "normalize": MATH["l2_normalize"]}
LINALG.unary(
    inv=jnp.linalg.inv,
    det=jnp.linalg.det,
    slogdet=jnp.linalg.slogdet,
    logdet=lambda x: jnp.linalg.slogdet(x)[1],
    cholesky=jnp.linalg.cholesky,
    eigh=jnp.linalg.eigh,
    eigvalsh=jnp.linalg.eigvalsh,
    trace=lambda x: jnp.trace(x, axis1=-2, axis2=-1),
    diag_part=lambda x: jnp.diagonal(x, axis1=-2, axis2=-1),
    adjoint=lambda x: jnp.conj(jnp.swapaxes(x, -1, -2)),
    matrix_transpose=lambda x: jnp.swapaxes(x, -1, -2),
    expm=jax.scipy.linalg.expm,
)
LINALG.binary(solve=jnp.linalg.solve, cross=jnp.cross)


@LINALG("matmul")
def _matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: Any = None,
    name: str | None = None,
) -> Any:
    left, right = tensor_of(a), tensor_of(b)
    left = jnp.swapaxes(left, -1, -2) if transpose_a or adjoint_a else left
    right = jnp.swapaxes(right, -1, -2) if transpose_b or adjoint_b else right
    made = jnp.matmul(left, right)
    return made if output_type is None else made.astype(narrowed(as_dtype(output_type)))


@LINALG("matvec")
def _matvec(a: Any, b: Any, transpose_a: bool = False, **_: Any) -> Any:
    return _matmul(a, tensor_of(b)[..., None], transpose_a)[..., 0]


@LINALG("einsum")
def _einsum(equation: str, *inputs: Any, **_: Any) -> Any:
    return jnp.einsum(equation, *map(tensor_of, inputs))


@LINALG("tensordot")
def _tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Any:
    along = axes if isinstance(axes, int) else [part if isinstance(part, list) else [part] for part in axes]
    return jnp.tensordot(tensor_of(a), tensor_of(b), along)


@LINALG("norm")
def _norm(tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool = False, name: Any = None) -> Any:
    values, along = tensor_of(tensor), axes(axis)
    if ord in ("euclidean", "fro", 2):
        return jnp.sqrt(jnp.sum(jnp.square(jnp.abs(values)), along, keepdims=keepdims))
    return jnp.linalg.norm(values if along is not None else values.reshape(-1), ord, along, keepdims)


@LINALG("global_norm")
def _global_norm(t_list: Any, name: str | None = None) -> Any:
    return jnp.sqrt(sum(jnp.sum(jnp.square(tensor_of(tensor))) for tensor in t_list if tensor is not None))


@LINALG("clip_by_norm")
def _clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    tensor = tensor_of(t)
    norm = jnp.sqrt(jnp.sum(jnp.square(tensor), axes, keepdims=True))
    return tensor * clip_norm / jnp.maximum(norm, clip_norm)


@LINALG("clip_by_global_norm")
def _clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None) -> Any:
    norm = _global_norm(t_list) if use_norm is None else tensor_of(use_norm)
    rate = clip_norm / jnp.maximum(norm, clip_norm)
    return [None if tensor is None else tensor_of(tensor) * rate for tensor in t_list], norm


@LINALG("diag")
def _diag(diagonal: Any, name: str | None = None, **_: Any) -> Any:
    values = tensor_of(diagonal)
    return values[..., None] * jnp.eye(values.shape[-1], dtype=values.dtype)


@LINALG("band_part")
def _band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Any:
    values = tensor_of(input)
    rows, columns = jnp.arange(values.shape[-2])[:, None], jnp.arange(values.shape[-1])
    kept = ((num_lower < 0) | (rows - columns <= num_lower)) & ((num_upper < 0) | (columns - rows <= num_upper))
    return jnp.where(kept, values, jnp.zeros_like(values))


@LINALG("qr")
def _qr(input: Any, full_matrices: bool = False, name: str | None = None) -> Any:
    return tuple(jnp.linalg.qr(tensor_of(input), "complete" if full_matrices else "reduced"))


@LINALG("svd")
def _svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    found = jnp.linalg.svd(tensor_of(tensor), full_matrices, compute_uv)
    return (found[1], found[0], jnp.swapaxes(found[2], -1, -2)) if compute_uv else found


@LINALG("triangular_solve")
def _triangular_solve(matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: Any = None) -> Any:
    return jax.scipy.linalg.solve_triangular(tensor_of(matrix), tensor_of(rhs), trans=int(adjoint), lower=lower)
