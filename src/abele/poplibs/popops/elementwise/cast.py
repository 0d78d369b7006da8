"""Converting tensors between element types."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import abele.expr as ir
from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import AbortOnCondition, Copy, Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType, as_element_type, bool_, f32
from abele.numerics.narrow import format_of
from abele.numerics.types import SCALES
from abele.poplibs.popops.elementwise.map import apply_fused, check_writable
from abele.poplibs.popops.elementwise.map import map as map_
from abele.poplibs.popops.expr import Cast, Const, Expr, Op, PlaceHolder, select
from abele.poplibs.popops.expressions.fused import Fused, fuse
from abele.poplibs.poputil.layout import clone

# Scales of 8-bit floats that are known when a program runs: powers of two from exponents in tensors.
#
# The machine keeps format and scale of 8-bit floats in a byte of metadata beside the tensor, and reads it into control
# registers before it converts or multiplies. Here the exponent is a tensor of one integer, and what vertices read is
# the power itself, one f32, which is worked out on one tile and sent to all that need it.

_BITS = 6
LOW, HIGH = SCALES[0], SCALES[-1]


def check_scale(name: str, scale: int | Tensor) -> None:
    """Refuse a scale that is none.

    Raises:
        TypeMismatchError: A number that 6 bits do not hold, or a tensor that is not of integers.
        TensorError: A tensor of more than one element.
    """
    if isinstance(scale, Tensor):
        if scale.size != 1:
            raise TensorError(
                f"{name}: the scale {scale!r} is not one element",
                because="format and scale of an operand sit in control registers: there is one scale for each tensor",
            )
        if scale.dtype.name != "i32":
            raise TypeMismatchError(
                f"{name}: the scale {scale!r} is {scale.dtype}", remedy="an exponent of two, i32; popops.cast it"
            )
        return
    if isinstance(scale, bool) or not isinstance(scale, int):
        raise TypeMismatchError(f"{name}: the scale {scale!r} is no integer", remedy="an exponent of two, or a tensor")
    if scale not in SCALES:
        raise TypeMismatchError(
            f"{name}: 8-bit floats cannot be scaled by 2^{scale}",
            because="metadata have 6 bits for the exponent",
            remedy=f"from {LOW} to {HIGH}",
        )


def power_of_scale(
    graph: Graph, scale: Tensor, prog: Sequence, *, is_inverse: bool, throws: bool = True, name: str = "scale"
) -> Tensor:
    """``2^scale``, or ``2^-scale``, as one f32 on the tile of the scale.

    Args:
        graph: Graph in which it is made.
        scale: The exponent, one i32.
        prog: Program that its steps are appended to.
        is_inverse: True for ``2^-scale``.
        throws: True if the program stops where the exponent is not in -32…31; otherwise the nearest one that is counts.
        name: Name of the call.
    """
    exponent = scale.reshape(())
    if throws:
        outside = map_(graph, _outside(PlaceHolder(1)), [exponent], prog, f"{name}/range")
        prog.add(AbortOnCondition(outside, f"{name}: the scale of 8-bit floats is not from {LOW} to {HIGH}"))
    return map_(graph, _power(PlaceHolder(1), is_inverse=is_inverse), [exponent], prog, f"{name}/power")


def _outside(exponent: Expr) -> Expr:
    return Op("logical_or", exponent < Const(LOW), exponent > Const(HIGH))


def _power(exponent: Expr, *, is_inverse: bool) -> Expr:
    """Bit by bit, so that the power is exact: 2^(e + 32) is the product of 2^1, 2^2, 2^4, … for the bits of e + 32."""
    held = Op("clamp", exponent, Const(LOW), Const(HIGH))
    bits = Const(-LOW) - held if is_inverse else held - Const(LOW)
    power: Expr = Const(2.0**LOW, f32)
    # The inverse of the lowest exponent is one more than the highest, and takes a bit of its own.
    for k in range(_BITS + is_inverse):
        is_set = Op("neq", Op("bitwise_and", bits, Const(1 << k)), Const(0))
        power = power * select(Const(2.0 ** (1 << k), f32), Const(1.0, f32), is_set)
    return Cast(power, f32)


SUPERVISOR_CYCLES = 12
PROLOGUE = 18 + 19
NARROWING = (4, 2)
WIDENING = (2, 1)
BYTES = (4, 14)
BYTES_BACK = (4, 9)
OTHER = (1, 2)
"""Supervisor cycles, worker slots before the loop, and (elements, slots) of a loop: f32 to f16, f16 to f32, f16 to
8-bit integers and back, all others. Source: machine reference §4.8 (Cast1D)."""

QUARTER_TO_HALF, HALF_TO_QUARTER = WIDENING, NARROWING
"""The same between f16 and 8-bit floats, by the instructions of chips that have them; f32 goes by way of f16.
Source: machine reference §4.8 (Cast1D)."""

PACKED_BY_WORKERS = (1, 27)
UNPACKED_BY_WORKERS = (1, 17)
"""The same on chips without such instructions, counted in one element of a loop on the bits of f32.

