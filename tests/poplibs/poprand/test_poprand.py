"""Random tensors: moments, replay, independence of layout, tiles and threads."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.llvm.random import hash_u32
from abele.poplibs import poprand

SEED = [123456789, 42]
SHAPE = (4, 32, 5, 5)
COUNT = 3200


def _bench(num_tiles: int = 16) -> tuple[Bench, object]:
    bench = Bench(num_tiles)
    return bench, bench.tensor(SEED, "u32", 0)


def test_dropout__elements__follow_the_hash_of_their_index() -> None:
    bench, seed = _bench()
    x = bench.tensor(np.random.default_rng(7).standard_normal(SHAPE), "f32", "activations")
    y = poprand.dropout(bench.graph, seed, 3, x, 0.7, bench.prog)
    bits = hash_u32(*SEED, 3, np.arange(COUNT)).reshape(SHAPE)
    wanted = np.where(bits < 0.7 * 2.0**32, bench.data[x] * np.float32(1 / 0.7), 0)
    np.testing.assert_array_equal(bench.run_both(y)[0], wanted)
    np.testing.assert_array_equal(bench.kernels(y)[0] != 0, wanted != 0)


def test_dropout__gradient_in_another_layout__keeps_the_same_elements() -> None:
    bench, seed = _bench()
    x, g = bench.tensor(np.ones(SHAPE), "f32", "activations"), bench.tensor(np.ones(SHAPE), "f16")
    y, z = (poprand.dropout(bench.graph, seed, 9, t, 0.5, bench.prog) for t in (x, g))
    got, got_gradient = bench.run_both(y, z)
    np.testing.assert_array_equal(got, got_gradient.astype(np.float32))
    assert 0.45 < (got != 0).mean() < 0.55
    assert set(np.unique(got)) == {0.0, 2.0}


@pytest.mark.parametrize(("keep", "kept"), [(1.0, 1.0), (0.0, 0.0)])
def test_dropout__all_or_nothing(keep: float, kept: float) -> None:
    bench, seed = _bench()
    y = poprand.dropout(bench.graph, seed, 1, bench.tensor(np.ones(100), "f32"), keep, bench.prog)
    assert (bench.run_both(y)[0] == kept).all()


def test_random_numbers__tiles_threads_and_mode__give_the_same_bits() -> None:
    results = []
    for num_tiles, mode, threads in ((4, "tiles", 1), (64, "tiles", 2), (64, "native", 1), (1472, "native", 2)):
        bench, seed = _bench(num_tiles)
        reference = bench.tensor(np.zeros(SHAPE), "f32", "activations")
        outs = [
            poprand.uniform(bench.graph, seed, 1, reference, bench.prog),
            poprand.bernoulli(bench.graph, seed, 2, reference, 0.3, bench.prog),
        ]
        results.append(bench.run(*outs, mode=mode, threads=threads))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_distributions__moments__are_right(dtype: str) -> None:
    bench, seed = _bench()
    reference = bench.tensor(np.zeros(20000), dtype)
    uniform = poprand.uniform(bench.graph, seed, 1, reference, bench.prog, low=-1, high=3)
    normal = poprand.normal(bench.graph, seed, 2, reference, bench.prog, mean=2.0, std=0.5)
    coin = poprand.bernoulli(bench.graph, seed, 3, reference, 0.25, bench.prog)
    u, n, b = (v.astype(np.float64) for v in bench.run_both(uniform, normal, coin))
    assert u.min() >= -1
    assert u.max() <= 3
    np.testing.assert_allclose([u.mean(), u.var()], [1, 16 / 12], rtol=0.04)
    np.testing.assert_allclose([n.mean(), n.std()], [2, 0.5], rtol=0.02)
    centred = (n - n.mean()) / n.std()
    np.testing.assert_allclose([(centred**3).mean(), (centred**4).mean()], [0, 3], atol=0.15)
    np.testing.assert_allclose(b.mean(), 0.25, atol=0.01)


def test_uniform__integers__include_both_ends() -> None:
    bench, seed = _bench()
    reference = bench.tensor(np.zeros(1000), "i32")
    out = poprand.uniform(bench.graph, seed, 1, reference, bench.prog, low=-2, high=2)
    assert set(bench.run_both(out)[0]) == {-2, -1, 0, 1, 2}


def test_modifier_and_seed__other_ones__give_other_numbers() -> None:
    bench, seed = _bench()
    reference = bench.tensor(np.zeros(1000), "f32")
    first = poprand.uniform(bench.graph, seed, 1, reference, bench.prog)
    second = poprand.uniform(bench.graph, seed, 2, reference, bench.prog)
    poprand.advance_seed(bench.graph, seed, bench.prog)
    third = poprand.uniform(bench.graph, seed, 1, reference, bench.prog)
    values = bench.run_both(first, second, third)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(values[i], values[j])[0, 1]) < 0.1


def test_advance_seed__low_word_overflows__carries() -> None:
    bench = Bench(4)
    seed = bench.tensor([0xFFFFFFFF, 7], "u32", 0)
    poprand.advance_seed(bench.graph, seed, bench.prog)
    assert bench.run_both(seed)[0].tolist() == [0, 8]


def test_create_seed__64_bits__become_two_words() -> None:
    bench = Bench(4)
    seed = poprand.create_seed(bench.graph, (5 << 32) + 6)
    assert bench.run(seed)[0].tolist() == [6, 5]


def test_poprand__wrong_seed_or_probability__is_named() -> None:
    bench, seed = _bench()
    x = bench.tensor(np.zeros(4), "f32")
    with pytest.raises(TensorError, match=r"dropout: the seed .* has shape \[4\]"):
        poprand.dropout(bench.graph, x, 1, x, 0.5, bench.prog)
    with pytest.raises(TypeMismatchError, match="is f32, it must be u32"):
        poprand.dropout(bench.graph, x[:2], 1, x, 0.5, bench.prog)
    with pytest.raises(InvalidOptionError, match=r"the probability 1.5 is not in \[0, 1\]"):
        poprand.dropout(bench.graph, seed, 1, x, 1.5, bench.prog)
    with pytest.raises(InvalidOptionError, match=r"the upper bound 0.0 is below the lower bound 1.0"):
        poprand.uniform(bench.graph, seed, 1, x, bench.prog, low=1.0, high=0.0)
