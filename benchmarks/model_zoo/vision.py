"""Networks of images: torchvision's and timm's, and a U-Net and a detector's head written out."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from model_zoo.entry import Batch, ModelEntry, WithLoss

CLASSES = 10


def images(size: int, channels: int = 3) -> Callable[[int, torch.Generator], Batch]:
    """Noise, and a class for each image."""

    def make(count: int, generator: torch.Generator) -> Batch:
        pictures = torch.randn(count, channels, size, size, generator=generator)
        return pictures, torch.randint(0, CLASSES, (count,), generator=generator)

    return make


def masks(size: int, classes: int) -> Callable[[int, torch.Generator], Batch]:
    """Noise, and a class for each pixel."""

    def make(count: int, generator: torch.Generator) -> Batch:
        pictures = torch.randn(count, 3, size, size, generator=generator)
        return pictures, torch.randint(0, classes, (count, size, size), generator=generator)

    return make


_STUBS: list[torch.library.Library] = []


def torchvision_models() -> Any:
    """``torchvision.models``, also where torchvision's own operators were built for another PyTorch."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    _STUBS.append(library)
    while True:
        try:
            import torchvision.models as models
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            library.define(f"{missing[1]}(Tensor unused) -> Tensor")
            for name in [n for n in sys.modules if n.startswith("torchvision")]:
                del sys.modules[name]
        else:
            return models


class FirstResult(nn.Module):
    """Result ``out`` of a network of segmentation."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes, height, width]."""
        return self.network(x)["out"]


def from_torchvision(name: str, batch: int, size: int, **options: Any) -> ModelEntry:
    """A classifier of torchvision."""

    def network() -> nn.Module:
        return WithLoss(
            torchvision_models().get_model(name, weights=None, num_classes=CLASSES, **options), F.cross_entropy
        )

    return ModelEntry(name, batch, network, images(size), ("torchvision",))


def segmentation(name: str, batch: int, size: int) -> ModelEntry:
    """A network of torchvision that gives a class for each pixel."""

    def network() -> nn.Module:
        models = torchvision_models()
        made = models.get_model(name, weights=None, weights_backbone=None, num_classes=CLASSES)
        return WithLoss(FirstResult(made), F.cross_entropy)

    return ModelEntry(name, batch, network, masks(size, CLASSES), ("torchvision",))


def from_timm(name: str, batch: int, size: int) -> ModelEntry:
    """A classifier of timm."""

    def network() -> nn.Module:
        torchvision_models()
        import timm

        return WithLoss(timm.create_model(name, num_classes=CLASSES), F.cross_entropy)

    return ModelEntry(name, batch, network, images(size), ("timm", "torchvision"))


