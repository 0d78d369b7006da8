"""Expressions as one vertex an operation, with a tensor for every intermediate result."""

from __future__ import annotations

from collections.abc import Sequence

from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Sequence as Steps
from abele.poplibs.popops.elementwise.placement import execute_elementwise
from abele.poplibs.popops.expr import Cast, Expr, Op, PlaceHolder
from abele.poplibs.popops.expressions.fused import Fused, fuse
from abele.poplibs.poputil.broadcast import broadcast_shape
from abele.poplibs.poputil.layout import create_output_like


def add_one_by_one(
    graph: Graph,
    body: Steps,
    fused: Fused,
    tensors: Sequence[Tensor],
    outputs: Sequence[Tensor],
    name: str,
    vector_broadcast: bool,
) -> None:
    """Append a superstep for every operation of ``fused``, innermost first.

    Args:
        graph: Where vertices and intermediate tensors are made.
        body: Sequence that the supersteps are appended to.
        fused: Expressions, one per output.
        tensors: Operands.
        outputs: Tensors of one shape; those that are operands are written after all are read.
        name: Name of the compute sets.
        vector_broadcast: See :func:`~abele.poplibs.popops.elementwise.placement.execute_elementwise`.
    """
    steps = _Steps(graph, body, tensors, name, vector_broadcast)
    if len(outputs) == 1:
        steps.compute(fused.exprs[0], outputs[0])
        return
    results = [steps.compute(e, None, wanted=o) for e, o in zip(fused.exprs, outputs, strict=True)]
    for result, out in zip(results, outputs, strict=True):
        body.add(Copy(result, out))


class _Steps:
    """Operands and intermediate results of one expression."""

    def __init__(self, graph: Graph, body: Steps, tensors: Sequence[Tensor], name: str, vector_broadcast: bool) -> None:
        self.graph = graph
        self.body = body
        self.tensors = list(tensors)
        self.name = name
        self.vector_broadcast = vector_broadcast
        self.known: dict[int, PlaceHolder] = {}

    def compute(self, expression: Expr, out: Tensor | None, wanted: Tensor | None = None) -> Tensor:
        """The result of ``expression``: in ``out``, or in a new tensor like ``wanted``."""
        operands = self._with_operands(expression)
        numbers = sorted({a.number for a in _placeholders(operands)})
        inputs = [self.tensors[n - 1] for n in numbers]
        single = _renumbered(operands, {n: k + 1 for k, n in enumerate(numbers)})
        fixed = out if out is not None else wanted
        fused = fuse([single], tuple(t.dtype for t in inputs), [fixed.dtype if fixed is not None else None])
        if out is None:
            shape = wanted.shape if wanted is not None else broadcast_shape(self.name, [t.shape for t in inputs])
            out = create_output_like(self.graph, inputs, shape, fused.out_types[0], f"{self.name}/part")
        self.body.add(
            execute_elementwise(self.graph, fused, inputs, [out], self.name, vector_broadcast=self.vector_broadcast)
        )
        return out

    def _with_operands(self, expression: Expr) -> Expr:
        """An operation whose arguments are operands, constants or results computed before it."""
        if isinstance(expression, Op):
            return Op(expression.name, *map(self._operand, expression.args))
        if isinstance(expression, Cast):
            return Cast(self._operand(expression.arg), expression.type)
        return expression

    def _operand(self, expression: Expr) -> Expr:
        if not isinstance(expression, (Op, Cast)):
            return expression
        if id(expression) not in self.known:
            self.tensors.append(self.compute(expression, None))
            self.known[id(expression)] = PlaceHolder(len(self.tensors))
        return self.known[id(expression)]


def _placeholders(expression: Expr) -> list[PlaceHolder]:
    parts = expression.args if isinstance(expression, Op) else (expression.arg,) if isinstance(expression, Cast) else ()
    return [p for p in (*parts, expression) if isinstance(p, PlaceHolder)]


def _renumbered(expression: Expr, numbers: dict[int, int]) -> Expr:
    if isinstance(expression, PlaceHolder):
        return PlaceHolder(numbers[expression.number])
    if isinstance(expression, Op):
        return Op(expression.name, *(_renumbered(a, numbers) for a in expression.args))
    return Cast(_renumbered(expression.arg, numbers), expression.type) if isinstance(expression, Cast) else expression
