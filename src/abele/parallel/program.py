"""Programs of networks: what runs on the device for one call from the host, as one tile program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from abele.errors import UnsupportedOpError
from abele.graph import Copy, Graph, Program, Repeat, SetFloatingPointBehaviour, Stream, Tensor, caller
from abele.graph import Sequence as Steps
from abele.numerics import f32
from abele.parallel.autodiff import differentiate
from abele.parallel.lowering import Lowering
from abele.parallel.network import Network, Value
from abele.parallel.optimisers import Group
from abele.parallel.outputs import OutputCollector
from abele.parallel.schedule import OutputMode, Schedule
from abele.parallel.update import GroupUpdate, group_update
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1
from abele.poplibs.poputil.layout import clone

Planning = Mapping[str, Any] | None

_EXCEPTIONS = ("invalid", "divide_by_zero", "overflow")


@dataclass
class NetworkProgram:
    """A network on a graph, ready to be compiled.

    Attributes:
        graph: The graph.
        program: One run.
        schedule: How the run goes over its micro-batches.
        inputs: A stream an input; each copy is one micro-batch.
        outputs: A stream an output; each copy is one micro-batch of the result.
        changed: A stream for each input that the network changes; each copy is one micro-batch.
        weights: Parameters and buffers by name.
        groups: The device side of each optimiser.
        seed: State of random ops: u32[2].
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


def inference_program(
    net: Network, graph: Graph, schedule: Schedule, *, planning: Planning = None, exceptions: bool = False
) -> NetworkProgram:
    """The program that runs a network forward ``schedule.device_iterations`` times.

    Args:
        net: The network.
        graph: Where to build.
        schedule: How one run goes over its micro-batches.
        planning: Options of matrix products and convolutions.
        exceptions: Whether invalid operations, divisions by zero and overflows of floats stop the program.

    Raises:
        UnsupportedOpError: An op has no rule.
    """
    return _Builder(net, graph, schedule, (), planning).build(exceptions=exceptions)


def training_program(
    net: Network,
    graph: Graph,
    schedule: Schedule,
    groups: Sequence[Group],
    *,
    planning: Planning = None,
    exceptions: bool = False,
) -> NetworkProgram:
    """The program that trains a network: forward, backward and update, all on the device.

    Each device iteration runs ``schedule.accumulation`` micro-batches and then one update. Random state advances after
    each micro-batch; the backward pass of a micro-batch draws what its forward pass drew.

    Args:
        net: A network with a loss; its backward ops are appended.
        graph: Where to build.
        schedule: How one run goes over its micro-batches.
        groups: Optimisers and the parameters that they update.
        planning: Options of matrix products and convolutions.
        exceptions: Whether invalid operations, divisions by zero and overflows of floats stop the program.

    Raises:
        TensorError: The network has no loss.
        UnsupportedOpError: An op has no rule, or no derivative where one is needed.
    """
    return _Builder(net, graph, schedule, groups, planning).build(exceptions=exceptions)


