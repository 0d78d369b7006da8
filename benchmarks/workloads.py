"""The training workloads that the benchmarks measure: small networks, heavy ones of ``heavy_networks``, and others.

The others are of ``other_networks``, train by SGD, and are measured where they are asked for by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from heavy_networks import CharacterGpt, Encoder, FeedForward, Tagger, resnet18
from model_zoo.entry import WithLoss
from other_networks import DenseGraphNetwork, GatedDecoder, depthwise_cnn, image_coder, wide_mlp
from torch import Tensor, nn

from abele.garden.braggnn import simulate
from abele.garden.networks import BraggNetwork, DigitsNetwork

LEARNING_RATE = 1e-3


def adam(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Adam, of most workloads."""
    return torch.optim.Adam(parameters, lr=LEARNING_RATE)


def sgd(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.9)


@dataclass(frozen=True)
class Workload:
    """A model, a loss, a batch size, and where the data come from.

    Attributes:
        name: As it appears in results.
        batch: Samples of one update.
        steps: Updates of one timed call.
        network: Makes the model.
        loss: Loss of outputs and targets.
        data: Makes so many samples and targets.
        optimizer: Makes the optimiser of parameters.
    """

    name: str
    batch: int
    steps: int
    network: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    data: Callable[[int], tuple[Tensor, Tensor]]
    optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer] = adam

    def model(self, seed: int = 0) -> WithLoss:
        """The model with reproducible weights."""
        torch.manual_seed(seed)
        return WithLoss(self.network(), self.loss)

    def samples(self) -> tuple[Tensor, Tensor]:
        """Data of one timed call: ``batch * steps`` samples."""
        return self.data(self.batch * self.steps)


def mlp() -> nn.Module:
    """The multi-layer perceptron 942→1000→1000→1000→1."""
    sizes = (942, 1000, 1000, 1000)
    hidden = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], 1))


def digits_data(count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` handwritten digits, repeated where there are not enough."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    index = torch.arange(count) % len(digits.target)
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None]
    return images[index].contiguous(), torch.tensor(digits.target, dtype=torch.int64)[index]


def peaks_data(count: int) -> tuple[Tensor, Tensor]:
    """Simulated diffraction peaks."""
    patches, centres = simulate(count, seed=0)
    return torch.from_numpy(patches), torch.from_numpy(centres)


def mlp_data(count: int) -> tuple[Tensor, Tensor]:
    """Normally distributed features and the mean of each sample's as target."""
    features = torch.randn(count, 942, generator=torch.Generator().manual_seed(0))
    return features, features.mean(dim=1, keepdim=True)


def tokens_data(tokens: int, width: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Sequences of normally distributed tokens, and a class of two for each."""

    def make(count: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(count, tokens, width, generator=generator)
        return features, torch.randint(0, 2, (count,), generator=generator)

    return make


def features_data(width: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Normally distributed features, and a class of two for each sample."""

    def make(count: int) -> tuple[Tensor, Tensor]:
        features, classes = tokens_data(1, width)(count)
        return features[:, 0], classes

    return make


def copies_data(size: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Images of noise, each its own target."""

    def make(count: int) -> tuple[Tensor, Tensor]:
        images, _ = images_data(size)(count)
        return images, images

    return make


def images_data(size: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Images of three channels of noise, and a class of ten for each."""

    def make(count: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(count, 3, size, size, generator=generator)
        return images, torch.randint(0, 10, (count,), generator=generator)

    return make


def characters_data(length: int, characters: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Texts of ``length`` random characters, and for each place the character that follows."""

    def make(count: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        text = torch.randint(0, characters, (count, length + 1), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    return make


def tags_data(length: int, words: int, tags: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Sentences of ``length`` random words, and a tag for each word."""

    def make(count: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        sentences = torch.randint(0, words, (count, length), generator=generator)
        return sentences, torch.randint(0, tags, (count, length), generator=generator)

    return make


def loss_of_places(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of ``logits`` [batch, places, classes] with ``target`` [batch, places]."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


SMALL = (
    Workload("digits", 16, 89, DigitsNetwork, F.nll_loss, digits_data),
    Workload("braggnn", 512, 8, BraggNetwork, F.mse_loss, peaks_data),
    Workload("mlp", 32, 32, mlp, F.mse_loss, mlp_data),
)

HEAVY = (
    Workload("ffn-first", 4, 8, lambda: FeedForward(768, first=True), F.cross_entropy, tokens_data(128, 768)),
    Workload("ffn-mean", 4, 8, lambda: FeedForward(768, first=False), F.cross_entropy, tokens_data(128, 768)),
    Workload("encoder-256", 8, 4, lambda: Encoder(256, 4, 4), F.cross_entropy, tokens_data(128, 256)),
    Workload("encoder-768", 4, 2, lambda: Encoder(768, 2, 12), F.cross_entropy, tokens_data(128, 768)),
    Workload("gpt", 8, 1, lambda: CharacterGpt(65, 256, 384, 6, 6), loss_of_places, characters_data(256, 65)),
    Workload("resnet18-32", 16, 2, lambda: resnet18(10, stem=3), F.cross_entropy, images_data(32)),
    Workload("resnet18-224", 4, 1, lambda: resnet18(10, stem=7), F.cross_entropy, images_data(224)),
    Workload("lstm-tagger", 16, 4, lambda: Tagger(2000, 256, 2, 20), loss_of_places, tags_data(64, 2000, 20)),
)

OTHERS = (
    Workload("gated-decoder", 7, 2, lambda: GatedDecoder(300, 192, 3), loss_of_places, characters_data(96, 300), sgd),
    Workload("wide-mlp", 96, 4, lambda: wide_mlp(1500, 3, 2), F.cross_entropy, features_data(1500), sgd),
    Workload("image-coder", 10, 2, lambda: image_coder(32), F.mse_loss, copies_data(40), sgd),
    Workload("depthwise-48", 12, 2, lambda: depthwise_cnn(10), F.cross_entropy, images_data(48), sgd),
    Workload("graph-60", 33, 8, lambda: DenseGraphNetwork(60, 20, 112, 2), F.cross_entropy, tokens_data(60, 80), sgd),
)

DEFAULTS = (*SMALL, *HEAVY)
WORKLOADS = (*DEFAULTS, *OTHERS)
