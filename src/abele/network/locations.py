"""Places of a program's tensors: on the chip or in streaming memory, whole or shared by replicas."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Place of tensors of one kind.

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


_WHOLE = {
    "weights": "reads all of them in every micro-batch",
    "activations": "makes its own",
    "accumulators": "sums its own micro-batches, and shares are made of the sums",
}
"""Tensors that replicas do not share, with the reason: each of them does this."""


@dataclass(frozen=True)
class Locations:
    """Places of the tensors of a training program.

    Attributes:
        optimiser: The state that optimisers keep beside parameters.
        weights: Parameters; replicas have whole ones.
        activations: Values that stages of a pipeline keep for later stages, and phases for later phases than the next;
            each replica has its own.
        accumulators: Sums of gradients over micro-batches; each replica has its own.

    Raises:
        InvalidOptionError: Something else than the state of optimisers that replicas are to share.
    """

    optimiser: TensorLocation = field(default=ON_CHIP)
    weights: TensorLocation = field(default=ON_CHIP)
    activations: TensorLocation = field(default=ON_CHIP)
    accumulators: TensorLocation = field(default=ON_CHIP)

    def __post_init__(self) -> None:
        for what, why in _WHOLE.items():
            if getattr(self, what).sharded:
                raise InvalidOptionError(
                    f"replicas cannot share {what}",
                    because=f"each {why}",
                    remedy=f"sharded=False for the {what}; replicas may share the state of optimisers",
                )

    @property
    def off_chip(self) -> tuple[str, ...]:
        """Kinds of tensors in streaming memory."""
        return tuple(f.name for f in fields(self) if not getattr(self, f.name).on_chip)


AS_USUAL = Locations()
"""Everything whole, on the chip."""

_LATENCIES = 20
"""Latencies that a copy's bytes should take: what waits for the first byte is then a twentieth of the time."""


def worthwhile_bytes(system: System) -> int:
    """Bytes that one IPU should move from or to streaming memory at a time, where it has so many to move.

    Copies of more than that need room for more on the chip and are hardly faster; smaller ones wait most of the time.
    """
    if system.dram is None:
        return 0
    rate = system.dram_bytes_per_second(system.dram.ipus_per_dram)
    return int(_LATENCIES * system.host.latency_seconds * rate)


def check_off_chip(system: System, names: Sequence[str]) -> None:
    """Raise unless a system has streaming memory, where something is to lie there.

    Raises:
        MachineError: It has none.
    """
    if names and system.dram is None:
        having = [name for name in systems.names() if systems.get(name).dram is not None]
        raise MachineError(
            f"{system.name} has no streaming memory to keep tensors in",
            because=f"what is to lie there: {', '.join(names)}",
            remedy=f"on_chip=True, or a system that has: {', '.join(having)}",
        )


def check_locations(system: System, locations: Locations, *, waits: bool) -> None:
    """Raise unless a program can keep things where locations say.

    Args:
        system: The machine.
        locations: Places of the tensors.
        waits: True if the network has stages of a pipeline, or phases, between which activations wait.

    Raises:
        MachineError: Something is to lie in streaming memory, and there is none.
        InvalidOptionError: Activations are to lie there, of a network in which none wait.
    """
    check_off_chip(system, locations.off_chip)
    if not locations.activations.on_chip and not waits:
        raise InvalidOptionError(
            "activations cannot leave the chip: the network is no pipeline and has no phases",
            because="what leaves the chip is what waits between stages of a pipeline, or phases, for a later one",
            remedy="on_chip=True for activations, a pipeline, phases, or Settings(recompute=True)",
        )
