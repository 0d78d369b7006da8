"""Small arrays of the caller's that hold samples in groups do not keep the samples of everything else apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels_kit import form_after, run_plan
from small_programs import PROGRAMS, Calls

from abele.kernels import BoundKernel, HostKernel, OperandBinding, bind, copy_kernel, plan_native
from abele.kernels.nest.ir import load, nest, select, store
from abele.kernels.tasks.program import TaskProgram
from abele.numerics import f32

GROUPS = ((4, 32), (16, 1)), ((2, 16),)
"""64 samples of two features in groups of 16 samples, the features between group and sample."""


def layers() -> Calls:
    return PROGRAMS["outputs_in_groups"]()


def joined(made: Calls) -> TaskProgram:
    return form_after("join_samples", made.buffers, made.calls)


def shapes(program: TaskProgram) -> dict[str, tuple[int, ...]]:
    return {space.name: space.shape for space in program.spaces}


def given(made: Calls) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(0)
    return {b.id: rng.integers(-3, 4, b.shape).astype(np.float32) for b in made.buffers if b.pinned}


def by_samples(groups: np.ndarray) -> np.ndarray:
    return groups.transpose(0, 2, 1).reshape(64, 2)


def test_join_samples__outputs_in_groups_of_a_small_last_layer__leave_the_samples_of_all_layers_whole():
    made = layers()
    before = form_after("join_dims", made.buffers, made.calls)
    assert (shapes(before)["x"], shapes(before)["y"]) == ((4, 16, 128), (4, 16, 64))
    after = joined(made)
    assert shapes(after) == {
        "x": (64, 128),
        "w": (64, 128),
        "y": (64, 64),
        "v": (2, 64),
        "out": (4, 2, 16),
        "out.copy": (64, 2),
    }
    assert [task.name for task in after.tasks] == ["wide", "narrow", "out.copy"]


@pytest.mark.parametrize("threads", [1, 3])
def test_join_samples__native_code__stores_the_outputs_where_the_caller_has_them(threads: int):
    made = layers()
    storage = given(made)
    x, w, v = (storage[b.id].copy() for b in made.buffers if b.name in "xwv")
    run_plan(plan_native(made.buffers, made.calls), storage, threads)
    (out,) = (storage[b.id] for b in made.buffers if b.name == "out")
    np.testing.assert_array_equal(by_samples(out), x @ w.T @ v.T)


def test_join_samples__outputs_that_are_added_onto__stay_as_they_are():
    made = layers()
    product = made.calls[1].kernel
    kept = replace(product.nests[0].stores[0], accumulate=True)
    kernel = replace(product, nests=(replace(product.nests[0], stores=(kept,)),))
    made.calls[1] = replace(made.calls[1], kernel=kernel)
    assert [task.name for task in joined(made).tasks] == ["wide", "narrow"]  # state, as weights are
    storage = given(made)
    x, w, v = (storage[b.id].copy() for b in made.buffers if b.name in "xwv")
    (out,) = (storage[b.id] for b in made.buffers if b.name == "out")
    expected = by_samples(out) + x @ w.T @ v.T
    run_plan(plan_native(made.buffers, made.calls), storage)
    np.testing.assert_array_equal(by_samples(out), expected)


def test_join_samples__targets_that_the_caller_keeps_in_groups__are_copied_before_all_tasks():
    made = layers()
    last = made.buffers[-1]
    target, loss = made.buffer((4, 2, 16), "target", True), made.buffer((2,), "loss", True)
    out, groups = OperandBinding(last.id, GROUPS), OperandBinding(target.id, GROUPS)
    error = load(0, "b", "n") - load(1, "b", "n")
    body = nest({"b": 64, "n": 2}, store(2, ("n",), error * error, "add"))
    kernel = HostKernel(((64, 2), (64, 2), (2,)), (f32,) * 3, 2, 1, (body,))
    made.calls.append(BoundKernel(kernel, (out, groups, bind(loss)), "loss", frozenset({2})))
    program = joined(made)
    assert [task.name for task in program.tasks] == ["target.copy", "wide", "narrow", "loss", "out.copy"]
    assert shapes(program)["out.copy"] == shapes(program)["target.copy"] == (64, 2)
    storage = given(made)
    x, w, v = (storage[b.id].copy() for b in made.buffers if b.name in "xwv")
    run_plan(plan_native(made.buffers, made.calls), storage)
    expected = ((x @ w.T @ v.T - by_samples(storage[target.id])) ** 2).sum(0)
    np.testing.assert_allclose(storage[loss.id], expected, rtol=1e-6)


def test_join_samples__one_array_that_is_read_and_one_that_is_written__are_copied_where_each_must():
    made = layers()
    last = made.buffers[-1]
    view = OperandBinding(last.id, GROUPS)
    # out = result where that is positive, else old
    result = made.buffer((64, 2), "result")
    made.calls[1] = replace(made.calls[1], bindings=(*made.calls[1].bindings[:2], bind(result)))
    kept = select(load(0, "b", "n") > 0.0, load(0, "b", "n"), load(1, "b", "n"))
    body = nest({"b": 64, "n": 2}, store(2, ("b", "n"), kept))
    old = made.buffer((4, 2, 16), "old", True)
    kernel = HostKernel(((64, 2),) * 3, (f32,) * 3, 2, 1, (body,))
    made.calls.append(BoundKernel(kernel, (bind(result), OperandBinding(old.id, GROUPS), view), "kept", frozenset({2})))
    program = joined(made)
    assert [task.name for task in program.tasks] == ["old.copy", "wide", "narrow", "kept", "out.copy"]
    storage = given(made)
    x, w, v = (storage[b.id].copy() for b in made.buffers if b.name in "xwv")
    run_plan(plan_native(made.buffers, made.calls), storage)
    product = x @ w.T @ v.T
    np.testing.assert_array_equal(
        by_samples(storage[last.id]), np.where(product > 0, product, by_samples(storage[old.id]))
    )


def test_join_samples__arrays_large_for_what_is_done_with_them__stay_as_they_are():
    made = Calls()
    x, y = made.buffer((64, 2), "x", True), made.buffer((4, 2, 16), "y", True)
    made.calls = [BoundKernel(copy_kernel((64, 2), f32), (bind(x), OperandBinding(y.id, GROUPS)), "copy")]
    assert shapes(joined(made)) == {"x": (4, 16, 2), "y": (4, 2, 16)}
