"""BERT over rows that hold several sequences each: what packing changes of the model, and nothing else.

A row of 512 tokens holds one sequence and padding, or a pack of sequences. Tokens see those of their own sequence
alone, positions start again in each, the losses are weighed by sequence, and the order of segments is told from the
first token of each sequence.

Source: Krell et al., Efficient Sequence Packing without Cross-contamination (2021), section 3.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from abele.frontends.poptorch.program.losses import identity_loss
from abele.garden.models.bert import EncoderLayer


class PackedBert(nn.Module):
    """BERT with both losses of pre-training, over rows of one or of several sequences.

    Args:
        vocabulary: Tokens that there are.
        width: Elements per position.
        layers: Layers of the encoder.
        heads: Attention heads.
        positions: Longest sequence.
        sequences: What losses are divided by: the sequences that the rows of a call hold on average.
    """

    def __init__(
        self, vocabulary: int, *, width: int, layers: int, heads: int, positions: int, sequences: float
    ) -> None:
        super().__init__()
        self.sequences = sequences
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([EncoderLayer(width, heads) for _ in range(layers)])
        self.transform = nn.Linear(width, width)
        self.transform_norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.pool = nn.Linear(width, width)
        self.in_order = nn.Linear(width, 2)
        for module in self.modules():
            if isinstance(module, nn.Embedding | nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def encoded(self, tokens: Tensor, segments: Tensor, positions: Tensor, ids: Tensor) -> Tensor:
        """[rows, row_tokens, width] of four arrays [rows, row_tokens]; ``ids`` numbers the sequences of a row."""
        x: Tensor = self.norm(self.tokens(tokens) + self.positions(positions) + self.segments(segments))
        same = ids[:, None, :, None] == ids[:, None, None, :]
        for layer in self.layers:
            x = layer(x, same)
        return x

    def sequence_losses(
        self, x: Tensor, masked: tuple[Tensor, Tensor, Tensor], firsts: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Weighed losses of masked tokens [rows, masked] and of the order of segments [rows, depth].

        Args:
            x: Encodings, [rows, row_tokens, width].
            masked: Places of masked tokens, which tokens they were, and weights, [rows, masked] each.
            firsts: Places of first tokens, whether the segments are in order, and weights, [rows, depth] each.
        """
        places, labels, weights = masked
        guesses = self.transform_norm(F.gelu(self.transform(_at(x, places))))
        scores = F.linear(guesses, self.tokens.weight, self.bias)
        words = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(weights) * weights
        places, labels, weights = firsts
        scores = self.in_order(torch.tanh(self.pool(_at(x, places))))
        order = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(weights) * weights
        return words, order

    def forward(self, *rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over sequences of both losses, and the loss: their total by the mean number of sequences.

        ``rows`` are the four arrays of :meth:`encoded`, then those of :meth:`sequence_losses`.
        """
        x = self.encoded(*rows[:4])
        words, order = self.sequence_losses(x, rows[4:7], rows[7:10])
        words, order = words.sum(), order.sum()
        return words, order, identity_loss((words + order) / self.sequences, reduction="none")


def _at(x: Tensor, places: Tensor) -> Tensor:
    """The vectors of some places of each row, [rows, count, width]."""
    return torch.gather(x, 1, places[:, :, None].expand(-1, -1, x.shape[2]))
