"""Cumulative sums against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from poplibs_kit import Bench

from abele import Graph
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, Sequence, walk
from abele.poplibs import popops

RNG = np.random.default_rng(3)


def summed(data: Any, dim: int, *, exclusive: bool, reverse: bool) -> Any:
    """NumPy's sums."""
    wide = np.flip(data, dim) if reverse else data
    sums = np.cumsum(wide.astype(np.float64), axis=dim)
    sums = sums - wide if exclusive else sums
    return np.flip(sums, dim) if reverse else sums


@pytest.mark.parametrize("way", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("shape", "dim"), [((1000,), 0), ((3, 257), 1), ((257, 3), 0), ((200, 5), 1), ((4, 6, 5), -2)])
def test_cum_sum__any_shape_and_way__equals_numpy(shape: tuple[int, ...], dim: int, way: tuple[bool, bool]) -> None:
    data = RNG.integers(-5, 6, shape).astype(np.float32)
    bench = Bench()
    x = bench.tensor(data)
    out = popops.cum_sum(bench.graph, x, dim, bench.prog, exclusive=way[0], reverse=way[1])
    np.testing.assert_array_equal(bench.run_both(out)[0], summed(data, dim, exclusive=way[0], reverse=way[1]))


@pytest.mark.parametrize("dtype", ["f16", "i32", "u16"])
def test_cum_sum__other_types__are_summed_in_theirs(dtype: str) -> None:
    data = RNG.integers(0, 3, (2, 300))
    bench = Bench()
    out = popops.cumSum(bench.graph, bench.tensor(data, dtype), 1, bench.prog, "sums")
    assert out.dtype.name == dtype
    np.testing.assert_array_equal(bench.run_both(out)[0], np.cumsum(data, axis=1))


def test_cum_sum__long_row__is_shared_by_the_tiles() -> None:
    bench = Bench()
    out = popops.cum_sum(bench.graph, bench.tensor(np.ones(4096, np.float32)), 0, bench.prog)
    assert len(set(bench.graph.mapping_of(out).tile.tolist())) == 64


def test_cum_sum__nothing__gives_nothing() -> None:
    graph = Graph("bow")
    assert popops.cum_sum(graph, graph.variable("f32", (0,)), 0, Sequence()).shape == (0,)


def test_cum_sum__wrong_operand__is_refused() -> None:
    graph = Graph("bow")
    x = graph.variable("f32", (4,), map=0)
    with pytest.raises(TensorError, match=r"cum_sum: .* has no dimension 1"):
        popops.cum_sum(graph, x, 1, Sequence())
    with pytest.raises(TypeMismatchError, match="cannot be summed"):
        popops.cum_sum(graph, graph.variable("bool", (4,), map=0), 0, Sequence())


_NUMPY = {"mul": np.multiply, "max": np.maximum, "min": np.minimum, "logaddexp": np.logaddexp}


@pytest.mark.parametrize("operation", _NUMPY)
@pytest.mark.parametrize(("shape", "dim", "dtype"), [((3, 257), 1, "f32"), ((300, 2), 0, "f16"), ((2, 5000), 1, "f32")])
def test_scan__any_operation__equals_numpy(operation: str, shape: tuple[int, ...], dim: int, dtype: str) -> None:
    data = RNG.uniform(0.9, 1.1, shape).astype(dtype.replace("f", "float"))
    bench = Bench()
    out = popops.scan(bench.graph, bench.tensor(data, dtype), dim, bench.prog, operation)
    wanted = _NUMPY[operation].accumulate(data.astype(np.float64), dim)
    np.testing.assert_allclose(bench.run_both(out)[0], wanted, rtol=1e-4 if dtype == "f32" else 2e-3)


@pytest.mark.parametrize("operation", ["mul", "max", "min"])
def test_scan__of_integers__equals_numpy(operation: str) -> None:
    data = RNG.integers(-3, 4, (2, 300)).astype(np.int32)
    bench = Bench()
    out = popops.scan(bench.graph, bench.tensor(data, "i32"), 1, bench.prog, operation, reverse=True)
    wanted = np.flip(_NUMPY[operation].accumulate(np.flip(data, 1), 1, dtype=np.int32), 1)
    np.testing.assert_array_equal(bench.run_both(out)[0], wanted)


