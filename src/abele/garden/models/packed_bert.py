"""BERT over rows that hold several sequences each: what packing changes of the model, and nothing else.

A row of 512 tokens holds one sequence and padding, or a pack of sequences. Tokens see those of their own sequence
alone, positions start again in each, the losses are weighed by sequence, and the order of segments is told from the
first token of each sequence.

Source: Krell et al., Efficient Sequence Packing without Cross-contamination (arXiv 2107.02027), section 3.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from abele.frontends.poptorch.program.losses import identity_loss
from abele.garden.models.bert import EncoderLayer

INPUTS = (
    "input_ids",
    "token_type_ids",
    "position_ids",
    "sequence_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "loss_weights",
    "cls_places",
    "next_sentence_labels",
)
"""Arrays of rows that the model reads, in this order; see :func:`abele.packing.tasks.bert.bert_pretraining_recipe`."""
IGNORED = -100
"""The label of places in which a row has no masked token, or no sequence."""


class PackedBert(nn.Module):
    """BERT with both losses of pre-training, over rows of one or of several sequences.

    Positions start as sines and cosines, from which attention finds neighbours sooner, and are trained.

    Args:
        vocabulary: Tokens that there are.
        width: Elements per position.
        layers: Layers of the encoder.
        heads: Attention heads.
        positions: Longest sequence.
        sequences: Divisor of losses: the sequences that the rows of a call hold on average.
        packed: True: tokens see those of their own sequence. False, for rows of one sequence each: all see what is not
            padding, by a mask of one row. Losses are the same.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int,
        layers: int,
        heads: int,
        positions: int,
        sequences: float,
        packed: bool = True,
    ) -> None:
        super().__init__()
        self.sequences, self.packed = sequences, packed
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
        self.positions.weight.data.copy_(waves(positions, width))

    def encoded(self, tokens: Tensor, segments: Tensor, positions: Tensor, ids: Tensor) -> Tensor:
        """[rows, row_tokens, width] of four arrays [rows, row_tokens].

        ``ids`` numbers the sequences of a row from 1 on; 0 is padding.
        """
        x: Tensor = self.norm(self.tokens(tokens) + self.positions(positions) + self.segments(segments))
        keys = ids[:, None, None, :]
        seen = ids[:, None, :, None] == keys if self.packed else keys > 0
        for layer in self.layers:
            x = layer(x, seen)
        return x

    def losses(self, *rows: Tensor) -> tuple[Tensor, Tensor]:
        """Weighed losses of masked tokens [rows, masked] and of the order of segments [rows, depth].

        Those of a sequence's masked tokens add up to its mean loss. ``rows`` are :data:`INPUTS`.
        """
        x = self.encoded(*rows[:4])
        places, labels, weights, firsts, order = rows[4:]
        guesses = self.transform_norm(F.gelu(self.transform(_at(x, places))))
        words = _losses(F.linear(guesses, self.tokens.weight, self.bias), labels) * weights
        return words, _losses(self.in_order(torch.tanh(self.pool(_at(x, firsts)))), order)

    def forward(self, *rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over sequences of both losses, and the loss: their total by the mean number of sequences."""
        words, order = (part.sum() for part in self.losses(*rows))
        return words, order, identity_loss((words + order) / self.sequences, reduction="none")


def waves(positions: int, width: int) -> Tensor:
    """Sines and cosines of positions, of the size of other embeddings, [positions, width].

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.5.
    """
    number = torch.arange((width + 1) // 2)
    angles = torch.arange(positions)[:, None] / 10_000.0 ** (2 * number / width)
    return 0.02 * 2**0.5 * torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]


def _at(x: Tensor, places: Tensor) -> Tensor:
    """The vectors of some places of each row, [rows, count, width]."""
    return torch.gather(x, 1, places[:, :, None].expand(-1, -1, x.shape[2]))


def _losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of scores [rows, count, classes] at each place, [rows, count]; 0 of ignored ones."""
    losses = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED)
    return losses.view(labels.shape)
