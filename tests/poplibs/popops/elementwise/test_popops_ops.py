"""Every named operation against Python's mathematics."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.expr import POPOPS as OPS
from abele.graph import Tensor
from abele.numerics import bool_
from abele.poplibs import popops

FLOATS = np.float32([-3.7, -2.5, -1.0, -0.6, -1e-4, 0.0, 1e-4, 0.3, 0.5, 1.0, 1.5, 2.5, 4.2])
POSITIVE = np.float32([1e-4, 0.1, 0.5, 1.0, 2.0, 3.3, 10.0, 400.0])
UNIT = np.float32([-1.0, -0.9, -0.5, -0.1, 0.0, 1e-3, 0.4, 0.7, 0.99, 1.0])
SPECIAL = np.float32([0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
INTEGERS = np.int32([0, 1, 2, 5, 255, 4096, 123456789, 2147483647])
BOOLS = np.array([True, False, True, True])


def _murmur(x: int) -> int:
    x = ((x ^ x >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ x >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ x >> 16


UNARY: dict[str, tuple[np.ndarray, Callable[[np.ndarray], object]]] = {
    "abs": (FLOATS, np.abs),
    "neg": (FLOATS, np.negative),
    "square": (FLOATS, np.square),
    "relu": (FLOATS, lambda x: np.maximum(x, 0)),
    "inv": (POSITIVE, lambda x: 1 / x),
    "sqrt": (POSITIVE, np.sqrt),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)),
    "exp": (FLOATS, np.exp),
    "exp2": (FLOATS, np.exp2),
    "expm1": (FLOATS, np.expm1),
    "log": (POSITIVE, np.log),
    "log1p": (POSITIVE, np.log1p),
    "tanh": (FLOATS, np.tanh),
    "sigmoid": (FLOATS, lambda x: 1 / (1 + np.exp(-x))),
    "erf": (FLOATS, np.vectorize(math.erf)),
    "gelu_erf": (FLOATS, lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))),
    "sin": (FLOATS, np.sin),
    "cos": (FLOATS, np.cos),
    "tan": (UNIT, np.tan),
    "asin": (UNIT, np.arcsin),
    "cbrt": (FLOATS, np.cbrt),
    "ceil": (FLOATS, np.ceil),
    "floor": (FLOATS, np.floor),
    "trunc": (FLOATS, np.trunc),
    "round": (FLOATS, lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5)),
    "nearbyint": (FLOATS, np.rint),
    "signum": (FLOATS, np.sign),
    "is_finite": (SPECIAL, np.isfinite),
    "is_inf": (SPECIAL, np.isinf),
    "is_nan": (SPECIAL, np.isnan),
    "logical_not": (BOOLS, np.logical_not),
    "bitwise_not": (INTEGERS, np.invert),
    "popcount": (INTEGERS, lambda x: [bin(int(v)).count("1") for v in x]),
    "hash": (INTEGERS, lambda x: np.array([_murmur(int(v)) for v in x], np.uint32).astype(np.int32)),
    "count_leading_zeros": (INTEGERS, lambda x: [32 - int(v).bit_length() for v in x]),
}

_A = np.float32([-3.5, -1.0, -0.2, 0.4, 1.0, 2.5, 7.0, 2.0])
_B = np.float32([2.0, -1.0, 0.3, -0.5, 3.0, 2.5, 0.25, -2.0])
_I = np.int32([-7, -1, 0, 5, 100, 12345])
_J = np.int32([3, -1, 4, 2, 7, 11])
_L = np.array([True, True, False, False])
_R = np.array([True, False, True, False])

BINARY: dict[str, tuple[np.ndarray, np.ndarray, Callable[[np.ndarray, np.ndarray], object]]] = {
    "add": (_A, _B, np.add),
    "sub": (_A, _B, np.subtract),
    "mul": (_I, _J, np.multiply),
    "div": (_A, _B, np.divide),
    "rem": (_A, _B, np.fmod),
    "pow": (np.abs(_A), _B, np.power),
    "atan2": (_A, _B, np.arctan2),
    "max": (_A, _B, np.maximum),
    "min": (_I, _J, np.minimum),
    "eq": (_A, _B, np.equal),
    "neq": (_A, _B, np.not_equal),
    "lt": (_A, _B, np.less),
    "lteq": (_I, _J, np.less_equal),
    "gt": (_A, _B, np.greater),
    "gteq": (_A, _B, np.greater_equal),
    "logical_and": (_L, _R, np.logical_and),
    "logical_or": (_L, _R, np.logical_or),
    "bitwise_and": (_I, _J, np.bitwise_and),
    "bitwise_or": (_I, _J, np.bitwise_or),
    "bitwise_xor": (_I, _J, np.bitwise_xor),
    "bitwise_xnor": (_I, _J, lambda x, y: ~(x ^ y)),
    "shift_left": (_I, np.abs(_J), np.left_shift),
    "shift_right": (_I, np.abs(_J), lambda x, y: (x.astype(np.uint32) >> y.astype(np.uint32)).astype(np.int32)),
    "shift_right_sign_extend": (_I, np.abs(_J), np.right_shift),
    "variance_to_inv_std_dev": (np.abs(_A), np.float32([1e-3]), lambda v, e: 1 / np.sqrt(v + e)),
    "inv_std_dev_to_variance": (np.abs(_A), np.float32([1e-3]), lambda s, e: 1 / s**2 - e),
}


def _check(bench: Bench, made: dict[str, tuple[Tensor, object]]) -> None:
    """Results of operations, by name, are what is wanted; all of them are in one program."""
    found = bench.run_both(*(out for out, _ in made.values()))
    for (name, (out, wanted)), got in zip(made.items(), found, strict=True):
        if out.dtype.is_float:
            np.testing.assert_allclose(got, np.asarray(wanted, np.float64), rtol=4e-6, atol=2e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_unary__by_name__are_the_functions() -> None:
    bench, made = Bench(4), {}
    for name, (values, wanted) in UNARY.items():
        out = getattr(popops, name)(bench.graph, bench.tensor(values), bench.prog)
        with np.errstate(all="ignore"):
            made[name] = out, wanted(values.astype(np.float64) if values.dtype.kind == "f" else values)
    _check(bench, made)


def test_binary__by_name__are_the_functions() -> None:
    bench, made = Bench(4), {}
    for name, (left, right, wanted) in BINARY.items():
        out = getattr(popops, name)(bench.graph, bench.tensor(left), bench.tensor(right), bench.prog)
        made[name] = out, wanted(*(v.astype(np.float64) if v.dtype.kind == "f" else v for v in (left, right)))
    _check(bench, made)


def test_integer_division__signs__truncates_towards_zero() -> None:
    bench, made = Bench(4), {}
    for name, wanted in {"div": np.trunc(_I / _J), "rem": np.fmod(_I, _J)}.items():
        made[name] = getattr(popops, name)(bench.graph, bench.tensor(_I), bench.tensor(_J), bench.prog), wanted
    _check(bench, made)


def test_select_and_clamp__poplars_order_of_arguments() -> None:
    bench = Bench(4)
    a, b, condition = bench.tensor(_A), bench.tensor(_B), bench.tensor(_A > 0)
    assert condition.dtype == bool_
    chosen = popops.select(bench.graph, a, b, condition, bench.prog)
    clamped = popops.clamp(bench.graph, a, -1.0, 1.0, bench.prog)
    got, limited = bench.run_both(chosen, clamped)
    np.testing.assert_array_equal(got, np.where(_A > 0, _A, _B))
    np.testing.assert_array_equal(limited, np.clip(_A, -1, 1))


def test_table__every_operation__is_tested_here() -> None:
    own = {n for n in OPS if hasattr(popops, n)}
    assert own - {"select", "clamp"} == set(UNARY) | set(BINARY)


@pytest.mark.parametrize("name", sorted(n for n in OPS if hasattr(popops, n)))
def test_table__every_operation__has_all_three_forms(name: str) -> None:
    assert callable(getattr(popops, f"{name}_in_place"))
    assert callable(getattr(popops, f"{name}_with_output"))
