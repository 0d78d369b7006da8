"""Operands of 8-bit floats: their scales, and what becomes of them on chips that do not multiply them.

Format and scale of each operand sit in control registers, which are set before the vertices run. So there is one scale
for a tensor, and two tensors may have different formats. Scales come from three places: element types, numbers, and
tensors of one integer that the program works out; all are exponents of two, so what products are multiplied by is one
power of two.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence as Program
from abele.machine import System
from abele.numerics import f16
from abele.poplibs.poplin.contraction.scaling import UNSCALED, Scaling
from abele.poplibs.poplin.options import ContractionOptions, Types
from abele.poplibs.popops.elementwise.cast import cast_codes
from abele.poplibs.popops.elementwise.map import map as map_
from abele.poplibs.popops.elementwise.scale_factor import check_scale, power_of_scale
from abele.poplibs.popops.expr import Const, _1, _2

Scale = int | Tensor | None
Scales = tuple[Scale, Scale] | None
"""Of the left and the right operand, beyond those of their element types: exponents of two, known now (numbers) or when
the program runs (tensors of one i32)."""


@dataclass(frozen=True)
class ReadyOperands:
    """Operands as the matrix units of the chip take them.

    Attributes:
        left: The left one, or the input.
        right: The right one, or the weights.
        types: Types of the contraction.
        scaling: What products are multiplied by.
    """

    left: Tensor
    right: Tensor
    types: Types
    scaling: Scaling = UNSCALED


def ready_operands(
    graph: Graph,
    name: str,
    left: Tensor,
    right: Tensor,
    types: Types,
    settings: ContractionOptions,
    scales: Scales,
    prog: Program,
    *,
    throws: bool = True,
) -> ReadyOperands:
    """Operands of a contraction, cast to halves where they are 8-bit floats and the chip does not multiply these.

    Args:
        graph: The graph.
        name: The operation.
        left: The left operand.
        right: The right operand.
        types: Types of the contraction.
        settings: Whether 8-bit floats may be cast.
        scales: Further scales of the operands.
        prog: Where casts and powers of scales are appended.
        throws: False for scales of tensors that are out of range to be the nearest that are not.

    Raises:
        TypeMismatchError: Scales of other operands than 8-bit floats, or that are none; or a chip without them.
        TensorError: A scale of several elements.
    """
    if not types.dtype.is_quarter:
        if scales is not None:
            raise TypeMismatchError(
                f"{name}: scales are of 8-bit floats, the operands are {types.dtype}", remedy="leave scales out"
            )
        return ReadyOperands(left, right, types)
    given = [s for s in scales or () if s is not None]
    for scale in given:
        check_scale(name, scale)
    number = sum(s for s in given if isinstance(s, int))
    if multiplies_quarters(graph.system):
        return ReadyOperands(left, right, types, _scaling(graph, name, given, number, prog, throws=throws))
    check_converts(graph.system, name, settings)
    # The numbers that codes stand for are exact in halves without their scales, and not always with them.
    number += left.dtype.scale + right.dtype.scale
    left, right = (cast_codes(graph, t, f16, prog, f"{name}/cast") for t in (left, right))
    scaling = _scaling(graph, name, given, number, prog, throws=throws)
    return ReadyOperands(left, right, planned_types(graph.system, types), scaling)


def multiplies_quarters(system: System) -> bool:
    """True if the matrix units of the system's chip take 8-bit floats."""
    return system.ipu.converts_quarters


def check_converts(system: System, name: str, settings: ContractionOptions) -> None:
    """Refuse to multiply 8-bit floats on a chip that cannot, unless they may be cast.

    Raises:
        TypeMismatchError: They may not.
    """
    if multiplies_quarters(system) or settings.converts:
        return
    raise TypeMismatchError(
        f"{name}: {system.ipu.name} does not multiply 8-bit floats",
        because="its matrix units have no mode for them; C600 has",
        remedy="system c600 · option convertQuarterToHalf=true, which casts the operands to f16 first · popops.cast",
    )


def planned_types(system: System, types: Types) -> Types:
    """The types that a contraction is planned with: halves where the chip does not multiply 8-bit floats."""
    if types.dtype.is_quarter and not multiplies_quarters(system):
        return Types(f16, types.partials, types.output)
    return types


def _scaling(
    graph: Graph, name: str, given: list[int | Tensor], number: int, prog: Program, *, throws: bool
) -> Scaling:
    tensors = [s for s in given if isinstance(s, Tensor)]
    if not tensors:
        return Scaling(number)
    powers = [power_of_scale(graph, s, prog, is_inverse=False, throws=throws, name=f"{name}/scale") for s in tensors]
    factor = powers[0]
    if len(powers) > 1:
        factor = map_(graph, _1 * _2, powers, prog, f"{name}/scale")
    if number:
        factor = map_(graph, _1 * Const(2.0**number), [factor], prog, f"{name}/scale")
    return Scaling(factor=factor)
