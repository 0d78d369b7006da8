"""The layer, captured and trained, beside the same experts in plain PyTorch, token by token."""

from __future__ import annotations

import copy
import logging
import math
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from experts_kit import PlainExperts, WithTarget, capacity, layer
from poptorch_kit import check_against_torch
from torch import nn

from abele import poptorch
from abele.frontends.poptorch.capture import CapturedModel
from abele.frontends.poptorch.program.recording import recording
from abele.poptorch import MixtureOfExperts

SWITCH: dict[str, Any] = {"top_k": 1, "capacity_factor": 0.75}
GSHARD: dict[str, Any] = {"top_k": 2, "capacity_factor": 0.8}
MIXTRAL: dict[str, Any] = {"top_k": 2, "dropless": True, "activation": "silu", "gated": True, "bias": False}
DEEPSEEK: dict[str, Any] = {
    **MIXTRAL,
    "dropless": False,
    "capacity_factor": 9.0,
    "top_k": 3,
    "scores": "sigmoid",
    "shared_hidden": 4,
}
WAYS: dict[str, dict[str, Any]] = {"switch": SWITCH, "gshard": GSHARD, "mixtral": MIXTRAL, "deepseek": DEEPSEEK}


def pair(tokens: int, num_experts: int = 4, **kwargs: Any) -> tuple[MixtureOfExperts, WithTarget, WithTarget]:
    """A layer, and it and its twin in plain PyTorch with losses."""
    made = layer(6, 5, num_experts, **kwargs)
    slots = None if made.dropless else capacity(tokens, num_experts, made.top_k, made.capacity_factor)
    return made, WithTarget(made), WithTarget(PlainExperts(made, slots))


def checked(model: nn.Module, args: tuple[Any, ...], *, twin: nn.Module) -> CapturedModel:
    """Hold outputs and all gradients of the network against the twin in float64."""
    with recording():
        return check_against_torch(model, args, twin=twin)


@pytest.mark.parametrize("way", ["switch", "gshard", pytest.param("mixtral", marks=pytest.mark.slow), "deepseek"])
def test_layer__captured__has_outputs_and_gradients_of_plain_pytorch(way: str) -> None:
    _, model, twin = pair(11, **WAYS[way])
    x = torch.randn(11, 6)
    checked(model, (x, torch.randn(11, 6)), twin=twin)


@pytest.mark.parametrize("dropless", [False, pytest.param(True, marks=[pytest.mark.slow, pytest.mark.rest])])
@pytest.mark.parametrize(
    ("tokens", "num_experts", "top_k", "bias"),
    [(1, 3, 1, 0.0), (5, 1, 1, 0.0), (4, 3, 3, 0.0), (9, 3, 1, 50.0), (13, 5, 2, 50.0)],
    ids=["one-token", "one-expert", "all-experts", "all-to-one", "all-to-one-of-two"],
)
def test_layer__at_its_edges__is_plain_pytorch(
    tokens: int, num_experts: int, top_k: int, bias: float, dropless: bool
) -> None:
    made, model, twin = pair(tokens, num_experts, top_k=top_k, dropless=dropless, capacity_factor=0.5)
    x = torch.randn(tokens, 6)
    if bias:
        # The first feature is large in all tokens, and the last expert likes it.
        x[:, 0] = 1.0
        for module in (model, twin):
            with torch.no_grad():
                module.get_parameter("layer.router.weight")[-1, 0] = bias
    captured = checked(model, (x, torch.randn(tokens, 6)), twin=twin)
    assert captured.net.loss is not None
    if bias:
        made(x)
        load = made.load()
        assert load.choices[-1] == tokens
        assert load.dropped == 0 if dropless else load.dropped > 0


def trained(
    model: WithTarget, twin: WithTarget, x: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of a step on the device, and the twin's, after comparing losses and weights of both."""
    wrapped = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))
    made, loss = wrapped(x, target)
    reference = copy.deepcopy(twin).double()
    expected, total = reference(x.double(), target.double())
    total.backward()
    torch.testing.assert_close(loss.double().mean(), total.detach(), rtol=2e-3, atol=2e-3)
    tolerance = 2e-3 if x.dtype == torch.half else 1e-5
    for name, parameter in reference.named_parameters():
        assert parameter.grad is not None
        after = model.get_parameter(name).detach().double()
        torch.testing.assert_close(after, parameter.detach() - parameter.grad, rtol=tolerance, atol=tolerance)
    wrapped.destroy()
    return made, expected.detach()


@pytest.mark.parametrize("half", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_training__on_the_device__is_plain_pytorch(half: bool) -> None:
    made, model, twin = pair(12, **GSHARD)
    x, target = torch.randn(12, 6), torch.randn(12, 6)
    if half:
        model.half()
        twin.half()
        x, target = x.half(), target.half()
    found, expected = trained(model, twin, x, target)
    assert found.dtype == x.dtype
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=5e-3 if half else 1e-5)
    assert made.load().tokens == 12
    assert made.load().dropped > 0


