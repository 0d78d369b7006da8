"""Fused expressions: one or more expressions over the same operands, typed, lowered and costed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import abele.expr as ir
from abele.errors import TypeMismatchError, UnsupportedOpError
from abele.expr import Types
from abele.expr.operation import CostClass
from abele.numerics import ElementType
from abele.poplibs.popops.expr import Expr, check_placeholders, parts


@dataclass(frozen=True)
class Fused:
    """Expressions evaluated in one pass over their operands.

    Attributes:
        exprs: The expressions, one per output.
        types: Element type of each operand.
        out_types: Element type of each output.
        lowered: Kernel expressions over loads ``%i[]``, converted to what the outputs hold.
    """

    exprs: tuple[ir.Expr, ...]
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
        """True if an expression depends on the position of the element."""
        return any(isinstance(e, (ir.Index, ir.Random)) for e in self._leaves)

    @cached_property
    def seeds(self) -> frozenset[int]:
        """Operands that are seeds of random bits."""
        return frozenset(e.seed for e in self._leaves if isinstance(e, ir.Random))

    @cached_property
    def arithmetic(self) -> CostClass:
        """The widest arithmetic of operands, outputs and what expressions convert on the way."""
        inner = (p.type for p in parts(*self.exprs) if isinstance(p, ir.Cast) and not is_typed_constant(p))
        return cost_class((*self.types, *self.out_types, *inner))

    @cached_property
    def operations(self) -> tuple[ir.Apply, ...]:
        """Every operation once, however often its result is used."""
        return tuple(p for p in parts(*self.exprs) if isinstance(p, ir.Apply))


def fuse(exprs: Sequence[Expr], types: Types, out_types: Sequence[ElementType | None]) -> Fused:
    """The expressions lowered for operands of ``types``.

    Args:
        exprs: One expression per output.
        types: Element type of each operand.
        out_types: Wanted element type of each output; None for the one that follows from the operands.

    Raises:
        TensorError: An expression uses operands which are not there.
        TypeMismatchError: Operations on types that they do not take, 8-bit floats among them, or an output type that
            needs a cast.
    """
    lowered, stored = [], []
    ir.check_computes(*types)
    # One for all, so that what two expressions share is one object, and computed once.
    expansion = ir.Expander(types)
    for expression, wanted in zip(exprs, out_types, strict=True):
        check_placeholders(expression.node, types)
        low = expansion.of(expression.node)
        found = expansion.typing.of(low)
        natural = ir.element_type(expression.node, types) or found
        out = wanted or natural
        if out.kind != natural.kind and wanted is not None:
            raise TypeMismatchError(
                f"the expression gives {natural}, the output holds {wanted}", remedy=f"Cast(expr, {wanted})"
            )
        if not _is_number(expression.node):  # which is stored in any type
            ir.check_computes(out)
        compute = ir.compute_type(out)
        lowered.append(low if found == compute else ir.Cast(out, low))
        stored.append(out)
    return Fused(tuple(e.node for e in exprs), types, tuple(stored), tuple(lowered))


def _is_number(expression: ir.Expr) -> bool:
    return isinstance(expression.arg if isinstance(expression, ir.Cast) else expression, ir.Const)


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
    kind = fused.arithmetic
    operations = fused.operations
    # An operation of its own is hidden behind its loads at best; of several, each still has to be issued.
    least = 1.0 if len(operations) > 1 else 0.0
    total = float(sum(isinstance(e, ir.Cast) and not is_typed_constant(e) for e in fused.exprs))
    for operation in operations:
        cost = library_cost(operation).of(kind, in_place)
        total += max(cost.cycles * vector / cost.elements - len(operation.args), least)
    return total


def is_typed_constant(expression: ir.Expr) -> bool:
    """True if it is a number of a type of its own, which takes no operation."""
    return isinstance(expression, ir.Cast) and isinstance(expression.arg, ir.Const)


def library_cost(operation: ir.Apply) -> ir.LibraryCost:
    """Cost of an operation in library vertices.

    Raises:
        UnsupportedOpError: The table does not say.
    """
    known = ir.TABLE[operation.op]
    if known.cost is None:
        raise UnsupportedOpError(
            f"the element-wise operation {operation.op!r} has no cost in library vertices",
            remedy="give cost=loop_cost(...) in its entry of abele.expr.TABLE",
        )
    return known.cost


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
