"""A GPT as the original, and how it is split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from abele.frontends.poptorch.functions.tensor_parallel import ColumnSplit


@dataclass(frozen=True)
class GptConfig:
    """The size of a model."""

    vocabulary: int = 50_257
    tokens: int = 1_024
    width: int = 768
    heads: int = 12
    layers: int = 12
    dropout: float = 0.0


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        dropout = self.dropout if self.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and feed-forward, each before a norm."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(config.width), Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.up, self.down = nn.Linear(config.width, 4 * config.width), nn.Linear(4 * config.width, config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Gpt(nn.Module):
    """Tokens in, scores of the next ones out; the table of tokens is the last layer too."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.tokens, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.loss = nn.CrossEntropyLoss()
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02 if config.width > 64 else 0.3)
            elif name.endswith("bias"):
                nn.init.normal_(parameter, std=0.1)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        hidden = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        scores = self.head(self.norm(hidden))
        if labels is None:
            return scores
        return hidden, self.loss(scores.flatten(0, 1), labels.flatten())


PLAN = {
    "tokens": "vocabulary",
    "head": "vocabulary_gather",
    "blocks.*.attention.heads": "divide",
    "blocks.*.attention.qkv": ColumnSplit(blocks=3),
    "blocks.*.attention.out": "row",
    "blocks.*.up": "column",
    "blocks.*.down": "row",
}
TRAINED = {**PLAN, "head": "vocabulary", "loss": "vocabulary"}
