"""Models that predict the next token."""

from __future__ import annotations

import torch
from torch import nn

from abele.llm.cache import Attending, PagedCache, WholeSequence
from abele.llm.config import ModelConfig


class CausalModel(nn.Module):
    """A model that predicts the next token.

    ``forward`` gives hidden states and ``head`` logits, since a prompt needs logits of its last position alone.
    """

    config: ModelConfig
    layers: nn.ModuleList

    def forward(self, tokens: torch.Tensor, cache: Attending | None = None) -> torch.Tensor:
        """Hidden states [B, T, hidden] after the last norm.

        Args:
            tokens: Numbers of tokens [B, T].
            cache: View of the cache to attend to; by default the tokens themselves.
        """
        return self.blocks(tokens, WholeSequence(tokens) if cache is None else cache)

    def blocks(self, tokens: torch.Tensor, cache: Attending) -> torch.Tensor:
        """Hidden states of tokens [B, T] that attend to ``cache``."""
        raise NotImplementedError

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocabulary] of hidden states."""
        raise NotImplementedError

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [B, T, vocabulary] of whole sequences."""
        return self.head(self(tokens))

    def step(
        self,
        tokens: torch.Tensor,
        first: torch.Tensor,
        table: torch.Tensor,
        cache: PagedCache,
        count: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits [B, vocabulary] of each sequence's last new token; the cache holds the new tokens afterwards.

        Args:
            tokens: New tokens [B, T].
            first: Position of each sequence's first new token, i32[B].
            table: Pages of each sequence, i32[B, P].
            cache: Keys and values of what came before.
            count: New tokens that count, i32[B]; by default T.
        """
        length = tokens.shape[1]
        hidden = self(tokens, cache.view(table, first, length, count))
        if count is None or length == 1:
            return self.head(hidden[:, -1])
        last = (count.long() - 1).clamp(min=0)[:, None, None].expand(-1, 1, hidden.shape[2])
        return self.head(hidden.gather(1, last)[:, 0])