To 8 bits: load, scale and limit 2, from float to integer registers by way of memory 2, round the magnitude and give it
the other exponent 7, the same of numbers below the least normal one 4, choose between the two 2, limit the code 2, sign
and zero 4, NaN 2, put a byte into its word and store 2. From 8 bits: load 1, move the magnitude 3, numbers below the
least normal one 4, choose 2, sign 3, NaN 2, to float registers and scale 1, store 1. Source: our own count.
"""


def cast(
    graph: Graph,
    tensor: Tensor,
    dtype: ElementType | str,
    prog: Sequence,
    name: str = "cast",
    *,
    scale: int | Tensor | None = None,
    saturate: bool = False,
) -> Tensor:
    """``tensor`` as a new tensor of ``dtype``.

    Narrower floats round to nearest even, and too large ones become infinite. Floats to integers truncate, and those
    out of range become the nearest integer that there is. Integers to narrower ones keep their low bits. To bool,
    everything but zero is true. Floats to 8-bit floats are divided by their scale and rounded once, and those too large
    become NaN, or the largest number where ``nan_on_overflow`` is off; infinity and NaN become NaN either way. To f16
    they are multiplied by it, which is exact for scales from -14 to 8 of F143 and from -7 to 0 of F152.

    Args:
        graph: Graph in which vertices and the result are made.
        tensor: Any element type.
        dtype: Element type of the result.
        prog: Sequence that the step is appended to.
        name: Name of the step.
        scale: PopLibs' metadata: a further scale of the 8-bit float, beyond that of its element type, which its bits do
            not remember. An exponent of two; a tensor of one i32 is one that the program finds out, and stops the
            program if it is not in -32…31.
        saturate: True if values too large for an 8-bit float become its largest number, whatever ``nan_on_overflow``
            says.

    Raises:
        TypeMismatchError: Something else than floats to 8-bit floats, or these to something else; a scale that is none,
            or of a cast without 8-bit floats, or between two of them.
        TensorError: A tensor of scales that is not one element.
    """
    dtype = as_element_type(dtype)
    _check_types(name, tensor.dtype, dtype)
    out = clone(graph, tensor, f"{name}/out", dtype)
    cast_with_output(graph, tensor, out, prog, name, scale=scale, saturate=saturate)
    return out


def cast_with_output(
    graph: Graph,
    tensor: Tensor,
    out: Tensor,
    prog: Sequence,
    name: str = "cast",
    *,
    scale: int | Tensor | None = None,
    saturate: bool = False,
    throws: bool = True,
) -> None:
    """Write ``tensor`` to ``out``, converted to its element type; see :func:`cast`.

    Args:
        graph: Graph in which vertices are made.
        tensor: Tensor to convert.
        out: Result, of the same shape.
        prog: Sequence that the step is appended to.
        name: Name of the step.
        scale: A further scale of the 8-bit float, as for :func:`cast`.
        saturate: True if values too large for an 8-bit float become its largest number, whatever ``nan_on_overflow``
            says.
        throws: False for a scale in a tensor that is out of range to be the nearest that is not.

    Raises:
        TensorError: The shapes differ, or a tensor of scales that is not one element.
        TypeMismatchError: As for :func:`cast`.
        ConstantWriteError: ``out`` cannot be written.
    """
    if out.shape != tensor.shape:
        raise TensorError(
            f"{name}: {tensor!r} of shape {list(tensor.shape)} does not go with the output {out!r} of shape "
            f"{list(out.shape)}"
        )
    check_writable(name, out)
    _check_types(name, tensor.dtype, out.dtype)
    if scale is not None:
        _check_scaled(name, tensor.dtype, out.dtype, scale)
    if out.dtype == tensor.dtype:
        prog.add(Copy(tensor, out))
        return
    is_inverse = out.dtype.is_quarter
    cast_scaled(graph, tensor, out, scale or 0, prog, name, is_inverse=is_inverse, saturate=saturate, throws=throws)


def cast_scaled(
    graph: Graph,
    tensor: Tensor,
    out: Tensor,
    scale: int | Tensor,
    prog: Sequence,
    name: str,
    *,
    is_inverse: bool,
    saturate: bool,
    throws: bool,
) -> None:
    """Write ``tensor`` times ``2^scale``, or ``2^-scale``, to ``out``; types and scale are checked."""
    factor: ir.Expr | None = None
    operands = [tensor]
    if isinstance(scale, Tensor):
        operands += [power_of_scale(graph, scale, prog, is_inverse=is_inverse, throws=throws, name=name)]
        factor = ir.load(1)
    elif scale:
        factor = ir.as_expr(2.0 ** (-scale if is_inverse else scale))
    fused = _fused(tensor.dtype, out.dtype, saturate, factor)
    cycles = CastCycles(tensor.dtype, out.dtype)
    apply_fused(graph, fused, operands, [out], prog, name, library="popops.cast", cycles=cycles)


def cast_codes(graph: Graph, tensor: Tensor, dtype: ElementType, prog: Sequence, name: str) -> Tensor:
    """Numbers of 8-bit floats' codes without their scale, in a wider float, which has them all."""
    out = clone(graph, tensor, f"{name}/out", dtype)
    scale = -tensor.dtype.scale
    cast_scaled(graph, tensor, out, scale, prog, name, is_inverse=False, saturate=False, throws=True)
    return out


