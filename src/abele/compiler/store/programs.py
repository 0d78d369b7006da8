"""Control programs in a file: nodes in a table, each once."""

from __future__ import annotations

from typing import Any

from abele.compiler.store import control_nodes, flow_nodes
from abele.compiler.store.data_nodes import CopyEndTable
from abele.compiler.store.extent import Extents
from abele.compiler.store.format import FunctionRow
from abele.compiler.store.graphs import GraphIn, GraphOut, debug_of
from abele.compiler.store.nodes import STORED, NodeForm, made_again, tag_of
from abele.graph.compute_set import ComputeSet
from abele.graph.host import HostFunction
from abele.graph.program import Function, Program
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.report.archive import part

NODE_MODULES = (flow_nodes, control_nodes)
"""Modules that enter the file form of nodes, besides ``data_nodes``."""


class ProgramsOut:
    """Numbers the nodes of programs and describes each once.

    Args:
        graph: Numbers views.

    Attributes:
        rows: The descriptions so far.
        compute_sets: Compute sets that are executed, in order of first use.
    """

    def __init__(self, graph: GraphOut) -> None:
        self._graph = graph
        self._numbers: dict[int, int] = {}
        self._functions: dict[int, int] = {}
        self.function_rows: list[Any] = []
        self.rows: list[Any] = []
        self.compute_sets: list[ComputeSet] = []

    def number(self, node: Program) -> int:
        """The number of a node, those inside it first."""
        if id(node) not in self._numbers:
            parts = STORED.of(node).parts(self, node)
            self._numbers[id(node)] = len(self.rows)
            self.rows.append([tag_of(node), self._graph.debug(node.debug), *parts])
        return self._numbers[id(node)]

    def numbers(self, nodes: Any) -> list[int]:
        """The numbers of several nodes."""
        return [self.number(node) for node in nodes]

    def view(self, tensor: Tensor | None) -> int | None:
        """The number of a view."""
        return None if tensor is None else self._graph.views.number(tensor)

    def views(self, tensors: Any) -> list[int | None]:
        """The numbers of several views."""
        return [self.view(tensor) for tensor in tensors]

    def end(self, end: Any) -> Any:
        """An end of a copy."""
        if isinstance(end, Stream):
            return {"stream": end.name}
        return {"remote": end.name} if isinstance(end, RemoteBuffer) else self.view(end)

    def compute_set(self, compute_set: ComputeSet) -> int:
        """The number of a compute set."""
        if compute_set not in self.compute_sets:
            self.compute_sets.append(compute_set)
        return self.compute_sets.index(compute_set)

    def function(self, function: Function) -> int:
        """The number of a function."""
        if id(function) not in self._functions:
            body = self.number(function.body)
            self._functions[id(function)] = len(self.function_rows)
            views = [self.views(function.parameters), self.views(function.results)]
            self.function_rows.append([body, self._graph.debug(function.debug), *views])
        return self._functions[id(function)]


class ProgramsIn:
    """Makes the nodes of a file anew, through their own checks.

    Args:
        graph: Gives views, ends and compute sets.
        rows: The descriptions of nodes.
        functions: The descriptions of functions.

    Attributes:
        extents: Number of nodes that each unfolds to.
    """

    def __init__(self, graph: GraphIn, rows: list[NodeForm], functions: list[FunctionRow]) -> None:
        self._graph = graph
        self._function_rows = functions
        self._functions: dict[int, Function] = {}
        self._nodes: list[Program] = []
        self.extents = Extents()
        for number, row in enumerate(rows):
            with part(f"program step {number}, {type(row).__struct_config__.tag}"):
                node = self._node(row)
                self.extents.add(node)
                self._nodes.append(node)

    def node(self, number: int) -> Program:
        """The node of a number.

        Raises:
            IndexError: It comes later or not at all.
        """
        # Nodes are listed after what they hold, so references go backwards and no cycle can be written down.
        if number >= len(self._nodes):
            raise IndexError(f"there is no program step {number} before it")
        return self._nodes[number]

    def view(self, number: Any) -> Any:
        """The view of a number."""
        return None if number is None else self._graph.views.tensor(number)

    def views(self, numbers: Any) -> tuple[Tensor, ...]:
        """The views of several numbers."""
        return tuple(self.view(number) for number in numbers)

    def variable(self, number: int) -> Variable:
        """The variable of a number."""
        return self._graph.graph.variables[number]

    def end(self, end: Any) -> Any:
        """An end of a copy."""
        if isinstance(end, CopyEndTable):
            graph = self._graph.graph
            return graph.remote_buffers[end.remote or ""] if end.stream is None else graph.streams[end.stream]
        return self.view(end)

    def compute_set(self, number: int) -> ComputeSet:
        """The compute set of a number."""
        return self._graph.graph.compute_sets[number]

    def host_function(self, name: str) -> HostFunction:
        """The host function of a name."""
        return self._graph.graph.host_functions[name]

    def function(self, number: int) -> Function:
        """The function of a number."""
        if number not in self._functions:
            row = self._function_rows[number]
            self._functions[number] = Function(
                self.node(row.body), debug_of(row.debug), self.views(row.parameters), self.views(row.results)
            )
        return self._functions[number]

    def tile(self, number: int) -> int:
        """A tile that there is."""
        if number >= self._graph.graph.num_tiles:
            raise IndexError(f"there is no tile {number}")
        return number

    def _node(self, row: NodeForm) -> Program:
        debug, *parts = (getattr(row, name) for name in row.__struct_fields__)
        node = made_again(self, row, *parts)
        node.debug = debug_of(debug)
        return node
