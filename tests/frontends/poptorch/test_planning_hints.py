"""Hints to planners from within a model."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from test_executor import X, options
from torch import nn

from abele import poptorch
from abele.errors import AbeleError
from abele.machine import systems


def test_multi_conv__without_convolutions_or_in_another__is_refused_with_the_line() -> None:
    model, conv = nn.Linear(12, 4), nn.Conv1d(1, 1, 1)

    def empty(x: torch.Tensor) -> torch.Tensor:
        with poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Serial):
            return model(x)

    def nested(x: torch.Tensor) -> torch.Tensor:
        with poptorch.MultiConv():
            y = conv(x[:, None])
            with poptorch.MultiConv():
                return y + conv(x[:, None])

    for forward, text in ((empty, "Empty poptorch.MultiConv"), (nested, "Nested poptorch.MultiConv is not supported")):
        with pytest.raises(poptorch.Error, match=rf"{text}[^$]*at .*test_planning_hints.py:\d+"):
            poptorch.inferenceModel(forward, options())(X)
        with pytest.raises(poptorch.Error, match=text):
            forward(X)


def test_multi_conv__whose_body_raises__lets_the_error_out_and_others_in() -> None:
    with pytest.raises(ZeroDivisionError), poptorch.MultiConv():
        1 / 0  # noqa: B018  # for its error
    with poptorch.MultiConv():
        nn.Conv1d(1, 1, 1)(torch.zeros(1, 1, 2))


def few_tiles() -> poptorch.Options:
    return options().system(systems.get("bow-2000").evolve(ipu={"num_tiles": 64}))


class Branches(nn.Module):
    """Convolutions of one input, plain and transposed, in a group or not."""

    def __init__(self, group: poptorch.MultiConv | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList([nn.Conv2d(4, 8, 3), nn.Conv2d(4, 6, 1, stride=2), nn.ConvTranspose2d(4, 4, 2)])
        self.group = group or contextlib.nullcontext()

    def forward(self, x: torch.Tensor, wanted: torch.Tensor | None = None) -> Any:
        with self.group:
            parts = [part(x) for part in self.parts]
        made = torch.cat([part.tanh().mean((2, 3)) for part in parts], 1)
        return made if wanted is None else (made, nn.functional.mse_loss(made, wanted))


GROUPS = {
    "parallel": lambda: poptorch.MultiConv().perConvReservedTiles(8).cycleBackOff(0.2),
    "serial": lambda: poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Serial),
    "hinted": lambda: (
        poptorch.MultiConv().availableMemoryProportions([0.5, 0.4, 0.3]).partialsTypes(torch.half).cycleBackOff(1.0)
    ),
    "dithered": lambda: poptorch.MultiConv().enableConvDithering([True, False, True]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_multi_conv__of_branches__trains_as_eager_pytorch(name: str) -> None:
    model, eager = Branches(GROUPS[name]()), Branches()
    x, wanted = torch.randn(2, 4, 9, 9), torch.randn(2, 18)
    training = poptorch.trainingModel(model, few_tiles(), torch.optim.SGD(model.parameters(), lr=0.5))
    optimiser = torch.optim.SGD(eager.parameters(), lr=0.5)
    for _ in range(2):
        optimiser.zero_grad()
        made, loss = eager(x, wanted)
        loss.backward()
        optimiser.step()
        torch.testing.assert_close(training(x, wanted)[0], made.detach(), rtol=1e-4, atol=1e-5)
    for got, expected in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got.detach(), expected.detach(), rtol=1e-4, atol=1e-5)


def test_multi_conv__in_parallel__is_one_call_of_fewer_cycles() -> None:
    x = torch.randn(2, 4, 9, 9)
    cycles, names = {}, {}
    for name, group in {"alone": None, "parallel": GROUPS["parallel"](), "serial": GROUPS["serial"]()}.items():
        model = poptorch.inferenceModel(Branches(group), few_tiles())
        model(x)
        cycles[name], names[name] = model.report().total_cycles, " ".join(model.getTensorNames())
    assert cycles["parallel"] < min(cycles["alone"], cycles["serial"])
    assert "multi_convolution" in names["parallel"]
    assert "multi_convolution" not in names["alone"]


def test_multi_conv__whose_convolutions_read_each_other__is_refused() -> None:
    first, second = nn.Conv1d(4, 4, 1), nn.Conv1d(4, 4, 1)

    class Chain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with poptorch.MultiConv():
                return second(first(x).relu())

    with pytest.raises(AbeleError, match="convolutions of a group depend on each other") as caught:
        poptorch.inferenceModel(Chain(), options())(torch.randn(2, 4, 8))
    assert "test_planning_hints.py" in str(caught.value)


@pytest.mark.parametrize("count", [1, 4])
def test_multi_conv__with_values_for_other_convolutions__is_refused(count: int) -> None:
    group = poptorch.MultiConv().availableMemoryProportions([0.5] * count)
    with pytest.raises(ValueError, match=f"has {count} values, and the group has 3 convolutions"):
        poptorch.inferenceModel(Branches(group), few_tiles())(torch.randn(2, 4, 9, 9))


@pytest.mark.parametrize("after", ["nothing", "views", "bias"])
def test_set_available_memory__of_a_product__plans_it_as_the_option_does(after: str) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(512, 512), torch.randn(2, 128, 512)

    def product(x: torch.Tensor) -> torch.Tensor:
        match after:
            case "nothing":
                return x @ weight
            case "views":
                return (x @ weight).transpose(1, 2).reshape(512, 256)
        return torch.addmm(torch.ones(256, 512), x.reshape(256, 512), weight)

    def run(forward: Any, **shares: float) -> tuple[Any, int]:
        model = poptorch.inferenceModel(forward, few_tiles().setAvailableMemoryProportion(shares))
        return model(x), model.report().total_cycles

    default, default_cycles = run(product)
    hinted, hinted_cycles = run(lambda x: poptorch.set_available_memory(product(x), 0.05))
    of_all, of_all_cycles = run(product, IPU0=0.05)
    assert hinted_cycles == of_all_cycles > default_cycles
    assert torch.equal(hinted, of_all)
    torch.testing.assert_close(hinted, default, rtol=1e-4, atol=1e-3)


def test_set_available_memory__of_what_nothing_plans__warns() -> None:
    model = poptorch.inferenceModel(lambda x: poptorch.set_available_memory(x.relu(), 0.5), options())
    with pytest.warns(UserWarning, match=r"set_available_memory.* has no effect"):
        model(X)


def test_set_available_memory__outside_of_a_model__is_its_tensor() -> None:
    assert poptorch.set_available_memory(X, 0.5) is X


REFUSED = {
    "share": lambda: poptorch.set_available_memory(X, 1.5),
    "tensor": lambda: poptorch.set_available_memory(3, 0.5),
    "shares": lambda: poptorch.MultiConv().availableMemoryProportions([0.5, 0]),
    "partials": lambda: poptorch.MultiConv().partialsTypes(torch.int32),
    "dithering": lambda: poptorch.MultiConv().enableConvDithering([True, 1]),
    "plan": lambda: poptorch.MultiConv().planType("serial"),
    "tiles": lambda: poptorch.MultiConv().perConvReservedTiles(-1),
    "back_off": lambda: poptorch.MultiConv().cycleBackOff("0.1"),
    "whole_back_off": lambda: poptorch.MultiConv().cycleBackOff(1),
    "whole_share": lambda: poptorch.MultiConv().availableMemoryProportions(1),
    "large_back_off": lambda: poptorch.MultiConv().cycleBackOff(1.5),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hints__that_say_nothing__are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"takes|a share of|partial sums are|dithering is"):
        REFUSED[name]()
