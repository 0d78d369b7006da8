"""Scaled addition: the update step of most training algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popops.elementwise.map import apply_fused, map_with_output
from abele.poplibs.popops.expr import Cast, Expr, ExprLike, PlaceHolder
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.poputil.options import Options, flag, number, read_options
from abele.words import counted

Scale = float | Tensor
Specialisation = Literal["DEFAULT", "X_MINUS_AX_PLUS_BY"]


class ScaledAddSpecialisation(StrEnum):
    """Forms of :func:`scaled_add_to`; their names do as well."""

    DEFAULT = "DEFAULT"
    X_MINUS_AX_PLUS_BY = "X_MINUS_AX_PLUS_BY"


SUPERVISOR_CYCLES = 21 + 11 + 7 + 12 + 6
SUBTRACT_CYCLES = 7
AXPBY_CYCLES = 12
"""Cycles before the workers start, and those of subtraction and of a scale of the first operand. Source: machine
reference §4.8 (ScaledAdd).
"""
LOOP_SLOTS = {(32, 32): 3, (16, 16): 3, (32, 16): 4, (16, 32): 5}
"""Slots of a vector by bits of the two operands. Source: machine reference §4.8 (ScaledAdd)."""
CONSTRAINED_SLOTS = (2, 1)
LONG_VECTORS = 16
"""Slots of a vector where both operands lie in memory elements that are read at once, and where a worker has at least
16 vectors. Source: machine reference §4.8 (ScaledAdd)."""
CHECK_CYCLES = 30
"""Deciding on the tile whether a scale is accurate in f16. Source: machine reference §1.5 (CheckAccuracyWhenCast)."""

SCALED_OPTIONS = {"optimizeForSpeed": flag(False), "scaleFloatToHalfTolerance": number(1e-6)}
"""Options of scaled addition.

