"""Losses that keep routers balanced and their logits small."""

from __future__ import annotations

import torch

from abele.frontends.poptorch.experts.rows import indicators


def load_balancing_loss(
    probabilities: torch.Tensor, experts: torch.Tensor, *, groups: int = 1, loads: torch.Tensor | None = None
) -> torch.Tensor:
    """experts · Σ fₑ · Pₑ, with fₑ the share of choices and Pₑ the mean probability of expert e; 1 where all are equal.

    Gradients flow through the probabilities. Over groups it is a mean.

    Args:
        probabilities: [tokens, experts]; their sum is one for each token.
        experts: Chosen experts, [tokens, k].
        groups: Groups of consecutive tokens, each balanced by itself.
        loads: Choices of each expert in each group, [groups, experts], where they are known; else they are counted.

    Source: Fedus et al., Switch Transformers, 2021, equation 4; for several choices f is their share of all choices.
    """
    tokens, num_experts = probabilities.shape
    if loads is None:
        loads = indicators(experts.reshape(groups, -1), num_experts).sum(1)
    share = loads.to(probabilities.dtype) / (experts.numel() // groups)
    mean = probabilities.reshape(groups, tokens // groups, num_experts).mean(1)
    return (share * mean).sum() * (num_experts / groups)


def router_z_loss(logits: torch.Tensor) -> torch.Tensor:
    """Mean over tokens of the squared logarithm of Σ exp(logits), [tokens, experts].

    Source: Zoph et al., ST-MoE, 2022, equation 5.
    """
    return torch.logsumexp(logits, 1).square().mean()
