"""Placing: the blocks of a model on the IPUs of the machine that the options ask for."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from abele.errors import MachineError, StageOrderError
from abele.frontends.poptorch.capture.block_places import BlockPlaces
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.options.placement import BlockPlacement, check_pipeline, ipus_of_replica, placed
from abele.frontends.poptorch.program.blocks import BlockRecord
from abele.machine import System, systems
from abele.network import Place
from abele.network.ir import PlanHint
from abele.session import Settings
from abele.session.settings import DEFAULT_SYSTEM
from abele.words import counted


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
