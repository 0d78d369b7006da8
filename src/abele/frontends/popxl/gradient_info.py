"""Meaning of the inputs and outputs of a gradient graph, in its forward graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from abele.frontends.popxl.calls import CallSiteInfo
from abele.frontends.popxl.errors import GraphTypeError
from abele.frontends.popxl.graph import Graph
from abele.frontends.popxl.tensors import Tensor


class ExpectedConnectionType(Enum):
    """Meaning of an input or output of a gradient graph: a forward tensor or its gradient."""

    Fwd = "Fwd"
    FwdGrad = "FwdGrad"


@dataclass(frozen=True)
class ExpectedConnection:
    """A forward tensor, and whether it or its gradient is meant."""

    fwd_tensor: Tensor
    connection_type: ExpectedConnectionType


class GradGraphInfo:
    """A gradient graph, and what its inputs and outputs are of the forward graph.

    Attributes:
        forward_graph: The forward graph.
        graph: The gradient graph.
        expected_inputs: Meaning of each input: the provided gradients first.
        expected_outputs: Meaning of each output.
    """

    def __init__(
        self,
        forward_graph: Graph,
        graph: Graph,
        expected_inputs: Sequence[ExpectedConnection],
        expected_outputs: Sequence[ExpectedConnection],
    ) -> None:
        self.forward_graph, self.graph = forward_graph, graph
        self.expected_inputs, self.expected_outputs = tuple(expected_inputs), tuple(expected_outputs)

    @property
    def inputs(self) -> tuple[ExpectedConnection, ...]:
        """Meaning of each input."""
        return self.expected_inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Outputs of the gradient graph."""
        return tuple(self.graph.outputs)

    def inputs_dict(self, fwd_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Forward tensors that the gradient graph reads, from a call of the forward graph.

        Raises:
            GraphTypeError: It is a call of another graph.
        """
        self._check(fwd_call_info, self.forward_graph)
        return {
            inside: fwd_call_info.graph_to_parent(e.fwd_tensor)
            for inside, e in zip(self.graph.inputs, self.expected_inputs, strict=False)
            if e.connection_type is ExpectedConnectionType.Fwd
        }

    def fwd_graph_ins_to_grad_parent_outs(self, grad_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """For forward tensors their gradients, as a call of the gradient graph makes them."""
        self._check(grad_call_info, self.graph)
        return {e.fwd_tensor: t for e, t in zip(self.expected_outputs, grad_call_info.outputs, strict=False)}

    def fwd_parent_ins_to_grad_parent_outs(
        self, fwd_call_info: CallSiteInfo, grad_call_info: CallSiteInfo
    ) -> dict[Tensor, Tensor]:
        """For arguments of a forward call their gradients, as a call of the gradient graph makes them."""
        self._check(fwd_call_info, self.forward_graph)
        made = self.fwd_graph_ins_to_grad_parent_outs(grad_call_info)
        return {fwd_call_info.graph_to_parent(t): gradient for t, gradient in made.items()}

    @staticmethod
    def _check(info: CallSiteInfo, graph: Graph) -> None:
        if info.called_graph is not graph:
            raise GraphTypeError(f"The call is of {info.called_graph.name!r}, not of {graph.name!r}")


__all__ = ["ExpectedConnection", "ExpectedConnectionType", "GradGraphInfo"]
