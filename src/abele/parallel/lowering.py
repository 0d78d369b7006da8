"""Lowering: the ops of a network as library calls on a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from abele.graph import DebugInfo, Graph, Sequence, Tensor
from abele.parallel.network import Network, Op, Value
from abele.parallel.registry import rule_of


class Lowering:
    """The tensors that stand for a network's values, and the program that is being appended to.

    Inputs, parameters and buffers become variables when the first op that reads them is lowered, in the layout which
    that op asks for; later ops take them as they are.

    Attributes:
        graph: Where variables and vertices are made.
        net: The network.
        prog: The sequence that rules append to.
        planning: Options of matrix products and convolutions.
    """

    def __init__(self, graph: Graph, net: Network, *, planning: Mapping[str, Any] | None = None) -> None:
        self.graph = graph
        self.net = net
        self.prog = Sequence()
        self.planning = dict(planning or {})
        self._like: dict[Value, Value] = {}
        self._tensors: dict[Value, Tensor] = {}

    def __getitem__(self, value: Value) -> Tensor:
        """The tensor of a value; one that enters the network and was not read yet is spread linearly."""
        if value not in self._tensors:
            self._tensors[value] = self._enter(value, None)
        return self._tensors[value]

    def __contains__(self, value: Value) -> bool:
        return value in self._tensors

    def bind(self, value: Value, tensor: Tensor) -> None:
        """Let ``tensor`` stand for ``value``."""
        assert tensor.shape == value.shape, f"{value} bound to {tensor!r}"
        assert tensor.dtype == value.dtype, f"{value} bound to {tensor!r}"
        self._tensors[value] = tensor

    def lay_out_like(self, results: Mapping[Value, Value]) -> None:
        """Ask for each of ``results`` to be laid out like another value, where its op can choose."""
        self._like.update(results)

    def like(self, value: Value) -> Tensor | None:
        """The tensor that ``value`` is to be laid out like, if there is one already."""
        model = self._like.get(value)
        return self._tensors.get(model) if model is not None else None

    @contextmanager
    def into(self, prog: Sequence) -> Iterator[Sequence]:
        """Append what is lowered inside to ``prog``."""
        before, self.prog = self.prog, prog
        try:
            yield prog
        finally:
            self.prog = before

    def run(self, ops: Iterable[Op]) -> None:
        """Lower ops in order.

        Raises:
            UnsupportedOpError: An op of a kind without a rule.
        """
        for op in ops:
            self._run_op(op)

    def _run_op(self, op: Op) -> None:
        rule = rule_of(op)
        with located(self.graph, op.debug, scoped=False):
            for number, value in enumerate(op.inputs):
                if value not in self._tensors:
                    self._tensors[value] = self._enter(value, rule.layout(self, op, number))
        with located(self.graph, op.debug):
            results = rule.lower(self, op)
        for value, tensor in zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=True):
            self.bind(value, tensor)

    def _enter(self, value: Value, laid_out: Tensor | None) -> Tensor:
        if value in self.net.constants:
            return self._constant(value)
        if laid_out is not None:
            return laid_out
        return self.graph.variable(value.dtype, value.shape, name=value.name or f"value{value.number}").map_linear()

    def _constant(self, value: Value) -> Tensor:
        name = value.name or f"constant{value.number}"
        number = self.net.scalar(value)
        if number is not None:
            return self.graph.constant(value.dtype, (), number, name=name).broadcast_to(value.shape)
        return self.graph.constant(value.dtype, value.shape, self.net.constants[value], name=name).map_linear()


@contextmanager
def located(graph: Graph, origin: DebugInfo, *, scoped: bool = True) -> Iterator[None]:
    """Give what is made inside the source line, and if ``scoped`` the path and name, of ``origin``."""
    location = (origin.file, origin.line) if origin.file else None
    with graph.scope(origin.full_name if scoped else "", location=location, text=origin.text):
        yield
