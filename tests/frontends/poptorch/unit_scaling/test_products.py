"""Products and their factors: the published formulas, and no sum in float16 that is larger than what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from hypothesis import given
from hypothesis import strategies as st

from abele import poptorch
from abele.frontends.poptorch import unit_scaling as us
from abele.frontends.poptorch.unit_scaling.products import LEAST, before_sums, linear_product, scaled_sums
from abele.frontends.poptorch.unit_scaling.rules import Factors
from abele.machine import systems
from abele.poptorch import fp8
from support.examples import examples

pytestmark = pytest.mark.torch

FACTOR = st.floats(2.0**-20, 4.0)


@examples(10)
@given(st.builds(Factors, FACTOR, FACTOR, FACTOR), st.integers(0, 99))
def test_linear_product__any_factors__is_the_product_and_its_gradients_times_them(factors: Factors, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, w, b, dy = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in [(6, 5), (3, 5), (3,), (6, 3)])
    made = linear_product(*(t.requires_grad_() for t in (x, w, b)), factors)
    made.backward(dy)
    torch.testing.assert_close(made, x @ w.T * factors.output + b)
    torch.testing.assert_close(x.grad, dy @ w.detach() * factors.input_grad)
    torch.testing.assert_close(w.grad, dy.T @ x.detach() * factors.weight_grad)
    torch.testing.assert_close(b.grad, dy.sum(0) * factors.weight_grad)


@given(st.floats(1e-12, 1e12))
def test_before_sums__any_factor__is_between_the_least_and_one_and_leaves_what_enlarges(factor: float) -> None:
    before = before_sums(factor)
    assert LEAST <= before <= 1
    assert factor / before >= 1 or before == LEAST


def filled(shape: tuple[int, ...], value: float) -> Any:
    return torch.full(shape, value, dtype=torch.float16, requires_grad=True)


def linear(x: Any, w: Any) -> Any:
    return us.linear(x, w, None)


def eighths(x: Any, w: Any) -> Any:
    return us.linear(x, w, None, product=fp8.Fp8Product(fp8.Fp8Recipe.constant(0)))


@pytest.mark.parametrize("product", [linear, eighths])
def test_linear__sums_beyond_float16__are_finite_where_results_are(product: Callable[..., Any]) -> None:
    x, w = filled((4, 64), 40.0), filled((64, 64), 40.0)
    made = product(x, w)  # 64 · 1600 = 102400, over 8
    assert made.unique().tolist() == [12800.0]
    x, w = filled((4, 64), 1.0), filled((192, 64), 32.0)
    product(x, w).backward(torch.full((4, 192), 48.0).half())  # 192 · 1536 = 294912, over 8
    assert x.grad.unique().tolist() == [36864.0]
    x, w = filled((16384, 64), 4.0), filled((2, 64), 1.0)
    product(x, w).backward(torch.full((16384, 2), 2.0).half())  # 16384 · 8 = 131072, over 128
    assert w.grad.unique().tolist() == [1024.0]


def test_parameters__sums_beyond_float16__are_finite_where_gradients_are() -> None:
    rows, grad = 16384, torch.full((16384, 64), 8.0).half()  # sums of 131072, over 128
    bias, x = filled((64,), 0.0), filled((rows, 64), 0.0)
    us.linear(x, filled((64, 64), 0.0), bias).backward(grad)
    assert bias.grad.unique().tolist() == [1024.0]
    bias = filled((64,), 0.0)
    eight = fp8.Fp8Product(fp8.Fp8Recipe.constant(0))
    us.linear(filled((rows, 64), 0.0), filled((64, 64), 0.0), bias, product=eight).backward(grad)
    assert bias.grad.unique().tolist() == [1024.0]
    table = filled((4, 64), 1.0)
    us.embedding(torch.zeros(256, dtype=torch.long), table).backward(torch.full((256, 64), 1024.0).half())
    assert table.grad[0].unique().tolist() == [32768.0]  # 262144, over 8


def test_conv2d_and_matmul__sums_beyond_float16__are_finite_where_results_are() -> None:
    x, w = filled((2, 64, 8, 8), 16.0), filled((64, 64, 1, 1), 64.0)
    made = us.conv2d(x, w)  # 65536, over 8
    assert made.unique().tolist() == [8192.0]
    made.backward(torch.full(made.shape, 16.0).half())
    assert x.grad.unique().tolist() == [8192.0]
    a, b = filled((64, 64), 32.0), filled((64, 64), 64.0)
    us.matmul(a, b).backward(torch.full((64, 64), 16.0).half())
    assert a.grad.unique().tolist() == [8192.0]


def test_scaled_sums__value__keeps_its_gradient() -> None:
    x, gain = torch.randn(32, 8, requires_grad=True), torch.ones(8, requires_grad=True)
    made = scaled_sums(lambda v, rest: v * us.scale_backward(gain, rest), x, 2.0**-10)
    made.backward(torch.ones(32, 8))
    torch.testing.assert_close(x.grad, torch.ones(32, 8))
    torch.testing.assert_close(gain.grad, x.detach().sum(0) * 2.0**-10)


def test_fp8_product__factors__are_those_of_the_formula() -> None:
    x, w, dy = (torch.randint(-8, 8, s).float().requires_grad_() for s in [(16, 48), (80, 48), (16, 80)])
    made = us.linear(x, w, constraint="separate", product=fp8.Fp8Product(fp8.Fp8Recipe.constant(0)))
    made.backward(dy)
    close = {"rtol": 3e-3, "atol": 1e-2}
    torch.testing.assert_close(made, x @ w.T * 48**-0.5, **close)
    torch.testing.assert_close(x.grad, (dy @ w * 80**-0.5).detach(), **close)
    torch.testing.assert_close(w.grad, (dy.T @ x / 4).detach(), **close)


class Large(torch.nn.Module):
    """Trains what a layer of unit scaling reads, whose gradient is a large sum."""

    def __init__(self, product: Any) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.ones(4, 64, dtype=torch.float16))
        self.register_buffer("weight", torch.full((192, 64), 32.0, dtype=torch.float16))
        self.product = product

    def forward(self, x: Any) -> Any:
        read = us.scale_backward(self.first * x, 2.0**-12)
        made = us.scale_backward(us.linear(read, self.weight, product=self.product), 48.0 * 192)
        return poptorch.identity_loss(made.float(), "mean")


@pytest.mark.parametrize("product", [linear_product, fp8.Fp8Product(fp8.Fp8Recipe.constant(0))])
def test_linear__on_the_device__trains_through_sums_beyond_float16(product: Any) -> None:
    model = Large(product)
    options = poptorch.Options()
    options.Abele.system(systems.get("c600").evolve(ipu={"num_tiles": 64}))
    trained = poptorch.trainingModel(model, options, optimizer=poptorch.optim.SGD(model.parameters(), lr=2.0**-3))
    trained(torch.ones(1, 64).half())
    trained.copyWeightsToHost()
    # 192 products of 9216/768 and 32 are 73728, over 8, times 2^-12.
    expected = 1 - 2.0**-3 * (192 * 12 * 32 / 8) * 2.0**-12
    assert model.first.detach().float().unique().tolist() == pytest.approx([expected], rel=2e-3)
