"""Schedules: how one run goes over its micro-batches, and what it returns of them.

The border to sessions: a schedule is what the device loops over, and is compiled in; how the host cuts its batches into
micro-batches and joins their results is :mod:`abele.session.feeds`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import cached_property

import numpy as np

from abele.errors import GraphReplicationError, InvalidOptionError, TypeMismatchError
from abele.network.locations import AS_USUAL, Locations
from abele.network.split import Split
from abele.numerics import ElementType, as_element_type
from abele.poplibs.gcl import CommGroup


class OutputMode(Enum):
    """Choice of the micro-batches of a run that the host gets."""

    ALL = "all"
    FINAL = "final"
    EVERY_N = "every_n"
    SUM = "sum"


class MeanStrategy(StrEnum):
    """Time at which the mean of gradients is taken over the micro-batches of an update.

    ``POST`` divides sums by their number: float32 sums are made of shares, which comes to the same, and float16 sums
    are divided by the update. ``RUNNING`` keeps the mean of the micro-batches so far, which is no larger than they are.
    """

    POST = "post"
    RUNNING = "running"


class PipelineSchedule(StrEnum):
    """Choice of the stages of a pipeline that run at the same time while networks are trained.

    ``GROUPED``: all stages run at the same time, forward and backward ones. ``INTERLEAVED``: forward and backward
    stages take turns on each IPU, so that about half as many micro-batches are on their way; where the backward pass
    takes longer than the forward pass, IPUs may wait for those that run backward. ``SEQUENTIAL``: one stage after the
    other, to keep nothing.
    """

    GROUPED = "grouped"
    INTERLEAVED = "interleaved"
    SEQUENTIAL = "sequential"

    def stride(self, stages: int) -> int:
        """Ticks from one micro-batch to the next, in a pipeline of so many stages."""
        return {PipelineSchedule.GROUPED: 1, PipelineSchedule.INTERLEAVED: 2, PipelineSchedule.SEQUENTIAL: stages}[self]


def _schedule_of(given: str) -> PipelineSchedule:
    try:
        return PipelineSchedule(given)
    except ValueError:
        raise InvalidOptionError(
            f"a schedule's pipeline is {', '.join(map(repr, map(str, PipelineSchedule)))}, not {given!r}"
        ) from None


def _stash_of(given: object) -> ElementType:
    found = as_element_type(given)
    if not found.is_quarter:
        raise TypeMismatchError(
            f"activations cannot wait as {found}",
            because="a stash has them as they are, or as 8-bit floats",
            remedy='stash=None, quarter("F143", scale) or quarter("F152", scale)',
        )
    return found


@dataclass(frozen=True)
class Anchor:
    """A tensor inside a network that the host gets.

    Attributes:
        tensor: Its name: that of an input, parameter or buffer; ``gradient/`` or ``updated/`` and the name of a
            parameter, for its gradient or for its value after each update; ``updated/`` and the name of an optimiser's
            state on the chip; or the name of a variable.
        outputs: Choice of the micro-batches that come back; of an updated parameter, of updates.
        period: For :attr:`OutputMode.EVERY_N`, every how many.
    """

    tensor: str
    outputs: OutputMode = OutputMode.ALL
    period: int = 1


UPDATED, GRADIENT = "updated/", "gradient/"
"""Prefixes of the name of a parameter in the name of an anchor."""


EACH_ITS_OWN = CommGroup.none()
"""Groups of one replica each."""


@dataclass(frozen=True)
class Schedule:
    """Schedule of one run over its micro-batches, on one replica of the network or on several side by side.

    Every replica goes through the same loops with micro-batches of its own. Gradients are reduced over all replicas
    before an update, so that all keep the same parameters.

    Attributes:
        device_iterations: Weight updates (or inference batches) per run.
        accumulation: Micro-batches on each replica whose gradients make one update.
        mean: True if the update uses the mean over them and over replicas; otherwise the sum.
        outputs: Choice of the micro-batches that the host gets.
        period: For :attr:`OutputMode.EVERY_N`, every how many.
        strategy: Time at which the mean of gradients is taken.
        anchors: Tensors inside that come back as well.
        replicas: Copies of the network that run side by side.
        input_groups: Replicas that are given the same inputs; by default each has its own.
        own_values: Parameters and buffers, by name, of which each group of replicas has values of its own.
        every_replica: Names of those of which the host has a row for each replica, in place of one for each group.
        tensor_parallel: Replicas that compute one model together: they are given the same inputs, draw the same random
            numbers, and what they have alike counts once, in gradients and among the outputs.
        expert_parallel: Replicas that have parts of some weights, and exchange what these work on: inputs differ, and a
            part's gradient is of all of them.
        splits: Splits of the host's arrays of some of ``own_values`` into those of the groups; others have a row for
            each group.
        ranks: Processes that execute equally many consecutive replicas each. Batches are those of one process's own.
        io_tiles: Tiles of each IPU that compute nothing, but load the next micro-batch's inputs and send the last one's
            outputs while the others run; without them transfers and runs take turns.
        pipeline: Choice of stages that run at the same time, where the network has several and is trained; inference
            is grouped.
        locations: Places of the tensors that are kept.
        stash: The 8-bit float, by :func:`~abele.numerics.quarter`, as which activations wait for the backward pass of
            their stage of a pipeline, or of their phase; None for what they are. What the forward pass reads, and what
            is no float, waits as it is.

    Raises:
        InvalidOptionError: A count that is no positive whole number.
        TypeMismatchError: A stash of another element type than 8-bit floats.
        GraphReplicationError: Groups into which the replicas do not divide; replicas of several ranks that share state;
            different inputs in one tensor-parallel group.
    """

    device_iterations: int = 1
    accumulation: int = 1
    mean: bool = True
    outputs: OutputMode = OutputMode.ALL
    period: int = 1
    strategy: MeanStrategy = MeanStrategy.POST
    anchors: tuple[Anchor, ...] = ()
    replicas: int = 1
    input_groups: CommGroup = EACH_ITS_OWN
    own_values: tuple[tuple[str, CommGroup], ...] = ()
    every_replica: tuple[str, ...] = ()
    ranks: int = 1
    tensor_parallel: CommGroup = EACH_ITS_OWN
    expert_parallel: CommGroup = EACH_ITS_OWN
    splits: tuple[tuple[str, Split], ...] = ()
    pipeline: PipelineSchedule = PipelineSchedule.GROUPED
    io_tiles: int = 0
    locations: Locations = AS_USUAL
    stash: ElementType | None = None

    def __post_init__(self) -> None:
        for name in ("device_iterations", "accumulation", "period", "replicas", "ranks"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise InvalidOptionError(f"a schedule's {name} is a positive whole number, not {count!r}")
        object.__setattr__(self, "pipeline", _schedule_of(self.pipeline))
        object.__setattr__(self, "stash", None if self.stash is None else _stash_of(self.stash))
        if isinstance(self.io_tiles, bool) or not isinstance(self.io_tiles, int) or self.io_tiles < 0:
            raise InvalidOptionError(f"a schedule's io_tiles is a whole number, not {self.io_tiles!r}")
        for group in (
            self.input_groups,
            self.tensor_parallel,
            self.expert_parallel,
            *(group for _, group in self.own_values),
        ):
            group.members(self.replicas)
        if self.replicas % self.ranks:
            raise GraphReplicationError(f"{self.replicas} replicas cannot be shared by {self.ranks} ranks")
        if self.ranks > 1:
            self.input_groups.members(self.own_replicas)
        self._check_inputs()
        if self.ranks > 1:
            self._check_own_values()
        if self.ranks > 1 and self.locations.optimiser.sharded:
            raise GraphReplicationError(
                f"replicas of {self.ranks} ranks cannot share the state of optimisers",
                because="each process reads the state of its own replicas alone, which would be a part of each tensor",
                remedy="all replicas in one process, or TensorLocation(sharded=False)",
            )

    def _check_inputs(self) -> None:
        """Raise unless the replicas of each tensor-parallel group are given the same inputs."""
        input_of = np.asarray(self.input_groups.members(self.replicas))
        inputs = np.argsort(input_of.ravel()) // input_of.shape[1]
        group = self.tensor_parallel.members(self.replicas)
        if (inputs[group] != inputs[group][:, :1]).any():
            raise GraphReplicationError(
                f"replicas {', '.join(map(str, group[0]))} compute one model together, and are given different inputs",
                because=f"the input groups are {self.input_groups.kind} groups of {input_of.shape[1]}",
                remedy=f"input groups as the tensor-parallel ones: {self.tensor_parallel.kind} groups of "
                f"{group.shape[1]}",
            )

    def _check_own_values(self) -> None:
        """Raise unless every process has whole models, and a replica of each group that has values of its own."""
        models = self.tensor_parallel.members(self.replicas) // self.own_replicas
        if (models != models[:, :1]).any():
            raise GraphReplicationError(
                f"replicas that compute one model together are in several of the {self.ranks} processes",
                remedy="groups of consecutive replicas whose size divides those of one process",
            )
        for name, group in self.own_values:
            found = group.members(self.replicas) // self.own_replicas
            if any(len(np.unique(row)) < self.ranks for row in found):
                raise GraphReplicationError(
                    f"groups of replicas have values of their own of {name!r}, and some process has no replica of one",
                    because=f"{self.ranks} processes have {self.own_replicas} replicas each",
                    remedy="all replicas in one process, or the same values in all",
                )

    @property
    def own_replicas(self) -> int:
        """Replicas that one process executes; all of them where there is one process."""
        return self.replicas // self.ranks

    def of_anchor(self, anchor: Anchor) -> Schedule:
        """The schedule by which an anchor comes back."""
        accumulation = 1 if anchor.tensor.startswith(UPDATED) else self.accumulation
        return replace(self, accumulation=accumulation, outputs=anchor.outputs, period=anchor.period, anchors=())

    @property
    def rounds(self) -> int:
        """Micro-batches of one run on each replica."""
        return self.device_iterations * self.accumulation

    @cached_property
    def micro_batches(self) -> int:
        """Micro-batches that the host sends for one run."""
        return self.rounds * len(self.input_groups.members(self.own_replicas))

    @property
    def sent_back(self) -> int:
        """Micro-batches of which the replicas of a host send outputs."""
        counts = {OutputMode.ALL: self.rounds, OutputMode.EVERY_N: self.rounds // self.period}
        return counts.get(self.outputs, 1) * (1 if self.sends_once else self.own_replicas)

    @property
    def sends_once(self) -> bool:
        """True if one replica sends the outputs of all: they compute one model together, in one process.

        Of several models each replica sends its own, and the host keeps those of :attr:`speakers`.
        """
        return self.ranks == 1 and self.own_replicas > 1 and len(self.speakers) == 1

    @property
    def returned(self) -> int:
        """Micro-batches of which a host gets outputs: one for all replicas of a tensor-parallel group."""
        return self.sent_back if self.sends_once else self.sent_back // self._model_replicas

    @property
    def _model_replicas(self) -> int:
        """Replicas that compute one model together."""
        return int(self.tensor_parallel.members(self.own_replicas).shape[1])

    @cached_property
    def speakers(self) -> tuple[int, ...]:
        """Replicas whose outputs the host gets: the first of each tensor-parallel group, of those of one process."""
        return tuple(sorted(int(n) for n in self.tensor_parallel.members(self.own_replicas)[:, 0]))

    @cached_property
    def model_of(self) -> tuple[int, ...]:
        """Model of each replica, by number, of those that replicas compute together."""
        members = self.tensor_parallel.members(self.replicas)
        return tuple(int(n) for n in np.argsort(members.ravel()) // members.shape[1])

    @property
    def exchanged(self) -> tuple[str, ...]:
        """Parameters of which replicas of an expert-parallel group have parts."""
        alone = self.expert_parallel.members(self.replicas).shape[1] == 1
        return () if alone else tuple(name for name, _ in self.splits)

    @property
    def parts_group(self) -> CommGroup:
        """Replicas that have all parts of split parameters together."""
        return self.expert_parallel if self.exchanged else self.tensor_parallel

    @property
    def data_parallel(self) -> CommGroup:
        """Replicas that have the same part of each model, and so the same values of all parameters.

        Raises:
            GraphReplicationError: Tensor-parallel groups of a kind for which there are none.
        """
        size = self.tensor_parallel.members(self.replicas).shape[1]
        return data_parallel_groups(self.tensor_parallel, self.replicas) if size > 1 else CommGroup.all()

    @property
    def shares_inputs(self) -> bool:
        """True if some replicas are given the same inputs."""
        return self.micro_batches < self.rounds * self.own_replicas

    @cached_property
    def input_of(self) -> tuple[int, ...]:
        """Micro-batch of a round for each replica."""
        members = self.input_groups.members(self.own_replicas)
        return tuple(np.argsort(members.ravel()) // members.shape[1])

    def split_of(self, name: str) -> Split | None:
        """Split of the host's array of a parameter into parts; of its state, too."""
        return next((cut for owner, cut in self.splits if name == owner or name.startswith(f"{owner}/")), None)

    def group_of(self, name: str) -> CommGroup | None:
        """The groups of replicas that have values of their own of a parameter or buffer; None where all have the same.

        What belongs to a parameter, such as ``name/momentum``, is grouped as it is.
        """
        return next((group for owner, group in self.own_values if name == owner or name.startswith(f"{owner}/")), None)