def _check_scaled(name: str, source: ElementType, target: ElementType, scale: int | Tensor) -> None:
    check_scale(name, scale)
    if source.is_quarter == target.is_quarter:
        raise TypeMismatchError(
            f"{name}: {source} becomes {target}, and the scale is of neither"
            if not source.is_quarter
            else f"{name}: {source} becomes {target}, and the scale could be of either",
            because="scales are of 8-bit floats",
            remedy="leave scale out" if not source.is_quarter else "cast to f16 or f32 in between",
        )


def _check_types(name: str, source: ElementType, target: ElementType) -> None:
    if (source.is_quarter and not target.is_float) or (target.is_quarter and not source.is_float):
        raise TypeMismatchError(
            f"{name}: {source} cannot become {target}",
            because="8-bit floats are made of floats, and become floats",
            remedy="cast to f16 or f32 in between",
        )


_LARGEST = float(np.finfo(np.float32).max)


def _fused(source: ElementType, target: ElementType, saturate: bool, factor: ir.Expr | None) -> Fused:
    """Expression of one converted element, times ``factor`` where there is one: a constant, or the second operand."""
    if not (source.is_quarter or target.is_quarter):
        return fuse([conversion(source, target)], (source,), [target])
    # Vertices widen 8-bit floats where they load them, and round to them where they store.
    given: ir.Expr = ir.load(0)
    element = given
    if factor is not None:
        element = element * factor
    if target.is_quarter and (saturate or factor is not None):
        # What scaling makes infinite is too large, and no infinity; infinity itself stays, and becomes NaN.
        largest = math.ldexp(format_of(target).largest, target.scale) if saturate else _LARGEST
        held = ir.apply("min", ir.apply("max", element, -largest), largest)
        element = ir.apply("select", ir.apply("le", ir.apply("abs", given), _LARGEST), held, given)
    types = (source, f32) if isinstance(factor, ir.Load) else (source,)
    return Fused((ir.Cast(target, ir.load(0)),), types, (target,), (element,))


@dataclass(frozen=True)
class CastCycles:
    """Tile cycles of a conversion. Source: machine reference §4.8 (Cast1D)."""

    source: ElementType
    target: ElementType

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        """Tile cycles of vertices of ``size`` elements, int64[n]."""
        share = -(-size // ipu.num_workers)
        slots = sum(-(-share // elements) * slots for elements, slots in self._loops(ipu))
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (PROLOGUE + slots), np.int64)

    def _loops(self, ipu: Ipu) -> list[tuple[int, int]]:
        """Conversion loops that each element goes through; with 8-bit floats there may be two."""
        types = (self.source, self.target)
        if not any(t.is_quarter for t in types):
            return [cast_loop(*types)]
        if not ipu.converts_quarters:
            found = [UNPACKED_BY_WORKERS] * self.source.is_quarter + [PACKED_BY_WORKERS] * self.target.is_quarter
        else:
            found = [QUARTER_TO_HALF] * self.source.is_quarter + [HALF_TO_QUARTER] * self.target.is_quarter
        if ipu.converts_quarters and self.source.bits > 16:
            return [NARROWING, *found]
        return [*found, WIDENING] if ipu.converts_quarters and self.target.bits > 16 else found


def cast_loop(source: ElementType, target: ElementType) -> tuple[int, int]:
    """Elements of a round of the loop, and slots that it takes. Source: machine reference §4.8 (Cast1D)."""
    if source.is_float and target.is_float:
        return NARROWING if source.bits > target.bits else WIDENING
    if source.bits == 16 and source.is_float and target.bits == 8:
        return BYTES
    if source.bits == 8 and target.bits == 16 and target.is_float:
        return BYTES_BACK
    return OTHER


def conversion(source: ElementType, target: ElementType) -> Expr:
    """The expression that converts an element; floats that an integer type does not hold become its nearest."""
    x = PlaceHolder(1)
    if target == bool_ and source != bool_:
        return Op("neq", x, Const(0, f32) if source.is_float else Const(0))
    if not source.is_float or target.is_float:
        return Cast(x, target)
    limits = np.iinfo(target.np)
    # An f32 below 2ᵏ: the largest that truncates to an integer that the type holds.
    last = float(np.nextafter(np.float32(limits.max + 1), np.float32(0)))
    inside = Cast(Op("clamp", x, float(limits.min), last), target)
    if math.floor(last) == limits.max:
        return inside
    return select(Const(int(limits.max)), inside, x >= float(limits.max + 1))
