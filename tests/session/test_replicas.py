"""Replicas: training and inference on several copies of a network, against NumPy over the global batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toy_front_end import mlp, mlp_batch, mlp_trained, mlp_weights, trace

from abele.parallel import Adam, Group, Sgd
from abele.session import Schedule, Session, Settings, SharedArrays, Signature

RATE = 0.1


def session(schedule: Schedule, optimiser: Sgd | Adam | None = None, **more: Any) -> Session:
    """A session of two layers, four samples in a micro-batch; one that trains if there is an optimiser."""
    weights = SharedArrays(more.pop("weights", None) or mlp_weights())
    net = trace(mlp, weights, Signature.of(mlp_batch(4 * schedule.micro_batches)), schedule)
    groups = None if optimiser is None else [Group(optimiser, tuple(net.parameters))]
    return Session.of(net, schedule, groups=groups, weights=weights, **more)


@pytest.mark.parametrize("mode", ["native", "tiles"])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize(("iterations", "accumulation", "replicas"), [(1, 1, 2), (2, 3, 2), (3, 1, 4)])
def test_training__on_replicas__is_what_numpy_computes_over_the_global_batch(
    iterations: int, accumulation: int, replicas: int, mean: bool, mode: str
) -> None:
    schedule = Schedule(iterations, accumulation, mean, replicas=replicas)
    x, target = mlp_batch(4 * schedule.micro_batches)
    training = session(schedule, Sgd(lr=RATE, momentum=0.9), settings=Settings(mode=mode))
    losses, scores = training(x, target)
    together = Schedule(iterations, accumulation * replicas, mean)
    expected, expected_losses = mlp_trained(mlp_weights(), x, target, together, lr=RATE, momentum=0.9)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert scores.shape == (len(x), 2)
    for name, weight in expected.items():
        np.testing.assert_allclose(training.weights[name], weight, rtol=1e-4, atol=1e-6)
