"""Linear layers of 8-bit floats: beside the formulas in float64, on the device, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn

from abele import poptorch
from abele.errors import TypeMismatchError, UnsupportedOpError
from abele.frontends.poptorch import fp8
from abele.frontends.poptorch import unit_scaling as us
from abele.frontends.poptorch.errors import ArgumentError, Error, OptionValueError

pytestmark = pytest.mark.torch


def dequantised(value: Any, format: str, scale: int) -> Any:
    made = fp8.pow2scale_cast_to_fp8(value.detach(), scale, format)
    return fp8.pow2scale_cast_from_fp8(made, -scale, torch.float32).double()


@pytest.mark.parametrize("recipe", [fp8.Fp8Recipe(), fp8.Fp8Recipe.constant(2)], ids=["amax", "constant"])
def test_fp8_linear__forward_and_backward__are_products_of_dequantised_operands(recipe: fp8.Fp8Recipe) -> None:
    torch.manual_seed(0)
    layer = fp8.fp8_linear(nn.Sequential(nn.Linear(24, 10)), recipe)
    x = torch.randn(6, 5, 24, requires_grad=True)
    grad = torch.randn(6, 5, 10) * 1e-3
    if recipe.scaling == "constant":
        grad = grad * 100
    y = layer(x)
    y.backward(grad)
    weight = layer[0].weight
    scales = [recipe.scale(t, role).item() for t, role in ((x, "activation"), (weight, "weight"), (grad, "gradient"))]
    if recipe.scaling == "amax":
        assert scales[2] == fp8.amax_scale(grad, "F152").item() - 3
    x8, w8 = dequantised(x, "F143", scales[0]), dequantised(weight, "F143", scales[1])
    g8 = dequantised(grad, "F152", scales[2])
    close: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-6}  # one rounding to float16
    torch.testing.assert_close(y.double(), x8 @ w8.T + layer[0].bias.double(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(x.grad.double(), g8 @ w8, **close)
    torch.testing.assert_close(weight.grad.double(), g8.flatten(0, 1).T @ x8.flatten(0, 1), **close)
    torch.testing.assert_close(layer[0].bias.grad, grad.sum((0, 1)))


def test_fp8_linear__saved_for_backward__is_8_bits_wide() -> None:
    layer = fp8.fp8_linear(nn.Sequential(nn.Linear(64, 64, bias=False)).half())
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        layer(torch.randn(32, 64).half().requires_grad_())
    kinds = [t.dtype for t in saved if t.numel() > 1]
    assert kinds == [torch.float8_e4m3fnuz] * 2


def test_fp8_linear__zeros_and_tiny_gradients__stay_finite() -> None:
    """Exponents of two operands add up to more than a product takes."""
    layer = fp8.fp8_linear(nn.Sequential(nn.Linear(8, 4, bias=False)))
    layer[0].weight.data *= 1e-6
    x = torch.zeros(3, 8, requires_grad=True)
    y = layer(x)
    y.backward(torch.full((3, 4), 2.0**-20))
    assert torch.equal(y, torch.zeros(3, 4))
    assert torch.equal(layer[0].weight.grad, torch.zeros(4, 8))
    x = torch.full((3, 8), 2.0**-9, requires_grad=True)
    layer(x).backward(torch.full((3, 4), 2.0**-6))
    torch.testing.assert_close(layer[0].weight.grad, torch.full((4, 8), 3 * 2.0**-15))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        y = self.last(torch.nn.functional.gelu(self.first(x)))
        return y, poptorch.identity_loss(y.float().square(), reduction="mean")


def trained(model: Any, system: str, steps: int = 3) -> list[float]:
    options = poptorch.Options()
    options.Abele.system(system)
    training = poptorch.trainingModel(model, options, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.5))
    x = torch.randn(12, 16, generator=torch.Generator().manual_seed(5)).to(next(model.parameters()).dtype)
    return [training(x)[1].item() for _ in range(steps)]


def eager(model: Any, steps: int = 3) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x = torch.randn(12, 16, generator=torch.Generator().manual_seed(5)).to(next(model.parameters()).dtype)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        _, loss = model(x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [fp8.Fp8Recipe(), fp8.Fp8Recipe.constant(1)], ids=["amax", "constant"])
def test_device__training_steps__follow_pytorch(recipe: fp8.Fp8Recipe) -> None:
    torch.manual_seed(1)
    model = fp8.fp8_linear(Net(), recipe)
    mirror = copy.deepcopy(model)
    found, expected = trained(model, "c600"), eager(mirror)
    assert found == pytest.approx(expected, rel=2e-3)
    assert found[-1] < 0.9 * found[0]


@pytest.mark.slow
def test_device__unit_scaled_model__follows_pytorch() -> None:
    torch.manual_seed(2)
    scaled = fp8.fp8_linear(us.unit_scale(Net(), readouts=["last"]), fp8.Fp8Recipe.constant(0), skip=["model.last"])
    assert scaled.model.first.product.recipe.scaling == "constant"
    mirror = copy.deepcopy(scaled)
    assert trained(scaled, "c600") == pytest.approx(eager(mirror), rel=3e-3)


@pytest.mark.slow
def test_device__chip_without_8_bit_products__refuses_them_unless_conversion_is_allowed() -> None:
    torch.manual_seed(1)
    with pytest.raises(TypeMismatchError, match="does not multiply 8-bit floats") as raised:
        trained(fp8.fp8_linear(Net()), "bow-2000")
    assert "allow_conversion=True, of fp8.Fp8Recipe" in str(raised.value)
    assert "convertQuarterToHalf" not in str(raised.value)
    model = fp8.fp8_linear(Net(), fp8.Fp8Recipe(allow_conversion=True))
    mirror = copy.deepcopy(model)
    assert trained(model, "bow-2000") == pytest.approx(eager(mirror), rel=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scaling": "constant"}, "need activation_scale"),
        ({"scaling": "constant", "activation_scale": 0, "weight_scale": 0}, "need gradient_scale"),
        ({"scaling": "constant", "activation_scale": 32, "weight_scale": 0, "gradient_scale": 0}, "from -31 to 31"),
        ({"weight_scale": 3}, "weight_scale has no meaning"),
        ({"scaling": "amaxx"}, "did you mean 'amax'"),
        ({"margin": -1}, "margin"),
        ({"margin": True}, "margin"),
        ({"gradient_format": "E5M2"}, "F143 or F152"),
    ],
)
def test_recipe__wrong_numbers__are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionValueError, match=message):
        fp8.Fp8Recipe(**arguments)


def test_fp8_linear__wrong_models_and_names__are_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="no linear layer"):
        fp8.fp8_linear(nn.Sequential(nn.Conv2d(3, 3, 3)))
    with pytest.raises(UnsupportedOpError, match="no linear layer"):
        fp8.fp8_linear(Net(), skip=["*"])
    with pytest.raises(Error, match="did you mean 'first'"):
        fp8.fp8_linear(Net(), skip=["frst"])
    with pytest.raises(UnsupportedOpError, match="NonDynamicallyQuantizableLinear"):
        fp8.fp8_linear(nn.ModuleList([nn.MultiheadAttention(8, 2)]))
    with pytest.raises(ArgumentError, match=r"torch\.nn\.Module"):
        fp8.fp8_linear("model")  # type: ignore[type-var]
    with pytest.raises(ArgumentError, match="are a list"):
        fp8.fp8_linear(Net(), skip="last")
    with pytest.raises(ArgumentError, match="an Fp8Recipe"):
        fp8.fp8_linear(Net(), "amax")  # type: ignore[arg-type]


def test_fp8_linear__tied_and_skipped_layers__keep_what_they_are() -> None:
    model = Net()
    model.extra = nn.Linear(16, 32)
    model.extra.weight = model.first.weight
    fp8.fp8_linear(model, skip=["last"])
    assert type(model.last) is nn.Linear
    assert model.extra.weight is model.first.weight
    assert "scaling='amax'" in repr(model.first)


def test_product__chip_without_8_bit_products__is_refused_with_the_argument_that_allows_it() -> None:
    class Multiplied(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x8 = fp8.pow2scale_cast_to_fp8(x, 0)
            return fp8.matmul_pow2scaled(x8, x8, transposed=(False, True))

    options = poptorch.Options()
    options.Abele.system("bow-2000")
    with pytest.raises(TypeMismatchError, match="the model has 1 product of them") as raised:
        poptorch.inferenceModel(Multiplied(), options)(torch.ones(4, 8))
    assert "fp8.matmul_pow2scaled" in str(raised.value)
    assert "fp8_matmul" in str(raised.value.at)
