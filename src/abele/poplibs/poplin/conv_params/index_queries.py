"""Meetings of input, kernel position and output of a convolution, one field dimension at a time.

PopLibs' helpers of the same names. Indices are those of the field as the convolution is given it: an index that falls
on padding, or between elements of a dilated field, is none.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from abele.errors import TensorError
from abele.poplibs.poplin.conv_params import cpp_params
from abele.poplibs.poplin.conv_params.cpp_params import CppConvParams
from abele.poplibs.poplin.conv_params.params import ConvParams

Params = TypeVar("Params", ConvParams, CppConvParams)

Range = tuple[int, int]
"""From the first index to one behind the last; (0, 0) where there is none."""


def get_input_index(dim: int, output: int, kernel: int, params: ConvParams) -> int | None:
    """The input that meets a kernel position at an output, or None: padding, or a gap of a dilated input.

    Raises:
        TensorError: The convolution has no such dimension, output or kernel position.
    """
    _check(dim, params, output=output, kernel=kernel)
    axis = params.axes[dim]
    at = axis.out_step * output + axis.kernel_step * kernel + axis.offset
    index, rest = divmod(at, axis.in_step)
    return index if rest == 0 and 0 <= index < axis.inputs else None


def get_kernel_index(dim: int, output: int, input: int, params: ConvParams) -> int | None:
    """The kernel position that meets an input at an output, or None.

    Raises:
        TensorError: The convolution has no such dimension, output or input.
    """
    _check(dim, params, output=output, input=input)
    axis = params.axes[dim]
    at = axis.in_step * input - axis.out_step * output - axis.offset
    index, rest = divmod(at, axis.kernel_step)
    return index if rest == 0 and 0 <= index < axis.kernel else None


def get_output_index(dim: int, input: int, kernel: int, params: ConvParams) -> int | None:
    """The output at which an input meets a kernel position, or None.

    Raises:
        TensorError: The convolution has no such dimension, input or kernel position.
    """
    _check(dim, params, input=input, kernel=kernel)
    axis = params.axes[dim]
    at = axis.in_step * input - axis.kernel_step * kernel - axis.offset
    index, rest = divmod(at, axis.out_step)
    return index if rest == 0 and 0 <= index < axis.outputs else None


def get_input_range(dim: int, outputs: Range, kernel: Range, params: ConvParams) -> Range:
    """The inputs that meet some of the kernel positions at some of the ``outputs``.

    Raises:
        TensorError: The convolution has no such dimension, outputs or kernel positions.
    """
    _check_ranges(dim, params, output=outputs, kernel=kernel)
    axis = params.axes[dim]
    o, k = np.ogrid[outputs[0] : outputs[1], kernel[0] : kernel[1]]
    at = axis.out_step * o + axis.kernel_step * k + axis.offset
    return _range(at, axis.in_step, axis.inputs)


def get_output_range(dim: int, inputs: Range, kernel: Range, params: ConvParams) -> Range:
    """The outputs at which some of the ``inputs`` meet some of the kernel positions.

    Raises:
        TensorError: The convolution has no such dimension, inputs or kernel positions.
    """
    _check_ranges(dim, params, input=inputs, kernel=kernel)
    axis = params.axes[dim]
    i, k = np.ogrid[inputs[0] : inputs[1], kernel[0] : kernel[1]]
    return _range(axis.in_step * i - axis.kernel_step * k - axis.offset, axis.out_step, axis.outputs)


def get_kernel_range(dim: int, outputs: Range, inputs: Range, params: ConvParams) -> Range:
    """The kernel positions that meet some of the ``inputs`` at some of the ``outputs``.

    Raises:
        TensorError: The convolution has no such dimension, outputs or inputs.
    """
    _check_ranges(dim, params, output=outputs, input=inputs)
    axis = params.axes[dim]
    o, i = np.ogrid[outputs[0] : outputs[1], inputs[0] : inputs[1]]
    return _range(axis.in_step * i - axis.out_step * o - axis.offset, axis.kernel_step, axis.kernel)


def _range(at: np.ndarray[tuple[int, ...], np.dtype[np.int64]], step: int, extent: int) -> Range:
    index = at // step
    found = index[(at % step == 0) & (index >= 0) & (index < extent)]
    return (int(found.min()), int(found.max()) + 1) if found.size else (0, 0)


def _check(dim: int, params: ConvParams, **indices: int) -> None:
    _check_ranges(dim, params, **{what: (index, index + 1) for what, index in indices.items()})


def _check_ranges(dim: int, params: ConvParams, **ranges: Range) -> None:
    if not 0 <= dim < len(params.axes):
        raise TensorError(f"convolution: no field dimension {dim} among {len(params.axes)}")
    axis = params.axes[dim]
    extents = {"output": axis.outputs, "input": axis.inputs, "kernel": axis.kernel}
    for what, (begin, end) in ranges.items():
        if not 0 <= begin < end <= extents[what]:
            raise TensorError(
                f"convolution: no {what} indices [{begin}, {end}) in dimension {dim}",
                because=f"it has {extents[what]}",
            )


def get_gradient_params(params: Params) -> Params:
    """The convolution that turns gradients of the output into those of the input; see :class:`ConvParams`."""
    return cpp_params.get_gradient_params(params) if isinstance(params, CppConvParams) else params.gradient_params()


def get_weight_update_params(params: ConvParams | CppConvParams) -> ConvParams:
    """The convolution that turns the input, with gradients of the output as its kernel, into those of the weights.

    Raises:
        TensorError: The kernel runs backwards.
    """
    if isinstance(params, CppConvParams):
        return cpp_params.get_weight_update_params(params)
    return params.weight_update_params()
