"""Distributions against SciPy, seeds of workers, dropout of slices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.poplibs import poprand

stats = pytest.importorskip("scipy.stats")

COUNT = 20000


def _bench() -> tuple[Bench, object]:
    bench = Bench(16)
    return bench, bench.tensor([77, 5], "u32", 0)


@pytest.mark.parametrize("alpha", [0.5, 2.0, 4.5])
def test_truncated_normal__any_alpha__follows_the_distribution(alpha: float) -> None:
    bench, seed = _bench()
    reference = bench.tensor(np.zeros(COUNT), "f32")
    out = poprand.truncated_normal(bench.graph, seed, 4, reference, bench.prog, mean=1.0, std=0.5, alpha=alpha)
    (got,) = bench.run_both(out)
    deviation = (got - 1.0) / 0.5
    assert np.abs(deviation).max() <= alpha * (1 + 1e-6)
    assert stats.kstest(deviation, stats.truncnorm(-alpha, alpha).cdf).pvalue > 0.01


def test_normal_and_uniform__distribution__is_the_named_one() -> None:
    bench, seed = _bench()
    reference = bench.tensor(np.zeros(COUNT), "f32")
    n = poprand.normal(bench.graph, seed, 1, reference, bench.prog)
    u = poprand.uniform(bench.graph, seed, 2, reference, bench.prog, low=-2, high=3)
    normal, uniform = bench.run_both(n, u)
    assert stats.kstest(normal, "norm").pvalue > 0.01
    assert stats.kstest(uniform, stats.uniform(-2, 5).cdf).pvalue > 0.01


def test_log_uniform__floats_and_integers__follow_the_distribution() -> None:
    bench, seed = _bench()
    reference = bench.tensor(np.zeros(COUNT), "f32")
    out = poprand.log_uniform(bench.graph, seed, 1, reference, bench.prog, low=1, high=1000, base=10)
    whole = poprand.log_uniform(bench.graph, seed, 2, bench.tensor(np.zeros(500), "i32"), bench.prog, low=1, high=99)
    got, integers = bench.run_both(out, whole)
    assert stats.kstest(got, stats.loguniform(1, 1000).cdf).pvalue > 0.01
    assert integers.min() == 1
    assert integers.max() <= 99


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("i32", -(2**31), 2**31 - 1),
        ("u32", 0, 2**32 - 1),
        ("i32", -(2**30), 2**30),
        ("u32", 5, 3 * 2**30),
        ("u8", 0, 255),
    ],
)
def test_uniform__wide_integer_ranges__are_even(dtype: str, low: int, high: int) -> None:
    bench, seed = _bench()
    reference = bench.tensor(np.zeros(COUNT), dtype)
    (got,) = bench.run_both(poprand.uniform(bench.graph, seed, 1, reference, bench.prog, low=low, high=high))
    wide = got.astype(np.float64)
    assert wide.min() >= low
    assert wide.max() <= high
    assert stats.kstest(wide + (0.5 if dtype == "u8" else 0), stats.uniform(low, high - low + 1).cdf).pvalue > (
        0.01 if dtype != "u8" else 1e-4
    )


def test_shaped_dropout__slices__live_or_die_together() -> None:
    bench, seed = _bench()
    x = bench.tensor(np.ones((50, 40)), "f32")
    rows = bench.tensor(np.zeros((50, 1)), "f32")
    out = poprand.shaped_dropout(bench.graph, seed, 1, x, rows, 0.5, bench.prog)
    again = poprand.shaped_dropout(bench.graph, seed, 1, x, rows, 0.5, bench.prog)
    got, replayed = bench.run_both(out, again)
    assert set(got.sum(axis=1)) == {0.0, 80.0}
    np.testing.assert_array_equal(got, replayed)


def test_dropout__reference_and_scale__decide_layout_and_factor() -> None:
    bench, seed = _bench()
    x = bench.tensor(np.ones((4, 32)), "f32", 0)
    reference = bench.tensor(np.zeros((4, 32)), "f32")
    out = poprand.dropout(bench.graph, seed, 1, x, 0.5, bench.prog, scale=3.0, reference=reference)
    assert len(np.unique(out.mapping.tile)) == len(np.unique(reference.mapping.tile))
    assert set(np.unique(bench.run_both(out)[0])) == {0.0, 3.0}


def test_no_seed__each_use__draws_other_numbers_and_set_seed_replays_them() -> None:
    bench, seed = _bench()
    reference = bench.tensor(np.zeros(64), "f32")
    draws = []
    for _ in range(2):
        poprand.set_seed(bench.graph, seed, 9, bench.prog)
        draws += [poprand.uniform(bench.graph, None, 1, reference, bench.prog) for _ in range(2)]
    state = poprand.get_seed(bench.graph, bench.prog)
    a, b, c, d, words = bench.run(*draws, state)
    np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(b, d)
    assert (a != b).any()
    assert words.shape == (2,)


def test_poprand__impossible_arguments__are_named() -> None:
    bench, seed = _bench()
    x = bench.tensor(np.zeros(4), "f32")
    n = bench.tensor(np.zeros(4), "u8")
    with pytest.raises(InvalidOptionError, match="alpha is 0, it must be above 0"):
        poprand.truncated_normal(bench.graph, seed, 1, x, bench.prog, alpha=0)
    with pytest.raises(InvalidOptionError, match="the lower bound 0 is not above 0"):
        poprand.log_uniform(bench.graph, seed, 1, x, bench.prog, low=0)
    with pytest.raises(InvalidOptionError, match="the base 1 is not above 1"):
        poprand.log_uniform(bench.graph, seed, 1, x, bench.prog, base=1)
    with pytest.raises(InvalidOptionError, match=r"\[0, 256\] does not fit u8"):
        poprand.uniform(bench.graph, seed, 1, n, bench.prog, low=0, high=256)
    with pytest.raises(InvalidOptionError, match=r"no integer lies in \[0.2, 0.8\]"):
        poprand.uniform(bench.graph, seed, 1, n, bench.prog, low=0.2, high=0.8)
    with pytest.raises(TypeMismatchError, match="is u8, it must be floating point"):
        poprand.dropout(bench.graph, seed, 1, n, 0.5, bench.prog)
    with pytest.raises(TensorError, match=r"the reference .* of shape \[2\] does not go with"):
        poprand.dropout(bench.graph, seed, 1, x, 0.5, bench.prog, reference=x[:2])


def test_truncated_normal__cost__grows_as_more_is_rejected() -> None:
    from abele.poplibs.poprand.normals import truncated_normal_slots

    assert truncated_normal_slots(2.0) == 11 * math.ceil(math.log(1e-4) / math.log(math.erfc(math.sqrt(2)))) + 5
    assert truncated_normal_slots(0.5) > truncated_normal_slots(2.0) > truncated_normal_slots(4.5)
