"""Parameters of a convolution: channels, field, kernel, and how they slide over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from abele.errors import TensorError
from abele.numerics import ElementType
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.words import counted

if TYPE_CHECKING:
    from abele.poplibs.poplin.conv_params.cpp_params import CppInputTransform, CppOutputTransform

_PER_DIM = {"stride": 1, "dilation": 1, "padding_lower": 0, "padding_upper": 0, "input_dilation": 1, "flip": 0}
"""Parameters of each field dimension, with their defaults."""


@dataclass(frozen=True)
class ConvParams:
    """A convolution (cross-correlation, as networks use it) with any number of field dimensions.

    Per field dimension, the input is dilated, padded with zeros (negative padding cuts), and the dilated kernel moves
    over it by the stride. Tensors are channels first: input ``[batch, in_channels, *field]``, weights
    ``[out_channels, in_channels / groups, *kernel]``, output ``[batch, out_channels, *output_field]``. A per-dimension
    value that is left out is 1 for steps, 0 for padding and False for ``flip``; a single number holds for all.

    Attributes:
        batch: Samples.
        in_channels: Channels of the input, all groups together.
        out_channels: Channels of the output, all groups together.
        field: Extents of the input.
        kernel: Extents of the kernel.
        stride: Steps by which the kernel moves.
        dilation: Distance of neighbouring kernel elements.
        padding_lower: Zeros before the first input element.
        padding_upper: Zeros after the last.
        input_dilation: Distance of neighbouring input elements (a transposed convolution's stride).
        flip: True if the kernel runs backwards.
        groups: Groups of channels that do not mix.

    Raises:
        TensorError: A number is not positive, the numbers of dimensions differ, channels do not divide into groups, or
            the kernel does not fit the padded field.
    """

    InputTransform: ClassVar[type[CppInputTransform]]
    OutputTransform: ClassVar[type[CppOutputTransform]]

    batch: int
    in_channels: int
    out_channels: int
    field: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    padding_lower: tuple[int, ...] = ()
    padding_upper: tuple[int, ...] = ()
    input_dilation: tuple[int, ...] = ()
    flip: tuple[bool, ...] = ()
    groups: int = 1

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """PopLibs' constructors begin with an element type, and make parameters in PopLibs' words."""
        if given and isinstance(given[0], (ElementType, str)):
            from abele.poplibs.poplin.conv_params.cpp_params import conv_params

            return conv_params(*given, **named)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if isinstance(self.field, (int, str)):
            raise TensorError(f"convolution: field {self.field!r}", remedy="the extents of the input, as in (28, 28)")
        object.__setattr__(self, "field", tuple(self.field))
        object.__setattr__(self, "kernel", _per_dim("kernel", self.kernel, len(self.field), 1))
        for name, default in _PER_DIM.items():
            object.__setattr__(self, name, _per_dim(name, getattr(self, name), len(self.field), default))
        object.__setattr__(self, "flip", tuple(bool(f) for f in self.flip))
        self._check()

    def _check(self) -> None:
        for name in ("batch", "in_channels", "out_channels", "groups", "field"):
            value = getattr(self, name)
            if not all(isinstance(n, Integral) for n in (value if name == "field" else (value,))):
                raise TensorError(f"convolution: {name} {value!r} must be whole numbers")
        for name in ("batch", "in_channels", "out_channels", "groups"):
            if getattr(self, name) < 1:
                raise TensorError(f"convolution: {name} is {getattr(self, name)}, it must be at least 1")
        for name in ("field", "kernel", "stride", "dilation", "input_dilation"):
            if min(getattr(self, name), default=1) < 1:
                raise TensorError(f"convolution: {name} {list(getattr(self, name))} has an extent below 1")
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise TensorError(
                    f"convolution: {getattr(self, name)} {name} do not divide into {counted(self.groups, 'group')}",
                    remedy=f"choose groups that divide both {self.in_channels} and {self.out_channels}",
                )
        for d, size in enumerate(self.output_field):
            if size < 1:
                raise TensorError(
                    f"convolution: the kernel does not fit the field in dimension {d}",
                    because=f"it spans {self._kernel_span(d)} elements, the padded field has {self._padded(d)}",
                    remedy="pad more, or use a smaller kernel or dilation",
                )

    def _kernel_span(self, d: int) -> int:
        return (self.kernel[d] - 1) * self.dilation[d] + 1

    def _padded(self, d: int) -> int:
        dilated = (self.field[d] - 1) * self.input_dilation[d] + 1
        return dilated + self.padding_lower[d] + self.padding_upper[d]

    @property
    def output_field(self) -> tuple[int, ...]:
        """Extents of the output."""
        return tuple((self._padded(d) - self._kernel_span(d)) // self.stride[d] + 1 for d in range(len(self.field)))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the input tensor."""
        return (self.batch, self.in_channels, *self.field)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Shape of the weights tensor."""
        return (self.out_channels, self.in_channels // self.groups, *self.kernel)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output tensor."""
        return (self.batch, self.out_channels, *self.output_field)

    @property
    def is_pointwise(self) -> bool:
        """True if every output reads just the inputs of the same index; never where there is no field."""
        return len(self.field) > 0 and all(axis.is_pointwise for axis in self.axes)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The relation of input, kernel and output in each field dimension."""
        return tuple(self._axis(d) for d in range(len(self.field)))

    def _axis(self, d: int) -> Axis:
        step, offset = self.dilation[d], -self.padding_lower[d]
        # Kernel position k of a flipped kernel is kernel - 1 - k of one that is not: the step changes sign, and the
        # offset moves to the other end.
        if self.flip[d]:
            step, offset = -step, offset + (self.kernel[d] - 1) * step
        return Axis(
            inputs=self.field[d],
            outputs=self.output_field[d],
            kernel=self.kernel[d],
            in_step=self.input_dilation[d],
            out_step=self.stride[d],
            kernel_step=step,
            offset=offset,
        )

    def gradient_params(self) -> ConvParams:
        """The convolution that turns gradients of the output into gradients of the input.

        It takes the weights with their channel dimensions exchanged (within each group).
        """
        rank = range(len(self.field))
        # With input and output exchanged, output o meets input i at the same k, so the kernel turns round; padded as a
        # full convolution is, less what the forward one was padded by.
        lower = tuple(self._kernel_span(d) - 1 - self.padding_lower[d] for d in rank)
        # The same at the upper end, and what the stride left over there: inputs that no window read get gradients of 0.
        upper = tuple(
            (self.field[d] - 1) * self.input_dilation[d]
            + self._kernel_span(d)
            - ((self.output_field[d] - 1) * self.stride[d] + 1)
            - lower[d]
            for d in rank
        )
        return replace(
            self,
            in_channels=self.out_channels,
            out_channels=self.in_channels,
            field=self.output_field,
            stride=self.input_dilation,
            padding_lower=lower,
            padding_upper=upper,
            input_dilation=self.stride,
            flip=tuple(not f for f in self.flip),
        )

    def weight_update_params(self) -> ConvParams:
        """The convolution that turns the input, with gradients of the output as its kernel, into those of the weights.

        Samples are its channels: it takes the input with batch and channels exchanged (within each group), gives the
        gradients of the weights with in-channels as its batch, and needs a kernel that does not run backwards.

        Raises:
            TensorError: The kernel runs backwards.
        """
        if any(self.flip):
            raise TensorError("convolution: weight_update_params of a convolution whose kernel runs backwards")
        upper = tuple(
            (k - 1) * dilation + (o - 1) * stride + 1 - ((n - 1) * apart + 1) - lower
            for k, dilation, o, stride, n, apart, lower in zip(
                self.kernel,
                self.dilation,
                self.output_field,
                self.stride,
                self.field,
                self.input_dilation,
                self.padding_lower,
                strict=True,
            )
        )
        return replace(
            self,
            batch=self.in_channels // self.groups,
            in_channels=self.batch * self.groups,
            kernel=self.output_field,
            stride=self.dilation,
            dilation=self.stride,
            padding_upper=upper,
        )

    def canonicalize(self) -> ConvParams:
        """The same convolution without parameters that change nothing: dilation or flipping of a single element."""
        single = [n == 1 for n in self.kernel]
        return replace(
            self,
            dilation=tuple(1 if one else n for n, one in zip(self.dilation, single, strict=True)),
            flip=tuple(turned and not one for turned, one in zip(self.flip, single, strict=True)),
            input_dilation=tuple(1 if n == 1 else d for d, n in zip(self.input_dilation, self.field, strict=True)),
        )

    @property
    def macs(self) -> int:
        """Multiply-accumulates, those on padding left out."""
        pairs = prod(int(axis.meets().sum()) for axis in self.axes)
        return self.batch * self.out_channels * (self.in_channels // self.groups) * pairs


def _per_dim(name: str, value: int | Sequence[int], rank: int, default: int) -> tuple[int, ...]:
    """``value`` as one number per field dimension."""
    if isinstance(value, int):
        return (int(value),) * rank
    if len(value) == 0:
        return (default,) * rank
    if len(value) != rank:
        raise TensorError(
            f"convolution: {name} {list(value)} has {counted(len(value), 'entry')}, the field has {rank} dimensions"
        )
    return tuple(int(v) for v in value)
