"""``dead-code``: what nothing needs goes away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from abele.network.ir import BlockBuilder, NetworkOp, Value, needed
from abele.network.passes.base import BlockPass


@dataclass(frozen=True)
class DeadCode(BlockPass):
    """Remove ops whose results nothing needs; no op has an effect beside its results."""

    name: ClassVar[str] = "dead-code"

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append what the results depend on."""
        for op in needed(ops, results):
            into.append(op)
            values |= zip(op.outputs, op.outputs, strict=True)