class _Builder:
    """One program in the making."""

    def __init__(
        self, net: Network, graph: Graph, schedule: Schedule, groups: Sequence[Group], planning: Planning
    ) -> None:
        self.net = net
        self.graph = graph
        self.schedule = schedule
        self.groups = groups
        trained = [p for group in groups for p in group.parameters]
        self.gradients = differentiate(net, trained, scale=_sign(groups)) if trained else {}
        self.to = Lowering(graph, net, planning=planning)
        self.to.lay_out_like({gradient: parameter for parameter, gradient in self.gradients.items()})
        self.outputs = OutputCollector(graph, schedule)
        self.changed = OutputCollector(graph, replace(schedule, outputs=OutputMode.ALL), "changed_input")

    def build(self, *, exceptions: bool) -> NetworkProgram:
        """The whole program; what belongs to no op of the network has the caller's source line."""
        with self.graph.scope(location=caller()):
            return self._build(exceptions=exceptions)

    def _build(self, *, exceptions: bool) -> NetworkProgram:
        compute = Steps()
        with self.to.into(compute):
            self.to.run(self.net.needed(self._results()))
        updates = [group_update(self.graph, g.optimiser, f"optimiser{i}") for i, g in enumerate(self.groups)]
        accumulators = self._accumulators()
        inputs = [self._input_stream(v) for v in self.net.inputs]
        micro_batch = Steps(*(Copy(s, self.to[v], name=s.name) for s, v in inputs), compute, name="micro_batch")
        self._accumulate(accumulators, micro_batch)
        self.outputs.add([self.to[v] for v in self.net.outputs], micro_batch)
        self.changed.add([self.to[v] for v in self.net.changed_inputs.values()], micro_batch)
        self._write_back(micro_batch)
        step = self._step(micro_batch, accumulators, updates)
        mode = [SetFloatingPointBehaviour(**dict.fromkeys(_EXCEPTIONS, True))] if exceptions else []
        program = Steps(*mode, self.outputs.before, _repeat(self.schedule.device_iterations, step), self.outputs.after)
        weights = {v.name: self.to[v] for v in (*self.net.parameters, *self.net.buffers)}
        seed = self.to[self.net.seed] if self.net.seed is not None else None
        return NetworkProgram(
            self.graph,
            program,
            self.schedule,
            [s for s, _ in inputs],
            self.outputs.streams,
            weights,
            updates,
            seed,
            self.changed.streams,
        )

    def _results(self) -> Iterable[Value]:
        net = self.net
        return [*net.outputs, *net.updates.values(), *net.changed_inputs.values(), *self.gradients.values()]

    def _input_stream(self, value: Value) -> tuple[Stream, Value]:
        return self.graph.host_stream_in(f"input/{value.name}", value.dtype, value.shape), value

    def _accumulators(self) -> dict[Value, Tensor]:
        """A zeroed sum a trained parameter, where more than one micro-batch makes an update."""
        if self.schedule.accumulation == 1:
            return {}
        return {p: clone(self.graph, self.to[p], f"{p.name}/accumulator", f32) for p in self.gradients}

    def _accumulate(self, accumulators: dict[Value, Tensor], prog: Steps) -> None:
        share = 1 / self.schedule.accumulation if self.schedule.mean else 1.0
        for parameter, total in accumulators.items():
            with self.graph.scope(f"accumulate/{parameter.name}"):
                popops.scaled_add_to(self.graph, total, self.to[self.gradients[parameter]], share, prog)

    def _write_back(self, prog: Steps) -> None:
        """Append the changes of buffers and of the random state."""
        for buffer, value in self.net.updates.items():
            prog.add(Copy(self.to[value], self.to[buffer], name=f"write_back/{buffer.name}"))
        if self.net.seed is not None:
            counter = self.to[self.net.seed][1:2]
            popops.map_in_place(self.graph, _1 + 1, [counter], prog, name="advance_random_state")

    def _step(self, micro_batch: Steps, accumulators: dict[Value, Tensor], updates: list[GroupUpdate]) -> Program:
        step = Steps(name="step")
        for total in accumulators.values():
            popops.zero(self.graph, total, step)
        step.add(_repeat(self.schedule.accumulation, micro_batch))
        for group, update in zip(self.groups, updates, strict=True):
            self._update(group, update, accumulators, step)
        return step

    def _update(self, group: Group, update: GroupUpdate, accumulators: dict[Value, Tensor], prog: Steps) -> None:
        update.begin(prog)
        for parameter in group.parameters:
            if parameter not in self.gradients:
                continue
            gradient = accumulators.get(parameter)
            if gradient is None:
                gradient = self.to[self.gradients[parameter]]
            with self.graph.scope(f"update/{parameter.name}"):
                update.update(self.to[parameter], gradient, prog)
        update.end(prog)


def _sign(groups: Sequence[Group]) -> float:
    """Sign of the loss's gradient: an update that maximises descends on its negative.

    Raises:
        UnsupportedOpError: Some groups maximise, others do not.
    """
    signs = {bool(getattr(g.optimiser, "maximize", False)) for g in groups}
    if len(signs) > 1:
        raise UnsupportedOpError("some optimiser groups maximise and others minimise", remedy="use one direction")
    return -1.0 if signs == {True} else 1.0


def _repeat(count: int, body: Program) -> Program:
    return body if count == 1 else Repeat(count, body)
