"""Feed-forward networks of all experts at once: grouped products over the slots of each expert.

The derivative is written out beside the function, for passes whose number only the machine knows
(:mod:`~abele.frontends.poptorch.experts.dropless`), where nothing of a pass is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from abele.errors import nearest
from abele.frontends.poptorch.errors import Error

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]
_GELU = 1 / math.sqrt(2 * math.pi)


def _gelu_slope(x: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(x * math.sqrt(0.5))) + x * torch.exp(-0.5 * x * x) * _GELU


def _silu_slope(x: Tensor) -> Tensor:
    share = torch.sigmoid(x)
    return share * (1 + x * (1 - share))


ACTIVATIONS: dict[str, tuple[Function, Function]] = {
    "gelu": (torch.nn.functional.gelu, _gelu_slope),
    "silu": (torch.nn.functional.silu, _silu_slope),
    "relu": (torch.relu, lambda x: torch.where(x > 0, torch.ones_like(x), torch.zeros_like(x))),
    "relu_squared": (lambda x: torch.relu(x).square(), lambda x: 2 * torch.relu(x)),
    "tanh": (torch.tanh, lambda x: 1 - torch.tanh(x).square()),
}
"""Activations and their derivatives, by name."""


def activation_of(name: str) -> tuple[Function, Function]:
    """An activation and its derivative.

    Raises:
        Error: There is none of this name.
    """
    if name not in ACTIVATIONS:
        close = nearest(str(name), ACTIVATIONS)
        raise Error(
            f"experts have no activation {name!r}",
            because=f"there are {', '.join(ACTIVATIONS)}",
            remedy=f"did you mean {close!r}?" if close else None,
        )
    return ACTIVATIONS[name]


@dataclass(frozen=True, eq=False)
class ExpertWeights:
    """Weights of all experts of a layer: down(activation(up(x))), or down(activation(gate(x)) · up(x)).

    Attributes:
        up: [experts, dim, hidden].
        down: [experts, hidden, dim].
        up_bias: [experts, hidden].
        down_bias: [experts, dim].
        gate: [experts, dim, hidden].
        gate_bias: [experts, hidden].
    """

    up: Tensor
    down: Tensor
    up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    gate: Tensor | None = None
    gate_bias: Tensor | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The weights in the order of the attributes."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def given(self) -> list[Tensor]:
        """The weights that there are."""
        return [tensor for tensor in self.tensors() if tensor is not None]

    def with_gradients(self, given: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """Tensors for those that there are, in the order of the attributes, None for others."""
        left = iter(given)
        return tuple(None if tensor is None else next(left) for tensor in self.tensors())


def _grouped(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    made = torch.bmm(x, weight)
    return made if bias is None else made + bias.unsqueeze(1)


def apply_experts(x: Tensor, weights: ExpertWeights, activation: str) -> Tensor:
    """Results of each expert for the rows in its slots, [experts, slots, dim] to the same."""
    function, _ = activation_of(activation)
    hidden = _grouped(x, weights.up, weights.up_bias)
    if weights.gate is None:
        inner = function(hidden)
    else:
        inner = function(_grouped(x, weights.gate, weights.gate_bias)) * hidden
    return _grouped(inner, weights.down, weights.down_bias)


def experts_backward(x: Tensor, weights: ExpertWeights, activation: str, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Gradients of :func:`apply_experts`, which makes its hidden values again.

    Args:
        x: Rows in slots, [experts, slots, dim].
        weights: Weights.
        activation: Name of the activation.
        grad: Gradient of the result, of its shape.

    Returns:
        The gradient of ``x``, and those of the given weights in their order.
    """
    function, slope = activation_of(activation)
    hidden = _grouped(x, weights.up, weights.up_bias)
    of_inner = torch.bmm(grad, weights.down.transpose(1, 2))
    of_gate = None
    if weights.gate is None:
        inner, of_hidden = function(hidden), of_inner * slope(hidden)
    else:
        gate = _grouped(x, weights.gate, weights.gate_bias)
        inner, of_hidden = function(gate) * hidden, of_inner * function(gate)
        of_gate = of_inner * hidden * slope(gate)
    rows = x.transpose(1, 2)
    of_x = torch.bmm(of_hidden, weights.up.transpose(1, 2))
    of_weights = {
        "up": torch.bmm(rows, of_hidden),
        "down": torch.bmm(inner.transpose(1, 2), grad),
        "up_bias": of_hidden.sum(1),
        "down_bias": grad.sum(1),
    }
    if of_gate is not None and weights.gate is not None:
        of_x = of_x + torch.bmm(of_gate, weights.gate.transpose(1, 2))
        of_weights |= {"gate": torch.bmm(rows, of_gate), "gate_bias": of_gate.sum(1)}
    return of_x, [of_weights[n] for n in weights.__dataclass_fields__ if getattr(weights, n) is not None]
