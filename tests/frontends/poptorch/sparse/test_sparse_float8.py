"""Sparse layers of 8-bit floats: beside the formulas in float64, on the device, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn

from abele import poptorch
from abele.errors import TypeMismatchError, UnsupportedOpError
from abele.frontends.poptorch import fp8, sparse
from abele.frontends.poptorch.errors import ArgumentError

pytestmark = pytest.mark.torch


def dequantised(value: Any, format: str, scale: int) -> Any:
    made = fp8.pow2scale_cast_to_fp8(value.detach(), scale, format)
    return fp8.pow2scale_cast_from_fp8(made, -scale, torch.float32).double()


def dense(layer: Any, values: Any) -> Any:
    return torch.from_numpy(layer.pattern.to_dense(values.detach().double().numpy()))


@pytest.mark.parametrize("recipe", [fp8.Fp8Recipe(keep_weights=False), fp8.Fp8Recipe.constant(2)], ids=["amax", "one"])
def test_layer__forward_and_backward__are_products_of_dequantised_operands(recipe: fp8.Fp8Recipe) -> None:
    torch.manual_seed(0)
    layer = sparse.fp8_sparse_linear(sparse.SparseLinear(48, 32, density=0.5, block=16), recipe)
    assert isinstance(layer, sparse.Fp8SparseLinear)
    x = torch.randn(3, 5, 48, requires_grad=True)
    grad = torch.randn(3, 5, 32) * 0.1
    y = layer(x)
    y.backward(grad)
    roles = ((x, "activation"), (layer.values, "weight"), (grad, "gradient"))
    scales = [recipe.scale(t, role).item() for t, role in roles]
    x8, g8 = dequantised(x, "F143", scales[0]), dequantised(grad, "F152", scales[2])
    weight = dense(layer, dequantised(layer.values, "F143", scales[1]))
    bias = layer.bias.detach().double()
    close: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4}  # one rounding to float16
    torch.testing.assert_close(y.detach().double(), x8 @ weight.T + bias, **close)
    torch.testing.assert_close(x.grad.double(), g8 @ weight, **close)
    whole = g8.flatten(0, 1).T @ x8.flatten(0, 1)
    wanted = torch.from_numpy(layer.pattern.values_of(whole.numpy()))
    torch.testing.assert_close(layer.values.grad.double(), wanted, **close)
    torch.testing.assert_close(layer.bias.grad, grad.sum((0, 1)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = sparse.BlockSparseLinear(32, 48, density=0.5)
        self.last = sparse.SparseLinear(48, 16, density=0.5, block=8)

    def forward(self, x: Any) -> Any:
        y = self.last(torch.nn.functional.gelu(self.first(x)))
        return y, poptorch.identity_loss(y.float().square(), reduction="mean")


def rows(model: Any) -> Any:
    made = torch.randn(12, 32, generator=torch.Generator().manual_seed(5))
    return made.to(next(model.parameters()).dtype)


def trained(model: Any, system: str, steps: int = 3) -> list[float]:
    options = poptorch.Options()
    options.Abele.system(system)
    training = poptorch.trainingModel(model, options, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.5))
    return [training(rows(model))[1].item() for _ in range(steps)]


def eager(model: Any, steps: int = 3) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        _, loss = model(rows(model))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [fp8.Fp8Recipe(), fp8.Fp8Recipe.constant(1)], ids=["amax", "constant"])
def test_device__training_steps__follow_pytorch(recipe: fp8.Fp8Recipe) -> None:
    torch.manual_seed(1)
    model = sparse.fp8_sparse_linear(Net(), recipe)
    mirror = copy.deepcopy(model)
    found, expected = trained(model, "c600"), eager(mirror)
    assert found == pytest.approx(expected, rel=2e-3)
    assert found[-1] < 0.9 * found[0]


def test_device__inference__follows_pytorch_and_chips_without_8_bits_refuse_it() -> None:
    torch.manual_seed(2)
    model = sparse.fp8_sparse_linear(nn.Sequential(sparse.SparseLinear(32, 16, density=0.5, block=8)).half())
    x = rows(model)
    options = poptorch.Options()
    options.Abele.system("c600")
    torch.testing.assert_close(poptorch.inferenceModel(model, options)(x), model(x), rtol=2e-3, atol=2e-3)
    options = poptorch.Options()
    options.Abele.system("bow")
    with pytest.raises(TypeMismatchError, match="Bow does not multiply 8-bit floats"):
        poptorch.inferenceModel(model, options)(x)


REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no module": (ArgumentError, lambda: 3, {}, "takes a torch.nn.Module"),
    "no recipe": (ArgumentError, Net, {"recipe": "amax"}, "takes an Fp8Recipe"),
    "one name": (ArgumentError, Net, {"skip": "first"}, "the names to skip are a list"),
    "another name": (ArgumentError, Net, {"skip": ["frist"]}, "no sparse layer fits 'frist'"),
    "all skipped": (UnsupportedOpError, Net, {"skip": ["*"]}, "has no sparse layer that could"),
    "dense": (UnsupportedOpError, lambda: nn.Linear(4, 4), {}, "fp8_linear converts dense layers"),
    "elements": (UnsupportedOpError, lambda: sparse.SparseLinear(8, 8, density=0.5), {}, "has blocks of 1 x 1"),
    "dynamic": (
        UnsupportedOpError,
        lambda: sparse.SparseLinear(32, 32, density=0.5, block=16, dynamic=True, rows=8),
        {},
        "the pattern of '' is dynamic",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_conversion__of_what_cannot_be__is_refused_and_changes_nothing(case: str) -> None:
    error, make, given, words = REFUSED[case]
    model = make()
    kinds = [type(m) for m in model.modules()] if isinstance(model, nn.Module) else []
    with pytest.raises(error, match=words):
        sparse.fp8_sparse_linear(model, **given)
    assert kinds == ([type(m) for m in model.modules()] if kinds else [])
