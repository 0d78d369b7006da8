"""Training of vision transformers, as a pipeline: patches on the first IPU, classes on the last one."""

from __future__ import annotations

from dataclasses import dataclass

from abele.expr import derivative
from abele.network.ir import Network, NetworkBuilder
from abele.network.ops import build
from abele.numerics import i32
from abele.validation.training.losses import cross_entropy
from abele.validation.training.transformer import TYPE, LayerBuilder, LayerSizes, StagePlan

BASE = LayerSizes(hidden=768, heads=12, feed_forward=3072, eps=1e-6)


@dataclass(frozen=True)
class Vit:
    """A vision transformer that classifies images by a token of its own.

    Attributes:
        sizes: LayerSizes of the layers.
        stages: Places of the layers.
        image: Rows and columns of an image.
        patch: Rows and columns of a patch.
        classes: Classes.
        checkpoints: True if each layer's result is kept, from which its backward pass computes it again.
    """

    sizes: LayerSizes
    stages: StagePlan
    image: int = 224
    patch: int = 16
    classes: int = 1000
    checkpoints: bool = True

    def network(self, micro_batch: int) -> Network:
        """The network of a micro-batch."""
        net, stages, width, side = NetworkBuilder(), self.stages, self.sizes.hidden, self.image // self.patch
        layers = LayerBuilder(
            net, self.sizes, stages, micro_batch, side * side + 1, checkpoints=self.checkpoints, norms_first=True
        )
        images = net.input((micro_batch, 3, self.image, self.image), TYPE, "image")
        labels = net.input((micro_batch,), i32, "label")
        with stages.at(net, 0):
            # A convolution whose windows do not overlap is a product with the pixels of each patch.
            split = build.reshape(net, images, (micro_batch, 3, side, self.patch, side, self.patch))
            pixels = build.reshape(
                net, build.permute(net, split, (0, 2, 4, 1, 3, 5)), (micro_batch * side * side, 3 * self.patch**2)
            )
            patches = build.reshape(net, layers.linear(pixels, "patches", width), (micro_batch, side * side, width))
            first = build.reshape(net, layers.weight("class_token", width), (1, 1, width))
            joined = build.concat(net, [build.expand(net, first, (micro_batch, 1, width)), patches], 1)
            places = build.reshape(net, layers.weight("positions", side * side + 1, width), (1, -1, width))
            with layers.named("positions/sum"):
                x = build.map_(net, derivative.arg(0) + derivative.arg(1), [joined, places])
            x = layers.dropout(build.reshape(net, x, (-1, width)), self.sizes.dropout)
        x = layers.layers(x)
        with stages.at(net, len(stages.halves) - 1):
            tokens = build.reshape(net, layers.norm(x, "head/norm"), (micro_batch, side * side + 1, width))
            token = build.reshape(net, build.slice_(net, tokens, 1, 0, 1), (micro_batch, width))
            logits = layers.linear(token, "head", self.classes)
            with layers.named("head/loss"):
                net.loss = cross_entropy(net, logits, labels)
        net.output(net.loss)
        return net.finish()
