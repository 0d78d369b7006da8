"""GPT-J, GPT-NeoX (Pythia, Dolly) and Phi: attention and the feed-forward part read the same residual stream."""

from __future__ import annotations

import torch
from torch import nn

from abele.llm.cache import Attending
from abele.llm.config import NeoXConfig
from abele.llm.models.causal import CausalModel
from abele.llm.models.parts import FeedForward, Projections
from abele.llm.models.rotary import RotaryTurn, Turn


class NeoXAttention(Projections):
    """Attention with rotary embeddings of a part of the channels."""

    def __init__(self, config: NeoXConfig, layer: int) -> None:
        super().__init__(config, query_bias=config.query_bias, out_bias=config.out_bias)
        self.layer = layer

    def forward(self, x: torch.Tensor, rotary: RotaryTurn, turn: Turn, cache: Attending) -> torch.Tensor:
        """Attention of x [B, T, hidden] to what ``cache`` holds."""
        q, k, v = self.projected(x)
        return self.output(cache.attend(self.layer, *rotary.both_turned(q, k, turn), v))


class NeoXBlock(nn.Module):
    """Attention and a feed-forward part, beside each other or one after the other."""

    def __init__(self, config: NeoXConfig, layer: int) -> None:
        super().__init__()
        self.parallel, self.two_norms = config.parallel, config.two_norms
        self.attention_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.attention = NeoXAttention(config, layer)
        if config.two_norms:
            self.wide_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.wide = FeedForward(config, bias=True)

    def forward(self, x: torch.Tensor, rotary: RotaryTurn, turn: Turn, cache: Attending) -> torch.Tensor:
        """The residual stream after this block."""
        normed = self.attention_norm(x)
        after: torch.Tensor = x + self.attention(normed, rotary, turn, cache)
        if self.two_norms:
            normed = self.wide_norm(x if self.parallel else after)
        out: torch.Tensor = after + self.wide(normed)
        return out


class NeoX(CausalModel):
    """A decoder of GPT-NeoX's or GPT-J's kind.

    Args:
        config: Sizes and variants.
    """

    config: NeoXConfig

    def __init__(self, config: NeoXConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.rotary = RotaryTurn(config.rotary, config.head_size, config.positions)
        self.layers = nn.ModuleList(NeoXBlock(config, i) for i in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.unembedding = nn.Linear(config.hidden, config.vocabulary, bias=config.head_bias)
        if config.tied_head:
            self.unembedding.weight = self.embedding.weight

    def blocks(self, tokens: torch.Tensor, cache: Attending) -> torch.Tensor:
        """Hidden states of tokens [B, T] that attend to ``cache``."""
        x = self.embedding(tokens)
        turn = self.rotary(cache.positions(), x.dtype)
        for layer in self.layers:
            x = layer(x, self.rotary, turn, cache)
        hidden: torch.Tensor = self.norm(x)
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocabulary] of hidden states."""
        logits: torch.Tensor = self.unembedding(hidden)
        return logits
