"""Activations in half precision with weights in single precision, and arguments that name an element type."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from abele import poptorch


class Weighted(nn.Module):
    """A function of a weight, a bias and the input."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Any], *shape: int) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(*shape))
        self.bias = nn.Parameter(torch.randn(shape[-1]))

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.weight, self.bias)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, 4), (3, 8)),
    "chain": (lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 4)), (3, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 4, 3), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 4, 3, groups=2), (2, 4, 6, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 4, 3), (2, 4, 3, 3)),
    "norms": (lambda: nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4), nn.GroupNorm(2, 4)), (3, 4, 5)),
    "lstm": (lambda: nn.LSTM(8, 4), (3, 2, 8)),
    "gru": (lambda: nn.GRU(8, 4), (3, 2, 8)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0), (3, 2, 8)),
    "matmul": (lambda: Weighted(lambda x, w, b: (x @ w).relu() @ w.t(), 8, 4), (3, 8)),
    "weight_first": (lambda: Weighted(lambda x, w, b: torch.matmul(w.t(), x), 8, 4), (8, 3)),
    "bmm": (lambda: Weighted(lambda x, w, b: torch.bmm(x, w), 2, 8, 4), (2, 3, 8)),
    "addmm": (lambda: Weighted(lambda x, w, b: torch.addmm(b, x, w), 8, 4), (3, 8)),
    "baddbmm": (lambda: Weighted(lambda x, w, b: torch.baddbmm(b.expand(2, 3, 4), x, w), 2, 8, 4), (2, 3, 8)),
    "einsum": (lambda: Weighted(lambda x, w, b: torch.einsum("ij,jk->ik", x, w), 8, 4), (3, 8)),
}


SLOW = ("lstm", "transposed", "norms")
"""Models whose products others here have too."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in MODELS])
def test_product__of_half_activations__is_in_their_type(name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(1)
    model, x = make().eval(), torch.randn(shape).half()
    got = poptorch.inferenceModel(model)(x)
    expected = copy.deepcopy(model).half()(x)
    one, other = (v[0] if isinstance(v, tuple) else v for v in (got, expected))
    assert one.dtype == torch.float16
    torch.testing.assert_close(one, other.detach(), rtol=1e-2, atol=1e-2)


def test_product__of_single_activations_with_half_weights__is_in_single() -> None:
    model, x = nn.Linear(8, 4).half(), torch.randn(3, 8)
    got = poptorch.inferenceModel(model)(x)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, copy.deepcopy(model).float()(x).detach())


def test_training__of_half_activations__keeps_weights_and_states_in_single() -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            made = self.layers(x)
            return made, functional.mse_loss(made, y)

    torch.manual_seed(1)
    model, x, y = Trained(), torch.randn(4, 8).half(), torch.randn(4, 4).half()
    twin = copy.deepcopy(model)
    wrapped = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
    optimiser = torch.optim.SGD(twin.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(5):
        made, _ = wrapped(x, y)
        assert made.dtype == torch.float16
        optimiser.zero_grad()
        twin(x.float(), y.float())[1].backward()
        optimiser.step()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)


VALUES = torch.tensor([[1.7, -2.6, 3.9, 0.4], [2.5, 1.5, -0.5, 3.5], [-1.2, 20.7, 2.2, 0.9]])

WITH_TYPES: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "sum": lambda x, d: x.sum(dtype=d),
    "sum_of_rows": lambda x, d: x.sum(1, dtype=d),
    "mean": lambda x, d: x.mean(0, dtype=d),
    "prod": lambda x, d: x.prod(1, dtype=d),
    "prod_of_all": lambda x, d: x[:1].prod(dtype=d),
    "cumsum": lambda x, d: x.cumsum(1, dtype=d),
    "cumprod": lambda x, d: x.cumprod(1, dtype=d),
    "softmax": lambda x, d: x.softmax(1, dtype=d),
    "log_softmax": lambda x, d: functional.log_softmax(x, 1, dtype=d),
    "softmin": lambda x, d: functional.softmin(x, 1, dtype=d),
    "norm": lambda x, d: torch.norm(x, dtype=d),
    "norm_of_one": lambda x, d: torch.linalg.vector_norm(x, 1, 1, dtype=d),
    "matrix_norm": lambda x, d: torch.linalg.matrix_norm(x, dtype=d),
    "nansum": lambda x, d: torch.nansum(x, 1, dtype=d),
    "nanmean": lambda x, d: torch.nanmean(x, 1, dtype=d),
    "full_like": lambda x, d: torch.full_like(x, 2.7, dtype=d),
    "new_full": lambda x, d: x.new_full((2,), 3.9, dtype=d),
    "to": lambda x, d: x.to(d),
    "type": lambda x, d: x.type(d),
    "arange": lambda x, d: torch.arange(5, dtype=d) + 0,
    "linspace": lambda x, d: torch.linspace(0, 5, 7, dtype=d) + 0,
    "full": lambda x, d: torch.full((2,), 2.9, dtype=d) + 0,
    "eye": lambda x, d: torch.eye(3, dtype=d) + 0,
    "of_bools": lambda x, d: (x > 0).sum(1, dtype=d),
    "cumsum_of_integers": lambda x, d: x.int().cumsum(0, dtype=d),
    "softmax_of_integers": lambda x, d: x.int().softmax(1, dtype=d),
    "deviation": lambda x, d: x.to(d).mul(20).std(1),
    "variance_and_mean": lambda x, d: torch.var_mean(x.to(d), 1)[1],
}


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.int32,
        torch.bool,
        *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (torch.float32, torch.int16)),
    ],
    ids=str,
)
def test_dtype__as_an_argument__casts_as_pytorch_does(dtype: torch.dtype) -> None:
    expected: dict[str, Tensor] = {}
    for name, function in WITH_TYPES.items():
        try:
            expected[name] = function(VALUES, dtype)
        except RuntimeError:
            continue  # PyTorch has no such type there.
    got = poptorch.inferenceModel(lambda x: {name: WITH_TYPES[name](x, dtype) for name in expected})(VALUES)
    rounded = 5e-3 if dtype == torch.float16 else 1e-5
    for name, given in expected.items():
        wanted = given.int() if given.dtype == torch.int64 else given  # The device has 32 bits.
        torch.testing.assert_close(got[name], wanted, rtol=rounded, atol=rounded, msg=name)
