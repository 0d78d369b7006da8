"""Masked scores: places where a value is minus infinity whatever its operands, as far as constants tell.

A mask that is known when a network is compiled chooses minus infinity for scores or adds it. What chooses and what is
added are constants, so which scores that leaves is computed from them alone, in NumPy. As everywhere with masks, what
is hidden is supposed to be finite: minus infinity and plus infinity would make no number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from abele.arrays import Bool
from abele.expr import evaluate
from abele.expr.derivative import operands
from abele.expr.nodes import Apply, Cast, Const, Expr, Load
from abele.network.ir import NetworkOp, Value

Contents = Callable[[Value], npt.NDArray[np.generic] | None]
NOWHERE: Bool = np.zeros((), np.bool_)


def hidden(value: Value, makers: Mapping[Value, NetworkOp], contents: Contents) -> Bool:
    """Array that is True where ``value`` is minus infinity for certain; it broadcasts to its shape.

    Args:
        value: Scores.
        makers: The op that makes each value of the block.
        contents: Elements of constants; None for other values.
    """
    known = contents(value)
    if known is not None:
        return np.asarray(known == -np.inf)
    op = makers.get(value)
    if op is None:
        return NOWHERE
    if op.kind == "map":
        return _Hidden(op, makers, contents).of(op.attrs["expr"])
    if op.kind == "cast":
        return hidden(op.inputs[0], makers, contents)
    return NOWHERE


class _Hidden:
    """Certain minus infinities in the parts of the expression of one map."""

    def __init__(self, op: NetworkOp, makers: Mapping[Value, NetworkOp], contents: Contents) -> None:
        self._op, self._makers, self._contents = op, makers, contents

    def of(self, expression: Expr) -> Bool:
        known = self._known(expression)
        if known is not None:
            return np.asarray(known == -np.inf)
        match expression:
            case Load():
                return hidden(self._op.inputs[expression.operand], self._makers, self._contents)
            case Cast():
                return self.of(expression.arg)
            case Apply("select", (condition, then, otherwise)):
                chosen = self._known(condition)
                if chosen is not None:
                    return np.where(np.asarray(chosen, np.bool_), self.of(then), self.of(otherwise))
                return self.of(then) & self.of(otherwise)
            case Apply("add", (a, b)):
                return self.of(a) | self.of(b)
            case Apply("sub", (a, b)) if self._is_finite(b):
                return self.of(a)
            case Apply("mul", (Const(value=factor), a)) | Apply("mul", (a, Const(value=factor))) if factor > 0:
                return self.of(a)
        return NOWHERE

    def _known(self, expression: Expr) -> npt.NDArray[np.generic] | None:
        """The value of an expression over constants alone."""
        arrays: list[npt.NDArray[np.generic]] = [NOWHERE] * len(self._op.inputs)
        for number in operands(expression):
            contents = self._contents(self._op.inputs[number])
            if contents is None:
                return None
            arrays[number] = contents
        with np.errstate(all="ignore"):
            return np.asarray(evaluate(expression, arrays))

    def _is_finite(self, expression: Expr) -> bool:
        known = self._known(expression)
        return known is None or bool(np.isfinite(known).all())
