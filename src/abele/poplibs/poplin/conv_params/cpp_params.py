"""Convolutions described in PopLibs' words: fields that may be set one by one, with the types of the operands.

``ConvParams(FLOAT, batch, [h, w], [3, 3], inChans, outChans, groups)`` makes one; every function of poplin that takes
parameters takes it, weights then being [groups, outChans, inChans, *kernel] with the channels of one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from abele.errors import TensorError, TypeMismatchError, UnsupportedOpError
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.conv_params.transforms import InputTransform, OutputTransform, TransformedConv
from abele.words import counted

Numbers = Sequence[int]


@dataclass
class CppInputTransform:
    """Transform of the input or the kernel, by PopLibs' names; see :class:`~abele.poplibs.poplin.InputTransform`."""

    truncationLower: Numbers = ()
    truncationUpper: Numbers = ()
    dilation: Numbers = ()
    paddingLower: Numbers = ()
    paddingUpper: Numbers = ()
    flip: Sequence[bool] = ()

    def frozen(self) -> InputTransform:
        """The same by our names."""
        return InputTransform(
            tuple(self.truncationLower),
            tuple(self.truncationUpper),
            tuple(self.dilation),
            tuple(self.paddingLower),
            tuple(self.paddingUpper),
            tuple(self.flip),
        )


@dataclass
class CppOutputTransform:
    """Transform of the output, by PopLibs' names; see :class:`~abele.poplibs.poplin.OutputTransform`."""

    truncationLower: Numbers = ()
    truncationUpper: Numbers = ()
    stride: Numbers = ()
    paddingLower: Numbers = ()
    paddingUpper: Numbers = ()

    def frozen(self) -> OutputTransform:
        """The same by our names."""
        return OutputTransform(
            tuple(self.truncationLower),
            tuple(self.truncationUpper),
            tuple(self.stride),
            tuple(self.paddingLower),
            tuple(self.paddingUpper),
        )


@dataclass
class CppConvParams:
    """A convolution as PopLibs' ``ConvParams`` are: channels are those of one group.

    Attributes:
        inputType: Type of the operands.
        outputType: Type of the result.
        batchSize: Samples.
        inputFieldShape: Extents of the input.
        kernelShape: Extents of the kernel.
        inputChannelsPerConvGroup: Channels of the input.
        outputChannelsPerConvGroup: Channels of the output.
        numConvGroups: Groups of channels that do not mix.
        inputTransform: Transform of the input.
        kernelTransform: Transform of the kernel.
        outputTransform: Transform of the output.
        forward: The convolution that this is the gradient of, from :func:`get_gradient_params`.
        exact: Parameters of that gradient, as long as no field has been set since.
    """

    inputType: ElementType
    outputType: ElementType
    batchSize: int
    inputFieldShape: Numbers
    kernelShape: Numbers
    inputChannelsPerConvGroup: int
    outputChannelsPerConvGroup: int
    numConvGroups: int = 1
    inputTransform: CppInputTransform = field(default_factory=CppInputTransform)
    kernelTransform: CppInputTransform = field(default_factory=CppInputTransform)
    outputTransform: CppOutputTransform = field(default_factory=CppOutputTransform)
    forward: CppConvParams | None = None
    exact: tuple[str, ConvParams] | None = None

    def frozen(self) -> ConvParams | TransformedConv:
        """The same by our names; plain where nothing is cut off or put around.

        Raises:
            TensorError: It is no convolution.
        """
        if self.exact is not None and self.exact[0] == self._words():
            return self.exact[1]
        full = self._full()
        x, w, y = full.input, full.kernel_transform, full.output
        views = (*x.truncation_lower, *x.truncation_upper, *x.flip, *w.truncation_lower, *w.truncation_upper)
        return full if any((*views, *y.padding_lower, *y.padding_upper)) else full.core

    def _full(self) -> TransformedConv:
        groups = self.numConvGroups
        return TransformedConv(
            batch=self.batchSize,
            field=tuple(self.inputFieldShape),
            kernel=tuple(self.kernelShape),
            in_channels=self.inputChannelsPerConvGroup * groups,
            out_channels=self.outputChannelsPerConvGroup * groups,
            groups=groups,
            input=self.inputTransform.frozen(),
            kernel_transform=self.kernelTransform.frozen(),
            output=self.outputTransform.frozen(),
        )

    def _words(self) -> str:
        parts = (self.batchSize, self.inputFieldShape, self.kernelShape, self.inputChannelsPerConvGroup)
        return repr(
            (
                *parts,
                self.outputChannelsPerConvGroup,
                self.numConvGroups,
                self.inputTransform,
                self.kernelTransform,
                self.outputTransform,
            )
        )

    @property
    def core(self) -> ConvParams:
        """The convolution without its transforms."""
        found = self.frozen()
        return found.core if isinstance(found, TransformedConv) else found

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The relation of input, kernel and output in each field dimension."""
        return self.core.axes

    @property
    def macs(self) -> int:
        """Multiply-accumulates, those on padding left out."""
        return self.core.macs

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Shape of the weights: [groups, outChans, inChans, *kernel]."""
        channels = (self.outputChannelsPerConvGroup, self.inputChannelsPerConvGroup)
        return (self.numConvGroups, *channels, *self.kernelShape)

    def getBatchSize(self) -> int:
        """Samples."""
        return self.batchSize

    def getNumFieldDims(self) -> int:
        """Dimensions of the field."""
        return len(self.inputFieldShape)

    def getNumConvGroups(self) -> int:
        """Groups of channels."""
        return self.numConvGroups

    def getInputFieldShape(self) -> list[int]:
        """Extents of the input."""
        return list(self.inputFieldShape)

    def getInputSize(self, dim: int) -> int:
        """Extent of the input in a field dimension."""
        return int(self.inputFieldShape[dim])

    def getKernelShape(self) -> list[int]:
        """Extents of the kernel."""
        return list(self.kernelShape)

    def getNumInputChansPerConvGroup(self) -> int:
        """Channels of the input in a group."""
        return self.inputChannelsPerConvGroup

    def getNumOutputChansPerConvGroup(self) -> int:
        """Channels of the output in a group."""
        return self.outputChannelsPerConvGroup

    def getNumInputChans(self) -> int:
        """Channels of the input in all groups."""
        return self.inputChannelsPerConvGroup * self.numConvGroups

    def getNumOutputChans(self) -> int:
        """Channels of the output in all groups."""
        return self.outputChannelsPerConvGroup * self.numConvGroups

    def getOutputFieldShape(self) -> list[int]:
        """Extents of the output."""
        return list(self.frozen().output_field)

    def getOutputSize(self, dim: int) -> int:
        """Extent of the output in a field dimension."""
        return self.getOutputFieldShape()[dim]

    def validate(self) -> None:
        """Raise unless this is a convolution.

        Raises:
            TensorError: It is none.
        """
        self.frozen()

    def canonicalize(self) -> CppConvParams:
        """The same: parameters that change nothing are left out by the planner itself."""
        self.validate()
        return self


