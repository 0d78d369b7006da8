"""Anchors: tensors inside a network that the host gets beside the outputs, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from abele.distribution.lowering import Lowering
from abele.distribution.outputs import OutputCollector
from abele.distribution.strategy import Exits
from abele.errors import UnknownArrayError, nearest
from abele.graph import Graph, Program, Steps, Stream, Tensor
from abele.network.ir import Network, Value
from abele.network.schedule import GRADIENT, UPDATED, Anchor, OutputMode, Schedule
from abele.poplibs.poputil.layout import duplicate


class AnchorCollector:
    """The steps that bring anchors to the host.

    Args:
        graph: The graph of a lowered network.
        net: The network.
        tensors: The tensor of each of its values.
        schedule: Its anchors, and which micro-batches come back of each.
    """

    def __init__(self, graph: Graph, net: Network, tensors: Lowering, schedule: Schedule) -> None:
        self._graph = graph
        self._net = net
        self._tensors = tensors
        self._schedule = schedule
        self._collectors = [
            OutputCollector(graph, schedule.of_anchor(anchor), f"anchor/{number}")
            for number, anchor in enumerate(schedule.anchors)
        ]

    def add(self, exits_of: Callable[[Value | None], Exits], *, updated: bool) -> None:
        """Append what a micro-batch, or an update, does with its anchors.

        Args:
            exits_of: Steps at which a value is taken, or with None the last ones.
            updated: True for what updates make.

        Raises:
            UnknownArrayError: There is no tensor of a name.
        """
        for anchor, collector in zip(self._schedule.anchors, self._collectors, strict=True):
            if anchor.tensor.startswith(UPDATED) == updated:
                exits = exits_of(self._values.get(anchor.tensor))
                collector.add([(self._kept(anchor, exits.leaving), exits)])

    @property
    def streams(self) -> list[Stream]:
        """The stream of each anchor."""
        return [collector.streams[0] for collector in self._collectors]

    @property
    def before(self) -> list[Program]:
        """Steps before the first micro-batch."""
        return [collector.before for collector in self._collectors]

    @property
    def after(self) -> list[Program]:
        """Steps after the last."""
        return [collector.after for collector in self._collectors]

    def _kept(self, anchor: Anchor, steps: Steps) -> Tensor:
        """The tensor of an anchor; a copy of gradients that replicas sum before the host reads them."""
        tensor = self._tensor(anchor.tensor)
        is_late = anchor.outputs == OutputMode.FINAL and anchor.tensor.startswith(GRADIENT)
        if is_late and self._schedule.replicas > 1:
            return duplicate(self._graph, tensor, steps, "keep_gradient")
        return tensor

    @cached_property
    def _values(self) -> dict[str, Value]:
        """The values that have a name for anchors."""
        values = {value.name: value for value in (*self._net.inputs, *self._net.parameters, *self._net.buffers)}
        for parameter, gradient in self._net.gradients.items():
            values[GRADIENT + parameter.name] = gradient
            values[UPDATED + parameter.name] = parameter
        return values

    def _tensor(self, name: str) -> Tensor:
        values = self._values
        if name in values:
            return self._tensors[values[name]]
        for variable in self._graph.variables:
            if variable.name == name:
                return self._graph.whole(variable)
        close = nearest(name, [*values, *(variable.name for variable in self._graph.variables)])
        raise UnknownArrayError(
            f"there is no tensor {name!r} to bring to the host", remedy=f"did you mean {close!r}?" if close else None
        )
