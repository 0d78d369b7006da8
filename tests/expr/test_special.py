"""Special functions: their meaning and their code against SciPy, their slopes against differences of the meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special as scipy_special

from abele.compiler import compile_program
from abele.expr import TABLE, apply, evaluate
from abele.expr.derivative import arg, partial
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.numerics import f32
from abele.poplibs import popops
from abele.runtime import Engine

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
COUNT = 300


def even(low: float, high: float) -> Array:
    return RNG.uniform(low, high, COUNT).astype(np.float32)


def wide(low: float, high: float) -> Array:
    return np.exp(RNG.uniform(np.log(low), np.log(high), COUNT)).astype(np.float32)


ANYWHERE = np.concatenate([even(-30, 30), wide(1e-6, 1e3), -wide(1e-6, 1e3)])
SHAPES = wide(0.01, 300)

CASES: dict[str, tuple[Callable[..., Array], tuple[Array, ...]]] = {
    "lgamma": (scipy_special.gammaln, (np.concatenate([ANYWHERE, even(0.9, 2.1)]),)),
    "digamma": (scipy_special.digamma, (ANYWHERE,)),
    "trigamma": (lambda x: scipy_special.polygamma(1, x), (wide(1e-6, 1e4),)),
    "zeta": (scipy_special.zeta, (even(1.01, 12), wide(1e-3, 1e3))),
    "igamma": (scipy_special.gammainc, (SHAPES, (SHAPES * np.exp(even(-0.5, 0.5))).astype(np.float32))),
    "igammac": (scipy_special.gammaincc, (SHAPES, (SHAPES * np.exp(even(-0.5, 0.5))).astype(np.float32))),
    "erfc": (scipy_special.erfc, (even(-6, 9),)),
    "erfcx": (scipy_special.erfcx, (np.concatenate([even(-9, 9), wide(1e-5, 1e20)]),)),
    "erfinv": (scipy_special.erfinv, (np.concatenate([even(-1, 1), 1 - wide(6e-8, 1e-2)]),)),
    "ndtri": (scipy_special.ndtri, (np.concatenate([even(0, 1), wide(1e-37, 1e-2)]),)),
    "i0": (scipy_special.i0, (even(-80, 80),)),
    "i0e": (scipy_special.i0e, (ANYWHERE,)),
    "i1": (scipy_special.i1, (even(-80, 80),)),
    "i1e": (scipy_special.i1e, (ANYWHERE,)),
    "bessel_j0": (scipy_special.j0, (ANYWHERE,)),
    "bessel_j1": (scipy_special.j1, (ANYWHERE,)),
    "bessel_y0": (scipy_special.y0, (wide(1e-5, 1e3),)),
    "bessel_y1": (scipy_special.y1, (wide(1e-5, 1e3),)),
    "bessel_k0": (scipy_special.k0, (wide(1e-5, 80),)),
    "bessel_k1": (scipy_special.k1, (wide(1e-5, 80),)),
    "bessel_k0e": (scipy_special.k0e, (wide(1e-5, 1e4),)),
    "bessel_k1e": (scipy_special.k1e, (wide(1e-5, 1e4),)),
    "airy_ai": (lambda x: scipy_special.airy(x)[0], (even(-40, 20),)),
}


@pytest.fixture(scope="module")
def computed() -> Iterator[dict[str, Array]]:
    """Every case by code, all in one program."""
    graph, prog = Graph(systems.get("bow-2000:1")), Sequence()
    tensors: dict[str, list[Any]] = {}
    outs: dict[str, Any] = {}
    for name, (_, arrays) in CASES.items():
        tensors[name] = [graph.variable(f32, a.shape, name=f"{name}{n}").map_linear() for n, a in enumerate(arrays)]
        expression = popops.expr.Expr(apply(name, *map(arg, range(len(arrays)))))
        outs[name] = popops.map(graph, expression, tensors[name], prog)
    executable = compile_program(graph, prog)
    keep = [*(t for group in tensors.values() for t in group), *outs.values()]
    with Engine(executable, threads=1, keep=keep) as engine:
        for name, (_, arrays) in CASES.items():
            for tensor, array in zip(tensors[name], arrays, strict=True):
                engine[tensor] = array
        engine.run()
        yield {name: np.array(engine[out]) for name, out in outs.items()}


@pytest.mark.parametrize("name", CASES)
def test_special_function__in_code__is_within_a_unit_in_the_last_place(name: str, computed: dict[str, Array]) -> None:
    function, arrays = CASES[name]
    expected = function(*(a.astype(np.float64) for a in arrays))
    normal = np.isfinite(expected) & (np.abs(expected) > 1e-37)
    assert normal.mean() > 0.5
    unit = np.spacing(np.abs(expected[normal]).astype(np.float32))
    assert (np.abs(computed[name][normal] - expected[normal]) / unit).max() < 1


@pytest.mark.parametrize("name", CASES)
def test_special_function__in_numpy__has_nine_digits(name: str) -> None:
    function, arrays = CASES[name]
    doubles = [a.astype(np.float64) for a in arrays]
    expected, got = function(*doubles), TABLE[name].meaning(*doubles)
    normal = np.isfinite(expected) & (np.abs(expected) > 1e-37)
    size = np.maximum(np.abs(expected[normal]), 0.1 if "bessel" in name or "gamma" in name else 0.0)
    assert (np.abs(got[normal] - expected[normal]) / size).max() < 2e-8 if "igamma" in name else 1e-9


SLOPED = [(name, n) for name in CASES for n in range(TABLE[name].arity) if name != "airy_ai"]
SLOPED = [(name, n) for name, n in SLOPED if TABLE[name].arity == 1 or n == 1]


@pytest.mark.parametrize(("name", "operand"), SLOPED)
def test_special_function__slope__is_that_of_the_meaning(name: str, operand: int) -> None:
    points = [np.linspace(1.3, 3.1, 7), np.linspace(0.4, 2.9, 7)][-TABLE[name].arity :]
    points = [np.linspace(0.05, 0.9, 7)] if name in ("erfinv", "ndtri") else points
    step = 1e-5
    above, below = ([p + sign * step * (n == operand) for n, p in enumerate(points)] for sign in (1, -1))
    expression = apply(name, *map(arg, range(len(points))))
    expected = (evaluate(expression, above) - evaluate(expression, below)) / (2 * step)
    np.testing.assert_allclose(evaluate(partial(expression, operand), points), expected, rtol=2e-5, atol=1e-7)


EDGES = [
    ("lgamma", (1.0,), 0.0),
    ("lgamma", (2.0,), 0.0),
    ("lgamma", (-3.0,), np.inf),
    ("lgamma", (0.0,), np.inf),
    ("digamma", (-2.0,), np.nan),
    ("digamma", (0.0,), -np.inf),
    ("zeta", (1.0, 2.0), np.inf),
    ("zeta", (0.5, 2.0), np.nan),
    ("zeta", (3.0, -1.0), np.inf),
    ("igamma", (2.0, 0.0), 0.0),
    ("igammac", (2.0, 0.0), 1.0),
    ("igamma", (0.0, 2.0), 1.0),
    ("igammac", (0.0, 2.0), 0.0),
    ("igamma", (2.0, np.inf), 1.0),
    ("igamma", (-1.0, 2.0), np.nan),
    ("erfc", (np.inf,), 0.0),
    ("erfc", (-np.inf,), 2.0),
    ("erfcx", (np.inf,), 0.0),
    ("erfcx", (-np.inf,), np.inf),
    ("erfinv", (1.0,), np.inf),
    ("erfinv", (-1.0,), -np.inf),
    ("erfinv", (1.5,), np.nan),
    ("ndtri", (0.0,), -np.inf),
    ("ndtri", (1.0,), np.inf),
    ("ndtri", (-0.1,), np.nan),
    ("i0", (np.inf,), np.inf),
    ("i1", (-np.inf,), -np.inf),
    ("bessel_j0", (np.inf,), 0.0),
    ("bessel_y0", (0.0,), -np.inf),
    ("bessel_y1", (-1.0,), np.nan),
    ("bessel_k0", (0.0,), np.inf),
    ("bessel_k1", (-1.0,), np.nan),
]


@pytest.mark.parametrize(("name", "at", "expected"), EDGES)
def test_special_function__at_an_edge__is_its_limit(name: str, at: tuple[float, ...], expected: float) -> None:
    got = float(TABLE[name].meaning(*(np.array(x) for x in at)))
    if name in ("i0", "i1") and np.isinf(expected):
        assert abs(got) > 1e300
        assert np.sign(got) == np.sign(expected)
    else:
        np.testing.assert_equal(got, expected)


@pytest.mark.parametrize("name", CASES)
def test_special_function__of_not_a_number__is_not_a_number(name: str) -> None:
    nan = np.array(np.nan)
    for place in range(TABLE[name].arity):
        at = [nan if n == place else np.array(1.5) for n in range(TABLE[name].arity)]
        assert np.isnan(TABLE[name].meaning(*at))
