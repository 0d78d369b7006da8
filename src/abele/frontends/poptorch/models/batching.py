"""The batch rule under PopTorch's names: options as a schedule, and PopTorch's error where a batch does not fit."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from abele.errors import BatchSizeError
from abele.frontends.popart_enums import MeanReductionStrategy, ReductionType
from abele.frontends.poptorch.enums import OutputMode
from abele.frontends.poptorch.errors import CheckError, Error
from abele.frontends.poptorch.models.grouping import groups_of_replicas
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.options.options import network_name
from abele.frontends.poptorch.options.strategies import PhasedExecution, PipelinedExecution
from abele.network import Anchor, Locations, PipelineSchedule, TensorLocation
from abele.network.locations import AS_USUAL, ON_CHIP
from abele.session import MeanStrategy, Schedule
from abele.session import OutputMode as DeviceOutputMode
from abele.session.feeds import micro_batch_shape

_MODES = {
    OutputMode.All: DeviceOutputMode.ALL,
    OutputMode.Final: DeviceOutputMode.FINAL,
    OutputMode.EveryN: DeviceOutputMode.EVERY_N,
    OutputMode.Sum: DeviceOutputMode.SUM,
}

_STRATEGIES = {
    MeanReductionStrategy.Running: MeanStrategy.RUNNING,
    MeanReductionStrategy.Post: MeanStrategy.POST,
    # It also divides the loss that copies of a model add up, and here there is one copy.
    MeanReductionStrategy.PostAndLoss: MeanStrategy.POST,
}

INFERENCE_ACCUMULATION = (
    "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) when "
    "running a poptorch.inferenceModel()."
)
PIPELINED_INFERENCE = (
    " Use poptorch.Options().deviceIterations to process a sufficient number of batches each run for pipelined "
    "execution instead."
)


@dataclass(frozen=True)
class Batching:
    """Division of a host batch into micro-batches.

    Attributes:
        options: Options with the numbers.
        training: True if gradients are accumulated.

    Raises:
        Error: Gradient accumulation for inference.
    """

    options: Options
    training: bool

    def __post_init__(self) -> None:
        if not self.training and self.options.Training.gradient_accumulation != 1:
            pipelined = isinstance(self.options._execution_strategy, PipelinedExecution)
            raise Error(INFERENCE_ACCUMULATION + (PIPELINED_INFERENCE if pipelined else ""))

    def schedule(self) -> Schedule:
        """The device's loop.

        Raises:
            CheckError: Outputs of every n-th micro-batch, of which there are fewer.
        """
        accumulation = self.options.Training.gradient_accumulation
        period, steps = self.options.output_return_period, self.options.device_iterations * accumulation
        if self.output_mode == OutputMode.EveryN and period > steps:
            raise CheckError(
                f"EveryN output mode returns nothing: output_return_period is {period}, and a call has {steps} "
                "micro-batches",
                remedy="a smaller period, or more deviceIterations",
            )
        ranks = self.options.Distributed.numProcesses if self.options.Distributed.shares_replicas else 1
        return Schedule(
            self.options.device_iterations,
            accumulation,
            self.options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean,
            _MODES[self.output_mode],
            self.options.output_return_period,
            _STRATEGIES[self.options.Training.meanAccumulationAndReplicationReductionStrategy],
            anchors=tuple(self._anchor(*entry) for entry in self.options.anchored_tensors.values()),
            replicas=self.options.replication_factor * ranks,
            ranks=ranks,
            locations=self.options.TensorLocations.locations(training=self.training, usual=self._usual_locations()),
            pipeline=PipelineSchedule(self.options.Abele.pipeline_schedule),
            stash=self.options.Abele.stash_type if self.training else None,
            io_tiles=self.options.io_tiles,
            input_groups=groups_of_replicas(self.options.input_cgt, self.options.input_group_size),
        )

    def _usual_locations(self) -> Locations:
        """Places of tensors that no option has a place for: of phases in streaming memory, where the machine has it."""
        strategy = self.options._execution_strategy
        phased = isinstance(strategy, PhasedExecution) and strategy.num_phases > 1
        if not phased or self.options.Abele.target().dram is None:
            return AS_USUAL
        away = TensorLocation(on_chip=False)
        return Locations(
            optimiser=away,
            weights=away,
            activations=away if strategy.sends_off_chip else ON_CHIP,
            accumulators=away,
        )

    @staticmethod
    def _anchor(name: str, mode: OutputMode, period: int) -> Anchor:
        """An anchor under the name that the network has for it."""
        return Anchor(network_name(name), _MODES[mode], period)

    @property
    def output_mode(self) -> OutputMode:
        """The mode of outputs: all for inference and the last for training, unless chosen."""
        if self.options.defaultOutputMode():
            return OutputMode.Final if self.training else OutputMode.All
        return OutputMode(self.options.output_mode)

    def micro_batch_size(self, tensor: torch.Tensor) -> int:
        """Samples of ``tensor`` in one micro-batch; a tensor without dimensions is one sample.

        Raises:
            CheckError: The first dimension does not divide.
        """
        try:
            shape = micro_batch_shape(tuple(tensor.shape), self.schedule())
        except BatchSizeError:
            raise CheckError(self._invalid(tensor)) from None
        return shape[0] if shape else 1

    def _invalid(self, tensor: torch.Tensor) -> str:
        """PopTorch's text for a batch that does not divide."""
        schedule = self.schedule()
        return (
            f"Invalid batch dimension: In the input {tensor.shape}, the batch dimension "
            f"({tensor.shape[0] if tensor.dim() else 1}) must be a multiple of "
            f"Options.deviceIterations({schedule.device_iterations}) * "
            f"(Options.replicationFactor({schedule.own_replicas}) / "
            f"Options.inputReplicaGrouping.input_group_size({self.options.input_group_size})) * "
            f"Options.Training.gradientAccumulation({schedule.accumulation}) = {schedule.micro_batches} because it is "
            "used to calculate the batch size which will be executed on the device in any given iteration."
        )

    def micro_batch(self, tensor: torch.Tensor) -> torch.Tensor:
        """The part of ``tensor`` that the model sees first."""
        size = self.micro_batch_size(tensor)
        return tensor.narrow(0, 0, size) if tensor.dim() else tensor
