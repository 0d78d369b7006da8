"""Where what a program keeps from step to step lies: on the chip or in streaming memory, whole or shared by replicas."""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.errors import InvalidOptionError

LEAST_OFF_CHIP = 2
"""Elements below which a tensor stays on the chip. Source: PopART's default of ``minElementsForOffChip``."""

LEAST_SHARDED = 8192
"""Elements below which replicas keep a tensor whole. Source: PopART's default of
``minElementsForReplicatedTensorSharding``."""


@dataclass(frozen=True)
class TensorLocation:
    """Where tensors of one kind lie.

    Attributes:
        on_chip: False to keep them in streaming memory, from where they come when they are needed.
        sharded: True if each of several replicas keeps an equal share, and not the whole.
        min_elements_off_chip: Tensors of fewer elements stay on the chip.
        min_elements_sharded: Tensors of fewer elements stay whole.

    Raises:
        InvalidOptionError: A least number of elements that is no whole number from 0 on.
    """

    on_chip: bool = True
    sharded: bool = False
    min_elements_off_chip: int = LEAST_OFF_CHIP
    min_elements_sharded: int = LEAST_SHARDED

    def __post_init__(self) -> None:
        for name in ("min_elements_off_chip", "min_elements_sharded"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise InvalidOptionError(f"a location's {name} is a whole number from 0 on, not {count!r}")

    def is_off_chip(self, elements: int) -> bool:
        """True for a tensor of so many elements that lies in streaming memory."""
        return not self.on_chip and elements >= self.min_elements_off_chip

    def is_sharded(self, elements: int) -> bool:
        """True for a tensor of so many elements of which each replica keeps a share."""
        return self.sharded and elements >= self.min_elements_sharded


ON_CHIP = TensorLocation()
"""Whole, on the chip."""


@dataclass(frozen=True)
class Locations:
    """Where the tensors of a training program lie.

    Attributes:
        optimiser: The state that optimisers keep beside parameters.
    """

    optimiser: TensorLocation = field(default=ON_CHIP)