def check_stash(schedule: Schedule, *, waits: bool) -> None:
    """Raise unless a network has activations that wait as the schedule says.

    Args:
        schedule: The schedule.
        waits: True if the network has stages of a pipeline, or phases.

    Raises:
        InvalidOptionError: Activations are to wait as 8-bit floats, and the network has neither.
    """
    if schedule.stash is not None and not waits:
        raise InvalidOptionError(
            f"no activations wait as {schedule.stash}: the network is no pipeline and has no phases",
            because="a stash has what waits between a stage of a pipeline, or a phase, and its backward pass",
            remedy="stash=None, a pipeline, or phases",
        )


def data_parallel_groups(tensor_parallel: CommGroup, replicas: int) -> CommGroup:
    """The groups that cross tensor-parallel ones: replicas of the same rank in these.

    Raises:
        GraphReplicationError: Groups of another kind than consecutive and orthogonal ones, or all replicas.
    """
    size = tensor_parallel.members(replicas).shape[1]
    if tensor_parallel.kind in ("CONSECUTIVE", "ALL"):
        return CommGroup.orthogonal(replicas // size)
    if tensor_parallel.kind == "ORTHOGONAL":
        return CommGroup.consecutive(replicas // size)
    raise GraphReplicationError(
        f"{tensor_parallel.kind} groups of replicas cannot compute models together",
        remedy="CommGroup.consecutive(n) or CommGroup.orthogonal(n)",
    )
