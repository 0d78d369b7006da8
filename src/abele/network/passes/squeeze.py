"""``squeeze``: permutations and reductions leave out dims of one index.

A batch of one, as ``[1, 384, 1024]``, makes three views of what are the same rows: as they are, turned, and without
the batch. Without dims of one index products and sums read one view, which is put together once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops import build
from abele.network.passes.base import BlockPass, reading


@dataclass(frozen=True)
class Squeeze(BlockPass):
    """Let permutations and reductions read values without dims of one index."""

    name: ClassVar[str] = "squeeze"

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append the ops, some of them between two reshapes."""
        for op in ops:
            with into.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
                values |= zip(op.outputs, self._squeezed(op, into, values), strict=True)

    def _squeezed(self, op: NetworkOp, into: BlockBuilder, values: dict[Value, Value]) -> tuple[Value, ...]:
        if op.kind in ("permute", "reduce") and 1 in op.inputs[0].shape:
            value = values[op.inputs[0]]
            longer = [d for d, n in enumerate(value.shape) if n > 1]
            inner = build.reshape(into, value, [value.shape[d] for d in longer])
            if op.kind == "permute":
                made = build.permute(into, inner, [longer.index(d) for d in op.attrs["order"] if d in longer])
            else:
                left = [longer.index(d) for d in op.attrs["dims"] if d in longer]
                attrs = op.attrs
                made = build.reduce(into, inner, left, attrs["operation"], scale=attrs["scale"], dtype=op.output.dtype)
            return (build.reshape(into, made, op.output.shape),)
        return into.simplified(reading(op, values))
