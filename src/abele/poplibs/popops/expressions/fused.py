"""Fused expressions: one or more expressions over the same operands, typed, lowered and costed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from abele.errors import TypeMismatchError
from abele.kernels.nest import ir
from abele.numerics import ElementType, bool_, f32, i32, u32
from abele.poplibs.popops.expr import Cast, Const, Expr, Op, PlaceHolder, Types
from abele.poplibs.popops.expressions.op_table import CostClass, find_op
from abele.poplibs.popops.expressions.ops import lower_op


@dataclass(frozen=True)
class Fused:
    """Expressions evaluated in one pass over their operands.

    Attributes:
        exprs: The expressions, one per output.
        types: Element type of each operand.
        out_types: Element type of each output.
        lowered: Kernel expressions over loads ``%i[]``, converted to what the outputs hold.
    """

    exprs: tuple[Expr, ...]
    types: Types
    out_types: Types
    lowered: tuple[ir.Expr, ...]

    @cached_property
    def _leaves(self) -> tuple[ir.Load | ir.Index | ir.Random, ...]:
        return tuple(leaves(self.lowered))

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Operands that some expression reads, in order."""
        loads = {e.operand for e in self._leaves if isinstance(e, ir.Load)}
        return tuple(sorted(loads | self.seeds))

    @property
    def needs_index(self) -> bool:
        """Whether an expression depends on the position of the element."""
        return any(isinstance(e, (ir.Index, ir.Random)) for e in self._leaves)

    @cached_property
    def seeds(self) -> frozenset[int]:
        """Operands that are seeds of random bits."""
        return frozenset(e.seed for e in self._leaves if isinstance(e, ir.Random))

    @cached_property
    def operations(self) -> tuple[Op, ...]:
        """Every operation once, however often its result is used."""
        seen: dict[int, Op] = {}
        for expression in self.exprs:
            _collect(expression, seen)
        return tuple(seen.values())


def fuse(exprs: Sequence[Expr], types: Types, out_types: Sequence[ElementType | None]) -> Fused:
    """The expressions lowered for operands of ``types``.

    Args:
        exprs: One expression an output.
        types: Element type of each operand.
        out_types: Wanted element type of each output; None for the one that follows from the operands.

    Raises:
        TypeMismatchError: Operations on types that they do not take, or an output type that needs a cast.
    """
    lowered, stored = [], []
    for expression, wanted in zip(exprs, out_types, strict=True):
        low, natural = _typed(expression, types)
        natural = natural or ir.result_type(low, types)
        out = wanted or natural
        if out.kind != natural.kind and wanted is not None:
            raise TypeMismatchError(
                f"the expression gives {natural}, the output holds {wanted}", remedy=f"Cast(expr, {wanted})"
            )
        compute = ir.compute_type(out)
        found = ir.result_type(low, types)
        lowered.append(low if found == compute else ir.Cast(out, low))
        stored.append(out)
    return Fused(tuple(exprs), types, tuple(stored), tuple(lowered))


def _typed(expression: Expr, types: Types) -> tuple[ir.Expr, ElementType | None]:
    """An expression lowered, and the element type of its result: that of its operands, the wider of two float types, or
    bool; None for what adapts to its neighbours."""
    if isinstance(expression, Op):
        args = [_typed(a, types) for a in expression.args]
        low = lower_op(expression.name, [a for a, _ in args], types)
        return low, _op_type(low, [t for _, t in args[: 2 if expression.name == "select" else None]], types)
    low = expression.lower(types)
    match expression:
        case PlaceHolder():
            return low, types[expression.number - 1]
        case Const() | Cast():
            return low, expression.type
    return low, i32 if isinstance(low, ir.Index) else u32 if isinstance(low, ir.Random) else ir.result_type(low, types)


def _op_type(low: ir.Expr, args: Sequence[ElementType | None], types: Types) -> ElementType | None:
    """The type of an operation's result from those of its arguments."""
    if ir.result_type(low, types) == bool_:
        return bool_
    found = [t for t in args if t is not None]
    if len(found) > 1 and all(t.is_float for t in found) and any(t != found[0] for t in found):
        return f32
    return found[0] if found else None


def _collect(expression: Expr, seen: dict[int, Op]) -> None:
    if isinstance(expression, Cast):
        _collect(expression.arg, seen)
    if isinstance(expression, Op) and id(expression) not in seen:
        for arg in expression.args:
            _collect(arg, seen)
        seen[id(expression)] = expression


def cost_class(types: Sequence[ElementType]) -> CostClass:
    """The kind of arithmetic that operands and outputs of ``types`` need: the widest decides."""
    floats = [t for t in types if t.is_float]
    if not floats:
        return "int"
    return "f16" if all(t.bits == 16 for t in floats) else "f32"


def operation_slots(fused: Fused, vector: int, in_place: bool) -> float:
    """Issue slots that the operations of one vector take, loads and stores of the vector not included.

    An operation's table entry includes as many load and store slots as it has operands (a load more shares its slot
    with the store); within a fused expression they are not needed.
    """
    kind = cost_class((*fused.types, *fused.out_types))
    operations = fused.operations
    least = 1.0 if len(operations) > 1 else 0.0
    total = float(sum(isinstance(e, Cast) for e in fused.exprs))
    for operation in operations:
        cost = find_op(operation.name).cost(kind, in_place)
        total += max(cost.cycles * vector / cost.elements - len(operation.args), least)
    return total


def with_leaves(expression: ir.Expr, leaf: dict[ir.Expr, ir.Expr]) -> ir.Expr:
    """``expression`` with the leaves of ``leaf`` replaced."""
    match expression:
        case ir.Apply():
            return ir.Apply(expression.op, (with_leaves(a, leaf) for a in expression.args))
        case ir.Cast():
            return ir.Cast(expression.type, with_leaves(expression.arg, leaf))
    return leaf.get(expression, expression)


def leaves(expressions: Sequence[ir.Expr]) -> Iterator[ir.Load | ir.Index | ir.Random]:
    """Every load, index and random leaf."""
    for expression in expressions:
        for part in expression.walk():
            if isinstance(part, (ir.Load, ir.Index, ir.Random)):
                yield part
