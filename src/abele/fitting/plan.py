"""Plans: one way to spread a model over a machine, with its expected cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class Recomputation(StrEnum):
    """Activations that a stage computes again in its backward pass.

    ``NOTHING``: all that the backward pass reads is kept. ``STAGES``: what enters a stage is kept, all else is computed
    again at once. ``SEGMENTS``: what enters each segment is kept (a checkpoint), or some of them, and what lies between
    two checkpoints is computed again at once.
    """

    NOTHING = "nothing"
    STAGES = "stages"
    SEGMENTS = "segments"


class StageWay(NamedTuple):
    """Choices that each stage makes for itself.

    Attributes:
        share: Share of a tile's memory that its products plan with; None for the libraries' own.
        spacing: Segments in a row whose temporaries bound those between two checkpoints; with 1 each segment begins
            with one.
    """

    share: float | None
    spacing: int = 1


class ModelSize(NamedTuple):
    """Size of a model's network.

    Attributes:
        micro_batch: Samples that it takes at a time.
        group: Replicas that compute it together, of which the network is one.
    """

    micro_batch: int
    group: int = 1


class StatePlace(StrEnum):
    """Place of the optimiser's state: whole on each replica, a share of it on each, or in streaming memory."""

    ON_CHIP = "on chip"
    SHARDED = "sharded"
    OFF_CHIP = "off chip"
    OFF_CHIP_SHARDED = "off chip, sharded"

    @property
    def is_sharded(self) -> bool:
        """True if each replica has a share alone."""
        return self in (StatePlace.SHARDED, StatePlace.OFF_CHIP_SHARDED)

    @property
    def is_off_chip(self) -> bool:
        """True if it is in streaming memory between updates."""
        return self in (StatePlace.OFF_CHIP, StatePlace.OFF_CHIP_SHARDED)


@dataclass(frozen=True, kw_only=True)
class Spreading:
    """One way to spread a model over a machine.

    Attributes:
        ipus: IPUs of a replica.
        replicas: Replicas side by side.
        micro_batch: Samples that a replica takes at a time; those of a group take the same.
        accumulation: Micro-batches of a replica whose gradients make one update; for inference, of one run.
        cuts: The first segment of each stage but the first.
        returns: True if the last stage is on the first IPU, beside the first stage.
        recompute: Activations that stages compute again.
        state: Place of the optimiser's state.
        proportions: For each IPU the share of a tile's memory that products plan with, None for the libraries' own;
            empty where all have that.
        shared_functions: True if the machine holds one copy of the code of equal segments of a stage.
        turns: True if forward and backward stages take turns, which nearly halves the micro-batches on their way.
        narrow_stash: True if activations wait for backward stages as 8-bit floats.
        waits_off_chip: True if activations wait for backward stages in streaming memory.
        spacings: For each stage the bound of what is between checkpoints; empty where each segment begins with one.
        checkpoints: Segments inside of stages that begin with a checkpoint.
        io_tiles: Tiles of each IPU that load and send for the host while the others compute.
        phases: True if stages are phases of one IPU, which follow each other and whose tensors are in streaming memory.
        group: Consecutive replicas that compute one model together, each with part of its layers.
    """

    ipus: int
    replicas: int
    micro_batch: int
    accumulation: int
    cuts: tuple[int, ...] = ()
    returns: bool = False
    recompute: Recomputation = Recomputation.NOTHING
    state: StatePlace = StatePlace.ON_CHIP
    proportions: tuple[float | None, ...] = ()
    shared_functions: bool = False
    turns: bool = False
    narrow_stash: bool = False
    waits_off_chip: bool = False
    spacings: tuple[int, ...] = ()
    checkpoints: tuple[int, ...] = ()
    io_tiles: int = 0
    phases: bool = False
    group: int = 1

    @property
    def stages(self) -> int:
        """Stages of the forward pass."""
        return len(self.cuts) + 1

    @property
    def batch(self) -> int:
        """Samples of one update, of all models."""
        return self.micro_batch * self.accumulation * self.models

    @property
    def models(self) -> int:
        """Models side by side: replicas, or groups of them that compute one together."""
        return self.replicas // self.group

    @property
    def model_ipus(self) -> int:
        """IPUs that compute one model."""
        return self.ipus * self.group

    @property
    def model_size(self) -> ModelSize:
        """Size of the model's network."""
        return ModelSize(self.micro_batch, self.group)

    @property
    def num_ipus(self) -> int:
        """IPUs in use."""
        return self.ipus * self.replicas

    def ipu_of(self, stage: int) -> int:
        """The IPU of a stage."""
        return 0 if self.phases or (self.returns and stage == self.stages - 1) else stage

    def waiting_rows(self, stage: int, *, stages: int | None = None) -> int:
        """Micro-batches that wait between a stage of training and its backward stage.

        Args:
            stage: The stage.
            stages: Stages of the forward pass; None for as many as the plan has.
        """
        behind = (stages or self.stages) - 1 - stage
        if self.turns:
            # The backward stage is 2·behind + 1 ticks later, and a micro-batch comes every other tick.
            return behind + 1 if behind else 0
        return 2 * behind

    def proportion_of(self, ipu: int) -> float | None:
        """The share of a tile's memory that products on an IPU plan with; None for the libraries' own."""
        return self.proportions[ipu] if self.proportions else None

    def way_of(self, stage: int) -> StageWay:
        """Choices of a stage."""
        return StageWay(self.proportion_of(self.ipu_of(stage)), self.spacings[stage] if self.spacings else 1)

    @property
    def plans_smaller(self) -> bool:
        """True if products on some IPU plan with less memory than the libraries' own."""
        return any(share is not None for share in self.proportions)

    def bounds(self, num_segments: int) -> list[tuple[int, int]]:
        """First segment of each stage, and one past its last."""
        return list(zip((0, *self.cuts), (*self.cuts, num_segments), strict=True))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Expected cost of a plan.

    Attributes:
        cycles: One update, or for inference one run.
        stage_cycles: Cycles of a micro-batch in each stage of the forward pass, its backward stage included.
        tick_cycles: Cycles in which all stages run once, without the exchange between them: of a tick, or of two ticks
            where stages take turns.
        host_cycles: Those of them in which all IPUs wait for the host.
        exchange_cycles: Of the exchange between stages in that time.
        all_reduce_cycles: Sums of gradients over replicas.
        update_cycles: Updates of the weights on the IPU that takes longest.
        streaming_cycles: The optimiser's state from streaming memory and back.
        ramp_cycles: Extra cycles of ticks in which the pipeline fills and empties, over those of as many full ones as
            there are micro-batches.
        ipu_bytes: Bytes on the fullest tile of each IPU.
        available_bytes: Bytes that a tile has.
        samples_per_second: Of all replicas.
    """

    cycles: int
    stage_cycles: tuple[int, ...]
    tick_cycles: int
    host_cycles: int
    exchange_cycles: int
    all_reduce_cycles: int
    update_cycles: int
    streaming_cycles: int
    ramp_cycles: int
    ipu_bytes: tuple[int, ...]
    available_bytes: int
    samples_per_second: float

    def shares(self, plan: Spreading) -> dict[str, float]:
        """IPU cycles per sample, by use; together they are all cycles of the IPUs in use."""
        per_sample = plan.num_ipus / plan.batch
        rounds, mean = plan.accumulation, sum(self.stage_cycles) / plan.ipus
        return {
            "work": mean * rounds * per_sample,
            "imbalance": (self.tick_cycles - mean) * rounds * per_sample,
            "exchange": self.exchange_cycles * rounds * per_sample,
            "bubble": self.ramp_cycles * per_sample,
            "all_reduce": self.all_reduce_cycles * per_sample,
            "update": self.update_cycles * per_sample,
            "streaming": self.streaming_cycles * per_sample,
        }


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A plan that fits, with its place in the ranking.

    Attributes:
        plan: The plan.
        estimate: Expected cost of it.
        reason: Why it is not the best; empty for the one that is.
        compiled: Result of compiling it for real, where that was done.
    """

    plan: Spreading
    estimate: Estimate
    reason: str = ""
    compiled: Compilation | None = None


