"""``join-views``: chains of views become one, without dims of one index.

A batch of one, as ``[1, 384, 1024]``, makes three views of what are the same rows: as they are, turned, and without
the batch. Without dims of one index products and sums read one view, which is put together once. A reshape of a
reshape is one, and so is a permutation of a permutation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops import build
from abele.network.passes.base import BlockPass, reading


@dataclass(frozen=True)
class JoinViews(BlockPass):
    """Let permutations and reductions read values without dims of one index, and views what other views show."""

    name: ClassVar[str] = "join-views"

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append the ops, views of what was shown before."""
        for op in ops:
            with into.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
                made = self._joined(op, into, values)
                values |= zip(
                    op.outputs, into.simplified(reading(op, values)) if made is None else (made,), strict=True
                )

    def _joined(self, op: NetworkOp, into: BlockBuilder, values: dict[Value, Value]) -> Value | None:
        if op.kind == "reshape":
            return _reshaped(into, values[op.inputs[0]], op.output.shape)
        if op.kind == "permute":
            return self._permuted(into, values[op.inputs[0]], op.attrs["order"], op.output.shape)
        if op.kind != "reduce" or 1 not in op.inputs[0].shape:
            return None
        value, attrs = values[op.inputs[0]], op.attrs
        longer = [d for d, n in enumerate(value.shape) if n > 1]
        inner = _reshaped(into, value, [value.shape[d] for d in longer])
        left = [longer.index(d) for d in attrs["dims"] if d in longer]
        made = build.reduce(into, inner, left, attrs["operation"], scale=attrs["scale"], dtype=op.output.dtype)
        return _reshaped(into, made, op.output.shape)

    def _permuted(self, into: BlockBuilder, value: Value, order: Sequence[int], shape: Sequence[int]) -> Value:
        longer = [d for d, n in enumerate(value.shape) if n > 1]
        inner = _reshaped(into, value, [value.shape[d] for d in longer])
        turned = [longer.index(d) for d in order if d in longer]
        maker = into.makers.get(inner)
        if maker is not None and maker.kind == "permute":
            inner, turned = maker.inputs[0], [maker.attrs["order"][d] for d in turned]
        return _reshaped(into, build.permute(into, inner, turned), shape)


def _reshaped(into: BlockBuilder, value: Value, shape: Sequence[int]) -> Value:
    maker = into.makers.get(value)
    return build.reshape(into, maker.inputs[0] if maker is not None and maker.kind == "reshape" else value, shape)
