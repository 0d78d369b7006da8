"""Collecting a network's outputs over the micro-batches of a run, as the host asked for them."""

from __future__ import annotations

from collections.abc import Sequence

from abele.graph import Copy, Graph, If, Stream, Tensor
from abele.graph import Sequence as Steps
from abele.numerics import i32
from abele.parallel.schedule import OutputMode, Schedule
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1, _2, select
from abele.poplibs.poputil.layout import clone


class OutputCollector:
    """The steps that bring outputs to the host.

    Args:
        graph: Where they are made.
        schedule: Which micro-batches the host gets.
        name: Prefix of the streams.

    Attributes:
        streams: A stream per output.
        before: Steps before the first micro-batch.
        after: Steps after the last.
    """

    def __init__(self, graph: Graph, schedule: Schedule, name: str = "output") -> None:
        self.graph = graph
        self.name = name
        self.schedule = schedule
        self.streams: list[Stream] = []
        self.before = Steps(name="before")
        self.after = Steps(name="after")

    def add(self, outputs: Sequence[Tensor], micro_batch: Steps) -> None:
        """Append to ``micro_batch`` what it does with its outputs."""
        self.streams = [
            self.graph.host_stream_out(f"{self.name}/{number}", t.dtype, t.shape) for number, t in enumerate(outputs)
        ]
        copies = Steps(
            *(Copy(t, s, name=s.name) for t, s in zip(outputs, self.streams, strict=True)), name=f"{self.name}s"
        )
        match self.schedule.outputs:
            case OutputMode.FINAL:
                self.after.add(copies)
            case OutputMode.SUM:
                self._sum(outputs, micro_batch)
            case OutputMode.EVERY_N if self.schedule.period > 1:
                self._every(copies, micro_batch)
            case _:
                micro_batch.add(copies)

    def _sum(self, outputs: Sequence[Tensor], micro_batch: Steps) -> None:
        for number, (output, stream) in enumerate(zip(outputs, self.streams, strict=True)):
            total = clone(self.graph, output, f"output/{number}/sum")
            popops.zero(self.graph, total, self.before)
            popops.map_in_place(self.graph, _1 + _2, [total, output], micro_batch, name="sum_output")
            self.after.add(Copy(total, stream, name=stream.name))

    def _every(self, copies: Steps, micro_batch: Steps) -> None:
        """Copy when a counter, which starts again after ``period`` micro-batches, comes to zero."""
        period = self.schedule.period
        counter = self.graph.variable(i32, (1,), name="output/counter", initial=0).map(0)
        popops.map_in_place(self.graph, select(0, _1 + 1, _1 + 1 == period), [counter], micro_batch, name="count")
        due = popops.map(self.graph, _1 == 0, [counter], micro_batch, name="is_due")
        micro_batch.add(If(due, copies))
