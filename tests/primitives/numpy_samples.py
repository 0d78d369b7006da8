"""Samples of the functions of ``jax.numpy``, ``jax.nn``, ``jax.scipy`` and ``jax.random``, by their signatures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import jax.scipy.optimize
import numpy as np

from primitives.samples import ANY, FLOATS, NUMBERS, SAMPLES, WHOLE, X, sample, then

_FIRST = len(SAMPLES)
_M, _N = X((3, 4)), X((4, 3))


def _each(module: Any, prefix: str, names: str, *arguments: Any, types: str = NUMBERS, **options: Any) -> None:
    for name in names.split():
        if hasattr(module, name):
            sample(f"{prefix}.{name}", getattr(module, name), *arguments, types=types, **options)


def _one(prefix: str, module: Any, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    if hasattr(module, name):
        sample(f"{prefix}.{name}", function, *arguments, **options)


_np = partial(_each, jnp, "numpy")
_np("abs absolute negative positive square sign conj conjugate real", _M)
_np(
    "sin cos tan sinh cosh tanh arctan arcsinh exp exp2 expm1 deg2rad degrees rad2deg radians cbrt sinc i0",
    _M,
    types=FLOATS,
)
_np("atan asinh", _M, types=FLOATS)
_np("arcsin arccos arctanh asin acos atanh", X((3, 4), low=-0.9, high=0.9), types=FLOATS)
_np("log log2 log10 log1p sqrt reciprocal", X((3, 4), low=0.3), types=FLOATS)
_np("arccosh acosh", X((3, 4), low=1.2), types=FLOATS)
_np("ceil floor rint round around trunc fix fabs spacing", _M, types=FLOATS)
_np(
    "isfinite isinf isnan isneginf isposinf signbit nan_to_num frexp modf",
    X((8,), special=(np.nan, np.inf, -np.inf, -0.0, 2.5)),
    types=FLOATS,
)
_np("isreal iscomplex iscomplexobj isrealobj", _M, types="f32 i32")
_np("logical_not", _M, types=ANY)
_np("invert bitwise_not bitwise_invert", X((3, 4), high=99), types=f"{WHOLE} bool")
_np("bitwise_count", X((3, 4), high=99), types=WHOLE)
_np("add subtract multiply maximum minimum fmax fmin", X((3, 4)), X((4,)))
_np("equal not_equal less less_equal greater greater_equal", X((3, 4)), X((3, 4)), types=ANY)
_np("logical_and logical_or logical_xor", _M, _M, types=ANY)
_np("bitwise_and bitwise_or bitwise_xor", X((3, 4), high=99), X((3, 4), high=99), types=f"{WHOLE} bool")
_np(
    "left_shift right_shift bitwise_left_shift bitwise_right_shift",
    X((3, 4), high=99),
    X((3, 4), low=0, high=7),
    types=WHOLE,
)
_np("divide true_divide floor_divide mod remainder fmod divmod", X((3, 4), high=9.0), X((3, 4), low=1.0))
_np("power pow float_power", X((3, 4), low=0.5), X((3, 4), low=0.0, high=3.0))
_np("arctan2 atan2 copysign hypot logaddexp logaddexp2 nextafter heaviside", _M, _M, types=FLOATS)
_np("gcd lcm", X((3, 4), low=1, high=40), X((3, 4), low=1, high=40), types=WHOLE)
_np("ldexp", _M, jnp.array([1, -2, 3, 0]), types=FLOATS)
_np(
    (
        "sum prod mean std var max min amax amin any all ptp median nansum nanprod "
        "nanmean nanstd nanvar nanmax nanmin nanmedian count_nonzero average"
    ),
    X((3, 4), low=0.5),
)
for _name in [
    "sum",
    "prod",
    "mean",
    "std",
    "var",
    "max",
    "min",
    "any",
    "all",
    "cumsum",
    "cumprod",
    "argmax",
    "argmin",
    "nanargmax",
    "nanargmin",
    "sort",
    "argsort",
    "diff",
    "ptp",
    "median",
    "cumulative_sum",
    "cumulative_prod",
    "nancumsum",
    "nancumprod",
    "nanmedian",
]:
    _one("numpy", jnp, _name, then(getattr(jnp, _name), axis=1), X((3, 4), low=0.5), types=NUMBERS)
_np("argmax argmin cumsum cumprod sort argsort diff ediff1d", X((9,)))
_one("numpy", jnp, "quantile", lambda x: jnp.quantile(x, jnp.array([0.2, 0.7]), axis=1), _M, types="f32")
_one("numpy", jnp, "percentile", lambda x: jnp.percentile(x, 30.0, axis=0), _M, types="f32")
_one("numpy", jnp, "nanquantile", lambda x: jnp.nanquantile(x, 0.3, axis=0), _M, types="f32", gradient=False)
_one("numpy", jnp, "nanpercentile", lambda x: jnp.nanpercentile(x, 30.0, axis=0), _M, types="f32", gradient=False)
_np(
    (
        "ravel transpose flip fliplr flipud rot90 atleast_1d atleast_2d atleast_3d "
        "squeeze copy array asarray matrix_transpose diag diagonal trace tril triu "
        "zeros_like ones_like empty_like diagflat"
    ),
    X((3, 3)),
    types=ANY,
)
for _name, _function in {
    "reshape": lambda x: jnp.reshape(x, (2, 6)),
    "moveaxis": lambda x: jnp.moveaxis(x, 0, 1),
    "swapaxes": lambda x: jnp.swapaxes(x, 0, 1),
    "rollaxis": lambda x: jnp.rollaxis(x, 1),
    "expand_dims": lambda x: jnp.expand_dims(x, 1),
    "broadcast_to": lambda x: jnp.broadcast_to(x, (2, 3, 4)),
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "repeat": lambda x: jnp.repeat(x, 2, axis=1),
    "roll": lambda x: jnp.roll(x, (1, -2), (0, 1)),
    "pad": lambda x: jnp.pad(x, ((1, 2), (0, 1))),
    "split": lambda x: jnp.split(x, 2, axis=1),
    "array_split": lambda x: jnp.array_split(x, 3, axis=1),
    "hsplit": lambda x: jnp.hsplit(x, 2),
    "vsplit": lambda x: jnp.vsplit(x, 3),
    "unstack": lambda x: jnp.unstack(x),
    "take": lambda x: jnp.take(x, jnp.array([2, 0, -1]), axis=1),
    "take_along_axis": lambda x: jnp.take_along_axis(x, jnp.array([[1, 0], [2, 2], [0, 3]]), 1),
    "delete": lambda x: jnp.delete(x, 1, axis=1),
    "insert": lambda x: jnp.insert(x, 1, jnp.ones((), x.dtype), axis=1),
    "full_like": lambda x: jnp.full_like(x, 1),
    "astype": lambda x: jnp.astype(x, jnp.float32),
    "resize": lambda x: jnp.resize(x, (2, 7)),
    "apply_along_axis": lambda x: jnp.apply_along_axis(jnp.sort, 0, x),
    "where": lambda x: jnp.where(x > 0, x, 0),
    "clip": lambda x: jnp.clip(x, 0, 2),
    "compress": lambda x: jnp.compress(jnp.array([True, False, True]), x, axis=0, size=2),
    "select": lambda x: jnp.select([x > 2, x > 0], [x, x + x], 0),
    "piecewise": lambda x: jnp.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v + v]),
    "nonzero": lambda x: jnp.nonzero(x > 0, size=5, fill_value=0),
    "flatnonzero": lambda x: jnp.flatnonzero(x > 0, size=5, fill_value=0),
    "argwhere": lambda x: jnp.argwhere(x > 0, size=5, fill_value=0),
    "extract": lambda x: jnp.extract(x > 0, x, size=5, fill_value=0),
    "unique": lambda x: jnp.unique(x, size=12, fill_value=0),
    "partition": lambda x: jnp.sort(jnp.partition(x, 2, axis=1)[:, :2]),
    "argpartition": lambda x: jnp.sort(jnp.argpartition(x, 2, axis=1)[:, :2]),
    "put": lambda x: jnp.put(x, jnp.array([1, 3]), jnp.ones((2,), x.dtype), inplace=False),
    "put_along_axis": lambda x: jnp.put_along_axis(
        x, jnp.array([[1], [0], [2]]), jnp.ones((3, 1), x.dtype), 1, inplace=False
    ),
    "place": lambda x: jnp.place(x, x > 0, jnp.ones((3,), x.dtype), inplace=False),
    "choose": lambda x: jnp.choose(jnp.array([0, 2, 1, 0]), [x[0], x[1], x[2]], mode="clip"),
    "permute_dims": lambda x: jnp.permute_dims(x, (1, 0)),
    "dsplit": lambda x: jnp.dsplit(x.reshape(1, 3, 4), 2),
    "angle": lambda x: jnp.angle(x.astype(jnp.float32)),
    "imag": lambda x: jnp.imag(x),
    "polydiv": lambda x: jnp.polydiv(x[0].astype(jnp.float32), x[1, :2].astype(jnp.float32)),
    "poly": lambda x: jnp.poly(x[0].astype(jnp.float32)),
    "histogram2d": lambda x: jnp.histogram2d(
        x[0].astype(jnp.float32), x[1].astype(jnp.float32), bins=3, range=((-4, 4), (-4, 4))
    )[0],
    "unique_values": lambda x: jnp.unique_values(x, size=12, fill_value=0),
    "unique_counts": lambda x: jnp.unique_counts(x, size=12, fill_value=0),
    "unique_inverse": lambda x: jnp.unique_inverse(x, size=12, fill_value=0),
    "unique_all": lambda x: jnp.unique_all(x, size=12, fill_value=0),
    "fill_diagonal": lambda x: jnp.fill_diagonal(x, jnp.ones((), x.dtype), inplace=False),
    "isin": lambda x: jnp.isin(x, jnp.array([1, 2]).astype(x.dtype)),
    "lexsort": lambda x: jnp.lexsort((x[0], x[1])),
    "sort_complex": None,
    "unwrap": lambda x: jnp.unwrap(x.astype(jnp.float32)),
    "gradient": lambda x: jnp.gradient(x.astype(jnp.float32), axis=1),
    "trapezoid": lambda x: jnp.trapezoid(x.astype(jnp.float32), axis=1),
    "packbits": lambda x: jnp.packbits(x > 0, axis=1),
    "tril_indices_from": lambda x: jnp.tril_indices_from(x),
    "triu_indices_from": lambda x: jnp.triu_indices_from(x),
    "diag_indices_from": lambda x: jnp.diag_indices_from(x[:, :3]),
    "ravel_multi_index": lambda x: jnp.ravel_multi_index((jnp.array([1, 2]), jnp.array([0, 3])), x.shape, mode="clip"),
    "unravel_index": lambda x: jnp.unravel_index(jnp.array([5, 11]), x.shape),
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]),
    "digitize": lambda x: jnp.digitize(x, jnp.array([-2, 0, 2]).astype(x.dtype)),
    "bincount": lambda x: jnp.bincount(jnp.array([0, 2, 2, 1]), length=4) + 0 * x[0].astype(jnp.int32),
    "histogram": lambda x: jnp.histogram(x.astype(jnp.float32), bins=4, range=(-4, 4))[0],
    "histogram_bin_edges": lambda x: jnp.histogram_bin_edges(x.astype(jnp.float32), bins=4, range=(-4, 4)),
    "ix_": lambda x: x[jnp.ix_(jnp.array([0, 2]), jnp.array([1, 3]))],
    "vander": lambda x: jnp.vander(x[0], 3),
    "setdiff1d": lambda x: jnp.setdiff1d(x[0], x[1], size=4, fill_value=0),
    "union1d": lambda x: jnp.union1d(x[0], x[1], size=8, fill_value=0),
    "intersect1d": lambda x: jnp.intersect1d(x[0], x[1], size=4, fill_value=0),
    "setxor1d": lambda x: jnp.setxor1d(x[0], x[1], size=8, fill_value=0),
    "block": lambda x: jnp.block([[x, x], [x, x]]),
    "vectorize": lambda x: jnp.vectorize(lambda a: a + a)(x),
    "apply_over_axes": lambda x: jnp.apply_over_axes(jnp.sum, x, (0, 1)),
}.items():
    if _function is not None:
        _one(
            "numpy",
            jnp,
            _name,
            _function,
            _M,
            types="f32 i32 bool"
            if _name in ("reshape", "take", "where", "concatenate", "nonzero", "tile")
            else "f32 i32",
        )
for _mode in ("edge", "reflect", "symmetric", "wrap", "linear_ramp", "mean", "maximum"):
    _one("numpy", jnp, "pad", lambda x, m=_mode: jnp.pad(x, ((1, 2), (0, 2)), mode=m), _M, types="f32 i32")
for _name in [
    "concatenate",
    "stack",
    "vstack",
    "hstack",
    "dstack",
    "column_stack",
    "concat",
    "broadcast_arrays",
    "meshgrid",
    "append",
]:
    _listed = _name not in ("broadcast_arrays", "meshgrid", "append")
    _function = getattr(jnp, _name)
    sample(
        f"numpy.{_name}",
        (lambda x, y, f=_function: f([x, y])) if _listed else _function,
        *((X((3,)), X((3,))) if _name == "meshgrid" else (X((3, 3)), X((3, 3)))),
        types="f32 i32 bool",
    )
_np("dot matmul inner outer vdot kron tensordot", X((3, 3)), X((3, 3)))
_np("cross", X((4, 3)), X((4, 3)))
_np("convolve correlate", X((7,)), X((3,)), types="f32 f16 bf16 i32")
_np("vecdot matvec", X((3, 3)), X((3,)))
_np("vecmat", X((3,)), X((3, 3)))
_one("numpy", jnp, "einsum", lambda x, y: jnp.einsum("ij,kj->ik", x, y), _M, X((2, 4)), types=NUMBERS)
_one(
    "numpy",
    jnp,
    "einsum",
    lambda x, y: jnp.einsum("bij,bjk,k->bi", x, y, y[0, 0]),
    X((2, 3, 4)),
    X((2, 4, 5)),
    types="f32",
)
_np("cov corrcoef", _M, types="f32", tolerance=1e-4)
_np("polyval", X((3,)), X((4,)), types="f32 i32")
_np("polyadd polysub polymul", X((3,)), X((4,)), types="f32")
_np("polyder polyint", X((4,)), types="f32")
_one(
    "numpy",
    jnp,
    "polyfit",
    lambda x, y: jnp.polyfit(x, y, 1),
    X((6,)),
    X((6,)),
    types="f32",
    gradient=False,
    tolerance=1e-3,
)
_one(
    "numpy",
    jnp,
    "interp",
    lambda x: jnp.interp(x, jnp.array([-3.0, 0.0, 3.0]), jnp.array([1.0, 2.0, 0.5])),
    _M,
    types="f32",
)
_one("numpy", jnp, "array_equal", lambda x: jnp.array_equal(x, x), _M, types=ANY)
_one("numpy", jnp, "array_equiv", lambda x: jnp.array_equiv(x, x[0]), _M, types="f32 i32")
_np("allclose isclose", _M, _M, types="f32 i32")
for _name, _call in {
    "arange": lambda: jnp.arange(2, 9, 3),
    "linspace": lambda: jnp.linspace(0, 1, 5),
    "logspace": lambda: jnp.logspace(0, 1, 5),
    "geomspace": lambda: jnp.geomspace(1, 9, 5),
    "eye": lambda: jnp.eye(3, k=1),
    "identity": lambda: jnp.identity(3),
    "tri": lambda: jnp.tri(3, 4),
    "zeros": lambda: jnp.zeros((2, 3)),
    "ones": lambda: jnp.ones(3),
    "full": lambda: jnp.full((2,), 7),
    "empty": lambda: jnp.empty((2,)),
    "indices": lambda: jnp.indices((2, 3)),
    "hamming": lambda: jnp.hamming(6),
    "hanning": lambda: jnp.hanning(6),
    "blackman": lambda: jnp.blackman(6),
    "bartlett": lambda: jnp.bartlett(6),
    "kaiser": lambda: jnp.kaiser(6, 2.0),
    "tril_indices": lambda: jnp.tril_indices(3),
    "triu_indices": lambda: jnp.triu_indices(3),
    "diag_indices": lambda: jnp.diag_indices(3),
    "unpackbits": lambda: jnp.unpackbits(jnp.array([5, 200], jnp.uint8)),
    "fromfunction": lambda: jnp.fromfunction(lambda i, j: i + j, (2, 3)),
}.items():
    _one("numpy", jnp, _name, lambda x, f=_call: (f(), x), X((1,)), types="f32", gradient=False)

# --- jax.numpy.linalg, jax.numpy.fft ----------------------------------------------------------------------------------


def _spd(x: Any) -> Any:
    return x @ x.mT + 4 * jnp.eye(x.shape[-1], dtype=x.dtype)


_S = X((2, 3, 3))
for _name, _function in {
    "cholesky": lambda x: jnp.linalg.cholesky(_spd(x)),
    "det": jnp.linalg.det,
    "slogdet": jnp.linalg.slogdet,
    "inv": lambda x: jnp.linalg.inv(_spd(x)),
    "solve": lambda x: jnp.linalg.solve(_spd(x), x),
    "eigvalsh": lambda x: jnp.linalg.eigvalsh(_spd(x)),
    "eigh": lambda x: jnp.linalg.eigh(_spd(x))[0],
    "qr": lambda x: jnp.abs(jnp.linalg.qr(x)[1]),
    "svd": lambda x: jnp.linalg.svd(x, compute_uv=False),
    "svdvals": lambda x: jnp.linalg.svdvals(x),
    "pinv": lambda x: jnp.linalg.pinv(_spd(x)),
    "matrix_power": lambda x: jnp.linalg.matrix_power(x, 3),
    "matrix_rank": lambda x: jnp.linalg.matrix_rank(x),
    "norm": lambda x: jnp.linalg.norm(x, axis=-1),
    "matrix_norm": jnp.linalg.matrix_norm,
    "vector_norm": jnp.linalg.vector_norm,
    "cond": lambda x: jnp.linalg.cond(_spd(x)),
    "multi_dot": lambda x: jnp.linalg.multi_dot([x[0], x[1], x[0]]),
    "lstsq": lambda x: jnp.linalg.lstsq(_spd(x)[0], x[1])[0],
    "tensorinv": lambda x: jnp.linalg.tensorinv(_spd(x)[0].reshape(3, 3), ind=1),
    "tensorsolve": lambda x: jnp.linalg.tensorsolve(_spd(x)[0], x[0, 0]),
    "trace": jnp.linalg.trace,
    "diagonal": jnp.linalg.diagonal,
    "outer": lambda x: jnp.linalg.outer(x[0, 0], x[0, 1]),
    "cross": lambda x: jnp.linalg.cross(x[0], x[1]),
    "matmul": lambda x: jnp.linalg.matmul(x, x),
    "matrix_transpose": jnp.linalg.matrix_transpose,
    "vecdot": lambda x: jnp.linalg.vecdot(x, x),
    "tensordot": lambda x: jnp.linalg.tensordot(x[0], x[1]),
}.items():
    _one("numpy.linalg", jnp.linalg, _name, _function, _S, types="f32", tolerance=2e-3)
for _name, _function in {
    "rfft": lambda x: jnp.abs(jnp.fft.rfft(x)),
    "fft": lambda x: jnp.real(jnp.fft.fft(x)),
    "ifft": lambda x: jnp.imag(jnp.fft.ifft(x)),
    "irfft": lambda x: jnp.fft.irfft(jnp.fft.rfft(x)),
    "fft2": lambda x: jnp.real(jnp.fft.fft2(x)),
    "fftshift": jnp.fft.fftshift,
    "ifftshift": jnp.fft.ifftshift,
    "rfft2": lambda x: jnp.real(jnp.fft.rfft2(x)),
    "fftfreq": lambda x: x * jnp.fft.fftfreq(4),
    "rfftfreq": lambda x: x[:, :3] * jnp.fft.rfftfreq(4),
    "ifft2": lambda x: jnp.real(jnp.fft.ifft2(x)),
    "fftn": lambda x: jnp.real(jnp.fft.fftn(x)),
    "ifftn": lambda x: jnp.real(jnp.fft.ifftn(x)),
    "rfftn": lambda x: jnp.real(jnp.fft.rfftn(x)),
    "irfftn": lambda x: jnp.fft.irfftn(jnp.fft.rfftn(x)),
    "irfft2": lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x)),
    "hfft": lambda x: jnp.fft.hfft(x.astype(jnp.complex64)),
    "ihfft": lambda x: jnp.real(jnp.fft.ihfft(x)),
}.items():
    _one("numpy.fft", jnp.fft, _name, _function, _M, types="f32")

# --- jax.nn -----------------------------------------------------------------------------------------------------------

_nn = partial(_each, jax.nn, "nn")
_nn(
    (
        "relu relu6 sigmoid softplus sparse_plus sparse_sigmoid silu swish hard_sigmoid "
        "hard_silu hard_swish hard_tanh elu celu selu gelu leaky_relu log_sigmoid "
        "soft_sign softmax log_softmax logsumexp standardize squareplus mish identity "
        "tanh log1mexp logmeanexp"
    ),
    X((4, 5), low=0.2),
    types=FLOATS,
)
_nn(
    (
        "relu relu6 sigmoid softplus silu elu celu selu gelu leaky_relu log_sigmoid "
        "soft_sign softmax log_softmax logsumexp standardize mish hard_tanh"
    ),
    X((4, 5)),
    types=FLOATS,
)
_one("nn", jax.nn, "gelu", lambda x: jax.nn.gelu(x, approximate=False), X((4, 5)), types=FLOATS)
_one("nn", jax.nn, "glu", jax.nn.glu, X((3, 4)), types=FLOATS)
_one("nn", jax.nn, "one_hot", lambda x: jax.nn.one_hot(jnp.array([1, 0, 4]), 4) + x, X((3, 4)), types=FLOATS)
_one(
    "nn",
    jax.nn,
    "dot_product_attention",
    jax.nn.dot_product_attention,
    X((2, 3, 2, 4)),
    X((2, 5, 2, 4)),
    X((2, 5, 2, 4)),
    types=FLOATS,
)
_one(
    "nn",
    jax.nn,
    "dot_product_attention",
    partial(jax.nn.dot_product_attention, is_causal=True),
    X((2, 5, 2, 4)),
    X((2, 5, 2, 4)),
    X((2, 5, 2, 4)),
    types="f32",
)
for _name in [
    "glorot_uniform",
    "glorot_normal",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "uniform",
    "truncated_normal",
    "orthogonal",
    "delta_orthogonal",
    "variance_scaling",
    "zeros",
    "ones",
    "constant",
]:
    _maker = getattr(jax.nn.initializers, _name)
    _given = {"constant": (2.0,), "variance_scaling": (1.0, "fan_in", "normal")}.get(_name, ())
    _init = _maker if _name in ("zeros", "ones") else _maker(*_given)
    sample(
        f"nn.initializers.{_name}",
        lambda k, f=_init, s=(3, 3, 2, 4) if "delta" in _name else (4, 6): f(k, s),
        jax.random.key(2),
        types="f32",
        tolerance=1e-4,
    )

# --- jax.scipy --------------------------------------------------------------------------------------------------------

_sp = partial(_each, jsp.special, "scipy.special")
_SHORT = "f32 bf16"
_sp("erf erfc i0 i0e i1 i1e ndtr log_ndtr exp1 expi sinc", X((3, 4), low=0.2), types=_SHORT)
_sp("gammaln gamma digamma factorial loggamma", X((3, 4), low=0.4), types=_SHORT)
_sp("erfinv", X((3, 4), low=-0.9, high=0.9), types=_SHORT)
_sp("ndtri logit expit entr spence", X((3, 4), low=0.1, high=0.9), types=_SHORT)
_sp("expit log_softmax softmax logsumexp", X((3, 4)), types=_SHORT)
_sp("xlogy xlog1py rel_entr kl_div beta betaln gammainc gammaincc", X((3, 4), low=0.4), X((3, 4), low=0.4), types="f32")
_sp("betainc", jnp.full((3, 4), 2.0), jnp.full((3, 4), 3.0), X((3, 4), low=0.1, high=0.9), types="f32")
_sp("zeta", jnp.full((3, 4), 2.5), X((3, 4), low=1.0), types="f32")
_sp("polygamma", jnp.array(2), X((3, 4), low=0.5), types="f32")
_sp("hyp1f1", jnp.full((4,), 0.5), jnp.full((4,), 1.5), X((4,)), types="f32", gradient=False, tolerance=1e-3)
_sp(
    "hyp2f1",
    jnp.full((4,), 0.5),
    jnp.full((4,), 1.5),
    jnp.full((4,), 2.5),
    X((4,), low=0.1, high=0.6),
    types="f32",
    gradient=False,
    tolerance=1e-3,
)
_one(
    "scipy.special",
    jsp.special,
    "multigammaln",
    lambda x: jsp.special.multigammaln(x, 2),
    X((4,), low=1.5),
    types="f32",
)
_one(
    "scipy.special",
    jsp.special,
    "expn",
    lambda x: jsp.special.expn(2, x),
    X((4,), low=0.5),
    types="f32",
    gradient=False,
)
_one("scipy.special", jsp.special, "poch", lambda x: jsp.special.poch(x, 2.0), X((4,), low=0.5), types="f32")
_one("scipy.special", jsp.special, "bernoulli", lambda x: x * jsp.special.bernoulli(4), X((5,)), types="f32")
_one(
    "scipy.special",
    jsp.special,
    "bessel_jn",
    lambda x: jsp.special.bessel_jn(x, v=2, n_iter=20),
    X((4,), low=0.5),
    types="f32",
    gradient=False,
)
_one("scipy.special", jsp.special, "fresnel", jsp.special.fresnel, X((4,)), types="f32", gradient=False)
for _name, _function in {
    "cholesky": lambda x: jsp.linalg.cholesky(_spd(x)),
    "cho_solve": lambda x: jsp.linalg.cho_solve(jsp.linalg.cho_factor(_spd(x)), x),
    "expm": lambda x: jsp.linalg.expm(x * 0.2),
    "lu": lambda x: jsp.linalg.lu(_spd(x))[2],
    "lu_solve": lambda x: jsp.linalg.lu_solve(jsp.linalg.lu_factor(_spd(x)), x[..., 0]),
    "solve": lambda x: jsp.linalg.solve(_spd(x), x),
    "solve_triangular": lambda x: jsp.linalg.solve_triangular(_spd(x), x, lower=True),
    "det": jsp.linalg.det,
    "inv": lambda x: jsp.linalg.inv(_spd(x)),
    "block_diag": lambda x: jsp.linalg.block_diag(x, x),
    "toeplitz": lambda x: jsp.linalg.toeplitz(x[0]),
    "hilbert": lambda x: x * jsp.linalg.hilbert(3),
    "eigh": lambda x: jsp.linalg.eigh(_spd(x))[0],
    "qr": lambda x: jnp.abs(jsp.linalg.qr(x)[1]),
    "svd": lambda x: jsp.linalg.svd(x, compute_uv=False),
    "polar": lambda x: jsp.linalg.polar(_spd(x))[1],
}.items():
    _one("scipy.linalg", jsp.linalg, _name, _function, X((3, 3)), types="f32", tolerance=2e-3)
for _name, _function in {
    "norm.logpdf": jsp.stats.norm.logpdf,
    "norm.cdf": jsp.stats.norm.cdf,
    "norm.ppf": lambda x: jsp.stats.norm.ppf(jax.nn.sigmoid(x)),
    "laplace.logpdf": jsp.stats.laplace.logpdf,
    "cauchy.logpdf": jsp.stats.cauchy.logpdf,
    "logistic.logpdf": jsp.stats.logistic.logpdf,
    "t.logpdf": lambda x: jsp.stats.t.logpdf(x, 3.0),
    "gamma.logpdf": lambda x: jsp.stats.gamma.logpdf(jnp.exp(x), 2.0),
    "gamma.cdf": lambda x: jsp.stats.gamma.cdf(jnp.exp(x), 2.0),
    "beta.logpdf": lambda x: jsp.stats.beta.logpdf(jax.nn.sigmoid(x), 2.0, 3.0),
    "beta.cdf": lambda x: jsp.stats.beta.cdf(jax.nn.sigmoid(x), 2.0, 3.0),
    "expon.logpdf": lambda x: jsp.stats.expon.logpdf(jnp.exp(x)),
    "chi2.logpdf": lambda x: jsp.stats.chi2.logpdf(jnp.exp(x), 3.0),
    "uniform.logpdf": jsp.stats.uniform.logpdf,
    "truncnorm.logpdf": lambda x: jsp.stats.truncnorm.logpdf(x, -1.0, 2.0),
    "multivariate_normal.logpdf": lambda x: jsp.stats.multivariate_normal.logpdf(x, jnp.zeros(4), 2 * jnp.eye(4)),
    "dirichlet.logpdf": lambda x: jsp.stats.dirichlet.logpdf(jax.nn.softmax(x[0]), jnp.arange(1.0, 5.0)),
    "poisson.logpmf": lambda x: jsp.stats.poisson.logpmf(jnp.arange(4), jnp.exp(x)),
    "bernoulli.logpmf": lambda x: jsp.stats.bernoulli.logpmf(jnp.array([0, 1, 1, 0]), jax.nn.sigmoid(x)),
    "geom.logpmf": lambda x: jsp.stats.geom.logpmf(jnp.arange(1, 5), jax.nn.sigmoid(x)),
    "nbinom.logpmf": lambda x: jsp.stats.nbinom.logpmf(jnp.arange(4), 3.0, jax.nn.sigmoid(x)),
    "betabinom.logpmf": lambda x: jsp.stats.betabinom.logpmf(jnp.arange(4), 5, jnp.exp(x), 2.0),
    "gaussian_kde": lambda x: jsp.stats.gaussian_kde(x[0])(x[1]),
    "rankdata": lambda x: jsp.stats.rankdata(x[0]),
    "sem": jsp.stats.sem,
    "mode": lambda x: jsp.stats.mode(x).count,
}.items():
    sample(f"scipy.stats.{_name}", _function, _M, types="f32", tolerance=2e-4)
_one("scipy.signal", jsp.signal, "convolve", lambda x, y: jsp.signal.convolve(x, y), X((7,)), X((3,)), types="f32")
_one(
    "scipy.signal",
    jsp.signal,
    "convolve2d",
    lambda x, y: jsp.signal.convolve2d(x, y, mode="same"),
    X((5, 6)),
    X((3, 3)),
    types="f32",
)
_one(
    "scipy.signal", jsp.signal, "fftconvolve", lambda x, y: jsp.signal.fftconvolve(x, y), X((7,)), X((3,)), types="f32"
)
_one("scipy.signal", jsp.signal, "detrend", jsp.signal.detrend, X((7,)), types="f32", tolerance=1e-3)
_one(
    "scipy.ndimage",
    jsp.ndimage,
    "map_coordinates",
    lambda x: jsp.ndimage.map_coordinates(x, [jnp.array([0.5, 1.2]), jnp.array([1.1, 2.0])], 1),
    _M,
    types="f32",
)
_one("scipy.integrate", jsp.integrate, "trapezoid", jsp.integrate.trapezoid, X((7,)), types="f32")
_one("scipy.fft", jsp.fft, "dct", jsp.fft.dct, X((3, 8)), types="f32")
_one(
    "scipy.optimize",
    jsp.optimize,
    "minimize",
    lambda x: jsp.optimize.minimize(lambda v: jnp.sum((v - 1) ** 2), x, method="BFGS").x,
    X((3,)),
    types="f32",
    gradient=False,
    tolerance=1e-3,
)
sample("image.resize", lambda x: jax.image.resize(x, (6, 5), "linear"), X((3, 4)), types="f32")
sample("image.resize", lambda x: jax.image.resize(x, (2, 3), "cubic"), X((3, 4)), types="f32")
sample("ops.segment_sum", lambda x: jax.ops.segment_sum(x, jnp.array([0, 2, 0]), 3), X((3, 2)), types=NUMBERS)
sample("ops.segment_max", lambda x: jax.ops.segment_max(x, jnp.array([0, 1, 0]), 2), X((3, 2)), types="f32 i32")

# --- jax.random -------------------------------------------------------------------------------------------------------

_KEY, _random = jax.random.key(11), jax.random
for _name, _function in {
    "uniform": lambda k: _random.uniform(k, (5,), minval=-2, maxval=3),
    "normal": lambda k: _random.normal(k, (5,)),
    "truncated_normal": lambda k: _random.truncated_normal(k, -1.0, 2.0, (5,)),
    "bernoulli": lambda k: _random.bernoulli(k, 0.3, (5,)),
    "categorical": lambda k: _random.categorical(k, jnp.arange(10.0).reshape(2, 5)),
    "gumbel": lambda k: _random.gumbel(k, (5,)),
    "permutation": lambda k: _random.permutation(k, 9),
    "choice": lambda k: _random.choice(k, 9, (4,), replace=False),
    "randint": lambda k: _random.randint(k, (5,), -3, 20),
    "gamma": lambda k: _random.gamma(k, jnp.array([0.5, 3.0])),
    "loggamma": lambda k: _random.loggamma(k, jnp.array([0.5, 3.0])),
    "beta": lambda k: _random.beta(k, 2.0, 3.0, (3,)),
    "dirichlet": lambda k: _random.dirichlet(k, jnp.array([0.5, 1.0, 4.0])),
    "poisson": lambda k: _random.poisson(k, jnp.array([0.5, 20.0])),
    "exponential": lambda k: _random.exponential(k, (5,)),
    "laplace": lambda k: _random.laplace(k, (5,)),
    "multivariate_normal": lambda k: _random.multivariate_normal(k, jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1.0]])),
    "rademacher": lambda k: _random.rademacher(k, (5,)),
    "t": lambda k: _random.t(k, 3.0, (4,)),
    "orthogonal": lambda k: _random.orthogonal(k, 3),
    "ball": lambda k: _random.ball(k, 3),
    "cauchy": lambda k: _random.cauchy(k, (5,)),
    "chisquare": lambda k: _random.chisquare(k, 3.0, shape=(3,)),
    "f": lambda k: _random.f(k, 3.0, 4.0, shape=(3,)),
    "geometric": lambda k: _random.geometric(k, 0.3, (5,)),
    "binomial": lambda k: _random.binomial(k, 10.0, 0.3, (5,)),
    "logistic": lambda k: _random.logistic(k, (5,)),
    "lognormal": lambda k: _random.lognormal(k, shape=(5,)),
    "maxwell": lambda k: _random.maxwell(k, (5,)),
    "pareto": lambda k: _random.pareto(k, 2.0, (5,)),
    "rayleigh": lambda k: _random.rayleigh(k, 2.0, (5,)),
    "triangular": lambda k: _random.triangular(k, 0.0, 1.0, 3.0, (5,)),
    "wald": lambda k: _random.wald(k, 2.0, (5,)),
    "weibull_min": lambda k: _random.weibull_min(k, 2.0, 3.0, (5,)),
    "double_sided_maxwell": lambda k: _random.double_sided_maxwell(k, 1.0, 2.0, (5,)),
    "generalized_normal": lambda k: _random.generalized_normal(k, 2.0, (3,)),
    "multinomial": lambda k: _random.multinomial(k, 10.0, jnp.array([0.2, 0.3, 0.5])),
    "split": lambda k: _random.key_data(_random.split(k, 3)),
    "fold_in": lambda k: _random.key_data(_random.fold_in(k, 3)),
    "bits": lambda k: _random.bits(k, (3,)),
}.items():
    sample(f"random.{_name}", _function, _KEY, types="f32", tolerance=1e-4)

FUNCTIONS = SAMPLES[_FIRST:]
"""The samples of this module."""
del SAMPLES[_FIRST:]
