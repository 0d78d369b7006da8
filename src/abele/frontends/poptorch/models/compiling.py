"""Compiling a model: from a call's arguments to a session over the model's own tensors."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abele.errors import MachineError, StageOrderError
from abele.frontends.poptorch.capture import CapturedModel, capture
from abele.frontends.poptorch.capture.block_places import BlockPlaces
from abele.frontends.poptorch.capture.capture import half_arguments, half_model
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.fp8.chips import check_products
from abele.frontends.poptorch.logs import LOGGER
from abele.frontends.poptorch.models.batching import Batching
from abele.frontends.poptorch.models.grouping import check_changed_buffers
from abele.frontends.poptorch.models.sharding import OwnValues
from abele.frontends.poptorch.models.user_models import plain_class
from abele.frontends.poptorch.models.weights import cell_of, plain
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.options.placement import BlockPlacement, check_pipeline, ipus_of_replica, placed
from abele.frontends.poptorch.program.blocks import BlockRecord
from abele.frontends.poptorch.program.overlap import overlapping
from abele.frontends.poptorch.training.rules import groups_of
from abele.frontends.poptorch.values import structures
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.machine import System, systems
from abele.network import Place
from abele.network.ir import PlanHint
from abele.report import CallTimes
from abele.session import Advice, Schedule, Session, Settings, SharedArrays, compile_network
from abele.session.compiling import compilation_progress
from abele.session.feeds import combine
from abele.session.remedies import NetworkCase
from abele.session.settings import DEFAULT_SYSTEM
from abele.words import counted

# Counters of the last call: when its inputs went to the device, and its outputs came back.
#
# The inputs of all iterations of a call are handed over together before the first of them, and the outputs are taken
# together after the last: all iterations of a call have the same times, which are those of the host's clock. The same
# times of every call, and how long data was waited for before it, are the rows of ``report().runs``.

Latency = tuple[float, float, float]
"""The least, the most and the mean, in seconds."""


@dataclass
class PerfCounters:
    """Times of the last call, in seconds from its beginning.

    Attributes:
        times: Times at which inputs began and ended to be handed over, and outputs were there and were taken; None
            before any call.
        inputs: Tensors that went in.
        outputs: Tensors that came back.
        iterations: Micro-batches of the call.
        returned: Those of which outputs came back.
        synthetic: True if the device made its data itself: no tensor went in or came back.
    """

    times: tuple[float, float, float, float] | None = None
    inputs: int = 0
    outputs: int = 0
    iterations: int = 0
    returned: int = 0
    synthetic: bool = False
    _names: tuple[str, ...] = field(default=("input", "input_complete", "output", "output_complete"), repr=False)

    def table(self) -> dict[str, list[list[float]]]:
        """For each kind of time, a list for each tensor with the time of each iteration."""
        if self.times is None:
            return {name: [[]] for name in self._names}
        if self.synthetic:
            tensors = (self.inputs, self.inputs, self.outputs, self.outputs)
            return {name: [[] for _ in range(max(n, 1))] for name, n in zip(self._names, tensors, strict=True)}
        sizes = [(self.inputs, self.iterations)] * 2 + [(self.outputs, self.returned)] * 2
        return {
            name: [[time] * count for _ in range(tensors)]
            for name, time, (tensors, count) in zip(self._names, self.times, sizes, strict=True)
        }

    def latency(self, begin: int, end: int) -> Latency:
        """Least, most and mean time between two of the four moments."""
        if self.times is None or self.synthetic:
            return (0.0, 0.0, 0.0)
        seconds = self.times[end] - self.times[begin]
        return (seconds, seconds, seconds)


class Latencies:
    """The part of a wrapped model that tells how long its last call took."""

    _counters: PerfCounters

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """``input``, ``input_complete``, ``output`` and ``output_complete``: for each tensor, the time of each
        iteration in seconds from the beginning of the last call."""
        return self._counters.table()

    def getHostIpuLatency(self) -> Latency:
        """Least, most and mean seconds that handing over inputs took."""
        return self._counters.latency(0, 1)

    def getComputeLatency(self) -> Latency:
        """Least, most and mean seconds from the last input to the first output."""
        return self._counters.latency(1, 2)

    def getIpuHostLatency(self) -> Latency:
        """Least, most and mean seconds that taking outputs took."""
        return self._counters.latency(2, 3)

    def getLatency(self) -> Latency:
        """Least, most and mean seconds from the first input to the last output."""
        return self._counters.latency(0, 3)


# Placing: the blocks of a model on the IPUs of the machine that the options ask for.


class Placing:
    """Places of the parts of a model, once it was recorded.

    Args:
        options: The strategy, and the machine.
        training: True if the model has a backward pass.
    """

    def __init__(self, options: Options, *, training: bool) -> None:
        self._options = options
        self._training = training
        self._placement = BlockPlacement()

    def places(self, record: BlockRecord) -> BlockPlaces:
        """Places of the blocks that a model went through."""
        shares = self._options.available_memory_proportion
        hints = {ipu: PlanHint(proportion=share) for ipu, share in shares.items() if record.begun}
        return BlockPlaces(record.begun, functools.partial(self._located, record), hints)

    def _located(self, record: BlockRecord, leading: str) -> Sequence[Place]:
        """The place of each block.

        Raises:
            Error: Blocks that do not fit the strategy; too few micro-batches for a pipeline.
            CheckError: A block that the strategy does not list.
        """
        strategy = self._options._execution_strategy
        self._placement = placement = placed(strategy, record.begun, record.again.items(), leading=leading)
        check_pipeline(
            placement.num_stages,
            accumulation=self._options.Training.gradient_accumulation,
            device_iterations=self._options.device_iterations,
            training=self._training,
        )
        return placement.places

    @property
    def num_ipus(self) -> int:
        """IPUs that the blocks are on."""
        return self._placement.num_ipus

    def settings(self, settings: Settings) -> Settings:
        """Settings with the machine for all replicas of the model.

        Raises:
            Error: IPUs that cannot be reserved.
            MachineError: More IPUs than the chosen machine has.
        """
        used = self._placement.num_ipus
        reserved = ipus_of_replica(used, rounded=self._options.auto_round_num_ipus)
        ranks = self._options.Distributed.numProcesses if self._options.Distributed.shares_replicas else 1
        replicas = self._options.replication_factor * ranks
        system = _machine(settings, replicas, reserved)
        if used == 1:
            return replace(settings, system=system)
        # Each IPU has a share of its own: see `places`.
        return replace(settings, system=system, ipus_per_replica=reserved, memory_proportion=None)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Errors about stages that are raised inside name the blocks in them."""
        try:
            yield
        except StageOrderError as error:
            raise self._placement.explained(error) from error


