"""Samples of the primitives of ``jax.lax``: functions whose traces have them, and arguments of every type."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import linear_call

TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32", "u32": "uint32", "bool": "bool"}
"""JAX's names of the types that samples are run in."""
FLOATS, WHOLE, NUMBERS = "f32 f16 bf16", "i32 u32", "f32 f16 bf16 i32 u32"
ANY = f"{NUMBERS} bool"


@dataclass(frozen=True)
class X:
    """An argument of the type that a sample is run in.

    Attributes:
        shape: Its shape.
        low: Least number.
        high: Largest number.
        special: Values that it begins with, where it has the room.
    """

    shape: tuple[int, ...] = (2, 3)
    low: float = -4.0
    high: float = 4.0
    special: tuple[float, ...] = ()

    def array(self, dtype: str, seed: int) -> Any:
        """The argument, the same in every run."""
        draw = np.random.default_rng(seed)
        low = 0.0 if dtype.startswith("u") and self.low < 0 else self.low
        if dtype == "bool":
            return draw.integers(0, 2, self.shape).astype(bool)
        if "float" in dtype:
            values = draw.uniform(low, self.high, self.shape)
        else:
            values = draw.integers(int(np.ceil(low)), int(self.high) + 1, self.shape)
        flat = np.asarray(values).reshape(-1)
        count = min(len(self.special), flat.size)
        flat[:count] = self.special[:count]
        return jnp.asarray(flat.reshape(self.shape), dtype)


