"""Transformer layers as ops of a network, each half of a layer where its stage is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from abele.errors import InvalidOptionError
from abele.expr import Const, derivative
from abele.graph.debug import DebugRecord
from abele.network.ir import NetworkBuilder, Place, PlanHint, Value
from abele.network.ops import build
from abele.numerics import ElementType, f16

TYPE = f16
"""Type of weights and activations."""
ADDED = "add_mask"
"""Name of ops that add masks in a pass of their own."""


@dataclass(frozen=True)
class LayerSizes:
    """LayerSizes of a transformer.

    Attributes:
        hidden: Width of the residual stream.
        heads: Heads of each attention.
        feed_forward: Width inside of feed-forward halves.
        eps: Number that norms add to variances.
        dropout: Part of the elements that dropout zeroes after both halves.
        attention_dropout: Likewise, of attention probabilities.
    """

    hidden: int
    heads: int
    feed_forward: int
    eps: float = 1e-5
    dropout: float = 0.0
    attention_dropout: float = 0.0


@dataclass(frozen=True)
class StagePlan:
    """Places of the layers of a transformer: a forward stage of the pipeline for each entry, on an IPU of its own.

    Attributes:
        halves: For each stage the number of attention and of feed-forward halves of layers.
        proportions: For each IPU the share of a tile's memory that products plan with; the last for all further ones,
            and none for the libraries' own.

    Raises:
        InvalidOptionError: Stages that do not cut a row of layers.
    """

    halves: tuple[tuple[int, int], ...]
    proportions: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        attention, feed_forward = 0, 0
        for stage, (more, other) in enumerate(self.halves):
            attention, feed_forward = attention + more, feed_forward + other
            # A layer's halves take turns, attention first.
            if attention - feed_forward not in (0, 1):
                raise InvalidOptionError(
                    f"stages up to {stage} have {attention} attention and {feed_forward} feed-forward halves of layers",
                    because="halves take turns, attention first",
                    remedy="name attention first, and as many of both up to the last stage",
                )
        if attention != feed_forward:
            raise InvalidOptionError(
                f"{attention} attention and {feed_forward} feed-forward halves are no whole layers"
            )

    @classmethod
    def of_layers(cls, layers: Sequence[int], proportions: Sequence[float] = ()) -> StagePlan:
        """Stages of whole layers."""
        return cls(tuple((n, n) for n in layers), tuple(proportions))

    @property
    def layers(self) -> int:
        """Layers in all."""
        return sum(attention for attention, _ in self.halves)

    @property
    def attention(self) -> list[int]:
        """The stage of each attention half."""
        return [stage for stage, (count, _) in enumerate(self.halves) for _ in range(count)]

    @property
    def feed_forward(self) -> list[int]:
        """The stage of each feed-forward half."""
        return [stage for stage, (_, count) in enumerate(self.halves) for _ in range(count)]

    def hint(self, ipu: int) -> PlanHint | None:
        """Planning of products on an IPU."""
        return PlanHint(proportion=self.proportions[min(ipu, len(self.proportions) - 1)]) if self.proportions else None

    def at(self, net: NetworkBuilder, stage: int) -> AbstractContextManager[None]:
        """The place of a stage; that after the last is on the first IPU, where the embedding is that heads share."""
        count = len(self.halves)
        ipu = stage % count
        return net.at(place=Place(ipu, stage if count > 1 else 0), hint=self.hint(ipu))


class LayerBuilder:
    """Layers of one transformer, appended to a network.

    Args:
        net: The network.
        sizes: LayerSizes of the layers.
        stages: Places of the layers.
        samples: Samples of a micro-batch.
        tokens: Tokens of each.
        checkpoints: True if each layer's result is kept, from which its backward pass computes it again; False if that
            is done from the begin of a stage.
        norms_first: True if each half begins with its norm, as in GPT-2 and ViT; False if it ends with it, as in BERT.
        masks_apart: True if a mask is added in a pass of its own; False if in the pass that scales scores.
    """

    def __init__(
        self,
        net: NetworkBuilder,
        sizes: LayerSizes,
        stages: StagePlan,
        samples: int,
        tokens: int,
        *,
        checkpoints: bool,
        norms_first: bool,
        masks_apart: bool = False,
    ) -> None:
        self.net, self.sizes, self.stages, self.samples, self.tokens = net, sizes, stages, samples, tokens
        self.checkpoints, self.norms_first, self.masks_apart = checkpoints, norms_first, masks_apart

    def layers(self, x: Value, mask: Callable[[int], Value] | None = None) -> Value:
        """All layers of rows x [samples · tokens, hidden]; ``mask`` gives that of a stage: :meth:`self_attention`."""
        for number, places in enumerate(zip(self.stages.attention, self.stages.feed_forward, strict=True)):
            attention, feed_forward = places
            with self.stages.at(self.net, attention):
                part = partial(self.self_attention, mask=None if mask is None else partial(mask, attention))
                x = self._half(x, f"layer{number}/attention", part)
            with self.stages.at(self.net, feed_forward):
                x = self._half(x, f"layer{number}/feed_forward", self.two_layers)
                if self.checkpoints and number + 1 < self.stages.layers:
                    x = build.keep(self.net, x)
        return x

    def _half(self, x: Value, name: str, part: Callable[[Value, str], Value]) -> Value:
        if self.norms_first:
            return self.added(x, part(self.norm(x, f"{name}/norm"), name))
        return self.norm(self.added(x, part(x, name)), f"{name}/norm")

    def weight(self, name: str, *shape: int, dtype: ElementType = TYPE) -> Value:
        """A parameter."""
        return self.net.parameter(shape, dtype, name)

    def linear(self, x: Value, name: str, outputs: int) -> Value:
        """A product with a weight and a bias."""
        weight, bias = self.weight(f"{name}/weight", outputs, x.shape[-1]), self.weight(f"{name}/bias", outputs)
        with self.named(name):
            return build.linear(self.net, x, weight, bias)

    def norm(self, x: Value, name: str) -> Value:
        """A layer norm of rows."""
        width = x.shape[-1]
        gain, shift = self.weight(f"{name}/gain", width), self.weight(f"{name}/shift", width)
        with self.named(name):
            return build.norm(self.net, x, 1, self.sizes.eps, gain, shift)[0]

    def dropout(self, x: Value, share: float) -> Value:
        """Dropout, where there is any."""
        return build.dropout(self.net, x, share) if share else x

    def added(self, x: Value, y: Value) -> Value:
        """A residual connection."""
        return build.map_(self.net, derivative.arg(0) + derivative.arg(1), [x, y])

    def self_attention(self, x: Value, name: str, mask: Callable[[], Value] | None = None) -> Value:
        """Attention of rows x [samples · tokens, hidden].

        ``mask`` gives what is added to the scores, [samples or 1, 1, tokens, tokens]. It is asked for when there are
        scores, so that it may lie as they do.
        """
        net, sizes = self.net, self.sizes
        width = sizes.hidden // sizes.heads
        joined = self.linear(x, f"{name}/qkv", 3 * sizes.hidden)
        split = build.reshape(net, joined, (self.samples, self.tokens, 3, sizes.heads, width))
        query, key, value = (
            build.reshape(net, build.slice_(net, build.permute(net, split, (2, 0, 3, 1, 4)), 0, i, i + 1), self.by_head)
            for i in range(3)
        )
        with self.named(f"{name}/scores"):
            scores = build.matmul(net, query, build.transpose(net, key, 2, 3))
            scale = Const(1 / math.sqrt(width), TYPE)
            if mask is None or self.masks_apart:
                scores = build.map_(net, derivative.arg(0) * scale, [scores])
            elif mask is not None:
                scores = build.map_(net, derivative.arg(0) * scale + derivative.arg(1), [scores, mask()])
        if mask is not None and self.masks_apart:
            with self.named(f"{name}/{ADDED}"):
                scores = self.added(scores, mask())
        with self.named(f"{name}/scores"):
            probabilities = self.dropout(build.softmax(net, scores, 3), sizes.attention_dropout)
        with self.named(f"{name}/context"):
            context = build.matmul(net, probabilities, value)
        rows = build.reshape(net, build.permute(net, context, (0, 2, 1, 3)), x.shape)
        return self.dropout(self.linear(rows, f"{name}/out", sizes.hidden), sizes.dropout)

    def two_layers(self, x: Value, name: str) -> Value:
        """The feed-forward half of rows."""
        up = self.linear(x, f"{name}/up", self.sizes.feed_forward)
        with self.named(f"{name}/gelu"):
            active = build.nonlinearity(self.net, "gelu", up)
        return self.dropout(self.linear(active, f"{name}/down", self.sizes.hidden), self.sizes.dropout)

    @property
    def by_head(self) -> tuple[int, int, int, int]:
        """Shape of queries, keys and values."""
        return self.samples, self.sizes.heads, self.tokens, self.sizes.hidden // self.sizes.heads

    def named(self, name: str) -> AbstractContextManager[None]:
        """A name for ops."""
        return self.net.at(DebugRecord(name))
