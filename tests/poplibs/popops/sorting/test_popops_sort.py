"""Sorting and top-k against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench

from abele.compiler.cost import vertex_costs
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, walk
from abele.numerics import u32
from abele.poplibs.popops import sorting
from abele.poplibs.popops.sorting import SortOrder, TopKParams
from support.examples import examples

RNG = np.random.default_rng(5)


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    dim=st.integers(-1, 2),
    num_tiles=st.sampled_from([1, 4, 37]),
)
@examples(4)
def test_sort__any_dimension__is_numpy(shape: list[int], dim: int, num_tiles: int) -> None:
    bench = Bench(num_tiles)
    dim = min(dim, len(shape) - 1)
    x = bench.tensor(RNG.integers(-4, 5, shape), "f32")
    out = sorting.sort(bench.graph, x, dim, bench.prog)
    np.testing.assert_array_equal(bench.run(out)[0], np.sort(bench.data[x], axis=dim))


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "u32", "i16", "u8"])
@pytest.mark.parametrize(("num_tiles", "length"), [(4, 1000), (64, 5003), (1472, 70_001)])
def test_sort__rows_over_many_tiles__is_numpy(dtype: str, num_tiles: int, length: int) -> None:
    bench = Bench(num_tiles)
    x = bench.tensor(RNG.integers(0, 200, length) if dtype[0] != "f" else RNG.standard_normal(length), dtype)
    out = sorting.sort(bench.graph, x, 0, bench.prog)
    wanted = np.sort(bench.data[x])
    np.testing.assert_array_equal(bench.run(out, mode="native")[0], wanted)
    np.testing.assert_array_equal(bench.run(out, threads=2)[0], wanted)


def test_sort_in_place__columns__are_overwritten() -> None:
    bench = Bench(64)
    x = bench.tensor(RNG.standard_normal((600, 3)), "f32")
    wanted = np.sort(bench.data[x], axis=0)
    sorting.sort_in_place(bench.graph, x, 0, bench.prog)
    np.testing.assert_array_equal(bench.run_both(x)[0], wanted)


@pytest.mark.parametrize("num_tiles", [4, 64])
def test_sort_key_value__distinct_keys__carries_values(num_tiles: int) -> None:
    bench = Bench(num_tiles)
    keys = bench.tensor(RNG.permutation(2000).reshape(2, 1000), "i32")
    values = bench.tensor(RNG.standard_normal((2, 1000)), "f16")
    out = sorting.sort_key_value(bench.graph, keys, values, 1, bench.prog)
    order = np.argsort(bench.data[keys], axis=1)
    sorted_keys, carried = bench.run_both(*out)
    np.testing.assert_array_equal(sorted_keys, np.take_along_axis(bench.data[keys], order, 1))
    np.testing.assert_array_equal(carried, np.take_along_axis(bench.data[values], order, 1))


def test_sort_key_value_in_place__pairs__stay_pairs() -> None:
    bench = Bench(16)
    keys, values = bench.tensor(RNG.permutation(777), "f32"), bench.tensor(np.arange(777), "u32")
    order = np.argsort(bench.data[keys])
    sorting.sort_key_value_in_place(bench.graph, keys, values, 0, bench.prog)
    got = bench.run_both(keys, values)
    np.testing.assert_array_equal(got[0], np.arange(777))
    np.testing.assert_array_equal(got[1], order)


def test_sort__a_million_keys__takes_few_supersteps_and_vertices() -> None:
    bench = Bench(1472)
    x = bench.tensor(np.zeros(2**20), "f32")
    sorting.sort(bench.graph, x, 0, bench.prog)
    sets = [s.compute_set for s in walk(bench.prog) if isinstance(s, Execute)]
    assert len(sets) == 1 + 55 + 10
    assert all(np.bincount(g.tile).max() == 1 for s in sets for g in s.groups)


def test_sort__one_round_on_one_tile__costs_the_published_cycles() -> None:
    """Source: machine reference §4.12: 19 + 6·(40 + 17 + 13 + (elems − 1)·13 + 13 a run)."""
    bench = Bench(1)
    sorting.sort(bench.graph, bench.tensor(np.zeros(2), "f32", 0), 0, bench.prog)
    (compute_set,) = [s.compute_set for s in walk(bench.prog) if isinstance(s, Execute)]
    (group,) = compute_set.groups
    assert vertex_costs(group, bench.graph.system.ipu).amount.tolist() == [19 + 6 * (40 + 17 + 13 + 13)]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("order", list(SortOrder))
@pytest.mark.parametrize(("num_tiles", "shape", "k"), [(4, (3, 100), 7), (64, (2, 3, 900), 33), (1472, (20_011,), 10)])
def test_top_k_with_permutation__any_order__is_numpy(
    num_tiles: int, shape: tuple[int, ...], k: int, order: SortOrder, largest: bool
) -> None:
    bench = Bench(num_tiles)
    x = bench.tensor(RNG.integers(-30, 30, shape), "f32")
    params = TopKParams(k, largest, order, stable=True)
    values, places = sorting.top_k_with_permutation(bench.graph, bench.prog, x, params)
    signed = -bench.data[x] if largest else bench.data[x]
    best = np.argsort(signed, axis=-1, kind="stable")[..., :k]
    if params.is_reversed:
        among = np.argsort(-np.take_along_axis(signed, best, -1), axis=-1, kind="stable")
        best = np.take_along_axis(best, among, -1)
    got = bench.run_both(values, places)
    assert places.dtype == u32
    np.testing.assert_array_equal(got[1], best)
    np.testing.assert_array_equal(got[0], np.take_along_axis(bench.data[x], best, -1))


@pytest.mark.parametrize("k", [0, 1, 50, 300])
def test_top_k__any_number__is_numpy(k: int) -> None:
    bench = Bench(64)
    x = bench.tensor(RNG.standard_normal((4, 300)), "f16")
    out = sorting.top_k(bench.graph, bench.prog, x, TopKParams(k, True, SortOrder.ASCENDING))
    np.testing.assert_array_equal(bench.run_both(out)[0], np.sort(bench.data[x], axis=1)[:, 300 - k :])


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("length", [33, 96, 129, 1000])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_top_k__few_of_rows_on_one_tile__is_numpy(rows: int, length: int, k: int) -> None:
    bench = Bench(2)
    x = bench.tensor(RNG.integers(-30, 30, (rows, length)), "i32")
    params = TopKParams(k, True, SortOrder.DESCENDING, stable=True)
    values, places = sorting.top_k_with_permutation(bench.graph, bench.prog, x, params)
    best = np.argsort(-bench.data[x], axis=-1, kind="stable")[..., :k]
    got = bench.run_both(values, places)
    np.testing.assert_array_equal(got[1], best)
    np.testing.assert_array_equal(got[0], np.take_along_axis(bench.data[x], best, -1))


def test_top_k__fewer__costs_less() -> None:
    def cycles(k: int) -> int:
        bench = Bench(4)
        x = bench.tensor(np.zeros((4, 1000)), "f32")
        sorting.top_k(bench.graph, bench.prog, x, TopKParams(k))
        return int(bench.executable.report.total_cycles)

    assert 3 * cycles(4) < 2 * cycles(64) < 2 * cycles(1000)


def test_top_k__more_than_a_tile_should_merge__sorts_whole_rows() -> None:
    bench = Bench(64)
    x = bench.tensor(RNG.standard_normal(9000), "f32")
    out = sorting.top_k(bench.graph, bench.prog, x, TopKParams(5000, False, SortOrder.ASCENDING))
    np.testing.assert_array_equal(bench.run(out)[0], np.sort(bench.data[x])[:5000])


@pytest.mark.parametrize("stable", [True, False])
def test_top_k_key_value__pairs__stay_pairs(stable: bool) -> None:
    bench = Bench(16)
    keys = bench.tensor(RNG.integers(0, 9, 700) if stable else RNG.permutation(700), "i32")
    values = bench.tensor(np.arange(700), "f32")
    params = TopKParams(20, False, SortOrder.ASCENDING, stable)
    got = bench.run_both(*sorting.top_k_key_value(bench.graph, bench.prog, keys, values, params))
    order = np.argsort(bench.data[keys], kind="stable")[:20]
    np.testing.assert_array_equal(got[0], bench.data[keys][order])
    np.testing.assert_array_equal(got[1], order)


def test_sort__wrong_operands__are_named() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros((4, 3)), "f32")
    with pytest.raises(TensorError, match="has no dimension 2"):
        sorting.sort(bench.graph, x, 2, bench.prog)
    with pytest.raises(TensorError, match="differ in shape"):
        sorting.sort_key_value(bench.graph, x, x[0], 0, bench.prog)
    with pytest.raises(TensorError, match="no dimension to sort along"):
        sorting.sort(bench.graph, x[0, 0], 0, bench.prog)
    with pytest.raises(TypeMismatchError, match="keys are numbers, got bool"):
        sorting.sort(bench.graph, bench.tensor(np.zeros(4, bool)), 0, bench.prog)


def test_top_k__more_than_there_are__is_refused() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros((4, 3)), "f32")
    with pytest.raises(InvalidOptionError, match=r"k is 4, rows of .* have 3 elements"):
        sorting.top_k(bench.graph, bench.prog, x, TopKParams(4))


@given(
    length=st.integers(1, 70),
    largest=st.booleans(),
    dtype=st.sampled_from(["f32", "f16", "i32", "u8"]),
    num_tiles=st.sampled_from([1, 4, 37]),
)
@examples(4)
def test_sort_with_permutation__equal_keys__keep_their_order(
    length: int, largest: bool, dtype: str, num_tiles: int
) -> None:
    bench = Bench(num_tiles)
    x = bench.tensor(RNG.integers(0, 9, (2, length)), dtype)
    made, places = sorting.sort_with_permutation(bench.graph, x, 1, bench.prog, largest_first=largest)
    keys = bench.data[x].astype(np.float64)
    order = np.argsort(-keys if largest else keys, axis=1, kind="stable")
    got = bench.run_both(made, places)
    np.testing.assert_array_equal(got[1], order)
    np.testing.assert_array_equal(got[0], np.take_along_axis(keys, order, 1))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(("rows", "length", "values"), [(1, 1, 5), (1, 30_000, 77), (3, 10, 200), (70, 9, 1)])
def test_search_sorted__rows_of_any_length__is_numpy(rows: int, length: int, values: int, right: bool) -> None:
    bench = Bench(64)
    table = bench.tensor(np.sort(RNG.integers(0, 50, (rows, length)), axis=1), "i32")
    wanted = bench.tensor(RNG.integers(-2, 53, (rows, values)), "i32")
    out = sorting.search_sorted(bench.graph, table, wanted, bench.prog, right=right)
    side = "right" if right else "left"
    pairs = zip(bench.data[table], bench.data[wanted], strict=True)
    np.testing.assert_array_equal(bench.run_both(out)[0], [np.searchsorted(r, v, side=side) for r, v in pairs])


def test_search_sorted__rows_that_differ__are_refused() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros((2, 3)), "f32")
    with pytest.raises(TensorError, match=r"search: rows .* are not \[rows, n\] and \[rows, m\]"):
        sorting.search_sorted(bench.graph, x, x[:1], bench.prog)
    with pytest.raises(TypeMismatchError, match="numbers of one type"):
        sorting.search_sorted(bench.graph, x, bench.tensor(np.zeros((2, 3)), "i32"), bench.prog)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [9, 10, 40])
def test_top_k__of_a_small_or_large_part_of_a_row__host_takes_equal_keys_and_nan_in_order(
    k: int, largest: bool
) -> None:
    bench = Bench(4)
    rows = RNG.integers(-3, 4, (3, 40)).astype(np.float32)
    rows[:, ::7] = np.nan
    keys = bench.tensor(rows, "f32")
    params = TopKParams(k, largest, SortOrder.DESCENDING if largest else SortOrder.ASCENDING)
    outs = sorting.top_k_with_permutation(bench.graph, bench.prog, keys, params)
    # NaN counts as the largest; of equal keys the first comes first.
    wanted = np.argsort(np.where(np.isnan(rows), 9, rows) * (-1 if largest else 1), axis=1, kind="stable")[:, :k]
    found, places = bench.run(*outs, mode="native")
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(found, np.take_along_axis(rows, wanted, 1))
