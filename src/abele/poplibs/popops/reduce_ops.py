"""The reductions: what each combines, and how."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import InvalidOptionError, TypeMismatchError, nearest
from abele.kernels import ir
from abele.numerics import ElementType, bool_, f32, i32


@dataclass(frozen=True)
class ReduceOp:
    """One way to reduce.

    Attributes:
        name: Its name.
        combine: Combine of a kernel store.
        identity: What an empty reduction gives, as text of the vertex language for float and for integer elements.
        step: Text of the vertex language that combines ``{0}`` and ``{1}``.
        squares: Whether elements are squared first.
        logical: Whether it reduces truth values.
        wide: Whether accumulators are twice as wide as vectors. Source: machine reference §4.7.
    """

    name: str
    combine: str
    identity: tuple[str, str]
    step: str
    squares: bool = False
    logical: bool = False
    wide: bool = False


_INT_MAX = 2**31 - 1
_TABLE = (
    ReduceOp("ADD", "add", ("0.0", "0"), "{0} + {1}", wide=True),
    ReduceOp("SQUARE_ADD", "add", ("0.0", "0"), "{0} + {1}", squares=True, wide=True),
    ReduceOp("MUL", "mul", ("1.0", "1"), "{0} * {1}"),
    ReduceOp("MAX", "max", ("-INF", str(-_INT_MAX - 1)), "max({0}, {1})"),
    ReduceOp("MIN", "min", ("INF", str(_INT_MAX)), "min({0}, {1})"),
    ReduceOp("LOGICAL_AND", "min", ("1.0", "1"), "min({0}, {1})", logical=True),
    ReduceOp("LOGICAL_OR", "max", ("0.0", "0"), "max({0}, {1})", logical=True),
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
    """The element type of partial results: f32 for floats, i32 for integers and truth values.

    Raises:
        TypeMismatchError: The reduction does not take such elements.
    """
    if op.logical != (dtype == bool_):
        wants = "bool" if op.logical else "numbers"
        raise TypeMismatchError(f"reduce {op.name} takes {wants}, got {dtype}", remedy="cast the tensor first")
    if dtype.is_float:
        return f32
    if dtype.bits > i32.bits or dtype.name == "u32":
        return dtype
    return i32


def widened(op: ReduceOp, value: ir.Expr, dtype: ElementType) -> ir.Expr:
    """A loaded kernel element as what is accumulated."""
    kind = accumulator(op, dtype)
    wide = ir.Cast(kind, value) if ir.compute_type(dtype) != kind else value
    return ir.apply("square", wide) if op.squares else wide
