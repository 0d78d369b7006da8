"""Checkpoints: stretches whose backward pass computes them again from their operands alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, RegionBuilder, Value
from abele.network.registry import Gradients, LazyReader, Types, require, rule

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering
    from abele.network.interpreter import Interpreter


def checkpoint(net: BlockBuilder, body: Callable[[BlockBuilder], Sequence[Value]]) -> tuple[Value, ...]:
    """The results of a body, which the backward pass computes again.

    Args:
        net: Network or block to extend.
        body: Takes the builder of the stretch; gives its results.
    """
    region = RegionBuilder(net)
    results = [region.read(v) for v in body(region)]
    block = region.finish(results)
    return net.emit_many("checkpoint", region.captured, [v.type for v in block.results], regions=(block,))


@rule("checkpoint")
class Checkpoint(LazyReader):
    """A body that runs where it stands, and once more before its backward pass.

    On the machine it is as if its ops stood here. What it makes on the way dies with it, since its backward pass reads
    what it makes itself; random ops draw the same twice.
    """

    operands = (0, None)
    region_names = ("body",)

    def types(self, op: NetworkOp) -> Types:
        """Types of the body's results."""
        require(len(op.regions) == 1, f"it has one body, not {len(op.regions)}")
        parameters = op.regions[0].parameters
        require(
            [v.type for v in parameters] == [v.type for v in op.inputs],
            f"its body takes {', '.join(map(str, parameters)) or 'nothing'}",
        )
        return [v.type for v in op.regions[0].results]

    def interpret(self, run: Interpreter, op: NetworkOp, args: Sequence[Array]) -> Any:
        """The body."""
        return tuple(run.block(op.regions[0], args))

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """The body, as if it stood here."""
        return tuple(to.block(op.regions[0], op.inputs, leaving=op.outputs))

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """A checkpoint that computes the body again, then its backward pass."""
        raise AssertionError("checkpoints are differentiated by abele.network.autodiff.differentiate")
