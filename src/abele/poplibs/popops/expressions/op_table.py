"""What an element-wise operation is: its meaning in kernel operations beside its cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError, nearest
from abele.kernels.nest import ir
from abele.numerics import ElementType
from abele.poplibs.popops.expr import Types
from abele.words import counted

Lowering = Callable[..., ir.Expr]
CostClass = Literal["f32", "f16", "int"]


UNARY_START = (9 + 11, 17)
"""Supervisor cycles and worker slots before the loop of UnaryOp1D. Source: machine reference §4.8."""


@dataclass(frozen=True)
class Cost:
    """Cycles that a worker's inner loop takes for so many elements, loads and stores included."""

    cycles: float
    elements: int


@dataclass(frozen=True)
class ElementOp:
    """One element-wise operation.

    Attributes:
        name: Name in expressions, and of the function.
        arity: Number of arguments.
        lower: Kernel expression, from the operand types and the kernel expressions of the arguments.
        f32: Cost on f32 elements.
        f16: Cost on f16 and bf16 elements.
        integer: Cost on integers and bools.
        in_place: Costs on f32 and f16 of the in-place form, where they differ.
        start: Supervisor cycles and worker slots before the loop of the operation's own one-operand codelet.
        kinds: Element kinds of its operands, where the kernel operations that it is made of would take more.
    """

    name: str
    arity: int
    lower: Lowering
    f32: Cost
    f16: Cost
    integer: Cost
    in_place: tuple[Cost, Cost] | None = None
    start: tuple[int, int] = UNARY_START
    kinds: frozenset[str] | None = None

    def cost(self, kind: CostClass, in_place: bool = False) -> Cost:
        """The cost on elements of ``kind``."""
        if in_place and self.in_place is not None and kind != "int":
            return self.in_place[kind == "f16"]
        return {"f32": self.f32, "f16": self.f16, "int": self.integer}[kind]


OPS: dict[str, ElementOp] = {}
"""Every element-wise operation by name; filled by :mod:`abele.poplibs.popops.expressions.ops`."""


def define(
    name: str,
    arity: int,
    lower: Lowering | str,
    f32: tuple[float, int],
    f16: tuple[float, int],
    integer: tuple[float, int] = (7, 1),
    in_place: tuple[tuple[float, int], tuple[float, int]] | None = None,
    start: tuple[int, int] = UNARY_START,
    kinds: frozenset[str] | None = None,
) -> None:
    """Add an operation; ``lower`` may be the name of the kernel operation that it is."""
    lowering = _primitive(lower) if isinstance(lower, str) else lower
    both = None if in_place is None else (Cost(*in_place[0]), Cost(*in_place[1]))
    OPS[name] = ElementOp(name, arity, lowering, Cost(*f32), Cost(*f16), Cost(*integer), both, start, kinds)


def _primitive(kernel_op: str) -> Lowering:
    return lambda types, *args: ir.apply(kernel_op, *args)


def find_op(name: str) -> ElementOp:
    """The operation called ``name``.

    Raises:
        InvalidOptionError: There is none; the message names the nearest.
    """
    if name not in OPS:
        close = nearest(name, OPS)
        raise InvalidOptionError(
            f"no element-wise operation {name!r}", remedy=f"did you mean {close!r}?" if close else ", ".join(OPS)
        )
    return OPS[name]


def lower_op(name: str, args: Sequence[ir.Expr], types: Types) -> ir.Expr:
    """The kernel expression of operation ``name`` on lowered ``args``.

    Raises:
        InvalidOptionError: No such operation.
        TensorError: Wrong number of arguments.
        TypeMismatchError: Arguments of types that the operation does not take.
    """
    op = find_op(name)
    if len(args) != op.arity:
        raise TensorError(f"{name} takes {counted(op.arity, 'argument')}, got {len(args)}")
    if op.kinds is not None:
        _check_kinds(op, args, types)
    lowered = op.lower(types, *args)
    ir.result_type(lowered, types)
    return lowered


def _check_kinds(op: ElementOp, args: Sequence[ir.Expr], types: Types) -> None:
    assert op.kinds is not None
    for found in (ir.result_type(a, types) for a in args if not isinstance(a, ir.Const)):
        if found.kind not in op.kinds:
            raise TypeMismatchError(
                f"{op.name} does not take {found}", remedy=f"it takes {' and '.join(sorted(op.kinds))}"
            )


def type_of(expression: ir.Expr, types: Types) -> ElementType:
    """The compute type of a lowered expression."""
    return ir.result_type(expression, types)
