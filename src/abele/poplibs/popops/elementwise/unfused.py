"""Expressions as one vertex per operation, with a tensor for every intermediate result."""

from __future__ import annotations

from collections.abc import Sequence

import abele.expr as ir
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Steps
from abele.poplibs.popops.elementwise.placement import execute_elementwise
from abele.poplibs.popops.expr import Expr
from abele.poplibs.popops.expressions.fused import Fused, fuse, is_typed_constant, with_leaves
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
        graph: Graph in which vertices and intermediate tensors are made.
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
        self.known: dict[int, ir.Load] = {}

    def compute(self, expression: ir.Expr, out: Tensor | None, wanted: Tensor | None = None) -> Tensor:
        """The result of ``expression``: in ``out``, or in a new tensor like ``wanted``."""
        operands = self._with_operands(expression)
        numbers = sorted({a.operand for a in (*operands.args, operands) if isinstance(a, ir.Load)})
        inputs = [self.tensors[n] for n in numbers]
        single = Expr(with_leaves(operands, {ir.Load(n, ()): ir.Load(k, ()) for k, n in enumerate(numbers)}))
        fixed = out if out is not None else wanted
        fused = fuse([single], tuple(t.dtype for t in inputs), [fixed.dtype if fixed is not None else None])
        if out is None:
            shape = wanted.shape if wanted is not None else broadcast_shape(self.name, [t.shape for t in inputs])
            out = create_output_like(self.graph, inputs, shape, fused.out_types[0], f"{self.name}/part")
        self.body.add(
            execute_elementwise(self.graph, fused, inputs, [out], self.name, vector_broadcast=self.vector_broadcast)
        )
        return out

    def _with_operands(self, expression: ir.Expr) -> ir.Expr:
        """An operation whose arguments are operands, constants or results computed before it."""
        if isinstance(expression, ir.Apply):
            return ir.Apply(expression.op, map(self._operand, expression.args))
        if isinstance(expression, ir.Cast):
            return ir.Cast(expression.type, self._operand(expression.arg))
        return expression

    def _operand(self, expression: ir.Expr) -> ir.Expr:
        if not isinstance(expression, (ir.Apply, ir.Cast)) or is_typed_constant(expression):
            return expression
        if id(expression) not in self.known:
            self.tensors.append(self.compute(expression, None))
            self.known[id(expression)] = ir.Load(len(self.tensors) - 1, ())
        return self.known[id(expression)]
