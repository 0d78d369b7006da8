"""Arguments of a multi-convolution: a list with the operands of each convolution, and options of all together."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph import Tensor
from abele.numerics import ElementType
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.conv_params.transforms import TransformedConv
from abele.poplibs.poputil.options import Options, choice, integer, number, read_options

Params = ConvParams | TransformedConv

_OPTIONS = {
    "planType": choice("parallel", "serial"),
    "perConvReservedTiles": integer(50, 1),
    "cycleBackOff": number(0.1, 0.0, 1.0),
}


@dataclass(frozen=True)
class CreateTensorArgs:
    """A convolution whose operands are to be made.

    Attributes:
        dtype: Type of its operands.
        params: Geometry of the convolution.
        options: PopLibs' options of convolutions, by name.
        name: Name of the tensor.
    """

    dtype: ElementType | str
    params: ConvParams
    options: Options = None
    name: str = ""


@dataclass(frozen=True)
class ConvolutionArgs:
    """One of several convolutions.

    Attributes:
        inputs: Input, [batch, in_channels, *field].
        weights: Weights, [out_channels, in_channels / groups, *kernel].
        params: Geometry of the convolution.
        options: PopLibs' options of convolutions, by name.
    """

    inputs: Tensor
    weights: Tensor
    params: Params
    options: Options = None


@dataclass(frozen=True)
class CalculateWeightDeltasArgs:
    """One of several gradients of weights.

    Attributes:
        z_deltas: Gradients of the output, [batch, out_channels, *output_field].
        activations: The forward input, [batch, in_channels, *field].
        params: The forward convolution.
        options: PopLibs' options of convolutions, by name.
    """

    z_deltas: Tensor
    activations: Tensor
    params: Params
    options: Options = None


@dataclass(frozen=True)
class ConvWeightUpdateArgs:
    """One of several weight updates.

    Attributes:
        z_deltas: Gradients of the output, [batch, out_channels, *output_field].
        weights: The forward weights, [out_channels, in_channels / groups, *kernel]; overwritten.
        activations: The forward input, [batch, in_channels, *field].
        scale: Factor of the gradient: a number, or a tensor of one element.
        params: The forward convolution.
        options: PopLibs' options of convolutions, by name.
    """

    z_deltas: Tensor
    weights: Tensor
    activations: Tensor
    scale: float | Tensor
    params: Params
    options: Options = None


@dataclass(frozen=True)
class MultiPlanning:
    """Options of all convolutions together.

    Attributes:
        is_parallel: They run at the same time, each on tiles of its own; not one after the other on all tiles.
        reserved_tiles: Tiles that each has at least, where there are as many.
        back_off: Shares of the tiles are even enough where the longest convolution takes at most so much longer than
            the shortest, as a proportion.
    """

    is_parallel: bool
    reserved_tiles: int
    back_off: float


def read_multi_options(function: str, options: Options) -> MultiPlanning:
    """The options of a multi-convolution: ``planType``, ``perConvReservedTiles`` and ``cycleBackOff``.

    Source of the defaults: PopLibs' documentation of multi-convolutions.

    Raises:
        InvalidOptionError: An unknown option, or a value that it does not take.
    """
    values = read_options(function, options, _OPTIONS)
    return MultiPlanning(values["planType"] == "parallel", values["perConvReservedTiles"], values["cycleBackOff"])
