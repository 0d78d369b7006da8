"""Scales of 8-bit floats that are known when a program runs: powers of two from exponents in tensors.

The machine keeps format and scale of 8-bit floats in a byte of metadata beside the tensor, and reads it into control
registers before it converts or multiplies. Here the exponent is a tensor of one integer, and what vertices read is the
power itself, one f32, which is worked out on one tile and sent to all that need it.
"""

from __future__ import annotations

from abele.errors import TensorError, TypeMismatchError
from abele.graph import AbortOnCondition, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f32
from abele.numerics.types import SCALES
from abele.poplibs.popops.elementwise.map import map as map_
from abele.poplibs.popops.expr import Cast, Const, Expr, Op, PlaceHolder, select

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
