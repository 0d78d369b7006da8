"""PopLibs' full description of a convolution: transforms of input, kernel and output around the sliding.

Input and kernel are truncated, dilated, padded and flipped, in this order; the output is truncated, strided and padded.
All of it becomes a plain :class:`~abele.poplibs.poplin.conv_params.params.ConvParams` over views: what is cut off or
flipped is not read, padding of the kernel and truncation of the output are padding of the input, and the output's
padding is a constant that is shown around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.poplibs import popops
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.words import counted

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class InputTransform:
    """Transform of the input or of the kernel: one number per field dimension each, or none at all.

    Attributes:
        truncation_lower: Elements cut off before.
        truncation_upper: Elements cut off after.
        dilation: Distance of neighbours afterwards.
        padding_lower: Zeros before.
        padding_upper: Zeros after.
        flip: True if it is flipped in the end.
    """

    truncation_lower: Numbers = ()
    truncation_upper: Numbers = ()
    dilation: Numbers = ()
    padding_lower: Numbers = ()
    padding_upper: Numbers = ()
    flip: tuple[bool, ...] = ()


@dataclass(frozen=True)
class OutputTransform:
    """Transform of the output: one number per field dimension each, or none at all.

    Attributes:
        truncation_lower: Elements cut off before.
        truncation_upper: Elements cut off after.
        stride: Step between the elements that are kept.
        padding_lower: Zeros before.
        padding_upper: Zeros after.
    """

    truncation_lower: Numbers = ()
    truncation_upper: Numbers = ()
    stride: Numbers = ()
    padding_lower: Numbers = ()
    padding_upper: Numbers = ()


@dataclass(frozen=True)
class TransformedConv:
    """A convolution as PopLibs' ``ConvParams`` describe it.

    Attributes:
        batch: Samples.
        field: Extents of the input.
        kernel: Extents of the kernel.
        in_channels: Channels of the input, all groups together.
        out_channels: Channels of the output, all groups together.
        groups: Groups of channels that do not mix.
        input: Transform of the input.
        kernel_transform: Transform of the kernel.
        output: Transform of the output.

    Raises:
        TensorError: Not one number per field dimension, a negative one, more cut off than there is, or a convolution
            that :class:`~abele.poplibs.poplin.conv_params.params.ConvParams` refuses.
    """

    batch: int
    field: Numbers
    kernel: Numbers
    in_channels: int
    out_channels: int
    groups: int = 1
    input: InputTransform = InputTransform()
    kernel_transform: InputTransform = InputTransform()
    output: OutputTransform = OutputTransform()

    def __post_init__(self) -> None:
        rank = len(self.field)
        for name in ("input", "kernel_transform", "output"):
            object.__setattr__(self, name, _filled(getattr(self, name), rank, name))
        if len(self.kernel) != rank:
            raise TensorError(
                f"convolution: the kernel has {counted(len(self.kernel), 'dimension')}, the field has {rank}"
            )
        self.core  # noqa: B018 - what cannot be is said here

    @property
    def core(self) -> ConvParams:
        """The convolution that is left once input, kernel and output are seen as views."""
        rank = range(len(self.field))
        x, w, y = self.input, self.kernel_transform, self.output
        lower, upper = [], []
        for d in rank:
            x_pads = (x.padding_lower[d], x.padding_upper[d])
            w_pads = (w.padding_lower[d], w.padding_upper[d])
            x_low, x_high = x_pads[::-1] if x.flip[d] else x_pads
            w_low, w_high = w_pads[::-1] if w.flip[d] else w_pads
            lower.append(x_low - w_low - y.truncation_lower[d])
            upper.append(x_high - w_high - y.truncation_upper[d])
        return ConvParams(
            batch=self.batch,
            in_channels=self.in_channels,
            out_channels=self.out_channels,
            field=_left("input", self.field, x.truncation_lower, x.truncation_upper),
            kernel=_left("kernel", self.kernel, w.truncation_lower, w.truncation_upper),
            stride=y.stride,
            dilation=w.dilation,
            padding_lower=tuple(lower),
            padding_upper=tuple(upper),
            input_dilation=x.dilation,
            flip=w.flip,
            groups=self.groups,
        )

    @property
    def input_shape(self) -> Numbers:
        """Shape of the input tensor."""
        return (self.batch, self.in_channels, *self.field)

    @property
    def weights_shape(self) -> Numbers:
        """Shape of the weights tensor."""
        return (self.out_channels, self.in_channels // self.groups, *self.kernel)

    @property
    def output_field(self) -> Numbers:
        """Extents of the output, its padding included."""
        around = zip(self.core.output_field, self.output.padding_lower, self.output.padding_upper, strict=True)
        return tuple(n + low + high for n, low, high in around)

    @property
    def output_shape(self) -> Numbers:
        """Shape of the output tensor."""
        return (self.batch, self.out_channels, *self.output_field)

    def seen_input(self, x: Tensor) -> Tensor:
        """Part of the input that is read, in the order of reading."""
        return _seen(x, self.input)

    def seen_weights(self, weights: Tensor) -> Tensor:
        """The part of the weights that is read; the kernel's flip is left to the convolution."""
        return _seen(weights, replace(self.kernel_transform, flip=(False,) * len(self.field)))

    def shown_output(self, graph: Graph, y: Tensor) -> Tensor:
        """The output with its padding around it."""
        return _padded(graph, y, self.output.padding_lower, self.output.padding_upper)

    def seen_deltas(self, deltas: Tensor) -> Tensor:
        """The gradients of the output without those of its padding."""
        for d, (low, high) in enumerate(zip(self.output.padding_lower, self.output.padding_upper, strict=True), 2):
            deltas = deltas.slice(low, deltas.shape[d] - high, d)
        return deltas

    def shown_input_gradient(self, graph: Graph, gradient: Tensor) -> Tensor:
        """Gradient of the whole input, from that of its part that is read; zero elsewhere."""
        turned = _flipped(gradient, self.input.flip)
        return _padded(graph, turned, self.input.truncation_lower, self.input.truncation_upper)

    def shown_weight_gradient(self, graph: Graph, gradient: Tensor) -> Tensor:
        """The gradient of all weights, from that of those that are read; zero elsewhere."""
        transform = self.kernel_transform
        return _padded(graph, gradient, transform.truncation_lower, transform.truncation_upper)


