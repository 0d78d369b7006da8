"""Image segmentation: which pixels of a photograph are ink, and of which digit?

Handwritten digits of scikit-learn, written in white over its two photographs, four to a scene. The label of a pixel
follows from the digit alone: its class where there is at least half of full ink. Held out are digits of other writers,
over parts of the photographs that training never saw. A small U-Net: convolutions and pooling down, transposed
convolutions up, with what was seen on the way down beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.arrays import Float32, Float64, Int64
from abele.garden.training import (
    DemoResult,
    DemoSettings,
    HeldOut,
    Predictor,
    Stopwatch,
    Training,
    WithLoss,
    options,
    weights_digest,
)

SIDE, DIGIT_SIDE = 32, 8
"""Pixels of a scene's and of a digit's side."""
TRAINING_DIGITS = 1437
"""The data set goes from writer to writer: the digits after so many are of other writers."""
TRAINING_PART = 0.7
"""Share of the width of each photograph, from its left side, behind the scenes to train on."""
HALF_INK = 8
NUM_CLASSES = 11
"""The photograph, and ten digits."""
WIDTH = 16
BATCH = 8
DEVICE_ITERATIONS = 10
NUM_TRAINING = 24 * BATCH * DEVICE_ITERATIONS
NUM_TEST = 256
TEST_BATCH = 32
EPOCHS = 7
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Scenes:
    """Photographs with digits written over them.

    Attributes:
        images: Red, green and blue from 0 to 1, [num_scenes, 3, SIDE, SIDE].
        labels: Class of each pixel, [num_scenes, SIDE, SIDE]: 0 for the photograph, 1 + digit for ink.
    """

    images: Float32
    labels: Int64

    @classmethod
    def drawn(
        cls, digits: npt.NDArray[np.floating], classes: Int64, pictures: list[Float64], count: int, seed: int
    ) -> Scenes:
        """Scenes drawn at random: a piece of a picture, and a digit at a random place in each of its quarters.

        Args:
            digits: Ink from 0 to 16, [num_digits, DIGIT_SIDE, DIGIT_SIDE].
            classes: Digit of each.
            pictures: Photographs [height, width, 3] from 0 to 1.
            count: Scenes.
            seed: Seed of all choices.
        """
        rng = np.random.default_rng(seed)
        images = np.empty((count, SIDE, SIDE, 3))
        labels = np.zeros((count, SIDE, SIDE), np.int64)
        for image, label in zip(images, labels, strict=True):
            picture = pictures[rng.integers(len(pictures))]
            top, left = (rng.integers(extent - SIDE + 1) for extent in picture.shape[:2])
            image[:] = picture[top : top + SIDE, left : left + SIDE]
            for corner in ((0, 0), (0, SIDE // 2), (SIDE // 2, 0), (SIDE // 2, SIDE // 2)):
                row, column = corner + rng.integers(SIDE // 2 - DIGIT_SIDE + 1, size=2)
                place = slice(row, row + DIGIT_SIDE), slice(column, column + DIGIT_SIDE)
                chosen = rng.integers(len(digits))
                ink = digits[chosen][:, :, None] / 16.0
                image[place] = image[place] * (1.0 - ink) + ink
                label[place] = np.where(digits[chosen] >= HALF_INK, 1 + classes[chosen], 0)
        return cls(images.transpose(0, 3, 1, 2).astype(np.float32), labels)


def load_data(seed: int) -> tuple[Scenes, Scenes]:
    """Scenes to train on, and others held out."""
    from sklearn.datasets import load_digits, load_sample_images

    data = load_digits()
    pictures = [picture / 255.0 for picture in load_sample_images().images]
    cuts = [round(TRAINING_PART * picture.shape[1]) for picture in pictures]
    left = [picture[:, :cut] for picture, cut in zip(pictures, cuts, strict=True)]
    right = [picture[:, cut:] for picture, cut in zip(pictures, cuts, strict=True)]
    train, held_out = slice(TRAINING_DIGITS), slice(TRAINING_DIGITS, None)
    return (
        Scenes.drawn(data.images[train], data.target[train], left, NUM_TRAINING, 2 * seed),
        Scenes.drawn(data.images[held_out], data.target[held_out], right, NUM_TEST, 2 * seed + 1),
    )


class DoubleConvolution(nn.Sequential):
    """Two 3 x 3 convolutions, each with a group norm and a ReLU.

    Args:
        channels_in: Channels of the input.
        channels: Channels of what comes out.
    """

    def __init__(self, channels_in: int, channels: int) -> None:
        layers: list[nn.Module] = []
        for before in (channels_in, channels):
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.ReLU()]
        super().__init__(*layers)


class SegmentationNetwork(nn.Module):
    """A U-Net of three heights.

    Args:
        width: Channels at full size; each height below has twice as many.
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.down1 = DoubleConvolution(3, width)
        self.down2 = DoubleConvolution(width, 2 * width)
        self.bottom = DoubleConvolution(2 * width, 4 * width)
        self.lift2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up2 = DoubleConvolution(4 * width, 2 * width)
        self.lift1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.up1 = DoubleConvolution(2 * width, width)
        self.scores = nn.Conv2d(width, NUM_CLASSES, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes, [batch, NUM_CLASSES, height, width], of images [batch, 3, height, width]."""
        full = self.down1(images)
        half = self.down2(F.max_pool2d(full, 2))
        quarter = self.bottom(F.max_pool2d(half, 2))
        half = self.up2(torch.cat([half, self.lift2(quarter)], dim=1))
        full = self.up1(torch.cat([full, self.lift1(half)], dim=1))
        scores: Tensor = self.scores(full)
        return scores


def intersection_over_union(found: npt.NDArray[np.bool_], actual: npt.NDArray[np.bool_]) -> float:
    """Pixels in both over pixels in either; 1 where there are none at all."""
    union = int((found | actual).sum())
    return int((found & actual).sum()) / union if union else 1.0


def best_threshold(scenes: Scenes) -> float:
    """Best least brightness of ink in these scenes, of 99 tried."""
    bright, ink = scenes.images.mean(axis=1), scenes.labels > 0
    tried = np.linspace(0.01, 0.99, 99)
    return float(tried[np.argmax([intersection_over_union(bright >= level, ink) for level in tried])])


def run(settings: DemoSettings, console: Console) -> DemoResult:
    """Train, segment the held-out scenes, and report; progress goes to ``console``."""
    watch = Stopwatch()
    opts = options(settings).deviceIterations(DEVICE_ITERATIONS)
    with watch.measure("data"):
        train, held_out = load_data(settings.seed)
        train_set = TensorDataset(torch.from_numpy(train.images), torch.from_numpy(train.labels))
        data = poptorch.DataLoader(opts, train_set, batch_size=BATCH, shuffle=True, drop_last=True)

    model = SegmentationNetwork()
    optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE)
    epochs = settings.epochs or EPOCHS
    training = Training(data=data, options=opts, epochs=epochs)
    trained = training.run(WithLoss(model, nn.CrossEntropyLoss()), optimizer, watch, console)
    with watch.measure("validate"):
        scores = Predictor(model, options(settings), TEST_BATCH)(torch.from_numpy(held_out.images))
        found = classes(scores)
        on = f"{len(found)} held-out scenes"
        level = best_threshold(train)
        bright = held_out.images.mean(axis=1) >= level
        ink = held_out.labels > 0
        figure = HeldOut(
            measure="IoU of ink",
            value=intersection_over_union(found > 0, ink),
            beside={
                f"brightness from {level:.2f} on": intersection_over_union(bright, ink),
                "everything": intersection_over_union(np.ones_like(ink), ink),
            },
            on=on,
            higher_is_better=True,
        )
        by_digit = HeldOut(
            measure="mean IoU of digits",
            value=mean_over_digits(found, held_out.labels),
            beside={
                "ink known, commonest digit": mean_over_digits(np.where(ink, commonest(train), 0), held_out.labels)
            },
            on=on,
            higher_is_better=True,
        )
    return DemoResult(
        name="segmentation",
        note="real digits over real photographs (scikit-learn's), real training; machine figures are modelled",
        figures={
            "held_out_iou": figure.value,
            "held_out_mean_iou_of_digits": by_digit.value,
            "held_out_samples": len(found),
            "loss": trained.loss,
            "epochs": epochs,
            "weights_sha256": weights_digest(model),
        },
        seconds=watch.seconds,
        report=trained.report.with_meta(name="segmentation training", sample_name="scenes", step_name="weight update"),
        held_out=(figure, by_digit),
        exhibit=side_by_side(held_out.labels[0], found[0]),
    )


def classes(scores: Tensor) -> Int64:
    """Classes of pixels [num_scenes, SIDE, SIDE]: ink where ink is likelier than not, and then the likeliest digit."""
    is_ink = torch.logsumexp(scores[:, 1:], dim=1) > scores[:, 0]
    found: Int64 = torch.where(is_ink, 1 + scores[:, 1:].argmax(dim=1), 0).numpy()
    return found


def mean_over_digits(found: Int64, actual: Int64) -> float:
    """Mean intersection over union of the ten digits."""
    return float(np.mean([intersection_over_union(found == k, actual == k) for k in range(1, NUM_CLASSES)]))


def commonest(scenes: Scenes) -> int:
    """The digit with most ink."""
    return 1 + int(np.bincount(scenes.labels[scenes.labels > 0] - 1).argmax())


def side_by_side(actual: Int64, found: Int64) -> str:
    """Labels of a scene beside the found ones, as text: digits for ink, dots for the photograph."""
    panels = (("labels", actual), ("found", found))
    lines = ["   ".join(f"{title:<{SIDE}}" for title, _ in panels)]
    for rows in zip(*(pixels for _, pixels in panels), strict=True):
        lines.append("   ".join("".join(str(value - 1) if value else "·" for value in row) for row in rows))
    return "\n".join(line.rstrip() for line in lines)
