"""``canonicalise``: every op as simple as its rule knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.passes.base import BlockPass, reading


@dataclass(frozen=True)
class Canonicalise(BlockPass):
    """Replace ops by simpler ones: views without effect, maps that read one operand twice, known branches.

    What builders do to each op as they append it, done to ops that are there: those of a text, or of a pass before.
    """

    name: ClassVar[str] = "canonicalise"

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append each op anew, and let the builder simplify it."""
        for op in ops:
            with into.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
                values |= zip(op.outputs, into.simplified(reading(op, values)), strict=True)
