"""Random programs over buffers in odd layouts: the plan against one kernel at a time in NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels_kit import run_plan
from random_programs import Maker

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import affine, apply, load, nest, store
from abele.numerics import f32
from support.examples import examples


@settings(examples(8), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 3, 8, 20, 32]), layers=st.integers(1, 6))
def test_program__random_layers_and_layouts__matches_one_kernel_at_a_time(seed, batch, layers):
    maker = Maker(seed, batch)
    x = maker.source((batch, int(maker.rng.choice([1, 4, 6])), int(maker.rng.choice([4, 6, 10]))))
    for _ in range(layers):
        x = maker.step(x)
        if x.shape[2] > 24:
            break
    out = maker.tensor(x.shape, True)
    names = ("b", "c", "w")
    maker.call("copy", [x], out, nest(dict(zip(names, x.shape, strict=True)), store(1, names, load(0, *names))))
    plan = plan_native([t.buffer for t in maker.tensors], maker.calls)
    results = []
    for threads in (1, 2):
        storage = {
            t.buffer.id: maker.start.get(t.buffer.id, np.zeros(t.buffer.shape, np.float32)).copy()
            for t in maker.tensors
            if t.buffer.pinned
        }
        run_plan(plan, storage, threads)
        results.append(storage)
    for t in maker.tensors:
        if t.buffer.pinned and t.value is not None:
            np.testing.assert_allclose(t.read(results[0][t.buffer.id]), t.value, rtol=2e-4, atol=2e-4)
            np.testing.assert_array_equal(results[0][t.buffer.id], results[1][t.buffer.id])


def test_fuse__slots_of_one_tensor__one_leaf_that_agrees_with_numpy() -> None:
    x, state = np.random.default_rng(3).uniform(-2, 2, (2, 24, 40)).astype(np.float32)
    shapes = ((24, 40), (2, 24, 40), (24, 40))
    buffers = [Buffer(n, shape, f32, n != 1, f"b{n}") for n, shape in enumerate(shapes)]
    space, at = {"i": 24, "j": 40}, ("i", "j")

    def call(name: str, operands: tuple[int, ...], num_inputs: int, *stores) -> BoundKernel:
        kernel = HostKernel(
            tuple(shapes[n] for n in operands), (f32,) * len(operands), num_inputs, 1, (nest(space, *stores),)
        )
        return BoundKernel(kernel, tuple(bind(buffers[n]) for n in operands), name)

    slots = [load(0, slot, *at) for slot in (0, 1)]
    calls = [
        call("gates", (0, 1), 1, *(store(1, (s, *at), apply(f, load(0, *at))) for s, f in enumerate(("tanh", "exp")))),
        call("cell", (1, 2, 2), 2, store(2, at, slots[0] * load(1, *at) + slots[1])),
    ]
    plan = plan_native(buffers, calls)
    storage = {0: x.copy(), 2: state.copy()}
    run_plan(plan, storage)
    np.testing.assert_allclose(storage[2], np.tanh(x) * state + np.exp(x), rtol=1e-5, atol=1e-6)
    assert len(plan.leaves) == 1
    assert plan.arena_bytes == 0 == plan.scratch_bytes


def test_fuse__slot_read_at_other_points__values_as_stored_before() -> None:
    x = np.random.default_rng(4).uniform(-2, 2, (16, 32)).astype(np.float32)
    shapes = ((16, 32), (2, 16, 32), (16, 32))
    buffers = [Buffer(n, shape, f32, n != 1, f"b{n}") for n, shape in enumerate(shapes)]
    space, at = {"i": 16, "j": 32}, ("i", "j")
    split = HostKernel(
        shapes[:2],
        (f32, f32),
        1,
        1,
        (nest(space, store(1, (0, *at), load(0, *at)), store(1, (1, *at), -load(0, *at))),),
    )
    turned = load(0, 1, affine(("i", -1), const=15), "j")
    join = HostKernel(shapes[1:], (f32, f32), 1, 1, (nest(space, store(1, at, load(0, 0, *at) * turned)),))
    views = tuple(map(bind, buffers))
    storage = {0: x.copy(), 2: np.zeros_like(x)}
    run_plan(
        plan_native(buffers, [BoundKernel(split, views[:2], "split"), BoundKernel(join, views[1:], "join")]), storage
    )
    np.testing.assert_allclose(storage[2], -x * x[::-1], rtol=1e-6)
