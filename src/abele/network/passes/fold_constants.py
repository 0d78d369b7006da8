"""``fold-constants``: what can be computed when the network is compiled, is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from abele.network.interpreter import Interpreter
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.passes.base import BlockPass, reading
from abele.network.registry import rule_of


@dataclass(frozen=True)
class FoldConstants(BlockPass):
    """Replace ops on constants alone by constants.

    Each op is computed in the types of its values. A result with more elements than its operands and than
    ``max_elements`` stays an op: memory for it would cost more than computing it.

    Attributes:
        max_elements: Largest result that may be larger than what it is computed from.
    """

    name: ClassVar[str] = "fold-constants"
    max_elements: int = 4096

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Compute ops whose operands are constants; append the others."""
        for op in ops:
            op = reading(op, values)
            with into.at(op.debug, stage=op.stage, place=op.place):
                values |= zip(op.outputs, self._folded(op, into) or _kept(op, into), strict=True)

    def _folded(self, op: NetworkOp, into: BlockBuilder) -> tuple[Value, ...] | None:
        contents = [into.contents(v) for v in op.inputs]
        known = [c for c in contents if c is not None]
        if not op.inputs or len(known) < len(contents) or not rule_of(op).folds or not self._is_small(op):
            return None
        run, made = Interpreter(precise=False), dict[Value, np.ndarray]()
        made |= zip(op.inputs, known, strict=True)
        with np.errstate(all="ignore"):
            run.ops([op], made)
        return tuple(into.constant(made[v], v.dtype) for v in op.outputs)

    def _is_small(self, op: NetworkOp) -> bool:
        given = sum(v.size for v in op.inputs)
        return all(math.prod(v.shape) <= max(given, self.max_elements) for v in op.outputs)


def _kept(op: NetworkOp, into: BlockBuilder) -> tuple[Value, ...]:
    into.append(op)
    return op.outputs
