"""Placement: the IPU, the stage and the phase of each block of a model, as its strategy says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from abele.errors import StageOrderError
from abele.frontends.poptorch import logs
from abele.frontends.poptorch.enums import AutoStage
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.options.strategies import (
    ExecutionStrategy,
    PhasedExecution,
    PipelinedExecution,
    ShardedExecution,
    Stage,
)
from abele.frontends.poptorch.program.blocks import BegunBlock
from abele.network import Place
from abele.words import counted

Named = TypeVar("Named")


@dataclass(frozen=True)
class BlockPlacement:
    """Places of the blocks of a model.

    Attributes:
        blocks: The blocks, in the order in which they first begin.
        places: Place of each block.
        again: Numbers of blocks that begin once more, and where in the user's source.
        leading: The first op before the first block, if there are any: they are in stage 0, on IPU 0.
    """

    blocks: tuple[BegunBlock, ...] = ()
    places: tuple[Place, ...] = ()
    again: tuple[tuple[int, str], ...] = ()
    leading: str = ""

    @property
    def num_ipus(self) -> int:
        """IPUs of a replica: one more than the highest number."""
        return 1 + max((place.ipu for place in self.places), default=0)

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline's forward pass; one if it is none."""
        return 1 + max((place.pipeline_stage for place in self.places), default=0)

    def explained(self, error: StageOrderError) -> Error:
        """Error for the user about stages in the wrong order: it names their blocks."""
        reads, makes = self._stage_text(error.stage), self._stage_text(error.made_in)
        rule = "micro-batches go through the stages of a pipeline in the order of their numbers"
        again = [f"block {self.blocks[n]} begins again at {where}" for n, where in self.again]
        return Error(
            f"Cyclic placement: {error.kind} in {reads} reads what {makes} computes",
            at=error.at,
            because="\n".join([rule, *again]),
            remedy="number stages in the order in which forward runs their blocks, or use poptorch.ShardedExecution",
        )

    def _stage_text(self, stage: int) -> str:
        members = zip(self.blocks, self.places, strict=True)
        names = [str(block) for block, place in members if place.pipeline_stage == stage]
        return f"stage {stage} ({'block ' + ', '.join(names) if names else 'before the first block'})"


def placed(
    strategy: ExecutionStrategy,
    blocks: Sequence[BegunBlock],
    again: Iterable[tuple[int, str]] = (),
    *,
    leading: str = "",
) -> BlockPlacement:
    """Places of the blocks of a model by a strategy.

    Args:
        strategy: The strategy.
        blocks: The blocks that the model went through.
        again: Blocks that began several times; see :class:`BlockPlacement`.
        leading: The first op before the first block, if there are any.

    Raises:
        Error: A listed block that the model does not go through; a stage on several IPUs.
        CheckError: A block that the strategy does not list.
    """
    if isinstance(strategy, ShardedExecution) and strategy.automatic is not None:
        stages = _automatic(strategy, blocks, bool(leading))
    else:
        stages = [_Assigned.of(strategy.stage(block.name), block, strategy) for block in blocks]
        _check_run(strategy, blocks)
    pipelined = isinstance(strategy, PipelinedExecution)
    # Ops before the first block are in stage 0, on IPU 0.
    homes: dict[int, int] = {0: 0} if leading and pipelined else {}
    order = {number: place for place, number in enumerate(sorted({*homes, *(s.number for s in stages)}))}
    places = [Place(s.ipu, order[s.number] if pipelined else 0, max(s.phase, 0)) for s in stages]
    for block, stage in zip(blocks, stages, strict=True):
        if homes.setdefault(stage.number, stage.ipu) != stage.ipu:
            raise _on_two_ipus(block, stage, homes[stage.number], leading if homes[stage.number] == 0 else "")
    return BlockPlacement(tuple(blocks), tuple(places), tuple(again), leading)


def _on_two_ipus(block: BegunBlock, stage: _Assigned, other: int, leading: str) -> Error:
    if stage.number == 0 and leading:
        return Error(
            f"Block {block} of stage 0 is on IPU {stage.ipu}, and what comes before the first block is in stage 0, "
            f"too, on IPU {other}",
            at=block.location or None,
            because=f"before it comes {leading}",
            remedy="begin the block before the first operation, or list it on IPU 0",
        )
    return Error(
        f"Block {block} of stage {stage.number} is on IPU {stage.ipu}, and others of the stage on IPU {other}",
        at=block.location or None,
        remedy="the blocks of a stage run on one IPU: make another stage of it",
    )


