"""Graphs of gradients that make what they need of the forward graph anew."""

from __future__ import annotations

from abele.frontends import popxl
from abele.frontends.popxl import Tensor, ops
from abele.frontends.popxl.transforms import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from abele.frontends.popxl_addons.graph import GraphWithNamedArgs, input_like
from abele.frontends.popxl_addons.named_tensors import NamedTensors


def recompute_graph(grad_graph: GraphWithNamedArgs) -> GraphWithNamedArgs:
    """The graph of gradients that calls the forward graph first, and so takes the forward graph's inputs alone.

    Between the two calls no tensor inside the forward graph is held. Named arguments stay what they are.

    Args:
        grad_graph: Graph of gradients, of :func:`autodiff` or :func:`autodiff_with_accumulation`.

    Raises:
        GraphTypeError: It is no graph of gradients.
    """
    info = grad_graph.grad_graph_info
    forward, gradient = info.forward_graph, grad_graph.graph
    made = forward.ir.create_empty_graph(f"{forward.name}_recomputed_grad")
    inputs: list[ExpectedConnection] = []
    outside: dict[Tensor, Tensor] = {}
    with made, popxl.in_sequence():
        for inside, expected in zip(gradient.inputs, info.expected_inputs, strict=False):
            if expected.connection_type is ExpectedConnectionType.FwdGrad:
                outside[inside] = input_like(inside)
                inputs.append(expected)
        entered = []
        for tensor in forward.inputs:
            entered.append(popxl.graph_input(tensor.shape, tensor.dtype, tensor.name, meta_shape=tensor.meta_shape))
            inputs.append(ExpectedConnection(tensor, ExpectedConnectionType.Fwd))
        args = NamedTensors.from_dict({name: input_like(t) for name, t in grad_graph.args.to_dict().items()})
        call = ops.call_with_info(forward, *entered)
        outside |= grad_graph.args.to_mapping(args) | info.inputs_dict(call)
        made.outputs[:] = ops.call(gradient, inputs_dict=outside)
    recomputed = GradGraphInfo(forward, made, inputs, info.expected_outputs)
    return GraphWithNamedArgs.from_grad_graph(recomputed, args)


__all__ = ["recompute_graph"]
