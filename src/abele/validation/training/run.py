"""A training run: a model on a system as it was configured, and what the model of the machine says of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from abele.errors import MachineError
from abele.machine import systems
from abele.network import Adam, Group, Lamb, Lars, Locations, Network, Optimiser, Schedule, Sgd, TensorLocation
from abele.network.ir import Value
from abele.numerics import ElementType, f16
from abele.report import Report
from abele.session import Settings, compile_network

PARTS = ("compute", "exchange", "sync", "host", "waiting")
"""Parts of an update's time on the busiest IPU of a replica."""


class RunModel(Protocol):
    """Model that makes the network of a run."""

    def network(self, micro_batch: int) -> Network:
        """The network of a micro-batch, with its loss."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A published training run.

    Attributes:
        name: Name of the run.
        system: Name of the system.
        model: Makes the network.
        micro_batch: Samples of a micro-batch: sequences, packs of sequences, or images.
        accumulation: Micro-batches on each replica that make one update.
        replicas: Copies of the network.
        items: Number of items of the published rate in each update.
        item: Name of the items.
        published_seconds: The published time of an update.
        optimiser: ``lamb``, ``lars``, ``adam`` or ``sgd``.
        first_type: Element type of the first moments of gradients: of momenta and means.
        weight_decay: Of matrices; vectors have none.
        stochastic_rounding: True if f16 results are rounded at random.
        io_tiles: IO tiles of each IPU, whose transfers run beside the others.
        sharded_state: True if the optimiser's state is in streaming memory, a part of it for each replica.
        stash: The 8-bit float as which activations wait for the backward pass; None for what they are.
        source: Source of the publication.
        lacks: Parts of the configuration that are not modelled.
        held: True if the figure is one that is to be within bounds.
    """

    name: str
    system: str
    model: RunModel
    micro_batch: int
    accumulation: int
    replicas: int
    items: float
    item: str
    published_seconds: float
    optimiser: str = "lamb"
    first_type: ElementType = f16
    weight_decay: float = 0.01
    stochastic_rounding: bool = True
    io_tiles: int = 0
    sharded_state: bool = False
    stash: ElementType | None = None
    source: str = ""
    lacks: tuple[str, ...] = ()
    held: bool = False

    @property
    def schedule(self) -> Schedule:
        """Micro-batches, replicas, where the optimiser's state is, and as what activations wait."""
        where = Locations(optimiser=TensorLocation(on_chip=False, sharded=True)) if self.sharded_state else Locations()
        return Schedule(
            accumulation=self.accumulation,
            replicas=self.replicas,
            locations=where,
            io_tiles=self.io_tiles,
            stash=self.stash,
        )

    def groups(self, net: Network) -> list[Group]:
        """The optimisers of matrices, and of vectors: norms and biases."""
        matrices = tuple(v for v in net.parameters if sum(n > 1 for n in v.shape) > 1)
        vectors = tuple(v for v in net.parameters if v not in set(matrices))
        decayed, plain = _rules(self.optimiser, self.weight_decay, self.first_type)
        made: list[tuple[Optimiser, tuple[Value, ...]]] = [(decayed, matrices), (plain, vectors)]
        return [Group(rule, parameters) for rule, parameters in made if parameters]

    def predict(self, **settings: Any) -> Prediction:
        """Compile the run, and say what an update takes; arguments and errors as of :meth:`report`."""
        start = time.perf_counter()
        report = self.report(**settings)
        return Prediction.of(self, report, time.perf_counter() - start)

    def report(self, **settings: Any) -> Report:
        """Compile the run; what the model of the machine says of it.

        The machine holds repeated layers once, as the vendor's frameworks outline them.

        Args:
            settings: Further settings of the session, and others than these.

        Raises:
            MachineError: The system has fewer IPUs than all replicas take.
        """
        net = self.model.network(self.micro_batch)
        needed, there = self.replicas * net.num_ipus, systems.get(self.system).num_ipus
        if needed > there:
            raise MachineError(
                f"{self.name} takes {needed} IPUs, and {self.system} has {there}",
                because=f"there are {self.replicas} replicas of {net.num_ipus}",
                remedy="fewer replicas or stages, or a larger system",
            )
        usual: dict[str, Any] = {
            "system": self.system,
            "partials": "f16",
            "stochastic_rounding": self.stochastic_rounding,
            "allow_out_of_memory": True,
            "shared_functions": True,
            "name": self.name,
        }
        chosen = Settings(**{**usual, **settings})
        compiled = compile_network(net, self.schedule, groups=self.groups(net), settings=chosen)
        return compiled.executable.report


def _rules(name: str, decay: float, first: ElementType) -> tuple[Optimiser, Optimiser]:
    """The rules of matrices and of vectors, with sums of gradients in f16."""
    momentum = partial(Sgd, momentum=0.9, accumulation=f16, velocity_type=first)
    match name:
        case "lamb":
            moments = partial(Lamb, accumulation=f16, first_type=first)
            return moments(weight_decay=decay), moments()
        case "lars":
            # Layers of vectors are not trusted by their norms.
            return Lars(weight_decay=decay, accumulation=f16, velocity_type=first), momentum()
        case "adam":
            means = partial(Adam, decoupled=True, accumulation=f16, first_type=first)
            return means(weight_decay=decay), means()
    return momentum(weight_decay=decay), momentum()


