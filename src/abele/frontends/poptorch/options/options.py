"""``poptorch.Options``."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch

from abele.frontends.popart_enums import GradientTensorTrackingMethod
from abele.frontends.poptorch.enums import CommGroupType, ConnectionType, OutputMode, SyncPattern
from abele.frontends.poptorch.errors import CheckError, OptionValueError
from abele.frontends.poptorch.options import environment, files
from abele.frontends.poptorch.options.checked import CheckedOptions, Freezable
from abele.frontends.poptorch.options.distributed import DistributedOptions, JitOptions
from abele.frontends.poptorch.options.execution import AbeleOptions
from abele.frontends.poptorch.options.locations import TensorLocationOptions
from abele.frontends.poptorch.options.popart import CHEAP_AGAIN, STAGES_AGAIN, PopartOptions
from abele.frontends.poptorch.options.precision import PrecisionOptions
from abele.frontends.poptorch.options.strategies import ExecutionStrategy, PipelinedExecution, check_strategy
from abele.frontends.poptorch.options.training import TrainingOptions
from abele.job.launched import launched_replicas
from abele.machine import System
from abele.network.automatic_scale import AutomaticLossScale, GradientTracking
from abele.options import UNSET, Option, OptionTable, flag, integer, number, text
from abele.session import Settings
from abele.session.settings import Share

# Names of tensors inside of a model: PopTorch's, and the network's.

ANCHOR_NAMES = {"Gradient___": "gradient/", "UpdatedVar___": "updated/"}
"""Prefixes of a parameter's name in PopART, with those of networks."""


def network_name(name: str) -> str:
    """The network's name of a tensor that PopTorch has a name for."""
    for theirs, ours in ANCHOR_NAMES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


# Automatic loss scaling as PopART's session options say it, which ``opts._Popart.set`` takes.

PREFIX = "automaticLossScalingSettings."
"""Prefix of the names of these session options."""


_METHODS = {
    GradientTensorTrackingMethod.AllNonViewChangingGradientTensors: GradientTracking.ALL,
    GradientTensorTrackingMethod.ConvAndMatmulGradients: GradientTracking.PRODUCTS,
    GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors: GradientTracking.NAMED,
}
_NAMES = tuple(method.name for method in GradientTensorTrackingMethod)

LOSS_SCALING = OptionTable(
    PREFIX.rstrip("."),
    {
        "enabled": flag(False, doc="as `Training.setAutomaticLossScaling`"),
        "binEdgeLocation": number(
            AutomaticLossScale.edge_proportion,
            high=1.0,
            doc="where large gradients begin, as a part of the largest float16, 65,504",
        ),
        "thresholdUpperCountProportion": number(
            AutomaticLossScale.threshold_proportion,
            high=1.0,
            doc="part of large gradients above which the scale is halved; otherwise it is doubled",
        ),
        "updatePeriod": integer(
            AutomaticLossScale.period, 1, doc="weight updates from one move of the scale to the next"
        ),
        "gradientTensorTrackingMethod": Option(
            UNSET,
            Literal[(*_NAMES, *(method.value for method in GradientTensorTrackingMethod))],
            doc="which gradients are counted, by name or number; without it all, or those that are named",
        ),
        "toTrackTensors": Option(
            UNSET, list[str], doc="parameters and modules whose gradients are counted; `*` stands for any letters"
        ),
    },
)
"""The session options, with their allowed values."""


def automatic_loss_scaling(popart: Mapping[str, Any], *, enabled: bool) -> dict[str, Any]:
    """The settings of a session about automatic loss scaling.

    Args:
        popart: PopART's session options by name.
        enabled: Value of PopTorch's own option.

    Raises:
        InvalidOptionError: A value that an option does not take.
        OptionValueError: Tensors are named and others are to be tracked, or the reverse.
    """
    given = {name.removeprefix(PREFIX): value for name, value in popart.items() if name.startswith(PREFIX)}
    read = LOSS_SCALING.read({name: _plain(value) for name, value in given.items()})
    names = () if read["toTrackTensors"] is UNSET else tuple(map(_parameter, read["toTrackTensors"]))
    return {
        "automatic_loss_scale": enabled or read["enabled"],
        "loss_scale_tracking": str(_method(read, names).value),
        "loss_scale_tensors": names,
        "loss_scale_edge": read["binEdgeLocation"],
        "loss_scale_threshold": read["thresholdUpperCountProportion"],
        "loss_scale_period": read["updatePeriod"],
    }


