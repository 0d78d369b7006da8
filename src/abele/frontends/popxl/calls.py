"""Calls of graphs: once, several times, or one of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.errors import UnsupportedOpError
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import Graph, get_current_graph
from abele.frontends.popxl.tensors import Tensor

InputsByTensor = Mapping[Tensor, Tensor]


@dataclass(eq=False)
class FunctionCall:
    """A call of graphs.

    Attributes:
        kind: ``Call``, ``Loop`` or ``If``.
        graphs: The graph; of ``If`` both.
        inputs: Arguments of each graph.
        outputs: Its results.
        count: Trips of a loop.
        condition: Chooser of the graph, for ``If``.
        modified: Numbers of inputs whose changes the caller sees, beside those by reference.
        num_results: Outputs that it was made with; later ones are what gradients read of its graphs.
        kept: For each later output its graph's number, and the number of that graph's output. Of a loop it has a row
            for each trip; of ``If`` it is zero where the other graph ran.
    """

    kind: str
    graphs: tuple[Graph, ...]
    inputs: tuple[list[Tensor], ...]
    outputs: list[Tensor]
    count: int = 1
    condition: Tensor | None = None
    modified: set[int] = field(default_factory=set)
    kept: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_results = len(self.outputs)

    def opType(self) -> str:
        """Its kind."""
        return self.kind

    def name(self) -> str:
        """Kind and graph."""
        return f"{self.kind}({self.graphs[0].name})"

    def extend(self, parent: Graph) -> None:
        """Give a call the outputs that its graph was given since; loops and choices get those that are asked for."""
        if self.kind == "Call":
            for number in range(len(self.outputs), len(self.graphs[0].outputs)):
                self.keep(parent, 0, number)

    def keep(self, parent: Graph, graph: int, number: int) -> Tensor:
        """Its output for an output that one of its graphs has beyond its results."""
        if (graph, number) not in self.kept:
            tensor = self.graphs[graph].outputs[number]
            shape = (self.count, *tensor.shape) if self.kind == "Loop" else tensor.shape
            self.kept.append((graph, number))
            self.outputs += _made(parent, [tensor], shape)
        return self.outputs[self.num_results + self.kept.index((graph, number))]


class CallSiteInfo:
    """Arguments and results of a call.

    Attributes:
        operation: The call.
        parent: Graph that calls.
    """

    def __init__(self, operation: FunctionCall, parent: Graph) -> None:
        self.operation, self.parent = operation, parent

    @property
    def called_graph(self) -> Graph:
        """The graph."""
        return self.operation.graphs[0]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Arguments."""
        return tuple(self.operation.inputs[0])

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Results."""
        return tuple(self.operation.outputs)

    def parent_input(self, idx: int) -> Tensor:
        """The argument of a number."""
        return self.inputs[idx]

    def parent_output(self, idx: int) -> Tensor:
        """The result of a number."""
        self.operation.extend(self.parent)
        return self.outputs[idx]

    def graph_to_parent_input_index(self, idx: int) -> int:
        """Number of the argument for an input."""
        return range(len(self.called_graph.inputs))[idx]

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Number of the input of an argument."""
        return range(len(self.inputs))[idx]

    def graph_to_parent_output_index(self, idx: int) -> int:
        """Number of the result of an output."""
        return range(len(self.called_graph.outputs))[idx]

    def parent_to_graph_output_index(self, idx: int) -> int:
        """Number of the output of a result."""
        return range(len(self.outputs))[idx]

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """The caller's tensor for an input or output of the graph.

        Raises:
            GraphArgumentError: It is neither.
        """
        graph = self.called_graph
        self.operation.extend(self.parent)
        for inside, outside in ((graph.inputs, self.inputs), (graph.outputs, self.outputs)):
            if graph_tensor in inside and inside.index(graph_tensor) < len(outside):
                return outside[inside.index(graph_tensor)]
        raise GraphArgumentError(f"{graph_tensor!r} is not an input or output of {graph.name!r}")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """The graph's input or output for a tensor of the caller.

        Raises:
            GraphArgumentError: The call has it as neither.
        """
        graph = self.called_graph
        for inside, outside in ((graph.inputs, self.inputs), (graph.outputs, self.outputs)):
            if parent_tensor in outside and outside.index(parent_tensor) < len(inside):
                return inside[outside.index(parent_tensor)]
        raise GraphArgumentError(f"{parent_tensor!r} is not an input or output of the call of {graph.name!r}")

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = False) -> None:
        """Let the caller see what the graph does to an argument.

        Raises:
            GraphArgumentError: The call does not have it.
        """
        if parent_tensor not in self.inputs:
            raise GraphArgumentError(f"{parent_tensor!r} is not an input of the call of {self.called_graph.name!r}")
        self.operation.modified.add(self.inputs.index(parent_tensor))