@dataclass(frozen=True)
class _Assigned:
    """Stage, IPU and phase of a block.

    Attributes:
        number: Number of its stage.
        ipu: The IPU that the stage runs on.
        phase: Phase in which it runs; below zero where there are none.
    """

    number: int
    ipu: int
    phase: int = -1

    @classmethod
    def of(cls, stage: Stage, block: BegunBlock, strategy: ExecutionStrategy) -> _Assigned:
        """That of a listed stage: on the IPU that it names, or its blocks do, or that has its number."""
        default = number = strategy.stage_of(block.name, block.ipu)
        if isinstance(strategy, PhasedExecution):
            default = strategy.phase(stage._phase_id).stages.index(stage)
        return cls(number, _first(stage._ipu_id, block.ipu, default), stage._phase_id)


def _automatic(strategy: ShardedExecution, blocks: Sequence[BegunBlock], leads: bool) -> list[_Assigned]:
    """A stage for each block, or one for all of an IPU; the first has what leads it, if it is on IPU 0."""
    made: list[_Assigned] = []
    # Without places for its blocks, each has an IPU of its own.
    silent = all(block.ipu is None and _said(strategy, block) is None for block in blocks)
    number = 0
    for block in blocks:
        asked = _first(_said(strategy, block), block.ipu, None)
        if strategy.automatic == AutoStage.AutoIncrement or silent:
            number += leads and not made and asked not in (None, 0)
            made.append(_Assigned(number, number if asked is None else asked))
            number += 1
        else:
            ipu = _first(asked, made[-1].ipu if made else 0)
            made.append(_Assigned(ipu, ipu))
    return made


def _said(strategy: ShardedExecution, block: BegunBlock) -> int | None:
    """The IPU of a stage that the user asked the strategy for, in order to put it there."""
    stage = strategy.listed.get(block.name)
    return None if stage is None else stage._ipu_id


def _first(*values: Named | None) -> Named:
    """The first that is not None; the last, if all are."""
    return next((v for v in values if v is not None), values[-1])  # type: ignore[return-value]  # callers end with one


def _check_run(strategy: ExecutionStrategy, blocks: Sequence[BegunBlock]) -> None:
    """Raise if a block is listed that the model does not go through."""
    names = {block.name for block in blocks}
    missing = [repr(name) for name in strategy.listed if name not in names]
    if missing:
        raise Error(
            f"the model never runs {'block' if len(missing) == 1 else 'blocks'} {', '.join(missing)}, which the "
            "execution strategy lists",
            because=f"its forward goes through {', '.join(map(str, blocks)) or 'no block'}",
            remedy="let forward begin it, or take it out of the strategy",
        )


def ipus_of_replica(num_ipus: int, *, rounded: bool) -> int:
    """IPUs that are reserved for each replica. Rounding causes a warning.

    Args:
        num_ipus: IPUs that the model uses.
        rounded: True if that may be rounded up to what can be reserved.

    Raises:
        Error: It is no power of two, and may not be rounded.
    """
    whole = 1 << (num_ipus - 1).bit_length()
    if whole == num_ipus:
        return whole
    reason = "PopTorch must reserve a power of 2 or maximum of 64 IPUs per process"
    if not rounded:
        raise Error(
            f"The model specifies the use of {num_ipus} IPUs, however PopTorch must reserve a minimum of {whole} in "
            f"order to allow the model to run, because {reason}. Please reconfigure your model to use a different "
            "number of IPUs or set poptorch.Options().autoRoundNumIPUs(True).",
            because=f"each replica has the IPUs that blocks name, from 0 to {num_ipus - 1}",
        )
    logs.warn(
        f"Reserving {whole} IPUs when the model specifies the use of only {num_ipus}. This is because {reason}, and "
        f"poptorch.Options().autoRoundNumIPUs is set: {counted(whole - num_ipus, 'IPU')} will not be used."
    )
    return whole


def check_pipeline(stages: int, *, accumulation: int, device_iterations: int, training: bool) -> None:
    """Raise unless a run has enough micro-batches to fill a pipeline.

    Args:
        stages: Stages of the model's forward pass.
        accumulation: Micro-batches whose gradients make one update.
        device_iterations: Weight updates, or batches of inference, of one call.
        training: True if the backward pass has its stages, too.

    Raises:
        Error: It has not.
    """
    if stages < 2:
        return
    if not training:
        if device_iterations < stages:
            raise Error(
                "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
                f"({stages}) when using poptorch.PipelinedExecution."
            )
        return
    whole = 2 * stages - 1
    if accumulation < whole:
        raise Error(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of pipeline "
            f"stages ({whole}) when using poptorch.PipelinedExecution. Please note that a model with {stages} pipeline "
            f"stages in PopTorch will have an additional {stages - 1} stages when training."
        )
