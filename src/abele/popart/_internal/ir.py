"""``popart._internal.ir``: classes of ops, with which programs ask what a graph has.

``isinstance(op, ir.op.AddOp)`` holds for ops of ``graph._pb_graph.getOps()`` whose ``opType()`` is ``Add``. Nothing
else of PopART's graphs is here.
"""

from __future__ import annotations

from abele.frontends.popxl.graph import PrivateGraph as Graph
from abele.frontends.popxl.op_types import Op, OpClass, op_class


class OpClasses:
    """Classes of ops by name; ``op.collectives`` and ``op.exchange`` have the same."""

    @property
    def collectives(self) -> OpClasses:
        """Itself."""
        return self

    @property
    def exchange(self) -> OpClasses:
        """Itself."""
        return self

    def __getattr__(self, name: str) -> OpClass:
        return op_class(name)


op = OpClasses()

__all__ = ["Graph", "Op", "op"]
