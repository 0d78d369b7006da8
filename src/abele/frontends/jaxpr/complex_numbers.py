"""Programs without complex numbers: each is two arrays, of real and of imaginary parts.

The device has no complex type. So a jaxpr with complex values is traced once more, with a pair of arrays in the place
of each: ``mul`` of two is four products, views are two views, ``scan`` carries two values. What comes out is a jaxpr of
real primitives, which is read as any other; of transforms, ``fourier`` is left, a primitive of this module.

Complex arguments and results of the function itself have a last dimension of two, real and imaginary part: ``c64[8]``
is ``f32[8, 2]``, the numbers as NumPy has them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.extend.core as jec
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import source_info_util


@dataclass(frozen=True)
class Pair:
    """A complex value; None for an imaginary part that is zero."""

    real: Any
    imaginary: Any = None

    @property
    def second(self) -> Any:
        """The imaginary part, written out."""
        return jnp.zeros_like(self.real) if self.imaginary is None else self.imaginary


def is_complex(aval: Any) -> bool:
    """True for arrays of complex numbers whose parts are of f32."""
    dtype = getattr(aval, "dtype", None)
    return dtype is not None and not jax.dtypes.issubdtype(dtype, jax.dtypes.extended) and dtype == np.complex64


def with_parts(array: Any) -> Any:
    """A NumPy array of complex numbers as the device has it, with a last dimension of two; others as they are."""
    array = np.asarray(array)
    if array.dtype.kind != "c":
        return array
    return np.stack([array.real, array.imag], -1).astype(np.float32)


def has_complex(jaxpr: Any) -> bool:
    """True if there is a complex value in an open or closed jaxpr, or in one inside of it."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    variables = [*inner.invars, *inner.constvars, *inner.outvars]
    if any(is_complex(v.aval) for v in variables):
        return True
    return any(
        any(is_complex(v.aval) for v in (*eqn.invars, *eqn.outvars)) or any(map(has_complex, _inside(eqn)))
        for eqn in inner.eqns
    )


def _inside(eqn: Any) -> Iterator[Any]:
    for param in eqn.params.values():
        for part in param if isinstance(param, (tuple, list)) else (param,):
            if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                yield part


def without_complex(jaxpr: Any) -> Any:
    """A closed jaxpr that computes the same with real values alone; the jaxpr itself if it has no others."""
    if not has_complex(jaxpr):
        return jaxpr

    def real(*arguments: Any) -> list[Any]:
        given = [_apart(a) if is_complex(v.aval) else a for v, a in zip(jaxpr.jaxpr.invars, arguments, strict=True)]
        return [_together(v) for v in _results(jaxpr, given)]

    specs = [
        jax.ShapeDtypeStruct((*v.aval.shape, 2), np.float32) if is_complex(v.aval) else _spec(v.aval)
        for v in jaxpr.jaxpr.invars
    ]
    return jax.make_jaxpr(real)(*specs)


