"""Schedules: how one run goes over its micro-batches, and what it returns of them.

The border to sessions: a schedule is what the device loops over, and is compiled in; how the host cuts its batches into
micro-batches and joins their results is :mod:`abele.session.batching`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from abele.errors import InvalidOptionError


class OutputMode(Enum):
    """Which micro-batches of a run the host gets."""

    ALL = "all"
    FINAL = "final"
    EVERY_N = "every_n"
    SUM = "sum"


class MeanStrategy(Enum):
    """When the mean of gradients is taken over the micro-batches of an update.

    ``POST`` divides sums by their number: float32 sums are made of shares, which comes to the same, and float16 sums
    are divided by the update. ``RUNNING`` keeps the mean of the micro-batches so far, which is no larger than they are.
    """

    POST = "post"
    RUNNING = "running"


@dataclass(frozen=True)
class Anchor:
    """A tensor inside a network that the host gets.

    Attributes:
        tensor: Its name: that of an input, parameter or buffer; ``gradient/`` or ``updated/`` and the name of a
            parameter, for its gradient or for its value after each update; or the name of a variable.
        outputs: Which micro-batches come back; of an updated parameter, which updates.
        period: For :attr:`OutputMode.EVERY_N`, every how many.
    """

    tensor: str
    outputs: OutputMode = OutputMode.ALL
    period: int = 1


UPDATED, GRADIENT = "updated/", "gradient/"
"""What stands before the name of a parameter in the name of an anchor."""


@dataclass(frozen=True)
class Schedule:
    """How one run goes over its micro-batches.

    Attributes:
        device_iterations: Weight updates (or inference batches) per run.
        accumulation: Micro-batches whose gradients make one update.
        mean: True if the update uses their mean; otherwise their sum.
        outputs: Which micro-batches the host gets.
        period: For :attr:`OutputMode.EVERY_N`, every how many.
        strategy: When the mean of gradients is taken.
        anchors: Tensors inside that come back as well.

    Raises:
        InvalidOptionError: A count that is no positive whole number.
    """

    device_iterations: int = 1
    accumulation: int = 1
    mean: bool = True
    outputs: OutputMode = OutputMode.ALL
    period: int = 1
    strategy: MeanStrategy = MeanStrategy.POST
    anchors: tuple[Anchor, ...] = ()

    def __post_init__(self) -> None:
        for name in ("device_iterations", "accumulation", "period"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise InvalidOptionError(f"a schedule's {name} is a positive whole number, not {count!r}")

    def of_anchor(self, anchor: Anchor) -> Schedule:
        """The schedule by which an anchor comes back."""
        accumulation = 1 if anchor.tensor.startswith(UPDATED) else self.accumulation
        return replace(self, accumulation=accumulation, outputs=anchor.outputs, period=anchor.period, anchors=())

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one run."""
        return self.device_iterations * self.accumulation

    @property
    def returned(self) -> int:
        """Micro-batches of which the host gets outputs."""
        counts = {OutputMode.ALL: self.micro_batches, OutputMode.EVERY_N: self.micro_batches // self.period}
        return counts.get(self.outputs, 1)
