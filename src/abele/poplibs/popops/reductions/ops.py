"""The reductions: what each combines, and how."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.errors import InvalidOptionError, TypeMismatchError, nearest
from abele.kernels.nest import ir
from abele.numerics import ElementType, bool_, f32, i32


@dataclass(frozen=True)
class ReduceOp:
    """One way to reduce.

    Attributes:
        name: Its name.
        combine: Combine of a kernel store.
        identity: What an empty reduction gives, as text of the vertex language for float elements; for integers the
            number, where it is not the least or the greatest of their type.
        step: Text of the vertex language that combines ``{0}`` and ``{1}``.
        squares: True if elements are squared first.
        logical: True if it reduces truth values.
        wide: True if accumulators are twice as wide as vectors. Source: machine reference §4.7.
    """

    name: str
    combine: str
    identity: str
    step: str
    squares: bool = False
    logical: bool = False
    wide: bool = False


_TABLE = (
    ReduceOp("ADD", "add", "0.0", "{0} + {1}", wide=True),
    ReduceOp("SQUARE_ADD", "add", "0.0", "{0} + {1}", squares=True, wide=True),
    ReduceOp("LOG_ADD", "log_add", "-INF", "{0} + log(1.0 + exp({1} - {0}))"),
    ReduceOp("MUL", "mul", "1.0", "{0} * {1}"),
    ReduceOp("MAX", "max", "-INF", "max({0}, {1})"),
    ReduceOp("MIN", "min", "INF", "min({0}, {1})"),
    ReduceOp("LOGICAL_AND", "min", "1.0", "min({0}, {1})", logical=True),
    ReduceOp("LOGICAL_OR", "max", "0.0", "max({0}, {1})", logical=True),
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


def identity(op: ReduceOp, kind: ElementType) -> str:
    """What an empty reduction gives, as text of the vertex language."""
    if kind.is_float:
        return op.identity
    if op.logical or op.combine not in ("max", "min"):
        return op.identity.removesuffix(".0")
    bounds = np.iinfo(kind.np)
    return str(bounds.min if op.combine == "max" else bounds.max)


def combining(op: ReduceOp, total: str, element: str) -> list[str]:
    """Statements of the vertex language that combine ``element`` into ``total``.

    A sum of powers is taken relative to the larger exponent; an infinite one, whose difference to itself is no number,
    stands for itself.
    """
    if op.combine != "log_add":
        return [f"{total} = {op.step.format(total, element)}"]
    more = op.step.format("top", f"min({total}, {element})")
    return [f"top = max({total}, {element})", f"{total} = {more} if top - top == 0.0 else top"]


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
    """A loaded kernel element as what is accumulated."""
    kind = accumulator(op, dtype)
    wide = ir.Cast(kind, value) if ir.compute_type(dtype) != kind else value
    return ir.apply("square", wide) if op.squares else wide
