"""Pre-training of GPT-2, as a pipeline: embedding and head on the first IPU, layers on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from abele.network.ir import Network, NetworkBuilder, Value
from abele.network.ops import build
from abele.numerics import i32
from abele.validation.training.losses import cross_entropy
from abele.validation.training.transformer import TYPE, LayerBuilder, LayerSizes, StagePlan

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
