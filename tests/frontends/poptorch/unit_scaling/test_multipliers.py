"""Sharpness of the functions of a unit-scaled model: accepted and refused numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from abele.frontends.poptorch import unit_scaling as us
from abele.frontends.poptorch.errors import ArgumentError, OptionValueError
from abele.frontends.poptorch.unit_scaling import activations
from abele.garden import low_precision, low_precision_training
from abele.garden.low_precision_training import MaskedBert

pytestmark = pytest.mark.torch


class Functions(nn.Module):
    """Calls one function of what a layer makes."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(16, 16), function

    def forward(self, x: Any) -> Any:
        return self.function(self.layer(x))


TARGET = torch.arange(8) % 16
CASES: list[tuple[Any, dict[str, Any], Any]] = [
    (lambda x: F.scaled_dot_product_attention(x, x, x), {"attention": 3.0}, ("scaled_dot_product_attention", 3.0)),
    (lambda x: F.scaled_dot_product_attention(x, x, x), {"attention": "unit"}, ("scaled_dot_product_attention", 4.0)),
    (
        lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.5),
        {"attention": "unit"},
        ("scaled_dot_product_attention", 8.0),
    ),
    (lambda x: F.gelu(x), {"activation": 2.0}, ("gelu", 2.0)),
    (lambda x: torch.tanh(x), {"activation": 2.0}, ("tanh", 2.0)),
    (lambda x: x.softmax(-1), {"softmax": 0.5}, ("softmax", 0.5)),
    (lambda x: F.relu(x), {"activation": 2.0}, ("relu", None)),
    (lambda x: F.cross_entropy(x, TARGET), {"loss": 4.0}, ("cross_entropy", 4.0)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_unit_scale__multipliers__are_those_of_the_functions_called(case: int) -> None:
    function, given_, (name, mult) = CASES[case]
    model = us.unit_scale(Functions(function), multipliers=us.Multipliers(**given_))
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    layer = model.model.layer(x)
    arguments = {
        "scaled_dot_product_attention": (layer, layer, layer),
        "softmax": (layer, -1),
        "cross_entropy": (layer, TARGET),
    }.get(name, (layer,))
    expected = getattr(us, name)(*arguments, **({} if mult is None else {"mult": mult}))
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)


def test_attention__unit_multiplier__has_the_scores_of_a_plain_model() -> None:
    q, k, v = (torch.randn(2, 10, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
    made = us.scaled_dot_product_attention(q, k, v, mult=4.0, correlation=1.0)
    torch.testing.assert_close(made, F.scaled_dot_product_attention(q, k, v))


@given(st.integers(1, 500), st.booleans(), st.floats(0, 1), st.floats(0.1, 50))
def test_attention_factor__any_correlation__lies_between_one_and_the_published(
    positions: int, causal: bool, correlation: float, mult: float
) -> None:
    published = activations.attention_factor(16, positions, causal=causal, mult=mult)
    found = activations.attention_factor(16, positions, causal=causal, mult=mult, correlation=correlation)
    assert min(published, 1) - 1e-9 <= found <= max(published, 1) + 1e-9
    if correlation == 1:
        assert found == pytest.approx(1)


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.9])
def test_attention__values_of_a_correlation__has_nearly_variance_1(correlation: float) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, own = (torch.randn(16, 4, 64, 32, generator=generator) for _ in range(3))
    common = torch.randn(16, 4, 1, 32, generator=generator)
    v = common * correlation**0.5 + own * (1 - correlation) ** 0.5
    made = us.scaled_dot_product_attention(q, k, v, correlation=correlation)
    assert made.square().mean().sqrt().item() == pytest.approx(1, abs=0.15)


def test_masked_bert__unit_scaled_as_trained__begins_with_scores_of_variance_1() -> None:
    torch.manual_seed(0)
    model = us.unit_scale(
        MaskedBert(97, 64, 4, 4, 32),
        residuals=dict.fromkeys(low_precision_training.BRANCHES, low_precision.BERT_RATES.share),
        multipliers=low_precision_training.MULTIPLIERS,
    )
    seen: list[Any] = []
    products: list[Any] = []
    model.model.scores.register_forward_hook(lambda _m, _a, made: seen.append(made.std().item()))
    for layer in model.model.layers:
        layer.attended.attention.project.register_forward_hook(lambda _m, _a, made: products.append(made))
    text = torch.randint(0, 97, (16, 32))
    model(text, torch.arange(5).expand(16, 5), text[:, :5])
    assert seen == pytest.approx([1.0], abs=0.25)
    for made in products:
        query, key, _ = made.reshape(16, 32, 3, 4, 16).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(16)
        assert scores.std().item() == pytest.approx(1, abs=0.35)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"attention": "unitt"}, "did you mean 'unit'"),
        ({"attention": 0}, "above 0"),
        ({"loss": float("nan")}, "above 0"),
        ({"activation": -1.0}, "above 0"),
        ({"softmax": float("inf")}, "above 0"),
        ({"correlation": 1.5}, "from 0 to 1"),
        ({"correlation": float("nan")}, "from 0 to 1"),
    ],
)
def test_multipliers__no_number_above_0__are_refused(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionValueError, match=message):
        us.Multipliers(**given_)


def test_unit_scale__multipliers_of_another_type__are_refused() -> None:
    with pytest.raises(ArgumentError, match="Multipliers, not"):
        us.unit_scale(nn.Sequential(nn.Linear(4, 4)), multipliers={"attention": 2.0})  # type: ignore[arg-type]
    with pytest.raises(OptionValueError, match="from 0 to 1"):
        activations.attention_factor(16, 4, causal=False, correlation=-0.1)
