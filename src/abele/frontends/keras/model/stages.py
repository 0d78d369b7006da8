"""Stages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import InvalidOptionError
from abele.frontends.keras.model.options import Options
from abele.frontends.keras.model.steps import StepNetwork
from abele.network import PipelineSchedule


@dataclass(frozen=True)
class Stages:
    """Stages of a model.

    Attributes:
        count: Number of stages; 1 for a model that is no pipeline.
        ipus: IPUs of one replica.
    """

    count: int = 1
    ipus: int = 1

    def replicas_on(self, ipus: int) -> int:
        """Replicas on so many IPUs: each has a power of two of them.

        Raises:
            InvalidOptionError: Fewer IPUs than one replica needs.
        """
        each = 1 << (self.ipus - 1).bit_length()
        if each > ipus:
            raise InvalidOptionError(
                f"the model has {self.count} stages, and there are {ipus} IPUs", remedy=f"auto_select_ipus = {each}"
            )
        return ipus // each

    def schedule_name(self, options: Options) -> PipelineSchedule:
        """The schedule of the pipeline."""
        return PipelineSchedule(options.schedule.name.lower())


def placed(step: StepNetwork, stages: Stages, options: Options) -> StepNetwork:
    return step