def conv_params(*given: Any) -> CppConvParams:
    """``(type, [outputType,] batch, field, kernel, inChans, outChans[, groups][, transforms])``, PopLibs' constructors.

    Raises:
        TypeMismatchError: Other arguments.
    """
    types = [as_element_type(item) for item in given[:2] if isinstance(item, (ElementType, str))]
    rest = given[len(types) :]
    if not 5 <= len(rest) <= 9:
        raise TypeMismatchError(
            f"ConvParams: {counted(len(given), 'argument')} after a type",
            remedy="(type, [outputType,] batch, field, kernel, inChans, outChans[, groups][, three transforms])",
        )
    made = CppConvParams(types[0], types[-1], *rest)
    made.validate()
    return made


def get_gradient_params(params: CppConvParams) -> CppConvParams:
    """The convolution over gradients of the output, with weights whose channels are exchanged and kernel flipped.

    Raises:
        UnsupportedOpError: Something is cut off or put around: its gradient is not one convolution.
    """
    plain = params.frozen()
    if isinstance(plain, TransformedConv):
        raise UnsupportedOpError(
            "getGradientParams: the input is truncated or flipped, or the output padded",
            remedy="poplin.convolution_backward_data(graph, deltas, weights, params, prog)",
        )
    core = plain.gradient_params()
    turned = [not flip for flip in core.flip]
    made = CppConvParams(
        inputType=params.inputType,
        outputType=params.outputType,
        batchSize=core.batch,
        inputFieldShape=list(core.field),
        kernelShape=list(core.kernel),
        inputChannelsPerConvGroup=params.outputChannelsPerConvGroup,
        outputChannelsPerConvGroup=params.inputChannelsPerConvGroup,
        numConvGroups=params.numConvGroups,
        inputTransform=CppInputTransform(
            dilation=list(core.input_dilation),
            paddingLower=list(core.padding_lower),
            paddingUpper=list(core.padding_upper),
        ),
        kernelTransform=CppInputTransform(dilation=list(core.dilation), flip=turned),
        outputTransform=CppOutputTransform(stride=list(core.stride)),
        forward=params,
    )
    made.exact = (made._words(), ConvParams(**{**vars(core), "flip": tuple(turned)}))
    return made


def get_weight_update_params(params: CppConvParams) -> ConvParams:
    """See :func:`~abele.poplibs.poplin.get_weight_update_params`.

    Raises:
        TensorError: The kernel runs backwards.
        UnsupportedOpError: As :func:`get_gradient_params`.
    """
    plain = params.frozen()
    if isinstance(plain, TransformedConv):
        raise UnsupportedOpError("getWeightUpdateParams: something is truncated or padded")
    return plain.weight_update_params()


def check_weights(name: str, params: CppConvParams, shape: Sequence[int]) -> None:
    """Raise unless weights have PopLibs' shape.

    Raises:
        TensorError: They have another.
    """
    if tuple(shape) != params.weights_shape:
        raise TensorError(
            f"{name}: weights of shape {list(shape)}, the convolution needs {list(params.weights_shape)}",
            remedy="[groups, outChans, inChans, *kernel], channels of one group",
        )
