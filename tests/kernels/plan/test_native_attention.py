"""Attention runs point after point of sample and head, forward and backward, whatever its sizes, mask and layouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from attention_programs import AttentionMaker, Sizes, inference, training
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels_kit import check_every_form, form_after, run_plan

from abele.kernels import NativePlan, plan_native
from abele.kernels.nest.binding import bound_calls
from abele.kernels.plan.passes import run_passes
from abele.kernels.target import HostTarget, host_target
from abele.kernels.tasks.leaves import LeafProgram, OuterLoop
from abele.kernels.tasks.program import TaskProgram
from support.examples import examples

MASKS = ["none", "added", "causal", "far", "window"]


def sizes() -> st.SearchStrategy[Sizes]:
    side = st.sampled_from([24, 32, 65, 100])
    return st.builds(
        Sizes, st.integers(1, 3), st.integers(1, 3), queries=side, keys=side, depth=st.sampled_from([16, 24, 33])
    )


def fused(maker: AttentionMaker, target: HostTarget | None = None) -> TaskProgram:
    made = form_after("fuse_outer_loops", [t.buffer for t in maker.tensors], maker.calls, target)
    assert isinstance(made, TaskProgram)
    return made


def run_natively(maker: AttentionMaker, threads: int, **target: int) -> dict[int, np.ndarray]:
    storage = maker.storage()
    host = replace(host_target(), **target)
    plan = run_passes(bound_calls([t.buffer for t in maker.tensors], maker.calls, host), check=True)
    assert isinstance(plan, NativePlan)
    run_plan(plan, storage, threads)
    return storage


@settings(examples(2), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), sizes=sizes(), mask=st.sampled_from(MASKS))
def test_plan__attention_with_gradients__gives_what_numpy_gives_and_the_same_bits_for_any_threads(seed, sizes, mask):
    maker = training(seed, sizes, mask)
    results = [run_natively(maker, threads) for threads in (1, 2, 3)]
    for tensor in maker.tensors:
        if tensor.buffer.pinned:
            np.testing.assert_allclose(tensor.read(results[0][tensor.buffer.id]), tensor.value, rtol=3e-4, atol=3e-5)
            assert all((other[tensor.buffer.id] == results[0][tensor.buffer.id]).all() for other in results[1:])


@pytest.mark.parametrize("mask", [m if m == "added" else pytest.param(m, marks=pytest.mark.slow) for m in MASKS])
def test_forms__attention_with_gradients__mean_what_its_kernels_mean(mask):
    sizes = Sizes(2, 1, 72, 64, 24) if mask in ("causal", "window") else Sizes(2, 2, 32, 24, 24)
    check_every_form(training(7, sizes, mask), 8, 3e-4, far_bytes=0 if mask in ("added", "window") else 1 << 25)


def test_rematerialise__shares_too_large_to_keep__are_made_again_with_the_same_bits():
    small, sizes = HostTarget(lanes=16, far_bytes=0), Sizes(2, 2, 48, 32, 16)
    program = fused(training(3, sizes), small)
    again = [program.tasks[n].name for n in program.groups[1].tasks if program.tasks[n].name.endswith(".again")]
    assert [name.split("+")[0] for name in again] == ["scores", "exp.again", "divide.again"]
    shares = [s for s in program.spaces if s.size >= 2 * 2 * 48 * 32 and not s.pinned]
    layouts = form_after("block_samples", *_calls(training(3, sizes)), small).layouts
    touched = {s for task in program.tasks for s in task.reads | task.writes}
    assert all(layouts[s.number].is_one_point for s in shares if s.number in touched)
    kept, made = (run_natively(training(3, sizes), 1, far_bytes=far) for far in (1 << 25, 0))
    assert all((kept[n] == made[n]).all() for n in kept)


def _calls(maker: AttentionMaker) -> tuple[list, list]:
    return [t.buffer for t in maker.tensors], maker.calls


def test_groups__attention_with_gradients__are_one_before_the_loss_and_one_after():
    program = fused(training(0, Sizes(2, 3, 32, 32, 16)))
    names = [[program.tasks[n].name for n in group.tasks] for group in program.groups]
    assert [group.extents for group in program.groups] == [(2, 3), (2, 3)]
    assert names[0][0].startswith("scores")
    assert names[0][-1].startswith("mix")
    assert {"dp", "dv", "dq", "dk"} <= set(names[1])
    between = [task.name for n, task in enumerate(program.tasks) if not any(n in g.tasks for g in program.groups)]
    assert between == ["total", "grad"]


def test_groups__scores_of_inference__exist_for_one_point_at_a_time():
    sizes = Sizes(4, 3, 64, 64, 32)
    maker = inference(0, sizes)
    buffers = [t.buffer for t in maker.tensors]
    form = form_after("block_samples", buffers, maker.calls)
    assert isinstance(form, LeafProgram)
    assert [type(leaf.loop) for leaf in form.leaves] == [OuterLoop]
    plan = plan_native(buffers, maker.calls)
    assert plan.arena_bytes == 0
    assert plan.scratch_bytes <= 3 * (64 * 64 * 4) + 4 * 64 * 4


def test_groups__small_heads__stay_with_the_samples():
    assert not fused(training(0, Sizes(8, 2, 8, 8, 4))).groups


def test_groups__product_with_weights__is_in_none():
    maker = AttentionMaker(0, Sizes(2, 2, 32, 32, 32))
    hidden = maker.product("up", maker.source((32, 32)), maker.source((32, 32)), maker.own(32, 32), "ij", "id", "dj")
    maker.product("down", hidden, maker.source((32, 32)), maker.tensor((32, 32), pinned=True), "id", "ij", "jd")
    assert not fused(maker).groups
