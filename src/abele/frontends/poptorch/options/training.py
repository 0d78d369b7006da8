"""Options of training: accumulation of gradients and how it is reduced."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch

from abele.errors import InvalidOptionError
from abele.frontends.popart_enums import MeanReductionStrategy, ReductionType
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.options import Option, OptionTable, flag, integer

_STRATEGY = "meanAccumulationAndReplicationReductionStrategy"


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
                doc="a mean of accumulated gradients is a sum that is divided, or runs, and is no larger than they are",
            ),
            "auto_loss_scaling": flag(False, doc="the loss is multiplied by a scale that follows float16 gradients"),
            "convolution_dithering": flag(False, doc="each convolution begins at a tile of its own, by its parameters"),
        },
    )

    def gradientAccumulation(self, gradient_accumulation: int) -> Self:
        """Micro-batches whose gradients make one update."""
        return self.set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> Self:
        """Make an update of the mean of accumulated gradients, or of their sum."""
        if reduction_type not in (ReductionType.Mean, ReductionType.Sum):
            raise InvalidOptionError(
                "accumulationAndReplicationReductionType must be set to poptorch.ReductionType.Mean or "
                "poptorch.ReductionType.Sum"
            )
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> Self:
        """Set the time at which the mean of accumulated gradients is taken.

        ``Running`` keeps the mean of the micro-batches so far, which float16 holds where it would not hold their sum;
        it is what optimisers with ``accum_type=torch.float16`` use unless this says otherwise.
        """
        return self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)

    def setAutomaticLossScaling(self, enabled: bool) -> Self:
        """Multiply the loss by a scale that follows the magnitudes of float16 gradients from step to step."""
        return self.set(auto_loss_scaling=enabled)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == _STRATEGY:
            object.__setattr__(self, "_strategy_chosen", True)

    def _follow_optimizer(self, optimizer: object) -> None:
        """Let means run where they are kept in float16, unless a strategy was chosen."""
        if "_strategy_chosen" not in self.__dict__:
            half = getattr(optimizer, "accum_type", None) == torch.float16
            runs = half and not getattr(optimizer, "use_combined_accum", False)
            self._values[_STRATEGY] = MeanReductionStrategy.Running if runs else MeanReductionStrategy.Post

    def setConvolutionDithering(self, enabled: bool) -> Self:
        """Let each convolution begin at a tile of its own, so that small ones do not all burden the first tiles."""
        return self.set(convolution_dithering=enabled)
