"""Networks that only the benchmark of ONNX models has, in plain PyTorch: inference, without a loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from model_zoo import ModelEntry
from torch import Tensor, nn

WORDS = 1000


class Crnn(nn.Module):
    """A reader of text lines: convolutions, a recurrent network along the line, classes per column."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 32, 64, 128, 128)
        self.blocks = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.rows = nn.LSTM(256, 128, 2, bidirectional=True)
        self.classes = nn.Linear(256, 37)

    def forward(self, x: Tensor) -> Tensor:
        """Logarithms of probabilities [columns, batch, classes]."""
        for number, block in enumerate(self.blocks):
            x = F.max_pool2d(F.relu(block(x)), 2 if number < 2 else (2, 1) if number < 4 else 1)
        return F.log_softmax(self.classes(self.rows(x.flatten(1, 2).permute(2, 0, 1))[0]), -1)


class Stem(nn.Module):
    """The first layers of a residual network and one block."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.a, self.b = nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.Conv2d(64, 64, 3, padding=1, bias=False)
        self.after_a, self.after_b = nn.BatchNorm2d(64), nn.BatchNorm2d(64)

    def forward(self, x: Tensor) -> Tensor:
        """Features [batch, 64, height / 4, width / 4]."""
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return F.relu(x + self.after_b(self.b(F.relu(self.after_a(self.a(x))))))


class GraphSums(nn.Module):
    """A graph convolution over given edges: sums of neighbours by ``index_add``."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 7)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logarithms of probabilities [nodes, 7]."""
        for layer in (self.a, self.b):
            h = layer(x)
            x = torch.zeros_like(h).index_add(0, edges[1], h[edges[0]]).relu()
        return x.log_softmax(-1)


class Tied(nn.Module):
    """A language model of two layers whose embedding is its last layer as well."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Parameter(torch.randn(32, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.layers, self.norm = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.LayerNorm(width)

    def forward(self, words: Tensor) -> Tensor:
        """Logits [batch, places, words]."""
        return self.norm(self.layers(self.words(words) + self.places)) @ self.words.weight.T


class Experts(nn.Module):
    """Four perceptrons, of which each token takes the two best, by products with all."""

    def __init__(self, width: int = 64, count: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, width, 4 * width) * 0.05)
        self.down = nn.Parameter(torch.randn(count, 4 * width, width) * 0.05)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [tokens, width]."""
        shares = self.gate(x).softmax(-1)
        best, which = shares.topk(2, -1)
        shares = torch.zeros_like(shares).scatter(-1, which, best)
        hidden = torch.einsum("td,ndh->nth", x, self.up).relu()
        return torch.einsum("ntd,tn->td", torch.einsum("nth,nhd->ntd", hidden, self.down), shares)


class Twins(nn.Module):
    """One perceptron on two inputs, and how alike its results are."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Cosines [batch]."""
        return F.cosine_similarity(self.net(a), self.net(b))


class Wave(nn.Module):
    """Dilated causal convolutions with gates, as generators of sound have."""

    def __init__(self, width: int = 32, depth: int = 6) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, width, 1), nn.Conv1d(width, 64, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**n) for n in range(depth))
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, 64, samples]."""
        x = self.first(x)
        total = torch.zeros_like(x)
        for layer, mix in zip(self.layers, self.mixes, strict=True):
            a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            made = mix(torch.tanh(a) * torch.sigmoid(b))
            total, x = total + made, x + made
        return self.last(F.relu(total))


class Points(nn.Module):
    """A classifier of point clouds: one perceptron for all points, their largest features."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 256, 1), nn.ReLU())
        self.whole = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, 10]."""
        return self.whole(self.each(x).amax(-1))


class Upscaler(nn.Module):
    """Pictures of three times the size, by convolutions and a shuffle of pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(1, 64, 5, 1, 2), nn.Conv2d(64, 32, 3, 1, 1), nn.Conv2d(32, 9, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Pictures [batch, 1, 3 height, 3 width]."""
        return F.pixel_shuffle(self.c(torch.tanh(self.b(torch.tanh(self.a(x))))), 3)


class Rotary(nn.Module):
    """A layer of a decoder with rotary positions, groups of heads, norms of squares and a gate."""

    def __init__(self, width: int = 128, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)
        self.before, self.between = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))

    @staticmethod
    def _normed(x: Tensor, scale: Tensor) -> Tensor:
        # Written out, since the older exporter knows no norm of squares.
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * scale

    def _turned(self, x: Tensor) -> Tensor:
        half, length = self.size // 2, x.shape[-2]
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, places, width]."""
        batch, length, width = x.shape
        n = self._normed(x, self.before)
        q = self.q(n).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(n).view(batch, length, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (self._turned(k), v))
        scores = self._turned(q) @ k.transpose(-1, -2) / math.sqrt(self.size)
        shares = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf).softmax(-1)
        x = x + self.o((shares @ v).transpose(1, 2).reshape(batch, length, width))
        n = self._normed(x, self.between)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


def _normal(*shapes: tuple[int, ...]) -> Callable[[int, torch.Generator], tuple[Tensor, ...]]:
    return lambda batch, generator: tuple(torch.randn((batch, *shape), generator=generator) for shape in shapes)


def _entry(name: str, batch: int, network: Callable[[], nn.Module], data: Any) -> ModelEntry:
    return ModelEntry(name, batch, network, data)


NETWORKS = [
    _entry("crnn", 4, Crnn, _normal((1, 32, 128))),
    _entry("resnet-stem", 2, Stem, _normal((3, 112, 112))),
    _entry(
        "gcn-sums",
        512,
        GraphSums,
        lambda n, g: (torch.randn(n, 64, generator=g), torch.randint(0, n, (2, 4 * n), generator=g)),
    ),
    _entry("tied", 2, Tied, lambda n, g: (torch.randint(0, WORDS, (n, 32), generator=g),)),
    _entry("experts", 64, Experts, _normal((64,))),
    _entry("twins", 16, Twins, _normal((256,), (256,))),
    _entry("wave", 4, Wave, _normal((1, 512))),
    _entry("points", 4, Points, _normal((3, 256))),
    _entry("upscaler", 2, Upscaler, _normal((1, 64, 64))),
    _entry("rotary", 2, Rotary, _normal((64, 128))),
]