def _machine(settings: Settings, replicas: int, ipus: int) -> System | str | None:
    """The machine that was chosen; where none was, one of the Pods, if a single box is too small."""
    needed, chosen = replicas * ipus, settings.chosen_system
    if chosen is not None:
        found = systems.resolve(chosen)
        if found.num_ipus < needed:
            raise MachineError(
                f"the model needs {counted(needed, 'IPU')}, and {found.name} has {found.num_ipus}",
                because=f"there are {counted(replicas, 'replica')}, of {counted(ipus, 'IPU')} each",
                remedy="fewer replicas or stages, or a larger machine, such as opts.Abele.system('bow-pod16')",
            )
        return chosen
    names = (DEFAULT_SYSTEM, "bow-pod16", "bow-pod64", "bow-pod256", "bow-pod1024")
    return next((name for name in names if systems.get(name).num_ipus >= needed), names[-1])


# Advice to the owner of a PyTorch model that does not fit on the tiles, in PopTorch's words.


def words(advice: Advice, *, training: bool) -> list[str]:
    """Remedies for a lack of memory, as lines of a PyTorch program.

    Args:
        advice: The remedies that would help.
        training: True if the model is trained.
    """
    found = {}
    if advice.halve:
        found["halve"] = "half precision: model.half() and inputs in torch.float16"
    location = "options.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings()"
    if advice.share_state:
        found["share_state"] = (
            f"{location}.useReplicatedTensorSharding(True)): replicas share the state of the optimiser"
        )
    if advice.recompute:
        found["recompute"] = "options.Abele.recompute(): cheap activations are computed again, not kept"
    if advice.state_off_chip:
        found["state_off_chip"] = f"{location}.useOnChipStorage(False)): the state of the optimiser in streaming memory"
    if advice.partials:
        found["partials"] = "options.Precision.setPartialsType(torch.half): partial sums of products in half precision"
    if advice.batch is not None:
        more = "Training.gradientAccumulation" if training else "deviceIterations"
        found["batch"] = (
            f"a smaller micro-batch than {advice.batch}, with options.{more}({advice.micro_batches}) for the same call"
        )
    if advice.proportion is not None:
        found["proportion"] = (
            f'options.setAvailableMemoryProportion({{"IPU0": {advice.proportion:g}}}) instead of '
            f"{advice.proportion_now:g}"
        )
    if advice.machine is not None:
        found["machine"] = f"a machine with more memory on an IPU: options.system({advice.machine!r})"
    return advice.ordered(found, "options.Abele.allowOutOfMemory() for a report of the program as it is")


