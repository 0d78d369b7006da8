"""Groups of attention run for some rows at a time, without what masks leave out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from attention_programs import AttentionMaker, Sizes, inference, training
from kernels_kit import form_after, run_plan

import abele.kernels.tasks.divide_rows
from abele.kernels.nest.binding import bound_calls
from abele.kernels.plan.native_plan import NativePlan
from abele.kernels.plan.passes import run_passes
from abele.kernels.target import HostTarget
from abele.kernels.tasks.leaves import LeafProgram, OuterLoop
from abele.kernels.tasks.program import Task

CPU = HostTarget(lanes=16, far_bytes=0)


def groups(maker: AttentionMaker, after: str = "divide_rows") -> list[tuple[Task, ...]]:
    form = form_after(after, [t.buffer for t in maker.tensors], maker.calls, CPU)
    assert isinstance(form, LeafProgram)
    return [leaf.tasks for leaf in form.leaves if isinstance(leaf.loop, OuterLoop)]


def products(tasks: tuple[Task, ...]) -> int:
    """Points of the tasks that multiply matrices."""
    names = ("scores", "mix", "dp", "dv", "dq", "dk")
    return sum(task.points for task in tasks if task.reduced and task.name.startswith(names))


def share_of_work(maker: AttentionMaker) -> list[float]:
    whole, parts = (map(products, groups(maker, after)) for after in ("block_samples", "divide_rows"))
    return [after / before for before, after in zip(whole, parts, strict=True)]


@pytest.mark.parametrize(("mask", "most"), [("causal", 0.63), ("window", 0.6), ("none", 1.0), ("far", 1.0)])
def test_divide_rows__masks__leave_out_what_adds_nothing(mask, most):
    shares = share_of_work(training(0, Sizes(1, 2, 128, 128, 16), mask))
    assert len(shares) == 2
    assert all(most - 0.1 < share <= most for share in shares)


def test_divide_rows__causal_mask_in_odd_layouts__is_found_in_each():
    assert all(max(share_of_work(training(seed, Sizes(2, 2, 96, 96, 16), "causal"))) < 0.8 for seed in range(4))


def test_divide_rows__small_scores_without_masks__stay_whole():
    maker = training(0, Sizes(2, 2, 64, 64, 16))
    assert groups(maker) == groups(maker, "block_samples")


@pytest.mark.parametrize("mask", ["none", "added"])
def test_divide_rows__scores_that_outgrow_a_cache__are_never_whole(mask, monkeypatch):
    monkeypatch.setattr(abele.kernels.tasks.divide_rows, "BLOCK_BYTES", 1 << 15)
    maker = inference(0, Sizes(1, 2, 130, 120, 16), mask)
    plan = run_passes(bound_calls([t.buffer for t in maker.tensors], maker.calls, replace(CPU, far_bytes=1 << 25)))
    assert isinstance(plan, NativePlan)
    assert plan.arena_bytes == 0
    assert plan.scratch_bytes < 130 * 120 * 4 * 2


def test_divide_rows__shares_that_the_caller_reads__are_stored_whole():
    maker = inference(5, Sizes(2, 2, 64, 64, 16), "causal")
    number = maker.p.buffer.id
    maker.p.buffer = replace(maker.p.buffer, pinned=True)
    storage = maker.storage()
    plan = run_passes(bound_calls([t.buffer for t in maker.tensors], maker.calls), check=True)
    assert isinstance(plan, NativePlan)
    run_plan(plan, storage)
    shares = maker.p.read(storage[number])
    np.testing.assert_allclose(shares, maker.p.value, rtol=1e-4, atol=1e-6)
    assert (shares[..., 0, 1:] == 0).all()


def test_divide_rows__gradients_of_keys__are_carried_from_rows_to_rows():
    backward = groups(training(0, Sizes(1, 2, 128, 128, 16), "causal"))[1]
    parts = [task for task in backward if task.name.startswith("dk")]
    assert [bool(task.reduced) for task in parts] == [True] * 4 + [False]
    assert [dict(task.reduced) for task in parts[:4]] == [dict(parts[0].reduced)] * 4
