"""Casts to 8-bit floats and back: exact against gfloat and NumPy, and what they cost with and without instructions."""

from __future__ import annotations

import gfloat
import numpy as np
import pytest
from poplibs_kit import Bench

from abele.compiler.cost import vertex_costs
from abele.errors import TypeMismatchError
from abele.graph import Execute, Graph, Sequence, walk
from abele.machine import systems
from abele.numerics import ElementType, f8_143, f8_152, quarter, to_host
from abele.numerics.narrow import format_of, round_to_nearest
from abele.poplibs import popops
from abele.poplibs.popops.elementwise.cast import cast_with_output
from support.quarters import fnuz

QUARTERS = [f8_143, f8_152, quarter("F143", 3), quarter("F152", -4)]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 240.0, -248.0, 57344.0, 1e30, 2.0**-11, 3 * 2.0**-11, -(2.0**-18)]


def values() -> np.ndarray:
    rng = np.random.default_rng(2)
    parts = [rng.normal(size=200) * 10.0**power for power in (-6, -3, 0, 2, 4)]
    return np.concatenate([*parts, SPECIAL]).astype(np.float32)


def by_gfloat(number: float, dtype: ElementType, saturate: bool) -> float:
    """A number as gfloat rounds it to a format of one zero and one NaN."""
    fmt = format_of(dtype)
    scaled = float(np.float32(number) * np.float32(2.0**-dtype.scale))
    if not np.isfinite(number):
        return float("nan")
    # gfloat has no infinity to overflow to either: what rounds beyond the largest number is NaN, unless it is held.
    step = 2.0 ** (np.floor(np.log2(fmt.largest)) - fmt.fraction_bits)
    if abs(scaled) >= fmt.largest + step / 2:
        return float(np.copysign(fmt.largest, scaled)) * 2.0**dtype.scale if saturate else float("nan")
    bounded = float(np.clip(scaled, -fmt.largest, fmt.largest))
    return gfloat.round_float(fnuz(dtype), bounded, gfloat.RoundMode.TiesToEven) * 2.0**dtype.scale


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("dtype", QUARTERS, ids=str)
def test_cast__to_8_bit_floats_and_back__rounds_once_as_gfloat_does(dtype: ElementType, saturate: bool) -> None:
    bench, given = Bench(4), values()
    x = bench.tensor(given)
    small = bench.graph.map_linear(bench.graph.variable(dtype, given.shape, name="small"))
    cast_with_output(bench.graph, x, small, bench.prog, saturate=saturate)
    wide = popops.cast(bench.graph, small, "f32", bench.prog)
    got = bench.run_both(wide)[0]
    np.testing.assert_array_equal(got, to_host(round_to_nearest(given, dtype, saturate=saturate), dtype))
    np.testing.assert_array_equal(got, [by_gfloat(float(v), dtype, saturate) for v in given])


@pytest.mark.parametrize("dtype", QUARTERS, ids=str)
def test_cast__of_f16__is_that_of_its_value(dtype: ElementType) -> None:
    bench = Bench(4)
    given = np.clip(values(), -6e4, 6e4).astype(np.float16)
    small = popops.cast(bench.graph, bench.tensor(given, "f16"), dtype, bench.prog)
    half, other = (popops.cast(bench.graph, small, t, bench.prog) for t in ("f16", "f8_152"))
    found, turned = bench.run_both(half, popops.cast(bench.graph, other, "f32", bench.prog))
    wanted = to_host(round_to_nearest(given, dtype), dtype)
    np.testing.assert_array_equal(found, wanted.astype(np.float16))
    np.testing.assert_array_equal(turned, to_host(round_to_nearest(wanted, f8_152)))


@pytest.mark.parametrize(
    ("system", "source", "target", "slots"),
    [
        # 100 elements for each worker. Source: machine reference §4.8 (Cast1D); our own count without instructions.
        ("c600", "f16", "f8_143", 50),
        ("c600", "f8_143", "f16", 50),
        ("c600", "f32", "f8_152", 50 + 50),
        ("c600", "f8_152", "f32", 50 + 50),
        ("bow-2000:1", "f32", "f8_143", 2700),
        ("bow-2000:1", "f8_143", "f32", 1700),
        ("gc200", "f16", "f8_143", 2700),
    ],
)
def test_cast__of_600_elements__costs_what_the_chip_has_for_it(
    system: str, source: str, target: str, slots: int
) -> None:
    graph, prog = Graph(systems.get(system)), Sequence()
    x = graph.map(graph.variable(source, (600,), name="x"), 0)
    popops.cast(graph, x, target, prog)
    groups = [g for step in walk(prog) if isinstance(step, Execute) for g in step.compute_set.groups]
    assert sum(int(vertex_costs(g, graph.system.ipu).amount.max()) for g in groups) == 12 + 6 * (18 + 19 + slots)


@pytest.mark.parametrize(("source", "target"), [("i32", "f8_143"), ("bool", "f8_152"), ("f8_143", "u8")])
def test_cast__between_8_bit_floats_and_integers__is_refused(source: str, target: str) -> None:
    bench = Bench(4)
    x = bench.graph.map_linear(bench.graph.variable(source, (4,), name="x"))
    with pytest.raises(TypeMismatchError, match=f"{source} cannot become {target}") as raised:
        popops.cast(bench.graph, x, target, bench.prog)
    assert "cast to f16 or f32 in between" in str(raised.value)


def test_map__of_8_bit_floats__is_refused_still() -> None:
    bench = Bench(4)
    x = bench.graph.map_linear(bench.graph.variable(f8_143, (4,), name="x"))
    with pytest.raises(TypeMismatchError, match="libraries do not compute with f8_143"):
        popops.map(bench.graph, lambda a: a + a, [x], bench.prog)
