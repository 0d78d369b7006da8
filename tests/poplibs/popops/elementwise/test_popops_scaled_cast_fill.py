"""Scaled addition, casts, fills and iota against NumPy, and what they cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from poplibs_kit import TILES, Bench, assert_close, system_of

from abele.compiler.cost import vertex_costs
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, walk
from abele.numerics import as_element_type, f32
from abele.poplibs import popops
from abele.poplibs.popops.elementwise.scaled_add import scaled_add_cycles

RNG = np.random.default_rng(8)


def _cycles(bench: Bench) -> int:
    groups = [g for step in walk(bench.prog) if isinstance(step, Execute) for g in step.compute_set.groups]
    return sum(int(vertex_costs(g, bench.graph.system.ipu).amount.max()) for g in groups)


@pytest.mark.parametrize("num_tiles", [*TILES, 1472])
@pytest.mark.parametrize(("a_type", "b_type"), [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")])
@pytest.mark.parametrize("form", ["DEFAULT", "X_MINUS_AX_PLUS_BY", "subtract"])
def test_scaled_add__types_and_forms__are_numpy(num_tiles: int, a_type: str, b_type: str, form: str) -> None:
    bench = Bench(num_tiles)
    a, b = bench.tensor(RNG.standard_normal(300), a_type), bench.tensor(RNG.standard_normal(300), b_type)
    scale = bench.tensor([0.75], "f32", 0)
    x, y = bench.values(a), bench.values(b)
    if form == "subtract":
        popops.scaled_subtract_from(bench.graph, a, b, scale, bench.prog, scale_a=0.5)
        wanted = 0.5 * x - 0.75 * y
    else:
        popops.scaled_add_to(bench.graph, a, b, 0.25, bench.prog, scale_a=scale, specialisation=form)  # type: ignore[arg-type]
        wanted = (0.75 if form == "DEFAULT" else 0.25) * x + 0.25 * y
    assert_close(bench.run_both(a)[0], wanted, a.dtype)


@pytest.mark.parametrize("dtype", ["i32", "u32"])
def test_scaled_add__integers__are_exact(dtype: str) -> None:
    bench = Bench(4)
    a, b = bench.tensor([10, 20, 30], dtype), bench.tensor([1, 2, 3], dtype)
    factor = bench.tensor([4], dtype, 0)
    popops.scaled_add_to(bench.graph, a, b, 3, bench.prog)
    popops.scaled_add_to(bench.graph, a, b, factor, bench.prog)
    assert bench.run_both(a)[0].tolist() == [17, 34, 51]


def test_scaled_add__wrong_arguments__are_named() -> None:
    bench = Bench(4)
    a, n = bench.tensor(np.zeros(4), "f32"), bench.tensor(np.zeros(4), "i32")
    with pytest.raises(TypeMismatchError, match=r"so the scale 0.5 must be a whole number"):
        popops.scaled_add_to(bench.graph, n, n, 0.5, bench.prog)
    for scale in (math.inf, math.nan):
        with pytest.raises(TypeMismatchError, match=rf"so the scale {scale} must be a whole number"):
            popops.scaled_add_to(bench.graph, n, n, scale, bench.prog)
    with pytest.raises(TypeMismatchError, match=r"is f32 and .* is i32"):
        popops.scaled_add_to(bench.graph, a, n, 1, bench.prog)
    with pytest.raises(TensorError, match="has 4 elements, it must be one"):
        popops.scaled_add_to(bench.graph, a, a, a, bench.prog)
    with pytest.raises(InvalidOptionError, match="no specialisation 'AXPBY'"):
        popops.scaled_add_to(bench.graph, a, a, 1, bench.prog, specialisation="AXPBY")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="X_MINUS_AX_PLUS_BY needs scale_a"):
        popops.scaled_add_to(bench.graph, a, a, 1, bench.prog, specialisation="X_MINUS_AX_PLUS_BY")
    with pytest.raises(InvalidOptionError, match="did you mean 'optimizeForSpeed'"):
        popops.scaled_add_to(bench.graph, a, a, 1, bench.prog, options={"optimiseForSpeed": True})


def test_scaled_add__optimised_for_speed__moves_vectors_in_fewer_slots() -> None:
    ipu, size = system_of(4).ipu, np.array([120, 1200])
    plain, fast = (scaled_add_cycles(size, f32, f32, ipu, constrained=c) for c in (False, True))
    # 10 vectors a worker: 2 slots instead of 3; 100 vectors: 1 slot.
    assert (plain - fast).tolist() == [6 * 9, 6 * 2 * 99]


def test_scaled_add__half_with_a_float_scale_tensor__checks_its_accuracy() -> None:
    costs = []
    for tolerance in (1e-6, 0.0):
        bench = Bench(1)
        a = bench.tensor(np.zeros(96), "f16", 0)
        scale = bench.tensor([0.5], "f32", 0)
        options = {"scaleFloatToHalfTolerance": tolerance}
        popops.scaled_add_to(bench.graph, a, a, scale, bench.prog, options=options)
        costs.append(_cycles(bench))
    assert costs[0] - costs[1] == 30


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32"])
def test_cast__floats_out_of_range__become_the_nearest_integer(dtype: str) -> None:
    values = np.float32([-1e20, -3e9, -129.7, -1.9, -0.5, 0.0, 0.99, 127.9, 255.5, 65535.5, 2.1e9, 4.2e9, 1e20])
    limits = np.iinfo(dtype.replace("i", "int").replace("u", "u")) if dtype[0] == "i" else np.iinfo(f"uint{dtype[1:]}")
    wanted = np.clip(np.trunc(values.astype(np.float64)), limits.min, limits.max)
    bench = Bench(4)
    out = popops.cast(bench.graph, bench.tensor(values), dtype, bench.prog)
    np.testing.assert_array_equal(bench.run_both(out)[0].astype(np.float64), wanted)


TYPES = ["f32", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "bool"]


@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_cast__every_pair__is_numpy(source: str, target: str) -> None:
    bench = Bench(4)
    values = np.array([0, 1, 1, 0]) if source == "bool" else np.array([0, 1, 2.9, 100])
    x = bench.tensor(values, source)
    out = popops.cast(bench.graph, x, target, bench.prog)
    wanted = bench.data[x].astype(np.float64)
    wanted = wanted != 0 if target == "bool" else wanted.astype(as_element_type(target).np)
    np.testing.assert_array_equal(bench.run_both(out)[0].astype(np.float64), wanted.astype(np.float64))


def test_cast__wide_values__round_overflow_and_wrap() -> None:
    bench = Bench(4)
    x = bench.tensor([1 + 2.0**-11, 1 + 3 * 2.0**-11, 7e4], "f32")
    n = bench.tensor([256 + 7, -1], "i32")
    half = popops.cast(bench.graph, x, "f16", bench.prog)
    byte = popops.cast(bench.graph, n, "u8", bench.prog)
    got, low = bench.run_both(half, byte)
    np.testing.assert_array_equal(got.astype(np.float64), [1.0, 1 + 2.0**-9, np.inf])
    assert low.tolist() == [7, 255]


@pytest.mark.parametrize(("source", "target", "slots"), [("f32", "f16", 50), ("f16", "f32", 50), ("i32", "f32", 200)])
def test_cast__600_elements_on_a_tile__costs_the_published_estimate(source: str, target: str, slots: int) -> None:
    """Source: machine reference §4.8 (Cast1D)."""
    bench = Bench(1)
    popops.cast(bench.graph, bench.tensor(np.zeros(600), source, 0), target, bench.prog)
    assert _cycles(bench) == 12 + 6 * (18 + 19 + slots)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8", "u8", "i16", "i32", "u32", "i64", "u64", "bool"])
def test_fill_and_zero__every_type__set_all(dtype: str) -> None:
    bench = Bench(4)
    x, y = bench.tensor(np.ones((3, 20)), dtype), bench.tensor(np.ones((3, 20)), dtype)
    popops.fill(bench.graph, x, bench.prog, 1)
    popops.zero(bench.graph, y, bench.prog)
    got, nothing = bench.run_both(x, y)
    assert (got == 1).all()
    assert (nothing == 0).all()


def test_fill__600_f32_on_a_tile__costs_the_published_estimate() -> None:
    """Source: machine reference §4.8 (Fill1D)."""
    bench = Bench(1)
    popops.zero(bench.graph, bench.tensor(np.ones(600), "f32", 0), bench.prog)
    assert _cycles(bench) == 6 * (23 + 50)


def test_fill__after_a_map_of_the_same_name_and_text__keeps_its_own_cost() -> None:
    plain, filled = Bench(1), Bench(1)
    popops.map_in_place(plain.graph, popops.Const(3.0), [plain.tensor(np.ones(600), "f32", 0)], plain.prog, "same")
    popops.fill(filled.graph, filled.tensor(np.ones(600), "f32", 0), filled.prog, 3.0, "same")
    assert _cycles(filled) == 6 * (23 + 50) != _cycles(plain)


@pytest.mark.parametrize(("dtype", "start", "step"), [("i32", 5, 1), ("i32", 100, -7), ("u32", 3, 2), ("f32", -2, 3)])
@pytest.mark.parametrize("num_tiles", TILES)
def test_iota__start_and_step__count(num_tiles: int, dtype: str, start: int, step: int) -> None:
    bench = Bench(num_tiles)
    x = bench.tensor(np.zeros((7, 30)), dtype)
    popops.iota(bench.graph, x, start, bench.prog, step=step)
    np.testing.assert_array_equal(bench.run_both(x)[0].reshape(-1), start + np.arange(210) * step)


def test_iota__high_unsigned_start__does_not_overflow() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros(5), "u32")
    popops.iota(bench.graph, x, 4_000_000_000, bench.prog)
    np.testing.assert_array_equal(bench.run_both(x)[0], 4_000_000_000 + np.arange(5))
    with pytest.raises(InvalidOptionError, match=r"iota: 250 to 260 does not fit .* of u8"):
        popops.iota(bench.graph, bench.tensor(np.zeros(11), "u8"), 250, bench.prog)
