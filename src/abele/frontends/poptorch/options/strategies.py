"""Execution strategies: the stage of each block of a model, its IPU and its phase.

:mod:`.placement` makes places from a strategy and the blocks that a model goes through.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from abele.frontends.poptorch.enums import AutoStage, Liveness
from abele.frontends.poptorch.errors import CheckError, OptionValueError
from abele.frontends.poptorch.options.checked import Freezable
from abele.frontends.poptorch.program.blocks import BlockName, block_name


class Stage:
    """Blocks that run one after the other on one IPU.

    Args:
        *block_ids: The blocks.
    """

    def __init__(self, *block_ids: BlockName) -> None:
        self._blocks = tuple(map(block_name, block_ids))
        self._stage_id = -1
        self._phase_id = -1
        self._ipu_id: int | None = None

    @property
    def blocks(self) -> list[str]:
        """The blocks' names."""
        return list(self._blocks)

    def ipu(self, ipu: int) -> Self:
        """Run on this IPU."""
        if isinstance(ipu, bool) or not isinstance(ipu, int) or ipu < 0:
            raise CheckError(f"an IPU is a whole number from 0 on, got {ipu!r}")
        self._ipu_id = ipu
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stage) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        ipu = "" if self._ipu_id is None else f".ipu({self._ipu_id})"
        return f"Stage({', '.join(map(repr, self._blocks))}){ipu}"


class Phase:
    """Stages that run at the same time.

    Args:
        *stages: Stages, or names of blocks that make a stage each; or one list of them.
    """

    def __init__(self, *stages: Stage | BlockName | list[Any] | tuple[Any, ...]) -> None:
        given = tuple(stages[0]) if len(stages) == 1 and isinstance(stages[0], (list, tuple)) else stages
        if all(isinstance(item, str | int) for item in given):
            self.stages = [Stage(*given)]  # type: ignore[arg-type]  # all are names
        elif all(isinstance(item, Stage) for item in given):
            self.stages = list(given)  # type: ignore[arg-type]  # all are stages
        else:
            raise CheckError(f"a phase takes either stages or names of blocks, got {given!r}")

    def stage(self, index: int) -> Stage:
        """Stage of the phase by its number."""
        return self.stages[index]

    def ipus(self, *ipus: int) -> Self:
        """Run each stage on one of these IPUs, in order."""
        if len(ipus) != len(self.stages):
            raise CheckError(f"Phase contains {len(self.stages)} stages but you provided {len(ipus)} ipus")
        for stage, ipu in zip(self.stages, ipus, strict=True):
            stage.ipu(ipu)
        return self

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


class ExecutionStrategy(Freezable):
    """Base of the strategies: blocks by stage."""

    mode: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self._block_map: dict[str, Stage] = {}

    def _add(self, stage: Stage, *, stage_id: int, phase_id: int = -1) -> None:
        stage._stage_id, stage._phase_id = stage_id, phase_id
        for block in stage.blocks:
            if block in self._block_map:
                raise CheckError(f"{block} has already been assigned to a stage")
            self._block_map[block] = stage

    def stage(self, block_id: BlockName) -> Stage:
        """The stage of a block."""
        name = block_name(block_id)
        if name not in self._block_map:
            raise CheckError(
                f"Unknown block {name!r}",
                because=f"the strategy's blocks are {', '.join(self._block_map) or 'none'}",
            )
        return self._block_map[name]

    def stage_of(self, block_id: BlockName, ipu_id: int | None) -> int:
        """Number of the stage of a block that asks for an IPU, or for none."""
        return self.stage(block_id)._stage_id

    @property
    def listed(self) -> dict[str, Stage]:
        """The stage of each block that is named in advance."""
        return self._block_map

    def backendOptions(self) -> dict[str, Any]:
        """The strategy as entries of the options."""
        return {"execution_mode": self.mode}

    def __repr__(self) -> str:
        stages = dict.fromkeys(map(repr, self._block_map.values()))
        return f"{type(self).__name__}({', '.join(stages)})"


class ShardedExecution(ExecutionStrategy):
    """Stages run one after the other, each on its IPU.

    Args:
        *args: Stages; names of blocks that make a stage each; or how blocks that no stage names are put on stages.
    """

    mode = 1

    def __init__(self, *args: AutoStage | BlockName | Stage) -> None:
        super().__init__()
        self._auto_stage = AutoStage.SameAsIpu
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self._auto_stage = args[0]
            args = ()
        if not all(isinstance(arg, str | int | Stage) and not isinstance(arg, AutoStage) for arg in args):
            raise CheckError(f"a strategy takes stages, names of blocks, or one AutoStage, got {args!r}")
        for number, arg in enumerate(args):
            self._add(arg if isinstance(arg, Stage) else Stage(arg), stage_id=number)
        self._fixed = bool(args)

    @property
    def automatic(self) -> AutoStage | None:
        """Rule that puts blocks on stages, where no stages are listed."""
        return None if self._fixed else self._auto_stage

    def stage(self, block_id: BlockName) -> Stage:
        """The stage of a block; where none was listed, one is made for each block."""
        if not self._fixed and block_name(block_id) not in self._block_map:
            self._add(Stage(block_id), stage_id=len(self._block_map))
        return super().stage(block_id)

    def stage_of(self, block_id: BlockName, ipu_id: int | None) -> int:
        """Number of the listed stage; else, as was chosen, of the block's IPU, or one more than of those before."""
        if not self._fixed and self._auto_stage == AutoStage.SameAsIpu and ipu_id is not None:
            return ipu_id
        return self.stage(block_id)._stage_id


