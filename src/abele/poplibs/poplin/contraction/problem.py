"""The one problem that every matmul, convolution and gradient of a convolution is an instance of.

``out[g, b, co, o…] = Σ over ci, k… of in[g, b, ci, i…] · weights[g, co, ci, k…]``: in every field dimension i follows
from o and k by an :class:`~abele.poplibs.poplin.conv_params.axis.Axis`. A matmul has no field dimensions: its rows are
the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from abele.numerics import ElementType
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.conv_params.params import ConvParams


@dataclass(frozen=True)
class Contraction:
    """Extents and types of a contraction.

    Attributes:
        groups: Independent groups, g.
        batch: Samples of a group, b.
        in_channels: Channels of a group that are summed over, ci.
        out_channels: Channels of a group's output, co.
        axes: Field dimensions.
        dtype: Type of both inputs.
        partials: Type that a vertex accumulates in and writes.
        output: Type of the result.
        diagonal: True if the weights are zero but for equal in- and out-channels: groups of one channel, combined.
    """

    groups: int
    batch: int
    in_channels: int
    out_channels: int
    axes: tuple[Axis, ...]
    dtype: ElementType
    partials: ElementType
    output: ElementType
    diagonal: bool = False

    @property
    def rank(self) -> int:
        """Number of field dimensions."""
        return len(self.axes)

    @property
    def in_dims(self) -> tuple[str, ...]:
        """Names of the input's dimensions, in order."""
        return ("g", "b", "ci", *(f"i{d}" for d in range(self.rank)))

    @property
    def weight_dims(self) -> tuple[str, ...]:
        """Names of the weights' dimensions, in order."""
        return ("g", "co", "ci", *(f"k{d}" for d in range(self.rank)))

    @property
    def out_dims(self) -> tuple[str, ...]:
        """Names of the output's dimensions, in order."""
        return ("g", "b", "co", *(f"o{d}" for d in range(self.rank)))

    @property
    def split_dims(self) -> tuple[str, ...]:
        """Names of the dimensions over which work is split; those that are summed over come last."""
        return ("g", "b", *(f"o{d}" for d in range(self.rank)), "co", *self.summed_dims)

    @property
    def summed_dims(self) -> tuple[str, ...]:
        """Names of the dimensions that are summed over."""
        return ("ci", *(f"k{d}" for d in range(self.rank)))

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dimension by name."""
        named = {"g": self.groups, "b": self.batch, "ci": self.in_channels, "co": self.out_channels}
        for d, axis in enumerate(self.axes):
            named |= {f"i{d}": axis.inputs, f"o{d}": axis.outputs, f"k{d}": axis.kernel}
        return named

    @property
    def taps(self) -> int:
        """Kernel positions."""
        return prod(axis.kernel for axis in self.axes)

    @property
    def is_pointwise(self) -> bool:
        """True if no field dimension mixes: a 1×1 convolution or a matmul."""
        return all(axis.is_pointwise for axis in self.axes)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, those on padding left out."""
        pairs = prod(int(axis.meets().sum()) for axis in self.axes)
        return self.groups * self.batch * self.in_channels * self.out_channels * pairs

    def __str__(self) -> str:
        sizes = f"{self.groups}g {self.batch}b {self.in_channels}→{self.out_channels} channels"
        field = "".join(f" | {axis}" for axis in self.axes)
        return f"{sizes}{field}, {self.dtype} with {self.partials} partials to {self.output}"


def forward(params: ConvParams, dtype: ElementType, partials: ElementType, output: ElementType) -> Contraction:
    """The convolution itself: activations and weights to activations."""
    return Contraction(
        groups=params.groups,
        batch=params.batch,
        in_channels=params.in_channels // params.groups,
        out_channels=params.out_channels // params.groups,
        axes=params.axes,
        dtype=dtype,
        partials=partials,
        output=output,
    )


def input_gradient(params: ConvParams, dtype: ElementType, partials: ElementType, output: ElementType) -> Contraction:
    """Gradients of the output, and weights with channels exchanged, to gradients of the input."""
    return Contraction(
        groups=params.groups,
        batch=params.batch,
        in_channels=params.out_channels // params.groups,
        out_channels=params.in_channels // params.groups,
        axes=tuple(axis.input_gradient() for axis in params.axes),
        dtype=dtype,
        partials=partials,
        output=output,
    )


def weight_gradient(
    params: ConvParams, dtype: ElementType, partials: ElementType, output: ElementType, *, swapped: bool
) -> Contraction:
    """Activations and gradients of the output to gradients of the weights; the sum is over samples.

    The activations slide over the gradients, in-channels as the batch; or, ``swapped``, the gradients over the
    activations, out-channels as the batch: then the in-channels come out innermost, as weights are stored.
    """
    groups = params.groups
    rows, columns = params.in_channels // groups, params.out_channels // groups
    if swapped:
        rows, columns = columns, rows
    axes = tuple(axis.kernel_gradient_swapped() if swapped else axis.kernel_gradient() for axis in params.axes)
    return Contraction(
        groups=groups,
        batch=rows,
        in_channels=params.batch,
        out_channels=columns,
        axes=axes,
        dtype=dtype,
        partials=partials,
        output=output,
    )


def matmul(
    groups: int, rows: int, inner: int, columns: int, dtype: ElementType, partials: ElementType, output: ElementType
) -> Contraction:
    """``groups`` products of ``[rows, inner]`` by ``[inner, columns]``."""
    return Contraction(
        groups=groups,
        batch=rows,
        in_channels=inner,
        out_channels=columns,
        axes=(),
        dtype=dtype,
        partials=partials,
        output=output,
    )
