"""torch.linalg: factorisations, solves and functions of matrices, batched."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import apply
from abele.network import Value
from abele.network.ops import build, matrices
from abele.network.ops.matrices.composed import identity, one_hot, stacked
from abele.numerics import f32, i32

Operand = Value | float


class _Matrices:
    """Operands of one call as stacks of matrices, and its results in their shapes.

    Args:
        call: The call.
        a: Matrices [..., m, n], whose batch is that of the stack.
    """

    def __init__(self, call: OperatorCall, a: Value, batch: Sequence[int] | None = None) -> None:
        self.net = call.net
        self.batch = tuple(a.shape[:-2] if batch is None else batch)
        self.a = self.stack(a)

    def stack(self, value: Value) -> Value:
        """[..., m, n] repeated over the batch, as one f32 stack."""
        value = build.cast(self.net, value, f32)
        return stacked(self.net, build.expand(self.net, value, (*self.batch, *value.shape[-2:])))

    def rows(self, value: Value) -> Value:
        """[..., n] as [b, n]."""
        return build.reshape(self.net, value, (-1, value.shape[-1]))

    def back(self, value: Value) -> Value:
        """A result of the stack in the shape of the batch."""
        return build.reshape(self.net, value, (*self.batch, *value.shape[1:]))

    def info(self) -> Value:
        """Status codes of LAPACK: all zero."""
        return build.full(self.net, 0, self.batch, i32)

    def pivots(self, swaps: Value) -> Value:
        """Exchanges as LAPACK counts them, from 1."""
        return self.back(build.map_(self.net, arg(0) + 1, [swaps]))

    def swaps(self, pivots: Value) -> Value:
        """The inverse of :meth:`pivots`."""
        wide = build.expand(self.net, pivots, (*self.batch, pivots.shape[-1]))
        return build.map_(self.net, arg(0) - 1, [self.rows(wide)])


def _turned(call: OperatorCall, value: Value) -> Value:
    return build.transpose(call.net, value)


def _broadcast_batch(*values: Value) -> tuple[int, ...]:
    return np.broadcast_shapes(*(v.shape[:-2] for v in values))


# --- Cholesky ---------------------------------------------------------------------------------------------------------


def _cholesky(call: OperatorCall, a: Value, upper: bool) -> Value:
    made = _Matrices(call, _turned(call, a) if upper else a)
    factor = made.back(matrices.cholesky(call.net, made.a))
    return _turned(call, factor) if upper else factor


@aten("aten.linalg_cholesky", "aten.cholesky")
def cholesky(call: OperatorCall, a: Value, upper: bool = False) -> Value:
    """The factor of symmetric positive definite matrices."""
    return _cholesky(call, a, upper)


@aten("aten.linalg_cholesky_ex")
def cholesky_ex(
    call: OperatorCall, a: Value, *, upper: bool = False, check_errors: bool = False
) -> tuple[Value, Value]:
    """The factor, and zeros: matrices that are not positive definite give NaN."""
    return _cholesky(call, a, upper), _Matrices(call, a).info()


def _solved_by_factor(call: OperatorCall, b: Value, factor: Value, upper: bool) -> Value:
    made = _Matrices(call, _turned(call, factor) if upper else factor, _broadcast_batch(b, factor))
    inner = matrices.triangular_solve(call.net, made.a, made.stack(b), lower=True)
    turned = build.transpose(call.net, made.a)
    return made.back(matrices.triangular_solve(call.net, turned, inner, lower=False))


@aten("aten.cholesky_solve")
def cholesky_solve(call: OperatorCall, b: Value, factor: Value, upper: bool = False) -> Value:
    """X of L·Lᵀ·X = B."""
    return _solved_by_factor(call, b, factor, upper)


@aten("aten.cholesky_inverse")
def cholesky_inverse(call: OperatorCall, factor: Value, upper: bool = False) -> Value:
    """The inverse of L·Lᵀ."""
    one = call.net.constant(np.broadcast_to(np.eye(factor.shape[-1]), factor.shape), f32)
    return _solved_by_factor(call, one, factor, upper)


# --- triangular systems -----------------------------------------------------------------------------------------------


def _triangular(call: OperatorCall, a: Value, b: Value, *, upper: bool, left: bool, unit: bool) -> Value:
    if not left:
        turned = _triangular(call, _turned(call, a), _turned(call, b), upper=not upper, left=True, unit=unit)
        return _turned(call, turned)
    made = _Matrices(call, a, _broadcast_batch(a, b))
    return made.back(matrices.triangular_solve(call.net, made.a, made.stack(b), lower=not upper, unit=unit))


@aten("aten.linalg_solve_triangular")
def solve_triangular(
    call: OperatorCall, a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    """X of A·X = B or X·A = B with a triangular A."""
    return _triangular(call, a, b, upper=upper, left=left, unit=unitriangular)


@aten("aten.triangular_solve")
def triangular_solve(
    call: OperatorCall, b: Value, a: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:
    """X of A·X = B with a triangular A or its transpose, and A."""
    used, is_upper = (_turned(call, a), not upper) if transpose else (a, upper)
    return _triangular(call, used, b, upper=is_upper, left=True, unit=unitriangular), a


# --- LU ---------------------------------------------------------------------------------------------------------------


@aten("aten.linalg_lu_factor_ex")
def lu_factor_ex(call: OperatorCall, a: Value, *, pivot: bool = True, check_errors: bool = False) -> tuple[Value, ...]:
    """L and U in one, the exchanges, and zeros."""
    return (*_lu_factor(call, a, pivot), _Matrices(call, a).info())


@aten("aten.linalg_lu_factor")
def lu_factor(call: OperatorCall, a: Value, *, pivot: bool = True) -> tuple[Value, ...]:
    """L and U in one, and the exchanges."""
    return _lu_factor(call, a, pivot)


@aten("aten._lu_with_info")
def lu_with_info(call: OperatorCall, a: Value, pivot: bool = True, check_errors: bool = True) -> tuple[Value, ...]:
    """L and U in one, the exchanges, and zeros."""
    return (*_lu_factor(call, a, pivot), _Matrices(call, a).info())


def _lu_factor(call: OperatorCall, a: Value, pivot: bool) -> tuple[Value, Value]:
    _with_pivots(call, pivot)
    made = _Matrices(call, a)
    packed, _, swaps = matrices.lu(call.net, made.a)
    return made.back(packed), made.pivots(swaps)


def _with_pivots(call: OperatorCall, pivot: bool) -> None:
    if not pivot:
        raise call.refuse("with pivot=False has no lowering", "leave pivot at True, which is as fast and accurate")


def _unpacked(call: OperatorCall, packed: Value) -> tuple[Value, Value]:
    """L with ones on its diagonal, and U."""
    net, (_, m, n) = call.net, packed.shape
    k = min(m, n)
    strict = matrices.triangle(net, build.slice_(net, packed, 2, 0, k), lower=True, offset=-1)
    lower = build.map_(net, arg(0) + arg(1), [strict, net.constant(np.eye(m, k), f32)])
    return lower, matrices.triangle(net, build.slice_(net, packed, 1, 0, k), lower=False)


@aten("aten.linalg_lu")
def lu(call: OperatorCall, a: Value, *, pivot: bool = True) -> tuple[Value, ...]:
    """P, L and U with A = P·L·U."""
    _with_pivots(call, pivot)
    made = _Matrices(call, a)
    packed, places, _ = matrices.lu(call.net, made.a)
    permutation = build.transpose(call.net, one_hot(call.net, places, a.shape[-2]))
    return tuple(made.back(v) for v in (permutation, *_unpacked(call, packed)))


@aten("aten.lu_unpack")
def lu_unpack(
    call: OperatorCall, packed: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Value, ...]:
    """P, L and U of a factorisation; those not asked for are empty."""
    made = _Matrices(call, packed)
    nothing = build.full(call.net, 0.0, (0,), f32)
    factors = tuple(made.back(v) for v in _unpacked(call, made.a)) if unpack_data else (nothing, nothing)
    if not unpack_pivots:
        return (nothing, *factors)
    rows = packed.shape[-2]
    places = matrices.permutation_of_swaps(call.net, made.swaps(pivots), rows)
    return (made.back(build.transpose(call.net, one_hot(call.net, places, rows))), *factors)


@aten("aten.linalg_lu_solve")
def linalg_lu_solve(
    call: OperatorCall, packed: Value, pivots: Value, b: Value, *, left: bool = True, adjoint: bool = False
) -> Value:
    """X of A·X = B, X·A = B, or the same with Aᵀ, from the factors of A."""
    return _lu_solve(call, packed, pivots, b, left=left, transposed=adjoint)


@aten("aten.lu_solve")
def lu_solve(call: OperatorCall, b: Value, packed: Value, pivots: Value) -> Value:
    """X of A·X = B from the factors of A."""
    return _lu_solve(call, packed, pivots, b, left=True, transposed=False)


def _lu_solve(call: OperatorCall, packed: Value, pivots: Value, b: Value, *, left: bool, transposed: bool) -> Value:
    if not left:
        return _turned(call, _lu_solve(call, packed, pivots, _turned(call, b), left=True, transposed=not transposed))
    net = call.net
    made = _Matrices(call, packed, _broadcast_batch(packed, b))
    sides = made.stack(b)
    order = one_hot(net, matrices.permutation_of_swaps(net, made.swaps(pivots), packed.shape[-2]), packed.shape[-2])
    if not transposed:
        moved = build.matmul(net, order, sides)
        inner = matrices.triangular_solve(net, made.a, moved, lower=True, unit=True)
        return made.back(matrices.triangular_solve(net, made.a, inner, lower=False))
    turned = build.transpose(net, made.a)
    inner = matrices.triangular_solve(net, turned, sides, lower=True)
    inner = matrices.triangular_solve(net, turned, inner, lower=False, unit=True)
    return made.back(build.matmul(net, build.transpose(net, order), inner))


# --- systems, inverses, determinants ----------------------------------------------------------------------------------


def _is_vector(a: Value, b: Value) -> bool:
    """True if the right-hand side is one vector per matrix, as PyTorch decides."""
    return b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])


def _solve(call: OperatorCall, a: Value, b: Value, left: bool) -> tuple[Value, Value, Value]:
    """The solution, and the factors with their exchanges."""
    net, vector = call.net, _is_vector(a, b)
    sides = build.reshape(net, b, (*b.shape, 1)) if vector else b
    if not left:
        a, sides = build.transpose(net, a), sides if vector else build.transpose(net, sides)
    made = _Matrices(call, a, _broadcast_batch(a, sides))
    packed, places, swaps = matrices.lu(net, made.a)
    found = made.back(matrices.solve(net, made.a, made.stack(sides), (packed, places)))
    if not left and not vector:
        found = build.transpose(net, found)
    return build.reshape(net, found, found.shape[:-1]) if vector else found, made.back(packed), made.pivots(swaps)


@aten("aten.linalg_solve")
def solve(call: OperatorCall, a: Value, b: Value, *, left: bool = True) -> Value:
    """X of A·X = B or X·A = B."""
    return _solve(call, a, b, left)[0]


@aten("aten.linalg_solve_ex")
def solve_ex(
    call: OperatorCall, a: Value, b: Value, *, left: bool = True, check_errors: bool = False
) -> tuple[Value, Value]:
    """The solution, and zeros."""
    return _solve(call, a, b, left)[0], _Matrices(call, a).info()


@aten("aten._linalg_solve_ex")
def solve_with_factors(
    call: OperatorCall, a: Value, b: Value, *, left: bool = True, check_errors: bool = False
) -> tuple[Value, ...]:
    """The solution, the factors with their exchanges, and zeros."""
    return (*_solve(call, a, b, left), _Matrices(call, a).info())


@aten("aten.linalg_inv", "aten.inverse")
def inverse(call: OperatorCall, a: Value) -> Value:
    """Inverses."""
    made = _Matrices(call, a)
    return made.back(matrices.inverse(call.net, made.a))


@aten("aten.linalg_inv_ex")
def inverse_ex(call: OperatorCall, a: Value, *, check_errors: bool = False) -> tuple[Value, Value]:
    """Inverses, and zeros."""
    return inverse(call, a), _Matrices(call, a).info()


@aten("aten._linalg_det")
def determinant(call: OperatorCall, a: Value) -> tuple[Value, ...]:
    """Determinants, and the factors with their exchanges."""
    made = _Matrices(call, a)
    factors = matrices.lu(call.net, made.a)
    found = matrices.determinant(call.net, made.a, factors)
    return made.back(found), made.back(factors[0]), made.pivots(factors[2])


@aten("aten._linalg_slogdet")
def log_determinant(call: OperatorCall, a: Value) -> tuple[Value, ...]:
    """Signs and logarithms of determinants, and the factors with their exchanges."""
    made = _Matrices(call, a)
    factors = matrices.lu(call.net, made.a)
    sign, size = matrices.log_determinant(call.net, made.a, factors)
    return made.back(sign), made.back(size), made.back(factors[0]), made.pivots(factors[2])


@aten("aten.linalg_tensorinv")
def tensor_inverse(call: OperatorCall, a: Value, ind: int = 2) -> Value:
    """The inverse of the matrix whose rows are the first ``ind`` dimensions."""
    rows = math.prod(a.shape[:ind])
    made = _Matrices(call, build.reshape(call.net, a, (rows, rows)))
    return build.reshape(call.net, matrices.inverse(call.net, made.a), call.shape)


@aten("aten.linalg_tensorsolve")
def tensor_solve(call: OperatorCall, a: Value, b: Value, dims: Sequence[int] | None = None) -> Value:
    """X of the system whose unknowns are the last dimensions of A, or ``dims``."""
    net = call.net
    if dims is not None:
        moved = [d % a.ndim for d in dims]
        a = build.permute(net, a, [*(d for d in range(a.ndim) if d not in moved), *moved])
    made = _Matrices(call, build.reshape(net, a, (b.size, b.size)))
    sides = build.reshape(net, build.cast(net, b, f32), (1, b.size, 1))
    return build.reshape(net, matrices.solve(net, made.a, sides), call.shape)


@aten("aten.linalg_matrix_power", "aten.matrix_power")
def matrix_power(call: OperatorCall, a: Value, n: int) -> Value:
    """A whole power, of the inverse if it is negative, by squaring."""
    net, made = call.net, _Matrices(call, a)
    square = matrices.inverse(net, made.a) if n < 0 else made.a
    power, left = None, abs(n)
    while left:
        if left % 2:
            power = square if power is None else build.matmul(net, power, square)
        left //= 2
        square = build.matmul(net, square, square) if left else square
    return made.back(identity(net, *made.a.shape[:2]) if power is None else power)


# --- QR ---------------------------------------------------------------------------------------------------------------


@aten("aten.linalg_qr")
def qr(call: OperatorCall, a: Value, mode: str = "reduced") -> tuple[Value, Value]:
    """Q and R; with mode ``r`` Q is empty."""
    made = _Matrices(call, a)
    q, r = matrices.qr(call.net, made.a, complete=mode == "complete")
    return build.full(call.net, 0.0, (0,), f32) if mode == "r" else made.back(q), made.back(r)


@aten("aten.geqrf")
def geqrf(call: OperatorCall, a: Value) -> tuple[Value, Value]:
    """R and the vectors of reflections in one, and their factors."""
    made = _Matrices(call, a)
    packed, factors = matrices.householder_columns(call.net, made.a)
    return made.back(packed), made.back(factors)


@aten("aten.linalg_householder_product")
def householder_product(call: OperatorCall, packed: Value, factors: Value) -> Value:
    """The first columns of a product of reflections."""
    made = _Matrices(call, packed)
    return made.back(matrices.householder_product(call.net, made.a, made.rows(factors), packed.shape[-1]))


@aten("aten.ormqr")
def ormqr(
    call: OperatorCall, packed: Value, factors: Value, other: Value, left: bool = True, transpose: bool = False
) -> Value:
    """Q·C, Qᵀ·C, C·Q or C·Qᵀ, where Q is all of a product of reflections."""
    net, made = call.net, _Matrices(call, packed)
    q = matrices.householder_product(net, made.a, made.rows(factors), packed.shape[-2])
    q = build.transpose(net, q) if transpose else q
    sides = made.stack(other)
    return made.back(build.matmul(net, q, sides) if left else build.matmul(net, sides, q))


# --- eigenvalues and singular values ----------------------------------------------------------------------------------


@aten("aten._linalg_eigh")
def eigh(call: OperatorCall, a: Value, UPLO: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
    """Eigenvalues and vectors of symmetric matrices, of which one triangle is read."""
    made = _Matrices(call, a)
    w, v = matrices.eigh(call.net, _symmetric(call, made.a, lower=UPLO.upper() == "L"))
    return made.back(w), made.back(v)


def _symmetric(call: OperatorCall, a: Value, *, lower: bool) -> Value:
    """The symmetric matrix that has one triangle of ``a``, with the gradient of ``a`` itself, as PyTorch gives it."""
    net = call.net
    other = matrices.triangle(net, a, lower=lower, offset=-1 if lower else 1)
    whole = build.map_(net, arg(0) + arg(1), [matrices.triangle(net, a, lower=lower), build.transpose(net, other)])
    rest = build.detach(net, build.map_(net, arg(0) - arg(1), [whole, a]))
    return build.map_(net, arg(0) + arg(1), [a, rest])


@aten("aten._linalg_svd")
def svd(
    call: OperatorCall, a: Value, full_matrices: bool = False, compute_uv: bool = True, *, driver: object = None
) -> tuple[Value, ...]:
    """Singular values and vectors."""
    made = _Matrices(call, a)
    return tuple(made.back(v) for v in matrices.svd(call.net, made.a, full=full_matrices, vectors=compute_uv))


@aten("aten.linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(
    call: OperatorCall,
    a: Value,
    *,
    atol: Value | None = None,
    rtol: Value | None = None,
    hermitian: bool = False,
) -> Value:
    """Pseudo-inverses; singular values up to a limit count as zero."""
    net, made = call.net, _Matrices(call, a)
    least = max(a.shape[-2:]) * 2.0**-23

    def limit(given: Value | None, default: float) -> Value:
        value = build.full(net, default, (), f32) if given is None else build.cast(net, given, f32)
        return build.reshape(net, build.expand(net, value, made.batch), (made.a.shape[0],))

    absolute, relative = limit(atol, 0.0), limit(rtol, least)
    if atol is not None and rtol is None:
        # A limit of its own stands for the default one, unless it is zero.
        relative = build.map_(net, apply("select", arg(0) > 0.0, 0.0, least), [absolute])
    read = _symmetric(call, made.a, lower=True) if hermitian else made.a
    return made.back(matrices.pseudo_inverse(net, read, absolute, relative))


@aten("aten.linalg_matrix_exp")
def matrix_exponential(call: OperatorCall, a: Value) -> Value:
    """Exponentials of matrices."""
    made = _Matrices(call, a)
    return build.cast(call.net, made.back(matrices.matrix_exponential(call.net, made.a)), call.dtype)
