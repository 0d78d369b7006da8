"""Networks made of large matrix products, in plain PyTorch, as the benchmarks train them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class FeedForward(nn.Module):
    """Two wide linear layers per token, and a classifier on the first token or on the mean of all.

    Args:
        width: Features of a token; the hidden layer has four times as many.
        first: True if the first token is classified, False for the mean over tokens.
    """

    def __init__(self, width: int, *, first: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.classify = nn.Linear(width, 2)
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, 2] of tokens [batch, tokens, width]."""
        x = self.down(self.up(x))
        logits: Tensor = self.classify(x[:, 0] if self.first else x.mean(dim=1))
        return logits


class Encoder(nn.Module):
    """PyTorch's own encoder layers with GELU and dropout, and a classifier on the mean over tokens."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, activation="gelu", batch_first=True)
            for _ in range(layers)
        )
        self.classify = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, 2] of tokens [batch, tokens, width]."""
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.classify(x.mean(dim=1))
        return logits


class CausalBlock(nn.Module):
    """A decoder layer as small GPTs have it: norm first, one linear layer for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape, [batch, tokens, width]."""
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharacterGpt(nn.Module):
    """A GPT over characters.

    Args:
        characters: In the alphabet.
        length: Characters of a text.
        width: Features of a character.
        layers: Decoder layers.
        heads: Attention heads of each.
    """

    def __init__(self, characters: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(characters, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(CausalBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Logits [batch, length, characters] of the character after each of text [batch, length]."""
        x = self.characters(text) + self.places
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class BasicBlock(nn.Module):
    """ResNet's block of two 3x3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        shortcut = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential(*(() if same else shortcut))

    def forward(self, x: Tensor) -> Tensor:
        """Features [batch, outputs, height / stride, width / stride]."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(classes: int, *, stem: int) -> nn.Module:
    """ResNet-18: a stem of 7 is ImageNet's; one of 3, for small images, has no stride and no pooling after it."""
    large = stem == 7
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, stem, 2 if large else 1, padding=stem // 2, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *([nn.MaxPool2d(3, 2, padding=1)] if large else []),
    ]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        layers += [BasicBlock(inputs, outputs, 1 if outputs == 64 else 2), BasicBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Tagger(nn.Module):
    """A tag for every word of a sentence: an embedding, LSTM layers, a linear layer."""

    def __init__(self, words: int, width: int, layers: int, tags: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.tags = nn.Linear(width, tags)

    def forward(self, sentence: Tensor) -> Tensor:
        """Logits [batch, length, tags] of word numbers [batch, length]."""
        states, _ = self.lstm(self.words(sentence))
        logits: Tensor = self.tags(states)
        return logits
