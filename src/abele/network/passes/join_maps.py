"""``join-maps``: element-wise ops that follow each other are one, whose results on the way are never stored.

Traces of JAX have an op for each operation: ``(x - mean) * factor + shift`` in float32, then rounded to float16, is
four. Each would be a step that reads and writes all of its elements. A map is joined to the maps that read it if all
that read it are maps of the same elements, in the same stage and place, and if it is

- read by one of them alone, or
- cheap enough to be computed by each of them: at most :data:`CHEAP` operations of few cycles.

Results on the way keep their types: what was rounded to float16 between two ops is so inside of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.expr import Apply, Cast, Expr, derivative
from abele.expr.types import element_type
from abele.network.ir import BlockBuilder, FrozenDict, NetworkOp, Value
from abele.network.passes.base import BlockPass, reading

MOST_OPERANDS = 8
"""Operands of one op; more would crowd the registers of a worker, which has 16."""
MOST_OPERATIONS = 48
"""Operations of one op: its code is on every tile."""
CHEAP = 2
"""Operations of an op that is computed by several readers, instead of stored for them."""
_FAST = frozenset({"add", "sub", "mul", "max", "min", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "and", "or"})
"""Operations that take an instruction or two."""


@dataclass(frozen=True)
class JoinMaps(BlockPass):
    """Join maps to the maps that read them."""

    name: ClassVar[str] = "join-maps"

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append ops; maps that are joined only where a reader has too many operands with them."""
        joined = _joined(ops, results)
        waiting: dict[Value, NetworkOp] = {}

        def written(value: Value) -> None:
            op = waiting.pop(value)
            into.append(op)

        for op in ops:
            if op.kind == "map":
                op = self._with_operands(op, values, waiting)
            else:
                op = reading(op, values)
            for value in op.inputs:
                if value in waiting:
                    written(value)
            values |= zip(op.outputs, op.outputs, strict=True)
            if op.outputs and op.outputs[0] in joined:
                waiting[op.output] = op
            else:
                into.append(op)

    @staticmethod
    def _with_operands(
        op: NetworkOp, values: Mapping[Value, Value], waiting: Mapping[Value, NetworkOp]
    ) -> NetworkOp:
        """A map with the maps that it reads in it, as far as there is room."""
        op = reading(op, dict(values))
        for value in op.inputs:
            maker = waiting.get(value)
            if maker is not None:
                made = _together(op, value, maker)
                op = made or op
        return op


def _together(reader: NetworkOp, value: Value, maker: NetworkOp) -> NetworkOp | None:
    """``reader`` with what makes one of its operands inside; None where that is too much for one op."""
    kept = [v for v in reader.inputs if v is not value]
    inputs = [*dict.fromkeys([*kept, *maker.inputs])]
    if len(inputs) > MOST_OPERANDS:
        return None
    inner = derivative.substitute(_expression(maker), lambda n: derivative.arg(inputs.index(maker.inputs[n])))

    def operand(number: int) -> Expr:
        read = reader.inputs[number]
        return inner if read is value else derivative.arg(inputs.index(read))

    expression = derivative.substitute(reader.attrs["expr"], operand)
    if len(_operations(expression)) > MOST_OPERATIONS:
        return None
    return replace(reader, inputs=tuple(inputs), attrs=FrozenDict({**reader.attrs, "expr": expression}))


def _expression(op: NetworkOp) -> Expr:
    """The expression of a map or cast, with the type of its result."""
    if op.kind == "cast":
        return Cast(op.output.dtype, derivative.arg(0))
    expression: Expr = op.attrs["expr"]
    computed = element_type(expression, tuple(v.dtype for v in op.inputs))
    return expression if computed == op.output.dtype else Cast(op.output.dtype, expression)


def _operations(expression: Expr) -> list[Expr]:
    """Operations as they are written: one that is used twice counts twice."""
    return [part for part in expression.walk() if isinstance(part, (Apply, Cast))]


def _joined(ops: Sequence[NetworkOp], results: Iterable[Value]) -> set[Value]:
    """Values that only maps of the same elements read, and that need not be stored for them."""
    leaving = frozenset(results)
    readers: dict[Value, list[NetworkOp]] = {}
    for op in ops:
        for value in dict.fromkeys(op.inputs):
            readers.setdefault(value, []).append(op)
    found = set()
    for op in ops:
        if op.kind not in ("map", "cast") or op.output in leaving or op.output not in readers:
            continue
        if op.kind == "cast" and not op.output.dtype.is_float:
            continue
        if not all(_alike(op, reader) for reader in readers[op.output]):
            continue
        if len(readers[op.output]) == 1 or _is_cheap(op):
            found.add(op.output)
    return found


def _alike(op: NetworkOp, reader: NetworkOp) -> bool:
    """True if a reader is a map of the same elements."""
    return (
        reader.kind == "map"
        and reader.output.shape == op.output.shape
        and (reader.stage, reader.place) == (op.stage, op.place)
    )


def _is_cheap(op: NetworkOp) -> bool:
    if op.kind == "cast":
        return True
    operations = _operations(op.attrs["expr"])
    large = sum(v.size == op.output.size for v in op.inputs)
    return large <= 1 and len(operations) <= CHEAP and all(isinstance(o, Apply) and o.op in _FAST for o in operations)
