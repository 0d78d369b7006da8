"""Casts to 8-bit floats and back with scales as PopART and PopXL have them: powers of two that multiply on the way in.

``pow2scale_cast_to_fp8`` multiplies by ``2^s`` and rounds, ``pow2scale_cast_from_fp8`` multiplies by ``2^s`` after
reading: values come back with the scale negated. PopLibs' metadata have the opposite sign on the way in
(:func:`~abele.poplibs.popops.cast` divides by ``2^scale``). What results is an 8-bit float without a scale of its own:
whoever casts keeps the scale.

Source: low_precision.md §1.2; public interface of popart.ops.fp8 and popxl.ops.
"""

from __future__ import annotations

from abele.errors import TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, as_element_type, f16
from abele.poplibs.popops.elementwise.cast import cast_scaled, check_scale
from abele.poplibs.poputil.layout import clone
from abele.poplibs.poputil.options import Options, flag, read_options

SCALE_OPTIONS = {"throwIfLog2ScaleTensorNotInRange": flag(True)}
"""Options of functions with a scale in a tensor: whether the program stops where it is not in -32…31; if it does not,
the nearest scale that is counts."""


def pow2scale_cast_to_fp8(
    graph: Graph,
    x: Tensor,
    log2_scale: int | Tensor,
    format: ElementType | str,
    prog: Sequence,
    *,
    saturate: bool = False,
    options: Options = None,
    name: str = "pow2scale_cast_to_fp8",
) -> Tensor:
    """``x · 2^log2_scale`` rounded to an 8-bit float.

    Args:
        graph: Graph in which vertices and the result are made.
        x: Floats of 16 or 32 bits.
        log2_scale: An exponent from -32 to 31; a tensor of one i32 is one that the program works out.
        format: F143 or F152.
        prog: Program that the steps are appended to.
        saturate: True if values too large become the largest number, rather than NaN.
        options: See :data:`SCALE_OPTIONS`.
        name: Name of the call.

    Raises:
        TypeMismatchError: Operands that are no such floats, a format that is none or has a scale, or a wrong scale.
        TensorError: A scale of several elements.
    """
    target = as_element_type(format)
    if not target.is_quarter or target.scale:
        raise TypeMismatchError(f"{name}: {format!r} is no format of 8-bit floats", remedy="F143 or F152")
    if x.dtype.is_quarter:
        raise TypeMismatchError(f"{name}: {x!r} is an 8-bit float already", remedy="a float of 16 or 32 bits")
    return _cast(graph, x, target, log2_scale, prog, saturate=saturate, options=options, name=name)


def pow2scale_cast_from_fp8(
    graph: Graph,
    x: Tensor,
    log2_scale: int | Tensor,
    prog: Sequence,
    *,
    dtype: ElementType | str = f16,
    options: Options = None,
    name: str = "pow2scale_cast_from_fp8",
) -> Tensor:
    """The number of each 8-bit float times ``2^log2_scale``, as f16 or f32.

    Args:
        graph: Graph in which vertices and the result are made.
        x: 8-bit floats.
        log2_scale: An exponent from -32 to 31; a tensor of one i32 is one that the program works out.
        prog: Program that the steps are appended to.
        dtype: Element type of the result.
        options: See :data:`SCALE_OPTIONS`.
        name: Name of the call.

    Raises:
        TypeMismatchError: Operands that are no 8-bit floats, a result that is no wider float, or a wrong scale.
        TensorError: A scale of several elements.
    """
    target = as_element_type(dtype)
    if not x.dtype.is_quarter:
        raise TypeMismatchError(f"{name}: {x!r} is no 8-bit float", remedy="pow2scale_cast_to_fp8 makes them")
    if target.is_quarter:
        raise TypeMismatchError(f"{name}: the result is to be {target}", remedy="f16 or f32")
    return _cast(graph, x, target, log2_scale, prog, saturate=False, options=options, name=name)


def _cast(
    graph: Graph,
    x: Tensor,
    target: ElementType,
    log2_scale: int | Tensor,
    prog: Sequence,
    *,
    saturate: bool,
    options: Options,
    name: str,
) -> Tensor:
    throws = read_options(name, options, SCALE_OPTIONS)["throwIfLog2ScaleTensorNotInRange"]
    check_scale(name, log2_scale)
    out = clone(graph, x, f"{name}/out", target)
    cast_scaled(graph, x, out, log2_scale, prog, name, is_inverse=False, saturate=saturate, throws=throws)
    return out
