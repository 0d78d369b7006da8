"""``fuse-maps``: a map that one other map alone reads is part of that one's expression.

A trace of JAX has an op for each sum and product: the tanh form of GELU is nine, a draw of dropout eight. As one op
they are one step, and what is between them is in no tensor::

    %0 = map(%x) expr={$0 * 0.5}          %1 = map(%x, %y) expr={($0 * 0.5) + $1}
    %1 = map(%0, %y) expr={$0 + $1}

Values that several ops read stay, as they would be computed more than once; so do those of fewer elements than their
reader's, and those whose reader would read too much. Floats are rounded once, where the last op stores.

It is for networks that are differentiated already: a gradient reads what its forward pass keeps, which are operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.expr import Cast, Expr, derivative
from abele.expr.types import element_type, result_type
from abele.network.ir import BlockBuilder, FrozenDict, NetworkOp, Value, needed
from abele.network.passes.base import BlockPass, reading
from abele.numerics import bool_, f32

MOST_PARTS = 64
"""Operations, operands and numbers of an expression; the code of a vertex grows with them (a guess)."""
MOST_OPERANDS = 8
"""Operands of an expression: each is an edge of every vertex (a guess)."""


@dataclass(frozen=True)
class FuseMaps(BlockPass):
    """Put maps into the maps that read them."""

    name: ClassVar[str] = "fuse-maps"

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append fewer maps of larger expressions."""
        results = tuple(results)
        ops = needed(ops, results)
        readers = Counter(v for op in ops for v in op.inputs)
        readers.update(results)
        made: dict[Value, NetworkOp] = {}
        for op in ops:
            whole = _with_operands(reading(op, values), made, readers) if op.kind == "map" else reading(op, values)
            values |= zip(op.outputs, op.outputs, strict=True)
            if whole.kind == "map":
                made[whole.output] = whole
            into.append(whole)
        into.ops[:] = needed(into.ops, results)


def _with_operands(op: NetworkOp, made: dict[Value, NetworkOp], readers: Counter[Value]) -> NetworkOp:
    """A map with the expressions of operands that nothing else reads."""
    for value in op.inputs:
        maker = made.get(value)
        if maker is None or readers[value] != 1 or not _alike(maker, op):
            continue
        whole = _joined(maker, op)
        if whole is not None:
            op = whole
    return op


def _alike(maker: NetworkOp, op: NetworkOp) -> bool:
    first, second = maker.output, op.output
    return (first.shape, first.stage, first.place) == (second.shape, second.stage, second.place)


def _joined(maker: NetworkOp, op: NetworkOp) -> NetworkOp | None:
    """Both as one map; None where that is too large, or would compute the operand twice."""
    number = op.inputs.index(maker.output)
    expression = op.attrs["expr"]
    parts = [p for p in expression.walk() if getattr(p, "operand", None) == number]
    inputs = tuple(dict.fromkeys([*(v for v in op.inputs if v is not maker.output), *maker.inputs]))
    if len(parts) != 1 or len(inputs) > MOST_OPERANDS:
        return None
    inner = derivative.substitute(maker.attrs["expr"], lambda n: derivative.arg(inputs.index(maker.inputs[n])))
    held = _as_held(inner, inputs, maker.output)
    whole = derivative.substitute(
        expression, lambda n: held if n == number else derivative.arg(inputs.index(op.inputs[n]))
    )
    if sum(1 for _ in whole.walk()) > MOST_PARTS:
        return None
    return replace(op, inputs=inputs, attrs=FrozenDict({**op.attrs, "expr": whole}))


def _as_held(expression: Expr, inputs: Sequence[Value], value: Value) -> Expr:
    """An expression as a value holds it: converted to its type, narrow integers cut."""
    types = tuple(v.dtype for v in inputs)
    natural = element_type(expression, types) or result_type(expression, types)
    if natural == value.dtype and (value.dtype.is_float or value.dtype == bool_ or value.dtype.bits == f32.bits):
        return expression
    return Cast(value.dtype, expression)
