"""Stores that round at random, or hold what is too large: by seed and element, fused or not, on any threads."""

from __future__ import annotations

import numpy as np
import pytest
from kernels_kit import run_plan
from scipy import stats

from abele.errors import TensorError, TypeMismatchError
from abele.kernels import BoundKernel, Buffer, HostKernel, StoreRounding, bind, plan_native
from abele.kernels.nest.binding import bound_calls
from abele.kernels.nest.ir import Cast, Expr, apply, load, nest, select, store
from abele.kernels.plan.passes import PIPELINE, run_passes
from abele.kernels.plan.reference import evaluate_form
from abele.llvm.random import hash_u32, quick_hash_u32
from abele.numerics import ElementType, bf16, f16, f32, u32
from abele.numerics.narrow import round_at_random

SEED = Buffer(9, (2,), u32, name="seed")
RANDOM, HELD, BOTH = StoreRounding(9), StoreRounding(None, True), StoreRounding(9, True)
N = 1 << 14


def scaled(shape: tuple[int, ...], factor: float, stored: ElementType, source: ElementType = f32) -> HostKernel:
    """An operand times a number."""
    dims = {f"d{n}": extent for n, extent in enumerate(shape)}
    body = nest(dims, store(1, tuple(dims), load(0, *dims) * factor))
    return HostKernel((shape, shape), (source, stored), 1, 1, (body,))


def run(calls, buffers, storage, rounding, threads: int = 1):
    held = {n: a.copy() for n, a in storage.items()}
    run_plan(plan_native(buffers, calls, rounding), held, threads)
    return held


def narrowed(values: np.ndarray, rounding, seed=(5, 7), stored: ElementType = f16, factor: float = 1.0) -> np.ndarray:
    x, y = Buffer(0, values.shape, f32), Buffer(1, values.shape, stored)
    call = BoundKernel(scaled(values.shape, factor, stored), (bind(x), bind(y)))
    storage = {0: values.astype("f4").ravel(), 1: np.zeros(values.size, stored.np), 9: np.array(seed, np.uint32)}
    return run([call], [x, y, SEED], storage, rounding)[1].astype(np.float64).reshape(values.shape)


@pytest.mark.parametrize("stored", [f16, bf16], ids=str)
@pytest.mark.parametrize("value", [1.0003, -0.3001, 3.14159, 1.7e-3, 6.7e-8, 2.3e-7, 9.9e-6, 60001.3])
def test_random__mean_of_2_to_14_stores__is_the_value_within_4_sigma(stored: ElementType, value: float) -> None:
    got = narrowed(np.full(N, value), RANDOM, stored=stored)
    below, above = got.min(), got.max()
    assert below < value < above
    odds = (np.float64(np.float32(value)) - below) / (above - below)
    sigma = (above - below) * np.sqrt(odds * (1 - odds) / N)
    assert abs(got.mean() - np.float64(np.float32(value))) < 4 * sigma


@pytest.mark.parametrize("stored", [f16, bf16], ids=str)
def test_random__any_value__is_one_of_its_neighbours_as_numpy_draws_it(stored: ElementType) -> None:
    values = np.random.default_rng(1).normal(size=1000) * np.logspace(-9, 6, 1000)
    values = np.r_[values, 0.0, -0.0, np.inf, -np.inf, 65504.0, 65519.9, -65536.0, 1e30].astype("f4")
    got = narrowed(values, RANDOM, stored=stored)
    key = (np.uint32(5), np.uint32(7))
    want = round_at_random(values, stored, quick_hash_u32(*key, 1, np.arange(values.size)))
    np.testing.assert_array_equal(got, want.astype(np.float64))


def test_random__nan__stays() -> None:
    assert np.isnan(narrowed(np.array([np.nan, 1.0]), RANDOM)[0])


def test_random__other_seeds_and_elements__draw_apart() -> None:
    value = np.full(N, 1.0 + 2.0**-11)  # half way
    draws = [narrowed(value, RANDOM, seed) > 1 for seed in ((5, 7), (6, 7), (5, 8), (5 + (1 << 31), 7))]
    for first in range(len(draws)):
        for second in range(first):
            assert abs(np.corrcoef(draws[first], draws[second])[0, 1]) < 4 / np.sqrt(N)
        for lag in (1, 2, 8, 64, 256, 4096):
            assert abs(np.corrcoef(draws[first][lag:], draws[first][:-lag])[0, 1]) < 4 / np.sqrt(N - lag)


