"""Micro-batches as a pipeline: each stage works on another one, at the same time as all others.

Each stage is a function of the program. A tick first sends what stages of the tick before have made for other IPUs, all
in one exchange, and loads what stages have of the host; it then calls the stages that have a micro-batch, the last one
first, and sends the host what they have made. Stages of one tick read nothing of one another, so those on different
IPUs run side by side, and what a stage reads of earlier ticks is still there. All IPUs wait at an exchange with others
or with the host, so there is none between the calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from abele.distribution.host_stashes import HostStashes
from abele.distribution.lowering import Lowering
from abele.distribution.stashes import (
    RemoteRing,
    RingPlaces,
    StageRing,
    TableRing,
    WaitingValue,
    held,
    rows_of,
    stored_as,
)
from abele.distribution.strategy import Body, GradientSums, StageSteps, around_traffic, beside_traffic, repeat
from abele.errors import NetworkError
from abele.graph import Block, Call, Copy, Function, Graph, Program, Steps, Tensor
from abele.network.invariant_values import fixed_values
from abele.network.ir import Network, NetworkOp, Stage, Value, needed
from abele.network.joined_copies import joined_copies
from abele.network.locations import ON_CHIP, TensorLocation
from abele.numerics import ElementType
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1

# Ticks of a pipeline: the stages that are busy at each time.
#
# Stage ``s`` runs micro-batch ``m`` in tick ``s + stride · m``. So the first ticks fill the pipeline and the last ones
# empty it; in between all stages are busy, each with another micro-batch and every ``stride`` ticks. With stride 1 all
# stages run in every tick; with 2 those of even numbers take turns with those of odd numbers, which nearly halves the
# micro-batches that are on their way; with as many as there are stages one runs after the other.

Busy = tuple[int, ...]
"""Stages that run in a tick, in ascending order."""


@dataclass(frozen=True)
class Ticks:
    """The schedule of a pipeline from empty to empty.

    Attributes:
        stages: Of both passes.
        micro_batches: Number of micro-batches.
        stride: Ticks from one micro-batch to the next.
    """

    stages: int
    micro_batches: int
    stride: int = 1

    @property
    def count(self) -> int:
        """Ticks until the last micro-batch has left."""
        return self.stages + self.stride * (self.micro_batches - 1)

    def busy(self, tick: int) -> Busy:
        """The stages that run in a tick."""
        first = max(tick - self.stride * (self.micro_batches - 1), tick % self.stride)
        return tuple(range(first, min(self.stages, tick + 1), self.stride))

    def runs(self, *, apart: bool = False) -> list[tuple[range, int]]:
        """All ticks as loops: the ticks of a loop's body, and how often it runs.

        From when the first micro-batch reaches the last stage until the last one enters, ticks repeat every ``stride``
        of them: that is one entry, whatever their number.

        Args:
            apart: True if no loop has the first or the last micro-batch of a stage in it.
        """
        full = max(0, self.count - 2 * (self.stages - 1)) // self.stride
        before, full = self.stages - 1 + apart * self.stride, full - 2 * apart
        if full < 1:
            return self._single(range(self.count))
        end = before + full * self.stride
        steady = range(before, before + self.stride)
        return [*self._single(range(before)), (steady, full), *self._single(range(end, self.count))]

    def _single(self, ticks: range) -> list[tuple[range, int]]:
        return [(range(tick, tick + 1), 1) for tick in ticks if self.busy(tick)]


class _PipelineStage(StageSteps):
    """A stage of the pipeline.

    Attributes:
        number: Its number.
        ipu: The IPU that it runs on.
        graph: The graph of that IPU.
        arriving: Copies to it before each of its ticks: source and destination.
        tensors: Tensors here for values of earlier stages.
        waiting: Values of earlier stages that are read when they are first needed, with what reads them.
        places: Its positions in the rings of each IPU: mostly of its own, but values for a later stage wait there.
        seed: Its own state of random ops.
    """

    def __init__(self, number: int, ipu: int, graph: Graph) -> None:
        super().__init__(f"stage{number}")
        self.ipu = ipu
        self.from_host = Steps(name="from_host")
        self.to_host = Steps(name="to_host")
        self.number = number
        self.graph = graph
        self.arriving: list[tuple[Tensor, Tensor]] = []
        self.tensors: dict[Value, Tensor] = {}
        self.waiting: dict[Value, Callable[[Steps], dict[Value, Tensor]]] = {}
        self.places: dict[int, RingPlaces] = {}
        self.seed: Tensor | None = None

    def index(self, rows: int) -> Tensor | None:
        """Its position in rings of so many rows on its IPU; None for one row, or where it has no such rings."""
        places = self.places.get(self.ipu)
        return None if places is None or rows == 1 else places.known(rows)

    def read_rings(self, values: Iterable[Value]) -> None:
        """Append what reads those of the values that are still in rings."""
        for value in values:
            if value in self.waiting:
                made = self.waiting[value](self.compute)
                self.tensors |= made
                self.waiting = {v: reads for v, reads in self.waiting.items() if v not in made}


class PipelinedBody(Body):
    """A pipeline from empty to empty.

    Args:
        net: The network, with the stage of each op.
        graph: Graph of the program.
        count: Micro-batches.
        stride: Ticks from one micro-batch to the next; see :mod:`~abele.distribution.pipelined`.
        location: Place of tensors that wait for later stages.
        stash: The 8-bit float as which activations wait for backward stages; None for what they are.

    Raises:
        NetworkError: A state that one stage changes and another reads.
    """

    def __init__(
        self,
        net: Network,
        graph: Graph,
        count: int,
        stride: int = 1,
        location: TensorLocation = ON_CHIP,
        stash: ElementType | None = None,
    ) -> None:
        super().__init__()
        self._stash = stash
        self._location = location
        self._rings = itertools.count()
        self._net = net
        self._graph = graph
        self._ticks = Ticks(net.num_stages, count, stride)
        self._fixed = fixed_values(net)
        self._arriving = {*net.inputs, *(v for op in net.ops if op.kind == "transfer" for v in op.outputs)}
        home: dict[int, int] = {}
        for op in net.ops:
            if op.place is not None and not self._fixed.issuperset(op.outputs):
                home.setdefault(op.place.pipeline_stage, op.place.ipu)
        self._stages = [_PipelineStage(n, home.get(n, 0), graph.ipu(home.get(n, 0))) for n in range(net.num_stages)]
        self._seeded: list[_PipelineStage] = []
        self._pending: dict[Value, NetworkOp] = {}
        self._stashes = HostStashes(net)

    def stage_of(self, value: Value | None) -> StageSteps:
        """Stage of the value's place."""
        return self._stages[-1] if value is None else self._stages[value.place.pipeline_stage]

    # --- lowering ----------------------------------------------------------------------------------------------------

    def lower(self, to: Lowering, ops: Sequence[NetworkOp], sums: GradientSums) -> None:
        """Stage after stage; what crosses from one to another goes through rings."""
        every = [*ops, *sums.ops]
        to.announce(every, self._net.leaves)
        self._check_state(every)
        readers = self._readers(every)
        sent = [op for op in ops if op.kind == "transfer" and op.inputs[0] in self._fixed]
        once = set(needed(ops, (v for op in sent for v in op.outputs))) if sent else set()
        self._pending = {v: op for op in ops if self._fixed.issuperset(op.outputs) for v in op.outputs}
        for stage in self._stages:
            mine = [op for op in ops if op.place is not None and op.place.pipeline_stage == stage.number]
            self._give_seed(stage, mine, to)
            for op in mine:
                # Values are sent from where they were made: nothing of this tick has run.
                crosses = op.kind == "transfer" and op not in once
                if not crosses:
                    stage.read_rings(op.inputs)
                with to.reading({} if crosses else stage.tensors):
                    self._lower(to, op, stage, once, sums)
            stage.read_rings(list(stage.waiting))
            with to.reading(stage.tensors), to.into(stage.compute):
                to.settle()
            self._keep(stage, readers, to)

    def _lower(
        self, to: Lowering, op: NetworkOp, stage: _PipelineStage, once: set[NetworkOp], sums: GradientSums
    ) -> None:
        if self._fixed.issuperset(op.outputs):
            if self._pending.keys().isdisjoint(op.outputs):
                return
            if op in once:
                self._lower_once(to, op)
                return
            for value in op.outputs:
                del self._pending[value]
        for value in op.inputs:
            # A fixed gradient belongs to a forward stage, and may follow from one that belongs to a later stage.
            maker = self._pending.get(value)
            if maker is not None and maker.place is not None and maker.place.pipeline_stage > stage.number:
                self._lower_once(to, maker)
        if op.kind == "transfer":
            # The copy is made in the tick's one exchange.
            with to.into(Steps()) as copies:
                to.lower([op], settle=False)
            for step in copies:
                assert isinstance(step, Copy)
                assert isinstance(step.source, Tensor)
                assert isinstance(step.destination, Tensor)
                stage.arriving.append((step.source, step.destination))
        else:
            with self._stashes.around(to, op, stage) as steps, to.into(steps):
                sums.lower(to, op)

    def _lower_once(self, to: Lowering, op: NetworkOp) -> None:
        """Lower values that are the same for all micro-batches, and their operands, before the first of them."""
        for value in op.outputs:
            del self._pending[value]
        for value in op.inputs:
            if value in self._pending:
                self._lower_once(to, self._pending[value])
        if op.kind == "constant":
            return  # No step makes it, so it lies as its first reader wants it, which is lowered later.
        with to.into(self.before):
            to.lower([op], settle=False)
            for value in op.outputs:
                to[value]

    def lower_sums(self, to: Lowering, sums: Sequence[NetworkOp]) -> None:
        """Lower the sums of each stage."""
        assert to.sums is not None
        for stage in self._stages:
            to.shares = self.shares.get(stage)
            mine = [op for op in sums if op.output.place.pipeline_stage == stage.number]
            with to.into(stage.leaving), to.reading(stage.tensors):
                to.sums.lower(to, mine)
            for places in stage.places.values():
                places.advance(stage.leaving)
        self._leave_out()

    def _readers(self, ops: Iterable[NetworkOp]) -> dict[Value, dict[int, bool]]:
        """For each value the later stages that read it, and whether their forward pass does."""
        found: dict[Value, dict[int, bool]] = {}
        lasting = self._fixed | {*self._net.entries} - {*self._net.inputs}
        for op in ops:
            for value in op.inputs if op.place is not None else ():
                if value in lasting:
                    continue
                if op.kind in ("accumulate", "add_to_momentum") and value is op.inputs[0]:
                    continue  # A sum that grows in place: several stages may add to it.
                made, read = value.place.pipeline_stage, op.output.place.pipeline_stage
                if op.kind != "transfer" and read > made:
                    stages = found.setdefault(value, {})
                    stages[read] = stages.get(read, False) or op.stage == Stage.FORWARD
        return found

    def _keep(self, stage: _PipelineStage, readers: dict[Value, dict[int, bool]], to: Lowering) -> None:
        """Let later stages read what this one makes."""
        groups: dict[tuple[int, bool, tuple[int, ...]], list[Value]] = {}
        early = {variable for value in self._arriving if value in to for variable in to[value].variables}
        for value, stages in readers.items():
            if value.place.pipeline_stage == stage.number and value in to:
                # A view of a value that arrives changes with it.
                arrives = not early.isdisjoint(to[value].variables)
                key = value.place.ipu, arrives, tuple(sorted(stages))
                groups.setdefault(key, []).append(value)
        for (ipu, arrives, numbers), values in groups.items():
            # Until the stage runs again a value is still where it was made; what arrives does so before anything runs.
            stride = self._ticks.stride
            near = stage.number + (stride - 1 if arrives else stride)
            if numbers[-1] <= near:
                continue
            length = -(-(numbers[-1] - stage.number) // stride)
            graph = self._graph.ipu(ipu)
            waiting = []
            for value in values:
                # Stages that find it where it was made read it as it is.
                exact = any(forward for number, forward in readers[value].items() if number > near)
                stored = stored_as(value, self._stash, exact=exact)
                waiting.append(WaitingValue(value, held(graph, to[value], stage.leaving), stored))
            for row, away in rows_of(graph, waiting, self._location):
                ring: StageRing
                if away:
                    ring = RemoteRing.of(graph, row, length, f"ring{next(self._rings)}")
                else:
                    ring = TableRing.of(graph, row, length)
                ring.write(self._index(stage, ipu, length), stage.leaving)
                for later in (self._stages[number] for number in numbers if number > near):
                    index = self._index(later, ipu, length)
                    if away:
                        later.tensors |= ring.read(index, later.entering)
                    else:
                        later.waiting |= dict.fromkeys(row.shown, partial(ring.read, index))

    def _leave_out(self) -> None:
        """Let hosts leave out what backward stages make again, if an index names rows of as many micro-batches.

        Of activations that waited as 8-bit floats other values are made again than there were.
        """
        if self._stash is not None:
            return
        for stage in self._stages[len(self._stages) // 2 + 1 :]:
            forward = self._stages[len(self._stages) - 1 - stage.number]
            rows = -(-(stage.number - forward.number) // self._ticks.stride)
            saved, restored = forward.index(rows), stage.index(rows)
            if rows == 1 or (saved is not None and restored is not None):
                self._stashes.close(stage, rows, saved, restored)

    def _index(self, stage: _PipelineStage, ipu: int, length: int) -> Tensor:
        """Position of a stage in rings of a length on an IPU."""
        return stage.places.setdefault(ipu, RingPlaces(self._graph.ipu(ipu))).index(length)

    def _check_state(self, ops: Sequence[NetworkOp]) -> None:
        """Raise unless only one stage changes and reads each state that micro-batches change."""
        changing = {
            state: value.place.pipeline_stage
            for state, value in self._net.updates.items()
            if state not in self._fixed and state not in self._net.accumulators
        }
        for op in ops:
            for value in op.inputs:
                stage = changing.get(value)
                if stage is not None and op.output.place.pipeline_stage != stage:
                    raise NetworkError(
                        f"{value.name!r} is read in stage {op.output.place.pipeline_stage} of the pipeline "
                        f"and changed in stage {stage}",
                        at=op.debug.location or None,
                        because="stages work on different micro-batches at a time, so it would be another one's",
                        remedy="read and change it in the same stage",
                    )

    # --- random state ------------------------------------------------------------------------------------------------

    def _give_seed(self, stage: _PipelineStage, ops: Sequence[NetworkOp], to: Lowering) -> None:
        seed = self._net.seed
        if seed is None or not any(seed in op.inputs for op in ops):
            return
        whole = to[seed]
        stage.seed = stage.graph.map(stage.graph.variable(whole.dtype, whole.shape, name=f"seed/{stage.name}"), 0)
        stage.tensors[seed] = stage.seed
        self._seeded.append(stage)

    def advance_random_state(self, seed: Value, to: Lowering) -> None:
        """One more in each stage: they have seen as many micro-batches as each other when the pipeline is empty."""
        whole = to[seed]
        for stage in self._seeded:
            assert stage.seed is not None
            popops.map_in_place(stage.graph, _1 + 1, [stage.seed[1:2]], stage.leaving, name="advance_random_state")
            self.before.add(Copy(whole, stage.seed, name="send_random_state"))
        if self._seeded:
            first = self._seeded[0].seed
            assert first is not None
            self.after.add(Copy(first, whole, name="random_state"))

    # --- the program -------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """All ticks."""
        functions = [self._graph.function(stage.steps, stage.name) for stage in self._stages]
        ticks = Steps(name="pipeline")
        has_traffic = any(stage.has_traffic for stage in self._stages)
        for numbers, count in self._ticks.runs(apart=has_traffic):
            made = [self._tick(tick, functions) for tick in numbers if self._ticks.busy(tick)]
            ticks.add(repeat(count, made[0] if len(made) == 1 else Steps(*made, name="turns")))
        return around_traffic(ticks, self._stages)

    def _tick(self, tick: int, functions: Sequence[Function]) -> Steps:
        """The copies to stages that are about to run, and their calls."""
        ticks, busy = self._ticks, self._ticks.busy(tick)
        stages = [self._stages[number] for number in busy]
        sends = joined_copies((pair for stage in stages for pair in stage.arriving), "send")
        run = [
            *sends,
            *(step for stage in stages for step in stage.from_host.steps),
            *(Block(Call(functions[n]), self._stages[n].name) for n in reversed(busy)),
            *(step for stage in stages for step in stage.to_host.steps),
        ]
        if any(stage.has_traffic for stage in stages):
            first = {at for at, number in enumerate(busy) if tick == number}
            last = {at for at, number in enumerate(busy) if tick == number + ticks.stride * (ticks.micro_batches - 1)}
            run = beside_traffic(run, stages, first=first, last=last).steps
        return Steps(*run, name=f"stages {busy[0]} to {busy[-1]}")
