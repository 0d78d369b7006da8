"""Octave convolutions: channels of two resolutions, joined by average pooling and up-sampling.

Of the input and of the output, a share of the channels has half the resolution. Four convolutions lead from each kind
to each; from high to low the input is pooled first, from low to high the output is repeated afterwards. They run at the
same time, as a multi-convolution; so do their gradients, and their weight updates.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph import Graph, Sequence, Tensor
from abele.numerics import ElementType, as_element_type
from abele.poplibs import popnn, popops
from abele.poplibs.poplin import ConvParams, multiconv
from abele.validation.parameters import Parameters
from abele.validation.tools.conv import params_of

_RATE = -0.05


def build(graph: Graph, given: Parameters) -> Sequence:
    """Octave convolution of ``given``: forward and, unless that is all, backward and weight update."""
    whole = params_of(given)
    alpha = given.number("alpha", 0.0)
    low_in = round(given.number("alpha-in", alpha) * whole.in_channels)
    low_out = round(given.number("alpha-out", alpha) * whole.out_channels)
    dtype = as_element_type(given.text("data-type", "half"))
    layer = Octave(graph, whole, low_in, low_out, dtype, as_element_type(given.text("partials-type", "float")))
    prog = Sequence()
    layer.forward(prog)
    if not given.flag("inference-only"):
        layer.backward(prog)
    return prog


@dataclass
class Octave:
    """One octave convolution.

    Attributes:
        graph: The graph.
        whole: The convolution if all channels had the high resolution.
        low_in: Channels of the input at half the resolution.
        low_out: Channels of the output at half the resolution.
        dtype: Type of operands.
        partials: Type of partial sums.
    """

    graph: Graph
    whole: ConvParams
    low_in: int
    low_out: int
    dtype: ElementType
    partials: ElementType

    def __post_init__(self) -> None:
        high_in, high_out = self.whole.in_channels - self.low_in, self.whole.out_channels - self.low_out
        self.paths = {
            (source, target): self._params(n_in, n_out, low=low)
            for source, target, n_in, n_out, low in (
                ("high", "high", high_in, high_out, False),
                ("high", "low", high_in, self.low_out, True),
                ("low", "high", self.low_in, high_out, True),
                ("low", "low", self.low_in, self.low_out, True),
            )
            if n_in and n_out
        }
        self.options = {"partialsType": self.partials}
        created = [
            multiconv.CreateTensorArgs(self.dtype, params, self.options, "_".join(path))
            for path, params in self.paths.items()
        ]
        self.inputs = {
            source: multiconv.create_input(self.graph, created, number)
            for number, (source, target) in enumerate(self.paths)
            if source == target
        }
        self.weights = {
            path: multiconv.create_weights(self.graph, created, number) for number, path in enumerate(self.paths)
        }
        self.pooled = self.inputs["high"]

    def _params(self, n_in: int, n_out: int, *, low: bool) -> ConvParams:
        w = self.whole
        field = tuple(n // 2 for n in w.field) if low else w.field
        return ConvParams(
            batch=w.batch,
            in_channels=n_in,
            out_channels=n_out,
            field=field,
            kernel=w.kernel,
            stride=w.stride,
            dilation=w.dilation,
            padding_lower=w.padding_lower,
            padding_upper=w.padding_upper,
        )

    def forward(self, prog: Sequence) -> None:
        """Append the forward pass."""
        if ("high", "low") in self.paths:
            self.pooled = popnn.pool(self.graph, self.inputs["high"], self._pooling(), prog, name="pool")
        paths = [
            multiconv.ConvolutionArgs(self._input(path), self.weights[path], params, self.options)
            for path, params in self.paths.items()
        ]
        made = multiconv.convolution(self.graph, paths, prog)
        outputs: dict[str, Tensor] = {}
        for (source, target), y in zip(self.paths, made, strict=True):
            y = _upsampled(y) if (source, target) == ("low", "high") else y
            if target in outputs:
                popops.add_in_place(self.graph, outputs[target], y, prog)
            else:
                outputs[target] = y
        self.outputs = outputs

    def backward(self, prog: Sequence) -> None:
        """Append the gradients of the inputs and the updates of the weights."""
        created = [
            multiconv.CreateTensorArgs(self.dtype, params.gradient_params(), self.options, f"{target}_deltas")
            for (_, target), params in self.paths.items()
        ]
        numbers = list(self.paths)
        deltas = {
            target: multiconv.create_input(self.graph, created, numbers.index((self._first(target), target)))
            for target in self.outputs
        }
        small = self._summed(deltas["high"], prog) if ("low", "high") in self.paths else deltas["high"]
        given = {p: small if p == ("low", "high") else deltas[p[1]] for p in self.paths}
        backs = multiconv.convolution(
            self.graph,
            [
                multiconv.ConvolutionArgs(given[p], self.weights[p], params.gradient_params(), self.options)
                for p, params in self.paths.items()
            ],
            prog,
            transpose_and_flip_weights=True,
        )
        gradients: dict[str, Tensor] = {}
        for (source, target), back in zip(self.paths, backs, strict=True):
            if (source, target) == ("high", "low"):
                back = popnn.pool_input_gradient(self.graph, self._pooling(), back, prog=prog, name="pool_gradient")
            if source in gradients:
                popops.add_in_place(self.graph, gradients[source], back, prog)
            else:
                gradients[source] = back
        updates = [
            multiconv.ConvWeightUpdateArgs(given[p], self.weights[p], self._input(p), _RATE, params, self.options)
            for p, params in self.paths.items()
        ]
        multiconv.convolution_weight_update(self.graph, updates, prog)

    def _input(self, path: tuple[str, str]) -> Tensor:
        """Input of a convolution."""
        return self.pooled if path == ("high", "low") else self.inputs[path[0]]

    def _first(self, target: str) -> str:
        return "high" if ("high", target) in self.paths else "low"

    def _pooling(self) -> popnn.PoolParams:
        channels = self.whole.in_channels - self.low_in
        return popnn.PoolParams(
            kind="avg",
            field=self.whole.field,
            kernel=(2, 2),
            stride=(2, 2),
            padding_lower=(0, 0),
            padding_upper=(0, 0),
            channels=channels,
            batch=self.whole.batch,
        )

    def _summed(self, deltas: Tensor, prog: Sequence) -> Tensor:
        """Every square of four gradients summed: what repeating four times gives back."""
        batch, channels, *field = deltas.shape
        params = popnn.PoolParams(
            kind="sum",
            field=tuple(field),
            kernel=(2, 2),
            stride=(2, 2),
            padding_lower=(0, 0),
            padding_upper=(0, 0),
            channels=channels,
            batch=batch,
        )
        return popnn.pool(self.graph, deltas, params, prog, name="sum_deltas")


def _upsampled(tensor: Tensor) -> Tensor:
    """[batch, channels, h, w], each element four times."""
    batch, channels, height, width = tensor.shape
    apart = tensor.reshape((batch, channels, height, 1, width, 1))
    return apart.broadcast_to((batch, channels, height, 2, width, 2)).reshape((batch, channels, 2 * height, 2 * width))
