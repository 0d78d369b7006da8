"""The two networks that are trained in four precisions: a decoder of characters, and a small BERT of masked ones.

Their losses are computed in float32, whatever they are in.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from abele.garden.models.bert import EncoderLayer
from abele.garden.models.gpt2 import DecoderLayer, PositionedTokens


class CharacterGpt(nn.Module):
    """A decoder, and its loss of the next character.

    Args:
        vocabulary: Characters that there are.
        width: Elements per position.
        layers: Layers of the decoder.
        heads: Attention heads.
        positions: Length of a window.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, positions: int) -> None:
        super().__init__()
        self.embeddings = PositionedTokens(vocabulary, width, positions)
        self.layers = nn.ModuleList([DecoderLayer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary)

    def forward(self, text: Tensor, following: Tensor) -> Tensor:
        """The mean loss of characters that follow text, both [batch, positions]."""
        x = self.embeddings(text)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.scores(self.norm(x)).float().flatten(0, 1), following.flatten())


class MaskedBert(nn.Module):
    """An encoder, and its loss of masked characters.

    Args:
        vocabulary: Characters that there are; one more stands for masked ones.
        width: Elements per position.
        layers: Layers of the encoder.
        heads: Attention heads.
        positions: Length of a window.

    Source: Devlin et al., BERT (2019), section 3, without the second loss; sizes of BERT-Mini: Turc et al., Well-Read
    Students Learn Better (2019).
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, positions: int) -> None:
        super().__init__()
        self.embeddings = PositionedTokens(vocabulary + 1, width, positions)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([EncoderLayer(width, heads) for _ in range(layers)])
        self.transform = nn.Linear(width, width)
        self.last_norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary)

    def forward(self, text: Tensor, places: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of the characters ``labels`` at ``places``, [batch, masked], of text [batch, positions]."""
        x = self.norm(self.embeddings(text))
        for layer in self.layers:
            x = layer(x)
        chosen = torch.gather(x, 1, places[:, :, None].expand(-1, -1, x.shape[2]))
        scores = self.scores(self.last_norm(F.gelu(self.transform(chosen))))
        return F.cross_entropy(scores.float().flatten(0, 1), labels.flatten())
