"""The model zoo: small networks of many kinds, none of which the other benchmarks know, in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from heavy_networks import CharacterGpt, Encoder
from torch import Tensor, nn
from workloads import Workload, characters_data, images_data, loss_of_places, tags_data, tokens_data


class TokenFeedForward(nn.Module):
    """Two linear layers per token; the first token, the last one or their mean is classified."""

    def __init__(self, width: int, pool: str, relu: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.classify = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Linear(width, 2),
        )
        self.pool, self.relu = pool, relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        x = self.down(F.relu(x) if self.relu else x)
        pooled = {"first": lambda: x[:, 0], "last": lambda: x[:, -1], "mean": lambda: x.mean(1)}[self.pool]()
        return self.classify(pooled)


class ResidualBlock(nn.Module):
    """A bottleneck of 1x1, 3x3 and 1x1 convolutions with batch norms, as in ResNet-50, behind a stem."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 4
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.classify = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(x + self.body(x))
        return self.classify(x.mean((2, 3)))


def vgg() -> nn.Module:
    """Convolutions and max-pools, then linear layers."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 8 * 8, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def mobile() -> nn.Module:
    """Depthwise and pointwise convolutions, as in MobileNet."""

    def separable(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.BatchNorm2d(inputs), nn.ReLU6(),
            nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU6(),
        ]  # fmt: skip

    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU6(), *separable(32, 64, 1), *separable(64, 64, 2), *head)


class UNetBlock(nn.Module):
    """Down, up again, and a skip: pooling, upsampling by repeated pixels, and a concatenation of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.below = nn.Conv2d(channels, 2 * channels, 3, padding=1)
        self.last = nn.Conv2d(3 * channels, channels, 3, padding=1)
        self.classify = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.first(x))
        below = F.relu(self.below(F.avg_pool2d(first, 2)))
        batch, channels, height, width = below.shape
        wide = below[:, :, :, None, :, None].expand(batch, channels, height, 2, width, 2)
        joined = torch.cat([first, wide.reshape(batch, channels, 2 * height, 2 * width)], 1)
        return self.classify(F.relu(self.last(joined)).mean((2, 3)))


class Mixer(nn.Module):
    """MLP-Mixer: linear layers along tokens and along features in turn, with transposes between."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.across = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.classify = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.along(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.across(self.norm2(x))
        return self.classify(x.mean(1))


class Vit(nn.Module):
    """Patches by a strided convolution, positions, and one encoder layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.places = nn.Parameter(torch.zeros(1, 64, width))
        self.encoder = Encoder(width, 1, 4)
        self.encoder.classify = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(self.patches(x).flatten(2).transpose(1, 2) + self.places)


class LastToken(nn.Module):
    """One attention layer of which the last token goes on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm, self.classify = nn.LayerNorm(width), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.classify(x[:, -1])


class DeepSets(nn.Module):
    """A network per element of a set, their sum, and a network of that."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.element = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.whole = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(self.element(x).sum(1))


class WindowTagger(nn.Module):
    """A tag for every word, from the embeddings of the word and of its neighbours."""

    def __init__(self, words: int, width: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.hidden, self.classify = nn.Linear(3 * width, 2 * width), nn.Linear(2 * width, tags)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(self.embedding(x), (0, 0, 1, 1))
        windows = torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], 2)
        return self.classify(torch.tanh(self.hidden(windows)))


def autoencoder() -> nn.Module:
    """Linear layers that get narrow and wide again."""
    sizes = (256, 128, 32, 128, 256)
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.SiLU())]
    return nn.Sequential(*layers[:-1])


def same_data(width: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Vectors that are their own targets."""

    def make(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, width, generator=torch.Generator().manual_seed(0))
        return x, x

    return make


_TOKENS = tokens_data(32, 64)
_IMAGES = images_data(32)
_ENTROPY = F.cross_entropy

ZOO = (
    Workload("ffn-first", 16, 2, lambda: TokenFeedForward(64, "first"), _ENTROPY, _TOKENS),
    Workload("ffn-mean", 16, 2, lambda: TokenFeedForward(64, "mean"), _ENTROPY, _TOKENS),
    Workload("ffn-relu", 16, 2, lambda: TokenFeedForward(64, "mean", relu=True), _ENTROPY, _TOKENS),
    Workload("encoder", 8, 2, lambda: Encoder(64, 1, 4), _ENTROPY, _TOKENS),
    Workload("gpt", 4, 2, lambda: CharacterGpt(64, 32, 64, 1, 4), loss_of_places, characters_data(32, 64)),
    Workload("resnet-block", 4, 2, lambda: ResidualBlock(64), _ENTROPY, _IMAGES),
    Workload("vgg", 4, 2, vgg, _ENTROPY, _IMAGES),
    Workload("mobile", 4, 2, mobile, _ENTROPY, _IMAGES),
    Workload("unet-block", 4, 2, lambda: UNetBlock(16), _ENTROPY, _IMAGES),
    Workload("tagger", 8, 2, lambda: WindowTagger(500, 64, 12), loss_of_places, tags_data(24, 500, 12)),
    Workload("mixer", 8, 2, lambda: Mixer(32, 64), _ENTROPY, _TOKENS),
    Workload("vit", 4, 2, lambda: Vit(64), _ENTROPY, _IMAGES),
    Workload("autoencoder", 64, 2, autoencoder, F.mse_loss, same_data(256)),
    Workload("last-token", 8, 2, lambda: LastToken(64), _ENTROPY, _TOKENS),
    Workload("deep-sets", 16, 2, lambda: DeepSets(64), _ENTROPY, _TOKENS),
)
