"""Micro-batches in phases: one part of the network after the other; values between them may leave the chip.

Phase ``p`` of the ``n`` that the model's author gave runs forward at time ``p`` and backward at time ``2·(n − 1) − p``:
the last one runs backward at once. At the end of its time a phase stores what a later one than the next reads, and that
one loads it when it begins; the next finds it where it was made. So the chip has room for the activations of two phases
at most, and not for those of all. Sums take up the gradients of a phase at its end, and these are gone when the next
begins. Weights come and go as wherever they lie in streaming memory (:mod:`~abele.distribution.remote_weights`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from abele.distribution.lowering import Lowering
from abele.distribution.stashes import RemoteRing, StageRing, TableRing, WaitingValue, held, rows_of, stored_as
from abele.distribution.strategy import GradientSums, SerialBody
from abele.graph import Block, Graph, Steps, Tensor
from abele.network.ir import Network, NetworkOp, Stage, Value
from abele.network.locations import TensorLocation
from abele.numerics import ElementType


class _Phase:
    """Steps of one phase.

    Attributes:
        time: Number of the phase.
        begin: Loads.
        compute: The network's own ops.
        end: Sums, and stores.
        tensors: Tensors here for values of earlier phases.
    """

    def __init__(self, time: int) -> None:
        self.time = time
        self.begin = Steps(name="load")
        self.compute = Steps()
        self.end = Steps(name="store")
        self.tensors: dict[Value, Tensor] = {}


class PhasedBody(SerialBody):
    """One micro-batch after the other, each in phases.

    Args:
        net: The network, with the phase of each op.
        graph: Graph of the program.
        count: Micro-batches.
        location: Place of tensors that wait for later phases than the next.
        stash: The 8-bit float as which activations wait for the backward pass; None for what they are.
    """

    def __init__(
        self, net: Network, graph: Graph, count: int, location: TensorLocation, stash: ElementType | None
    ) -> None:
        super().__init__(graph, count)
        self._net = net
        self._location = location
        self._stash = stash
        self._last = net.num_phases - 1
        self._time: dict[Value, int] = {v: v.place.phase for v in net.inputs}
        self._phases = [_Phase(time) for time in range(2 * self._last + 1)]
        self._rings = itertools.count()

    def lower(self, to: Lowering, ops: Sequence[NetworkOp], sums: GradientSums) -> None:
        """Phase after phase; what a later one than the next reads goes through rings of one place."""
        every = [*ops, *sums.ops]
        to.announce(every, self._net.leaves)
        times = [self._time_of(op) for op in every]
        readers = self._readers(zip(every, times, strict=True))
        for phase in self._phases:
            mine = [op for op, time in zip(ops, times, strict=False) if time == phase.time]
            with to.reading(phase.tensors), to.into(phase.compute):
                for op in mine:
                    sums.lower(to, op)
                to.settle()
            self._keep(phase, readers, to)
            self._stage.compute.add(Block(Steps(phase.begin, phase.compute, phase.end), f"phase{phase.time}"))

    def lower_sums(self, to: Lowering, sums: Sequence[NetworkOp]) -> None:
        """Lower the sums of each phase at its end."""
        assert to.sums is not None
        to.shares = self.shares.get(self._stage)
        for phase in self._phases:
            mine = [op for op in sums if self._time[op.output] == phase.time]
            with to.reading(phase.tensors), to.into(phase.end):
                to.sums.lower(to, mine)

    def _time_of(self, op: NetworkOp) -> int:
        """Phase in which an op runs: its own, or a later one that makes its operands."""
        ready = max((self._time[v] for v in op.inputs if v in self._time), default=0)
        own = 0 if op.place is None else op.place.phase
        time = max(ready, own if op.stage == Stage.FORWARD else 2 * self._last - own)
        self._time |= dict.fromkeys(op.outputs, time)
        return time

    def _readers(self, ops: Iterable[tuple[NetworkOp, int]]) -> dict[Value, dict[int, bool]]:
        """For each value when it is read later than at the next time, and whether the forward pass does so then."""
        lasting = {*self._net.entries} - {*self._net.inputs}
        found: dict[Value, dict[int, bool]] = {}
        for op, time in ops:
            for value in op.inputs:
                if value not in lasting and time > self._time.get(value, time) + 1:
                    times = found.setdefault(value, {})
                    times[time] = times.get(time, False) or op.stage == Stage.FORWARD
        return found

    def _keep(self, phase: _Phase, readers: Mapping[Value, Mapping[int, bool]], to: Lowering) -> None:
        """Let later phases read what this one makes."""
        weights = {v for e in self._net.entries if e in to and e not in self._net.inputs for v in to[e].variables}
        groups: dict[tuple[int, tuple[int, ...]], list[Value]] = {}
        for value, times in readers.items():
            # Views of weights come with them.
            if self._time[value] == phase.time and value in to and weights.isdisjoint(to[value].variables):
                groups.setdefault((value.place.ipu, tuple(sorted(times))), []).append(value)
        for (_, later), values in groups.items():
            graph = to.graph_of(values[0].place)
            types = [stored_as(v, self._stash, exact=any(readers[v].values())) for v in values]
            waiting = [
                WaitingValue(v, held(graph, to[v], phase.end), dtype) for v, dtype in zip(values, types, strict=True)
            ]
            for row, away in rows_of(graph, waiting, self._location):
                ring: StageRing
                if away:
                    ring = RemoteRing.of(graph, row, 1, f"phase{phase.time}/{next(self._rings)}")
                elif row.is_narrow:
                    ring = TableRing.of(graph, row, 1)
                else:
                    continue
                ring.write(None, phase.end)
                for time in later:
                    reader = self._phases[time]
                    reader.tensors |= ring.read(None, reader.begin)
