"""Training of ResNets of bottlenecks, v1.5, on one IPU to a replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from abele.expr import derivative
from abele.graph.debug import DebugRecord
from abele.network.ir import BlockBuilder, Network, NetworkBuilder, PlanHint, Value
from abele.network.ops import build
from abele.numerics import f16, i32, u8
from abele.poplibs.popnn.pool_params import PoolParams
from abele.validation.training.losses import cross_entropy

TYPE = f16
"""Type of weights and activations."""


@dataclass(frozen=True)
class ResNet:
    """A ResNet of bottlenecks whose second convolutions have the strides.

    Attributes:
        blocks: Blocks of each size.
        widths: Channels inside of the blocks of each size; four times as many leave them.
        image: Rows and columns of an image.
        classes: Classes.
        recompute_after: Blocks after which activations are kept, from which the backward pass computes the next
            again; those of the last stretch are all kept.
        norm_replicas: Replicas over which batch norms take their statistics.
        proportion: Share of a tile's memory that convolutions plan with; None for the libraries' own.
        eps: Number that norms add to variances.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    widths: tuple[int, ...] = (64, 128, 256, 512)
    image: int = 224
    classes: int = 1000
    recompute_after: tuple[int, ...] = ()
    norm_replicas: int = 1
    proportion: float | None = None
    eps: float = 1e-5

    def network(self, micro_batch: int) -> Network:
        """The network of a micro-batch."""
        return _ResNetBuilder(self, micro_batch).build()


@dataclass(frozen=True)
class _Bottleneck:
    """A bottleneck: channels that enter and inside, and its stride."""

    name: str
    entering: int
    width: int
    stride: int

    @property
    def leaving(self) -> int:
        return 4 * self.width


class _ResNetBuilder:
    def __init__(self, model: ResNet, samples: int) -> None:
        self.model, self.samples = model, samples
        self.net = NetworkBuilder()

    def build(self) -> Network:
        net, model = self.net, self.model
        image = net.input((self.samples, 3, model.image, model.image), u8, "image")
        labels = net.input((self.samples,), i32, "label")
        hint = PlanHint(proportion=model.proportion) if model.proportion else None
        with net.at(hint=hint):
            x = image
            for first, blocks in self._stretches():
                if first is None:
                    x = self._last(net, x, blocks)
                else:
                    # Weights are made outside of the stretch, which only reads them.
                    (x,) = build.checkpoint(net, partial(self._again, x, first, blocks))
            pooled = build.reduce(net, x, [2, 3], scale=1 / (x.shape[2] * x.shape[3]))
            weight = net.parameter((model.classes, x.shape[1]), TYPE, "classes/weight")
            bias = net.parameter((model.classes,), TYPE, "classes/bias")
            with _named(net, "classes"):
                logits = build.linear(net, pooled, weight, bias)
            with _named(net, "loss"):
                net.loss = cross_entropy(net, logits, labels)
        net.output(net.loss)
        return net.finish()

    def _stretches(self) -> Iterator[tuple[bool | None, list[_Bottleneck]]]:
        """Stretches of blocks that are computed again, followed by the one kept: (begins with the stem, blocks); None
        for the last.
        """
        every, entering = [], self.model.widths[0]
        for size, (count, width) in enumerate(zip(self.model.blocks, self.model.widths, strict=True)):
            for number in range(count):
                block = _Bottleneck(f"size{size}/{number}", entering, width, 2 if size and not number else 1)
                every.append(block)
                entering = block.leaving
        cuts = [0, *sorted(self.model.recompute_after), len(every)]
        for number, (begin, end) in enumerate(pairwise(cuts)):
            yield (None if end == len(every) else number == 0), every[begin:end]

    def _last(self, net: BlockBuilder, x: Value, blocks: list[_Bottleneck]) -> Value:
        return self._stretch(net, x, x.dtype == u8, blocks)

    def _again(self, x: Value, stem: bool, blocks: list[_Bottleneck], body: BlockBuilder) -> list[Value]:
        return [self._stretch(body, x, stem, blocks)]

    def _stretch(self, net: BlockBuilder, x: Value, stem: bool, blocks: list[_Bottleneck]) -> Value:
        x = net.read(x)
        if stem:
            x = self._stem(net, x)
        for block in blocks:
            x = self._bottleneck(net, x, block)
        return x

    def _stem(self, net: BlockBuilder, image: Value) -> Value:
        """Pixels as numbers about 0, the first convolution and the pool."""
        with _named(net, "stem/pixels"):
            pixels = build.cast(net, image, TYPE)
            pixels = build.map_(net, derivative.arg(0) * (1 / 58.0) - 2.0, [pixels])
        x = self._convolution(net, pixels, "stem", self.model.widths[0], 7, 2)
        pooling = PoolParams(
            kind="max",
            field=x.shape[2:],
            kernel=(3, 3),
            stride=(2, 2),
            padding_lower=(1, 1),
            padding_upper=(1, 1),
            channels=x.shape[1],
            batch=x.shape[0],
            dtype=TYPE,
        )
        with _named(net, "stem/pool"):
            return build.pool(net, x, pooling)

    def _bottleneck(self, net: BlockBuilder, x: Value, block: _Bottleneck) -> Value:
        made = self._convolution(net, x, f"{block.name}/1", block.width, 1, 1)
        made = self._convolution(net, made, f"{block.name}/2", block.width, 3, block.stride)
        made = self._convolution(net, made, f"{block.name}/3", block.leaving, 1, 1, active=False)
        if block.entering != block.leaving or block.stride > 1:
            x = self._convolution(net, x, f"{block.name}/shortcut", block.leaving, 1, block.stride, active=False)
        with _named(net, f"{block.name}/sum"):
            total = build.map_(net, derivative.arg(0) + derivative.arg(1), [made, x])
        with _named(net, f"{block.name}/relu"):
            return build.nonlinearity(net, "relu", total)

    def _convolution(
        self, net: BlockBuilder, x: Value, name: str, channels: int, kernel: int, stride: int, *, active: bool = True
    ) -> Value:
        """A convolution, its norm, and the non-linearity."""
        weight = self.net.parameter((channels, x.shape[1], kernel, kernel), TYPE, f"{name}/weight")
        gain, shift = (self.net.parameter((channels,), TYPE, f"{name}/{what}") for what in ("gain", "shift"))
        with _named(net, name):
            around = ((kernel - 1) // 2,) * 2
            x = build.convolution(net, x, weight, stride=(stride, stride), padding=around, dilation=(1, 1))
        with _named(net, f"{name}/norm"):
            x = self._norm(net, x, gain, shift)
        with _named(net, f"{name}/relu"):
            return build.nonlinearity(net, "relu", x) if active else x

    def _norm(self, net: BlockBuilder, x: Value, gain: Value, shift: Value) -> Value:
        """A batch norm."""
        return build.norm(net, x, build.BATCH, self.model.eps, gain, shift, replicas=self.model.norm_replicas)[0]


@contextmanager
def _named(net: BlockBuilder, name: str) -> Iterator[None]:
    with net.at(DebugRecord(name)):
        yield
