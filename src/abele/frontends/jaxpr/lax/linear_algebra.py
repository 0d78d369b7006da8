"""Dense linear algebra: what ``jax.lax.linalg`` has, as the network's ops on stacks of matrices.

Signs and orders are LAPACK's where LAPACK defines them (reflections, pivots); vectors of eigenvalues and of singular
values are defined up to their signs. Reductions that the network has no op for are written as loops of JAX, which are
traced and read in their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from abele.expr.derivative import arg
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.kernels.nest.ir import select
from abele.network import BlockBuilder, Value
from abele.network.ops import build, matrices
from abele.network.ops.matrices.composed import stacked
from abele.numerics import f32, i32


class _MatrixStack:
    """Operands of an equation as stacks of matrices, and results in its shapes."""

    def __init__(self, net: BlockBuilder, a: Value) -> None:
        self.net = net
        self.batch = a.shape[:-2]
        self.a = self.of(a)

    def of(self, value: Value) -> Value:
        """[…, m, n] as [b, m, n]."""
        return stacked(self.net, build.cast(self.net, value, f32))

    def rows(self, value: Value) -> Value:
        """[…, n] as [b, n]."""
        return build.reshape(self.net, value, (math.prod(self.batch), value.shape[-1]))

    def back(self, value: Value) -> Value:
        """A result of the stack in the shape of the batch."""
        return build.reshape(self.net, value, (*self.batch, *value.shape[1:]))


# --- Cholesky, triangles ----------------------------------------------------------------------------------------------


@primitive("cholesky")
def cholesky(call: PrimitiveCall, a: Value) -> Value:
    """The lower factor of symmetric positive definite matrices."""
    made = _MatrixStack(call.net, a)
    return made.back(matrices.cholesky(call.net, made.a))


@primitive("triangular_solve")
def triangular_solve(
    call: PrimitiveCall,
    a: Value,
    b: Value,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    unit_diagonal: bool,
) -> Value:
    """X of A·X = B or X·A = B, with A or its transpose, of which one triangle is read."""
    net = call.net
    made = _MatrixStack(net, a)
    sides = made.of(b)
    # X·A = B is Aᵀ·Xᵀ = Bᵀ.
    turned = transpose_a != (not left_side)
    used, is_lower = (build.transpose(net, made.a), not lower) if turned else (made.a, lower)
    sides = sides if left_side else build.transpose(net, sides)
    found = matrices.triangular_solve(net, used, sides, lower=is_lower, unit=unit_diagonal)
    return made.back(found if left_side else build.transpose(net, found))


# --- LU ---------------------------------------------------------------------------------------------------------------


@primitive("lu")
def lu(call: PrimitiveCall, a: Value) -> tuple[Value, Value, Value]:
    """L and U in one, the exchanges of rows, and the row of A that each row of L·U is."""
    made = _MatrixStack(call.net, a)
    packed, places, swaps = matrices.lu(call.net, made.a)
    return made.back(packed), made.back(swaps), made.back(_inverse(call.net, places))


@primitive("lu_pivots_to_permutation")
def lu_pivots_to_permutation(call: PrimitiveCall, swaps: Value, *, permutation_size: int) -> Value:
    """The order of rows after exchanges."""
    rows = build.reshape(call.net, swaps, (math.prod(swaps.shape[:-1]), swaps.shape[-1]))
    places = matrices.permutation_of_swaps(call.net, build.cast(call.net, rows, i32), permutation_size)
    return build.reshape(call.net, build.cast(call.net, _inverse(call.net, places), call.dtype), call.shape)


def _inverse(net: BlockBuilder, places: Value) -> Value:
    """The index [b, n] of the row at each place, for the place [b, n] of each row."""
    batch, extent = places.shape
    here = net.constant(np.arange(extent).reshape(1, extent, 1), i32)
    rows = net.constant(np.arange(extent).reshape(1, 1, extent), i32)
    mine = build.reshape(net, places, (batch, 1, extent))
    found = build.map_(net, select(arg(0).eq(arg(1)), arg(2), 0), [mine, here, rows], i32)
    return build.reduce(net, found, [2])


@primitive("custom_linear_solve")
def custom_linear_solve(call: PrimitiveCall, *operands: Value, const_lengths: Any, jaxprs: Any) -> tuple[Value, ...]:
    """A solution by the user's own solve; what derivatives need of it, JAX has used."""
    begin = const_lengths.matvec + const_lengths.vecmat
    consts = operands[begin : begin + const_lengths.solve]
    sides = operands[sum(const_lengths) :]
    return tuple(call.reader.closed(jaxprs.solve, [*consts, *sides]))


