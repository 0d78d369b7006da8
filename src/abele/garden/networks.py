"""The demos' networks, in plain PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class DigitsNetwork(nn.Module):
    """Two blocks of convolution, ReLU and max-pool, two linear layers with dropout: 8 x 8 images to 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 2 * 2, 128)
        self.fc2 = nn.Linear(128, 10)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Logarithms of the class probabilities, [batch, 10], of images [batch, 1, 8, 8]."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout(F.relu(self.fc1(x.flatten(1))))
        return F.log_softmax(self.fc2(x), dim=1)


class NonLocalBlock(nn.Module):
    """Self-attention over pixels with a residual connection.

    Args:
        channels: Channels of input and output.
        inner_channels: Channels of queries, keys and values.
    """

    def __init__(self, channels: int, inner_channels: int) -> None:
        super().__init__()
        self.theta = nn.Conv2d(channels, inner_channels, 1)
        self.phi = nn.Conv2d(channels, inner_channels, 1)
        self.g = nn.Conv2d(channels, inner_channels, 1)
        self.out = nn.Conv2d(inner_channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same shape, [batch, channels, height, width]."""
        batch, _, height, width = x.shape
        theta = self.theta(x).flatten(2).transpose(1, 2)
        phi = self.phi(x).flatten(2)
        g = self.g(x).flatten(2).transpose(1, 2)
        similarity = torch.softmax(torch.matmul(theta, phi), dim=2)
        attended = torch.matmul(similarity, g).transpose(1, 2).reshape(batch, -1, height, width)
        features: Tensor = x + self.out(attended)
        return features


class BraggNetwork(nn.Module):
    """BraggNN: the sub-pixel centre of a diffraction peak from an 11 x 11 patch.

    Source: Liu et al., BraggNN: fast X-ray Bragg peak analysis using deep learning, IUCrJ 9 (2022) 104.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, 3)
        self.non_local = NonLocalBlock(64, 32)
        self.conv2 = nn.Conv2d(64, 32, 3)
        self.conv3 = nn.Conv2d(32, 8, 3)
        self.dense = nn.ModuleList([nn.Linear(a, b) for a, b in ((200, 64), (64, 32), (32, 16), (16, 8))])
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Centres [batch, 2], row and column / 11, of patches [batch, 1, 11, 11]."""
        x = F.leaky_relu(self.non_local(self.conv1(x)), 0.01)
        x = F.leaky_relu(self.conv2(x), 0.01)
        x = F.leaky_relu(self.conv3(x), 0.01).flatten(1)
        for layer in self.dense:
            x = F.leaky_relu(layer(x), 0.01)
        centres: Tensor = self.head(x)
        return centres
