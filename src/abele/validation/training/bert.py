"""Pre-training of BERT, as a pipeline: embedding and head on the first IPU, layers on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abele.expr import Const, derivative, select
from abele.network.ir import Network, NetworkBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_, i32
from abele.validation.training.losses import cross_entropies, cross_entropy, mean_by_sequence
from abele.validation.training.transformer import TYPE, LayerBuilder, LayerSizes, StagePlan

LARGE = LayerSizes(hidden=1024, heads=16, feed_forward=4096, eps=1e-12)
BASE = LayerSizes(hidden=768, heads=12, feed_forward=3072, eps=1e-12)
MASKS = ("once", "layers", "listing")
"""Ways of writing masks: ``once`` by each stage, in one pass, and added in the pass that scales scores; by all
``layers`` anew, and added in a pass of its own; or as the published ``listing``, by each stage: a comparison, a choice,
and a sum in each layer, each a pass.
"""
MADE = "mask"
"""Name of ops that make masks."""
BY_SEQUENCE = "head/loss_by_sequence"
"""Name of ops that make means over sequences of the losses of tokens."""
_HIDES = -10_000.0
"""Number added to the scores of tokens that are not to be seen."""


@dataclass(frozen=True)
class Bert:
    """A network of BERT with the losses of masked tokens and of next sentences.

    Attributes:
        sizes: LayerSizes of the layers.
        stages: Places of the layers.
        tokens: Length of a sequence, or of a pack of several.
        packed: Most sequences in a pack; 1 where sequences are padded.
        masked: Tokens of each that are predicted.
        vocabulary: Entries of the word embedding, which the head shares.
        checkpoints: True if each layer's result is kept, from which its backward pass computes it again; False if that
            is done from the begin of a stage.
        padding_mask: True if tokens see all but padding, which takes a mask of one row; False if they see their own
            sequence alone, by its number.
        mean_packed: Sequences in a pack on average; then the loss of masked tokens is a mean over sequences, not over
            tokens.
        masks: Way of writing masks: :data:`MASKS`.
    """

    sizes: LayerSizes
    stages: StagePlan
    tokens: int
    packed: int = 1
    masked: int = 76
    vocabulary: int = 30_912
    checkpoints: bool = True
    padding_mask: bool = False
    mean_packed: float | None = None
    masks: str = "once"
    head_stages: ClassVar[int] = 1

    def network(self, micro_batch: int) -> Network:
        """The network of a micro-batch."""
        return _BertBuilder(self, micro_batch).build()


class _BertBuilder:
    def __init__(self, model: Bert, samples: int) -> None:
        self.model, self.samples = model, samples
        self.net = NetworkBuilder()
        self.layers = LayerBuilder(
            self.net,
            model.sizes,
            model.stages,
            samples,
            model.tokens,
            checkpoints=model.checkpoints,
            norms_first=False,
            masks_apart=model.masks != MASKS[0],
        )
        self.masks: dict[int, Value] = {}
        self.made_masks = 0
        self.groups = self.net.input((samples, model.tokens), i32, "sequence_ids")

    def build(self) -> Network:
        stages = self.model.stages
        with stages.at(self.net, 0):
            x, table = self._embedding()
        x = self.layers.layers(x, self._mask)
        with stages.at(self.net, len(stages.halves)):
            self._losses(x, table)
        return self.net.finish()

    def _embedding(self) -> tuple[Value, Value]:
        net, model, layers = self.net, self.model, self.layers
        shape = self.samples, model.tokens
        width = model.sizes.hidden
        total: list[Value] = []
        tables: list[Value] = []
        for name, entries in (("word", model.vocabulary), ("position", model.tokens), ("segment", 2)):
            index = net.input(shape, i32, f"{name}_ids")
            tables.append(layers.weight(f"embedding/{name}", entries, width))
            with self.layers.named(f"embedding/{name}"):
                total.append(build.reshape(net, build.look_up(net, tables[-1], index), (-1, width)))
        with self.layers.named("embedding/sum"):
            x = build.total(net, total)
        return layers.dropout(layers.norm(x, "embedding/norm"), model.sizes.dropout), tables[0]

    def _mask(self, stage: int) -> Value:
        """Mask that a stage adds to scores: tokens see those of their own sequence alone; [samples, 1, tokens, tokens].

        Of padding, whose number is 0, it is [samples, 1, 1, tokens].
        """
        key = self.made_masks if self.model.masks == "layers" else stage
        if key not in self.masks:
            with self.layers.named(MADE):
                self.masks[key] = self._new_mask()
            self.made_masks += 1
        return self.masks[key]

    def _new_mask(self) -> Value:
        net, n = self.net, self.model.tokens
        columns = build.reshape(net, self.groups, (self.samples, 1, 1, n))
        if self.model.padding_mask:
            ids, shown = [columns], derivative.arg(0).ne(0)
        else:
            ids = [build.reshape(net, self.groups, (self.samples, 1, n, 1)), columns]
            shown = derivative.arg(0).eq(derivative.arg(1))
        if self.model.masks == "listing":
            same = build.map_(net, shown, ids, bool_)
            return build.map_(net, select(derivative.arg(0), 0.0, _HIDES), [same], TYPE)
        # A number of its own for each layer: of equal masks the compiler would make one.
        hides = _HIDES - (8.0 * self.made_masks if self.model.masks == "layers" else 0.0)
        return build.map_(net, select(shown, 0.0, hides), ids, TYPE)

    def _losses(self, x: Value, table: Value) -> None:
        net, model, layers, sizes = self.net, self.model, self.layers, self.model.sizes
        by_sample = build.reshape(net, x, (self.samples, model.tokens, sizes.hidden))
        masked = net.input((self.samples, model.masked), i32, "masked_positions")
        with self.layers.named("head/masked"):
            rows = build.reshape(net, build.look_up_groups(net, by_sample, masked), (-1, sizes.hidden))
        dense = layers.linear(rows, "head/dense", sizes.hidden)
        with self.layers.named("head/gelu"):
            active = build.nonlinearity(net, "gelu", dense)
        normed = layers.norm(active, "head/norm")
        bias = layers.weight("head/bias", model.vocabulary)
        with self.layers.named("head/words"):
            logits = build.linear(net, normed, table, bias)
        labels = net.input((self.samples, model.masked), i32, "masked_labels")
        if model.mean_packed is None:
            with self.layers.named("head/loss"):
                loss = cross_entropy(net, logits, labels, 0)
        else:
            whose = net.input((self.samples, model.masked), i32, "masked_sequences")
            with self.layers.named("head/loss"):
                losses = cross_entropies(net, logits, labels)
            with self.layers.named(BY_SEQUENCE):
                loss = mean_by_sequence(net, losses, whose, model.packed, model.mean_packed)
        starts = net.input((self.samples, model.packed), i32, "sequence_starts")
        with self.layers.named("pooler/first"):
            first = build.reshape(net, build.look_up_groups(net, by_sample, starts), (-1, sizes.hidden))
        pooled = layers.linear(first, "pooler", sizes.hidden)
        with self.layers.named("pooler/tanh"):
            pooled = build.nonlinearity(net, "tanh", pooled)
        logits = layers.linear(pooled, "next_sentence", 2)
        labels = net.input((self.samples, model.packed), i32, "next_sentence_labels")
        with self.layers.named("next_sentence/loss"):
            # Places of sequences that a pack has not have no class: the mean is over those that it can hold.
            second = cross_entropy(net, logits, labels)
            if model.mean_packed is not None:
                second = build.map_(net, derivative.arg(0) * Const(model.packed / model.mean_packed), [second])
            net.loss = build.map_(net, derivative.arg(0) + derivative.arg(1), [loss, second])
        net.output(net.loss)
