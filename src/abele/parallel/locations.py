"""Where what a program keeps from step to step lies: on the chip or in streaming memory, whole or shared by replicas."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from abele.errors import InvalidOptionError, MachineError
from abele.machine import System, systems

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
        weights: Parameters; replicas have whole ones.

    Raises:
        InvalidOptionError: Weights that replicas share.
    """

    optimiser: TensorLocation = field(default=ON_CHIP)
    weights: TensorLocation = field(default=ON_CHIP)

    def __post_init__(self) -> None:
        if self.weights.sharded:
            raise InvalidOptionError(
                "replicas cannot share weights",
                because="each reads all of them in every micro-batch",
                remedy="sharded=False for the weights; replicas may share the state of optimisers",
            )

    @property
    def off_chip(self) -> tuple[str, ...]:
        """What is in streaming memory."""
        return tuple(f.name for f in fields(self) if not getattr(self, f.name).on_chip)


def check_streaming_memory(system: System, locations: Locations) -> None:
    """Raise unless a system has what locations ask for.

    Raises:
        MachineError: Something is to lie in streaming memory, and there is none.
    """
    if locations.off_chip and system.dram is None:
        having = [name for name in systems.names() if systems.get(name).dram is not None]
        raise MachineError(
            f"{system.name} has no streaming memory to keep tensors in",
            because=f"what is to lie there: {', '.join(locations.off_chip)}",
            remedy=f"on_chip=True, or a system that has: {', '.join(having)}",
        )