class PipelinedExecution(ShardedExecution):
    """Stages run at the same time on successive micro-batches, each on its IPU."""

    mode = 0

    def in_turn(self) -> ShardedExecution:
        """The same stages, run one after the other."""
        made = ShardedExecution(self._auto_stage)
        made._block_map, made._fixed = self._block_map, self._fixed
        return made


class PhasedExecution(ExecutionStrategy):
    """Base of the strategies that run phases one after the other and keep tensors in between outside the IPU.

    Args:
        *phases: Phases; or what makes one each: a stage, a list of stages, names of blocks.
    """

    mode = 2
    serial: ClassVar[bool]

    @property
    def sends_off_chip(self) -> bool:
        """True if what waits for later phases than the next leaves the IPU."""
        raise NotImplementedError

    def __init__(self, *phases: Phase | Stage | BlockName | list[Any] | tuple[Any, ...]) -> None:
        super().__init__()
        self._phases = [phase if isinstance(phase, Phase) else Phase(phase) for phase in phases]
        self._separate_backward_phase = False
        for number, stage, phase in self._numbered():
            self._add(stage, stage_id=number, phase_id=phase)

    @property
    def num_phases(self) -> int:
        """Number of phases."""
        return len(self._phases)

    def _numbered(self) -> Iterator[tuple[int, Stage, int]]:
        stages = [(stage, number) for number, phase in enumerate(self._phases) for stage in phase.stages]
        yield from ((number, stage, phase) for number, (stage, phase) in enumerate(stages))

    def phase(self, phase: int) -> Phase:
        """Phase by its number."""
        if not isinstance(phase, int) or not 0 <= phase < len(self._phases):
            raise CheckError(f"phase {phase!r} does not exist: there are {len(self._phases)}")
        return self._phases[phase]

    def useSeparateBackwardPhase(self, use: bool = True) -> Self:
        """Run the backward pass of the last phase as a phase of its own."""
        self._check_writable()
        if not isinstance(use, bool):
            raise CheckError(f"useSeparateBackwardPhase takes true or false, got {use!r}")
        self._separate_backward_phase = use
        return self

    def backendOptions(self) -> dict[str, Any]:
        """The strategy as entries of the options."""
        return {
            **super().backendOptions(),
            "separate_backward_phase": self._separate_backward_phase,
            "serial_phases_execution": self.serial,
        }


class ParallelPhasedExecution(PhasedExecution):
    """Phases whose stages alternate between two groups of IPUs."""

    serial = False

    def __init__(self, *phases: Phase | Stage | BlockName | list[Any] | tuple[Any, ...]) -> None:
        super().__init__(*phases)
        self._off_chip_after_forward = True
        sizes = [len(phase.stages) for phase in self._phases]
        if len(set(sizes)) > 1:
            raise CheckError(f"phases of a parallel execution have as many stages as each other, got {sizes}")
        for number, phase in enumerate(self._phases):
            for index, stage in enumerate(phase.stages):
                stage._ipu_id = 2 * index + number % 2 if stage._ipu_id is None else stage._ipu_id

    @property
    def sends_off_chip(self) -> bool:
        """True if tensors are sent off chip; see :meth:`sendTensorsOffChipAfterFwd`."""
        return self._off_chip_after_forward

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> Self:
        """Keep tensors that the backward pass needs outside the IPU."""
        self._check_writable()
        if not isinstance(off_chip, bool):
            raise CheckError(f"sendTensorsOffChipAfterFwd takes true or false, got {off_chip!r}")
        self._off_chip_after_forward = off_chip
        return self

    def backendOptions(self) -> dict[str, Any]:
        """The strategy as entries of the options."""
        liveness = Liveness.OffChipAfterFwd if self._off_chip_after_forward else Liveness.AlwaysLive
        return {**super().backendOptions(), "tensors_liveness": int(liveness)}


class SerialPhasedExecution(PhasedExecution):
    """Phases that follow each other on the same IPUs."""

    serial = True

    def __init__(self, *phases: Phase | Stage | BlockName | list[Any] | tuple[Any, ...]) -> None:
        super().__init__(*phases)
        self._tensors_liveness = Liveness.AlwaysLive

    @property
    def sends_off_chip(self) -> bool:
        """As :meth:`setTensorsLiveness` says: unless tensors are always live."""
        return self._tensors_liveness != Liveness.AlwaysLive

    def setTensorsLiveness(self, liveness: Liveness) -> Self:
        """Set the place of tensors when their phase is over."""
        self._check_writable()
        if not isinstance(liveness, Liveness):
            raise CheckError(f"setTensorsLiveness takes a poptorch.Liveness, got {liveness!r}")
        self._tensors_liveness = liveness
        return self

    def backendOptions(self) -> dict[str, Any]:
        """The strategy as entries of the options."""
        return {**super().backendOptions(), "tensors_liveness": int(self._tensors_liveness)}


def check_strategy(strategy: object) -> ExecutionStrategy:
    """The strategy itself.

    Raises:
        OptionValueError: It is none.
    """
    if not isinstance(strategy, ExecutionStrategy):
        raise OptionValueError(f"setExecutionStrategy takes an execution strategy, got {strategy!r}")
    return strategy
