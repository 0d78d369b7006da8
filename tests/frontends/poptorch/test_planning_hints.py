"""Hints to planners from within a model."""

from __future__ import annotations

import pytest
import torch
from test_executor import X, options
from torch import nn

from abele import poptorch


def test_hints__around_a_product__leave_its_result() -> None:
    model = nn.Linear(12, 4)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Serial).partialsTypes(torch.half):
            y = model(x)
        return poptorch.set_available_memory(y, 0.3) * 2

    got = poptorch.inferenceModel(forward, options())(X)
    torch.testing.assert_close(got, model(X).detach() * 2)


REFUSED = {
    "share": lambda: poptorch.set_available_memory(X, 1.5),
    "tensor": lambda: poptorch.set_available_memory(3, 0.5),
    "shares": lambda: poptorch.MultiConv().availableMemoryProportions([0.5, 0]),
    "partials": lambda: poptorch.MultiConv().partialsTypes(torch.int32),
    "dithering": lambda: poptorch.MultiConv().enableConvDithering([True, 1]),
    "plan": lambda: poptorch.MultiConv().planType("serial"),
    "tiles": lambda: poptorch.MultiConv().perConvReservedTiles(-1),
    "back_off": lambda: poptorch.MultiConv().cycleBackOff("0.1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hints__that_say_nothing__are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"takes|a share of|partial sums are|dithering is"):
        REFUSED[name]()
