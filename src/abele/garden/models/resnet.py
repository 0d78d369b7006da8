"""ResNet-50 with the loss of its classes."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Stem(nn.Module):
    """The first convolution and pool: images to a quarter of their height and width."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, images: Tensor) -> Tensor:
        """[batch, channels, height / 4, width / 4] of [batch, 3, height, width]."""
        return F.max_pool2d(F.relu(self.norm(self.conv(images))), 3, stride=2, padding=1)


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut; the second one has the stride.

    Args:
        channels_in: Channels of what it reads.
        width: Channels in between, a quarter of those of what it makes.
        stride: Of the middle convolution, and of the shortcut.
    """

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels = 4 * width
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            conv = nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 4 · width, height / stride, width / stride]."""
        made = F.relu(self.norm1(self.conv1(x)))
        made = self.norm3(self.conv3(F.relu(self.norm2(self.conv2(made)))))
        return F.relu(made + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50, version 1.5, as it is trained.

    Source: He et al., Deep Residual Learning for Image Recognition (2016), table 1; the stride is in the 3 x 3
    convolution, as in version 1.5.
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = Stem(64)
        blocks, channels = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                blocks.append(Bottleneck(channels, width, stride if number == 0 else 1))
                channels = 4 * width
        self.blocks = nn.ModuleList(blocks)
        self.classify = nn.Linear(channels, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The loss, of images [batch, 3, height, width] and class numbers [batch]."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.classify(x.mean((2, 3))), labels)


class PlainBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut without parameters: every other pixel, and channels of zeros.

    Args:
        channels_in: Channels of what it reads.
        channels: Channels of what it makes.
        stride: Of the first convolution, and of the shortcut.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride, self.added = stride, channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height / stride, width / stride]."""
        made = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        kept = x[:, :, :: self.stride, :: self.stride] if self.stride > 1 else x
        if self.added:
            kept = F.pad(kept, (0, 0, 0, 0, self.added // 2, self.added - self.added // 2))
        return F.relu(made + kept)


class ResNet20(nn.Module):
    """ResNet-20 for small images, with the loss of its classes.

    Source: He et al., Deep Residual Learning for Image Recognition (2016), section 4.2, n = 3, shortcuts of kind A.

    Args:
        classes: Classes that there are.
        channels: Channels of the images.
    """

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.blocks = nn.ModuleList([PlainBlock(*each) for each in widths])
        self.classify = nn.Linear(64, classes)

    def scores(self, images: Tensor) -> Tensor:
        """[batch, classes] of images [batch, channels, height, width]."""
        x = F.relu(self.norm(self.conv(images)))
        for block in self.blocks:
            x = block(x)
        made: Tensor = self.classify(x.mean((2, 3)))
        return made

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The loss, of images [batch, channels, height, width] and class numbers [batch]."""
        return F.cross_entropy(self.scores(images), labels)