@dataclass(frozen=True, kw_only=True)
class Miss:
    """Plan that comes nearest to fitting, of its kind.

    Attributes:
        plan: The plan.
        stage: The stage that lacks most.
        needed_bytes: Bytes that the fullest tile of its IPU needs.
        available_bytes: Bytes that a tile has.
        product_bytes: The most that temporaries of a product and what goes with it take, without activations.
        parts: Parts of that tile's memory, in words, with bytes, most first.
    """

    plan: Spreading
    stage: int
    needed_bytes: int
    available_bytes: int
    product_bytes: int
    parts: dict[str, int]

    @property
    def lacking_bytes(self) -> int:
        """Bytes that the tile lacks."""
        return self.needed_bytes - self.available_bytes

    @property
    def largest(self) -> str:
        """Largest parts of the tile's memory, in words."""
        return ", ".join(f"{name} {size / 1000:,.0f} KB" for name, size in list(self.parts.items())[:3] if size >= 500)


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """A plan that was compiled as a whole.

    Attributes:
        cycles: One update; None where it could not be compiled.
        ipu_bytes: Bytes on the fullest tile of each IPU of a replica.
        fits: True if every tile has room.
        problem: Why it was not compiled, or what differs from the plan.
        seconds: Time that compiling took.
    """

    cycles: int | None
    ipu_bytes: tuple[int, ...] = ()
    fits: bool = False
    problem: str = ""
    seconds: float = 0.0


def spread_words(ipus: int, replicas: int, group: int) -> str:
    """IPUs of a replica and replicas, and how many of these compute a model together, as a cell of a table."""
    return f"{ipus} x {replicas}" + (f" by {group}" if group > 1 else "")


def plan_dict(plan: Spreading) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        "ipus_per_replica": plan.ipus,
        "replicas_per_model": plan.group,
        "replicas": plan.replicas,
        "micro_batch": plan.micro_batch,
        "accumulation": plan.accumulation,
        "batch": plan.batch,
        "cuts": list(plan.cuts),
        "last_stage_on_first_ipu": plan.returns,
        "recompute": plan.recompute.value,
        "optimiser_state": plan.state.value,
        "memory_proportions": list(plan.proportions),
        "shared_functions": plan.shared_functions,
        "schedule": "interleaved" if plan.turns else "grouped",
        "narrow_stash": plan.narrow_stash,
        "activations_off_chip": plan.waits_off_chip,
        "checkpoints": list(plan.checkpoints),
        "io_tiles": plan.io_tiles,
        "phases": plan.phases,
    }
