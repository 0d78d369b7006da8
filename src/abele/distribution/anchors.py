"""Anchors: tensors inside a network that the host gets beside the outputs, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from abele.distribution.lowering import Lowering
from abele.distribution.strategy import Exits
from abele.errors import UnknownArrayError, nearest
from abele.graph import Copy, Graph, If, Program, Steps, Stream, Tensor
from abele.network.ir import Network, Value
from abele.network.schedule import GRADIENT, UPDATED, Anchor, OutputMode, Schedule
from abele.numerics import i32
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1, _2, select
from abele.poplibs.poputil.layout import clone, duplicate

# Collecting a network's outputs over the micro-batches of a run, as the host asked for them.


class OutputCollector:
    """The steps that bring outputs to the host.

    Args:
        graph: Graph of the outputs.
        schedule: Schedule, with the choice of micro-batches that the host gets.
        name: Prefix of the streams.
        each: True if every replica sends its own, though they compute one model together.

    Attributes:
        streams: A stream per output.
        before: Steps before the first micro-batch.
        after: Steps after the last.
    """

    def __init__(self, graph: Graph, schedule: Schedule, name: str = "output", *, each: bool = False) -> None:
        self.graph = graph
        self.name = name
        self.schedule = schedule
        self._replicated = each or not schedule.sends_once
        self.streams: list[Stream] = []
        self.before = Steps(name="before")
        self.after = Steps(name="after")

    def stream(self, tensor: Tensor) -> Stream:
        """The stream of one more output."""
        name = f"{self.name}/{len(self.streams)}"
        made = self.graph.host_stream_out(name, tensor.dtype, tensor.shape, replicated=self._replicated)
        self.streams.append(made)
        return made

    def add(self, outputs: Sequence[tuple[Tensor, Exits]]) -> None:
        """Append what a micro-batch does with its outputs, each to the steps of the stage that makes it."""
        for tensor, _ in outputs:
            self.stream(tensor)
        for exits in dict.fromkeys(exits for _, exits in outputs):
            numbers = [number for number, (_, own) in enumerate(outputs) if own == exits]
            self._add([outputs[number][0] for number in numbers], [self.streams[number] for number in numbers], exits)

    def _add(self, outputs: Sequence[Tensor], streams: Sequence[Stream], exits: Exits) -> None:
        copies = Steps(*(Copy(t, s, name=s.name) for t, s in zip(outputs, streams, strict=True)), name=f"{self.name}s")
        match self.schedule.outputs:
            case OutputMode.FINAL:
                self.after.add(copies)
            case OutputMode.SUM:
                self._sum(outputs, streams, exits.leaving)
            case OutputMode.EVERY_N if self.schedule.period > 1:
                self._every(copies, exits)
            case _:
                exits.to_host.add(copies)

    def _sum(self, outputs: Sequence[Tensor], streams: Sequence[Stream], micro_batch: Steps) -> None:
        for output, stream in zip(outputs, streams, strict=True):
            total = clone(self.graph, output, f"{stream.name}/sum")
            popops.zero(self.graph, total, self.before)
            popops.map_in_place(self.graph, _1 + _2, [total, output], micro_batch, name="sum_output")
            self.after.add(Copy(total, stream, name=stream.name))

    def _every(self, copies: Steps, exits: Exits) -> None:
        """Copy when a counter, which starts again after ``period`` micro-batches, comes to zero."""
        period = self.schedule.period
        counter = self.graph.variable(i32, (1,), name="output/counter", initial=0).map(0)
        popops.map_in_place(self.graph, select(0, _1 + 1, _1 + 1 == period), [counter], exits.leaving, name="count")
        due = popops.map(self.graph, _1 == 0, [counter], exits.leaving, name="is_due")
        exits.to_host.add(If(due, copies))


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
        state = {UPDATED + of: t for update in self._tensors.updates.values() for of, t in update.state.items()}
        if name in state:
            return state[name]
        for variable in self._graph.variables:
            if variable.name == name:
                return self._graph.whole(variable)
        close = nearest(name, [*values, *state, *(variable.name for variable in self._graph.variables)])
        raise UnknownArrayError(
            f"there is no tensor {name!r} to bring to the host", remedy=f"did you mean {close!r}?" if close else None
        )