def _method(read: Mapping[str, Any], names: tuple[str, ...]) -> GradientTracking:
    chosen, named = read["gradientTensorTrackingMethod"], GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
    if read["toTrackTensors"] is not UNSET and not names:
        raise OptionValueError(
            f"{PREFIX}toTrackTensors names no tensor", remedy="name parameters or modules, or leave the option out"
        )
    if chosen is UNSET:
        return _METHODS[named] if names else GradientTracking.ALL
    method = GradientTensorTrackingMethod[chosen] if isinstance(chosen, str) else GradientTensorTrackingMethod(chosen)
    if (method == named) != bool(names):
        has = f"names {', '.join(names)}" if names else "names none"
        raise OptionValueError(
            f"{PREFIX}gradientTensorTrackingMethod is {method.name}, and {PREFIX}toTrackTensors {has}",
            because=f"{named.name} counts the gradients of tensors that are named, the other methods those of others",
            remedy=f"both, or neither: {PREFIX}toTrackTensors goes with {named.name} alone",
        )
    return _METHODS[method]


def _plain(value: object) -> object:
    """An option's value without the classes that users may have for it."""
    if isinstance(value, IntEnum):
        return int(value)
    return sorted(value) if isinstance(value, (set, frozenset)) else list(value) if isinstance(value, tuple) else value


def _parameter(name: str) -> str:
    """The parameter or module of a tensor: PopART calls the gradient of ``w`` ``Gradient___w``."""
    for prefix in ANCHOR_NAMES:
        name = name.removeprefix(prefix)
    return name


CACHE_VARIABLE = "POPTORCH_CACHE_DIR"


