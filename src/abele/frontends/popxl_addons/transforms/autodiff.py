"""Graphs of gradients of graphs with named arguments, with sums of gradients kept in variables."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from abele.frontends import popxl
from abele.frontends.popxl import Graph, Tensor, ops
from abele.frontends.popxl import transforms as popxl_transforms
from abele.frontends.popxl.errors import GraphTypeError
from abele.frontends.popxl.transforms import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from abele.frontends.popxl_addons.errors import GradientInliningError, ModuleError
from abele.frontends.popxl_addons.graph import GraphWithNamedArgs
from abele.frontends.popxl_addons.module import Module
from abele.frontends.popxl_addons.named_replica_grouping import NamedReplicaGrouping
from abele.frontends.popxl_addons.named_tensors import NamedTensors
from abele.frontends.popxl_addons.variable_factory import NamedVariableFactories, VariableFactory

Infos = Mapping[Graph, GradGraphInfo]


def autodiff(
    graph: GraphWithNamedArgs,
    *,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Infos | None = None,
) -> GraphWithNamedArgs:
    """The graph of gradients of a graph.

    Modules with a ``build_grad`` that the graph calls, or that made it, are differentiated by that. As with
    ``popxl.transforms.autodiff`` the forward graph is called after this.

    Args:
        graph: Forward graph.
        grads_provided: Outputs whose gradients enter; by default all.
        grads_required: Tensors whose gradients leave; by default all inputs that are floats.
        called_graphs_grad_info: Gradients of graphs that it calls, where they are there already.

    Raises:
        GradientInliningError: A module with a gradient of its own was built into a graph on the way.
    """
    if not isinstance(graph, GraphWithNamedArgs):
        raise GraphTypeError(f"autodiff takes a GraphWithNamedArgs, not {graph!r}")
    found = dict(called_graphs_grad_info or {})
    _own_gradients(graph.graph, found)
    module = Module.of_graph(graph.graph)
    if module is not None and module.has_build_grad and grads_provided is None and grads_required is None:
        return GraphWithNamedArgs.from_grad_graph(_own_gradient(graph.graph, module))
    info = popxl_transforms.autodiff(graph.graph, grads_provided, grads_required, called_graphs_grad_info=found)
    return GraphWithNamedArgs.from_grad_graph(info)


def _own_gradients(graph: Graph, found: dict[Graph, GradGraphInfo]) -> None:
    """Gradients of all modules with a gradient of their own among the graphs that one calls."""
    for module in Module.inlined_in(graph):
        text = f"The module {type(module).__name__} has a build_grad, which the gradient of {graph.name!r} does not use"
        if module.grad_inlining_error == "error":
            raise GradientInliningError(
                text,
                because="it was built into that graph",
                remedy="module.call_module(x) in place of module(x), or grad_inlining_error='ignore'",
            )
        if module.grad_inlining_error == "warn":
            warnings.warn(text, stacklevel=4)
    for child in graph.called_graphs:
        if child in found:
            continue
        module_of_child = Module.of_graph(child)
        if module_of_child is not None and module_of_child.has_build_grad:
            found[child] = _own_gradient(child, module_of_child)
        else:
            _own_gradients(child, found)


def _own_gradient(graph: Graph, module: Module) -> GradGraphInfo:
    """The gradient of a module as its ``build_grad`` makes it."""
    made = graph.ir.create_empty_graph(f"{graph.name}_grad")
    provided, required = list(graph.outputs), [t for t in graph.inputs if t.dtype.is_floating_point]
    inputs = [ExpectedConnection(t, ExpectedConnectionType.FwdGrad) for t in provided]
    entered: dict[Tensor, Tensor] = {}

    def forward_tensor(tensor: Tensor) -> Tensor:
        graph.check_here(tensor, "forward_tensor")
        if tensor not in entered:
            if tensor not in graph.inputs and tensor not in graph.outputs:
                graph.outputs.append(tensor)
            entered[tensor] = popxl.graph_input(tensor.shape, tensor.dtype, tensor.name)
            inputs.append(ExpectedConnection(tensor, ExpectedConnectionType.Fwd))
        return entered[tensor]

    with made:
        grads = [popxl.graph_input(t.shape, t.dtype, f"Gradient___{t.name}") for t in provided]
        results = module.grads_of(grads, forward_tensor)
        if len(results) != len(required):
            raise ModuleError(
                f"{type(module).__name__}.build_grad gives {len(results)} gradients, its graph has {len(required)} "
                f"inputs that are floats: {', '.join(t.name for t in required)}"
            )
        for tensor, gradient in zip(required, results, strict=True):
            gradient = ops.init(tensor.shape, tensor.dtype) if gradient is None else gradient
            if (gradient.shape, gradient.dtype.name) != (tensor.shape, tensor.dtype.name):
                raise ModuleError(f"{type(module).__name__}.build_grad gives {gradient!r} for {tensor!r}")
            made.outputs.append(gradient)
    return GradGraphInfo(graph, made, inputs, [ExpectedConnection(t, ExpectedConnectionType.FwdGrad) for t in required])


def autodiff_with_accumulation(
    graph: GraphWithNamedArgs,
    tensors_to_accumulate_grads: Iterable[Tensor],
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Infos | None = None,
    replica_groupings: NamedReplicaGrouping | None = None,
    grads_provided: Iterable[Tensor] | None = None,
) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
    """The graph of gradients, which keeps means of some of them in variables.

    Its named arguments, and the makers of them, are ``accum.<name>`` for each tensor by its name in ``graph.args``, and
    ``mean_accum_counter``: the number of gradients that the means are of. Set all to zero after an update.

    Args:
        graph: Forward graph.
        tensors_to_accumulate_grads: Tensors whose gradients are kept.
        grads_required: Tensors whose gradients leave; by default none.
        called_graphs_grad_info: Gradients of graphs that it calls, where they are there already.
        replica_groupings: Replica groupings of the variables, by the tensors' names.
        grads_provided: Outputs whose gradients enter; by default all.
    """
    kept = list(dict.fromkeys(tensors_to_accumulate_grads))
    required = list(dict.fromkeys(grads_required or ()))
    gradients = autodiff(
        graph,
        grads_provided=list(graph.graph.outputs) if grads_provided is None else grads_provided,
        grads_required=[*required, *(t for t in kept if t not in required)],
        called_graphs_grad_info=called_graphs_grad_info,
    )
    info, made = gradients.grad_graph_info, gradients.graph
    by_tensor = {expected.fwd_tensor: out for expected, out in zip(info.expected_outputs, made.outputs, strict=True)}
    names = {tensor: name for name, tensor in graph.args.to_dict().items()}
    factories, args = NamedVariableFactories(), NamedTensors()
    with made, popxl.in_sequence():
        counter_fact = _zero_factory((), popxl.float32, "mean_accum_counter", None)
        counter = counter_fact.create_input()
        for tensor in kept:
            name = names.get(tensor, tensor.name)
            grouping = None if replica_groupings is None else replica_groupings.get(name, None)
            fact = _zero_factory(tensor.shape, by_tensor[tensor].dtype, name.rpartition(".")[2], grouping)
            total = fact.create_input(f"accum.{name.rpartition('.')[0]}".rstrip("."))
            ops.var_updates.accumulate_mean_(total, by_tensor[tensor], counter)
            factories.insert(f"accum.{name}", fact)
            args.insert(f"accum.{name}", total)
        ops.var_updates.accumulate_(counter, popxl.constant(1.0, popxl.float32))
    factories.insert("mean_accum_counter", counter_fact)
    args.insert("mean_accum_counter", counter)
    made.outputs[:] = [by_tensor[t] for t in required]
    expected = [ExpectedConnection(t, ExpectedConnectionType.FwdGrad) for t in required]
    changed = GradGraphInfo(info.forward_graph, made, info.expected_inputs, expected)
    return factories, GraphWithNamedArgs.from_grad_graph(changed, args)


def _zero_factory(shape: tuple[int, ...], kind: Any, name: str, grouping: Any) -> VariableFactory:
    def zeros() -> Any:
        return np.zeros(shape, kind.as_numpy())

    return VariableFactory(zeros, kind, name, by_ref=True, replica_grouping=grouping)


__all__ = ["autodiff", "autodiff_with_accumulation"]
