"""Random numbers of networks: the meaning in NumPy, what programs draw, and how often."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from abele.errors import NetworkError
from abele.expr.derivative import arg
from abele.network import NetworkBuilder, evaluate, parse, verify
from abele.network.ops import build
from abele.numerics import bf16, f16, f32, i32, u32

SIZE = 20_000
SEED = np.array([11, 5], np.uint32)


def drawn(make, seed=SEED):  # type: ignore[no-untyped-def]
    """Value of a network of one random value."""
    net = NetworkBuilder()
    value = make(net)
    net.output(value)
    made = net.finish()
    verify(made)
    assert parse(str(made)) == made
    return evaluate(made, {net.random_state(): seed})[value]


@pytest.mark.parametrize(
    ("make", "distribution"),
    [
        (lambda net: build.uniform(net, (SIZE,)), stats.uniform()),
        (lambda net: build.normal(net, (SIZE,)), stats.norm()),
        (lambda net: build.exponential(net, (SIZE,)), stats.expon()),
    ],
)
def test_standard_draw__of_many__is_distributed_so(make, distribution) -> None:  # type: ignore[no-untyped-def]
    values = drawn(make)
    assert stats.kstest(values, distribution.cdf).pvalue > 0.01
    assert stats.kstest(drawn(make, SEED + np.uint32(1)), distribution.cdf).pvalue > 0.01


@pytest.mark.parametrize("dtype", [f32, f16, bf16])
def test_uniform__of_narrow_types__never_rounds_to_one(dtype) -> None:  # type: ignore[no-untyped-def]
    values = drawn(lambda net: build.uniform(net, (SIZE,), dtype))
    assert 0 <= values.min() < 0.01
    assert 0.99 < values.max() < 1
    np.testing.assert_array_equal(values, values.astype(dtype.np))


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-3, 7), (5, 6), (-(2**31), 2**31), (-(2**30), 2**30 + 12345)])
def test_integers__in_a_range__are_uniform_and_reach_both_ends(low: int, high: int) -> None:
    values = drawn(lambda net: build.integers(net, (SIZE,), low, high, i32)).astype(np.int64)
    assert values.dtype == np.int64
    assert low <= values.min() <= values.max() < high
    counts, _ = np.histogram(values, bins=min(high - low, 32), range=(low, high))
    assert stats.chisquare(counts).pvalue > 0.01 if len(counts) > 1 else counts[0] == SIZE


def test_draw__of_two_ops__differs() -> None:
    net = NetworkBuilder()
    one, other = build.uniform(net, (100,)), build.uniform(net, (100,))
    net.outputs += [one, other]
    values = evaluate(net.finish(), {net.random_state(): SEED})
    assert not np.intersect1d(values[one], values[other]).size


def test_draw__in_a_loop__is_another_one_in_every_trip() -> None:
    net = NetworkBuilder()
    table = build.full(net, 0.0, (5, 40), f32)
    (rows,) = build.loop(
        net, 5, [table], lambda body, trip, t: [build.write_row(body, t, build.normal(body, (40,)), trip)]
    )
    net.output(rows)
    values = evaluate(net.finish(), {net.random_state(): SEED})[rows]
    assert len(np.unique(values)) == values.size
    assert stats.kstest(values.ravel(), "norm").pvalue > 0.01


def test_draw__of_words_that_it_does_not_take__is_refused() -> None:
    net = NetworkBuilder()
    net.output(build.draw(net, arg(1), (3,), u32))
    with pytest.raises(NetworkError, match="reads more than 1 words"):
        verify(net.finish())