class Options(CheckedOptions):
    """Everything about a model that is not in its code. Setters return the options, so that they chain.

    Attributes:
        Training: Gradient accumulation.
        Precision: Arithmetic.
        Jit: Nothing any longer.
        Distributed: Number of this process among several.
        TensorLocations: Places of tensors.
        Abele: The machine that is modelled, and how programs run on the host.
    """

    table: ClassVar[OptionTable] = OptionTable(
        "Options",
        {
            "replication_factor": integer(1, 1, doc="data-parallel copies"),
            "input_group_size": integer(1, 1, doc="replicas that share an input"),
            "input_cgt": Option(CommGroupType.NoGrouping, CommGroupType, doc="which replicas share an input"),
            "broadcast_buffers": flag(True, doc="all replicas start from the same buffers, or each from its row"),
            "device_iterations": integer(1, 1, doc="weight updates, or batches of inference, that one call makes"),
            "log_dir": text(".", doc="folder of what is written where no other one is named, such as reports"),
            "max_repeat_logs": Option(4, int | None, doc="times that one message is logged; None for every time"),
            "auto_round_num_ipus": flag(
                False, doc="each replica reserves a power of two of IPUs, if its model uses another number"
            ),
            "anchored_tensors": Option({}, dict[str, list[Any]], doc="tensors that come back, by the names given them"),
            "output_mode": Option(OutputMode.Default, OutputMode, doc="which micro-batches come back"),
            "output_return_period": integer(1, 1, doc="of EveryN: every how many micro-batches one comes back"),
            "connection_type": Option(ConnectionType.Always, ConnectionType, doc="when to attach; Never compiles only"),
            "sync_pattern": Option(
                SyncPattern.Full, SyncPattern, doc="which IPUs of a replica wait when some of them meet the host"
            ),
            "available_memory_proportion": Option(
                {}, dict[int, Share], doc="share of a tile's memory that products and convolutions plan with, by IPU"
            ),
            "show_compilation_progress_bar": flag(True, doc="compiling shows a bar on terminals"),
            "log_cycle_count": flag(False, doc="`cycleCount()` may be asked"),
            "relax_optimizer_checks": flag(False, doc="attributes that an optimiser does not know cause no warning"),
            "module_namescope_enabled": flag(True, doc="names carry the modules that they are of"),
            "source_location_excludes": Option(
                [], list[str], doc="files whose paths hold one of these are not shown as the source of an operation"
            ),
            "synthetic_data": flag(False, doc="runs take random numbers on the device in place of the host's data"),
            "updatable_named_buffers": Option([], list[str], doc="buffers that `copyNamedBuffersToDevice()` copies"),
            "profile_dir": Option(None, str | None, doc="where the report of each compiled model is written"),
            "cache_dir": Option(
                None, str | None, doc=f"where compiled models are kept, by content; `{CACHE_VARIABLE}` overrides it"
            ),
            "random_seed": Option(UNSET, int, doc="seed of dropout and of PyTorch's own generators"),
            "model_name": text(UNSET, doc="name of the model in reports"),
            "enable_stable_norm": flag(
                UNSET, doc="the machine's norms subtract the mean before they square, in one pass more"
            ),
            "use_model": flag(UNSET, honoured=False, doc="the IPU is modelled in any case"),
            "ipu_id": integer(UNSET, honoured=False, doc="there is one device"),
            "ipu_version": integer(UNSET, doc="which machine is modelled where none is chosen: version 1, 2 or 21"),
        },
    )

    groups: ClassVar[dict[str, type[CheckedOptions]]] = {
        "Training": TrainingOptions,
        "Precision": PrecisionOptions,
        "Jit": JitOptions,
        "Distributed": DistributedOptions,
        "TensorLocations": TensorLocationOptions,
        "Abele": AbeleOptions,
    }

    def __init__(self) -> None:
        super().__init__()
        for name, group in self.groups.items():
            object.__setattr__(self, name, group())
        object.__setattr__(self, "_Popart", PopartOptions())
        self.set(replication_factor=launched_replicas())
        object.__setattr__(self, "_execution_strategy", PipelinedExecution())
        files.load_from_environment(self)

    # --- batching ------------------------------------------------------------------------------------------------

    def deviceIterations(self, device_iterations: int) -> Self:
        """Weight updates (or inference batches) that the device makes in one call."""
        return self.set(device_iterations=device_iterations)

    def replicationFactor(self, replication_factor: int) -> Self:
        """Data-parallel copies, each on IPUs of its own."""
        return self.set(replication_factor=replication_factor)

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: CommGroupType) -> Self:
        """Let groups of as many replicas get the same inputs.

        Raises:
            OptionValueError: Groups of all, more replicas than there are, or a number that does not divide them.
        """
        if input_group_type == CommGroupType.All:
            raise OptionValueError(
                "Invalid value for input_group_type parameter: CommGroupType.All is not supported for inputs"
            )
        if not isinstance(input_group_type, CommGroupType):
            raise OptionValueError(f"input_group_type takes a poptorch.CommGroupType, got {input_group_type!r}")
        replicas = self.replication_factor
        if input_group_size > replicas:
            raise OptionValueError(
                f"input_group_size ({input_group_size}) must not be larger than the replication factor ({replicas})"
            )
        if input_group_size < 1 or replicas % input_group_size:
            raise OptionValueError(
                f"input_group_size ({input_group_size}) must be a factor of the replication factor ({replicas})"
            )
        return self.set(input_group_size=input_group_size, input_cgt=input_group_type)

    def outputMode(self, output_mode: OutputMode, output_return_period: int | None = None) -> Self:
        """Choose the micro-batches that come back; ``EveryN`` needs a period."""
        if output_mode == OutputMode.EveryN and (not output_return_period or output_return_period < 1):
            raise CheckError("EveryN output mode requires a positive output_return_period")
        return self.set(output_mode=output_mode, output_return_period=output_return_period or 1)

    def defaultOutputMode(self) -> bool:
        """True if no output mode was chosen."""
        return bool(self.output_mode == OutputMode.Default)

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: OutputMode | None = None,
        output_return_period: int | None = 1,
    ) -> None:
        """Let a tensor of the compiled model come back with each call, for ``getAnchoredTensor(short_name)``.

        Args:
            short_name: Name of the anchor.
            long_name: Its name in ``getTensorNames()``.
            output_mode: Choice of the micro-batches that come back; those of the model's outputs when left out.
            output_return_period: Of ``EveryN``: every how many micro-batches one comes back.
        """
        self._check_writable()
        if output_mode is None:
            output_mode = OutputMode.All if self.defaultOutputMode() else OutputMode(self.output_mode)
            output_return_period = self.output_return_period
        if output_mode == OutputMode.Default:
            output_mode = OutputMode.All
        if output_mode == OutputMode.EveryN and (not output_return_period or output_return_period < 1):
            raise CheckError("EveryN output mode requires a positive output_return_period")
        entry = [long_name, OutputMode(output_mode), output_return_period or 1]
        self.set(anchored_tensors={**self.anchored_tensors, short_name: entry})

    # --- numbers -------------------------------------------------------------------------------------------------

    def randomSeed(self, random_seed: int) -> Self:
        """Seed of dropout and of PyTorch's own generators."""
        self.createOrSet(random_seed=random_seed)
        torch.manual_seed(random_seed)
        return self

    def enableStableNorm(self, enabled: bool) -> Self:
        """Let the machine's norms subtract the mean before they square, which takes a pass more."""
        return self.createOrSet(enable_stable_norm=enabled)

    def enableSyntheticData(self, enabled: bool) -> Self:
        """Take random numbers made on the device in place of the host's inputs, and send no outputs to the host."""
        return self.set(synthetic_data=enabled)

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Self:
        """Start all replicas from the same buffers; otherwise each has a row of every buffer for itself."""
        return self.set(broadcast_buffers=broadcast_buffers)

    def updatableNamedBuffers(self, buffers: list[str]) -> Self:
        """Names of the buffers that ``copyNamedBuffersToDevice()`` copies."""
        return self.set(updatable_named_buffers=buffers)

    # --- placing -------------------------------------------------------------------------------------------------

    def setExecutionStrategy(self, strategy: ExecutionStrategy) -> Self:
        """Set the blocks of each stage, IPU and phase."""
        self._check_writable()
        object.__setattr__(self, "_execution_strategy", check_strategy(strategy))
        return self

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Self:
        """Stored; models use one IPU."""
        return self.set(auto_round_num_ipus=auto_round_num_ipus)

    def setAvailableMemoryProportion(self, available_memory_proportion: Mapping[str, float]) -> Self:
        """Share of a tile's memory that matrix products and convolutions may use, as ``{"IPU0": 0.6}``."""
        for key in available_memory_proportion:
            if not (isinstance(key, str) and key.startswith("IPU") and key[3:].isdigit()):
                raise OptionValueError(
                    'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5} where the 0 in '
                    f"IPU is the index of the IPU. Invalid key: {key}"
                )
        return self.set(
            available_memory_proportion={int(key[3:]): share for key, share in available_memory_proportion.items()}
        )

    # --- device --------------------------------------------------------------------------------------------------

    def system(self, system: System | str) -> Self:
        """The machine to model; short for ``opts.Abele.system``."""
        self._check_writable()
        self.Abele.system(system)
        return self

    def useIpuModel(self, use_model: bool) -> Self:
        """Accepted: the IPU is modelled in any case."""
        return self.createOrSet(use_model=use_model)

    def useIpuId(self, ipu_id: int) -> Self:
        """Stored; there is one device."""
        return self.createOrSet(ipu_id=ipu_id)

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Self:
        """Compile only, for version 1, 2 or 21 of the IPU: models cannot be run, only compiled and reported.

        Raises:
            OptionValueError: There is no such version.
        """
        if ipu_version not in environment.VERSIONS:
            raise OptionValueError(f"there is no version {ipu_version!r} of the IPU", remedy="1, 2 or 21")
        return self.createOrSet(ipu_version=ipu_version).connectionType(ConnectionType.Never)

    def connectionType(self, connection_type: ConnectionType) -> Self:
        """Set the time to attach at; ``Never`` compiles only."""
        return self.set(connection_type=connection_type)

    def syncPattern(self, sync_pattern: SyncPattern) -> Self:
        """Choose which IPUs of a replica wait when some of them meet the host.

        All with ``Full``; those alone that take part with ``SinglePipeline``. Replicas run in step, so that
        ``ReplicaAndLadder`` is as ``Full``.
        """
        return self.set(sync_pattern=sync_pattern)

    # --- reporting -----------------------------------------------------------------------------------------------

    def showCompilationProgressBar(self, show: bool = True) -> Self:
        """True if compiling shows a progress bar."""
        return self.set(show_compilation_progress_bar=show)

    def logCycleCount(self, log_cycle_count: bool) -> Self:
        """True if ``cycleCount()`` may be asked, and each call logs it."""
        return self.set(log_cycle_count=log_cycle_count)

    def enableProfiling(self, profile_dir: str | Path | None = None) -> Self:
        """Write the report of each compiled model below this folder, by default the folder of logs.

        Models that train write to ``training`` in it, others to ``inference``; those with a name to a folder of that.
        What its calls do on the host goes into a trace beside it, until the last such model is destroyed.
        """
        return self.set(profile_dir=str(self.log_dir if profile_dir is None else profile_dir))

    def enableExecutableCaching(self, path: str | Path | None) -> Self:
        """Keep compiled models in this folder, and take them from there when they are compiled again; None for no."""
        return self.set(cache_dir=None if path is None else str(path))

    def modelName(self, name: str) -> Self:
        """Name of the model in reports, and of their folder, which is ``training`` or ``inference`` without one."""
        return self.createOrSet(model_name=name)

    def logDir(self, log_dir: str | Path) -> Self:
        """Folder of written files where no other one is named."""
        return self.set(log_dir=str(log_dir))

    def maxRepeatLogs(self, max_lines: int | None) -> Self:
        """Times that one message is logged; None for every time."""
        return self.set(max_repeat_logs=max_lines)

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Self:
        """Warn of no attribute that an optimiser does not know."""
        return self.set(relax_optimizer_checks=relax)

    def disableModuleNamescope(self) -> Self:
        """Leave the modules out of names."""
        return self.set(module_namescope_enabled=False)

    def sourceLocationExcludes(self, excludes: Iterable[str]) -> Self:
        """Never show files whose path holds one of these as the source of an operation."""
        return self.set(source_location_excludes=list(excludes))

    def appendToLocationExcludes(self, *excludes: str) -> Self:
        """Add to :meth:`sourceLocationExcludes`."""
        return self.set(source_location_excludes=[*self.source_location_excludes, *excludes])

    # --- sessions ------------------------------------------------------------------------------------------------

    def settings(self, name: str) -> Settings:
        """Settings of a session from these options; ``name`` is the model's where none was chosen."""
        abele, popart = self.Abele, self._Popart.options
        share = self.available_memory_proportion.get(0)
        recomputation = self._Popart.recomputation
        return Settings(
            system=self._system(),
            mode=abele.engine_mode,
            threads=abele.num_threads,
            allow_out_of_memory=abele.allow_out_of_memory,
            memory_proportion=self._Popart.memory_proportion if share is None else share,
            partials=self._Popart.partials or self.Precision.partials,
            convolution_dithering=self.Training.convolution_dithering,
            sync_pattern="single_pipeline" if self.sync_pattern == SyncPattern.SinglePipeline else "full",
            stable_norms=bool(self.toDict().get("enable_stable_norm") or popart.get("enableStableNorm")),
            exceptions=self.Precision.floating_point_exceptions or bool(popart.get("enableFloatingPointChecks")),
            stochastic_rounding=self.Precision.stochastic_rounding or bool(popart.get("enableStochasticRounding")),
            synthetic_data=self.synthetic_data or bool(popart.get("syntheticDataMode")),
            cache=None if self.cache_folder is None else str(self.cache_folder),
            progress=self.show_compilation_progress_bar,
            engine=dict(popart.get("engineOptions", {})),
            name=self.model_name if self.exists("model_name") else name,
            report_folder=self.model_name if self.exists("model_name") else "",
            dump_passes=abele.pass_folder,
            **automatic_loss_scaling(popart, enabled=self.Training.auto_loss_scaling),
            recompute=abele.recompute_cheap or recomputation in CHEAP_AGAIN,
            recompute_stages=recomputation in STAGES_AGAIN,
            shared_functions=abele.share_functions,
            skip_hidden=abele.skip_hidden_scores,
            exponents=tuple(map(network_name, abele.recorded_exponents)),
            exponents_every=abele.exponents_every,
        )

    @property
    def io_tiles(self) -> int:
        """Tiles of each IPU that are kept for traffic with the host."""
        return int(self.TensorLocations.io_tiles or self._Popart.options.get("numIOTiles", 0))

    def _system(self) -> System | str | None:
        """The machine that was chosen, or that the version of an offline target and the environment ask for."""
        version = self.ipu_version if self.exists("ipu_version") else environment.model_version()
        chosen: System | str | None = self.Abele.system_choice
        return environment.default_system(version) if chosen is None else chosen

    @property
    def cache_folder(self) -> Path | None:
        """Folder of compiled models: the environment decides, else :meth:`enableExecutableCaching`."""
        chosen = os.environ.get(CACHE_VARIABLE) or self.cache_dir or self._Popart.cache_folder
        return Path(chosen) if chosen else None

    # --- files ---------------------------------------------------------------------------------------------------

    def loadFromFile(self, filepath: str | Path) -> Self:
        """Call the setters that a file has, one a line, such as ``Training.gradientAccumulation(4)``.

        Raises:
            ConfigFileError: A line is no call of a setter, or its setter refuses it.
        """
        files.load_from_file(self, filepath)
        return self

    def from_json(self, text: str) -> Self:
        """Call the setters that a JSON object names, such as ``{"Training.gradientAccumulation": 4}``.

        Raises:
            ConfigFileError: It is no JSON object, or names what is no setter.
        """
        files.load_from_json(self, text)
        return self

    # --- copies --------------------------------------------------------------------------------------------------

    def clone(self) -> Self:
        """A copy that can be changed."""
        return copy.deepcopy(self)

    def toDict(self) -> dict[str, Any]:
        """All options, those of the groups among them."""
        parts = [self.__dict__[name].toDict() for name in (*self.groups, "_Popart")]
        strategy = self.__dict__["_execution_strategy"].backendOptions()
        return {**super().toDict(), **{k: v for part in parts for k, v in part.items()}, **strategy}

    @property
    def known_names(self) -> frozenset[str]:
        """Names of PopTorch's own options, set or not."""
        tables = [self.table, *(group.table for group in self.groups.values())]
        strategy = ("execution_mode", "separate_backward_phase", "serial_phases_execution", "tensors_liveness")
        return frozenset({name for table in tables for name in table} | {"patterns", "patterns_level", *strategy})

    def _described(self) -> list[str]:
        groups = [f"{name}={self.__dict__[name]!r}" for name in (*self.groups, "_Popart")]
        return [*super()._described(), *groups, f"_execution_strategy={self.__dict__['_execution_strategy']!r}"]

    def _freeze(self) -> None:
        super()._freeze()
        for name in (*self.groups, "_Popart", "_execution_strategy"):
            part: Freezable = self.__dict__[name]
            part._freeze()
