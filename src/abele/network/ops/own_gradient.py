"""Values with gradients by the user: a backward pass in place of the derivative of their computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, RegionBuilder, Value
from abele.network.ops.constant import full
from abele.network.registry import Gradients, LazyReader, Types, require, rule

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def own_gradient(
    net: BlockBuilder, results: Sequence[Value], sources: Sequence[Value], backward: Callable[..., Sequence[Value]]
) -> tuple[Value, ...]:
    """``results`` as they are, through which gradients flow to ``sources`` as ``backward`` says.

    No gradient flows into what computed the results.

    Args:
        net: Network or block to extend.
        results: Values that were computed from the sources.
        sources: Values with gradients.
        backward: Takes the builder of the backward pass and a gradient for each result; gives one for each source.
    """
    region = RegionBuilder(net)
    gradients = [region.parameter(v) for v in results]
    made = [region.read(v) for v in backward(region, *gradients)]
    block = region.finish(made)
    inputs, types = [*results, *sources, *region.captured], [v.type for v in results]
    return net.emit_many("own_gradient", inputs, types, regions=(block,), results=len(results), sources=len(sources))


@rule("own_gradient")
class OwnGradient(LazyReader):
    """The first ``results`` operands, with a body that makes gradients of the next ``sources`` from gradients of them.

    Further operands are what the body reads beside gradients.
    """

    operands = (1, None)
    attributes: ClassVar = {"results": int, "sources": int}
    region_names = ("backward",)

    def types(self, op: NetworkOp) -> Types:
        """Types of the results."""
        num_results, num_sources = op.attrs["results"], op.attrs["sources"]
        require(len(op.regions) == 1, f"it has one backward pass, not {len(op.regions)}")
        require(num_results > 0 and 0 <= num_sources <= len(op.inputs) - num_results, "it lacks operands")
        (block,), results = op.regions, op.inputs[:num_results]
        sources = op.inputs[num_results : num_results + num_sources]
        given = [v.type for v in (*results, *op.inputs[num_results + num_sources :])]
        require([v.type for v in block.parameters] == given, "its backward pass takes other values")
        require(
            [v.type for v in block.results] == [v.type for v in sources],
            "its backward pass gives gradients of other types than those of its sources",
        )
        return [v.type for v in results]

    def evaluate(self, op: NetworkOp, *args: Array) -> tuple[Array, ...]:
        """The first operands."""
        return args[: op.attrs["results"]]

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """The first operands themselves."""
        return tuple(to[v] for v in op.inputs[: op.attrs["results"]])

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The body on the gradients; those that nothing depends on are zeros."""
        num_results, num_sources = op.attrs["results"], op.attrs["sources"]
        results, read = op.inputs[:num_results], op.inputs[num_results + num_sources :]
        given = [g if g is not None else full(net, 0.0, v.shape, v.dtype) for g, v in zip(grads, results, strict=True)]
        made = net.inline(op.regions[0], [net.read(v) for v in (*given, *read)])
        return [*(None for _ in results), *made, *(None for _ in read)]
