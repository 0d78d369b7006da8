"""Llama with experts: a router sends each token to a few feed-forward parts of many.

Nothing is dropped: a layer makes as many passes over its experts' slots as the fullest expert needs.
"""

from __future__ import annotations

import torch
from torch import nn

from abele import poptorch
from abele.llm.config import LlamaConfig, MixtralConfig
from abele.llm.models.llama import Llama, LlamaBlock


class Experts(nn.Module):
    """Feed-forward parts of which each token uses a few.

    Args:
        config: Sizes, and how many experts there are and are chosen.
    """

    def __init__(self, config: MixtralConfig) -> None:
        super().__init__()
        self.mixture = poptorch.MixtureOfExperts(
            config.hidden,
            config.wide,
            config.experts,
            config.chosen,
            dropless=True,
            activation=config.activation,
            gated=True,
            bias=False,
            normalise=config.normalise,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Additions of the chosen experts to the residual stream."""
        out: torch.Tensor = self.mixture(x).output
        return out


class MixtralBlock(LlamaBlock):
    """Attention and experts, each behind a norm."""

    def feed_forward(self, config: LlamaConfig) -> nn.Module:
        """The experts of this block."""
        assert isinstance(config, MixtralConfig)
        return Experts(config)


class Mixtral(Llama):
    """A decoder of Mixtral's kind.

    Args:
        config: Sizes and variants.
    """

    def block(self, config: LlamaConfig, layer: int) -> LlamaBlock:
        """A block of this model."""
        return MixtralBlock(config, layer)
