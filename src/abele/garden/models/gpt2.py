"""GPT-2 with the loss of the next token."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from abele.garden.models.attention import SelfAttention


class PositionedTokens(nn.Module):
    """Sums of the embeddings of tokens and positions."""

    def __init__(self, vocabulary: int, width: int, positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, positions, width] of token numbers [batch, positions]."""
        made: Tensor = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return made


class DecoderAttention(nn.Module):
    """The first half of a layer: its input plus attention to its normalised form."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal=True)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, positions, width] of the same shape."""
        return x + self.attention(self.norm(x))  # type: ignore[no-any-return]


class DecoderFeedForward(nn.Module):
    """The second half of a layer: its input plus two linear layers with GELU of its normalised form."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, positions, width] of the same shape."""
        return x + self.narrow(F.gelu(self.widen(self.norm(x)), approximate="tanh"))  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """A layer of the decoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attended = DecoderAttention(width, heads)
        self.feed_forward = DecoderFeedForward(width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, positions, width] of the same shape."""
        made: Tensor = self.feed_forward(self.attended(x))
        return made


class NextTokenHead(nn.Module):
    """The loss of the next token, decided by the weights that embed tokens."""

    def __init__(self, width: int, tokens: nn.Embedding) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.decode = nn.Linear(width, tokens.num_embeddings, bias=False)
        self.decode.weight = tokens.weight
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss, of [batch, positions, width] and the token that follows each, [batch, positions]."""
        return self.loss(self.decode(self.norm(x)).flatten(0, 1), labels.flatten())  # type: ignore[no-any-return]


class Gpt2(nn.Module):
    """GPT-2 as it is trained.

    Args:
        vocabulary: Tokens that there are.
        width: Elements per position.
        layers: Layers of the decoder.
        heads: Attention heads.
        positions: Longest sequence.

    Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), section 2.3.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, positions: int) -> None:
        super().__init__()
        self.embeddings = PositionedTokens(vocabulary, width, positions)
        self.layers = nn.ModuleList([DecoderLayer(width, heads) for _ in range(layers)])
        self.head = NextTokenHead(width, self.embeddings.tokens)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The loss, of token numbers and the tokens that follow each, [batch, positions]."""
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        loss: Tensor = self.head(x, labels)
        return loss
