"""Options of training: accumulation of gradients and how it is reduced."""

from __future__ import annotations

from typing import ClassVar, Self

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.enums import MeanReductionStrategy, ReductionType
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.options import Option, OptionTable, flag, integer


class TrainingOptions(CheckedOptions):
    """``opts.Training``."""

    table: ClassVar[OptionTable] = OptionTable(
        "Options.Training",
        {
            "gradient_accumulation": integer(1, 1, doc="micro-batches whose gradients make one update"),
            "accumulation_and_replication_reduction_type": Option(
                ReductionType.Mean, ReductionType, doc="an update uses the mean of accumulated gradients, or their sum"
            ),
            "meanAccumulationAndReplicationReductionStrategy": Option(
                MeanReductionStrategy.Post,
                MeanReductionStrategy,
                honoured=False,
                doc="when the mean is taken: the result is the same within rounding",
            ),
            "auto_loss_scaling": flag(False, honoured=False, doc="refused when enabled: losses are not scaled"),
            "convolution_dithering": flag(False, honoured=False, doc="convolutions are placed by their planner"),
        },
    )

    def gradientAccumulation(self, gradient_accumulation: int) -> Self:
        """Micro-batches whose gradients make one update."""
        return self.set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> Self:
        """How accumulated gradients make an update: by their mean, or by their sum."""
        if reduction_type not in (ReductionType.Mean, ReductionType.Sum):
            raise InvalidOptionError(
                "accumulationAndReplicationReductionType must be set to poptorch.ReductionType.Mean or "
                "poptorch.ReductionType.Sum"
            )
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(self, strategy: MeanReductionStrategy) -> Self:
        """When the mean is taken; the result is the same within rounding."""
        return self.set(meanAccumulationAndReplicationReductionStrategy=strategy)

    def setAutomaticLossScaling(self, enabled: bool) -> Self:
        """Refused when enabled: losses are not scaled here."""
        if enabled:
            raise InvalidOptionError("automatic loss scaling does not exist here yet", remedy="train in float32")
        return self.set(auto_loss_scaling=False)

    def setConvolutionDithering(self, enabled: bool) -> Self:
        """Stored; convolutions are always placed by their planner."""
        return self.set(convolution_dithering=enabled)