class ConditionalSiteInfo(CallSiteInfo):
    """Arguments and results of a choice between two graphs.

    Its inputs are the condition, then the arguments of both graphs.
    """

    @property
    def called_graphs(self) -> tuple[Graph, Graph]:
        """Both graphs."""
        return self.then_graph, self.else_graph

    @property
    def then_graph(self) -> Graph:
        """The graph that runs if the condition holds."""
        return self.operation.graphs[0]

    @property
    def else_graph(self) -> Graph:
        """The graph that runs if it does not."""
        return self.operation.graphs[1]

    @property
    def condition(self) -> Tensor:
        """The bool that chooses."""
        assert self.operation.condition is not None
        return self.operation.condition

    @property
    def then_inputs(self) -> tuple[Tensor, ...]:
        """Arguments of the first graph."""
        return tuple(self.operation.inputs[0])

    @property
    def else_inputs(self) -> tuple[Tensor, ...]:
        """Arguments of the second graph."""
        return tuple(self.operation.inputs[1])

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The condition, then the arguments of both graphs."""
        return (self.condition, *self.then_inputs, *self.else_inputs)

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Inputs and outputs of both graphs beside the caller's tensors."""
        sides = zip(self.called_graphs, (self.then_inputs, self.else_inputs), strict=True)
        return [
            pair
            for graph, given in sides
            for pair in (*zip(graph.inputs, given, strict=False), *zip(graph.outputs, self.outputs, strict=False))
        ]

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """The caller's tensor for an input or output of one of the graphs.

        Raises:
            GraphArgumentError: It is neither.
        """
        for inside, outside in self._pairs():
            if inside == graph_tensor:
                return outside
        names = " and ".join(repr(g.name) for g in self.called_graphs)
        raise GraphArgumentError(f"{graph_tensor!r} is not an input or output of {names}")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """The first input or output of the graphs that a tensor of the caller is.

        Raises:
            GraphArgumentError: The choice has it as neither.
        """
        for inside, outside in self._pairs():
            if outside == parent_tensor:
                return inside
        raise GraphArgumentError(f"{parent_tensor!r} is not an input or output of the choice")

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = False) -> None:
        """Nothing here: what a choice does to its arguments stays inside.

        Raises:
            UnsupportedOpError: Always.
        """
        raise UnsupportedOpError(f"changes of {parent_tensor!r} by a conditional", remedy="make it an output")


def _flat(inputs: Sequence[Any]) -> list[Any]:
    return [t for given in inputs for t in (given if isinstance(given, list | tuple) else [given])]


def arguments(graph: Graph, inputs: Sequence[Any], inputs_dict: InputsByTensor | None) -> list[Tensor]:
    """Arguments of a call in the order of the graph's inputs.

    Raises:
        GraphArgumentError: They are too few or too many, given twice, or of another shape.
        GraphTypeError: One is no tensor.
    """
    if not isinstance(graph, Graph):
        raise GraphTypeError(f"a call takes a Graph, not {graph!r}")
    parent, named = get_current_graph(), dict(inputs_dict or {})
    if graph.ir != parent.ir:
        raise GraphArgumentError(f"the graph {graph.name!r} is of another Ir")
    if parent in graph.reached:
        raise GraphArgumentError(f"{graph.name!r} cannot be called in {parent.name!r}, which it calls or is")
    given = _flat(inputs)
    if len(given) > len(graph.inputs):
        raise GraphArgumentError(f"Too many inputs: {graph.name!r} takes {len(graph.inputs)}, got {len(given)}")
    found = dict(zip(graph.inputs, given, strict=False))
    for inside, outside in named.items():
        if inside not in graph.inputs:
            raise GraphArgumentError(f"{inside!r} is not an input of {graph.name!r}")
        if inside in found:
            raise GraphArgumentError(f"the input {inside.id!r} is given twice")
        found[inside] = outside
    missing = [t for t in graph.inputs if t not in found]
    if missing:
        table = "\n".join(f"{graph.inputs.index(t)}: {t!r}" for t in missing)
        raise GraphArgumentError(f"Not enough inputs have been provided to {graph.name!r}", because=table)
    made = []
    for number, tensor in enumerate(graph.inputs):
        outside = found[tensor]
        if not isinstance(outside, Tensor):
            try:
                outside = _constant_like(tensor, outside)
            except (TypeError, ValueError):
                raise GraphTypeError(f"input {number} of {graph.name!r} is {outside!r}, which is no tensor") from None
        parent.check_here(outside, f"input {number} of {graph.name}")
        if outside.shape != tensor.shape or outside.dtype is not tensor.dtype:
            raise GraphArgumentError(f"input {number} of {graph.name!r} is {tensor!r}, got {outside!r}")
        made.append(outside)
    return made