@dataclass(frozen=True)
class Prediction:
    """Predicted time and memory of a run.

    Attributes:
        run: The run.
        seconds: Time of an update.
        parts: Seconds of an update that the busiest IPU of a replica spends on each of :data:`PARTS`.
        phases: Seconds of its work in the stages, in sums over replicas, in copies from and to streaming memory, and in
            updates of weights.
        bubble: Part of an update in which the pipeline is filled and emptied.
        needed_bytes: Bytes that the fullest tile needs.
        available_bytes: Bytes that a tile has.
        over: Tiles that need more than that.
        compile_seconds: Time that building and compiling took.
    """

    run: TrainingRun
    seconds: float
    parts: Mapping[str, float]
    phases: Mapping[str, float]
    bubble: float
    needed_bytes: int
    available_bytes: int
    over: int
    compile_seconds: float = field(compare=False, default=0.0)

    @classmethod
    def of(cls, run: TrainingRun, report: Report, compile_seconds: float) -> Prediction:
        """Prediction for a run from a report."""
        groups, memory = report.groups, report.memory
        total = report.step_cycles.total
        mine = groups["program"] == 0
        busiest = int(np.flatnonzero(mine)[np.argmax(groups["busy_cycles"][mine])]) if mine.any() else -1
        if busiest >= 0:
            parts = {p: float(groups[f"{p}_cycles"][busiest]) for p in PARTS[:-1]}
        else:
            cycles = report.step_cycles
            parts = {p: float(getattr(cycles, p)) for p in PARTS[:-1]}
        parts["waiting"] = max(total - sum(parts.values()), 0.0)
        forward = _forward_stages(run.model)
        ticks = run.accumulation + 2 * (forward - 1)
        return cls(
            run=run,
            seconds=report.seconds(total),
            parts={name: report.seconds(cycles) for name, cycles in parts.items()},
            phases={name: report.seconds(cycles) for name, cycles in _phases(report, busiest).items()},
            bubble=2 * (forward - 1) / ticks,
            needed_bytes=int(memory.by_tile.max()),
            available_bytes=int(memory.available_bytes),
            over=int((memory.by_tile > memory.available_bytes).sum()),
            compile_seconds=compile_seconds,
        )

    @property
    def error(self) -> float:
        """Predicted over published time, less one."""
        return self.seconds / self.run.published_seconds - 1

    @property
    def fits(self) -> bool:
        """True if every tile has room for its data and code."""
        return self.over == 0

    def to_json(self) -> dict[str, Any]:
        """The figures as plain data."""
        run = self.run
        return {
            "name": run.name,
            "system": run.system,
            "predicted_s": self.seconds,
            "published_s": run.published_seconds,
            "error": self.error,
            "items_per_second": run.items / self.seconds,
            "published_items_per_second": run.items / run.published_seconds,
            "item": run.item,
            "parts_s": dict(self.parts),
            "phases_s": dict(self.phases),
            "bubble": self.bubble,
            "fullest_tile_bytes": self.needed_bytes,
            "available_bytes": self.available_bytes,
            "tiles_over": self.over,
            "fits": self.fits,
            "compile_s": self.compile_seconds,
            "held": run.held,
            "lacks": list(run.lacks),
            "source": run.source,
        }


def _forward_stages(model: RunModel) -> int:
    stages = getattr(model, "stages", None)
    if stages is None or len(stages.halves) == 1:
        return 1
    return len(stages.halves) + getattr(model, "head_stages", 0)


def _phases(report: Report, group: int) -> dict[str, float]:
    """Cycles of the steps that keep one sync group busy: in stages, in sums over replicas, with streaming memory, and
    in updates."""
    steps = report.steps
    takes_part = np.ones(len(steps["cycles"]), bool)
    if group >= 0 and len(report.step_groups["step"]):
        part = report.step_groups
        first = part["first_group"]
        here = (first <= group) & (group < first + part["num_groups"])
        takes_part = np.zeros(len(takes_part), bool)
        takes_part[part["step"][here]] = True
    takes_part &= steps["program"] == 0
    cycles = np.asarray(steps["cycles"] * steps["executions"], np.float64)
    paths = [str(path) for path in report.ops["path"]] + [""]
    is_sum = np.array([path.startswith("all_reduce") for path in paths])
    is_update = np.array([path.startswith(("update/", "optimiser")) for path in paths])
    op, partners = np.asarray(steps["op"]), np.array([str(partner) for partner in steps["partner"]])
    stored = takes_part & (partners == "streaming memory")
    sums = takes_part & ~stored & ((partners == "replicas") | is_sum[op])
    updates = takes_part & ~stored & ~sums & is_update[op]
    return {
        "stages": float(cycles[takes_part & ~stored & ~sums & ~updates].sum()),
        "all_reduce": float(cycles[sums].sum()),
        "streaming_memory": float(cycles[stored].sum()),
        "update": float(cycles[updates].sum()),
    }