@dataclass
class CompiledModel:
    """A model that is ready to run.

    Attributes:
        captured: The network, and how its results are nested.
        session: The compiled network with the model's weights.
        seconds: Time that capturing and compiling took.
        anchors: Anchored tensors of the last run.
    """

    captured: CapturedModel
    session: Session
    seconds: float
    anchors: tuple[npt.NDArray[Any], ...] = ()

    def __post_init__(self) -> None:
        self.session.on_weights_copied(_log_copy)

    def trained_names(self, optimiser: torch.optim.Optimizer) -> list[list[str]]:
        """Names of the trained parameters of each group of an optimiser."""
        names = {id(tensor): name for name, tensor in self.captured.weights.items() if tensor.requires_grad}
        return [[names[id(p)] for p in group["params"] if id(p) in names] for group in optimiser.param_groups]

    def run(self, tensors: list[torch.Tensor], counters: PerfCounters) -> Any:
        """Run once on the inputs of one host batch; returns the model's results.

        Inputs that the model changes are changed, as in PyTorch. ``counters`` gets the times of the run.
        """
        begin, times = time.perf_counter(), CallTimes()
        synthetic = self.session.compiled.settings.synthetic_data
        sent = [] if synthetic else [to_array(t) for t in tensors]
        times.sending_seconds = time.perf_counter() - begin
        results = self.session.run(sent, times=times)
        ended = time.perf_counter()
        for position, array in results.changed.items():
            tensors[position].detach().copy_(from_array(array))
        outputs = list(self._zeros()) if synthetic else results.outputs
        rebuilt = self.captured.rebuild([from_array(a) for a in outputs])
        self.anchors = results.anchors
        total = time.perf_counter() - begin
        times.reading_seconds += begin + total - ended
        counters.times = (0.0, times.sending_seconds, total - times.reading_seconds, total)
        counters.inputs, counters.outputs, counters.synthetic = len(tensors), len(outputs), synthetic
        counters.iterations, counters.returned = self.session.schedule.micro_batches, self.session.schedule.returned
        return rebuilt

    def _zeros(self) -> Iterator[npt.NDArray[Any]]:
        """Outputs that were never sent: zeros of their shapes."""
        schedule = self.session.schedule
        for value in self.captured.net.outputs:
            yield combine(np.zeros((schedule.returned, *value.shape), value.dtype.np), schedule)


