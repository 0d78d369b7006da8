"""Graphs whose arguments have names, and graphs with some of these given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from abele.frontends.popxl import Graph, Ir, Tensor, graph_input, ops
from abele.frontends.popxl.calls import CallSiteInfo
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.transforms import GradGraphInfo
from abele.frontends.popxl_addons.named_tensors import NamedTensors

Arguments = NamedTensors | Mapping[Tensor, Tensor]
"""Arguments beside those in order: by name, or for inputs of the graph."""


def input_like(t: Tensor) -> Tensor:
    """A new input of the current graph like another tensor."""
    return graph_input(t.shape, t.dtype, t.name, by_ref=t.by_ref, meta_shape=t.meta_shape)


class GraphWithNamedArgs:
    """A graph, and names for some of its inputs.

    Attributes:
        graph: The graph.
        args: Inputs of the graph by name.
    """

    def __init__(
        self, graph: Graph, args: NamedTensors | None = None, grad_graph_info: GradGraphInfo | None = None
    ) -> None:
        self.graph = graph
        self.args = NamedTensors() if args is None else args
        self._grad_graph_info = grad_graph_info

    @classmethod
    def from_grad_graph(cls, grad_info: GradGraphInfo, args: NamedTensors | None = None) -> Self:
        """The graph of gradients that ``popxl.transforms.autodiff`` made."""
        return cls(grad_info.graph, args, grad_info)

    @classmethod
    def empty(cls, ir: Ir, name: str | None = None) -> Self:
        """A graph without inputs or ops."""
        return cls(ir.create_empty_graph(name))

    @property
    def name(self) -> str:
        """Name of the graph."""
        return self.graph.name

    @property
    def grad_graph_info(self) -> GradGraphInfo:
        """Meaning of its inputs and outputs in the forward graph.

        Raises:
            GraphTypeError: It is no graph of gradients.
        """
        if self._grad_graph_info is None:
            raise GraphTypeError(
                f"{self.name!r} is not a graph of gradients", remedy="take it from addons.autodiff(forward)"
            )
        return self._grad_graph_info

    def copy(self) -> GraphWithNamedArgs:
        """It with names of its own, on the same graph."""
        return GraphWithNamedArgs(self.graph, self.args.copy(), self._grad_graph_info)

    def bind(self, args: NamedTensors | None = None) -> BoundGraph:
        """It with arguments given by name; names that it does not have are left alone.

        Raises:
            GraphTypeError: ``args`` is no tree of tensors.
        """
        return BoundGraph(self, self._mapping(args))

    def call(self, *inputs: Any, args: Arguments | None = None) -> tuple[Tensor, ...]:
        """Its results.

        Args:
            *inputs: Arguments for inputs that have no other, in order.
            args: Arguments by name, or for inputs of the graph.
        """
        return self.bind().call(*inputs, args=args)

    def call_with_info(self, *inputs: Any, args: Arguments | None = None, check_inputs: bool = True) -> CallSiteInfo:
        """A call, as ``popxl.ops.call_with_info`` describes it."""
        return self.bind().call_with_info(*inputs, args=args, check_inputs=check_inputs)

    def autodiff(
        self,
        grads_provided: Iterable[Tensor] | None = None,
        grads_required: Iterable[Tensor] | None = None,
        called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    ) -> GraphWithNamedArgs:
        """Its graph of gradients, as :func:`popxl_addons.autodiff` makes it."""
        from abele.frontends.popxl_addons.transforms.autodiff import autodiff

        return autodiff(
            self,
            grads_provided=grads_provided,
            grads_required=grads_required,
            called_graphs_grad_info=called_graphs_grad_info,
        )

    def print_schedule(self) -> str:
        """Its ops in the order in which they run, a line each; printed and returned."""
        text = "\n".join(f"{type(op).__name__}  {op.name()}" for op in self.graph.operations)
        print(text)
        return text

    def _mapping(self, args: Arguments | None) -> dict[Tensor, Tensor]:
        if args is None:
            return {}
        if isinstance(args, NamedTensors):
            return self.args.to_mapping(args)
        if not isinstance(args, Mapping):
            raise GraphTypeError(f"arguments are NamedTensors or a dictionary of tensors, not {args!r}")
        return dict(args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, args={self.args.keys_flat()})"


class BoundGraph:
    """A graph with some of its arguments given.

    Attributes:
        owner: The graph with names.
        bound: Arguments by input of the graph.
    """

    def __init__(self, owner: GraphWithNamedArgs | Graph, bound: Mapping[Tensor, Tensor] | None = None) -> None:
        self.owner = GraphWithNamedArgs(owner) if isinstance(owner, Graph) else owner
        self.bound = dict(bound or {})

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.owner.graph

    @property
    def name(self) -> str:
        """Name of the graph."""
        return self.owner.name

    @property
    def args(self) -> NamedTensors:
        """Inputs of the graph by name."""
        return self.owner.args

    def bind(self, args: NamedTensors | None = None) -> BoundGraph:
        """It with further arguments; those given before stay where both have one."""
        return BoundGraph(self.owner, {**self.owner._mapping(args), **self.bound})

    def inputs_dict(self, inputs: Iterable[Any], args: Arguments | None = None) -> dict[Tensor, Any]:
        """Arguments of a call by input of the graph.

        Raises:
            GraphArgumentError: There are more arguments in order than inputs without one, or one is given twice.
        """
        more = self.owner._mapping(args)
        twice = [t.id for t in more if t in self.bound]
        if twice:
            raise GraphArgumentError(f"the inputs {', '.join(twice)} of {self.name!r} are bound already")
        found: dict[Tensor, Any] = {**self.bound, **more}
        given = [t for one in inputs for t in (one if isinstance(one, list | tuple) else [one])]
        free = [t for t in self.graph.inputs if t not in found]
        if len(given) > len(free):
            raise GraphArgumentError(
                f"Too many inputs: {self.name!r} takes {len(free)} beside those bound, got {len(given)}"
            )
        return found | dict(zip(free, given, strict=False))

    def call(self, *inputs: Any, args: Arguments | None = None) -> tuple[Tensor, ...]:
        """Its results.

        Args:
            *inputs: Arguments for inputs that have no other, in order.
            args: Arguments by name, or for inputs of the graph.
        """
        return self.call_with_info(*inputs, args=args).outputs

    def call_with_info(self, *inputs: Any, args: Arguments | None = None, check_inputs: bool = True) -> CallSiteInfo:
        """A call, as ``popxl.ops.call_with_info`` describes it."""
        return ops.call_with_info(self.graph, inputs_dict=self.inputs_dict(inputs, args), check_inputs=check_inputs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {len(self.bound)} of {len(self.graph.inputs)} inputs)"


__all__ = ["BoundGraph", "GraphWithNamedArgs", "input_like"]
