"""Operands of 8-bit floats: their scales, and casts on chips that do not multiply them.

Format and scale of each operand sit in control registers, which are set before the vertices run. So there is one scale
for a tensor, and two tensors may have different formats. Scales come from three places: element types, numbers, and
tensors of one integer that the program works out; all are exponents of two, so what products are multiplied by is one
power of two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from abele.errors import InvalidOptionError, OutOfMemoryError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.machine import System
from abele.numerics import ElementType, f8_143, f16
from abele.poplibs.poplin.contraction.host_kernel import Scaling
from abele.poplibs.poplin.lowering.call import ContractionCall, same_storage
from abele.poplibs.poplin.options import ContractionOptions, Types
from abele.poplibs.poplin.planner.target import target_of
from abele.poplibs.poplin.vertices.cost import OUT_GROUP, weights_per_unit
from abele.poplibs.popops.elementwise.cast import CastCycles, cast_codes, check_scale, power_of_scale
from abele.poplibs.popops.elementwise.map import map as map_
from abele.poplibs.popops.expr import Const, _1, _2

Scale = int | Tensor | None
Scales = tuple[Scale, Scale] | None
"""Of the left and the right operand, beyond those of their element types: exponents of two, known now (numbers) or when
the program runs (tensors of one i32)."""


Make = Callable[[Graph, Tensor, Tensor, Types], ContractionCall]
"""Function that makes the call of two operands of any type."""


def scaled_call(
    graph: Graph,
    name: str,
    left: Tensor,
    right: Tensor,
    types: Types,
    make: Make,
    settings: ContractionOptions,
    scales: Scales,
    prog: Steps,
    *,
    throws: bool = True,
) -> ContractionCall:
    """The call of a contraction that is expected to take the fewest cycles, 8-bit floats cast to halves where need be.

    Vertices other than those of the matrix units (SLIC, HMAC, VMAC, outer products) take no 8-bit floats, and no vertex
    of a chip without them does: operands are cast to halves first. Source: low_precision.md §1.3.

    Args:
        graph: The graph.
        name: The operation.
        left: The left operand, or the input.
        right: The right operand, or the weights.
        types: Types of the contraction.
        make: Makes the call.
        settings: Settings of the call; they say if 8-bit floats may be cast on chips that do not multiply them.
        scales: Further scales of the operands.
        prog: Program that casts and powers of scales are appended to.
        throws: False for scales of tensors that are out of range to be the nearest that are not.

    Raises:
        TypeMismatchError: Scales of other operands than 8-bit floats, values that are no scales; or a chip without
            them.
        TensorError: A scale of several elements.
        InvalidOptionError, OutOfMemoryError: As ``make`` raises them.
    """
    given = given_scales(name, types.dtype, scales)
    if not types.dtype.is_quarter:
        return make(graph, left, right, types)
    number = 0
    direct: ContractionCall | None = None
    if multiplies_quarters(graph.system):
        direct = _direct(graph, left, right, types, make)
    else:
        check_converts(graph.system, name, settings)
    if direct is None:
        # The numbers that codes stand for are exact in halves without their scales, and not always with them.
        number = left.dtype.scale + right.dtype.scale
        left, right = (cast_codes(graph, t, f16, prog, f"{name}/cast") for t in (left, right))
        direct = make(graph, left, right, _halves(types))
    return replace(direct, scaling=scaling_of(graph, name, given, prog, number=number, throws=throws))


def _direct(graph: Graph, left: Tensor, right: Tensor, types: Types, make: Make) -> ContractionCall | None:
    """Call of 8-bit floats; None where casting them first is faster, or the only possible way."""
    failure: InvalidOptionError | OutOfMemoryError | None = None
    call, best = None, None
    try:
        call = make(graph, left, right, types)
        best = call.cycles
    except (InvalidOptionError, OutOfMemoryError) as error:
        failure = error
    if call is not None and _fills_units(call):
        return call
    system = graph.system
    elsewhere = Graph(system)
    try:
        halves = [same_storage(elsewhere, t, f16) for t in (left, right)]
        cast_first = make(elsewhere, halves[0], halves[1], _halves(types))
        casting = sum(_cast_estimate(t, system) for t in (left, right))
        if best is None or casting + cast_first.cycles < best:
            return None
    except (InvalidOptionError, OutOfMemoryError):
        if failure is not None:
            raise failure from None
    return call


def _fills_units(call: ContractionCall) -> bool:
    """True if channels fill the matrix units, so that no other vertex comes near."""
    return call.problem.in_channels >= weights_per_unit(f8_143) and call.problem.out_channels >= OUT_GROUP


def _cast_estimate(tensor: Tensor, system: System) -> int:
    """Expected cycles of a cast to halves of data that lies evenly on all tiles, superstep included."""
    share = np.array([-(-tensor.size // system.ipu.num_tiles)], dtype=np.int64)
    return target_of(system).superstep_cycles + int(CastCycles(tensor.dtype, f16)(share, system.ipu)[0])


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
    return _halves(types) if types.dtype.is_quarter and not multiplies_quarters(system) else types


def _halves(types: Types) -> Types:
    return Types(f16, types.partials, types.output)


def given_scales(name: str, dtype: ElementType, scales: Scales) -> list[int | Tensor]:
    """The scales that are given, checked.

    Raises:
        TypeMismatchError: Scales of other operands than 8-bit floats, or values that are no scales.
        TensorError: A scale of several elements.
    """
    if scales is not None and not dtype.is_quarter:
        raise TypeMismatchError(
            f"{name}: scales are of 8-bit floats, the operands are {dtype}", remedy="leave scales out"
        )
    given = [s for s in scales or () if s is not None]
    for scale in given:
        check_scale(name, scale)
    return given


def scaling_of(
    graph: Graph, name: str, given: list[int | Tensor], prog: Steps, *, number: int = 0, throws: bool = True
) -> Scaling:
    """Factor of products of operands with some scales, and 2^``number``; steps that work it out go to ``prog``."""
    number += sum(s for s in given if isinstance(s, int))
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
