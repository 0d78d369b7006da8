"""ResNet's inference pass built from library functions; norms are folded into weights and biases."""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.graph import Graph, Sequence, Tensor
from abele.numerics import ElementType, f16
from abele.poplibs import poplin, popnn, popops
from abele.poplibs.popops import Op, _1, _2


@dataclass(frozen=True)
class ResNetConfig:
    """Sizes of a network of bottleneck blocks; those of ResNet-50 by default.

    Attributes:
        blocks: Blocks of each stage; from the second stage on, the first block halves the field.
        width: Channels after the first convolution, doubled by each stage.
        image: Extent of the square image of three channels.
        classes: Length of the result.
        batch: Images.
        dtype: Type of weights and activations.
        partials: Type in which products are summed.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    image: int = 224
    classes: int = 1000
    batch: int = 1
    dtype: ElementType = f16
    partials: ElementType = f16


EXPANSION = 4
"""Channels of a block's result over those between its convolutions. Source: He et al. 2015, table 1."""


@dataclass
class ResNet:
    """The network being built.

    Attributes:
        graph: Graph to build in.
        config: Its sizes.
        prog: The program that computes it.
        weights: Weights and biases by name.
        convolutions: Parameters of every convolution, in order.
    """

    graph: Graph
    config: ResNetConfig
    prog: Sequence = field(default_factory=Sequence)
    weights: dict[str, Tensor] = field(default_factory=dict)
    convolutions: list[poplin.ConvParams] = field(default_factory=list)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Build all of it; the image [batch, 3, size, size] and the logits [batch, classes]."""
        config = self.config
        first = self._params((config.batch, 3, config.image, config.image), config.width, 7, 2)
        image = poplin.create_input(self.graph, first, config.dtype, "image", partials_type=config.partials)
        x = self._relu(self._convolve("stem", image, first))
        x = self._pool(x)
        for stage, blocks in enumerate(config.blocks):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                x = self._block(f"stage{stage}/block{block}", x, config.width << stage, stride)
        return image, self._classify(x)

    def _params(self, shape: tuple[int, ...], channels: int, kernel: int, stride: int) -> poplin.ConvParams:
        pad = (kernel // 2,) * 2
        return poplin.ConvParams(
            shape[0], shape[1], channels, shape[2:], (kernel,) * 2, (stride,) * 2, padding_lower=pad, padding_upper=pad
        )

    def _convolve(self, name: str, x: Tensor, params: poplin.ConvParams) -> Tensor:
        kind, partials = self.config.dtype, self.config.partials
        weights = poplin.create_weights(self.graph, params, kind, f"{name}/weights", partials_type=partials)
        bias = poplin.create_biases(self.graph, params, kind, f"{name}/bias")
        self.weights |= {f"{name}/weights": weights, f"{name}/bias": bias}
        self.convolutions.append(params)
        out = poplin.convolution(self.graph, x, weights, params, self.prog, partials_type=partials, name=name)
        poplin.add_bias(self.graph, out, bias, self.prog, name=f"{name}/bias")
        return out

    def _relu(self, x: Tensor) -> Tensor:
        popnn.non_linearity_in_place(self.graph, "relu", x, self.prog)
        return x

    def _pool(self, x: Tensor) -> Tensor:
        pads = (1, 1)
        params = popnn.PoolParams("max", x.shape[2:], (3, 3), (2, 2), pads, pads, x.shape[1], x.shape[0])
        return popnn.pool(self.graph, x, params, self.prog)

    def _block(self, name: str, x: Tensor, width: int, stride: int) -> Tensor:
        shortcut = x
        if stride != 1 or x.shape[1] != EXPANSION * width:
            projected = self._params(x.shape, EXPANSION * width, 1, stride)
            shortcut = self._convolve(f"{name}/shortcut", x, projected)
        out = self._relu(self._convolve(f"{name}/reduce", x, self._params(x.shape, width, 1, 1)))
        out = self._relu(self._convolve(f"{name}/conv", out, self._params(out.shape, width, 3, stride)))
        out = self._convolve(f"{name}/expand", out, self._params(out.shape, EXPANSION * width, 1, 1))
        popops.map_in_place(self.graph, Op("max", _1 + _2, 0.0), [out, shortcut], self.prog, f"{name}/join")
        return out

    def _classify(self, x: Tensor) -> Tensor:
        graph, config = self.graph, self.config
        field_size = x.shape[2:]
        none = (0, 0)
        params = popnn.PoolParams("avg", field_size, field_size, (1, 1), none, none, x.shape[1], x.shape[0])
        pooled = popnn.pool(graph, x, params, self.prog).reshape(x.shape[:2])
        shape = (x.shape[1], config.classes)
        partials = config.partials
        weights = poplin.create_matmul_input_rhs(
            graph, config.dtype, x.shape[:2], shape, "classes/weights", partials_type=partials
        )
        bias = graph.variable(config.dtype, (config.classes,), name="classes/bias", map="linear")
        self.weights |= {"classes/weights": weights, "classes/bias": bias}
        logits = poplin.matmul(graph, pooled, weights, self.prog, partials_type=partials, name="classes")
        poplin.add_bias(graph, logits, bias, self.prog)
        return logits
