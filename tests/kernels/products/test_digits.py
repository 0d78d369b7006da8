"""Products whose columns lie apart in three digits, with something done to the sums."""

from __future__ import annotations

import numpy as np
import pytest
from kernels_kit import run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, OperandBinding, bind, plan_native
from abele.kernels.nest.ir import load, nest, store
from abele.numerics import f32

ROWS, DEPTH, COLUMNS = 784, 128, 384


@pytest.mark.parametrize("way", ["packed", "loops"])
def test_product__columns_in_three_digits_and_a_bias__equals_numpy(way, monkeypatch):
    monkeypatch.setenv("ABELE_PRODUCTS", way)
    shapes = {"x": (ROWS, DEPTH), "w": (4, 6, DEPTH, 16), "bias": (COLUMNS,), "y": (4, ROWS, 96)}
    x, w, bias, y = (Buffer(n, shape, f32, True, name) for n, (name, shape) in enumerate(shapes.items()))
    sums = Buffer(4, (ROWS, COLUMNS), f32, False, "sums")
    weights = OperandBinding(1, (((4, 6 * DEPTH * 16), (6, DEPTH * 16), (16, 1)), ((DEPTH, 16),)))
    heads = OperandBinding(3, (((ROWS, 96),), ((4, ROWS * 96), (96, 1))))
    loops = {"m": ROWS, "n": COLUMNS, "k": DEPTH}
    value = load(0, "m", "k") * load(1, "n", "k")
    summed = nest(loops, store(2, ("m", "n"), value, "add"))
    product = HostKernel(((ROWS, DEPTH), (COLUMNS, DEPTH), (ROWS, COLUMNS)), (f32,) * 3, 2, 1, (summed,))
    plus = nest({"m": ROWS, "n": COLUMNS}, store(2, ("m", "n"), load(0, "m", "n") + load(1, "n")))
    add = HostKernel(((ROWS, COLUMNS), (COLUMNS,), (ROWS, COLUMNS)), (f32,) * 3, 2, 1, (plus,))
    calls = [
        BoundKernel(product, (bind(x), weights, bind(sums)), "product"),
        BoundKernel(add, (bind(sums), bind(bias), heads), "bias"),
    ]
    rng = np.random.default_rng(0)
    storage = {n: rng.normal(size=shape).astype(np.float32) for n, shape in enumerate(shapes.values())}
    run_plan(plan_native([x, w, bias, y, sums], calls), storage)
    matrix = storage[1].transpose(0, 1, 3, 2).reshape(COLUMNS, DEPTH)
    wanted = (storage[0] @ matrix.T + storage[2]).reshape(ROWS, 4, 96).transpose(1, 0, 2)
    np.testing.assert_allclose(storage[3], wanted, rtol=1e-4, atol=1e-4)