_Transform = TypeVar("_Transform", InputTransform, OutputTransform)


def _filled(transform: _Transform, rank: int, name: str) -> _Transform:
    """The transform with one number per dimension everywhere."""
    values: dict[str, Any] = {}
    for item in fields(transform):
        given = getattr(transform, item.name)
        default = item.name in ("dilation", "stride")
        values[item.name] = tuple(given) or (type(given[0])(0) if given else int(default),) * rank
        if len(values[item.name]) != rank:
            raise TensorError(
                f"convolution: {item.name} of the {name} has {len(given)} entries, the field has {rank} dimensions"
            )
        if min(values[item.name], default=1) < int(default):
            raise TensorError(
                f"convolution: {item.name} of the {name} is {list(values[item.name])}, "
                f"it must be at least {int(default)} everywhere"
            )
    return replace(transform, **values)


def _left(name: str, extents: Sequence[int], lower: Numbers, upper: Numbers) -> Numbers:
    left = tuple(n - low - high for n, low, high in zip(extents, lower, upper, strict=True))
    if min(left, default=1) < 1:
        raise TensorError(
            f"convolution: nothing is left of the {name} {list(extents)} truncated by {list(lower)} and {list(upper)}"
        )
    return left


def _seen(tensor: Tensor, transform: InputTransform) -> Tensor:
    cuts = zip(transform.truncation_lower, transform.truncation_upper, strict=True)
    for d, (low, high) in enumerate(cuts, 2):
        tensor = tensor.slice(low, tensor.shape[d] - high, d)
    return _flipped(tensor, transform.flip)


def _flipped(tensor: Tensor, flip: Sequence[bool]) -> Tensor:
    for d, turned in enumerate(flip, 2):
        tensor = tensor.reverse(d) if turned else tensor
    return tensor


def _padded(graph: Graph, tensor: Tensor, lower: Numbers, upper: Numbers) -> Tensor:
    if not any(lower) and not any(upper):
        return tensor
    return popops.pad(graph, tensor, (0, 0, *lower), (0, 0, *upper))