def test_scan__infinite_logarithms__stay_what_they_are() -> None:
    data = np.array([-np.inf, -np.inf, 1.0, np.inf, 2.0], np.float32)
    bench = Bench()
    out = popops.scan(bench.graph, bench.tensor(data), 0, bench.prog, "logaddexp")
    np.testing.assert_allclose(bench.run_both(out)[0], [-np.inf, -np.inf, 1.0, np.inf, np.inf])


def test_scan__very_long_row__sums_of_blocks_are_shared_too() -> None:
    bench = Bench(1472)
    x = bench.tensor(np.ones(100_000, np.float32))
    out = popops.cum_sum(bench.graph, x, 0, bench.prog)
    np.testing.assert_array_equal(bench.run(out, mode="native")[0], np.arange(1, 100_001))
    sets = [s.compute_set for s in walk(bench.prog) if isinstance(s, Execute)]
    assert (
        max(int(np.asarray(g.edges["x"].regions.sizes).max()) for s in sets for g in s.groups if "x" in g.edges) < 100
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((1000,), 0), ((3, 257), 1), ((200, 5), 0), ((40, 3), 1)])
def test_linear_recurrence__any_shape_and_way__equals_a_loop(shape: tuple[int, ...], dim: int, reverse: bool) -> None:
    factor, addend = RNG.uniform(-1, 1, shape), RNG.uniform(-1, 1, shape)
    bench = Bench()
    given = (bench.tensor(a, "f32") for a in (factor, addend))
    out = popops.linear_recurrence(bench.graph, *given, dim, bench.prog, reverse=reverse)
    a, b = (np.moveaxis(np.flip(v, dim) if reverse else v, dim, 0) for v in (factor, addend))
    wanted = np.array(b)
    for i in range(1, len(wanted)):
        wanted[i] += a[i] * wanted[i - 1]
    wanted = np.moveaxis(wanted, 0, dim)
    np.testing.assert_allclose(bench.run_both(out)[0], np.flip(wanted, dim) if reverse else wanted, atol=1e-5)


def test_scan__wrong_operand__is_refused() -> None:
    graph = Graph("bow")
    x, i = graph.variable("f32", (4,), map=0), graph.variable("i32", (4,), map=0)
    with pytest.raises(InvalidOptionError, match="scan: no operation 'div'"):
        popops.scan(graph, x, 0, Sequence(), "div")
    with pytest.raises(TypeMismatchError, match="logaddexp is of floats"):
        popops.scan(graph, i, 0, Sequence(), "logaddexp")
    with pytest.raises(TensorError, match="differ in shape"):
        popops.linear_recurrence(graph, x, x[:2], 0, Sequence())
    with pytest.raises(TypeMismatchError, match="floats of one type"):
        popops.linear_recurrence(graph, i, i, 0, Sequence())


@pytest.mark.parametrize(
    ("shape", "dim", "dtype", "operation"),
    [
        ((37, 33), 0, np.float32, "add"),
        ((2, 18, 20), 1, np.float16, "max"),
        ((70, 35), 1, np.float16, "add"),
        ((65, 17), 1, np.float32, "logaddexp"),
    ],
)
@pytest.mark.parametrize("way", [(False, False), (True, True)])
def test_scan__rows_side_by_side__has_the_bits_of_each_by_itself(
    shape: tuple[int, ...], dim: int, dtype: Any, operation: str, way: tuple[bool, bool]
) -> None:
    data = np.random.default_rng(0).normal(size=shape).astype(dtype)

    def scanned(given: Any) -> Any:
        bench = Bench()
        x = bench.tensor(given)
        out = popops.scan(bench.graph, x, dim, bench.prog, operation, exclusive=way[0], reverse=way[1])
        return bench.run(out)[0]

    # Few rows are scanned one by one.
    other = len(shape) - 1 if dim != len(shape) - 1 else 0
    parts = np.array_split(data, -(-data.shape[other] // 8), axis=other)
    np.testing.assert_array_equal(scanned(data), np.concatenate([scanned(part) for part in parts], axis=other))
