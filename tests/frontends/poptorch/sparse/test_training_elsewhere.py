"""Sparse training on several IPUs, on replicas, and in half precision, beside PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from abele import poptorch
from abele.frontends.poptorch.sparse import SparseLinear
from abele.poptorch import sparse

Batch = tuple[torch.Tensor, torch.Tensor]


def thin(inputs: int, outputs: int, dtype: torch.dtype = torch.float32) -> SparseLinear:
    return SparseLinear(inputs, outputs, density=0.3, block=4, dynamic=True, rows=8, dtype=dtype)


class Stages(nn.Module):
    """Two dynamic layers, each on an IPU of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = thin(32, 48), thin(48, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with poptorch.Block("one", ipu_id=0):
            x = torch.tanh(self.one(x))
        with poptorch.Block("two", ipu_id=1):
            return nn.functional.cross_entropy(self.head(torch.tanh(self.two(x))), labels)


class Small(nn.Module):
    """One dynamic layer and a dense one."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.one, self.head = thin(32, 48, dtype), nn.Linear(48, 5, dtype=dtype)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(torch.tanh(self.one(x))).float(), labels)


def batch(rows: int, dtype: torch.dtype = torch.float32) -> Batch:
    return torch.randn(rows, 32).to(dtype), torch.randint(5, (rows,))


def check_training(net: nn.Module, options: Any, make: Any, batches: list[Batch], tolerance: float = 1e-5) -> Any:
    """RigL on the device finds the host's patterns and weights, in one compiled program."""
    twin = copy.deepcopy(net)
    training, optimizer = poptorch.trainingModel(net, options, make(net)), make(twin)
    driver, other = (sparse.RigL(*of, interval=2, end=8) for of in ((training,), (twin, optimizer)))
    changed, compiled = 0, None
    for given in batches:
        training(*given)
        compiled = compiled or training._compiled
        changed += driver.step(*given)
        optimizer.zero_grad()
        twin(*given).backward()
        optimizer.step()
        other.step(*given)
        for name, layer in driver.carrier.layers.items():
            same = other.carrier.layers[name]
            assert layer.pattern == same.pattern
            torch.testing.assert_close(layer.values.detach(), same.values.detach(), rtol=tolerance, atol=tolerance)
    assert training._compiled is compiled
    assert changed == len(batches) // 2
    return training


def adam(net: nn.Module) -> torch.optim.Optimizer:
    # With a smaller epsilon, gradients of 1e-8 take whole steps on the rounding of their sums.
    return torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-4)


def test_rigl__in_a_pipeline_of_two_stages__is_pytorch() -> None:
    options = poptorch.Options()
    options.Training.gradientAccumulation(4)
    training = check_training(Stages(), options, adam, [batch(32) for _ in range(3)])
    assert ":2: " in str(training.report())


@pytest.mark.slow
def test_rigl__on_shards__is_pytorch() -> None:
    options = poptorch.Options()
    options.setExecutionStrategy(poptorch.ShardedExecution())
    check_training(Stages(), options, adam, [batch(8) for _ in range(5)])


@pytest.mark.slow
def test_rigl__with_stages_that_the_strategy_lists__is_pytorch() -> None:
    options = poptorch.Options()
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("one"), poptorch.Stage("two")))
    options.Training.gradientAccumulation(4)
    check_training(Stages(), options, adam, [batch(32) for _ in range(2)])


def test_rigl__of_replicas_that_accumulate__is_pytorch() -> None:
    options = poptorch.Options()
    options.replicationFactor(2).Training.gradientAccumulation(2)
    check_training(Small(), options, adam, [batch(32) for _ in range(4)])


def test_rigl__of_replicas_that_share_moments__is_pytorch() -> None:
    options = poptorch.Options().replicationFactor(2)
    shared = poptorch.TensorLocationSettings().useReplicatedTensorSharding(True)
    options.TensorLocations.setOptimizerLocation(shared.minElementsForReplicatedTensorSharding(2))
    training = check_training(Small(), options, adam, [batch(16) for _ in range(4)])
    assert training._compiled is not None
    assert training._compiled.session.compiled.ends.state["one.values/moment1"].flat.replicas == 2


def test_rigl__in_half_precision__is_pytorch_within_its_rounding() -> None:
    def momentum(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    given = [batch(8, torch.float16) for _ in range(4)]
    check_training(Small(torch.float16), None, momentum, given, tolerance=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", [1.0, 128.0])
def test_adam__in_half_precision__stays_finite_on_the_device(scaling: float) -> None:
    """PyTorch's own Adam does not: in half, its epsilon of 1e-8 is zero, and weights without a gradient become NaN."""
    net = Small(torch.float16)
    optimizer = poptorch.optim.Adam(net.parameters(), lr=0.01, loss_scaling=scaling)
    training = poptorch.trainingModel(net, None, optimizer)
    driver, given = sparse.RigL(training, interval=2, end=60), batch(8, torch.float16)
    losses = []
    for _ in range(30):
        losses.append(float(training(*given)))
        driver.step(*given)
    assert losses[-1] < losses[0] / 2
    assert torch.isfinite(net.one.values).all()