def compile_model(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    batching: Batching,
    optimiser: torch.optim.Optimizer | None,
    weights: list[torch.Tensor],
) -> CompiledModel:
    """Capture and compile a model for one kind of call; nothing runs.

    Args:
        model: The model.
        args: Arguments of one micro-batch.
        kwargs: Keyword arguments.
        batching: Loops of the device over micro-batches.
        optimiser: Optimiser of the weights; None for inference.
        weights: The model's parameters and buffers.

    Raises:
        AbeleError: See :func:`~abele.frontends.poptorch.capture.capture` and
            :func:`~abele.session.compile_network`.
    """
    start = time.perf_counter()
    settings = batching.options.settings(plain_class(model).__name__)
    with compilation_progress(settings.progress) as progress:
        progress("capture", 0.0)
        own = OwnValues.of(model, batching.options)
        norms = _norm_replicas(batching)

        placing = Placing(batching.options, training=batching.training)

        def record(given: Callable[[], torch.nn.Module], arguments: tuple[Any, dict[str, Any]]) -> CapturedModel:
            tiles = batching.options.TensorLocations.io_tiles
            with plain(weights), own.one_each(model) as whole, overlapping(tiles):
                at, train = placing.places, batching.training
                found = capture(
                    given(),
                    *arguments,
                    training=train,
                    norm_replicas=norms,
                    places=at,
                    changing=batching.options.updatable_named_buffers,
                )
            check_changed_buffers(model, found.net, batching.options, batching.schedule().replicas)
            return replace(found, weights={name: whole.get(id(t), t) for name, t in found.weights.items()})

        captured = record(lambda: model, (args, kwargs))
        settings = placing.settings(settings)
        check_products(captured.net, settings.target())
        schedule = own.added_to(batching.schedule(), captured.weights)

        def smaller(parts: int) -> NetworkCase | None:
            cut = _cut((args, kwargs), parts)
            if cut is None:
                return None
            again = record(lambda: model, cut)
            groups = groups_of(again, optimiser)
            return NetworkCase(again.net, _with_more(schedule, parts, batching.training), groups, settings)

        def halved() -> NetworkCase:
            again = record(lambda: half_model(model), half_arguments((args, kwargs)))
            # The copy's parameters stand for those that the optimiser holds.
            twin = replace(again, weights=captured.weights)
            groups = groups_of(twin, optimiser)
            return NetworkCase(again.net, schedule, groups, settings)

        with placing.explaining():
            compiled = compile_network(
                captured.net,
                schedule,
                groups=groups_of(captured, optimiser),
                settings=settings,
                words=functools.partial(words, training=batching.training),
                progress=progress,
                smaller=smaller,
                halved=halved,
            )
    own.spread(captured.weights, schedule.replicas)
    cells = SharedArrays({name: cell_of(tensor) for name, tensor in captured.weights.items()})
    session = Session(compiled, weights=cells, follow_host=False)
    return CompiledModel(captured, session, time.perf_counter() - start)


def _log_copy(end: str) -> None:
    """Log a copy of weights that nobody asked for, in PopTorch's words."""
    LOGGER.debug("Implicit copyWeightsTo%s()", end.title())


def _norm_replicas(batching: Batching) -> int:
    """Replicas over whose samples batch norms take their statistics.

    Raises:
        Error: The replicas do not divide into groups of so many.
    """
    number, replicas = batching.options.Abele.norm_replicas, batching.schedule().replicas
    if replicas % number:
        raise Error(
            f"batch norms cannot take statistics over {number} replicas: there are {replicas}",
            remedy="options.Abele.batchNormReplicas(n) with an n that divides options.replicationFactor",
        )
    return int(number)


def _cut(arguments: tuple[tuple[Any, ...], dict[str, Any]], parts: int) -> Any:
    """Arguments with the first of ``parts`` parts of each batch; None where batches cannot be cut so."""
    batched = [t for t in structures.leaves(arguments) if isinstance(t, torch.Tensor) and t.dim()]
    if any(t.shape[0] % parts for t in batched):
        return None
    return structures.map_tensors(lambda t: t.narrow(0, 0, t.shape[0] // parts) if t.dim() else t, arguments)


def _with_more(schedule: Schedule, parts: int, training: bool) -> Schedule:
    """The schedule of as many samples in micro-batches ``parts`` times smaller."""
    if training:
        return replace(schedule, accumulation=parts * schedule.accumulation)
    return replace(schedule, device_iterations=parts * schedule.device_iterations)
