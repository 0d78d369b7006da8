"""Constants: values that are known when the network is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, Dense, NetworkOp, Shape, Value
from abele.network.ir.network import contents_of
from abele.network.registry import OpRule, Types, require, rule

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def full(net: BlockBuilder, fill: float, shape: Shape, dtype: object) -> Value:
    """A constant of one number."""
    import numpy as np

    return net.constant(np.broadcast_to(np.float64(fill), shape), dtype)


@rule("constant")
class ConstantRule(OpRule):
    """Elements that do not change."""

    operands = 0
    attributes: ClassVar = {"value": Dense}
    folds = False
    depends_on_operands_alone = False

    def types(self, op: NetworkOp) -> Types:
        """The type of the contents."""
        contents = contents_of(op)
        require(contents.dtype == op.output.dtype.np, f"the contents are {contents.dtype}, not {op.output.dtype}")
        return [(contents.shape, op.output.dtype)]

    def evaluate(self, op: NetworkOp) -> Array:
        """The contents."""
        return contents_of(op)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """Made when the first op reads it; this is for one that leaves the network as it is."""
        return to.constant(op)
