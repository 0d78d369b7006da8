"""Small models, and a captured model held against PyTorch in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from abele.frontends.poptorch.capture import CapturedModel, capture
from abele.network import Value, differentiate, evaluate


class Lossy(nn.Module):
    """A model of one input, its outputs squared and summed as the loss."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *args: torch.Tensor) -> Any:
        from abele.frontends.poptorch import identity_loss

        out = self.body(*args)
        return out, identity_loss((out * out).sum() if out.is_floating_point() else out.double().sum(), "sum")


class Apply(nn.Module):
    """A function with one learnt scale in front, so that there is something to differentiate."""

    def __init__(self, function: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape))

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return self.function(x * self.scale, *rest)


class Classifier(nn.Module):
    """Two linear layers and, with labels, the cross entropy."""

    def __init__(self, features: int = 12, hidden: int = 16, classes: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(hidden, classes)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        scores = self.last(self.dropout(torch.relu(self.first(x))))
        return scores if labels is None else (scores, self.loss(scores, labels))


def feeds_of(captured: CapturedModel, args: tuple[Any, ...]) -> dict[Value, Any]:
    """Values to feed a network with for ``args``: inputs, weights and a random state."""
    net = captured.net
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    feeds: dict[Value, Any] = {v: t.detach().numpy() for v, t in zip(net.inputs, tensors, strict=True)}
    feeds |= {v: captured.weights[v.name].detach().numpy() for v in (*net.parameters, *net.buffers)}
    if net.seed is not None:
        feeds[net.seed] = np.array([7, 0], np.uint32)
    return feeds


def check_against_torch(
    model: nn.Module, args: tuple[Any, ...], rtol: float = 1e-9, *, twin: nn.Module | None = None
) -> CapturedModel:
    """Hold outputs and gradients of a captured model against PyTorch in float64; the loss is the last output.

    Args:
        model: Model to capture.
        args: Arguments of the call.
        rtol: Relative error that results may have.
        twin: A model that computes the same in plain PyTorch, where it is not the model itself.
    """
    oracle = copy.deepcopy(twin or model).double()
    captured = capture(model, args, training=True)
    net = captured.net
    made = differentiate(net, net.parameters)
    gradients, values = made.gradients, evaluate(made, feeds_of(captured, args))
    wide = tuple(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)
    results = oracle(*wide)
    outputs = results if isinstance(results, tuple) else (results,)
    for value, expected in zip(net.outputs, outputs, strict=True):
        np.testing.assert_allclose(values[value], expected.detach().numpy(), rtol=rtol, atol=rtol)
    outputs[-1].backward()
    _check_gradients(dict(oracle.named_parameters()), {p.name: values[g] for p, g in gradients.items()}, rtol)
    return captured


def _check_gradients(expected: Mapping[str, nn.Parameter], got: Mapping[str, Any], rtol: float) -> None:
    for name, parameter in expected.items():
        if parameter.grad is None:
            assert name not in got or not np.any(got[name])
            continue
        scale = max(1.0, float(parameter.grad.abs().max()))
        np.testing.assert_allclose(got[name], parameter.grad.numpy(), rtol=1e-6, atol=rtol * scale, err_msg=name)
