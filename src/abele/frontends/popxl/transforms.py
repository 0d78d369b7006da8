"""``popxl.transforms``: the gradient graph of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from abele.errors import UnsupportedOpError
from abele.frontends.popxl import ops
from abele.frontends.popxl.calls import CallSiteInfo, FunctionCall
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import Graph, GraphOperation, HostLoad, HostStore, graph_input
from abele.frontends.popxl.tensors import Constant, Tensor, constant
from abele.network import NetworkBuilder, Value
from abele.network.autodiff.differentiate import gradients
from abele.network.ir import OpBlock, needed


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


def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    return_all_grad_graphs: bool = False,
) -> Any:
    """The gradient graph of a graph.

    Tensors that it needs become outputs of the forward graph: differentiate before the forward graph is called.

    Args:
        graph: Forward graph.
        grads_provided: Outputs whose gradients enter; by default all.
        grads_required: Tensors whose gradients leave; by default all inputs that are floats.
        called_graphs_grad_info: Gradients of graphs that it calls, where they are there already.
        return_all_grad_graphs: Give those of called graphs as well, by graph.

    Raises:
        GraphArgumentError: A tensor is of another graph.
        UnsupportedOpError: An op has no derivative.
    """
    found: dict[Graph, GradGraphInfo] = dict(called_graphs_grad_info or {})
    provided = list(graph.outputs if grads_provided is None else grads_provided)
    required = list(
        (t for t in graph.inputs if t.dtype.is_floating_point) if grads_required is None else grads_required
    )
    for tensor in (*provided, *required):
        graph.check_here(tensor, tensor.id)
    made = _GradientGraph(graph, provided, required, found).run()
    found[graph] = made
    return found if return_all_grad_graphs else made


class _GradientGraph:
    """One gradient graph in the making."""

    def __init__(
        self, graph: Graph, provided: list[Tensor], required: list[Tensor], found: dict[Graph, GradGraphInfo]
    ) -> None:
        self.forward, self.provided, self.required, self.found = graph, provided, required, found
        self.pending: dict[Tensor, list[Tensor]] = {}
        self.activations: dict[Tensor, Tensor] = {}
        self.inputs: list[ExpectedConnection] = []

    def run(self) -> GradGraphInfo:
        """The graph, op by op from the last to the first."""
        made = self.forward.ir.create_empty_graph(f"{self.forward.name}_grad")
        with made:
            for tensor in self.provided:
                entered = graph_input(tensor.shape, tensor.dtype, f"Gradient___{tensor.name}")
                self.pending.setdefault(tensor, []).append(entered)
                self.inputs.append(ExpectedConnection(tensor, ExpectedConnectionType.FwdGrad))
            reached = self._reached()
            self._check_unchanged(reached)
            for op in reversed(tuple(self.forward.operations)):
                if isinstance(op, HostLoad | HostStore):
                    continue
                given = [self._total(t) if t in self.pending else None for t in op.outputs]
                if any(g is not None for g in given) and any(t in reached for t in op.outputs):
                    self._operation(op, given, reached)
            self._check_unchanged(set(self.activations))
            for tensor in self.required:
                made.outputs.append(self._total(tensor) if tensor in self.pending else _zeros(tensor))
        outputs = [ExpectedConnection(t, ExpectedConnectionType.FwdGrad) for t in self.required]
        return GradGraphInfo(self.forward, made, self.inputs, outputs)

    def _reached(self) -> set[Tensor]:
        """Tensors that depend on those required, through floats."""
        reached = set(self.required)
        for op in self.forward.operations:
            if isinstance(op, HostLoad | HostStore):
                continue
            inputs = [t for group in op.inputs for t in group] if isinstance(op, FunctionCall) else op.inputs
            if any(t in reached for t in inputs):
                reached.update(t for t in op.outputs if t.dtype.is_floating_point)
                reached.update(_changed(op) if isinstance(op, GraphOperation) else ())
        return reached

    def _check_unchanged(self, tensors: set[Tensor]) -> None:
        """Raise if an op changes one of some tensors: its value at the end is not the one that was read.

        Raises:
            UnsupportedOpError: One does.
        """
        roots = {_root(t) for t in tensors}
        for op in self.forward.operations:
            for tensor in _changed(op):
                if _root(tensor) in roots:
                    raise _in_place(op, tensor)

    def _total(self, tensor: Tensor) -> Tensor:
        parts = self.pending[tensor]
        if len(parts) > 1:
            parts[:] = [ops.sum_of(parts)]
        return parts[0]

    def _activation(self, tensor: Tensor) -> Tensor:
        """A forward tensor in the gradient graph."""
        if tensor not in self.activations:
            if isinstance(tensor, Constant):
                self.activations[tensor] = constant(tensor.data, tensor.dtype, tensor.name)
                return self.activations[tensor]
            if tensor not in self.forward.inputs and tensor not in self.forward.outputs:
                self.forward.outputs.append(tensor)
            self.activations[tensor] = graph_input(tensor.shape, tensor.dtype, tensor.name)
            self.inputs.append(ExpectedConnection(tensor, ExpectedConnectionType.Fwd))
        return self.activations[tensor]

    def _operation(
        self, op: GraphOperation | FunctionCall, given: Sequence[Tensor | None], reached: set[Tensor]
    ) -> None:
        if isinstance(op, FunctionCall):
            self._call(op, given, reached)
            return
        wanted = [t in reached and t.dtype.is_floating_point for t in op.inputs]
        there = [g for g in given if g is not None]
        block, used = _gradient(op.block, [g is not None for g in given], wanted)
        sources = [t for t, want in zip(op.inputs, wanted, strict=True) if want]
        arguments = [self._activation(op.inputs[n]) for n in used]
        made = ops.emit_block(f"{op.kind}Grad", block, [*arguments, *there])
        for tensor, gradient in zip(sources, made, strict=True):
            self.pending.setdefault(tensor, []).append(gradient)

    def _call(self, op: FunctionCall, given: Sequence[Tensor | None], reached: set[Tensor]) -> None:
        if op.kind != "Call":
            raise UnsupportedOpError(
                f"the gradient of {op.name()} in {self.forward.name!r} has no lowering",
                remedy="call the graph, or repeat its gradient graph by hand",
            )
        child, arguments = op.graphs[0], op.inputs[0]
        if child not in self.found:
            provided = [t for t, g in zip(child.outputs, given, strict=False) if g is not None]
            required = [
                t for t, a in zip(child.inputs, arguments, strict=True) if a in reached and t.dtype.is_floating_point
            ]
            self.found[child] = _GradientGraph(child, provided, required, self.found).run()
        info = self.found[child]
        for other in self.forward.operations:
            if isinstance(other, FunctionCall) and other.graphs[0] is child:
                other.extend(self.forward)
        outside = dict(zip((*child.inputs, *child.outputs), (*arguments, *op.outputs), strict=True))
        handed = []
        by_output = dict(zip(child.outputs, given, strict=False))
        for expected in info.expected_inputs:
            if expected.connection_type is ExpectedConnectionType.Fwd:
                handed.append(self._activation(outside[expected.fwd_tensor]))
            else:
                gradient = by_output.get(expected.fwd_tensor)
                handed.append(gradient if gradient is not None else _zeros(expected.fwd_tensor))
        made = ops.call(info.graph, *handed)
        for expected, gradient in zip(info.expected_outputs, made, strict=True):
            self.pending.setdefault(outside[expected.fwd_tensor], []).append(gradient)


def _zeros(like: Tensor) -> Tensor:
    return ops.init(like.shape, like.dtype)


def _root(tensor: Tensor) -> Tensor:
    """The tensor that a view or in-place result is of, in the end."""
    while tensor.alias is not None:
        tensor = tensor.alias.base
    return tensor


def _changed(op: Any) -> list[Tensor]:
    """Tensors that an op changes."""
    if isinstance(op, GraphOperation):
        return [op.inputs[n] for n in op.modifies]
    if isinstance(op, FunctionCall):
        inputs = op.graphs[0].inputs
        return [t for n, t in enumerate(op.inputs[0]) if inputs[n].by_ref or n in op.modified]
    return []


def _in_place(op: GraphOperation | FunctionCall, tensor: Tensor) -> UnsupportedOpError:
    return UnsupportedOpError(
        f"{op.name()} changes {tensor.id!r} in place, which a gradient depends on",
        at=op.origin.location or None if isinstance(op, GraphOperation) else None,
        remedy="use the op that makes a new tensor, such as ops.relu for ops.relu_",
    )


def _gradient(block: OpBlock, given: Sequence[bool], wanted: Sequence[bool]) -> tuple[OpBlock, list[int]]:
    """Gradients of a block's wanted inputs from those of some results, and numbers of the inputs that they read."""
    net = NetworkBuilder()
    entered = [net.input(v.shape, v.dtype, v.name) for v in block.parameters]
    results = net.inline(block, entered)
    chosen: list[Value] = [r for r, there in zip(results, given, strict=False) if there]
    grads = [net.input(r.shape, r.dtype, f"gradient_{n}") for n, r in enumerate(chosen)]
    made = gradients(net, chosen, grads, [v for v, want in zip(entered, wanted, strict=True) if want])
    kept = needed(net.ops, made)
    read = {v for op in kept for v in op.inputs} | set(made)
    used = [n for n, v in enumerate(entered) if v in read]
    return OpBlock((*(entered[n] for n in used), *grads), tuple(kept), tuple(made)), used


def merge_exchange(graph: Graph) -> None:
    """Nothing: the order of transfers is the compiler's."""


def io_tile_exchange(graph: Graph) -> None:
    """Nothing: there are no tiles for the host alone."""


def decompose_sum(graph: Graph) -> list[Any]:
    """Nothing: sums are as the compiler makes them."""
    return []


__all__ = [
    "ExpectedConnection",
    "ExpectedConnectionType",
    "GradGraphInfo",
    "GraphArgumentError",
    "autodiff",
    "decompose_sum",
    "io_tile_exchange",
    "merge_exchange",
]
