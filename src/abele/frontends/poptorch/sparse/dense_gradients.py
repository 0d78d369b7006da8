"""Dense gradients of sparse layers: of all weights, held or not, for one batch.

A layer's backward pass computes the gradients of held weights alone. Which others would help is seen from the dense
gradient, Σ dyᵀ · x over the batch, which is wanted once in hundreds of steps. So it has a program of its own: the
model, the derivative of its loss by what each sparse layer gives, and one product for each layer. For 784 × 300 weights
that is a matrix of 940,800 B in float32, on the device while this program runs and at no other time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from abele.frontends.poptorch.enums import OutputMode
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.models.wrappers import inferenceModel
from abele.frontends.poptorch.options.strategies import PipelinedExecution
from abele.frontends.poptorch.program.blocks import beside_their_inputs
from abele.frontends.poptorch.sparse.layers import SparseLinear
from abele.frontends.poptorch.values import structures

Loss = Callable[[Any], torch.Tensor]
"""Finds the loss in what a model returns."""


def last_loss(returned: Any) -> torch.Tensor:
    """The last tensor of one element in what a model returns.

    Raises:
        Error: There is none.
    """
    found = [t for t in structures.leaves(returned) if isinstance(t, torch.Tensor) and t.numel() == 1]
    if not found:
        raise Error("the model returns no loss: no tensor of one element", remedy="loss=lambda returned: …")
    return found[-1]


class DenseGradients(torch.nn.Module):
    """A model as a function that gives the dense gradient of each of some sparse layers, [out, in].

    Args:
        model: The model; it returns a loss.
        layers: Its sparse layers by name.
        loss: Finds the loss in what the model returns.
    """

    def __init__(self, model: torch.nn.Module, layers: Mapping[str, SparseLinear], loss: Loss = last_loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self._layers = dict(layers)

    def forward(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        """The gradients of one micro-batch, in the order of the layers."""
        with torch.enable_grad(), _watched(self._layers) as seen:
            returned = self.model(*args, **kwargs)
            with beside_their_inputs():
                calls = [(name, x, y) for name in self._layers for x, y in seen[name]]
                by_result = torch.autograd.grad(self.loss(returned), [y for _, _, y in calls])
                pairs = [(name, x, dy) for (name, x, _), dy in zip(calls, by_result, strict=True)]
                return [_total([_rows(dy).T @ _rows(x) for name, x, dy in pairs if name == n]) for n in self._layers]


def gradient_program(
    executor: PoplarExecutor, layers: Mapping[str, SparseLinear], loss: Loss = last_loss
) -> PoplarExecutor:
    """The program of dense gradients beside a wrapped model, with its weights: a call takes the same host batches."""
    options = executor.options.clone()
    batches = options.device_iterations * options.Training.gradient_accumulation * options.replication_factor
    options.deviceIterations(batches).replicationFactor(1).outputMode(OutputMode.Sum)
    options.Training.gradientAccumulation(1)
    strategy = options._execution_strategy
    if isinstance(strategy, PipelinedExecution):
        # Gradients go back to earlier stages within one micro-batch.
        options.setExecutionStrategy(strategy.in_turn())
    return inferenceModel(DenseGradients(executor.model, layers, loss), options)


@contextmanager
def _watched(layers: Mapping[str, SparseLinear]) -> Iterator[dict[str, list[tuple[torch.Tensor, torch.Tensor]]]]:
    """Inputs and results of the calls of layers, by name."""
    seen: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {name: [] for name in layers}

    def note(name: str) -> Callable[..., None]:
        return lambda layer, args, result: seen[name].append((args[0], result))

    hooks = [layer.register_forward_hook(note(name)) for name, layer in layers.items()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.reshape((-1, x.shape[-1])).float()


def _total(parts: list[torch.Tensor]) -> torch.Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
