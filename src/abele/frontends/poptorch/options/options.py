"""``poptorch.Options``."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.enums import CommGroupType, ConnectionType, OutputMode, SyncPattern
from abele.frontends.poptorch.errors import CheckError
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.frontends.poptorch.options.execution import AbeleOptions
from abele.frontends.poptorch.options.precision import PrecisionOptions
from abele.frontends.poptorch.options.training import TrainingOptions
from abele.machine import System
from abele.options import UNSET, Option, OptionTable, flag, integer, text
from abele.session import Settings
from abele.session.settings import Share


class Options(CheckedOptions):
    """Everything about a model that is not in its code. Setters return the options, so that they chain.

    Attributes:
        Training: Gradient accumulation.
        Precision: Arithmetic.
        Abele: The machine that is modelled, and how programs run on the host.
    """

    table: ClassVar[OptionTable] = OptionTable(
        "Options",
        {
            "replication_factor": integer(1, 1, 1, doc="data-parallel copies"),
            "input_group_size": integer(1, 1, 1, honoured=False, doc="replicas that share an input: there is one"),
            "broadcast_buffers": flag(True, honoured=False, doc="with one replica there is nothing to broadcast"),
            "device_iterations": integer(1, 1, doc="weight updates, or batches of inference, that one call makes"),
            "log_dir": text(".", honoured=False, doc="stored"),
            "max_repeat_logs": Option(4, int | None, honoured=False, doc="stored"),
            "auto_round_num_ipus": flag(False, honoured=False, doc="models use one IPU"),
            "output_mode": Option(OutputMode.Default, OutputMode, doc="which micro-batches come back"),
            "output_return_period": integer(1, 1, doc="of EveryN: every how many micro-batches one comes back"),
            "connection_type": Option(ConnectionType.Always, ConnectionType, doc="when to attach; Never compiles only"),
            "sync_pattern": Option(SyncPattern.Full, SyncPattern, honoured=False, doc="matters with several IPUs"),
            "available_memory_proportion": Option(
                {}, dict[str, Share], doc="share of a tile's memory that products and convolutions plan with, by IPU"
            ),
            "show_compilation_progress_bar": flag(True, doc="compiling shows a bar on terminals"),
            "log_cycle_count": flag(False, doc="`cycleCount()` may be asked"),
            "relax_optimizer_checks": flag(False, honoured=False, doc="unknown attributes are passed over in any case"),
            "module_namescope_enabled": flag(True, honoured=False, doc="names always carry their module"),
            "source_location_excludes": Option([], list[str], honoured=False, doc="stored"),
            "profile_dir": Option(None, str | None, honoured=False, doc="`report()` is there in any case"),
            "cache_dir": Option(None, str | None, honoured=False, doc="native code is always cached, by content"),
            "random_seed": Option(UNSET, int, doc="seed of dropout and of PyTorch's own generators"),
            "model_name": text(UNSET, doc="name of the model in reports"),
            "enable_stable_norm": flag(UNSET, honoured=False, doc="norms always subtract the mean before squaring"),
            "use_model": flag(UNSET, honoured=False, doc="the IPU is modelled in any case"),
            "ipu_id": integer(UNSET, honoured=False, doc="there is one device"),
            "ipu_version": integer(UNSET, honoured=False, doc="the system says which machine is modelled"),
        },
    )

    groups: ClassVar[dict[str, type[CheckedOptions]]] = {
        "Training": TrainingOptions,
        "Precision": PrecisionOptions,
        "Abele": AbeleOptions,
    }

    def __init__(self) -> None:
        super().__init__()
        for name, group in self.groups.items():
            object.__setattr__(self, name, group())

    # --- batching ------------------------------------------------------------------------------------------------

    def deviceIterations(self, device_iterations: int) -> Self:
        """Weight updates (or inference batches) that the device makes in one call."""
        return self.set(device_iterations=device_iterations)

    def replicationFactor(self, replication_factor: int) -> Self:
        """Data-parallel copies: one."""
        if isinstance(replication_factor, int) and replication_factor > 1:
            raise InvalidOptionError(
                "replicationFactor above 1 does not exist here yet",
                remedy="use gradientAccumulation for the same batch",
            )
        return self.set(replication_factor=replication_factor)

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: CommGroupType) -> Self:
        """How replicas share inputs; with one replica, groups of one."""
        if input_group_type == CommGroupType.All or input_group_size != 1:
            raise InvalidOptionError(f"input_group_size {input_group_size} is larger than the one replica")
        return self.set(input_group_size=1)

    def outputMode(self, output_mode: OutputMode, output_return_period: int | None = None) -> Self:
        """Which micro-batches come back; ``EveryN`` needs a period."""
        mode = OutputMode(output_mode)
        if mode == OutputMode.EveryN and (not output_return_period or output_return_period < 1):
            raise CheckError("EveryN output mode requires a positive output_return_period")
        return self.set(output_mode=mode, output_return_period=output_return_period or 1)

    def defaultOutputMode(self) -> bool:
        """True if no output mode was chosen."""
        return bool(self.output_mode == OutputMode.Default)

    # --- numbers -------------------------------------------------------------------------------------------------

    def randomSeed(self, random_seed: int) -> Self:
        """Seed of dropout and of PyTorch's own generators."""
        self.createOrSet(random_seed=random_seed)
        torch.manual_seed(random_seed)
        return self

    def enableStableNorm(self, enabled: bool) -> Self:
        """Stored; norms always subtract the mean before squaring."""
        return self.createOrSet(enable_stable_norm=bool(enabled))

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Self:
        """Stored; with one replica there is nothing to broadcast."""
        return self.set(broadcast_buffers=bool(broadcast_buffers))

    # --- device --------------------------------------------------------------------------------------------------

    def system(self, system: System | str) -> Self:
        """The machine to model; short for ``opts.Abele.system``."""
        self._check_writable()
        self.Abele.system(system)
        return self

    def useIpuModel(self, use_model: bool) -> Self:
        """Accepted: the IPU is modelled in any case."""
        return self.createOrSet(use_model=bool(use_model))

    def useIpuId(self, ipu_id: int) -> Self:
        """Stored; there is one device."""
        return self.createOrSet(ipu_id=int(ipu_id))

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Self:
        """Compile only: models cannot be run, only compiled and reported."""
        return self.createOrSet(ipu_version=int(ipu_version)).connectionType(ConnectionType.Never)

    def connectionType(self, connection_type: ConnectionType) -> Self:
        """When to attach; ``Never`` compiles only."""
        return self.set(connection_type=ConnectionType(connection_type))

    def syncPattern(self, sync_pattern: SyncPattern) -> Self:
        """Stored; it matters with several IPUs."""
        return self.set(sync_pattern=SyncPattern(sync_pattern))

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Self:
        """Stored; models use one IPU."""
        return self.set(auto_round_num_ipus=bool(auto_round_num_ipus))

    def setAvailableMemoryProportion(self, available_memory_proportion: Mapping[str, float]) -> Self:
        """Share of a tile's memory that matrix products and convolutions may use, as ``{"IPU0": 0.6}``."""
        for key in available_memory_proportion:
            if not (key.startswith("IPU") and key[3:].isdigit()):
                raise CheckError(
                    'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5} where the 0 in '
                    f"IPU is the index of the IPU. Invalid key: {key}"
                )
        return self.set(available_memory_proportion=dict(available_memory_proportion))

    # --- reporting -----------------------------------------------------------------------------------------------

    def showCompilationProgressBar(self, show: bool = True) -> Self:
        """True if compiling shows a progress bar."""
        return self.set(show_compilation_progress_bar=bool(show))

    def logCycleCount(self, log_cycle_count: bool) -> Self:
        """True if ``cycleCount()`` may be asked."""
        return self.set(log_cycle_count=bool(log_cycle_count))

    def enableProfiling(self, profile_dir: str | None = None) -> Self:
        """Where reports belong; ``model.report()`` is there in any case."""
        return self.set(profile_dir=profile_dir or ".")

    def enableExecutableCaching(self, path: str | None) -> Self:
        """Stored; native code is always cached, by content."""
        return self.set(cache_dir=path)

    def modelName(self, name: str) -> Self:
        """Name of the model in reports."""
        return self.createOrSet(model_name=str(name))

    def logDir(self, log_dir: str) -> Self:
        """Stored."""
        return self.set(log_dir=str(log_dir))

    def maxRepeatLogs(self, max_lines: int | None) -> Self:
        """Stored."""
        return self.set(max_repeat_logs=max_lines)

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Self:
        """Stored; attributes that an optimiser does not know are passed over in any case."""
        return self.set(relax_optimizer_checks=bool(relax))

    def disableModuleNamescope(self) -> Self:
        """Stored; names always carry their module."""
        return self.set(module_namescope_enabled=False)

    def sourceLocationExcludes(self, excludes: Iterable[str]) -> Self:
        """Stored; files of PyTorch and of Abele itself are never shown as the source of an operation."""
        return self.set(source_location_excludes=list(excludes))

    def appendToLocationExcludes(self, *excludes: str) -> Self:
        """Add to :meth:`sourceLocationExcludes`."""
        return self.set(source_location_excludes=[*self.source_location_excludes, *excludes])

    # --- sessions ------------------------------------------------------------------------------------------------

    def settings(self, name: str) -> Settings:
        """What a session is told of these options; ``name`` is the model's where none was chosen."""
        abele = self.Abele
        return Settings(
            system=abele.system_choice,
            mode=abele.engine_mode,
            threads=abele.num_threads,
            allow_out_of_memory=abele.allow_out_of_memory,
            memory_proportion=self.available_memory_proportion.get("IPU0"),
            partials=self.Precision.partials,
            exceptions=self.Precision.floating_point_exceptions,
            progress=self.show_compilation_progress_bar,
            name=self.model_name if self.exists("model_name") else name,
            dump_passes=abele.pass_folder,
            recompute=abele.recompute_cheap,
        )

    # --- copies --------------------------------------------------------------------------------------------------

    def clone(self) -> Self:
        """A copy that can be changed."""
        return copy.deepcopy(self)

    def toDict(self) -> dict[str, Any]:
        """All options, those of the groups among them."""
        groups = (self.__dict__[name].toDict() for name in self.groups)
        return {**super().toDict(), **{k: v for group in groups for k, v in group.items()}}

    def _freeze(self) -> None:
        super()._freeze()
        for name in self.groups:
            self.__dict__[name]._freeze()
