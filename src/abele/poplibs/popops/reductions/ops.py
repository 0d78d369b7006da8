"""The reductions: operation, start and form of each."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import InvalidOptionError, TypeMismatchError, nearest
from abele.expr.operation import identity
from abele.kernels.nest import ir
from abele.numerics import ElementType, bool_, f32, i32


@dataclass(frozen=True)
class ReduceOp:
    """One way to reduce.

    Attributes:
        name: Its name.
        combine: Combine of a kernel store.
        squares: True if elements are squared first.
        logical: True if it reduces truth values.
        wide: True if accumulators are twice as wide as vectors. Source: machine reference §4.7.
    """

    name: str
    combine: str
    squares: bool = False
    logical: bool = False
    wide: bool = False


_TABLE = (
    ReduceOp("ADD", "add", wide=True),
    ReduceOp("SQUARE_ADD", "add", squares=True, wide=True),
    ReduceOp("LOG_ADD", "log_add"),
    ReduceOp("MUL", "mul"),
    ReduceOp("MAX", "max"),
    ReduceOp("MIN", "min"),
    ReduceOp("LOGICAL_AND", "min", logical=True),
    ReduceOp("LOGICAL_OR", "max", logical=True),
)
REDUCE_OPS = {op.name: op for op in _TABLE}


def find_reduce_op(op: str) -> ReduceOp:
    """The reduction called ``op``, in any case.

    Raises:
        InvalidOptionError: There is none; the message names the nearest.
    """
    name = op.upper()
    if name not in REDUCE_OPS:
        close = nearest(name, REDUCE_OPS)
        raise InvalidOptionError(
            f"no reduction {op!r}", remedy=f"did you mean {close!r}?" if close else ", ".join(REDUCE_OPS)
        )
    return REDUCE_OPS[name]


def accumulator(op: ReduceOp, dtype: ElementType) -> ElementType:
    """The element type that a vertex accumulates in: f32 for floats, i32 for short integers and truth values.

    Raises:
        TypeMismatchError: The reduction does not take such elements.
    """
    counts = dtype == bool_ and op.name == "ADD"
    if op.logical != (dtype == bool_) and not counts:
        wants = "bool" if op.logical else "numbers"
        raise TypeMismatchError(f"reduce {op.name} takes {wants}, got {dtype}", remedy="cast the tensor first")
    if op.combine == "log_add" and not dtype.is_float:
        raise TypeMismatchError(f"reduce {op.name} takes floating-point numbers, got {dtype}")
    if dtype.is_float:
        return f32
    return dtype if dtype.bits >= i32.bits else i32


def partials_type(op: ReduceOp, dtype: ElementType) -> ElementType:
    """The element type of partial results between vertices, unless an option says otherwise.

    A largest or smallest element and a truth value are exact in the type of the operand; sums of 16-bit floats are kept
    in f32.
    """
    return dtype if op.combine in ("max", "min") else accumulator(op, dtype)


def start_of(op: ReduceOp, kind: ElementType) -> float | int:
    """Identity of the operation in type ``kind``: start of an accumulator, and result of an empty reduction."""
    if op.logical:
        return 1 if op.combine == "min" else 0
    found = identity("max" if op.combine == "log_add" else op.combine, kind.np)
    return float(found) if kind.is_float else int(found)


def joined(op: ReduceOp, one: ir.Expr, other: ir.Expr) -> ir.Expr:
    """Two accumulators of a host kernel combined."""
    if op.combine != "log_add":
        return ir.apply(op.combine, one, other)
    top, low = ir.apply("max", one, other), ir.apply("min", one, other)
    return finite_or_top(top, top + ir.apply("log", ir.apply("exp", low - top) + 1.0))


def finite_or_top(top: ir.Expr, value: ir.Expr) -> ir.Expr:
    """``value`` where ``top`` is finite, else ``top``."""
    return ir.apply("select", (top - top).eq(0.0), value, top)


def widened(op: ReduceOp, value: ir.Expr, dtype: ElementType) -> ir.Expr:
    """Loaded kernel element in the form that is accumulated."""
    kind = accumulator(op, dtype)
    wide = ir.Cast(kind, value) if ir.compute_type(dtype) != kind else value
    return ir.apply("square", wide) if op.squares else wide
