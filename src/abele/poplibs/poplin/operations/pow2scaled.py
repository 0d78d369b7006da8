"""Products of 8-bit floats by PopART's and PopXL's names, with one scale for the result.

``log2_scale`` is added to the exponents of the result: of operands that were multiplied by ``2^sa`` and ``2^sb`` when
they were cast, ``-(sa + sb)`` gives the product of what they were cast from. It goes into the metadata of the left
operand, and the right one has none. Source: low_precision.md §1.2.
"""

from __future__ import annotations

from typing import Any

from abele.errors import TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import f16
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.conv_params.transforms import TransformedConv
from abele.poplibs.poplin.operations.convolution import convolution
from abele.poplibs.poplin.operations.matmul import matmul, matmul_grouped
from abele.poplibs.popops.elementwise.pow2scale import SCALE_OPTIONS
from abele.poplibs.poputil.options import Options, read_options


def matmul_pow2scaled(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    log2_scale: int | Tensor,
    prog: Steps,
    *,
    options: Options = None,
    like: Tensor | None = None,
    name: str = "matmul_pow2scaled",
) -> Tensor:
    """``(a @ b) · 2^log2_scale`` in f16, of matrices of 8-bit floats, or of as many pairs of them.

    Args:
        graph: The graph.
        a: Left matrix, [m, k], or [g, m, k]. Its format may be another than that of ``b``.
        b: Right matrix, [k, n], or [g, k, n].
        log2_scale: An exponent from -32 to 31; a tensor of one i32 is one that the program works out.
        prog: Program that the call is appended to.
        options: Those of :func:`~abele.poplibs.poplin.matmul`, and ``throwIfLog2ScaleTensorNotInRange``: true to stop
            the program where the scale is not in that range, false to take the nearest that is.
        like: A tensor whose storage order and tile mapping the result takes.
        name: Name of the call.

    Raises:
        TypeMismatchError: Operands that are not both 8-bit floats, a wrong scale, or a chip that does not multiply
            them, unless option ``convertQuarterToHalf`` is set.
        TensorError, InvalidOptionError, OutOfMemoryError: As for :func:`~abele.poplibs.poplin.matmul`.
    """
    _check_quarters(name, a=a, b=b)
    multiply = matmul if a.ndim == 2 else matmul_grouped
    return multiply(graph, a, b, prog, like=like, output_type=f16, name=name, **_scaled(name, log2_scale, options))


def conv_pow2scaled(
    graph: Graph,
    x: Tensor,
    weights: Tensor,
    log2_scale: int | Tensor,
    params: ConvParams | TransformedConv,
    prog: Steps,
    *,
    options: Options = None,
    name: str = "conv_pow2scaled",
) -> Tensor:
    """The convolution of ``x`` with ``weights``, both 8-bit floats, times ``2^log2_scale``, in f16.

    Args:
        graph: The graph.
        x: Input, [batch, in_channels, *field].
        weights: Weights, [out_channels, in_channels / groups, *kernel].
        log2_scale: An exponent from -32 to 31; a tensor of one i32 is one that the program works out.
        params: Geometry of the convolution.
        prog: Program that the call is appended to.
        options: Those of :func:`~abele.poplibs.poplin.convolution`, and that of :func:`matmul_pow2scaled`.
        name: Name of the call.

    Raises:
        TypeMismatchError: As for :func:`matmul_pow2scaled`.
        TensorError, InvalidOptionError, OutOfMemoryError: As for :func:`~abele.poplibs.poplin.convolution`.
    """
    _check_quarters(name, x=x, weights=weights)
    return convolution(
        graph, x, weights, params, prog, output_type=f16, name=name, **_scaled(name, log2_scale, options)
    )


def _check_quarters(name: str, **operands: Tensor) -> None:
    for label, tensor in operands.items():
        if not tensor.dtype.is_quarter:
            raise TypeMismatchError(
                f"{name}: {label} {tensor!r} is no 8-bit float",
                remedy="pow2scale_cast_to_fp8 it; products of wider floats have no scale",
            )


def _scaled(name: str, log2_scale: int | Tensor, options: Options) -> dict[str, Any]:
    """The arguments that a scale and options become."""
    given = dict(options or {})
    own = {key: given.pop(key) for key in SCALE_OPTIONS if key in given}
    throws = read_options(name, own, SCALE_OPTIONS)["throwIfLog2ScaleTensorNotInRange"]
    return {"scales": (log2_scale, None), "throws": throws, "options": given}