def _constant_like(tensor: Tensor, value: Any) -> Tensor:
    from abele.frontends.popxl.tensors import constant

    return constant(value, tensor.dtype)


def _made(graph: Graph, outputs: Sequence[Tensor], shape: tuple[int, ...] | None = None) -> list[Tensor]:
    """New tensors of a graph like others, or of another shape."""
    return [
        Tensor(graph, t.name, t.shape if shape is None else shape, t.dtype, ipu=t.ipu, meta_shape=t.meta_shape)
        for t in outputs
    ]


def call_with_info(
    graph: Graph, *inputs: Any, inputs_dict: InputsByTensor | None = None, check_inputs: bool = True
) -> CallSiteInfo:
    """A call of a graph; see :class:`CallSiteInfo`."""
    parent = get_current_graph()
    operation = FunctionCall("Call", (graph,), (arguments(graph, inputs, inputs_dict),), _made(parent, graph.outputs))
    parent.add(operation)
    return CallSiteInfo(operation, parent)


def call(graph: Graph, *inputs: Any, inputs_dict: InputsByTensor | None = None) -> tuple[Tensor, ...]:
    """The results of a graph."""
    return call_with_info(graph, *inputs, inputs_dict=inputs_dict).outputs


def repeat_with_info(
    graph: Graph,
    repeat_count: int,
    *inputs: Any,
    inputs_dict: InputsByTensor | None = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """A loop over a graph; see :func:`repeat`."""
    if isinstance(repeat_count, bool) or not isinstance(repeat_count, int | np.integer):
        raise GraphTypeError(f"Repeat trip count must be a whole number, not {repeat_count!r}")
    if repeat_count < 0:
        raise GraphArgumentError(f"Repeat trip count must be >= 0, got {repeat_count}")
    parent, given = get_current_graph(), arguments(graph, inputs, inputs_dict)
    if len(given) < len(graph.outputs):
        raise GraphArgumentError(
            f"a repeat carries its {len(graph.outputs)} outputs to as many inputs, {graph.name!r} has {len(given)}"
        )
    for inside, outside in zip(graph.inputs, graph.outputs, strict=False):
        if inside.shape != outside.shape or inside.dtype is not outside.dtype:
            raise GraphArgumentError(f"a repeat carries {outside!r} to {inside!r}, which differs")
    operation = FunctionCall("Loop", (graph,), (given,), _made(parent, graph.outputs), count=int(repeat_count))
    parent.add(operation)
    return CallSiteInfo(operation, parent)


def repeat(
    graph: Graph, repeat_count: int, *inputs: Any, inputs_dict: InputsByTensor | None = None
) -> tuple[Tensor, ...]:
    """The results of a graph that is called several times: its first inputs are the outputs of the trip before."""
    return repeat_with_info(graph, repeat_count, *inputs, inputs_dict=inputs_dict).outputs


def conditional_with_info(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Sequence[Any] | None = None,
    else_inputs: Sequence[Any] | None = None,
    then_inputs_dict: InputsByTensor | None = None,
    else_inputs_dict: InputsByTensor | None = None,
) -> ConditionalSiteInfo:
    """A choice between two graphs; see :func:`conditional`."""
    parent = get_current_graph()
    parent.check_here(cond, "cond")
    if cond.nelms != 1 or cond.dtype.name != "bool":
        raise GraphArgumentError(f"the condition is one bool, got {cond!r}")
    for graph in (then_branch, else_branch):
        if any(t.by_ref for t in graph.inputs):
            raise UnsupportedOpError(f"inputs by reference of a conditional: {graph.name!r}")
    types = [[(t.shape, t.dtype.name) for t in g.outputs] for g in (then_branch, else_branch)]
    if types[0] != types[1]:
        raise GraphArgumentError(f"The branches have different outputs: {types[0]} and {types[1]}")
    given = (
        arguments(then_branch, then_inputs or (), then_inputs_dict),
        arguments(else_branch, else_inputs or (), else_inputs_dict),
    )
    made = _made(parent, then_branch.outputs)
    operation = FunctionCall("If", (then_branch, else_branch), given, made, condition=cond)
    parent.add(operation)
    return ConditionalSiteInfo(operation, parent)


def conditional(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Sequence[Any] | None = None,
    else_inputs: Sequence[Any] | None = None,
    then_inputs_dict: InputsByTensor | None = None,
    else_inputs_dict: InputsByTensor | None = None,
) -> tuple[Tensor, ...]:
    """The results of one of two graphs, by a bool."""
    return conditional_with_info(
        cond,
        then_branch,
        else_branch,
        then_inputs,
        else_inputs,
        then_inputs_dict=then_inputs_dict,
        else_inputs_dict=else_inputs_dict,
    ).outputs
