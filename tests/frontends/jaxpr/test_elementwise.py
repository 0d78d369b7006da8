"""Arithmetic, bits and conversions mean what they mean to XLA, special values included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from frontends.jaxpr.jaxpr_kit import captured, check, compiled_where_slow, fused_kinds, mostly_slow

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 3.7, 1e-5], "f4")
OTHERS = np.roll(SPECIAL, 5)
BOUNDS = {d: np.iinfo(d) for d in ("i4", "i2", "i1", "u4", "u2", "u1")}


def _integers(dtype):
    low, high = BOUNDS[dtype].min, BOUNDS[dtype].max
    first = np.array([0, 1, 2, 7, high, low, high - 1, low + 1, 100, 33, low], dtype)
    second = np.array([1, 0, 3, 2, 2, 0, 5, 7, 40, 8, high if low == 0 else -1], dtype)
    return first, second


@compiled_where_slow
def test_arithmetic_of_special_floats__is_xlas_everywhere(native):
    def all_of_them(x, y):
        two = [f(x, y) for f in (lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.min, lax.pow, lax.atan2)]
        tests = [f(x, y) for f in (lax.lt, lax.le, lax.eq, lax.ne, lax.ge, lax.gt)]
        return two, tests, lax.sign(x), lax.neg(x), lax.abs(x), lax.is_finite(x), lax.nextafter(x, y)

    with np.errstate(all="ignore"):
        check(all_of_them, SPECIAL, OTHERS, native=native)


@pytest.mark.parametrize("dtype", mostly_slow(BOUNDS, "i1"))
def test_arithmetic_of_integers__at_the_ends_of_the_range__wraps_and_divides_as_xla(dtype):
    def all_of_them(x, y):
        two = [lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.min, lax.mulhi]
        two += [lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor]
        two += [lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic]
        one = [lax.neg, lax.sign, lax.bitwise_not, lax.population_count, lax.clz]
        return [f(x, y) for f in two], [f(x) for f in one], lax.integer_pow(x, 5)

    check(all_of_them, *_integers(dtype), native=dtype in ("i1", "u4"))


def test_shifts__by_known_counts_beyond_the_width__leave_nothing_or_the_sign():
    x = np.array([-128, -1, 5, 127], "i1")
    check(lambda v: (v << 9, lax.shift_right_logical(v, np.int8(3)), v >> 9, v >> 3), x)


def test_rounding__of_halves_and_their_neighbours__goes_as_asked():
    x = np.array([0.5, -0.5, 1.5, 2.5, 0.49999997, -0.3, 8388609.0, np.inf, np.nan], "f4")
    check(lambda v: [lax.round(v, m) for m in lax.RoundingMethod], x, native=True)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "uint32", "bool", "bfloat16"])
def test_conversion__of_floats_beyond_the_range__stays_at_its_ends(dtype):
    x = np.array([3e9, -3e9, 300.7, -1.5, np.nan, np.inf, -np.inf, 0.0, 127.9], "f4")
    check(lambda v: lax.convert_element_type(v, dtype), x, native=dtype in ("int8", "uint32"))


def test_conversion__through_a_narrow_integer__cuts_what_it_does_not_hold():
    x = np.array([1000, 257, 70000, 3], "u4")
    check(lambda v: (v.astype("uint8").astype("uint16") + 1, v.astype("int8").astype("float32")), x, native=True)


@pytest.mark.parametrize(
    ("source", "target", "shape"), [("f4", "i4", (5,)), ("f4", "u2", (5,)), ("u1", "f4", (3, 4)), ("f2", "i2", (5,))]
)
def test_bits__of_floats_and_of_parts__are_those_of_numpy(source, target, shape):
    x = np.random.default_rng(0).integers(0, 100, shape).astype(source)
    check(lambda v: lax.bitcast_convert_type(v, target), x, native=True)


def test_bits__between_a_computation_and_a_conversion__are_read_as_they_are():
    def negated(x):
        word = lax.bitcast_convert_type(x.astype("float32") * 2, "uint32")
        return lax.bitcast_convert_type(word ^ np.uint32(2**31), "float32").astype("float16")

    check(negated, np.array([1.5, -2, 3], "f2"), native=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_reduced_precision__overflows_underflows_and_rounds_as_xla(dtype):
    x = jnp.asarray(np.concatenate([SPECIAL, np.geomspace(1e-6, 6e4, 9, dtype="f4")]), dtype)
    check(lambda v: [lax.reduce_precision(v, e, m) for e, m in ((5, 4), (4, 3), (8, 7))], x)


@pytest.mark.parametrize("gradients", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_special_functions__and_their_gradients__are_jaxs(gradients):
    a, x = np.array([0.3, 1.0, 2.5, 30.0], "f4"), np.array([0.1, 2.0, 2.4, 33.0], "f4")

    def total(a, x):
        inside = lax.betainc(jnp.full_like(a, 2.0), jnp.full_like(a, 3.0), x / 40)
        return jnp.sum(lax.igamma(a, x) * 2 + lax.igammac(a, x + 1) + lax.lgamma(a) + lax.digamma(a) + inside)

    check(jax.value_and_grad(total, (0, 1)) if gradients else total, a, x, rtol=1e-5, atol=1e-5)
    check(lambda v: [lax.polygamma(jnp.full_like(v, n), v) for n in (0.0, 1.0, 3.0)], a, rtol=1e-5)


def test_zeta__at_poles_and_of_even_powers__has_xlas_values():
    s, q = np.meshgrid(np.array([0, 1, 2, 3, 2.5, np.inf], "f4"), np.array([0, -1, -1.5, 2, np.nan], "f4"))
    check(lax.zeta, s, q, rtol=1e-5)


def test_maps_that_one_map_reads__are_part_of_it():
    found, _ = captured(lambda x: jax.nn.gelu(x) * 2 + 1, np.ones((4, 4), "f4"))
    assert fused_kinds(found.network) == ["map"]


def test_a_value_that_is_read_twice__is_computed_once():
    def function(x):
        root = jnp.exp(x)
        return root * jnp.sin(root)

    found, _ = captured(function, np.ones(4, "f4"))
    assert fused_kinds(found.network) == ["map", "map"]
    check(function, np.linspace(-1, 1, 4, dtype="f4"), native=True)
