"""Experts over replicas: the same as one layer on the whole batch, with slots for each replica's tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from experts_kit import PlainExperts, WithTarget, capacity, layer
from torch import nn

from abele import poptorch
from abele.poptorch import tensor_parallel


def options(replicas: int, accumulation: int = 1) -> poptorch.Options:
    opts = poptorch.Options().replicationFactor(replicas)
    opts.Training.gradientAccumulation(accumulation)
    return opts.outputMode(poptorch.OutputMode.All)


def trains_alike(
    size: int, replicas: int, accumulation: int = 1, optimizer: str = "SGD", clip: float | None = None, **kwargs: Any
) -> poptorch.MixtureOfExperts:
    """Train two steps on replicas and the twin on the host; hold weights, outputs and losses against each other."""
    own, rounds = 6, replicas // size * accumulation
    made = layer(6, 5, 4, group_size=size, **kwargs)
    slots = None if made.dropless else capacity(own, 4, made.top_k, made.capacity_factor)
    model, twin = WithTarget(made), WithTarget(PlainExperts(made, slots, size)).double()
    given = {"lr": 0.1} | ({"max_grad_norm": clip} if clip else {})
    mine = getattr(poptorch.optim, optimizer)(model.parameters(), **given)
    theirs = getattr(torch.optim, optimizer)(twin.parameters(), lr=0.1)
    wrapped = poptorch.trainingModel(model, options(replicas, accumulation), mine)
    for _ in range(2):
        x, target = torch.randn(own * size * rounds, 6), torch.randn(own * size * rounds, 6)
        # A micro-batch of the device is that of all replicas; each group of them is a batch of the twin.
        outputs, loss = wrapped(x, target)
        theirs.zero_grad()
        parts = [twin(*pair) for pair in zip(*(t.double().chunk(rounds) for t in (x, target)), strict=True)]
        torch.testing.assert_close(outputs.double(), torch.cat([p[0].detach() for p in parts]), rtol=0, atol=1e-5)
        total = sum(p[1] for p in parts) / rounds
        torch.testing.assert_close(loss.double().mean(), total.detach(), rtol=1e-5, atol=1e-5)
        total.backward()
        if clip:
            assert torch.nn.utils.clip_grad_norm_(twin.parameters(), clip) > clip
        theirs.step()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(
            model.get_parameter(name).detach().double(), parameter.detach(), rtol=1e-4, atol=1e-5, msg=name
        )
    wrapped.destroy()
    return made


def test_experts__over_two_replicas__train_as_one_layer_on_both_batches() -> None:
    made = trains_alike(2, 2, top_k=2, capacity_factor=0.8)
    assert made.load().tokens == 12  # Of the first replica, in two steps.
    assert made.load().dropped > 0


@pytest.mark.slow
def test_experts__in_two_groups_of_two__sum_gradients_of_the_same_experts() -> None:
    trains_alike(2, 4, accumulation=2, optimizer="Adam", top_k=1, capacity_factor=2.0, gated=True)


@pytest.mark.slow
def test_experts__clipped_by_norm__count_the_parts_of_all_replicas() -> None:
    trains_alike(2, 2, clip=0.05, top_k=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "replicas"),
    [pytest.param(2, 2, marks=pytest.mark.rest), pytest.param(1, 2, marks=pytest.mark.rest), (2, 4)],
)
def test_experts__without_drops__agree_on_the_number_of_passes(size: int, replicas: int) -> None:
    made = trains_alike(size, replicas, dropless=True, capacity_factor=0.4)
    assert made.load().passes > 2


@pytest.mark.slow
def test_state_dict__of_experts_over_replicas__is_that_of_one_layer(tmp_path: Any) -> None:
    shared, alone = layer(6, 5, 4, group_size=2), layer(6, 5, 4)
    assert {n: t.shape for n, t in shared.state_dict().items()} == {n: t.shape for n, t in alone.state_dict().items()}
    alone.load_state_dict(shared.state_dict())
    wrapped = poptorch.inferenceModel(shared.eval(), options(2))
    x = torch.randn(8, 6)
    expected = shared(x).output
    torch.testing.assert_close(wrapped(x)[0], expected)
    wrapped.save(str(tmp_path / "model"))
    torch.testing.assert_close(poptorch.load(str(tmp_path / "model"))(x)[0], expected)


def refused(model: nn.Module, opts: poptorch.Options, words: str) -> None:
    x = torch.randn(8, 6)
    with pytest.raises(poptorch.Error, match=words):
        poptorch.inferenceModel(model, opts)(x)


def test_experts__that_replicas_cannot_share__are_refused() -> None:
    with pytest.raises(poptorch.Error, match=r"4 experts do not divide into 3 replicas[\s\S]*num_experts=6"):
        poptorch.MixtureOfExperts(6, 5, 4, group_size=3)
    refused(layer(6, 5, 4, group_size=2), options(3), r"shared by 2 replicas, and there are 3[\s\S]*Factor\(2\)")
    refused(layer(6, 5, 4, group_size=2), options(1), r"shared by 2 replicas, and there are 1")
    refused(nn.Sequential(nn.Linear(6, 6), layer(6, 5, 4, group_size=2)), options(1), "shared by 2 replicas")
    both = nn.Sequential(nn.Linear(6, 6), layer(6, 5, 4, group_size=2))
    tensor_parallel.parallelize_module(both, 2, {"0": "column_gather"})
    refused(both, options(2).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive), "compute the model together")
    two = nn.ModuleList([layer(6, 5, 4, group_size=2), layer(6, 5, 4, group_size=4)])
    two.forward = lambda x: two[0](x)
    refused(two, options(4), "groups of 2, 4 replicas")


def test_layer__on_the_host_with_tokens_that_do_not_divide__is_refused() -> None:
    with pytest.raises(poptorch.Error, match="7 tokens do not divide into 2 groups"):
        layer(6, 5, 4, group_size=2)(torch.randn(7, 6))