# --- QR ---------------------------------------------------------------------------------------------------------------


@primitive("qr")
def qr(call: PrimitiveCall, a: Value, *, full_matrices: bool, pivoting: bool = False) -> tuple[Value, ...]:
    """Q and R, and with pivoting the order of the columns."""
    if pivoting:
        return call.traced(partial(_pivoted_qr, full=full_matrices), a)
    made = _MatrixStack(call.net, a)
    q, r = matrices.qr(call.net, made.a, complete=full_matrices)
    return made.back(q), made.back(r)


@primitive("geqrf")
def geqrf(call: PrimitiveCall, a: Value) -> tuple[Value, Value]:
    """R and the vectors of reflections in one, and their factors."""
    made = _MatrixStack(call.net, a)
    packed, factors = matrices.householder_columns(call.net, made.a)
    return made.back(packed), made.back(factors)


@primitive("geqp3")
def geqp3(call: PrimitiveCall, a: Value, order: Value) -> tuple[Value, ...]:
    """As ``geqrf``, with the longest column that is left first; numbers of columns count from 1."""
    if call.net.scalar(order) != 0:
        raise call.refuse("with columns that come first has no lowering", "give zeros, which leave all columns free")
    packed, numbers, factors = call.traced(_pivoted, a)
    return packed, build.map_(call.net, arg(0) + 1, [numbers]), factors


@primitive("householder_product")
def householder_product(call: PrimitiveCall, packed: Value, factors: Value) -> Value:
    """The first columns of a product of reflections."""
    made = _MatrixStack(call.net, packed)
    return made.back(matrices.householder_product(call.net, made.a, made.rows(factors), packed.shape[-1]))


@primitive("ormqr")
def ormqr(call: PrimitiveCall, packed: Value, factors: Value, other: Value, *, left: bool, transpose: bool) -> Value:
    """Q·C, Qᵀ·C, C·Q or C·Qᵀ, where Q is all of a product of reflections."""
    net, made = call.net, _MatrixStack(call.net, packed)
    q = matrices.householder_product(net, made.a, made.rows(factors), packed.shape[-2])
    q = build.transpose(net, q) if transpose else q
    sides = made.of(other)
    return made.back(build.matmul(net, q, sides) if left else build.matmul(net, sides, q))


# --- eigenvalues, singular values -------------------------------------------------------------------------------------


@primitive("eigh")
def eigh(
    call: PrimitiveCall, a: Value, *, lower: bool, subset_by_index: tuple[int, int] | None = None
) -> tuple[Value, Value]:
    """Vectors and eigenvalues of symmetric matrices, of which one triangle is read; some of them by number."""
    net, made = call.net, _MatrixStack(call.net, a)
    other = matrices.triangle(net, made.a, lower=lower, offset=-1 if lower else 1)
    whole = build.map_(net, arg(0) + arg(1), [matrices.triangle(net, made.a, lower=lower), build.transpose(net, other)])
    w, v = matrices.eigh(net, whole)
    if subset_by_index is not None:
        w, v = build.slice_(net, w, 1, *subset_by_index), build.slice_(net, v, 2, *subset_by_index)
    return made.back(v), made.back(w)


@primitive("svd")
def svd(
    call: PrimitiveCall,
    a: Value,
    *,
    full_matrices: bool,
    compute_uv: bool,
    subset_by_index: tuple[int, int] | None = None,
) -> tuple[Value, ...]:
    """Singular values, and with ``compute_uv`` vectors on both sides; some of them by number."""
    net, made = call.net, _MatrixStack(call.net, a)
    u, s, v = matrices.svd(net, made.a, full=full_matrices and compute_uv, vectors=compute_uv)
    if subset_by_index is not None:
        u, s = build.slice_(net, u, 2, *subset_by_index), build.slice_(net, s, 1, *subset_by_index)
        v = build.slice_(net, v, 1, *subset_by_index)
    found = (s, u, v) if compute_uv else (s,)
    return tuple(made.back(part) for part in found)


