"""The published runs, with their configurations.

Of what a source does not say, the models' defaults are taken: state of optimisers as the vendor's examples keep it
(first moments and sums of gradients in f16, second moments in f32), and no dropout. TensorFlow 1 makes an optimiser's
slots in the type of their variables, so momenta of f16 weights are in f16; PopTorch makes momenta in f32
(``velocity_accum_type``) unless it is told otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from abele.expr import derivative
from abele.network.ir import Network, NetworkBuilder, Value
from abele.network.ops import build
from abele.numerics import f32, i32, quarter
from abele.validation.training import bert
from abele.validation.training.bert import Bert
from abele.validation.training.losses import cross_entropy
from abele.validation.training.resnet import ResNet
from abele.validation.training.run import TrainingRun
from abele.validation.training.transformer import TYPE, LayerBuilder, LayerSizes, StagePlan

# Training of vision transformers, as a pipeline: patches on the first IPU, classes on the last one.

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


# Pre-training of GPT-2, as a pipeline: embedding and head on the first IPU, layers on all of them.

SMALL = LayerSizes(hidden=768, heads=12, feed_forward=3072)
MEDIUM = LayerSizes(hidden=1024, heads=16, feed_forward=4096)
_HIDES = -10_000.0
"""Number added to the scores of tokens that are not to be seen."""


@dataclass(frozen=True)
class Gpt:
    """A network of GPT-2 that predicts each next token.

    Attributes:
        sizes: LayerSizes of the layers.
        stages: Places of the layers.
        tokens: Length of a sequence.
        vocabulary: Entries of the word embedding, which the head shares.
        checkpoints: True if each layer's result is kept, from which its backward pass computes it again.
    """

    sizes: LayerSizes
    stages: StagePlan
    tokens: int = 1024
    vocabulary: int = 50_272
    checkpoints: bool = True
    head_stages: ClassVar[int] = 1

    def network(self, micro_batch: int) -> Network:
        """The network of a micro-batch."""
        net, stages, width = NetworkBuilder(), self.stages, self.sizes.hidden
        layers = LayerBuilder(
            net, self.sizes, stages, micro_batch, self.tokens, checkpoints=self.checkpoints, norms_first=True
        )
        masks: dict[int, Value] = {}

        def mask(stage: int) -> Value:
            """Tokens see those before them; one constant on each IPU."""
            if stage not in masks:
                hidden = np.triu(np.full((self.tokens, self.tokens), _HIDES, np.float32), 1)
                masks[stage] = net.constant(hidden[None, None], TYPE, "mask")
            return masks[stage]

        ids = net.input((micro_batch, self.tokens), i32, "word_ids")
        labels = net.input((micro_batch, self.tokens), i32, "labels")
        with stages.at(net, 0):
            table = layers.weight("embedding/word", self.vocabulary, width)
            places = layers.weight("embedding/position", self.tokens, width)
            with layers.named("embedding/word"):
                x = build.look_up(net, table, ids)
            with layers.named("embedding/sum"):
                # Positions are the same in all sequences.
                x = layers.added(x, build.reshape(net, places, (1, self.tokens, width)))
            x = layers.dropout(build.reshape(net, x, (-1, width)), self.sizes.dropout)
        x = layers.layers(x, mask)
        with stages.at(net, len(stages.halves)):
            normed = layers.norm(x, "head/norm")
            with layers.named("head/words"):
                logits = build.linear(net, normed, table)
            with layers.named("head/loss"):
                net.loss = cross_entropy(net, logits, build.reshape(net, labels, (labels.size,)))
        net.output(net.loss)
        return net.finish()


MLPERF_1 = "MLPerf Training v1.1, closed"
MLPERF_2 = "MLPerf Training v2.0, closed"
PAGE = "Graphcore's performance page"

# Halves by stage as (attention, feed-forward); the sources write feed-forward first, as the cut shows: a stage's first
# feed-forward half cannot come before its attention half.
_FOUR = ((5, 4), (6, 7), (7, 6), (6, 7))
_EIGHT = ((2, 1), (2, 2), (3, 3), (3, 4), (4, 3), (3, 4), (4, 3), (3, 4))
_EIGHT_BOW16 = ((1, 0), (3, 3), (3, 4), (3, 3), (4, 3), (3, 4), (4, 3), (3, 4))

_IO_TILES = 32
"""IO tiles of each IPU that bring images while the others compute; the fewest that PopART takes (``numIOTiles``)."""
RECOMPUTED = (3, 5, 7, 9, 11, 13)
"""Six checkpoints of ResNet-50, in the stages of 28 and 14 rows."""


def mlperf_bert(halves: tuple[tuple[int, int], ...], proportion: float) -> Bert:
    """BERT-Large on packs of 512 tokens."""
    return Bert(bert.LARGE, StagePlan(halves, (proportion,)), 512, packed=3, masked=76, vocabulary=30_912)


def phase_one(layers: tuple[int, ...], proportions: tuple[float, ...], *, packed: int = 3) -> Bert:
    """BERT-Large on sequences or packs of 128 tokens."""
    stages = StagePlan.of_layers(layers, proportions)
    return Bert(bert.LARGE, stages, 128, packed=packed, masked=20, vocabulary=30_400)


def mlperf_resnet() -> ResNet:
    """ResNet-50 with statistics over two replicas."""
    return ResNet(recompute_after=RECOMPUTED, norm_replicas=2, proportion=0.15)


_BERT_MLPERF = (
    TrainingRun(
        name="BERT-Large, MLPerf, 4 IPUs x 4",
        system="pod16",
        model=mlperf_bert(_FOUR, 0.23),
        micro_batch=2,
        accumulation=192,
        replicas=4,
        items=3072,
        item="sequence",
        published_seconds=2.016,
        sharded_state=True,
        source=MLPERF_1,
        held=True,
    ),
    TrainingRun(
        name="BERT-Large, MLPerf, 8 IPUs x 8",
        system="pod64",
        model=mlperf_bert(_EIGHT, 0.22),
        micro_batch=2,
        accumulation=96,
        replicas=8,
        items=3072,
        item="sequence",
        published_seconds=0.640,
        source=MLPERF_1,
        held=True,
    ),
    TrainingRun(
        name="BERT-Large, MLPerf, 8 IPUs x 2",
        system="bow-pod16",
        model=mlperf_bert(_EIGHT_BOW16, 0.3),
        micro_batch=3,
        accumulation=256,
        replicas=2,
        items=3072,
        item="sequence",
        published_seconds=1.333,
        source=MLPERF_2,
        stash=quarter("F143"),
        held=True,
    ),
    TrainingRun(
        name="BERT-Large, MLPerf, 8 IPUs x 8",
        system="bow-pod64",
        model=mlperf_bert(_EIGHT, 0.22),
        micro_batch=3,
        accumulation=96,
        replicas=8,
        items=4608,
        item="sequence",
        published_seconds=0.621,
        source=MLPERF_2,
        held=True,
    ),
)


def _resnet(
    system: str, replicas: int, micro_batch: int, accumulation: int, rate: float, source: str, **changes: object
) -> TrainingRun:
    batch = replicas * micro_batch * accumulation
    whose = "MLPerf" if "MLPerf" in source else source.rpartition(", ")[2]
    made = TrainingRun(
        name=f"ResNet-50, {whose}, {micro_batch} x {accumulation}",
        system=system,
        model=mlperf_resnet(),
        micro_batch=micro_batch,
        accumulation=accumulation,
        replicas=replicas,
        items=batch,
        item="image",
        published_seconds=batch / rate,
        optimiser="lars",
        weight_decay=5e-5,
        source=source,
        io_tiles=_IO_TILES,
        held=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def _name(run: TrainingRun) -> tuple[str, str]:
    return run.name, run.system


_RESNETS = (
    _resnet("pod16", 16, 20, 10, 3200 / 0.1086, MLPERF_1),
    _resnet("bow-pod64", 64, 20, 4, 5120 / 0.0350, MLPERF_2),
    _resnet("bow-pod16", 16, 22, 10, 44_047, f"{PAGE}, TensorFlow 1"),
    _resnet("bow-pod64", 64, 20, 4, 152_522, f"{PAGE}, TensorFlow 1"),
    _resnet("bow-pod256", 256, 20, 2, 450_701, f"{PAGE}, TensorFlow 1"),
    _resnet("bow-pod16", 16, 18, 57, 37_219, f"{PAGE}, PyTorch", optimiser="sgd", first_type=f32),
)


def _page(
    name: str,
    model: Bert | Vit | Gpt,
    micro_batch: int,
    accumulation: int,
    items: float,
    rate: float,
    **changes: object,
) -> TrainingRun:
    made = TrainingRun(
        name=name,
        system="bow-pod16",
        model=model,
        micro_batch=micro_batch,
        accumulation=accumulation,
        replicas=4,
        items=items,
        item="sequence",
        published_seconds=items / rate,
        sharded_state=True,
        source=PAGE,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


_PHASE_ONE = (0.15, 0.25, 0.25, 0.25)
_PAGES = (
    _page("BERT-Large, 128, packed", phase_one((3, 7, 7, 7), _PHASE_ONE), 8, 1712, 65_536, 6044, held=True),
    _page("BERT-Large, 128", phase_one((3, 7, 7, 7), _PHASE_ONE, packed=1), 8, 2048, 65_536, 5179, held=True),
    _page("BERT-Large, 128, packed, PyTorch", phase_one((3, 7, 7, 7), _PHASE_ONE), 8, 1752, 67_000, 5600, held=True),
    _page(
        "BERT-Large, 128, TensorFlow 2", phase_one((3, 7, 7, 7), _PHASE_ONE, packed=1), 8, 2040, 65_280, 4527, held=True
    ),
    _page("ViT-B/16", Vit(BASE, StagePlan.of_layers((3, 3, 3, 3))), 8, 2048, 65_536, 7512, item="image"),
    _page("GPT-2 small, 1024", Gpt(SMALL, StagePlan.of_layers((0, 4, 4, 4))), 1, 2048, 8192, 1059, optimiser="adam"),
)

RUNS: tuple[TrainingRun, ...] = (*_BERT_MLPERF, *_RESNETS, *_PAGES)
"""Every run."""

SCALINGS = (
    ("BERT-Large, GC200", _name(_BERT_MLPERF[0]), _name(_BERT_MLPERF[1])),
    ("BERT-Large, Bow", _name(_BERT_MLPERF[2]), _name(_BERT_MLPERF[3])),
    ("ResNet-50, Bow, TensorFlow 1", _name(_RESNETS[2]), _name(_RESNETS[3])),
)
"""Runs of one model on 16 and on 64 IPUs, by name and system: what is compared, and both."""
