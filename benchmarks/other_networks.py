"""Networks of other widths, depths and kinds than those that the project's own work looked at, in plain PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Tokens over the root of their mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens of the same shape."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale


class GatedBlock(nn.Module):
    """A decoder layer without biases whose feed-forward part is gated by SiLU; keys and values are shared by heads."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.groups, self.depth = heads, groups, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, groups * self.depth, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape, [batch, tokens, width]."""
        y = self.norm1(x)
        q, k, v = (self._heads(layer(y)) for layer in (self.query, self.key, self.value))
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self.depth)).transpose(1, 2)


class GatedDecoder(nn.Module):
    """A decoder of gated layers over ``words``."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(GatedBlock(width, 6, 2, width * 8 // 3) for _ in range(layers)))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Logits [batch, length, words] of the word after each of text [batch, length]."""
        logits: Tensor = self.head(self.norm(self.blocks(self.words(text))))
        return logits


def wide_mlp(width: int, layers: int, classes: int) -> nn.Module:
    """Wide linear layers, each with batch norm and ReLU."""
    hidden = [nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()) for _ in range(layers)]
    return nn.Sequential(*hidden, nn.Linear(width, classes))


def image_coder(width: int) -> nn.Module:
    """An encoder-decoder: two halvings of an image by strided convolutions, and two doublings back."""

    def down(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 4, 2, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())

    def up(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 4, 2, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())

    middle = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.SiLU())
    return nn.Sequential(
        down(3, width), down(width, 2 * width), middle, up(2 * width, width), up(width, width), nn.Conv2d(width, 3, 1)
    )


def depthwise(inputs: int, outputs: int, stride: int) -> nn.Module:
    """A depthwise convolution of 5x5 and a pointwise one, each with batch norm and a bounded ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 5, stride, padding=2, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU6(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )


def depthwise_cnn(classes: int) -> nn.Module:
    """A stem and four separable layers."""
    sizes = ((24, 48, 2), (48, 96, 1), (96, 96, 2), (96, 180, 1))
    layers = [depthwise(*size) for size in sizes]
    stem = nn.Conv2d(3, 24, 3, padding=1)
    return nn.Sequential(stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(180, classes))


class DenseGraphNetwork(nn.Module):
    """Layers over graphs whose edges are a matrix; a sample has its edges and its nodes' features side by side."""

    def __init__(self, nodes: int, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.nodes = nodes
        sizes = ((features, width), (width, width), (width, width))
        self.own = nn.ModuleList(nn.Linear(*size) for size in sizes)
        self.others = nn.ModuleList(nn.Linear(*size, bias=False) for size in sizes)
        self.classify = nn.Linear(width, classes)

    def forward(self, graph: Tensor) -> Tensor:
        """Logits [batch, classes] of graphs [batch, nodes, nodes + features]."""
        edges, x = torch.softmax(graph[:, :, : self.nodes], -1), graph[:, :, self.nodes :]
        for own, others in zip(self.own, self.others, strict=True):
            x = F.elu(own(x) + edges @ others(x))
        logits: Tensor = self.classify(x.amax(dim=1))
        return logits
