"""Automatic loss scaling: PopART's session options, and models that are trained with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from abele import poptorch
from abele.errors import InvalidOptionError
from abele.frontends.poptorch.options.options import GradientTensorTrackingMethod as Method

NAME = "automaticLossScalingSettings."


def options(**given: Any) -> poptorch.Options:
    opts = poptorch.Options()
    opts.Abele.threads(1)
    for name, value in given.items():
        opts._Popart.set(NAME + name, value)
    return opts


def settings(**given: Any) -> dict[str, Any]:
    read = options(**given).settings("model")
    return {name: getattr(read, name) for name in read.__dict__ if "loss_scale" in name}


USUAL = {
    "automatic_loss_scale": False,
    "loss_scale_tracking": "all",
    "loss_scale_tensors": (),
    "loss_scale_edge": 0.125,
    "loss_scale_threshold": 1e-7,
    "loss_scale_period": 1,
}
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "numbers": (
        {"enabled": True, "binEdgeLocation": 0.5, "thresholdUpperCountProportion": 0.25, "updatePeriod": 4},
        {
            "automatic_loss_scale": True,
            "loss_scale_edge": 0.5,
            "loss_scale_threshold": 0.25,
            "loss_scale_period": 4,
        },
    ),
    "whole_numbers": ({"binEdgeLocation": 1}, {"loss_scale_edge": 1.0}),
    "method_by_name": ({"gradientTensorTrackingMethod": "ConvAndMatmulGradients"}, {"loss_scale_tracking": "products"}),
    "method_by_number": ({"gradientTensorTrackingMethod": 1}, {"loss_scale_tracking": "products"}),
    "method": ({"gradientTensorTrackingMethod": Method.ConvAndMatmulGradients}, {"loss_scale_tracking": "products"}),
    "all": ({"gradientTensorTrackingMethod": 0}, {}),
    "tensors": (
        {"toTrackTensors": ["Gradient___a.weight", "b"], "gradientTensorTrackingMethod": 2},
        {"loss_scale_tracking": "named", "loss_scale_tensors": ("a.weight", "b")},
    ),
    "tensors_alone": (
        {"toTrackTensors": ("a",)},
        {"loss_scale_tracking": "named", "loss_scale_tensors": ("a",)},
    ),
}


@pytest.mark.parametrize("name", READ)
def test_session_options__of_loss_scaling__are_settings(name: str) -> None:
    given, expected = READ[name]
    assert settings(**given) == USUAL | expected


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "edge": ({"binEdgeLocation": 1.5}, "'binEdgeLocation' takes a number between 0 and 1, got 1.5"),
    "threshold": ({"thresholdUpperCountProportion": -1e-3}, "takes a number between 0 and 1, got -0.001"),
    "period": ({"updatePeriod": 0}, "'updatePeriod' takes a whole number from 1 on, got 0"),
    "method": (
        {"gradientTensorTrackingMethod": "ConvGradients"},
        "takes one of AllNonViewChangingGradientTensors, ConvAndMatmulGradients, GradientsOfUserSpecifiedTensors",
    ),
    "number": ({"gradientTensorTrackingMethod": 3}, "'gradientTensorTrackingMethod' takes one of"),
    "misspelt": ({"updatePeriods": 2}, "has no option 'updatePeriods'; did you mean 'updatePeriod'?"),
    "no_tensors": ({"gradientTensorTrackingMethod": 2}, "GradientsOfUserSpecifiedTensors, and .* names none"),
    "empty": ({"toTrackTensors": []}, "toTrackTensors names no tensor"),
    "both": ({"gradientTensorTrackingMethod": 0, "toTrackTensors": ["w"]}, "toTrackTensors names w"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_session_options__of_loss_scaling_that_cannot_be__are_refused(name: str) -> None:
    given, text = REFUSED[name]
    with pytest.raises(InvalidOptionError, match=text):
        settings(**given)


# --- models -----------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """Equal layers, which become calls of one function."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(1)

        def layer() -> nn.Module:
            return nn.Sequential(
                nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)
            )

        self.layers = nn.ModuleList(layer() for _ in range(layers))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return nn.functional.cross_entropy(self.head(x).float(), y)


def factors(model: nn.Module, opts: poptorch.Options, steps: int = 3, scale: float = 1.0) -> list[float]:
    """The scale's factor after each of some steps."""
    optimiser = poptorch.optim.SGD(model.parameters(), lr=1e-6, loss_scaling=scale)
    training = poptorch.trainingModel(model, opts, optimiser)
    made = torch.Generator().manual_seed(0)
    data = torch.randn(8, 8, generator=made).half(), torch.randint(4, (8,), generator=made)
    found = []
    for _ in range(steps):
        training(*data)
        found.append(float(optimiser.state_dict()["ipu_state"]["lossScaleUpdateFactor_FLOAT"]))
    return found


@pytest.mark.parametrize("given", [{}, {"gradientTensorTrackingMethod": 1}, {"toTrackTensors": ["layers.1", "head.*"]}])
def test_model__with_a_method__is_scaled(given: dict[str, Any]) -> None:
    assert factors(Classifier().half(), options(enabled=True, updatePeriod=2, **given)) == [1.0, 2.0, 2.0]


def test_model__of_float32_weights_in_half__follows_its_activations() -> None:
    class Mixed(Classifier):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            hidden = nn.functional.linear(x, self.head.weight.half(), self.head.bias.half())
            return nn.functional.cross_entropy(hidden.float(), y)

    assert factors(Mixed(0), options(enabled=True), 2) == [2.0, 4.0]


def test_model__with_a_name_that_it_lacks__is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidOptionError, match=r"gradients of 'layer\.1', and there are none") as caught:
        factors(Classifier().half(), options(enabled=True, toTrackTensors=["layer.1"]))
    assert "did you mean 'layers.1" in str(caught.value.remedy)


def test_state__within_a_period__is_saved_and_goes_on() -> None:
    def made() -> tuple[Any, Any]:
        model = Classifier(0).half()
        optimiser = poptorch.optim.SGD(model.parameters(), lr=1e-6)
        return poptorch.trainingModel(model, options(enabled=True, updatePeriod=3), optimiser), optimiser

    data = torch.ones(2, 8).half(), torch.tensor([0, 1])
    first, optimiser = made()
    for _ in range(2):
        first(*data)
    again, resumed = made()
    resumed.load_state_dict(optimiser.state_dict())
    again(*data)
    assert resumed.state_dict()["ipu_state"]["lossScaleUpdateFactor_FLOAT"] == 2.0
