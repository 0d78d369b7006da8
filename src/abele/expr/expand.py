"""Composite operations replaced by their expansions, until only primitive ones are left."""

from __future__ import annotations

from collections.abc import Iterable

from abele.errors import TypeMismatchError
from abele.expr.nodes import Apply, Cast, Const, Expr, RowLoad
from abele.expr.operation import TABLE, Operation, Types
from abele.expr.types import Typing


def is_primitive(expression: Expr) -> bool:
    """True if every operation of an expression is primitive."""
    return all(TABLE[e.op].is_primitive for e in expression.walk() if isinstance(e, Apply))


def expanded(expression: Expr, types: Types) -> Expr:
    """``expression`` over primitive operations, its types checked; parts that are shared stay shared.

    Args:
        expression: Over operands of ``types``.
        types: Element type of each operand.

    Raises:
        TypeMismatchError: An operation on types that it does not take.
    """
    return Expander(types).of(expression)


class Expander:
    """Expressions over the same operands being expanded, each part once.

    Args:
        types: Element type of each operand.
    """

    def __init__(self, types: Types) -> None:
        self.typing = Typing(types)
        # By identity, which costs nothing; each node is kept alive, so that no other takes its place in memory.
        self._known: dict[int, tuple[Expr, Expr]] = {}

    def of(self, expression: Expr) -> Expr:
        """One of them over primitive operations; see :func:`expanded`."""
        found = self._known.get(id(expression))
        if found is not None:
            return found[1]
        result = expression
        match expression:
            case Cast():
                arg = self.of(expression.arg)
                result = expression if arg is expression.arg else Cast(expression.type, arg)
            case RowLoad():
                result = expression.at_row(self.of(expression.row))
            case Apply():
                result = self._operation(expression)
        self._known[id(expression)] = expression, result
        return result

    def _operation(self, expression: Apply) -> Expr:
        operation = TABLE[expression.op]
        args = [self.of(a) for a in expression.args]
        if not operation.is_primitive and operation.kinds is not None:
            self._check_kinds(operation, args)
        if operation.expansion is None:
            same = all(a is b for a, b in zip(args, expression.args, strict=True))
            made: Expr = expression if same else Apply(expression.op, args)
        else:
            made = operation.expansion(self.typing.types, *args)
            if not operation.is_primitive:
                made = self.of(made)
        self.typing.of(made)
        return made

    def _check_kinds(self, operation: Operation, args: Iterable[Expr]) -> None:
        assert operation.kinds is not None
        for found in (self.typing.of(a) for a in args if not isinstance(a, Const)):
            if found.kind not in operation.kinds:
                raise TypeMismatchError(
                    f"{operation.popops_name} does not take {found}",
                    remedy=f"it takes {' and '.join(sorted(operation.kinds))}",
                )