@primitive("eig", "schur")
def unsymmetric(call: PrimitiveCall, a: Value) -> Any:
    """Refused."""
    raise call.refuse(
        "has no lowering",
        "use jnp.linalg.eigh for symmetric matrices, or jnp.linalg.svd",
        "the iterations for matrices that are not symmetric end after a number of steps that depends on the data",
    )


# --- written in JAX ---------------------------------------------------------------------------------------------------


def _of_matrix(function: Callable[..., Any], *operands: Any, ranks: Sequence[int] = (2,)) -> Any:
    """Results for each matrix of a batch."""
    for _ in range(operands[0].ndim - ranks[0]):
        function = jax.vmap(function)
    return function(*operands)


def _reflection(column: Any, first: Any) -> tuple[Any, Any, Any]:
    """Vector, factor and result of the reflection that leaves zeros behind index ``first`` of a column.

    The vector is 1 at ``first``. The result's sign is the other one than the element had, as in LAPACK.
    """
    rows = jnp.arange(column.shape[0])
    begin = jnp.sum(jnp.where(rows == first, column, 0.0))
    behind = jnp.where(rows > first, column, 0.0)
    rest = jnp.sum(behind * behind)
    length = jnp.where(begin >= 0, -1.0, 1.0) * jnp.sqrt(begin * begin + rest)
    is_zero = rest == 0
    result = jnp.where(is_zero, begin, length)
    factor = jnp.where(is_zero, 0.0, (length - begin) / jnp.where(is_zero, 1.0, length))
    below = behind / jnp.where(is_zero, 1.0, begin - length)
    return jnp.where(rows == first, 1.0, below), factor, result


