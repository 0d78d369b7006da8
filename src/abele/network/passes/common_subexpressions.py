"""``common-subexpressions``: equal computations are done once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.network import op_key
from abele.network.passes.base import BlockPass, reading
from abele.network.registry import rule_of


@dataclass(frozen=True)
class CommonSubexpressions(BlockPass):
    """Let one op stand for all that compute the same of the same values at the same place.

    The first one stays where it is; random ops are equal if their modifiers are.
    """

    name: ClassVar[str] = "common-subexpressions"

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append each op that is not there yet."""
        seen: dict[Any, NetworkOp] = {}
        for op in ops:
            op = reading(op, values)
            # Operands are replaced first, so equal chains are found link by link in one pass.
            first = seen.setdefault(_key(op), op) if rule_of(op).repeats and op.outputs else op
            if first is op:
                into.append(op)
            values |= zip(op.outputs, first.outputs, strict=True)


def _key(op: NetworkOp) -> Any:
    """Key of ops with the same results."""
    made = tuple((v.type, v.name, v.place) for v in op.outputs)
    return op_key(op, tuple, made)
