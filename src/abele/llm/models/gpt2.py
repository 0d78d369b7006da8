"""GPT-2, and GPT-Neo, StarCoder and OPT by configuration: learned positions and layer norms before each part."""

from __future__ import annotations

import torch
from torch import nn

from abele.llm.cache import Attending
from abele.llm.config import GPT2Config
from abele.llm.models.causal import CausalModel
from abele.llm.models.parts import FeedForward, Projections


class GPT2Attention(Projections):
    """Attention whose queries and keys know their positions from the embedding."""

    def __init__(self, config: GPT2Config, layer: int) -> None:
        super().__init__(config, query_bias=config.query_bias, out_bias=True)
        self.layer, self.window, self.scale = layer, config.window_of(layer), config.scale

    def forward(self, x: torch.Tensor, cache: Attending) -> torch.Tensor:
        """Attention of x [B, T, hidden] to what ``cache`` holds."""
        return self.output(cache.attend(self.layer, *self.projected(x), scale=self.scale, window=self.window))


class GPT2Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm."""

    def __init__(self, config: GPT2Config, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.attention = GPT2Attention(config, layer)
        self.wide_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.wide = FeedForward(config, bias=True)

    def forward(self, x: torch.Tensor, cache: Attending) -> torch.Tensor:
        """The residual stream after this block."""
        x = x + self.attention(self.attention_norm(x), cache)
        out: torch.Tensor = x + self.wide(self.wide_norm(x))
        return out


class GPT2(CausalModel):
    """A decoder of GPT-2's kind.

    Args:
        config: Sizes and variants.
    """

    config: GPT2Config

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.position_embedding = nn.Embedding(config.positions, config.hidden)
        self.layers = nn.ModuleList(GPT2Block(config, i) for i in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.unembedding = nn.Linear(config.hidden, config.vocabulary, bias=False)
        if config.tied_head:
            self.unembedding.weight = self.embedding.weight

    def blocks(self, tokens: torch.Tensor, cache: Attending) -> torch.Tensor:
        """Hidden states of tokens [B, T] that attend to ``cache``."""
        places = cache.positions().clamp(max=self.config.positions - 1)  # padding may lie behind the last position
        x = self.embedding(tokens) + self.position_embedding(places)
        for layer in self.layers:
            x = layer(x, cache)
        hidden: torch.Tensor = self.norm(x)
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocabulary] of hidden states."""
        logits: torch.Tensor = self.unembedding(hidden)
        return logits