def test_quick_hash__upper_bits__are_even_over_elements_streams_and_seeds() -> None:
    for words in (
        quick_hash_u32(1, 2, 3, np.arange(1 << 16)),
        quick_hash_u32(1, 2, 3, np.arange(1 << 16) << 14),
        quick_hash_u32(1, 2, np.arange(1 << 16), 5),
        quick_hash_u32(np.arange(1 << 16), 2, 3, 5),
    ):
        counts = np.bincount(words >> 24, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    assert quick_hash_u32(1, 2, 3, 2**32 + 5) == quick_hash_u32(1, 2, 3, 5) != hash_u32(1, 2, 3, 5)


def test_held__what_is_too_large__is_the_largest_number() -> None:
    values = np.array([1e9, -1e9, 65519.0, 65520.0, np.inf, 2.0])
    for rounding in (HELD, BOTH):
        np.testing.assert_array_equal(narrowed(values, rounding), [65504, -65504, 65504, 65504, 65504, 2])
    assert np.isinf(narrowed(values, None)[0])


def chain() -> tuple[list[Buffer], list[BoundKernel], dict[int, np.ndarray]]:
    """A product, a bias with an activation, and a sum over rows: fused, laid out anew, run over units."""
    m, n, k = 48, 40, 64
    x, w, b = Buffer(0, (m, k), f16), Buffer(1, (n, k), f16), Buffer(2, (n,), f16)
    y, z, total = Buffer(3, (m, n), f16, False), Buffer(4, (m, n), f16), Buffer(5, (n,), f16)
    dense = nest({"i": m, "j": n, "k": k}, store(2, ("i", "j"), load(0, "i", "k") * load(1, "j", "k"), "add"))
    bias = load(0, "i", "j") + load(1, "j")
    relu = nest({"i": m, "j": n}, store(2, ("i", "j"), select(bias > 0.0, bias * 0.3, 0.0)))
    rows = nest({"i": m, "j": n}, store(1, ("j",), load(0, "i", "j"), "add"))
    calls = [
        BoundKernel(HostKernel((x.shape, w.shape, y.shape), (f16,) * 3, 2, 1, (dense,)), (bind(x), bind(w), bind(y))),
        BoundKernel(HostKernel((y.shape, b.shape, z.shape), (f16,) * 3, 2, 1, (relu,)), (bind(y), bind(b), bind(z))),
        BoundKernel(HostKernel((z.shape, total.shape), (f16,) * 2, 1, 1, (rows,)), (bind(z), bind(total))),
    ]
    rng = np.random.default_rng(2)
    storage = {p.id: rng.normal(size=p.shape).astype("f2").ravel() for p in (x, w, b, z, total)}
    storage[9] = np.array([11, 12], np.uint32)
    return [x, w, b, y, z, total, SEED], calls, storage


@pytest.mark.parametrize("rounding", [RANDOM, HELD, BOTH], ids=["random", "held", "both"])
def test_random__any_number_of_threads__gives_the_same_bits(rounding: StoreRounding) -> None:
    buffers, calls, storage = chain()
    first, *others = [run(calls, buffers, storage, rounding, threads) for threads in (1, 2, 3)]
    for other in others:
        for number in (4, 5):
            np.testing.assert_array_equal(first[number], other[number])


def test_random__fused_readers__see_what_is_stored() -> None:
    # Of y = x·w nobody sees the array, but z is made of it as it would have been stored.
    buffers, calls, storage = chain()
    hidden = run(calls, buffers, storage, RANDOM)
    buffers[3] = Buffer(3, buffers[3].shape, f16)
    seen = run(calls, buffers, storage | {3: np.zeros(48 * 40, "f2")}, RANDOM)
    np.testing.assert_array_equal(hidden[4], seen[4])
    y, b = seen[3].reshape(48, 40).astype("f4"), storage[2].astype("f4")
    exact = np.where(y + b > 0, (y + b) * np.float32(0.3), 0)
    step = np.spacing(np.abs(exact).astype("f2")).astype("f4")
    assert (np.abs(seen[4].reshape(48, 40).astype("f4") - exact) < 1.01 * step).all()


@pytest.mark.parametrize("rounding", [RANDOM, HELD, BOTH], ids=["random", "held", "both"])
def test_passes__after_words_are_numbered__change_no_bit(rounding: StoreRounding) -> None:
    buffers, calls, storage = chain()
    names = [step.name for step in PIPELINE]
    forms = []
    run_passes(bound_calls(buffers, calls, rounding=rounding), check=True, watch=lambda step, form: forms.append(form))
    start = names.index("number_draws")
    want = evaluate_form(forms[start], storage)
    for name, form in zip(names[start + 1 : -1], forms[start + 1 : -1], strict=True):
        got = evaluate_form(form, storage)
        for number in (4, 5):
            # Sums in another order may fall on the other side of a step.
            close = np.abs(got[number].astype("f4") - want[number].astype("f4"))
            assert (close <= np.spacing(np.abs(want[number])).astype("f4")).all(), name
            assert (close == 0).mean() > 0.97, name


@pytest.mark.parametrize("value", [apply("max", load(0, "i"), 0.5), apply("relu", load(0, "i"))], ids=str)
def test_random__values_that_the_array_holds__are_not_touched(value: Expr) -> None:
    x, y = Buffer(0, (N,), f16), Buffer(1, (N,), f16)
    kernel = HostKernel(((N,), (N,)), (f16, f16), 1, 1, (nest({"i": N}, store(1, ("i",), value)),))
    calls = [BoundKernel(kernel, (bind(x), bind(y)))]
    form = run_passes(bound_calls([x, y, SEED], calls, rounding=RANDOM), after="round_stores")
    assert form == run_passes(bound_calls([x, y, SEED], calls, rounding=RANDOM), after="split_dims")


def test_random__conversion_within_an_expression__has_a_word_of_its_own() -> None:
    x, y = Buffer(0, (N,), f32), Buffer(1, (N,), f32)
    value = Cast(f16, load(0, "i")) - Cast(f16, load(0, "i") * 1.0)
    kernel = HostKernel(((N,), (N,)), (f32, f32), 1, 1, (nest({"i": N}, store(1, ("i",), value)),))
    storage = {0: np.full(N, 1.0 + 2.0**-11, "f4"), 1: np.zeros(N, "f4"), 9: np.array([1, 2], np.uint32)}
    got = run([BoundKernel(kernel, (bind(x), bind(y)))], [x, y, SEED], storage, RANDOM)[1]
    shares = [(got == d).mean() for d in (-(2.0**-10), 0.0, 2.0**-10)]
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25], atol=4 * 0.5 / np.sqrt(N))


