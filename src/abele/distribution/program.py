"""Programs of networks: what runs on the device for one call from the host, as one tile program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from abele.distribution.anchors import AnchorCollector, OutputCollector
from abele.distribution.changed_in_place import changed_in_place, gradients_like
from abele.distribution.combined_momenta import CombinedMomenta
from abele.distribution.lowering import Lowering
from abele.distribution.phased import PhasedBody
from abele.distribution.pipelined import PipelinedBody
from abele.distribution.program_options import PLAIN, RunModes
from abele.distribution.remote_weights import remote_weights
from abele.distribution.shared_functions import SharedFunctions
from abele.distribution.state_units import RemoteSums
from abele.distribution.strategy import Body, Exits, GradientSums, SerialBody, StageSteps, repeat
from abele.distribution.update import GroupUpdate, group_update
from abele.errors import InvalidOptionError
from abele.graph import Copy, Graph, Program, Steps, Stream, Tensor, VirtualGraph, caller, concat
from abele.network.autodiff.gradient_counts import COUNTS
from abele.network.automatic_scale import AutomaticLossScale
from abele.network.gradient_scale import GradientScale
from abele.network.ir import Network, NetworkOp, Place, Stage, Value
from abele.network.locations import check_locations, check_off_chip, worthwhile_bytes
from abele.network.off_chip import tables
from abele.network.optimisers import Group, climbs
from abele.network.passes import Pipeline, Watch, inference_pipeline, training_pipeline
from abele.network.passes.accumulate import combines
from abele.network.replicated_sharding import FlatState, Shards
from abele.network.schedule import MeanStrategy, OutputMode, Schedule, check_stash
from abele.numerics import f16, f32
from abele.poplibs import gcl, popops
from abele.poplibs.gcl import CommGroup
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.popops.expr import _1
from abele.poplibs.poputil.layout import clone, duplicate
from abele.poplibs.poputil.order import row_major_order

# IO tiles: tiles of each IPU that load inputs and store outputs while all others compute.
#
# They meet at barriers of their own, so what the host sends for the next micro-batch, and what it gets of the last
# one, takes no time of the other tiles but that of an exchange on the chip.


class IoTiles:
    """The last tiles of every IPU of a graph.

    Args:
        graph: The graph of a replica.
        count: Tiles of each IPU.

    Raises:
        InvalidOptionError: An IPU has no more tiles than that.
    """

    def __init__(self, graph: Graph, count: int) -> None:
        each = graph.system.ipu.num_tiles
        if count >= each:
            raise InvalidOptionError(
                f"{count} IO tiles leave none to compute: an IPU of {graph.system.name} has {each} tiles",
                remedy="32 IO tiles are enough for most programs",
            )
        self._graph = graph
        numbers = np.arange(graph.system.num_tiles, dtype=np.int32).reshape(graph.system.num_ipus, each)
        self._tiles = numbers[:, each - count :]
        for ipu, tiles in enumerate(self._tiles):
            graph.sync_group(tiles, f"IO tiles of IPU {ipu}")
        self.others: VirtualGraph = graph.virtual(tiles=numbers[:, : each - count])
        """The graph without them."""

    @cached_property
    def _by_ipu(self) -> list[VirtualGraph]:
        return [self._graph.virtual(tiles=tiles) for tiles in self._tiles]

    def load(self, stream: Stream, tensor: Tensor, ipu: int, stage: StageSteps) -> None:
        """Let a stage have an input that was loaded while the micro-batch before it ran."""
        waiting = self._waiting(tensor, ipu, stream.name)
        stage.loading.add(Copy(stream, waiting, name=stream.name))
        stage.entering.add(Copy(waiting, tensor, name=f"{stream.name}/enter"))

    def store(self, tensor: Tensor, stream: Stream, ipu: int, stage: StageSteps) -> None:
        """Send an output of a stage to the host while the next micro-batch runs."""
        waiting = self._waiting(tensor, ipu, stream.name)
        stage.handing_over.add(Copy(tensor, waiting, name=f"{stream.name}/leave"))
        stage.storing.add(Copy(waiting, stream, name=stream.name))

    def _waiting(self, tensor: Tensor, ipu: int, name: str) -> Tensor:
        """Buffer for waiting data, in the order in which the host has it."""
        graph = self._by_ipu[ipu]
        return graph.map_linear(graph.variable(tensor.dtype, tensor.shape, name=f"io/{name}"))


Planning = Mapping[str, Any] | None

_OF_MICRO_BATCHES = ("accumulate", "add_to_momentum", "running_mean", "add_counts")
"""Kinds of op that change an accumulator, once per micro-batch."""

_SYNTHETIC_SEED = 42


@dataclass
class NetworkProgram:
    """A network on a graph, ready to be compiled.

    Attributes:
        graph: The graph.
        program: One run.
        schedule: Schedule of the run over its micro-batches.
        inputs: A stream per input; each copy is one micro-batch.
        outputs: A stream per output; each copy is one micro-batch of the result.
        changed: A stream for each input that the network changes; each copy is one micro-batch.
        anchors: A stream for each anchor of the schedule; each copy is one micro-batch, or one update.
        weights: Parameters and buffers on the chip, by name.
        remote_weights: Parameters in streaming memory, by name.
        groups: The device side of each optimiser.
        scale: Factors of gradients, and the scale of the loss; None for inference.
        seed: State of random ops: u32[2].
        gradients: Gradients of a micro-batch, by the names of parameters.
    """

    graph: Graph
    program: Program
    schedule: Schedule
    inputs: list[Stream]
    outputs: list[Stream]
    weights: dict[str, Tensor]
    groups: list[GroupUpdate] = field(default_factory=list)
    seed: Tensor | None = None
    changed: list[Stream] = field(default_factory=list)
    anchors: list[Stream] = field(default_factory=list)
    scale: GradientScale | None = None
    remote_weights: dict[str, FlatState] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)


def inference_program(
    net: Network,
    graph: Graph,
    schedule: Schedule,
    *,
    planning: Planning = None,
    modes: RunModes = PLAIN,
    pipeline: Pipeline | None = None,
    watch: Watch | None = None,
) -> NetworkProgram:
    """The program that runs a network forward ``schedule.device_iterations`` times.

    Args:
        net: The network.
        graph: Graph to build in.
        schedule: Schedule of one run over its micro-batches.
        planning: Options of matrix products and convolutions.
        modes: Behaviour of floats, and whether the host's data is used.
        pipeline: The passes before lowering; by default :func:`~abele.network.passes.inference_pipeline`.
        watch: Is shown the network after each pass.

    Raises:
        UnsupportedOpError: An op has no rule.
    """
    chosen = pipeline or inference_pipeline()
    return lower_network(chosen.run(net, watch=watch), graph, schedule, (), planning=planning, modes=modes)


def training_program(
    net: Network,
    graph: Graph,
    schedule: Schedule,
    groups: Sequence[Group],
    *,
    planning: Planning = None,
    modes: RunModes = PLAIN,
    pipeline: Pipeline | None = None,
    watch: Watch | None = None,
    automatic_loss_scale: AutomaticLossScale | None = None,
) -> NetworkProgram:
    """The program that trains a network: forward, backward and update, all on the device.

    Each device iteration runs ``schedule.accumulation`` micro-batches and then one update. Random state advances after
    each micro-batch; the backward pass of a micro-batch draws what its forward pass drew.

    Args:
        net: A network with a loss.
        graph: Graph to build in.
        schedule: Schedule of one run over its micro-batches.
        groups: Optimisers and the parameters that they update.
        planning: Options of matrix products and convolutions.
        modes: Behaviour of floats, and whether the host's data is used.
        pipeline: The passes before lowering; by default :func:`~abele.network.passes.training_pipeline`.
        watch: Is shown the network after each pass.
        automatic_loss_scale: Rule by which the loss scale follows the gradients, if it does; ``pipeline`` has to count
            them then.

    Raises:
        TensorError: The network has no loss.
        UnsupportedOpError: An op has no rule, or no derivative where one is needed.
        InvalidOptionError: Groups with different scales of the loss.
    """
    chosen = pipeline or training_pipeline(schedule, groups, automatic_loss_scale=automatic_loss_scale)
    final = chosen.run(net, watch=watch)
    return lower_network(
        final,
        graph,
        schedule,
        groups,
        planning=planning,
        modes=modes,
        automatic_loss_scale=automatic_loss_scale,
    )


def lower_network(
    net: Network,
    graph: Graph,
    schedule: Schedule,
    groups: Sequence[Group] = (),
    *,
    planning: Planning = None,
    modes: RunModes = PLAIN,
    automatic_loss_scale: AutomaticLossScale | None = None,
) -> NetworkProgram:
    """The program of a network that went through its passes: the step after the last of them.

    Args:
        net: The network; its ``update`` ops name their group by number.
        graph: Graph to build in.
        schedule: Schedule of one run over its micro-batches.
        groups: Optimisers.
        planning: Options of matrix products and convolutions.
        modes: Behaviour of floats, and whether the host's data is used.
        automatic_loss_scale: Rule by which the loss scale follows the gradients, if it does.

    Raises:
        UnsupportedOpError: An op has no rule.
        MachineError: The schedule keeps something in streaming memory, which the system has not.
        InvalidOptionError: It keeps activations there, or as 8-bit floats, of a network without stages or phases.
    """
    several = net.num_stages > 1 or net.num_phases > 1
    check_locations(graph.whole_system, schedule.locations, waits=several)
    check_stash(schedule, waits=several)
    builder = _ProgramBuilder(net, graph, schedule, groups, planning, automatic_loss_scale=automatic_loss_scale)
    return builder.build(modes)


class _ProgramBuilder:
    """One program in the making."""

    def __init__(
        self,
        net: Network,
        graph: Graph,
        schedule: Schedule,
        groups: Sequence[Group],
        planning: Planning,
        *,
        automatic_loss_scale: AutomaticLossScale | None,
    ) -> None:
        self.net = net
        self.io = IoTiles(graph, schedule.io_tiles) if schedule.io_tiles else None
        self.whole = graph
        self.graph = graph = self.io.others if self.io else graph
        self.schedule = schedule
        self.groups = groups
        self.to = Lowering(graph, planning=planning)
        self.to.lay_out_like(_gradients(net))
        if net.num_stages == net.num_phases == 1 and not groups and not schedule.anchors:
            self.to.changes = changed_in_place(net)
            self.to.lay_out_like(gradients_like(net, self.to.changes))
        self.scale = GradientScale(graph, groups, automatic=automatic_loss_scale)
        self.to.loss_scale = self.scale.loss
        self.to.momenta = CombinedMomenta(self.to, net, schedule.replicas)
        # Without updates in between, all micro-batches of a run go through without a pause.
        flows = not groups and (net.num_stages > 1 or self.io is not None)
        self._updates = 1 if flows else schedule.device_iterations
        count = schedule.rounds // self._updates
        stride = schedule.pipeline.stride(net.num_stages) if groups else 1
        away = schedule.locations.activations
        self.body: Body = SerialBody(graph, count)
        if net.num_stages > 1:
            self.body = PipelinedBody(net, graph, count, stride, away, schedule.stash)
        elif net.num_phases > 1:
            self.body = PhasedBody(net, graph, count, away, schedule.stash)
        self.outputs = OutputCollector(graph, schedule)
        self.changed = OutputCollector(graph, replace(schedule, outputs=OutputMode.ALL), "changed_input", each=True)

    @cached_property
    def _parts(self) -> dict[str, CommGroup]:
        """Parameters split into parts over replicas, and the replicas with all parts together."""
        return {name: self.schedule.parts_group for name, _ in self.schedule.splits}

    def build(self, modes: RunModes) -> NetworkProgram:
        """The whole program; what belongs to no op of the network has the caller's source line."""
        with self.graph.scope(location=caller()):
            return self._build(modes)

    def _build(self, modes: RunModes) -> NetworkProgram:
        # Ops by when they run: in each micro-batch, adding to sums after it, and once per step.
        needed = self.net.needed(self.net.results)
        if modes.shared_functions:
            self.to.functions = SharedFunctions.of(needed, self.net.leaves)
        of_step = [op for op in needed if op.stage == Stage.UPDATE]
        sums = [op for op in needed if op.kind in _OF_MICRO_BATCHES]
        body = self.body
        compute = [op for op in needed if op.stage != Stage.UPDATE and op.kind not in _OF_MICRO_BATCHES]
        # Lower the micro-batch first: its readers choose the layouts in which updates and streams then find the
        # tensors.
        worthwhile = worthwhile_bytes(self.graph.system)
        self.to.remote = remote_weights(self.net, self.schedule.locations.weights, worthwhile)
        gradient_sums = GradientSums(self.net, self.graph, sums, self.schedule.locations.accumulators)
        self.to.leaves = frozenset(self.net.leaves)
        off_chip = self._tables(needed)
        body.lower(self.to, compute, gradient_sums)
        self._make_updates(of_step, shared_functions=modes.shared_functions)
        gradient_sums.bind(self.to)
        # Inputs are loaded before the ops of their stage, or made once where no host feeds the program.
        inputs = [self._input_stream(v) for v in self.net.inputs]
        if modes.synthetic_data:
            self._make_data()
        else:
            for stream, value in inputs:
                self._load(stream, value)
        # Sums come after the micro-batch; stages with running means share one count of micro-batches.
        step = Steps(name="step")
        for op in sums:
            stage = body.stage_of(op.output)
            if op.kind == "running_mean" and stage not in body.shares:
                graph = self.to.graph_of(op.output.place)
                body.shares[stage] = self._running_shares(graph, step, stage.leaving)
        self.to.sums = RemoteSums(self.to, self.graph, sums, self.schedule.locations.accumulators)
        body.lower_sums(self.to, gradient_sums.left)
        # Outputs may be weights in streaming memory: they have to be there before anything is sent.
        if self.to.remote is not None:
            for value in self.net.outputs:
                self.to.remote.show(self.to, body.stage_of(value).leaving, [self.to[value]])
        if not modes.synthetic_data:
            self._store_outputs()
            changed = [(v, body.stage_of(v).exits) for v in self.net.changed_inputs.values()]
            self.changed.add([(self._kept(v, exits), exits) for v, exits in changed])
        # Anchors of micro-batches leave with their stage; state is written back after them, as both read its old value.
        anchors = AnchorCollector(self.graph, self.net, self.to, self.schedule)
        anchors.add(lambda value: body.stage_of(value).exits, updated=False)
        self._write_back()
        remote, self.to.remote = self.to.remote, None
        if remote is not None:
            remote.finish(self.to, self.graph)
            self.to.rows = remote.rows
        # The update closes the step, and anchors of updated values come after it.
        self._step(step, of_step)
        anchors.add(lambda _: Exits(step, step), updated=True)
        before = [*modes.steps(), self.outputs.before, *anchors.before]
        program = Steps(*before, repeat(self._updates, step), self.outputs.after, *anchors.after)
        states = (*self.net.parameters, *self.net.buffers)
        weights = {v.name: self.to[v] for v in states if v not in self.to.rows and not self.to.is_table(v)}
        seed = self.to[self.net.seed] if self.net.seed is not None else None
        return NetworkProgram(
            gradients={p.name: self.to[g] for p, g in self.net.gradients.items() if g in self.to},
            graph=self.whole,
            program=program,
            schedule=self.schedule,
            inputs=[] if modes.synthetic_data else [s for s, _ in inputs],
            outputs=self.outputs.streams,
            weights=weights,
            remote_weights=off_chip | ({} if remote is None else remote.state),
            groups=[self._first_of(number) for number in range(len(self.groups))],
            scale=self.scale,
            seed=seed,
            changed=self.changed.streams,
            anchors=anchors.streams,
        )

    def _tables(self, ops: Sequence[NetworkOp]) -> dict[str, FlatState]:
        """A buffer in streaming memory for each table of which ops load and store rows; their places by name.

        Raises:
            NetworkError: A table that is not kept from run to run.
            MachineError: The system has no streaming memory.
        """
        found, made = tables(ops, self.net.buffers), dict[str, FlatState]()
        check_off_chip(self.graph.whole_system, [v.name for v in self.net.buffers if v in found])
        for value in (v for v in self.net.buffers if v in found):
            entries, *row = value.shape
            buffer = self.graph.top_level.remote_buffer(value.name, value.dtype, math.prod(row), entries)
            self.to.bind_table(value, buffer)
            made[value.name] = FlatState(Shards(row_major_order(value.shape)), value.dtype, 0.0, buffer=buffer)
        return made

    def _input_stream(self, value: Value) -> tuple[Stream, Value]:
        return self.graph.host_stream_in(f"input/{value.name}", value.dtype, value.shape), value

    def _load(self, stream: Stream, value: Value) -> None:
        """Bring an input to the stage that reads it."""
        stage = self.body.stage_of(value)
        if self.io is None:
            stage.from_host.add(Copy(stream, self.to[value], name=stream.name))
        else:
            self.io.load(stream, self.to[value], value.place.ipu, stage)

    def _store_outputs(self) -> None:
        """Bring outputs to the host: past IO tiles where it gets those of each micro-batch."""
        stages = [self.body.stage_of(v) for v in self.net.outputs]
        if self.io is None or self.schedule.outputs != OutputMode.ALL:
            outputs = zip(self.net.outputs, stages, strict=True)
            self.outputs.add([(self._kept(v, stage.exits), stage.exits) for v, stage in outputs])
            return
        for value, stage in zip(self.net.outputs, stages, strict=True):
            # It is handed over after the micro-batch, which may have changed what it shows.
            tensor = self._kept(value, stage.exits)
            self.io.store(tensor, self.outputs.stream(tensor), value.place.ipu, stage)

    def _make_updates(self, ops: Sequence[NetworkOp], *, shared_functions: bool) -> None:
        """The device side of each optimiser, on each IPU that has parameters of it."""
        assert self.to.momenta is not None
        ipus = {number: {0} if self.net.num_ipus == 1 else set[int]() for number in range(len(self.groups))}
        for op in ops:
            if op.kind == "update":
                ipus[op.attrs["group"]].add(op.output.place.ipu)
        for number, group in enumerate(self.groups):
            first, *others = sorted(ipus[number]) or [0]
            made = self.to.updates[number, first] = group_update(
                self.to.graph_of(Place(first)),
                group.optimiser,
                f"optimiser{number}",
                repeats=self.to.repeats,
                scale=self.scale.of(group.optimiser),
                share=self._share(group),
                location=self.schedule.locations.optimiser,
                parts=self._parts,
                shared_functions=shared_functions,
                momenta=self.to.momenta.of_group(number),
            )
            for ipu in others:
                self.to.updates[number, ipu] = made.on(self.to.graph_of(Place(ipu)))

    def _first_of(self, group: int) -> GroupUpdate:
        """The update of a group that the host reaches."""
        return next(update for (number, _), update in self.to.updates.items() if number == group)

    def _kept(self, value: Value, exits: Exits) -> Tensor:
        """Tensor of an output; a copy where it shows a weight that changes before the host reads it."""
        tensor = self.to[value]
        changing = {*self.net.gradients, *self.net.updates}
        weights = {v for w in changing if w in self.to for v in self.to[w].variables}
        waits = self.schedule.outputs == OutputMode.FINAL or self.io is not None or exits.are_apart
        is_late = waits and not weights.isdisjoint(tensor.variables)
        return duplicate(self.graph, tensor, exits.leaving, "keep_output") if is_late else tensor

    def _make_data(self) -> None:
        """Let inputs hold numbers from the start: normal ones, and zeros for integers, which may be indices."""
        rng = np.random.default_rng(_SYNTHETIC_SEED)
        for value in self.net.inputs:
            numbers = rng.standard_normal(value.shape) if value.dtype.is_float else np.zeros(value.shape)
            self.graph.initialise(self.to[value], numbers.astype(value.dtype.np))

    def _share(self, group: Group) -> float:
        """Factor of gradients in an update: −1 to climb where others descend, and the inverse number of addends to make
        a mean of sums: of those over replicas, and of float16 ones over micro-batches.
        """
        sign = -1.0 if group.optimiser.maximises and not climbs(self.groups) else 1.0
        schedule = self.schedule
        if not schedule.mean or schedule.strategy != MeanStrategy.POST:
            return sign
        # Sums in f32 are made of shares already.
        whole = group.optimiser.accumulation == f16 or combines(group.optimiser, schedule)
        summed = schedule.accumulation if whole else 1
        return sign / (summed * schedule.replicas)

    def _running_shares(self, graph: Graph, step: Steps, micro_batch: Steps) -> tuple[Tensor, Tensor]:
        """Append what makes the shares of a running mean: of the mean so far, and of this micro-batch's gradient."""
        names = ("count", "kept", "new")
        made = [graph.map(graph.variable(f32, (), name=f"running_mean/{name}"), 0) for name in names]
        popops.zero(graph, made[0], step)
        exprs = [_1 + 1.0, _1 / (_1 + 1.0), 1.0 / (_1 + 1.0)]
        map_with_outputs(graph, exprs, [made[0]], made, micro_batch, "running_mean_shares")
        return made[1], made[2]

    def _write_back(self) -> None:
        """Append the changes that the model makes, and that of the random state; sums change in place."""
        steps = {op.output: op for op in self.net.ops if op.kind == "update"}
        changes = {s: steps[v].inputs[0] if v in steps else v for s, v in self.net.updates.items()}
        changes = {s: v for s, v in changes.items() if v is not s and s not in self.net.accumulators}
        # Rows of tables in streaming memory are there already.
        changes = {s: v for s, v in changes.items() if v.stage != Stage.UPDATE and not self.to.is_table(s)}
        changes = {s: v for s, v in changes.items() if not self.to.is_in_place(s, v)}
        # One state's new contents may be another's old ones: these are kept before any is written.
        written = {variable for state in changes for variable in self.to[state].variables}
        sources = {
            state: self.to[value]
            if written.isdisjoint(self.to[value].variables)
            else duplicate(self.graph, self.to[value], self.body.stage_of(value).leaving, f"keep/{state.name}")
            for state, value in changes.items()
        }
        for state, source in sources.items():
            leaving = self.body.stage_of(changes[state]).leaving
            leaving.add(Copy(source, self.to[state], name=f"write_back/{state.name}"))
            if self.net.updates[state] in steps:  # The optimiser's step is taken in place, on what is written here.
                self.to.bind(changes[state], self.to[state])
        if self.net.seed is not None:
            self.body.advance_random_state(self.net.seed, self.to)

    def _step(self, step: Steps, ops: Sequence[NetworkOp]) -> None:
        # Everything that accumulates begins at zero, but for sums that are momenta.
        updates = [op for op in ops if op.kind == "update"]
        self.scale.begin(step)
        assert self.to.sums is not None
        assert self.to.momenta is not None
        momenta = self.to.momenta
        self.to.sums.begin(self.to, [v for v in self.net.accumulators if v not in momenta.totals], step)
        momenta.begin(self.to, {number: self._first_of(number) for number in range(len(self.groups))}, step)
        # All micro-batches of the step, without empty sequences around them.
        for steps in (self.body.before, self.body.program(), self.body.after):
            if not isinstance(steps, Steps) or steps.steps:
                step.add(steps)
        # Sums come out of streaming memory now only if replicas exchange them or clipping reads them all; others wait
        # for their update.
        collectives = [op for op in ops if op.kind in ("all_reduce", "reduce_scatter")]
        self.to.sums.load(step, None if self.scale.clips else {v for op in collectives for v in op.inputs})
        with self.to.into(step):
            self.to.run(collectives)
        # Clipping needs the norm of all gradients: whole ones, shares, and parts of split layers.
        groups = {op.attrs["group"] for op in updates}
        shares = {abs(self._first_of(number).share) for number in groups} or {1.0}
        names = {value: state.name for state, value in self.net.updates.items()}
        share = shares.pop()
        for clipping_set in self.scale.clipping_sets:
            mine = [op for op in updates if self.groups[op.attrs["group"]].optimiser.clipped_with == clipping_set]
            whole = [op for op in mine if op.inputs[1] not in self.to.shares_of]
            parts = {n: self._parts[names[op.output]] for n, op in enumerate(whole) if names[op.output] in self._parts}
            self.scale.before_updates(
                [self.to[op.inputs[1]] for op in whole],
                share,
                step,
                shards=[self.to.shares_of[v].tensor for op in mine if (v := op.inputs[1]) in self.to.shares_of],
                parts=parts,
                clipping_set=clipping_set,
            )
        self._set_apart(updates, step)
        self._captured_updates([op for op in ops if op not in {*updates, *collectives}], step)
        with self.to.into(step):
            # Group by group, so that state in streaming memory is on the chip for one group at a time.
            for number in range(len(self.groups)):
                group = self._first_of(number)
                group.begin(step)
                self.to.run(op for op in updates if op.attrs["group"] == number)
                for (of, _), update in self.to.updates.items():
                    if of == number:
                        update.flush(step)
                group.end(step)
        # Replicas must agree on the scale of the next step, so their counts are summed.
        counts = self._counts(step)
        if counts is not None and self.schedule.replicas > 1:
            gcl.all_reduce_cross_replica_in_place(self.graph, counts, "add", step, name="counts_of_replicas")
        self.scale.end(counts, step)

    def _captured_updates(self, ops: Sequence[NetworkOp], step: Steps) -> None:
        """Append captured updates: what is computed, then passes that change states in place, then other changes."""
        in_place = [op for op in ops if op.kind == "element_update"]
        made = {v for op in ops if op.kind != "element_update" for v in op.outputs}
        changes = {s: v for s, v in self.net.updates.items() if v in made}
        self.to.announce(ops)
        with self.to.into(step):
            self.to.lower([op for op in ops if op.kind != "element_update"])
        # All see states as they were: what shows one that changes is kept first.
        states = [*changes, *(v for op in in_place for v in op.inputs[: len(op.outputs)])]
        written = {variable for state in states if state in self.to for variable in self.to[state].variables}
        sources = {
            state: self.to[value]
            if written.isdisjoint(self.to[value].variables)
            else duplicate(self.to.graph_of(state.place), self.to[value], step, f"keep/{state.name}")
            for state, value in changes.items()
        }
        with self.to.into(step):
            self.to.lower(in_place)
        for state, source in sources.items():
            step.add(Copy(source, self.to[state], name=f"write_back/{state.name}"))

    def _set_apart(self, updates: Sequence[NetworkOp], step: Steps) -> None:
        """Copy gradients that are views of parameters: updates change parameters in any order."""
        changed = {variable for op in updates for variable in self.to[op.inputs[0]].variables}
        for op in updates:
            parameter, gradient = op.inputs
            if gradient in self.to.shares_of or changed.isdisjoint(self.to[gradient].variables):
                continue
            graph = self.to.graph_of(op.output.place)
            copied = clone(graph, self.to[parameter], f"{parameter.name}/gradient", gradient.dtype)
            step.add(Copy(self.to[gradient], copied))
            self.to.bind(gradient, copied)

    def _counts(self, step: Steps) -> Tensor | None:
        """Small and large elements of the gradients of all places together, if they are counted."""
        counts = [self.to[v] for v in self.net.accumulators if v.name.startswith(COUNTS)]
        if len(counts) < 2:
            return counts[0] if counts else None
        together = concat([c.reshape((1, 2)) for c in counts])
        return popops.reduce(self.graph, together, [0], "ADD", step, name="counts_of_all")


def _gradients(net: Network) -> dict[Value, Value]:
    """For each gradient the parameter that it is to be laid out like."""
    sums = {op.output: op.inputs for op in net.ops if op.kind in ("accumulate", "add_to_momentum", "running_mean")}
    found: dict[Value, Value] = {}
    for parameter, gradient in net.gradients.items():
        while gradient in sums:
            gradient, part = sums[gradient]
            found[part] = parameter
        found.setdefault(gradient, parameter)
    # The gradients of a parameter that several ops read are added up: each of them is to lie as their sum does.
    for op in reversed(net.ops):
        if op.kind == "map" and len(op.outputs) == 1 and op.output in found:
            for part in op.inputs:
                if part.shape == op.output.shape:
                    found.setdefault(part, found[op.output])
    return found