True to put operands in memory elements that are read at once; and the tolerance by which a scale may move for
arithmetic in f16.
"""


def scaled_add_to(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale_b: Scale,
    prog: Sequence,
    *,
    scale_a: Scale | None = None,
    specialisation: Specialisation | ScaledAddSpecialisation = "DEFAULT",
    options: Options = None,
    name: str = "scaled_add_to",
) -> None:
    """a ← scale_a·a + scale_b·b, in place; or a ← a − scale_a·a + scale_b·b.

    Args:
        graph: Graph in which vertices are made.
        a: Overwritten.
        b: Broadcasts to ``a``.
        scale_b: A number or a tensor of one element.
        prog: Sequence that the step is appended to.
        scale_a: As ``scale_b``; 1 when left out.
        specialisation: ``X_MINUS_AX_PLUS_BY`` for the second form, which needs ``scale_a``.
        options: See :data:`SCALED_OPTIONS`.
        name: Name of the step.

    Raises:
        TensorError: A scale of more than one element, or ``b`` does not broadcast to ``a``.
        TypeMismatchError: Integers with a scale that is not whole, or floats and integers together.
        InvalidOptionError: A misspelt option or specialisation.
    """
    _scaled(
        graph,
        a,
        b,
        scale_b=scale_b,
        prog=prog,
        scale_a=scale_a,
        form=_form(name, 1.0, specialisation, scale_a, options),
        name=name,
    )


def scaled_subtract_from(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale_b: Scale,
    prog: Sequence,
    *,
    scale_a: Scale | None = None,
    options: Options = None,
    name: str = "scaled_subtract_from",
) -> None:
    """a ← scale_a·a − scale_b·b, in place; see :func:`scaled_add_to`.

    Raises:
        TensorError, TypeMismatchError, InvalidOptionError: As :func:`scaled_add_to`.
    """
    _scaled(
        graph,
        a,
        b,
        scale_b=scale_b,
        prog=prog,
        scale_a=scale_a,
        form=_form(name, -1.0, "DEFAULT", scale_a, options),
        name=name,
    )


@dataclass(frozen=True)
class _ScaledAddition:
    """Form of a scaled addition: its sign, its first term and its options.

    Attributes:
        sign: −1 where the second operand is subtracted.
        takes_away: True if the first operand is a − scale_a·a.
        options: Values of :data:`SCALED_OPTIONS`.
    """

    sign: float
    takes_away: bool
    options: Mapping[str, Any]


@dataclass(frozen=True)
class _Cycles:
    """Tile cycles of the vertices of one scaled addition; see :func:`scaled_add_cycles`."""

    a: ElementType
    b: ElementType
    subtract: bool
    scales_both: bool
    constrained: bool
    checks: int

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        taken = scaled_add_cycles(
            size,
            self.a,
            self.b,
            ipu,
            subtract=self.subtract,
            scales_both=self.scales_both,
            constrained=self.constrained,
        )
        return taken + CHECK_CYCLES * self.checks


def _form(name: str, sign: float, specialisation: str, scale_a: Scale | None, options: Options) -> _ScaledAddition:
    if specialisation not in ("DEFAULT", "X_MINUS_AX_PLUS_BY"):
        raise InvalidOptionError(
            f"{name}: no specialisation {specialisation!r}", remedy="DEFAULT or X_MINUS_AX_PLUS_BY"
        )
    takes_away = specialisation == "X_MINUS_AX_PLUS_BY"
    if takes_away and scale_a is None:
        raise InvalidOptionError(f"{name}: X_MINUS_AX_PLUS_BY needs scale_a")
    return _ScaledAddition(sign, takes_away, read_options(name, options, SCALED_OPTIONS))


def _scaled(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    scale_b: Scale,
    prog: Sequence,
    scale_a: Scale | None,
    form: _ScaledAddition,
    name: str,
) -> None:
    if a.dtype.is_float != b.dtype.is_float:
        raise TypeMismatchError(f"{name}: {a!r} is {a.dtype} and {b!r} is {b.dtype}", remedy="cast one of them")
    tensors = [a, b]
    first: Expr = PlaceHolder(1)
    if scale_a is not None:
        scaled = _factor(scale_a, tensors, name) * first
        first = first - scaled if form.takes_away else scaled
    term = _factor(scale_b, tensors, name) * PlaceHolder(2)
    expression = first + term if form.sign > 0 else first - term
    if b.shape != a.shape or not a.dtype.is_float:
        map_with_output(graph, expression, tensors, a, prog, name)
        return
    fused = fuse([expression], tuple(t.dtype for t in tensors), [a.dtype])
    checks = sum(needs_check(a.dtype, b.dtype, s, form.options) for s in (scale_a, scale_b))
    fast = bool(form.options["optimizeForSpeed"])
    cycles = _Cycles(a.dtype, b.dtype, form.sign < 0, scale_a is not None, fast, checks)
    library, base = f"popops.{name}", "SupervisorVertex"
    apply_fused(graph, fused, tensors, [a], prog, name, library=library, cycles=cycles, base=base)


def needs_check(a: ElementType, b: ElementType, scale: Scale | None, options: Mapping[str, Any]) -> bool:
    """True if tiles must find out if an f32 scale of f16 operands is accurate enough in f16.

    A number is known when the graph is built, and a tolerance of 0 asks for f32 arithmetic anyway.
    """
    in_half = a == f16 and b == f16
    return in_half and isinstance(scale, Tensor) and scale.dtype == f32 and options["scaleFloatToHalfTolerance"] > 0


def scaled_add_cycles(
    size: Int64,
    a: ElementType,
    b: ElementType,
    ipu: Ipu,
    *,
    subtract: bool = False,
    scales_both: bool = False,
    constrained: bool = False,
) -> Int64:
    """Tile cycles of a scaled addition of ``size`` elements of types ``a`` and ``b``.

    A supervisor vertex, whose own code starts the workers. Source: machine reference §4.8 (ScaledAdd); with the launch
    of a compute set within 1 % of silicon, §4.0.
    """
    vector = ipu.vector_width(a)
    loops = size // vector // ipu.num_workers
    slots: Int64 | int = LOOP_SLOTS[a.bits, b.bits]
    if constrained and a == b:
        slots = np.where(loops >= LONG_VECTORS, CONSTRAINED_SLOTS[1], CONSTRAINED_SLOTS[0])
    worker = 15 + 6 + slots * np.maximum(loops - 1, 0) + 4 + 2 * (size % vector > 0)
    supervisor = SUPERVISOR_CYCLES + SUBTRACT_CYCLES * subtract + AXPBY_CYCLES * scales_both
    return np.asarray(supervisor + ipu.num_workers * worker, np.int64)


def _factor(scale: Scale, tensors: list[Tensor], name: str) -> ExprLike:
    a = tensors[0]
    if not isinstance(scale, Tensor):
        if a.dtype.is_float:
            return float(scale)
        if not float(scale).is_integer():
            raise TypeMismatchError(f"{name}: {a!r} is {a.dtype}, so the scale {scale} must be a whole number")
        return int(scale)
    if scale.size != 1:
        raise TensorError(f"{name}: the scale {scale!r} has {counted(scale.size, 'element')}, it must be one")
    tensors.append(scale.reshape(()))
    operand = PlaceHolder(len(tensors))
    return operand if scale.dtype.kind == a.dtype.kind else Cast(operand, a.dtype)
