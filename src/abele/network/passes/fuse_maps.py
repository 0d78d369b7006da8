"""``fuse-maps``: chains of element-wise ops become one op each.

Traces have an op for every multiplication; on tiles each is a step that loads and stores all its elements. A map goes
into the maps that read it where they have its shape: ``(a · b) + c`` is one expression of three operands. A map that
several others read is computed in each of them if that costs little (no functions, few operations), and then needs no
tensor; others are computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from abele.expr import Cast, Expr, derivative
from abele.expr.nodes import Apply
from abele.expr.types import Typing
from abele.network.ir import BlockBuilder, FrozenDict, NetworkOp, Value
from abele.network.passes.base import BlockPass, reading
from abele.numerics import ElementType, f32

CHEAP = frozenset({"add", "sub", "mul", "neg", "max", "min", "abs", "square"})
"""Operations that are computed again rather than kept."""


@dataclass(frozen=True)
class FuseMaps(BlockPass):
    """Let maps compute what they read.

    Attributes:
        most_operations: Operations of an expression.
        most_operands: Operands of an expression.
        repeated: Cheap operations that each of several readers computes.
    """

    name: ClassVar[str] = "fuse-maps"
    most_operations: int = 40
    most_operands: int = 6
    repeated: int = 2

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append the ops; maps that all their readers compute are left out."""
        leaving = frozenset(results)
        readers: dict[Value, list[NetworkOp]] = {}
        for op in ops:
            for value in dict.fromkeys(op.inputs):
                readers.setdefault(value, []).append(op)
        inside: dict[Value, NetworkOp] = {}
        fused: list[NetworkOp] = []
        for op in ops:
            if op.kind == "map":
                op = self._with_operands(op, inside)
                if op.output not in leaving and self._is_computed_by(op, readers.get(op.output, ())):
                    inside[op.output] = op
            fused.append(op)
        for op in fused:
            if op.output not in inside if op.outputs else True:
                with into.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
                    values |= zip(op.outputs, into.simplified(reading(op, values)), strict=True)

    def _is_computed_by(self, op: NetworkOp, readers: Sequence[NetworkOp]) -> bool:
        """True if every reader computes the result of a map itself."""
        made = op.output
        if not readers or not all(
            r.kind == "map" and r.output.shape == made.shape and (r.stage, r.place) == (op.stage, op.place)
            for r in readers
        ):
            return False
        size = _operations(op.attrs["expr"])
        if any(
            size + _operations(r.attrs["expr"]) > self.most_operations
            or len({*op.inputs, *r.inputs}) - 1 > self.most_operands
            for r in readers
        ):
            return False
        return len(readers) == 1 or (size <= self.repeated and _is_cheap(op.attrs["expr"]))

    def _with_operands(self, op: NetworkOp, inside: dict[Value, NetworkOp]) -> NetworkOp:
        """A map with the expressions of operands in ``inside``."""
        if inside.keys().isdisjoint(op.inputs):
            return op
        operands: list[Value] = []

        def place(value: Value) -> Expr:
            if value not in operands:
                operands.append(value)
            return derivative.arg(operands.index(value))

        def computed(number: int) -> Expr:
            value = op.inputs[number]
            maker = inside.get(value)
            if maker is None:
                return place(value)
            inner = maker.attrs["expr"]
            made = derivative.substitute(inner, lambda n: place(maker.inputs[n]))
            return made if _keeps(inner, maker.inputs, value.dtype) else Cast(value.dtype, made)

        expression = derivative.substitute(op.attrs["expr"], computed)
        return NetworkOp("map", tuple(operands), op.outputs, FrozenDict({"expr": expression}), op.debug)


def _keeps(expression: Expr, operands: Sequence[Value], dtype: ElementType) -> bool:
    """True if an expression is computed in its result's type; narrow floats are not rounded in between."""
    computed = Typing(tuple(v.dtype for v in operands)).of(expression)
    return computed == dtype or (computed == f32 and dtype.is_float)


def _operations(expression: Expr) -> int:
    return sum(isinstance(part, Apply) for part in expression.walk())


def _is_cheap(expression: Expr) -> bool:
    return all(not isinstance(part, Apply) or part.op in CHEAP for part in expression.walk())