def test_random__sum_into_rows__is_rounded_once() -> None:
    rows, count, width = 4, 1 << 12, 8
    table, index, x = Buffer(0, (rows, width), f16), Buffer(1, (count,), u32), Buffer(2, (count, width), f16)
    body = nest({"i": count, "j": width}, store(2, (load(0, "i"), "j"), load(1, "i", "j"), "add", accumulate=True))
    kernel = HostKernel((index.shape, x.shape, table.shape), (u32, f16, f16), 2, 1, (body,))
    storage = {
        0: np.ones(rows * width, "f2"),
        1: (np.arange(count) % rows).astype("u4"),
        2: np.full(count * width, 2.0**-14, "f2"),
        9: np.array([3, 4], np.uint32),
    }
    calls = [BoundKernel(kernel, (bind(index), bind(x), bind(table)))]
    got = run(calls, [table, index, x, SEED], storage, RANDOM)[0]
    # To nearest, 1 + 2^-14 is 1, however often it is added.
    np.testing.assert_array_equal(got, 1 + count / rows * 2.0**-14)


def test_seed__that_is_no_pinned_pair_of_words__is_refused() -> None:
    x = Buffer(0, (4,), f32)
    with pytest.raises(TensorError, match="no buffer 9"):
        bound_calls([x], [], rounding=RANDOM)
    with pytest.raises(TypeMismatchError, match=r"pinned u32\[2\], buffer 9 is f32\[4\]"):
        bound_calls([Buffer(9, (4,), f32)], [], rounding=RANDOM)
