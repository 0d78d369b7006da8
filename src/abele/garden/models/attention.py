"""Self-attention over sequences, as encoders and decoders share it."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Attention of each position of a sequence to all others, or to those before it.

    Args:
        width: Elements per position.
        heads: Attention heads, which divide the width.
        causal: True if a position sees itself and those before it alone.
    """

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention output of each position, [batch, positions, width], of ``x`` of that shape.

        ``mask`` is added to the scores; it is broadcast to [batch, heads, positions, positions].
        """
        parts = self.project(x).unflatten(2, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        made = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=self.causal)
        result: Tensor = self.output(made.transpose(1, 2).flatten(2))
        return result
