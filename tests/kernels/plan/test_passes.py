"""The planner's passes, one by one: splitting, sample dim, stages, fusion, memory, schedules, lanes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import form_after, run_kernel, run_plan
from small_programs import BATCH, UNITS, WIDTH, Calls, training_step

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import affine, load, nest, store
from abele.kernels.plan.assemble import Lifetime, padded, place
from abele.kernels.target import host_target
from abele.kernels.tasks.choose_samples import samples_per_block
from abele.kernels.tasks.order_stages import order_stages
from abele.kernels.tasks.program import TaskProgram
from abele.kernels.tasks.sample_dim import find_sample_dim
from abele.numerics import f32


def after(name: str, made: Calls) -> TaskProgram:
    return form_after(name, made.buffers, made.calls)


def test_sample_dim__training_step__is_the_batch():
    program = after("split_dims", training_step())
    sample = find_sample_dim(program)
    assert sample is not None
    assert sample.extent == BATCH
    assert {program.spaces[s].name for s in sample.spaces} == {"x", "y", "z", "norm"}


def test_stages__reduction_used_by_samples__needs_a_second_stage_by_blocks():
    program = after("split_dims", training_step())
    program = order_stages(replace(program, samples=find_sample_dim(program)))
    names = [(s.by_blocks, [program.tasks[n].name for n in s.tasks]) for s in program.stages]
    assert names == [(True, ["dense", "relu", "total"]), (True, ["grad", "norm"]), (False, ["sgd"])]


def test_fuse_tasks__activation_and_update__join_their_producers():
    program = after("drop_unread", training_step())
    assert [t.name for t in program.tasks] == ["dense+relu", "grad+sgd", "total", "norm"]
    assert [program.spaces[p.space].name for p in program.tasks[0].puts] == ["z"]
    assert [program.spaces[p.space].name for p in program.tasks[1].puts] == ["w"]


def test_fuse_tasks__reader_between__keeps_the_order():
    made = Calls()
    x, y = made.buffer((8, 4), "x", True), made.buffer((8, 4), "y", True)
    total = made.buffer((4,), "total", True)
    loops, cell = {"i": 8, "j": 4}, ("i", "j")
    made.call("double", [x], y, loops, cell, load(0, *cell) * 2.0)
    made.call("total", [y], total, loops, ("j",), load(0, *cell), "add")
    made.call("clear", [y], y, loops, cell, load(0, *cell) * 0.0)
    program = after("drop_unread", made)
    assert [t.name for t in program.tasks] == ["double", "total", "clear"]


def test_plan__training_step__matches_numpy_with_any_number_of_threads():
    step = training_step()
    plan = plan_native(step.buffers, step.calls)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(BATCH, WIDTH)), rng.normal(size=(UNITS, WIDTH))
    results = []
    for threads in (1, 2, 3, 7):
        storage = {b.id: np.zeros(b.shape, np.float32) for b in step.buffers if b.pinned}
        storage[0][...], storage[1][...] = x, w
        run_plan(plan, storage, threads)
        results.append(storage)
    z = np.maximum(x @ w.T, 0)
    np.testing.assert_allclose(results[0][1], w - 0.1 * z.T @ x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[0][5], z / (z.sum(0) + 1), rtol=1e-4, atol=1e-5)
    for other in results[1:]:
        assert all((other[n] == results[0][n]).all() for n in other)


def test_plan__same_calls_twice__shares_its_code():
    step = training_step()
    first, second = (plan_native(step.buffers, step.calls) for _ in range(2))
    assert [leaf.address for leaf in first.leaves] == [leaf.address for leaf in second.leaves]
    assert first.listing == second.listing


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_place__arrays_that_live_together__do_not_overlap(items):
    lives = [Lifetime(size, min(a, b), max(a, b)) for size, a, b in items]
    offsets, total = place(lives)
    for n, (a, x) in enumerate(zip(lives, offsets, strict=True)):
        assert x % 64 == 0
        assert x + a.size_bytes <= total
        for b, y in zip(lives[:n], offsets[:n], strict=True):
            if a.first <= b.last and b.first <= a.last:
                assert x + padded(a.size_bytes) <= y or y + padded(b.size_bytes) <= x


def test_samples_per_block__small_batches__leave_two_blocks():
    assert [samples_per_block(n, 16) for n in (512, 32, 31, 16, 8, 3)] == [16, 16, 8, 8, 4, 4]
    assert samples_per_block(512, 4) == 4


def test_listing__of_a_plan__shows_tasks_and_schedules():
    step = training_step()
    listing = plan_native(step.buffers, step.calls).listing
    # A block is a vector of samples.
    lanes = host_target().lanes
    blocks = 32 // lanes
    assert f"leaf 0: block after block, {blocks} blocks of {lanes} samples in {blocks} chunks" in listing
    assert f"grad+sgd.combine  for n<6, k<12\n    acc0 = sum over chunk<{blocks} of" in listing


def test_window__padding__is_a_guard_on_the_loops():
    made = Calls()
    x, y = made.buffer((BATCH, 10), "x", True), made.buffer((BATCH, 10), "y", True)
    window = load(0, "b", affine("i", "k", const=-1), fill=0.0) * 0.5
    made.call("blur", [x], y, {"b": BATCH, "i": 10, "k": 3}, ("b", "i"), window, "add")
    reduction = after("split_dims", made).tasks[0].reductions[0]
    assert str(reduction) == "add $0[b, i + k - 1 if 0≤i + k - 1<10] * 0.5 if 0≤i + k - 1<10"


def test_plan__one_product_for_each_channel__does_not_run_by_blocks():
    shapes = (4, 16, 30, 8), (4, 16, 30, 8), (4, 3, 8)
    body = store(2, ("g", "o", "c"), load(0, "g", "b", affine("k", "o"), "c") * load(1, "g", "b", "k", "c"), "add")
    item = nest({"g": 4, "o": 3, "c": 8, "b": 16, "k": 28}, body)
    kernel = HostKernel(shapes, (f32,) * 3, 2, 1, (item,))
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(shapes)]
    assert (
        "block after block"
        not in plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "deltas")]).listing
    )
    x, z = np.random.default_rng(0).normal(size=(2, *shapes[0])).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 28, axis=2)
    expected = np.einsum("gbock,gbkc->goc", windows, z[:, :, :28].astype(np.float64))
    np.testing.assert_allclose(run_kernel(kernel, [x, z])[0], expected, rtol=1e-4, atol=1e-4)


def test_plan__windows_added_onto_images__are_shared_by_images():
    # out[b, 2i + k - 1] += x[b, i] inside the image: neighbouring windows meet, images do not
    index = ("b", affine(("i", 2), "k", const=-1))
    body = store(1, index, load(0, "b", "i"), "add")
    kernel = HostKernel(((40, 50), (40, 100)), (f32, f32), 1, 1, (nest({"b": 40, "i": 50, "k": 3}, body),))
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(kernel.shapes)]
    plan = plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "windows")])
    driver = plan.leaves[-1].driver
    assert driver is not None
    assert driver.steps[-1].units == 40
    x = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
    expected = np.zeros((40, 102))
    for k in range(3):
        expected[:, k : k + 100 : 2] += x
    np.testing.assert_allclose(run_kernel(kernel, [x], threads=3)[0], expected[:, 1:101], rtol=1e-6)