@dataclass(frozen=True)
class Sample:
    """A function whose trace has a primitive, or a function of a public module.

    Attributes:
        name: Of the primitive or function.
        function: The function to run.
        arguments: :class:`X` where the type is the sample's, other arrays as they are.
        types: Types in which it is run, by name.
        gradient: True if ``jax.grad`` is run as well, in types of floats.
        label: Tells samples of one name apart.
        tolerance: Largest error, where it is not the type's.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    types: tuple[str, ...]
    gradient: bool = True
    label: str = ""
    tolerance: float | None = None

    def arrays(self, dtype: str) -> list[Any]:
        """Arguments in a type."""
        seed = zlib.crc32(f"{self.name} {self.label}".encode())
        return [
            a.array(TYPES[dtype], seed + number) if isinstance(a, X) else a for number, a in enumerate(self.arguments)
        ]


SAMPLES: list[Sample] = []


def sample(
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    types: str = ANY,
    gradient: bool = True,
    tolerance: float | None = None,
) -> None:
    """Add a sample."""
    number = sum(s.name == name for s in SAMPLES)
    SAMPLES.append(
        Sample(name, function, arguments, tuple(types.split()), gradient, str(number) if number else "", tolerance)
    )


def then(function: Callable[..., Any], *rest: Any, **options: Any) -> Callable[..., Any]:
    """A function of its first argument alone."""
    return lambda x: function(x, *rest, **options)


# --- element by element -----------------------------------------------------------------------------------------------

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, float("inf"), float("-inf"), float("nan"), 3.5, -2.5)
_INTEGERS = (0, 1, 2, 7, 100, 3)
_PAIR = X((4, 6)), X((4, 6), low=-3.0, high=3.0)

for _name in [
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "asinh",
    "atan",
    "logistic",
    "erf",
    "erfc",
    "cbrt",
    "square",
]:
    sample(_name, getattr(lax, _name), X((4, 5)), types=FLOATS)
    sample(_name, getattr(lax, _name), X((12,), special=_SPECIAL), types=FLOATS, gradient=False)
for _name in ["log", "log1p", "sqrt", "rsqrt"]:
    sample(_name, getattr(lax, _name), X((4, 5), low=0.1, high=9.0), types=FLOATS)
    sample(_name, getattr(lax, _name), X((12,), special=_SPECIAL), types=FLOATS, gradient=False)
for _name in ["asin", "acos", "atanh", "erf_inv"]:
    sample(_name, getattr(lax, _name), X((4, 5), low=-0.9, high=0.9), types=FLOATS)
    sample(_name, getattr(lax, _name), X((12,), special=_SPECIAL), types=FLOATS, gradient=False)
sample("acosh", lax.acosh, X((4, 5), low=1.1), types=FLOATS)
for _name in ["lgamma", "digamma", "bessel_i0e", "bessel_i1e"]:
    sample(_name, getattr(lax, _name), X((4, 5), low=0.2, high=6.0), types=FLOATS)
    sample(_name, getattr(lax, _name), X((12,), special=_SPECIAL), types=FLOATS, gradient=False)
for _name in ["floor", "ceil"]:
    sample(_name, getattr(lax, _name), X((12,), special=_SPECIAL), types=FLOATS, gradient=False)
for _method in lax.RoundingMethod:
    sample("round", partial(lax.round, rounding_method=_method), X((12,), special=_SPECIAL), types=FLOATS)
sample("is_finite", lax.is_finite, X((12,), special=_SPECIAL), types=FLOATS)
for _name in ["neg", "sign"]:
    sample(_name, getattr(lax, _name), X((12,), special=_SPECIAL), types=FLOATS)
    sample(_name, getattr(lax, _name), X((6,), special=_INTEGERS), types=WHOLE)
sample("abs", lax.abs, X((12,), special=_SPECIAL), types=FLOATS)
sample("abs", lax.abs, jnp.array([-(2**31), -1, 0, 7]), types="i32")
for _name in ["add", "sub", "mul", "max", "min"]:
    sample(_name, getattr(lax, _name), *_PAIR, types=NUMBERS)
sample("max", lax.max, X((5,)), X((5,)), types="bool")
sample("min", lax.min, X((5,)), X((5,)), types="bool")
sample("add_any", lambda x: jax.grad(lambda y: jnp.sum(y * y * 1.0))(x), X((4, 5)), types=FLOATS)
sample("div", lax.div, X((4, 6)), X((4, 6), low=0.5), types=NUMBERS)
sample("div", lax.div, jnp.array([7, -7, 7, -(2**31), 5]), jnp.array([2, 2, 0, -1, -3]), types="i32")
sample("rem", lax.rem, X((4, 6), high=20.0), X((4, 6), low=0.5), types=NUMBERS)
sample("rem", lax.rem, jnp.array([7, -7, 7, -(2**31), 5]), jnp.array([2, 2, 0, -1, -3]), types="i32")
sample("pow", lax.pow, X((4, 5), low=0.2), X((4, 5)), types=FLOATS)
sample("pow", lax.pow, X((4, 5)), jnp.array([[0, 1, 2, 3, -2]]).repeat(4, 0), types=FLOATS)
for _power in (-2, 0, 3, 8):
    sample("integer_pow", partial(lax.integer_pow, y=_power), X((4, 5), low=0.5), types=FLOATS)
sample("integer_pow", partial(lax.integer_pow, y=5), X((4, 5)), types=WHOLE)
sample("atan2", lax.atan2, *_PAIR, types=FLOATS)
sample("nextafter", lax.nextafter, X((12,), special=_SPECIAL), X((12,)), types=FLOATS, gradient=False)
sample("igamma", lax.igamma, X((4, 5), low=0.3), X((4, 5), low=0.1, high=6.0), types=FLOATS)
sample("igammac", lax.igammac, X((4, 5), low=0.3), X((4, 5), low=0.1, high=6.0), types=FLOATS)
sample("igamma_grad_a", lax.igamma_grad_a, X((4, 5), low=0.3), X((4, 5), low=0.1), types=FLOATS, gradient=False)
sample("zeta", lax.zeta, X((4, 5), low=1.5), X((4, 5), low=0.5), types=FLOATS, gradient=False)
sample("zeta", lambda q: lax.zeta(jnp.full_like(q, 2.5), q), X((4, 5), low=0.5), types=FLOATS)
sample("polygamma", lambda x: lax.polygamma(jnp.full_like(x, 2.0), x), X((4, 5), low=0.5), types=FLOATS)
_BETA = X((4, 5), low=0.4), X((4, 5), low=0.4)
sample("regularized_incomplete_beta", lax.betainc, *_BETA, X((4, 5), low=0.05, high=0.95), types=FLOATS, gradient=False)
sample(
    "regularized_incomplete_beta",
    lambda x: lax.betainc(jnp.full_like(x, 2.0), jnp.full_like(x, 3.0), x),
    X((4, 5), low=0.05, high=0.95),
    types=FLOATS,
)
for _name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    sample(_name, getattr(lax, _name), X((12,), special=_SPECIAL), X((12,), special=_SPECIAL[::-1]), types=FLOATS)
    sample(_name, getattr(lax, _name), X((12,)), X((12,)), types=f"{WHOLE} bool")
for _name in ["eq_to", "lt_to", "le_to"]:
    _primitive = getattr(lax, f"{_name}_p")
    sample(
        _name,
        _primitive.bind,
        X((12,), special=_SPECIAL),
        X((12,), special=_SPECIAL[::-1]),
        types=FLOATS,
        gradient=False,
    )
sample("select_n", lambda p, x, y: lax.select_n(p, x, y), jnp.arange(6).reshape(2, 3) > 2, X(), X())
sample("select_n", lambda x, y, z: lax.select_n(jnp.array([0, 2, 1]), x, y, z), X((3,)), X((3,)), X((3,)))
sample("clamp", lambda x: lax.clamp(jnp.asarray(1, x.dtype), x, jnp.asarray(3, x.dtype)), X(), types=NUMBERS)
for _name in ["and", "or", "xor"]:
    sample(_name, getattr(lax, f"bitwise_{_name}"), X((12,), high=99), X((12,), high=99), types=f"{WHOLE} bool")
sample("not", lax.bitwise_not, X((12,), high=99), types=f"{WHOLE} bool")
for _name in ["shift_left", "shift_right_logical", "shift_right_arithmetic"]:
    sample(_name, getattr(lax, _name), X((12,), high=99), X((12,), low=0, high=40), types=WHOLE)
for _name in ["population_count", "clz"]:
    sample(_name, getattr(lax, _name), X((12,), high=9999), types=WHOLE)
sample("mulhi", lax.mulhi, X((12,), high=2e9), X((12,), high=2e9), types=WHOLE)
for _type in ("float32", "float16", "bfloat16", "int32", "int8", "uint8", "uint32", "bool"):
    sample("convert_element_type", partial(lax.convert_element_type, new_dtype=_type), X((4, 5), high=200.0))
_BEYOND = (3e9, -3e9, 300.0, -1.0, float("nan"), float("inf"))
for _type in ("int32", "int8", "uint8", "uint32"):
    sample(
        "convert_element_type",
        partial(lax.convert_element_type, new_dtype=_type),
        X((6,), special=_BEYOND),
        types=FLOATS,
    )
sample("bitcast_convert_type", partial(lax.bitcast_convert_type, new_dtype="int32"), X(), types="f32 u32")
sample("bitcast_convert_type", partial(lax.bitcast_convert_type, new_dtype="uint16"), X(), types="f32 f16 bf16 i32")
sample("bitcast_convert_type", partial(lax.bitcast_convert_type, new_dtype="float32"), X((3, 2)), types="f16 bf16 i32")
for _bits in ((5, 10), (8, 7), (4, 3)):
    sample("reduce_precision", lambda x, b=_bits: lax.reduce_precision(x, *b), X((12,), special=_SPECIAL), types=FLOATS)
sample("copy", jnp.copy, X())
sample("stop_gradient", lax.stop_gradient, X())
sample("stop_gradient", lambda x: x * lax.stop_gradient(x), X(), types=FLOATS)
sample("optimization_barrier", lambda x: lax.optimization_barrier((x, x))[1], X())
sample("tie", lax.tie_p.bind if hasattr(lax, "tie_p") else jax._src.lax.lax.tie_p.bind, X(), X(), gradient=False)
sample("random_gamma_grad", lax.random_gamma_grad, X((3,), low=0.5), X((3,), low=0.5), types="f32", gradient=False)

# --- complex numbers, as pairs of real ones ---------------------------------------------------------------------------

sample("complex", lambda x, y: jnp.abs(lax.complex(x, y)), *_PAIR, types="f32")
sample("real", lambda x, y: lax.real(lax.complex(x, y) * (2 + 1j)), *_PAIR, types="f32")
sample("imag", lambda x, y: lax.imag(lax.complex(x, y) * (2 + 1j)), *_PAIR, types="f32")
sample("conj", lambda x, y: lax.imag(lax.conj(lax.complex(x, y))), *_PAIR, types="f32")

# --- shapes -----------------------------------------------------------------------------------------------------------

sample("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (0, 2)), X((2, 1)))
sample("broadcast_in_dim", lambda x: lax.broadcast(x, (2,)), X((3,)))
sample("reshape", lambda x: lax.reshape(x, (3, 4)), X((2, 6)))
sample("reshape", lambda x: lax.reshape(x, (6, 2), dimensions=(1, 0)), X((2, 6)))
sample("squeeze", lambda x: lax.squeeze(x, (0, 2)), X((1, 3, 1)))
sample("expand_dims", lambda x: lax.expand_dims(x, (0, 2)), X((3,)))
sample("transpose", lambda x: lax.transpose(x, (2, 0, 1)), X((2, 3, 4)))
sample("slice", lambda x: lax.slice(x, (1, 0), (4, 5), (2, 1)), X((5, 6)))
sample("concatenate", lambda x, y: lax.concatenate([x, y, x], 1), X((2, 3)), X((2, 1)))
sample("split", lambda x: lax.split(x, (2, 1, 3), 1), X((2, 6)))
sample("rev", lambda x: lax.rev(x, (0, 2)), X((2, 3, 4)))
sample("iota", lambda x: x + lax.broadcasted_iota(x.dtype, (2, 3), 1), X(), types=NUMBERS)
sample("pad", lambda x: lax.pad(x, jnp.zeros((), x.dtype), [(1, 2, 0), (0, 1, 2)]), X((3, 4)))
sample("pad", lambda x: lax.pad(x, jnp.ones((), x.dtype), [(-1, 2, 0), (0, -1, 1)]), X((3, 4)))
sample("tile", lambda x: lax.tile(x, (2, 3)), X())
sample("stack", lambda x, y: lax.stack([x, y], 1), X(), X())
sample("unstack", lambda x: lax.unstack(x, 1), X())

# --- sums, products and orders ----------------------------------------------------------------------------------------

for _name in ["sum", "max", "min", "prod"]:
    sample(
        f"reduce_{_name}",
        then(getattr(lax, f"reduce_{_name}"), (0, 2)),
        X((2, 3, 4), low=0.5, high=2.0),
        types=NUMBERS,
    )
for _name in ["and", "or", "xor"]:
    sample(
        f"reduce_{_name}",
        then(getattr(lax, f"reduce_{_name}"), (1,)),
        X((3, 4), high=99),
        types=f"{WHOLE} bool",
    )
sample(
    "reduce",
    lambda x: lax.reduce(x, jnp.zeros((), x.dtype), lambda a, b: a + b + a * b, (1,)),
    X((3, 4), low=0, high=1),
    types="f32 i32",
    gradient=False,
)
sample(
    "reduce",
    lambda x, y: lax.reduce(
        (x, y), (jnp.zeros((), x.dtype),) * 2, lambda a, b: (lax.max(a[0], b[0]), lax.add(a[1], b[1])), (1,)
    ),
    X((3, 4)),
    X((3, 4)),
    types="f32 i32",
    gradient=False,
)
for _name in ["argmax", "argmin"]:
    sample(_name, then(getattr(lax, _name), 1, jnp.int32), X((3, 5)), types=NUMBERS)
for _name in ["cumsum", "cumprod", "cummax", "cummin"]:
    sample(_name, then(getattr(lax, _name), axis=1), X((3, 5), low=0.5, high=2.0), types=NUMBERS)
    sample(_name, then(getattr(lax, _name), axis=0, reverse=True), X((3, 5), low=0.5, high=2.0), types=NUMBERS)
sample("cumlogsumexp", lambda x: lax.cumlogsumexp(x, axis=1), X((3, 5)), types=FLOATS)
sample("sort", lambda x: lax.sort(x, dimension=1), X((3, 7)), types=NUMBERS)
sample("sort", lambda x: lax.sort(x), X((12,), special=_SPECIAL), types=FLOATS, gradient=False)
sample("sort", lambda x, y: lax.sort((x, y), dimension=0, num_keys=2), X((9,), high=2.0), X((9,)), types=NUMBERS)
sample("sort", lambda x, y: lax.sort_key_val(x, y), X((3, 5)), X((3, 5)), types=NUMBERS)
sample("top_k", lambda x: lax.top_k(x, 3), X((3, 7)), types=NUMBERS)
sample("approx_top_k", lambda x: lax.approx_max_k(x, 3), X((3, 7)), types="f32 bf16")
sample("dot_general", lambda x, y: lax.dot(x, y), X((3, 4)), X((4, 5)), types=NUMBERS)
sample(
    "dot_general",
    lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))),
    X((2, 3, 4)),
    X((2, 4, 5)),
    types=NUMBERS,
)
sample(
    "dot_general",
    lambda x, y: lax.dot_general(x, y, (((0, 2), (1, 0)), ((), ()))),
    X((2, 3, 4)),
    X((4, 2, 5)),
    types=NUMBERS,
)
sample(
    "dot_general",
    lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32),
    X((3, 4)),
    X((4, 5)),
    types=FLOATS,
)
_GROUPS = jnp.array([2, 0, 3], jnp.int32)
sample("ragged_dot_general", lambda x, y: lax.ragged_dot(x, y, _GROUPS), X((5, 4)), X((3, 4, 2)), types=FLOATS)

# --- indices ----------------------------------------------------------------------------------------------------------

_ROWS = jnp.array([2, 0, 2, -1, 7])
sample("gather", lambda x: x[_ROWS], X((4, 3)))
sample("gather", lambda x: x[jnp.array([0, 2]), jnp.array([1, 1])], X((4, 3)))
sample("gather", lambda x: x.at[:, _ROWS].get(mode="fill", fill_value=1), X((2, 4, 3)))
sample("gather", lambda x: jnp.take_along_axis(x, jnp.array([[0, 1], [2, 0]]), 1), X((2, 3)))
_PLACES = jnp.array([[0, 1], [2, 0]])
_NUMBERS = lax.GatherDimensionNumbers(offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1))
for _mode in ("clip", "fill"):
    sample("gather", lambda x, m=_mode: lax.gather(x, _PLACES, _NUMBERS, (2, 2), mode=m), X((4, 3)))
sample("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i), (2, 3)), X((5, 4)), jnp.int32(2))
sample("dynamic_slice", lambda x, i: lax.dynamic_index_in_dim(x, i, 1), X((5, 4)), jnp.int32(9))
sample(
    "dynamic_update_slice", lambda x, y, i: lax.dynamic_update_slice(x, y, (i, i)), X((5, 4)), X((2, 2)), jnp.int32(1)
)
sample(
    "dynamic_update_slice", lambda x, y, i: lax.dynamic_update_slice(x, y, (i, i)), X((5, 4)), X((2, 2)), jnp.int32(9)
)
for _name, _method in (
    ("scatter", "set"),
    ("scatter-add", "add"),
    ("scatter-mul", "multiply"),
    ("scatter-min", "min"),
    ("scatter-max", "max"),
    ("scatter-sub", "subtract"),
):
    _types = ANY if _method == "set" else NUMBERS
    _index = jnp.array([2, 0, 3]) if _method in ("set", "multiply") else jnp.array([2, 0, 2])
    sample(_name, lambda x, y, m=_method, i=_index: getattr(x.at[i], m)(y), X((4, 3)), X((3, 3)), types=_types)
    sample(
        _name,
        lambda x, y, m=_method: getattr(x.at[:, jnp.array([1, 9])], m)(y, mode="drop"),
        X((3, 4)),
        X((3, 2)),
        types=_types,
        gradient=_method in ("set", "add"),
    )
sample(
    "scatter-add",
    lambda x, y: x.at[jnp.array([0, 2, 0]), jnp.array([1, 1, 1])].add(y),
    X((4, 3)),
    X((3,)),
    types=NUMBERS,
)

# --- windows, convolutions, transforms --------------------------------------------------------------------------------

_WINDOW = {"window_dimensions": (1, 3, 2), "window_strides": (1, 2, 1), "padding": "VALID"}
for _name, _function, _start in (("sum", lax.add, 0.0), ("max", lax.max, -np.inf), ("min", lax.min, np.inf)):
    sample(
        f"reduce_window_{_name}",
        lambda x, f=_function, s=_start: lax.reduce_window(x, np.array(s, x.dtype), f, **_WINDOW),
        X((2, 7, 5)),
        types=FLOATS,
    )
sample("reduce_window_sum", lambda x: lax.reduce_window(x, 0, lax.add, (2, 2), (1, 1), "SAME"), X((4, 5)), types=WHOLE)
sample(
    "reduce_window_sum",
    lambda x: lax.reduce_window(
        x, 0.0, lax.add, (2, 2), (2, 1), ((1, 0), (0, 2)), base_dilation=(1, 2), window_dilation=(2, 1)
    ),
    X((6, 5)),
    types="f32",
)
sample(
    "reduce_window_max",
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 1), ((1, 0), (0, 2)), window_dilation=(2, 1)),
    X((6, 5)),
    types="f32",
)
sample(
    "reduce_window",
    lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "VALID"),
    X((4, 5)),
    types="f32",
    gradient=False,
)
sample(
    "select_and_scatter_add",
    lambda x: jax.grad(lambda y: jnp.sum(jnp.sin(lax.reduce_window(y, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID"))))(x),
    X((4, 6)),
    types="f32",
    gradient=False,
)
sample(
    "select_and_gather_add",
    lambda x, t: jax.jvp(lambda y: lax.reduce_window(y, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID"), (x,), (t,))[1],
    X((4, 6)),
    X((4, 6)),
    types="f32",
    gradient=False,
)
sample(
    "select_and_scatter",
    lambda x, y: jax._src.lax.windowed_reductions._select_and_scatter(
        x, lax.ge, (2, 2), (2, 2), ((0, 0), (0, 0)), y, jnp.zeros((), x.dtype), lax.add
    ),
    X((4, 6)),
    X((2, 3)),
    types="f32",
    gradient=False,
)


def _conv(x: Any, w: Any, **options: Any) -> Any:
    given = {"window_strides": (1, 1), "padding": "VALID", "dimension_numbers": ("NHWC", "HWIO", "NHWC")} | options
    return lax.conv_general_dilated(x, w, **given)


_IMAGE, _KERNEL = X((2, 7, 6, 4)), X((3, 2, 4, 6))
sample("conv_general_dilated", _conv, _IMAGE, _KERNEL, types=FLOATS)
sample("conv_general_dilated", partial(_conv, window_strides=(2, 1), padding="SAME"), _IMAGE, _KERNEL, types=FLOATS)
sample(
    "conv_general_dilated", partial(_conv, padding=((2, 1), (0, 3)), rhs_dilation=(2, 1)), _IMAGE, _KERNEL, types="f32"
)
sample(
    "conv_general_dilated", partial(_conv, padding=((2, 1), (0, 3)), lhs_dilation=(2, 3)), _IMAGE, _KERNEL, types="f32"
)
sample("conv_general_dilated", partial(_conv, feature_group_count=2), _IMAGE, X((3, 2, 2, 6)), types="f32")
sample("conv_general_dilated", partial(_conv, batch_group_count=2), _IMAGE, _KERNEL, types="f32")
sample(
    "conv_general_dilated", lambda x, w: lax.conv(x, w, (1, 2), "SAME"), X((2, 3, 5, 6)), X((4, 3, 3, 3)), types="f32"
)
sample(
    "conv_general_dilated",
    lambda x, w: lax.conv_general_dilated(x, w, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
    X((2, 8, 3)),
    X((3, 3, 4)),
    types="f32",
)
sample(
    "conv_general_dilated",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1, 1), "VALID"),
    X((1, 2, 4, 4, 4)),
    X((3, 2, 2, 2, 2)),
    types="f32",
)
sample("fft", lambda x: jnp.abs(jnp.fft.rfft(x)), X((3, 8)), types="f32", gradient=False)
sample("fft", lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 0.5), X((3, 8)), types="f32")
sample("fft", lambda x: jnp.real(jnp.fft.fft(x)) + jnp.imag(jnp.fft.fft2(x)), X((3, 8)), types="f32", gradient=False)

# --- matrices ---------------------------------------------------------------------------------------------------------


def _positive(x: Any) -> Any:
    return x @ jnp.swapaxes(x, -1, -2) + 4 * jnp.eye(x.shape[-1], dtype=x.dtype)


_SQUARE = X((2, 4, 4))
sample("cholesky", lambda x: lax.linalg.cholesky(_positive(x)), _SQUARE, types="f32")
sample("lu", lambda x: lax.linalg.lu(x)[0], _SQUARE, types="f32", gradient=False)
sample("lu", lambda x: lax.linalg.lu(_positive(x))[0], _SQUARE, types="f32")
sample(
    "lu_pivots_to_permutation", lambda p: lax.linalg.lu_pivots_to_permutation(p, 4), jnp.array([1, 1, 3]), types="i32"
)
sample("qr", lambda x: jnp.abs(jnp.linalg.qr(x)[1]), _SQUARE, types="f32")
sample("qr", lambda x: jnp.linalg.qr(x)[0] @ jnp.linalg.qr(x)[1], X((5, 3)), types="f32")
sample(
    "geqrf",
    lambda x: jnp.abs(jnp.diagonal(jax._src.lax.linalg.geqrf(x)[0], axis1=-2, axis2=-1)),
    _SQUARE,
    types="f32",
    gradient=False,
)
sample(
    "householder_product",
    lambda x: jnp.abs(lax.linalg.householder_product(*jax._src.lax.linalg.geqrf(x))),
    _SQUARE,
    types="f32",
    gradient=False,
)
sample("svd", lambda x: lax.linalg.svd(x)[1], X((2, 4, 3)), types="f32")
sample("svd", lambda x: lax.linalg.svd(x, compute_uv=False), X((4, 3)), types="f32")
sample("eigh", lambda x: lax.linalg.eigh(x + jnp.swapaxes(x, -1, -2))[1], _SQUARE, types="f32")
sample(
    "triangular_solve",
    lambda a, b: lax.linalg.triangular_solve(_positive(a), b, left_side=True, lower=True),
    _SQUARE,
    X((2, 4, 3)),
    types="f32",
)
sample(
    "triangular_solve",
    lambda a, b: lax.linalg.triangular_solve(_positive(a), b, transpose_a=True),
    _SQUARE,
    X((2, 3, 4)),
    types="f32",
)
sample("custom_linear_solve", jnp.linalg.solve, X((2, 4, 4), low=1.0), X((2, 4, 3)), types="f32", tolerance=1e-3)
sample(
    "symmetric_product",
    lambda a, c: lax.linalg.symmetric_product(a, c + c.T, symmetrize_output=True),
    X((4, 3)),
    X((4, 4)),
    types="f32",
    gradient=False,
)
sample(
    "tridiagonal_solve",
    lambda d, b: lax.linalg.tridiagonal_solve(d * 0.1, d + 6.0, d * 0.2, b),
    X((5,)),
    X((5, 2)),
    types="f32",
)
sample(
    "cholesky_update",
    lambda x, w: lax.linalg.cholesky_update(lax.linalg.cholesky(_positive(x)).T, w),
    X((4, 4)),
    X((4,)),
    types="f32",
    gradient=False,
)
sample(
    "hessenberg",
    lambda x: jnp.abs(jnp.diagonal(lax.linalg.hessenberg(x)[0], axis1=-2, axis2=-1)),
    _SQUARE,
    types="f32",
    gradient=False,
)
sample(
    "tridiagonal",
    lambda x: jnp.abs(lax.linalg.tridiagonal(x + jnp.swapaxes(x, -1, -2))[2]),
    _SQUARE,
    types="f32",
    gradient=False,
)

# --- control ----------------------------------------------------------------------------------------------------------

sample("jit", jax.jit(lambda x: x + x), X(), types=NUMBERS)
sample("scan", lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c), jnp.zeros_like(x[0]), x), X((4, 3)), types=FLOATS)
sample(
    "scan", lambda x: lax.scan(lambda c, v: (c + v, c), jnp.zeros_like(x[0]), x, reverse=True), X((4, 3)), types=NUMBERS
)
sample("scan", lambda x: lax.fori_loop(0, 5, lambda i, c: c + i.astype(c.dtype), x), X(), types=NUMBERS, gradient=False)
sample(
    "while",
    lambda x: lax.while_loop(lambda c: jnp.sum(c[0]) < 50, lambda c: (c[0] + c[1], c[1]), (x, x)),
    X(low=1.0),
    types="f32 i32",
    gradient=False,
)
sample("cond", lambda p, x: lax.cond(p, lambda v: v + v, lambda v: v * v, x), jnp.array(True), X(), types=NUMBERS)
sample(
    "cond",
    lambda i, x: lax.switch(i, [lambda v: v + v, lambda v: v * v, lambda v: v], x),
    jnp.int32(1),
    X(),
    types=NUMBERS,
)
sample(
    "platform_index",
    lambda x: lax.platform_dependent(x, tpu=lambda v: v + 1, default=lambda v: v + 2),
    X(),
    types="f32",
    gradient=False,
)
sample("custom_jvp_call", jax.nn.relu, X((4, 5)), types=FLOATS)


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    return x * x


_clipped.defvjp(lambda x: (x * x, x), lambda x, g: (jnp.clip(g * x, -1, 1),))
sample("custom_vjp_call", _clipped, X(), types=FLOATS)
sample("checkpoint", jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), X(), types=FLOATS)
sample("name", lambda x: checkpoint_name(x, "kept") * 2, X(), types=FLOATS)


@custom_vmap
def _mapped(x: Any) -> Any:
    return x * 2


@_mapped.def_vmap
def _mapped_rule(size: int, in_batched: Any, x: Any) -> Any:
    return x * 2, True


sample("custom_vmap_call", _mapped, X(), types="f32 i32", gradient=False)
sample("linear_call", lambda x: linear_call(lambda r, v: v * r, lambda r, g: g * r, 3.0, x), X(), types="f32")
sample(
    "composite", lambda x: lax.composite(lambda v: jnp.sin(v) + 1, "abele.sine")(x), X(), types="f32", gradient=False
)
sample("associative_scan", lambda x: lax.associative_scan(jnp.add, x), X((6, 2)), types=NUMBERS)
sample("map", lambda x: lax.map(lambda v: v * v, x), X((4, 2)), types=NUMBERS)
sample("device_put", lambda x: jax.device_put(x) + 1, X(), types="f32 i32")
sample("psum", lambda x: jax.vmap(lambda v: lax.psum(v, "i"), axis_name="i")(x), X((4, 2)), types="f32 i32")
sample(
    "pmax", lambda x: jax.vmap(lambda v: lax.pmax(v, "i"), axis_name="i")(x), X((4, 2)), types="f32 i32", gradient=False
)

# --- random numbers ---------------------------------------------------------------------------------------------------

_KEY, _KEYS = jax.random.key(3), jax.random.split(jax.random.key(5), 3)
sample("random_bits", lambda k: jax.random.bits(k, (3, 4)), _KEY, types="u32")
sample("random_bits", jax.vmap(lambda k: jax.random.bits(k, (4,), "uint8")), _KEYS, types="u32")
sample("random_split", lambda k: jax.random.split(k, (2, 3)), _KEY, types="u32")
sample("random_fold_in", jax.random.fold_in, _KEY, jnp.int32(7), types="u32")
sample("random_seed", jax.random.key, jnp.int32(7), types="u32")
sample(
    "random_wrap", lambda w: jax.random.bits(jax.random.wrap_key_data(w)), jnp.array([1, 2], jnp.uint32), types="u32"
)
sample("random_unwrap", jax.random.key_data, _KEYS, types="u32")
sample("random_clone", jax.random.clone, _KEY, types="u32")
sample(
    "threefry2x32",
    lambda k: jax._src.random.threefry2x32.threefry_2x32(k, jnp.arange(7, dtype=jnp.uint32)),
    jnp.array([1, 2], jnp.uint32),
    types="u32",
)
sample("iota_2x32_shape", lambda x: x + jax._src.random.prng.iota_2x32_shape((2, 3))[1], X(), types="u32")
for _name, _count in (("threefry4x32", 8), ("philox2x32", 3), ("philox4x32", 6)):
    _cipher = getattr(importlib.import_module(f"jax._src.random.{_name}"), f"{_name}_p")
    sample(_name, _cipher.bind, *(X((4,), high=2e9),) * _count, types="u32")
    sample("random_bits", lambda k: jax.random.bits(k, (3,)), jax.random.key(3, impl=_name), types="u32")
sample("random_gamma", lambda k: jax.random.gamma(k, jnp.array([0.5, 1.0, 7.0])), _KEY, types="f32", tolerance=1e-4)
sample(
    "rng_bit_generator", lambda k: lax.rng_bit_generator(k, (64,))[1] >= 0, jnp.arange(4, dtype=jnp.uint32), types="u32"
)


def _between(low: Any) -> Any:
    drawn = lax.rng_uniform(low, low + 2, (64,))
    return (drawn >= low) & (drawn < low + 2)


sample("rng_uniform", _between, X((), low=1.0), types="f32 i32", gradient=False)
