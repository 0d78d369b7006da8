"""Plans that are run many times keep their memory, and run all leaves each time."""

import gc

import numpy as np
from products_kit import linear

from abele.kernels import BoundKernel, Buffer, bind, plan_native
from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.kernels.plan.repeated import RepeatedPlan
from abele.numerics import f32


def buffers_of(kernel):
    return [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]


def test_repeated__of_a_call_in_place__doubles_each_time() -> None:
    a, b = Buffer(0, (5,), f32, True, "a"), Buffer(1, (5,), f32, True, "b")
    double = HostKernel(((5,), (5,)), (f32, f32), 1, 1, (nest({"i": 5}, store(1, "i", load(0, "i") + load(0, "i"))),))
    plan = plan_native([a, b], [BoundKernel(double, (bind(a), bind(a)), "double")])
    run = RepeatedPlan([a, b], plan)
    run(3)
    storage = run._held[1]
    assert np.array_equal(storage[0], np.full(5, 4.0, np.float32))
    run(0)
    assert storage[0][0] == 4.0


def test_repeated__until_it_is_dropped__holds_code_and_memory() -> None:
    kernel = linear(70, 50, 30)
    buffers = buffers_of(kernel)
    run = RepeatedPlan(buffers, plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "product")]))
    gc.collect()
    run(2)
    # 30 products of 0.5 · 0.5.
    assert np.array_equal(run._held[1][2], np.full((70, 50), 7.5, np.float32))
