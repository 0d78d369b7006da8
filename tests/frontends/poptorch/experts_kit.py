"""Mixtures of experts in plain PyTorch, token by token, as public papers and code describe them."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn

import abele.poptorch as poptorch


def choices_in_turn(
    experts: torch.Tensor, num_experts: int, capacity: int, groups: int = 1
) -> dict[tuple[int, int], int]:
    """Place in its expert of each choice (token, rank) that finds a slot: first choices first, earlier tokens first."""
    tokens, k = experts.shape
    size, found = tokens // groups, {}
    for group in range(groups):
        used = [0] * num_experts
        for rank in range(k):
            for token in range(group * size, (group + 1) * size):
                expert = int(experts[token, rank])
                if used[expert] < capacity:
                    found[token, rank] = used[expert]
                used[expert] += 1
    return found


class PlainExperts(nn.Module):
    """The layer with the same parameters, one token after the other.

    Args:
        layer: The layer whose weights and settings it has.
        capacity: Slots of each expert for the tokens of a group; None for as many as are needed.
        groups: Groups of tokens.
    """

    def __init__(self, layer: poptorch.MixtureOfExperts, capacity: int | None = None, groups: int = 1) -> None:
        super().__init__()
        self.settings: Any = {n: getattr(layer, n) for n in ("top_k", "scores", "normalise", "activation")}
        self.balance_weight, self.z_weight = layer.balance_weight, layer.z_weight
        self.capacity, self.groups = capacity, groups
        self.router = copy.deepcopy(layer.router)
        self.names = [n for n, _ in layer.named_parameters() if n != "router.weight"]
        for name in self.names:
            self.register_parameter(name, nn.Parameter(getattr(layer, name).detach().clone()))

    def _expert(self, x: torch.Tensor, number: int, prefix: str = "") -> torch.Tensor:
        def part(name: str) -> Any:
            found = getattr(self, prefix + name, None)
            return None if found is None else found[number]

        def affine(x: torch.Tensor, name: str) -> torch.Tensor:
            bias, made = part(f"{name}_bias"), torch.matmul(x, part(name))
            return made if bias is None else made + bias

        function: Any = {
            "gelu": nn.functional.gelu,
            "silu": nn.functional.silu,
            "relu": torch.relu,
            "tanh": torch.tanh,
            "relu_squared": lambda t: torch.relu(t) ** 2,
        }[self.settings["activation"]]
        hidden = affine(x, "up")
        inner = function(hidden) if part("gate") is None else function(affine(x, "gate")) * hidden
        return affine(inner, "down")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and auxiliary loss."""
        tokens = x.reshape(-1, x.shape[-1])
        logits = self.router(tokens)
        k, num_experts = self.settings["top_k"], logits.shape[1]
        scores = torch.softmax(logits, 1) if self.settings["scores"] == "softmax" else torch.sigmoid(logits)
        order = torch.sort(scores, dim=1, descending=True, stable=True)
        experts, weights = order.indices[:, :k], order.values[:, :k]
        if self.settings["normalise"]:
            weights = weights / weights.sum(1, keepdim=True)
        found = choices_in_turn(experts, num_experts, self.capacity or len(tokens), self.groups)
        rows = [
            sum(
                (weights[t, r] * self._expert(tokens[t], int(experts[t, r])) for r in range(k) if (t, r) in found),
                torch.zeros_like(tokens[t]),
            )
            for t in range(len(tokens))
        ]
        made = torch.stack(rows)
        if hasattr(self, "shared_up"):
            made = made + self._expert(tokens, 0, "shared_")
        shares = scores / scores.sum(1, keepdim=True)
        balance = torch.stack(
            [
                sum((e == n).double().mean() * p[:, n].mean() for n in range(num_experts)) * num_experts
                for e, p in zip(experts.chunk(self.groups), shares.chunk(self.groups), strict=True)
            ]
        ).mean()
        z = torch.log(torch.exp(logits).sum(1)).square().mean()
        return made.reshape(x.shape), balance * self.balance_weight + z * self.z_weight


def capacity(tokens: int, experts: int, top_k: int, factor: float) -> int:
    """Slots of an expert."""
    return min(tokens, math.ceil(factor * tokens * top_k / experts))


class WithTarget(nn.Module):
    """A layer's distance from a target, with its auxiliary loss."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        made, auxiliary = self.layer(x)
        return made, poptorch.identity_loss(((made - target) ** 2).mean() + auxiliary, "none")


def layer(*args: Any, **kwargs: Any) -> poptorch.MixtureOfExperts:
    """A layer with losses of some weight and a sharp router."""
    settings = {"balance_weight": 0.3, "z_weight": 0.05} | kwargs
    made = poptorch.MixtureOfExperts(*args, **settings)
    with torch.no_grad():
        made.router.weight.mul_(3)
    return made