def _hessenberg(a: Any) -> tuple[Any, Any]:
    """H below whose first subdiagonal are the vectors of reflections, and their factors."""
    n = a.shape[0]
    rows, columns = jnp.arange(n)[:, None], jnp.arange(n)[None, :]

    def step(k: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        h, vectors, factors = state
        v, tau, _ = _reflection(lax.dynamic_index_in_dim(h, k, 1, keepdims=False), k + 1)
        h = h - tau * v[:, None] * (v @ h)[None, :]
        h = h - tau * (h @ v)[:, None] * v[None, :]
        vectors = jnp.where(columns == k, v[:, None], vectors)
        return h, vectors, jnp.where(jnp.arange(n - 1) == k, tau, factors)

    h, vectors, factors = lax.fori_loop(0, n - 1, step, (a, jnp.zeros_like(a), jnp.zeros(n - 1, a.dtype)))
    return jnp.where(rows > columns + 1, vectors, h), factors


@primitive("hessenberg")
def hessenberg(call: PrimitiveCall, a: Value) -> tuple[Value, ...]:
    """The Hessenberg form by reflections."""
    return call.traced(partial(_of_matrix, _hessenberg), a)


def _tridiagonal(a: Any, lower: bool) -> tuple[Any, ...]:
    """The form of a symmetric matrix of which a triangle is given; the other triangle of the result is the given one.

    The upper triangle backwards is a lower one.
    """
    given = a if lower else a[::-1, ::-1]
    rows, columns = jnp.arange(a.shape[0])[:, None], jnp.arange(a.shape[0])[None, :]
    packed, factors = _hessenberg(jnp.where(rows >= columns, given, given.T))
    diagonal, beside = (jnp.sum(jnp.where(rows == columns + below, packed, 0.0), 1) for below in (0, 1))
    beside = beside[1:]
    found = jnp.where(rows >= columns, packed, given)
    if lower:
        return found, diagonal, beside, factors
    return found[::-1, ::-1], diagonal[::-1], beside[::-1], factors[::-1]


@primitive("tridiagonal")
def tridiagonal(call: PrimitiveCall, a: Value, *, lower: bool) -> tuple[Value, ...]:
    """The tridiagonal form of symmetric matrices by reflections."""
    return call.traced(partial(_of_matrix, partial(_tridiagonal, lower=lower)), a)


def _pivoted_matrix(a: Any) -> tuple[Any, Any, Any]:
    m, n = a.shape
    rows, columns = jnp.arange(m)[:, None], jnp.arange(n)

    def step(k: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        work, order, factors = state
        lengths = jnp.sum(jnp.where(rows >= k, work, 0.0) ** 2, axis=0)
        best = jnp.argmax(jnp.where(columns >= k, lengths, -1.0))
        moved = jnp.where(columns == k, best, jnp.where(columns == best, k, columns))
        work, order = jnp.take(work, moved, axis=1), jnp.take(order, moved)
        v, tau, result = _reflection(lax.dynamic_index_in_dim(work, k, 1, keepdims=False), k)
        v = jnp.where(jnp.arange(m) >= k, v, 0.0)
        turned = work - tau * v[:, None] * (v @ work)[None, :]
        stored = jnp.where(rows > k, v[:, None], jnp.where(rows == k, result, work))
        work = jnp.where(columns > k, turned, jnp.where(columns == k, stored, work))
        return work, order, jnp.where(jnp.arange(factors.shape[0]) == k, tau, factors)

    count = min(m, n)
    start = (a, columns.astype(jnp.int32), jnp.zeros(count, a.dtype))
    return lax.fori_loop(0, count, step, start)  # type: ignore[no-any-return]


def _pivoted(a: Any) -> Any:
    """R and the vectors of reflections in one, the order of columns, and factors."""
    return _of_matrix(_pivoted_matrix, a)


def _pivoted_qr(a: Any, full: bool) -> tuple[Any, ...]:
    m, n = a.shape[-2:]
    packed, order, factors = _pivoted(a)
    columns = m if full else min(m, n)
    wide = packed if columns <= n else jnp.pad(packed, [(0, 0)] * (a.ndim - 1) + [(0, m - n)])
    q = lax.linalg.householder_product(wide[..., :columns], factors)
    return q, jnp.triu(packed[..., :columns, :]), order


@primitive("tridiagonal_solve")
def tridiagonal_solve(
    call: PrimitiveCall, below: Value, diagonal: Value, above: Value, b: Value, *, perturb_singular: bool = False
) -> Value:
    """X of systems with three diagonals: elimination from the first row on, and back."""
    if perturb_singular:
        raise call.refuse("that perturbs singular matrices has no lowering", "leave perturb_singular at False")
    (found,) = call.traced(partial(_of_matrix, _thomas, ranks=(1,)), below, diagonal, above, b)
    return found


def _thomas(below: Any, diagonal: Any, above: Any, b: Any) -> Any:
    def forward(before: tuple[Any, Any], row: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        low, middle, high, side = row
        pivot = middle - low * before[0]
        made = high / pivot, (side - low * before[1]) / pivot
        return made, made

    start = jnp.zeros((), diagonal.dtype), jnp.zeros(b.shape[1:], b.dtype)
    below = jnp.where(jnp.arange(below.shape[0]) == 0, 0.0, below)
    _, (ratios, sides) = lax.scan(forward, start, (below, diagonal, above, b))

    def backward(behind: Any, row: Any) -> tuple[Any, Any]:
        ratio, side = row
        found = side - ratio * behind
        return found, found

    return lax.scan(backward, start[1], (ratios, sides), reverse=True)[1]


@primitive("cholesky_update")
def cholesky_update(call: PrimitiveCall, factor: Value, vector: Value) -> Value:
    """The upper factor R of RᵀR + w·wᵀ, one rotation for each row."""
    (found,) = call.traced(_updated_factor, factor, vector)
    return found


def _updated_factor(factor: Any, vector: Any) -> Any:
    n = factor.shape[0]

    def step(k: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        r, z = state
        row = lax.dynamic_index_in_dim(r, k, 0, keepdims=False)
        here = jnp.arange(n) == k
        x, y = jnp.sum(jnp.where(here, row, 0.0)), jnp.sum(jnp.where(here, z, 0.0))
        length = jnp.sqrt(x * x + y * y)
        cosine, sine = jnp.where(y == 0, 1.0, x / length), jnp.where(y == 0, 0.0, y / length)
        r = jnp.where(here[:, None], (cosine * row + sine * z)[None, :], r)
        return r, cosine * z - sine * row

    return lax.fori_loop(0, n, step, (factor, vector))[0]


@primitive("symmetric_product")
def symmetric_product(call: PrimitiveCall, a: Value, c: Value, *, alpha: float, beta: float) -> Value:
    """alpha · A·Aᵀ + beta · C."""
    made = _MatrixStack(call.net, a)
    product = made.back(build.matmul(call.net, made.a, build.transpose(call.net, made.a)))
    return call.map(arg(0) * float(alpha) + arg(1) * float(beta), product, c)
