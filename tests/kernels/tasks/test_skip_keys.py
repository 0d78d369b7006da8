"""Groups of attention with keys that masks show alone, where masks are made while a program runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from attention_programs import AttentionMaker, Sizes, inference, training
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels_kit import check_every_form, form_after, run_plan

from abele.kernels.nest.binding import bound_calls
from abele.kernels.plan.native_plan import NativePlan
from abele.kernels.plan.passes import run_passes
from abele.kernels.target import HostTarget, host_target
from abele.kernels.tasks.leaves import LeafProgram, OuterLoop, SeenKeys
from support.examples import examples

MASKS = ["packed", "others", "padded", "packed added", "packed far"]
CPU = HostTarget(lanes=16, far_bytes=1 << 25)


def loops(maker: AttentionMaker, target: HostTarget = CPU) -> list[SeenKeys | None]:
    form = form_after("skip_keys", [t.buffer for t in maker.tensors], maker.calls, target)
    assert isinstance(form, LeafProgram)
    return [leaf.loop.seen for leaf in form.leaves if isinstance(leaf.loop, OuterLoop)]


def run(maker: AttentionMaker, threads: int = 1, **target: int) -> dict[int, np.ndarray]:
    host = replace(host_target(), **target)
    plan = run_passes(bound_calls([t.buffer for t in maker.tensors], maker.calls, host), check=True)
    assert isinstance(plan, NativePlan)
    storage = maker.storage()
    run_plan(plan, storage, threads)
    return storage


def assert_as_expected(maker: AttentionMaker, storage: dict[int, np.ndarray]) -> None:
    for tensor in maker.tensors:
        if tensor.buffer.pinned and tensor.value is not None:
            np.testing.assert_allclose(tensor.read(storage[tensor.buffer.id]), tensor.value, rtol=3e-4, atol=3e-5)


def hidden_values_are_left_out(maker: AttentionMaker, row: int) -> bool:
    """True if what a query makes is a number although values of another sequence, which it does not see, are none."""
    held = maker.start[maker.v.buffer.id].reshape(-1)
    held[maker.v.read(np.arange(held.size))[:, :, -16:].reshape(-1)] = np.nan
    out = next(t for t in maker.tensors if t.buffer.pinned and t.value is not None and t.buffer.id not in maker.start)
    return bool(np.isfinite(out.read(run(maker)[out.buffer.id])[:, :, row]).all())


@pytest.mark.parametrize("mask", MASKS)
def test_skip_keys__masks_made_in_the_program__divide_forward_and_backward(mask):
    found = loops(training(0, Sizes(1, 2, 96, 96, 16), mask))
    assert len(found) == 2
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].table == found[1].table
    assert found[0].counts == found[1].counts


@pytest.mark.parametrize("mask", ["none", "added", "causal", "far", "window"])
def test_skip_keys__masks_known_before_or_biases__are_left_to_others(mask):
    assert loops(training(0, Sizes(1, 2, 96, 96, 16), mask)) == [None, None]


@pytest.mark.parametrize(
    "mask", ["packed", *(pytest.param(m, marks=pytest.mark.slow) for m in ("packed added", "packed far", "padded"))]
)
def test_skip_keys__values_of_keys_that_a_mask_hides__are_not_touched(mask):
    ids = np.where(np.arange(128) < 64, 1, 0)
    assert hidden_values_are_left_out(inference(1, Sizes(1, 2, 128, 128, 16), mask, ids=ids), row=0)


def test_skip_keys__scores_too_large_for_the_number_that_hides__are_computed_whole():
    ids = np.where(np.arange(128) < 64, 1, 0)
    maker = inference(1, Sizes(1, 2, 128, 128, 16), "packed far", ids=ids)
    for tensor in (maker.q, maker.k):
        maker.start[tensor.buffer.id] = maker.start[tensor.buffer.id] * 30
    assert not hidden_values_are_left_out(maker, row=0)


def test_skip_keys__large_scores__give_what_softmax_gives_even_where_the_number_does_not_hide():
    class Large(AttentionMaker):
        def values(self, shape):
            return super().values(shape) * 30

    maker = Large(2, Sizes(1, 2, 64, 64, 16), "packed far")
    maker.forward()
    assert_as_expected(maker, run(maker))


def test_skip_keys__rows_from_which_a_finite_number_hides_all__see_all():
    maker = inference(3, Sizes(1, 1, 64, 64, 16), "packed far", ids=np.arange(64) // 16)
    queries = next(t for t in maker.tensors if t.value is not None and t.value.shape == (1, 64))
    held = maker.start[queries.buffer.id].reshape(-1)
    held[...] = 9.0  # no key has this number
    storage = run(maker)
    q, k, v = (t.value.astype(np.float64) for t in (maker.q, maker.k, maker.v))
    scores = np.einsum("bhid,bhjd->bhij", q, k) * 16**-0.5
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    out = next(t for t in maker.tensors if t.buffer.pinned and t.buffer.id not in maker.start)
    wanted = np.einsum("bhij,bhjd->bhid", shares / shares.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(out.read(storage[out.buffer.id]), wanted, rtol=3e-4, atol=3e-5)


def test_skip_keys__shares_that_the_caller_reads__are_computed_whole():
    maker = inference(5, Sizes(2, 2, 64, 64, 16), "packed")
    maker.p.buffer = replace(maker.p.buffer, pinned=True)
    assert not any(loops(maker))
    assert_as_expected(maker, run(maker))


@pytest.mark.parametrize(("queries", "keys"), [(7, 64), (100, 36), pytest.param(53, 53, marks=pytest.mark.slow)])
def test_skip_keys__sizes_that_divide_by_nothing__give_what_numpy_gives(queries, keys):
    maker = training(6, Sizes(2, 1, queries, keys, 16), "packed")
    assert_as_expected(maker, run(maker))


def test_range_of__what_is_seen__is_covered_by_the_smallest_number_of_keys():
    seen = loops(inference(0, Sizes(1, 2, 96, 100, 16), "packed"))[0]
    assert seen is not None
    for first in range(seen.keys):
        for last in range(first + 1, seen.keys + 1):
            kind, start = seen.range_of(first, last)
            assert 0 <= start <= first < last <= start + seen.counts[kind] <= seen.keys
    assert seen.range_of(seen.keys, 0)[0] == 0


def test_forms__dropout_of_shares__draws_the_numbers_of_each_row_and_key():
    maker = AttentionMaker(8, Sizes(1, 2, 64, 40, 16), "packed")
    maker.dropout = True
    maker.forward()
    assert all(loops(maker))
    check_every_form(maker, 8, 3e-4)
    assert_as_expected(maker, run(maker, threads=2))


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
def test_forms__masks_made_in_the_program__mean_what_kernels_mean(mask):
    far = 0 if mask in ("packed added", "padded") else 1 << 25
    check_every_form(training(7, Sizes(2, 1, 64, 40, 16), mask), 8, 3e-4, far_bytes=far)


@pytest.mark.slow
@settings(examples(4), suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    mask=st.sampled_from(MASKS),
    keys=st.sampled_from([32, 64, 100]),
    is_sorted=st.booleans(),
    most=st.integers(1, 6),
    far=st.sampled_from([0, 1 << 25]),
)
def test_plan__any_numbers_of_sequences__give_what_numpy_gives_and_the_same_bits_for_any_threads(
    seed, mask, keys, is_sorted, most, far
):
    ids = np.random.default_rng(seed).integers(0, most + 1, (2, keys))
    ids[:, 0], ids[:, -1] = 0, most  # a key that is real, and one that is not: every query sees one
    maker = training(seed, Sizes(2, 2, keys, keys, 16), mask, np.sort(ids, axis=1) if is_sorted else ids)
    results = [run(maker, threads, far_bytes=far) for threads in (1, 3)]
    assert_as_expected(maker, results[0])
    assert all((results[0][n] == results[1][n]).all() for n in results[0])
