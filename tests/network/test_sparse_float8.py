"""Sparse products of 8-bit floats in networks, against their numbers in NumPy, on chips with and without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from abele.errors import NetworkError, TypeMismatchError
from abele.network import NetworkBuilder, Value, evaluate, parse, verify
from abele.network.ops import float8, sparse_float8, sparse_matmul
from abele.numerics import f8_143, f8_152, to_device, to_host
from abele.session import Schedule, Session, Settings
from abele.sparsity import random_pattern

Array = np.ndarray[Any, Any]
PATTERN = random_pattern((48, 64), 0.4, (16, 16), seed=2)


def computed(make: Callable[..., Sequence[Value]], *arrays: Array, system: str = "c600") -> Array:
    """Result of a network for arrays, held to its meaning."""
    net = NetworkBuilder()
    inputs = [net.input(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
    net.outputs += make(net, *inputs)
    made = net.finish()
    verify(made)
    assert parse(str(made)) == made
    (got,) = (np.asarray(v) for v in Session.of(made, Schedule(), settings=Settings(system=system))(*arrays))
    meant = evaluate(made, dict(zip(inputs, arrays, strict=True)))[net.outputs[0]]
    np.testing.assert_allclose(got, meant, rtol=2e-3, atol=2e-2)
    return got


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rounded(values: Array, type_: Any) -> Array:
    return np.asarray(to_host(to_device(values * 4, type_), type_), np.float64) / 4


@pytest.mark.parametrize("system", ["c600", "bow"])
@pytest.mark.parametrize("in_tensor", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_sparse_matmul__of_8_bit_floats__is_the_product_of_their_numbers(
    transposed: bool, in_tensor: bool, system: str
) -> None:
    values, x = numbers(PATTERN.num_blocks, 16, 16), numbers(PATTERN.shape[0 if transposed else 1], 12, seed=1)

    def make(net: NetworkBuilder, values: Value, x: Value, s: Value) -> list[Value]:
        held, taken = (float8.pow2scale_cast_to_fp8(net, v, 2, t) for v, t in ((values, f8_143), (x, f8_152)))
        how = {"transposed": transposed, "converts": system == "bow"}
        return [sparse_float8.sparse_matmul_pow2scaled(net, held, taken, s if in_tensor else -4, PATTERN, **how)]

    got = computed(make, values, x, np.int32(-4), system=system)
    matrix = PATTERN.to_dense(rounded(values, f8_143))
    wanted = (matrix.T if transposed else matrix) @ rounded(x, f8_152)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, wanted, atol=5e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("system", ["c600", "bow"])
@pytest.mark.parametrize("in_tensor", [False, True])
@pytest.mark.parametrize("columns", [8, 21])
def test_sampled_matmul__of_8_bit_floats__is_the_product_at_the_places(
    columns: int, in_tensor: bool, system: str
) -> None:
    a, b = numbers(48, columns), numbers(64, columns, seed=1)

    def make(net: NetworkBuilder, a: Value, b: Value, s: Value) -> list[Value]:
        left, right = (float8.pow2scale_cast_to_fp8(net, v, 2, t) for v, t in ((a, f8_152), (b, f8_143)))
        scale = s if in_tensor else -4
        return [sparse_float8.sampled_matmul_pow2scaled(net, left, right, scale, PATTERN, converts=system == "bow")]

    got = computed(make, a, b, np.int32(-4), system=system)
    wanted = PATTERN.values_of(rounded(a, f8_152) @ rounded(b, f8_143).T)
    np.testing.assert_allclose(got, wanted, atol=5e-3 * np.abs(wanted).max())


def test_sparse_matmul__of_8_bit_inputs__lies_where_it_is_multiplied() -> None:
    net = NetworkBuilder()
    values = net.input((PATTERN.num_blocks, 16, 16), f8_143, "values")
    x = net.input((64, 12), f8_152, "x")
    net.outputs.append(sparse_float8.sparse_matmul_pow2scaled(net, values, x, 1, PATTERN))
    given = to_device(numbers(PATTERN.num_blocks, 16, 16), f8_143), to_device(numbers(64, 12, seed=1), f8_152)
    session = Session.of(net.finish(), Schedule(), settings=Settings(system="c600"))
    got = np.asarray(session(*given)[0])
    wanted = PATTERN.to_dense(to_host(given[0]).astype(np.float64)) @ to_host(given[1]).astype(np.float64) * 2
    np.testing.assert_allclose(got, wanted, atol=5e-3 * np.abs(wanted).max())
    # Nothing is copied into rows of its own before it is multiplied.
    assert not [name for name in session.report.steps["name"] if "rows" in str(name)]


def test_sparse_products__of_other_types_blocks_and_chips__are_refused() -> None:
    for made, words in (
        (lambda n, v, x, w: sparse_matmul.sparse_matmul(n, v, x, PATTERN), "8-bit float, whose products have a scale"),
        (lambda n, v, x, w: sparse_float8.sparse_matmul_pow2scaled(n, v, w, 0, PATTERN), "is no 8-bit float"),
        (lambda n, v, x, w: sparse_float8.sampled_matmul_pow2scaled(n, x, x, 0, PATTERN), "no rows and columns of"),
        (lambda n, v, x, w: sparse_float8.sparse_matmul_pow2scaled(n, v, x, 40, PATTERN), r"the scale is 2\^40"),
    ):
        net = NetworkBuilder()
        values = net.input((PATTERN.num_blocks, 16, 16), f8_143, "v")
        x, wide = net.input((64, 8), f8_143, "x"), net.input((64, 8), "f16", "wide")
        net.outputs.append(made(net, values, x, wide))
        with pytest.raises(NetworkError, match=words):
            verify(net.finish())

    def make(net: NetworkBuilder, values: Value, x: Value) -> list[Value]:
        held, taken = (float8.pow2scale_cast_to_fp8(net, v, 0) for v in (values, x))
        return [sparse_float8.sparse_matmul_pow2scaled(net, held, taken, 0, pattern)]

    for pattern, system, words in (
        (random_pattern((48, 64), 0.4, (4, 4), seed=2), "c600", "blocks of 4 x 4 of f8_143 have no vertex"),
        (PATTERN, "bow", "Bow does not multiply 8-bit floats"),
    ):
        with pytest.raises(TypeMismatchError, match=words):
            computed(make, numbers(pattern.num_blocks, *pattern.block), numbers(64, 8), system=system)
