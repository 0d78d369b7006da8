"""BERT with its pre-training losses: masked tokens, and whether the second sentence follows the first."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from abele.frontends.poptorch.program.losses import identity_loss
from abele.garden.models.attention import SelfAttention

_HIDDEN = -10_000.0
"""Number added to the scores of positions that are not to be seen: it fits in float16."""


class TokenEmbeddings(nn.Module):
    """Sums of the embeddings of tokens, positions and segments, normalised.

    Args:
        vocabulary: Tokens that there are.
        width: Elements per position.
        positions: Longest sequence.
    """

    def __init__(self, vocabulary: int, width: int, positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """[batch, positions, width] of token and segment numbers [batch, positions]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        made: Tensor = self.norm(self.tokens(tokens) + self.positions(places) + self.segments(segments))
        return made


class EncoderAttention(nn.Module):
    """The first half of an encoder layer: attention, added to its input, and normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads, causal=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[batch, positions, width] of the same shape."""
        made: Tensor = self.norm(x + self.attention(x, mask))
        return made


class EncoderFeedForward(nn.Module):
    """The second half of an encoder layer: two linear layers with GELU, added to their input, and normalised."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, positions, width] of the same shape."""
        made: Tensor = self.norm(x + self.narrow(F.gelu(self.widen(x))))
        return made


class EncoderLayer(nn.Module):
    """A layer of the encoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attended = EncoderAttention(width, heads)
        self.feed_forward = EncoderFeedForward(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[batch, positions, width] of the same shape."""
        made: Tensor = self.feed_forward(self.attended(x, mask))
        return made


class PretrainingHead(nn.Module):
    """The losses of pre-training, from the encoder's output.

    Args:
        width: Elements per position.
        tokens: The embedding of tokens, whose weights decide between them, too.
    """

    def __init__(self, width: int, tokens: nn.Embedding) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.decode = nn.Linear(width, tokens.num_embeddings)
        self.decode.weight = tokens.weight
        self.pool = nn.Linear(width, width)
        self.follows = nn.Linear(width, 2)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: Tensor, places: Tensor, labels: Tensor, follows: Tensor) -> Tensor:
        """The sum of both losses, of encodings [batch, positions, width].

        ``places`` and ``labels``, [batch, masked], say where tokens were masked and which; ``follows`` is [batch].
        """
        chosen = torch.gather(x, 1, places[:, :, None].expand(-1, -1, x.shape[2]))
        guesses = self.decode(self.norm(F.gelu(self.transform(chosen))))
        pair = self.follows(torch.tanh(self.pool(x[:, 0])))
        masked = self.loss(guesses.flatten(0, 1), labels.flatten())
        return identity_loss(masked + F.cross_entropy(pair, follows), reduction="none")


class BertPretraining(nn.Module):
    """BERT as it is pre-trained.

    Args:
        vocabulary: Tokens that there are.
        width: Elements per position.
        layers: Layers of the encoder.
        heads: Attention heads.
        positions: Longest sequence.

    Source: Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers (2019), section 3.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, positions: int) -> None:
        super().__init__()
        self.embeddings = TokenEmbeddings(vocabulary, width, positions)
        self.layers = nn.ModuleList([EncoderLayer(width, heads) for _ in range(layers)])
        self.head = PretrainingHead(width, self.embeddings.tokens)

    def forward(
        self, tokens: Tensor, segments: Tensor, mask: Tensor, places: Tensor, labels: Tensor, follows: Tensor
    ) -> Tensor:
        """The loss; ``mask`` is 1 where a position holds a token, [batch, positions]."""
        x = self.embeddings(tokens, segments)
        hidden = ((1 - mask.to(x.dtype)) * _HIDDEN)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, hidden)
        loss: Tensor = self.head(x, places, labels, follows)
        return loss
