"""``popxl.transforms``: the gradient graph of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.gradient_graphs import GradientGraph, KnownGradients
from abele.frontends.popxl.gradient_info import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from abele.frontends.popxl.graph import Graph
from abele.frontends.popxl.tensors import Tensor


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
        grads_provided: Outputs whose gradients enter; by default all that are floats.
        grads_required: Tensors whose gradients leave; by default all inputs that are floats.
        called_graphs_grad_info: Gradients of graphs that it calls, where they are there already.
        return_all_grad_graphs: Give those of called graphs as well, by graph.

    Raises:
        GraphArgumentError: A tensor is of another graph, or its elements are no floats.
        UnsupportedOpError: An op has no derivative.
    """
    if not isinstance(graph, Graph):
        raise GraphTypeError(f"autodiff takes a Graph, not {graph!r}")
    known = KnownGradients(dict(called_graphs_grad_info or {}), dict(called_graphs_grad_info or {}))
    provided = list(_floats(graph.outputs) if grads_provided is None else grads_provided)
    required = list(_floats(graph.inputs) if grads_required is None else grads_required)
    for tensor in (*provided, *required):
        if not isinstance(tensor, Tensor):
            raise GraphTypeError(f"gradients are of tensors, not of {tensor!r}")
        graph.check_here(tensor, tensor.id)
        if not tensor.dtype.is_floating_point:
            raise GraphArgumentError(f"{tensor!r} has no gradient: its elements are no floats")
    made = GradientGraph(graph, provided, required, known).run()
    known.found[graph] = made
    return known.found if return_all_grad_graphs else made


def _floats(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [t for t in tensors if t.dtype.is_floating_point]


def merge_exchange(graph: Graph | None = None) -> AbstractContextManager[None]:
    """A context, or a call for a graph, that changes nothing: the order of transfers is the compiler's."""
    return nullcontext()


def io_tile_exchange(graph: Graph | None = None, verify_overlap: bool = True) -> AbstractContextManager[None]:
    """A context, or a call for a graph, that changes nothing: there are no tiles for the host alone."""
    return nullcontext()


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