def _spec(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _apart(array: Any) -> Pair:
    return Pair(array[..., 0], array[..., 1])


def _together(value: Any) -> Any:
    return (
        lax.concatenate([v[..., None] for v in (value.real, value.second)], value.real.ndim)
        if isinstance(value, Pair)
        else value
    )


def _results(jaxpr: Any, arguments: Sequence[Any], consts: Sequence[Any] = ()) -> list[Any]:
    """Results of a jaxpr, closed or open, on pairs and real arrays."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    values: dict[Any, Any] = dict(zip(inner.invars, arguments, strict=True))
    for var, const in zip(inner.constvars, getattr(jaxpr, "consts", consts), strict=True):
        values[var] = _constant(const, var.aval)
    for eqn in inner.eqns:
        operands = [_constant(v.val, v.aval) if isinstance(v, jec.Literal) else values[v] for v in eqn.invars]
        names = source_info_util.current_name_stack() + eqn.source_info.name_stack
        # Functions of JAX itself are traced once: their lines are those of who calls them.
        own = eqn.source_info.traceback
        seen = own is not None and source_info_util.user_frame(own) is not None
        lines = own if seen else source_info_util.current().traceback
        with source_info_util.user_context(lines, name_stack=names), eqn.ctx.manager:
            values |= zip(eqn.outvars, _of_equation(eqn, operands), strict=True)
    return [_constant(v.val, v.aval) if isinstance(v, jec.Literal) else values[v] for v in inner.outvars]


def _constant(value: Any, aval: Any) -> Any:
    if isinstance(value, Pair) or not is_complex(aval):
        return value
    array = np.asarray(value)
    real, imaginary = array.real.astype(np.float32), array.imag.astype(np.float32)
    return Pair(real, imaginary if imaginary.any() else None)


def _of_equation(eqn: Any, operands: Sequence[Any]) -> Sequence[Any]:
    name = eqn.primitive.name
    some = any(isinstance(v, Pair) for v in operands) or any(is_complex(v.aval) for v in eqn.outvars)
    if not some and not any(map(has_complex, _inside(eqn))):
        made = _bind(eqn, operands)
        return made if eqn.primitive.multiple_results else [made]
    rule = _RULES.get(name)
    made = _refused(eqn) if rule is None else rule(eqn, *operands)
    return made if isinstance(made, (list, tuple)) else [made]


def _refused(eqn: Any) -> list[Any]:
    types = [np.dtype(np.float32) if is_complex(v.aval) else np.dtype(v.aval.dtype) for v in eqn.outvars]
    shapes = [tuple(v.aval.shape) for v in eqn.outvars]
    refused = refused_p.bind(name=eqn.primitive.name, results=tuple(zip(shapes, types, strict=True)))
    return [Pair(r) if is_complex(v.aval) else r for r, v in zip(refused, eqn.outvars, strict=True)]


def _bind(eqn: Any, operands: Sequence[Any], **changed: Any) -> Any:
    params = eqn.primitive.get_bind_params({**eqn.params, **changed})
    return eqn.primitive.bind(*operands, **params)


# --- rules ------------------------------------------------------------------------------------------------------------

Rule = Callable[..., Any]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


_PARTWISE = (
    "add",
    "sub",
    "add_any",
    "neg",
    "copy",
    "copy_p",
    "stop_gradient",
    "optimization_barrier",
    "reshape",
    "squeeze",
    "expand_dims",
    "broadcast_in_dim",
    "transpose",
    "rev",
    "slice",
    "concatenate",
    "split",
    "pad",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather",
    "scatter",
    "scatter-add",
    "scatter-sub",
    "select_n",
    "reduce_sum",
    "cumsum",
    "reduce_window_sum",
    "device_put",
    "tile",
)
"""Primitives that do the same to real and imaginary parts."""


def _of_each(eqn: Any, *operands: Any) -> Any:
    """Primitives that do the same to real and imaginary parts: sums, and what moves elements.

    Operands that are real, such as indices and conditions, are read by both.
    """
    reals = _bind(eqn, [v.real if isinstance(v, Pair) else v for v in operands])
    several = eqn.primitive.multiple_results
    if all(v.imaginary is None for v in operands if isinstance(v, Pair)):
        return [Pair(r) for r in reals] if several else Pair(reals)
    others = _bind(eqn, [v.second if isinstance(v, Pair) else v for v in operands])
    return [Pair(*both) for both in zip(reals, others, strict=True)] if several else Pair(reals, others)


_RULES.update(dict.fromkeys(_PARTWISE, _of_each))


def _bilinear(of: Callable[[Any, Any], Any], first: Pair, second: Pair) -> Pair:
    """A product of any kind: real parts less imaginary parts, and the mixed ones."""
    real = of(first.real, second.real)
    if first.imaginary is None and second.imaginary is None:
        return Pair(real)
    if first.imaginary is None:
        return Pair(real, of(first.real, second.imaginary))
    if second.imaginary is None:
        return Pair(real, of(first.imaginary, second.real))
    real = real - of(first.imaginary, second.imaginary)
    return Pair(real, of(first.real, second.imaginary) + of(first.imaginary, second.real))


def _mul(first: Pair, second: Pair) -> Pair:
    return _bilinear(lambda a, b: a * b, first, second)


@_rule("mul")
def _multiply(eqn: Any, first: Pair, second: Pair) -> Pair:
    return _mul(first, second)


@_rule("scatter-mul")
def _scatter_products(eqn: Any, array: Pair, indices: Any, updates: Pair) -> Any:
    """Products with real numbers part by part; with others where no element is multiplied twice."""
    if updates.imaginary is None:
        real = _bind(eqn, [array.real, indices, updates.real])
        return Pair(real, None if array.imaginary is None else _bind(eqn, [array.imaginary, indices, updates.real]))
    if not eqn.params["unique_indices"] and np.prod(indices.shape[:-1]) > 1:
        return _refused(eqn)

    def factor(filler: float, part: Any) -> Any:
        spread = jnp.full_like(array.real, filler)
        return lax.scatter(spread, indices, part, eqn.params["dimension_numbers"], mode=eqn.params["mode"])

    return _mul(array, Pair(factor(1.0, updates.real), factor(0.0, updates.imaginary)))


@_rule("dot_general", "conv_general_dilated")
def _product(eqn: Any, first: Pair, second: Pair) -> Pair:
    wanted = eqn.params.get("preferred_element_type")
    dtype = None if wanted is None else np.dtype(np.float32)
    return _bilinear(lambda a, b: _bind(eqn, [a, b], preferred_element_type=dtype), first, second)


@_rule("div")
def _divide(eqn: Any, first: Pair, second: Pair) -> Pair:
    return _quotient(first, second)


def _quotient(first: Pair, second: Pair) -> Pair:
    if second.imaginary is None:
        return Pair(first.real / second.real, None if first.imaginary is None else first.imaginary / second.real)
    # Scaled by the larger part, so that squares are numbers wherever the quotient is one.
    scale = jnp.maximum(jnp.abs(second.real), jnp.abs(second.imaginary))
    real, imaginary = second.real / scale, second.imaginary / scale
    size = (real * real + imaginary * imaginary) * scale
    return _mul(first, Pair(real / size, -imaginary / size))


@_rule("real")
def _real(eqn: Any, value: Pair) -> Any:
    return value.real


@_rule("imag")
def _imag(eqn: Any, value: Pair) -> Any:
    return value.second


@_rule("complex")
def _complex(eqn: Any, real: Any, imaginary: Any) -> Pair:
    is_zero = isinstance(imaginary, (int, float, np.ndarray, np.generic, jax.Array)) and not isinstance(
        imaginary, jax.core.Tracer
    )
    shape = eqn.outvars[0].aval.shape  # literals are numbers without dimensions
    if is_zero and not np.any(np.asarray(imaginary)):
        return Pair(jax.numpy.broadcast_to(real, shape))
    return Pair(jax.numpy.broadcast_to(real, shape), jax.numpy.broadcast_to(imaginary, shape))


@_rule("conj")
def _conjugate(eqn: Any, value: Any) -> Pair:
    if not isinstance(value, Pair):
        return Pair(value)
    return Pair(value.real, None if value.imaginary is None else -value.imaginary)


@_rule("convert_element_type")
def _convert(eqn: Any, value: Any) -> Any:
    if not is_complex(eqn.outvars[0].aval):
        return lax.convert_element_type(value.real, eqn.params["new_dtype"])
    if isinstance(value, Pair):
        return value
    return Pair(lax.convert_element_type(value, np.float32))


def _size(value: Pair) -> Any:
    if value.imaginary is None:
        return jnp.abs(value.real)
    a, b = jnp.abs(value.real), jnp.abs(value.imaginary)
    large, small = jnp.maximum(a, b), jnp.minimum(a, b)
    ratio = small / jnp.where(large == 0, 1.0, large)
    return jnp.where(jnp.isinf(large), jnp.inf, large * jnp.sqrt(1.0 + ratio * ratio))


@_rule("abs")
def _absolute(eqn: Any, value: Pair) -> Any:
    return _size(value)


@_rule("sign")
def _sign(eqn: Any, value: Pair) -> Pair:
    size = _size(value)
    safe = jnp.where(size == 0, 1.0, size)
    return Pair(value.real / safe, None if value.imaginary is None else value.imaginary / safe)


@_rule("square")
def _square(eqn: Any, value: Pair) -> Pair:
    return _mul(value, value)


@_rule("integer_pow")
def _integer_power(eqn: Any, value: Pair) -> Pair:
    left = abs(eqn.params["y"])
    result, square = Pair(jnp.ones_like(value.real)), value
    while left:
        if left & 1:
            result = _mul(result, square)
        left >>= 1
        square = _mul(square, square) if left else square
    return result if eqn.params["y"] >= 0 else _quotient(Pair(jnp.ones_like(value.real)), result)


@_rule("reduce_prod")
def _whole_product(eqn: Any, value: Pair) -> Pair:
    """Halves times halves along each dimension, until one element is left."""
    made = Pair(value.real, value.second)
    for axis in sorted(eqn.params["axes"], reverse=True):
        while made.real.shape[axis] > 1:
            half = made.real.shape[axis] // 2
            low, high, rest = (
                Pair(*(lax.slice_in_dim(p, *cut, axis=axis) for p in (made.real, made.second)))
                for cut in ((0, half), (half, 2 * half), (2 * half, None))
            )
            both = _mul(low, high)
            made = Pair(*(lax.concatenate(p, axis) for p in ((both.real, rest.real), (both.second, rest.second))))
        if made.real.shape[axis] == 0:
            shape = tuple(1 if d == axis else n for d, n in enumerate(made.real.shape))
            made = Pair(jnp.ones(shape, np.float32), jnp.zeros(shape, np.float32))
        made = Pair(*(lax.squeeze(p, [axis]) for p in (made.real, made.second)))
    return made


# --- functions --------------------------------------------------------------------------------------------------------


def _exp(value: Pair) -> Pair:
    size = jnp.exp(value.real)
    if value.imaginary is None:
        return Pair(size)
    return Pair(size * jnp.cos(value.imaginary), size * jnp.sin(value.imaginary))


def _log(value: Pair) -> Pair:
    return Pair(jnp.log(_size(value)), jnp.arctan2(value.second, value.real))


def _sqrt(value: Pair) -> Pair:
    size = _size(value)
    # The part that does not cancel, and the other one by division.
    large = jnp.sqrt((size + jnp.abs(value.real)) * 0.5)
    small = jnp.abs(value.second) / jnp.where(large == 0, 1.0, 2.0 * large)
    right = value.real >= 0
    return Pair(jnp.where(right, large, small), jnp.where(right, small, large) * jnp.where(value.second < 0, -1.0, 1.0))


def _sin(value: Pair) -> Pair:
    x, y = value.real, value.second
    return Pair(jnp.sin(x) * jnp.cosh(y), jnp.cos(x) * jnp.sinh(y))


def _cos(value: Pair) -> Pair:
    x, y = value.real, value.second
    return Pair(jnp.cos(x) * jnp.cosh(y), -jnp.sin(x) * jnp.sinh(y))


def _rotated(value: Pair, sign: float = 1.0) -> Pair:
    """Times i, or −i."""
    return Pair(-sign * value.second, sign * value.real)


def _sinh(value: Pair) -> Pair:
    return _rotated(_sin(_rotated(value)), -1.0)


def _cosh(value: Pair) -> Pair:
    return _cos(_rotated(value))


def _tanh(value: Pair) -> Pair:
    # By 2x and 2y, of which the larger exponential is divided out.
    x, y = 2.0 * value.real, 2.0 * value.second
    bounded = jnp.clip(x, -40.0, 40.0)
    below = jnp.cosh(bounded) + jnp.cos(y)
    return Pair(jnp.sinh(bounded) / below, jnp.sin(y) / below)


def _tan(value: Pair) -> Pair:
    return _rotated(_tanh(_rotated(value)), -1.0)


def _one_over(value: Pair) -> Pair:
    return _quotient(Pair(jnp.ones_like(value.real)), value)


def _less_one(value: Pair) -> Pair:
    """exp(z) − 1, where nothing cancels."""
    x, y = value.real, value.second
    half = jnp.sin(y * 0.5)
    return Pair(jnp.expm1(x) * jnp.cos(y) - 2.0 * half * half, jnp.exp(x) * jnp.sin(y))


def _log_with_one(value: Pair) -> Pair:
    x, y = value.real, value.second
    return Pair(0.5 * jnp.log1p(x * (2.0 + x) + y * y), jnp.arctan2(y, 1.0 + x))


def _logistic(value: Pair) -> Pair:
    half = _tanh(Pair(value.real * 0.5, value.second * 0.5))
    return Pair(half.real * 0.5 + 0.5, half.second * 0.5)


_FUNCTIONS: dict[str, Callable[[Pair], Pair]] = {
    "exp": _exp,
    "exp2": lambda v: _exp(Pair(v.real * np.log(2.0), v.second * np.log(2.0))),
    "expm1": _less_one,
    "log": _log,
    "log1p": _log_with_one,
    "sqrt": _sqrt,
    "rsqrt": lambda v: _one_over(_sqrt(v)),
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "logistic": _logistic,
}
"""Functions of one value by name."""


def _register(name: str, function: Callable[[Pair], Pair]) -> None:
    @_rule(name)
    def of_one(eqn: Any, value: Pair) -> Pair:
        return function(value)


for _name, _function in _FUNCTIONS.items():
    _register(_name, _function)


@_rule("pow")
def _power(eqn: Any, base: Pair, exponent: Any) -> Pair:
    """exp(y · log x); zero to any power but zero is zero."""
    exponent = exponent if isinstance(exponent, Pair) else Pair(lax.convert_element_type(exponent, np.float32))
    size = _size(base)
    is_zero = size == 0
    safe = Pair(jnp.where(is_zero, 1.0, base.real), base.imaginary)
    made = _exp(_mul(exponent, _log(safe)))
    none = jnp.where((exponent.real == 0) & (exponent.second == 0), 1.0, 0.0)
    return Pair(jnp.where(is_zero, none, made.real), jnp.where(is_zero, 0.0, made.second))


# --- comparisons ------------------------------------------------------------------------------------------------------


@_rule("eq", "eq_to")
def _equal(eqn: Any, first: Pair, second: Pair) -> Any:
    return (first.real == second.real) & (first.second == second.second)


@_rule("ne")
def _unequal(eqn: Any, first: Pair, second: Pair) -> Any:
    return (first.real != second.real) | (first.second != second.second)


@_rule("is_finite")
def _finite(eqn: Any, value: Pair) -> Any:
    return jnp.isfinite(value.real) & jnp.isfinite(value.second)


# --- functions, loops, branches ---------------------------------------------------------------------------------------


@_rule("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint")
@_rule("custom_jvp_call", "custom_vjp_call")
def _called(eqn: Any, *operands: Any) -> list[Any]:
    params = eqn.params
    return _results(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"], operands)


@_rule("custom_linear_solve")
def _linear_solve(eqn: Any, *operands: Any) -> list[Any]:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    begin = lengths.matvec + lengths.vecmat
    return _results(jaxprs.solve, [*operands[begin : begin + lengths.solve], *operands[sum(lengths) :]])


def _flat(values: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Values for loops, which carry no pairs: each a tuple of one or two."""
    return tuple((v.real, v.second) if isinstance(v, Pair) else (v,) for v in values)


def _grouped(values: Sequence[Any]) -> list[Any]:
    return [Pair(*v) if len(v) == 2 else v[0] for v in values]


@_rule("scan")
def _scan(eqn: Any, *operands: Any) -> list[Any]:
    params = eqn.params
    consts, count = params["num_consts"], params["num_carry"]

    def body(carry: Any, row: Any) -> tuple[Any, Any]:
        made = _results(params["jaxpr"], [*operands[:consts], *_grouped(carry), *_grouped(row)])
        return _flat(made[:count]), _flat(made[count:])

    start, rows = _flat(operands[consts : consts + count]), _flat(operands[consts + count :])
    end, stacked = lax.scan(
        body, start, rows, length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
    )
    return [*_grouped(end), *_grouped(stacked)]


@_rule("while")
def _while(eqn: Any, *operands: Any) -> list[Any]:
    params = eqn.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    test, body = operands[:first], operands[first:second]

    def holds(carry: Any) -> Any:
        return _results(params["cond_jaxpr"], [*test, *_grouped(carry)])[0]

    def step(carry: Any) -> Any:
        return _flat(_results(params["body_jaxpr"], [*body, *_grouped(carry)]))

    return _grouped(lax.while_loop(holds, step, _flat(operands[second:])))


@_rule("cond")
def _cond(eqn: Any, index: Any, *operands: Any) -> list[Any]:
    def way(jaxpr: Any, *given: Any) -> Any:
        return _flat(_results(jaxpr, _grouped(given)))

    ways = [partial(way, jaxpr) for jaxpr in eqn.params["branches"]]
    return _grouped(lax.switch(lax.convert_element_type(index, np.int32), ways, *_flat(operands)))


# --- transforms -------------------------------------------------------------------------------------------------------

fourier_p = jec.Primitive("fourier")
"""A Fourier transform over the last dimensions, of one or two real operands.

Parameters: ``lengths`` of the transformed dimensions; ``inverse``; ``half``, the side on which the last dimension has
half of the frequencies and the other side is real: "result", "operand" or neither.
"""
fourier_p.multiple_results = True


def _fourier_types(*parts: Any, lengths: tuple[int, ...], inverse: bool, half: str) -> list[Any]:
    del inverse
    last = lengths[-1] // 2 + 1 if half == "result" else lengths[-1]
    shape = (*parts[0].shape[: -len(lengths)], *lengths[:-1], last)
    return [jax.core.ShapedArray(shape, parts[0].dtype)] * (1 if half == "operand" else 2)


fourier_p.def_abstract_eval(_fourier_types)


@_rule("fft")
def _fft(eqn: Any, value: Any) -> Any:
    kind, lengths = eqn.params["fft_type"], tuple(map(int, eqn.params["fft_lengths"]))
    half = {"RFFT": "result", "IRFFT": "operand"}.get(kind.name, "")
    parts = [p for p in (value.real, value.imaginary) if p is not None] if isinstance(value, Pair) else [value]
    parts = [lax.convert_element_type(p, np.float32) for p in parts]
    made = fourier_p.bind(*parts, lengths=lengths, inverse=kind.name in ("IFFT", "IRFFT"), half=half)
    return made[0] if half == "operand" else Pair(*made)


refused_p = jec.Primitive("complex_refused")
"""Stands for a primitive that has no rule for complex numbers, so that the reader names it."""
refused_p.multiple_results = True


def _refused_types(*, name: str, results: tuple[tuple[tuple[int, ...], Any], ...]) -> list[Any]:
    del name
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in results]


refused_p.def_abstract_eval(_refused_types)
