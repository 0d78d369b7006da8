"""Long contractions run in parts: same sums, nothing touched outside operands, results only where they belong."""

from __future__ import annotations

import numpy as np
import pytest
from guarded_memory import check, values
from kernels_kit import run_kernel, run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import affine, apply, load, nest, store
from abele.numerics import ElementType, f16, f32

TYPES = {"f32": f32, "f16": f16}
SIZES = {"exact": (96, 2048, 128), "ragged": (67, 1536, 75), "no even part": (64, 1031, 64)}


def product(m: int, k: int, n: int, type_: ElementType) -> HostKernel:
    body = nest({"m": m, "k": k, "n": n}, store(2, ("m", "n"), load(0, "m", "k") * load(1, "k", "n"), "add"))
    return HostKernel(((m, k), (k, n), (m, n)), (type_,) * 3, 2, 1, (body,))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("at_end", [False, True])
def test_long_product__of_small_integers__exact_and_inside_its_operands(size: str, kind: str, at_end: bool) -> None:
    kernel = product(*SIZES[size], TYPES[kind])
    inputs = [values(shape, TYPES[kind], n) for n, shape in enumerate(kernel.shapes[:2])]
    check(kernel, inputs, at_end=at_end)


def test_long_product__several_threads__same_bits_as_one() -> None:
    rng = np.random.default_rng(1)
    kernel = product(96, 2048, 128, f32)
    inputs = [rng.normal(size=shape).astype(np.float32) for shape in kernel.shapes[:2]]
    one, three = (run_kernel(kernel, inputs, threads)[0] for threads in (1, 3))
    np.testing.assert_array_equal(one, three)
    wanted = inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)
    np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", TYPES)
def test_long_product__followed_by_an_activation__applied_once_to_the_whole_sum(kind: str) -> None:
    type_, (m, k, n) = TYPES[kind], (96, 2048, 128)
    shapes = ((m, k), (k, n), (n,), (m, n), (m, n))
    buffers = [Buffer(b, shape, type_, b != 3, f"b{b}") for b, shape in enumerate(shapes)]
    space, at = {"m": m, "n": n}, ("m", "n")
    after = nest(space, store(2, at, apply("relu", load(0, *at) + load(1, "n"))))
    calls = [
        BoundKernel(product(m, k, n, type_), tuple(bind(buffers[b]) for b in (0, 1, 3)), "product"),
        BoundKernel(
            HostKernel((shapes[3], shapes[2], shapes[4]), (type_,) * 3, 2, 1, (after,)),
            tuple(bind(buffers[b]) for b in (3, 2, 4)),
            "activation",
        ),
    ]
    storage = {b: values(shapes[b], type_, b) for b in (0, 1, 2)} | {4: np.zeros(shapes[4], type_.np)}
    a, w, bias = (storage[b].astype(np.float64) for b in (0, 1, 2))
    run_plan(plan_native(buffers, calls), storage)
    sums = (a @ w).astype(type_.np).astype(np.float64)
    np.testing.assert_array_equal(storage[4], np.maximum(sums + bias, 0).astype(type_.np))


def test_long_product__split_evenly__a_leaf_for_each_part_and_no_memory_but_panels() -> None:
    kernel = product(256, 2048, 256, f32)
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(kernel.shapes)]
    plan = plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "product")])
    assert [leaf.calls for leaf in plan.leaves] == [("product",)] * 4
    assert plan.arena_bytes == 0


def test_long_reduction__over_fields_of_a_batch__a_leaf_for_each_share_of_samples() -> None:
    batch, size, outs, ins = 8, 64, 48, 4
    shapes = ((batch, size, size, outs), (batch, size + 2, size + 2, ins), (outs, 3, 3, ins))
    place = (affine("y", "a"), affine("x", "b"))
    body = nest(
        {"o": outs, "a": 3, "b": 3, "i": ins, "n": batch, "y": size, "x": size},
        store(2, ("o", "a", "b", "i"), load(0, "n", "y", "x", "o") * load(1, "n", *place, "i"), "add"),
    )
    kernel = HostKernel(shapes, (f32,) * 3, 2, 1, (body,))
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(shapes)]
    plan = plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "gradient")])
    z, x = (values(shape, f32, n) for n, shape in enumerate(shapes[:2]))
    storage = {0: z, 1: x, 2: np.full(shapes[2], np.nan, np.float32)}
    run_plan(plan, storage, threads=2)
    for a, b in np.ndindex(3, 3):
        wanted = np.tensordot(z, x[:, a : a + size, b : b + size], axes=((0, 1, 2), (0, 1, 2)))
        np.testing.assert_array_equal(storage[2][:, a, b], wanted)
    assert len(plan.leaves) > 1


def test_products_of_samples__both_operands_of_each_sample_alone__no_sweep_over_them() -> None:
    shapes = ((8, 64, 64),) * 5
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(shapes)]
    space = {"g": 8, "m": 64, "k": 64, "n": 64}
    body = nest(space, store(2, ("g", "m", "n"), load(0, "g", "m", "k") * load(1, "g", "k", "n"), "add"))
    kernel = HostKernel(shapes[:3], (f32,) * 3, 2, 1, (body,))
    operands = ((0, 1, 2), (0, 2, 3))
    plan = plan_native(buffers, [BoundKernel(kernel, tuple(bind(buffers[b]) for b in o), "product") for o in operands])
    storage = {b: values(shapes[b], f32, b) for b in range(4)}
    run_plan(plan, storage, threads=2)
    np.testing.assert_array_equal(storage[3], storage[0] @ (storage[0] @ storage[1]))
    assert not any(leaf.loop for leaf in plan.program.leaves)


def test_reduction__of_a_constant__counts_its_points() -> None:
    kernel = HostKernel(
        ((64, 64),), (f32,), 0, 1, (nest({"i": 64, "j": 64, "k": 9}, store(0, ("i", "j"), 1.0, "add")),)
    )
    np.testing.assert_array_equal(run_kernel(kernel, [])[0], np.full((64, 64), 9.0, np.float32))