def test_training__without_drops_on_the_device__takes_as_many_passes_as_are_needed() -> None:
    made, model, twin = pair(12, **MIXTRAL | {"capacity_factor": 0.4})
    found, expected = trained(model, twin, torch.randn(12, 6), torch.randn(12, 6))
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    load = made.load()
    assert load.passes == -(-max(load.choices) // capacity(12, 4, 2, 0.4)) > 1
    assert load.dropped == 0
    assert "passes" in str(load)


class PlainExpertsChoice(nn.Module):
    """Experts that choose tokens, by a loop; under the layer's names, by which gradients are compared."""

    def __init__(self, made: MixtureOfExperts) -> None:
        super().__init__()
        self.router = copy.deepcopy(made.router)
        self.share, self.z_weight = made.top_k * made.capacity_factor / made.num_experts, made.z_weight
        for name in ("up", "down", "up_bias", "down_bias"):
            self.register_parameter(name, nn.Parameter(made.get_parameter(name).detach().clone()))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.router(x)
        up, down, up_bias, down_bias = (self.get_parameter(n) for n in ("up", "down", "up_bias", "down_bias"))
        scores, made = torch.softmax(logits, 1), torch.zeros_like(x)
        for number in range(len(up)):
            tokens = scores[:, number].sort(descending=True, stable=True).indices[: math.ceil(self.share * len(x))]
            hidden = nn.functional.gelu(x[tokens] @ up[number] + up_bias[number])
            found = (hidden @ down[number] + down_bias[number]) * scores[tokens, number, None]
            made = made.index_add(0, tokens, found)
        return made, torch.logsumexp(logits, 1).square().mean() * self.z_weight


def test_experts_choice__captured__is_plain_pytorch() -> None:
    made = layer(6, 5, 4, 2, choice="experts", capacity_factor=1.0)
    checked(WithTarget(made), (torch.randn(10, 6), torch.randn(10, 6)), twin=WithTarget(PlainExpertsChoice(made)))


def test_layer__in_eval__has_no_noise_and_its_own_capacity() -> None:
    made = layer(6, 5, 4, 1, capacity_factor=0.5, eval_capacity_factor=4.0, noise=2.0)
    x = torch.randn(3, 16, 6)
    made.eval()
    assert torch.equal(made(x).output, made(x).output)
    assert made.load().dropped == 0
    made.reset_load()
    made.train()
    assert not torch.equal(made(x).output, made(x).output)
    assert made.load().dropped > 0
    found = poptorch.inferenceModel(made.eval())(x)
    torch.testing.assert_close(found.output if hasattr(found, "output") else found[0], made(x).output)


def test_noise__on_the_device__changes_choices_from_step_to_step() -> None:
    made = layer(6, 5, 4, 1, noise=3.0)
    wrapped = poptorch.trainingModel(WithTarget(made), optimizer=poptorch.optim.SGD(made.parameters(), lr=0.0))
    x = torch.randn(16, 6)
    assert not torch.equal(wrapped(x, x)[0], wrapped(x, x)[0])
    assert made.load().tokens == 32


def test_load__of_a_layer__says_what_routing_cost(caplog: pytest.LogCaptureFixture) -> None:
    made = layer(2, 3, 4, 1, capacity_factor=1.0)
    with torch.no_grad():
        made.router.weight.copy_(torch.tensor([[1.0, 0], [0, 1.0], [-9, -9], [-9, -9]]))
    with caplog.at_level(logging.WARNING, "poptorch::python"):
        assert made.load().choices == (0, 0, 0, 0)
    assert "no token has reached any of the 4 experts" in caplog.text
    made(torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1]]))
    load = made.load()
    assert load.choices == (3, 1, 0, 0)
    assert load.unreached == (2, 3)
    assert (load.dropped, load.dropped_share, load.imbalance) == (2, 0.5, 3.0)
    assert str(load) == "4 tokens, 50.0% of choices dropped, fullest expert 3.00x the mean, 2 of 4 experts unreached"


class TwoStages(nn.Module):
    """Two layers of experts with residual connections, on an IPU each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layer(6, 5, 4, 2), layer(6, 5, 4, 1)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with poptorch.Block("first", ipu_id=0):
            made, one = self.first(x)
            x = x + made
        with poptorch.Block("second", ipu_id=1):
            made, other = self.second(x)
            x = x + made
            return x, poptorch.identity_loss(((x - target) ** 2).mean() + one + other, "none")


@pytest.mark.slow
def test_pipeline__of_two_layers__gives_what_the_host_does() -> None:
    model, x = TwoStages(), torch.randn(32, 6)
    expected = torch.cat([model(part, part)[0] for part in x.split(8)])
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(4)
    options.setExecutionStrategy(poptorch.PipelinedExecution())
    wrapped = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    torch.testing.assert_close(wrapped(x, x)[0], expected.detach(), rtol=1e-5, atol=1e-5)


class Checkpointed(nn.Module):
    """A layer whose values are made again for the backward pass."""

    def __init__(self, made: MixtureOfExperts) -> None:
        super().__init__()
        self.layer = made

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found: tuple[torch.Tensor, ...] = torch.utils.checkpoint.checkpoint(
            lambda tokens: tuple(self.layer(tokens)), x, use_reentrant=False
        )
        return found


@pytest.mark.slow
def test_layer__under_a_checkpoint__is_plain_pytorch() -> None:
    made, _, twin = pair(12, **GSHARD)
    model = WithTarget(Checkpointed(made))
    wrapped = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.randn(12, 6)
    expected = twin(x, x)
    for found, wanted in zip(wrapped(x, x), expected, strict=True):
        torch.testing.assert_close(found, wanted.detach().float(), rtol=1e-5, atol=1e-5)
