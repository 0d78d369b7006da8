"""Pre-training of BERT, as a pipeline: embedding and head on the first IPU, layers on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from abele.expr import derivative, select
from abele.graph.debug import DebugRecord
from abele.numerics import f32, i32
from abele.parallel.network import Network, NetworkBuilder, Place, Value
from abele.parallel.ops import build
from abele.validation.training.losses import cross_entropy
from abele.validation.training.transformer import TYPE, LayerBuilder, Sizes, StagePlan

LARGE = Sizes(hidden=1024, heads=16, layers=24, feed_forward=4096, eps=1e-12)
BASE = Sizes(hidden=768, heads=12, layers=12, feed_forward=3072, eps=1e-12)
_HIDES = -10_000.0
"""What is added to the scores of tokens that are not to be seen."""


@dataclass(frozen=True)
class Bert:
    """A network of BERT with the losses of masked tokens and of next sentences.

    Attributes:
        sizes: Sizes of the layers.
        stages: Where layers are.
        tokens: Length of a sequence, or of a pack of several.
        packed: Most sequences in a pack; 1 where sequences are padded.
        masked: Tokens of each that are predicted.
        vocabulary: Entries of the word embedding, which the head shares.
        checkpoints: True if each layer's result is kept, from which its backward pass computes it again; False if that
            is done from the begin of a stage.
    """

    sizes: Sizes
    stages: StagePlan
    tokens: int
    packed: int = 1
    masked: int = 76
    vocabulary: int = 30_912
    checkpoints: bool = True

    def network(self, micro_batch: int) -> Network:
        """The network of a micro-batch."""
        return _BertBuilder(self, micro_batch).build()


class _BertBuilder:
    def __init__(self, model: Bert, samples: int) -> None:
        self.model, self.samples = model, samples
        self.net = NetworkBuilder()
        self.layers = LayerBuilder(self.net, model.sizes, samples, model.tokens)
        self.last = len(model.stages.halves)
        self.table: Value | None = None
        self.masks: dict[int, Value] = {}
        self.groups = self.net.input((samples, model.tokens), i32, "sequence_ids")

    def build(self) -> Network:
        net, sizes, stages = self.net, self.model.sizes, self.model.stages
        with self.stage(0):
            x = self._embedding()
        for number, (attention, feed_forward) in enumerate(zip(stages.attention, stages.feed_forward, strict=True)):
            name = f"layer{number}"
            with self.stage(attention):
                made = self.layers.self_attention(x, f"{name}/attention", partial(self._mask, attention))
                x = self.layers.norm(self.layers.added(x, made), f"{name}/attention/norm")
            with self.stage(feed_forward):
                made = self.layers.two_layers(x, f"{name}/feed_forward")
                x = self.layers.norm(self.layers.added(x, made), f"{name}/feed_forward/norm")
                if self.model.checkpoints and number + 1 < sizes.layers:
                    x = build.keep(net, x)
        with self.stage(self.last if self.last > 1 else 0):
            self._losses(x)
        return net.finish()

    def stage(self, number: int):
        """The place of a forward stage; that of the head is on the first IPU."""
        ipu = number % self.last
        return self.net.at(place=Place(ipu, number), hint=self.model.stages.hint(ipu))

    def named(self, name: str):
        """Names ops."""
        return self.net.at(DebugRecord(name))

    def _embedding(self) -> Value:
        net, model, layers = self.net, self.model, self.layers
        shape = self.samples, model.tokens
        width = model.sizes.hidden
        total: list[Value] = []
        for name, entries in (("word", model.vocabulary), ("position", model.tokens), ("segment", 2)):
            index = net.input(shape, i32, f"{name}_ids")
            table = layers.weight(f"embedding/{name}", entries, width)
            if name == "word":
                self.table = table
            with self.named(f"embedding/{name}"):
                total.append(build.reshape(net, build.look_up(net, table, index), (-1, width)))
        with self.named("embedding/sum"):
            x = build.total(net, total)
        return layers.dropout(layers.norm(x, "embedding/norm"), model.sizes.dropout)

    def _mask(self, stage: int) -> Value:
        """What a stage adds to scores: tokens see those of their own sequence alone; [samples, 1, tokens, tokens]."""
        if stage in self.masks:
            return self.masks[stage]
        net, n = self.net, self.model.tokens
        rows = build.reshape(net, self.groups, (self.samples, 1, n, 1))
        columns = build.reshape(net, self.groups, (self.samples, 1, 1, n))
        seen = select(derivative.arg(0).eq(derivative.arg(1)), 0.0, _HIDES)
        with self.named("mask"):
            made = self.masks[stage] = build.map_(net, seen, [rows, columns], TYPE)
        return made

    def _losses(self, x: Value) -> None:
        net, model, layers, sizes = self.net, self.model, self.layers, self.model.sizes
        assert self.table is not None
        by_sample = build.reshape(net, x, (self.samples, model.tokens, sizes.hidden))
        masked = net.input((self.samples, model.masked), i32, "masked_positions")
        with self.named("head/masked"):
            rows = build.reshape(net, build.look_up_groups(net, by_sample, masked), (-1, sizes.hidden))
        dense = layers.linear(rows, "head/dense", sizes.hidden)
        with self.named("head/gelu"):
            active = build.nonlinearity(net, "gelu", dense)
        normed = layers.norm(active, "head/norm")
        bias = layers.weight("head/bias", model.vocabulary)
        with self.named("head/words"):
            logits = build.linear(net, normed, self.table, bias)
        labels = net.input((self.samples, model.masked), i32, "masked_labels")
        with self.named("head/loss"):
            loss = cross_entropy(net, logits, labels, 0)
        starts = net.input((self.samples, model.packed), i32, "sequence_starts")
        with self.named("pooler/first"):
            first = build.reshape(net, build.look_up_groups(net, by_sample, starts), (-1, sizes.hidden))
        pooled = layers.linear(first, "pooler", sizes.hidden)
        with self.named("pooler/tanh"):
            pooled = build.nonlinearity(net, "tanh", pooled)
        logits = layers.linear(pooled, "next_sentence", 2)
        labels = net.input((self.samples, model.packed), i32, "next_sentence_labels")
        with self.named("next_sentence/loss"):
            second = cross_entropy(net, logits, labels)
            net.loss = build.map_(net, derivative.arg(0) + derivative.arg(1), [loss, second])
        net.output(net.loss)
