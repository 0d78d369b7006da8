"""Matrix products by a library of the process agree with 64-bit arithmetic, and leave its settings as they were."""

import sys
from itertools import product

import numpy as np
import pytest
import torch
from kernels_kit import run_kernel, run_plan
from products_kit import expected, linear, listing, values

from abele.errors import InvalidOptionError
from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import load, nest, select, store
from abele.kernels.routines import costs
from abele.kernels.routines.multiply import loaded_library
from abele.numerics import f32

ORDERS = list(product(("ik", "ki"), ("kj", "jk"), ("ij", "ji")))
pytestmark = pytest.mark.skipif(loaded_library() is None, reason="the PyTorch here carries no MKL")


@pytest.fixture(autouse=True)
def library(monkeypatch):
    monkeypatch.setenv(costs.VARIABLE, "mkl")


@pytest.mark.parametrize("orders", ORDERS)
def test_library__operands_in_any_order__agrees_with_64_bits_and_the_packed_routine(orders, monkeypatch):
    kernel = linear(70, 90, 110, left=orders[0], right=orders[1], out=orders[2])
    arrays = values(kernel)
    assert "by mkl" in listing(kernel)
    (got,) = run_kernel(kernel, [*arrays, np.full(kernel.shapes[2], np.nan, np.float32)], 2)
    np.testing.assert_allclose(got, expected(kernel, arrays, *orders), rtol=0, atol=1e-4)
    monkeypatch.setenv(costs.VARIABLE, "packed")
    (packed,) = run_kernel(kernel, arrays)
    np.testing.assert_allclose(got, packed, rtol=0, atol=1e-4)


def test_library__batched_with_an_epilogue__agrees_with_64_bits():
    extents = {"g": 3, "i": 40, "j": 50, "k": 30}
    dot = nest(extents, store(2, ("g", "i", "j"), load(0, "g", "i", "k") * load(1, "g", "k", "j"), "add"))
    shapes = ((3, 40, 30), (3, 30, 50), (3, 40, 50))
    a, b, z = (Buffer(n, s, f32, name=f"b{n}") for n, s in enumerate(shapes))
    y = Buffer(3, shapes[2], f32, pinned=False, name="y")
    value = load(0, "g", "i", "j")
    relu = nest({"g": 3, "i": 40, "j": 50}, store(1, ("g", "i", "j"), select(value > 0.0, value, 0.0)))
    calls = [
        BoundKernel(HostKernel(shapes, (f32,) * 3, 2, 1, (dot,)), (bind(a), bind(b), bind(y)), "dot"),
        BoundKernel(HostKernel((shapes[2],) * 2, (f32,) * 2, 1, 1, (relu,)), (bind(y), bind(z)), "relu"),
    ]
    plan = plan_native([a, b, z, y], calls)
    assert "3×[40, 30]x[30, 50] by mkl" in plan.listing
    rng = np.random.default_rng(1)
    storage = {x.id: rng.standard_normal(x.shape).astype(np.float32) for x in (a, b, z)}
    run_plan(plan, storage, 2)
    np.testing.assert_allclose(storage[2], np.maximum(storage[0] @ storage[1], 0), rtol=0, atol=1e-4)


def test_library__of_blocked_operands__leaves_them_to_the_packed_routine():
    extents = {"b": 50, "n": 48, "c1": 5, "c0": 12}
    dot = nest(extents, store(2, ("b", "n"), load(0, "c1", "b", "c0") * load(1, "n", "c1", "c0"), "add"))
    kernel = HostKernel(((5, 50, 12), (48, 5, 12), (50, 48)), (f32,) * 3, 2, 1, (dot,))
    assert "by packed" in listing(kernel)


def test_library__on_any_number_of_threads__has_the_same_bits():
    kernel = linear(150, 200, 300)
    arrays = values(kernel)
    first, *others = (run_kernel(kernel, arrays, threads)[0] for threads in (1, 2, 5))
    assert all(np.array_equal(first, other) for other in others)


def test_library__after_a_product__has_the_threads_that_the_user_set():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        kernel = linear(64, 64, 64)
        run_kernel(kernel, values(kernel), 2)
        assert torch.get_num_threads() == 2
        assert torch.__config__.parallel_info().count("mkl_get_max_threads() : 2") == 1
    finally:
        torch.set_num_threads(before)


def test_library__of_a_torch_that_is_not_imported__is_not_looked_for(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert loaded_library() is None
    with pytest.raises(InvalidOptionError, match="not in this process") as problem:
        costs.product_costs(16, 32)
    assert "import torch first" in str(problem.value)
