"""Llama, and Mistral, Qwen, Gemma, Granite and SmolLM by configuration.

A block adds attention and then a gated feed-forward part to the residual stream, each behind an RMS norm. Fewer heads
of keys and values than of queries (grouped queries) make the cache small: 3 of 9 in SmolLM2.
"""

from __future__ import annotations

import torch
from torch import nn

from abele.llm.cache import Attending
from abele.llm.config import LlamaConfig
from abele.llm.models.causal import CausalModel
from abele.llm.models.parts import GatedFeedForward, Projections
from abele.llm.models.rotary import RotaryTurn, Turn


class LlamaAttention(Projections):
    """Attention with grouped queries and rotary embeddings."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__(config, query_bias=config.query_bias, out_bias=config.out_bias)
        self.config, self.layer, self.window = config, layer, config.window_of(layer)
        if config.head_norms:
            self.query_norm = nn.RMSNorm(config.head_size, config.norm_eps)
            self.key_norm = nn.RMSNorm(config.head_size, config.norm_eps)

    def forward(self, x: torch.Tensor, rotary: RotaryTurn, turn: Turn, cache: Attending) -> torch.Tensor:
        """Attention of x [B, T, hidden] to what ``cache`` holds."""
        config = self.config
        q, k, v = self.projected(x)
        if config.head_norms:
            q, k = self.query_norm(q), self.key_norm(k)
        q, k = rotary.both_turned(q, k, turn)
        y = cache.attend(self.layer, q, k, v, scale=config.scale, window=self.window, softcap=config.score_softcap)
        return self.output(y)


class LlamaBlock(nn.Module):
    """Attention and a feed-forward part, each behind a norm."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.residual_scale = config.residual_scale
        self.attention_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.attention = LlamaAttention(config, layer)
        self.wide_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.wide = self.feed_forward(config)
        self.post_norms = config.post_norms
        if config.post_norms:
            self.post_attention_norm = nn.RMSNorm(config.hidden, config.norm_eps)
            self.post_wide_norm = nn.RMSNorm(config.hidden, config.norm_eps)

    def feed_forward(self, config: LlamaConfig) -> nn.Module:
        """The feed-forward part."""
        return GatedFeedForward(config, bias=config.wide_bias)

    def forward(self, x: torch.Tensor, rotary: RotaryTurn, turn: Turn, cache: Attending) -> torch.Tensor:
        """The residual stream after this block."""
        added = self.attention(self.attention_norm(x), rotary, turn, cache)
        x = x + self._scaled(self.post_attention_norm(added) if self.post_norms else added)
        added = self.wide(self.wide_norm(x))
        return x + self._scaled(self.post_wide_norm(added) if self.post_norms else added)

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.residual_scale == 1.0 else x * self.residual_scale


class Llama(CausalModel):
    """A decoder of Llama's kind.

    Args:
        config: Sizes and variants.
    """

    config: LlamaConfig

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.rotary = RotaryTurn(config.rotary, config.head_size, config.positions)
        self.layers = nn.ModuleList(self.block(config, i) for i in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.unembedding = nn.Linear(config.hidden, config.vocabulary, bias=False)
        if config.tied_head:
            self.unembedding.weight = self.embedding.weight

    def block(self, config: LlamaConfig, layer: int) -> LlamaBlock:
        """A block of this model."""
        return LlamaBlock(config, layer)

    def blocks(self, tokens: torch.Tensor, cache: Attending) -> torch.Tensor:
        """Hidden states of tokens [B, T] that attend to ``cache``."""
        x = self.embedding(tokens)
        if self.config.embedding_scale != 1.0:
            x = x * self.config.embedding_scale
        turn = self.rotary(cache.positions(), x.dtype)
        for layer in self.layers:
            x = layer(x, self.rotary, turn, cache)
        hidden: torch.Tensor = self.norm(x)
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocabulary] of hidden states."""
        logits: torch.Tensor = self.unembedding(hidden)
        if self.config.logit_scale != 1.0:
            logits = logits * self.config.logit_scale
        cap = self.config.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)