def double_convolution(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions with batch norms."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Convolutions on halved and halved fields and back up again, with what was there before beside it."""

    def __init__(self, classes: int, width: int = 32, depth: int = 3, *, bilinear: bool = False) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        pairs = list(itertools.pairwise(widths))
        self.enter = double_convolution(3, width)
        self.down = nn.ModuleList(double_convolution(a, b) for a, b in pairs)
        self.up = nn.ModuleList(self._grow(a, b, bilinear) for a, b in reversed(pairs))
        self.join = nn.ModuleList(double_convolution(2 * a, a) for a, _ in reversed(pairs))
        self.leave = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _grow(fine: int, coarse: int, bilinear: bool) -> nn.Module:
        if not bilinear:
            return nn.ConvTranspose2d(coarse, fine, 2, stride=2)
        upsample = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        return nn.Sequential(upsample, nn.Conv2d(coarse, fine, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes, height, width]."""
        kept = [self.enter(x)]
        for down in self.down:
            kept.append(down(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], dim=1))
        return self.leave(x)


class Detector(nn.Module):
    """A small backbone with a pyramid of features, and boxes, objectness and classes at three scales."""

    def __init__(self, classes: int = CLASSES, anchors: int = 3, width: int = 32) -> None:
        super().__init__()
        self.stem = self._block(3, width, 2)
        self.stages = nn.ModuleList(self._block(width * 2**i, width * 2 ** (i + 1), 2) for i in range(3))
        self.lateral = nn.ModuleList(nn.Conv2d(width * 2 ** (i + 1), 64, 1) for i in range(3))
        self.heads = nn.ModuleList(nn.Conv2d(64, anchors * (5 + classes), 1) for _ in range(3))
        self.anchors = anchors

    @staticmethod
    def _block(inputs: int, outputs: int, stride: int) -> nn.Module:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Predictions [batch, places, 5 + classes], boxes in units of the image."""
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        found, above = [], None
        for lateral, head, feature in reversed(list(zip(self.lateral, self.heads, features, strict=True))):
            merged = lateral(feature)
            if above is not None:
                merged = merged + F.interpolate(above, scale_factor=2, mode="nearest")
            above = merged
            found.append(self._decoded(head(merged)))
        return torch.cat(found, dim=1)

    def _decoded(self, raw: Tensor) -> Tensor:
        batch, _, height, width = raw.shape
        places = raw.view(batch, self.anchors, -1, height, width).permute(0, 1, 3, 4, 2)
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack([columns, rows], dim=-1).to(raw.dtype)
        centre = (places[..., :2].sigmoid() * 2 - 0.5 + grid) / torch.tensor([width, height], dtype=raw.dtype)
        extent = (places[..., 2:4].sigmoid() * 2) ** 2 / height
        return torch.cat([centre, extent, places[..., 4:]], dim=-1).flatten(1, 3)


def loss_of_boxes(found: Tensor, target: Tensor) -> Tensor:
    """Squared error of boxes where there is an object, and cross entropy of objectness and classes."""
    there = target[..., 4:5]
    boxes = (there * (found[..., :4] - target[..., :4]) ** 2).mean()
    return boxes + F.binary_cross_entropy_with_logits(found[..., 4:], target[..., 4:])


def boxes(size: int) -> Callable[[int, torch.Generator], Batch]:
    """Noise, and a target for each place of the three scales."""

    def make(count: int, generator: torch.Generator) -> Batch:
        places = sum(3 * (size // stride) ** 2 for stride in (4, 8, 16))
        target = torch.rand(count, places, 5 + CLASSES, generator=generator)
        target[..., 4:] = (target[..., 4:] > 0.9).float()
        return torch.randn(count, 3, size, size, generator=generator), target

    return make


VISION = (
    from_torchvision("resnet18", 8, 64),
    from_torchvision("resnet50", 4, 64),
    from_torchvision("resnext50_32x4d", 4, 64),
    from_torchvision("vgg11_bn", 4, 64),
    from_torchvision("squeezenet1_1", 8, 64),
    from_torchvision("densenet121", 4, 64),
    from_torchvision("googlenet", 4, 64, aux_logits=False, init_weights=False),
    from_torchvision("mobilenet_v2", 8, 64),
    from_torchvision("mobilenet_v3_small", 8, 64),
    from_torchvision("shufflenet_v2_x1_0", 8, 64),
    from_torchvision("efficientnet_b0", 8, 64),
    from_torchvision("regnet_y_400mf", 8, 64),
    from_torchvision("convnext_tiny", 4, 64),
    from_torchvision("swin_t", 4, 64),
    from_torchvision("vit_b_32", 4, 64, image_size=64),
    from_timm("mixer_s32_224", 4, 224),
    from_timm("deit_tiny_patch16_224", 2, 224),
    from_timm("mobilevit_xxs", 4, 128),
    from_timm("edgenext_xx_small", 4, 128),
    from_timm("resmlp_12_224", 2, 224),
    segmentation("deeplabv3_mobilenet_v3_large", 2, 64),
    segmentation("fcn_resnet50", 2, 64),
    ModelEntry("unet", 2, lambda: WithLoss(UNet(CLASSES), F.cross_entropy), masks(64, CLASSES)),
    ModelEntry("unet-bilinear", 2, lambda: WithLoss(UNet(CLASSES, bilinear=True), F.cross_entropy), masks(64, CLASSES)),
    ModelEntry("yolo-head", 4, lambda: WithLoss(Detector(), loss_of_boxes), boxes(64)),
)
