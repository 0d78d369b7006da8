"""Advice to the owner of a model that does not fit on the tiles, for a front end to put into its own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from abele.errors import OutOfMemoryError
from abele.machine import System, systems
from abele.network import Network, Schedule
from abele.numerics import f32
from abele.session.settings import Settings

DEFAULT_PROPORTION = 0.6
"""Share of a tile's memory that products and convolutions plan with where nothing was chosen."""
TRIED = " (tried: it fits)"
"""Words behind advice that was followed before it was given."""


@dataclass(frozen=True)
class Advice:
    """Remedies for a program that does not fit; None, or False, for those that would not help.

    Attributes:
        halve: Use half precision.
        in_vain: Remedies that were tried and are too large as well, in words.
        why_not_halved: Why half precision was not tried; empty where it was, or nothing was.
        batch: Use a smaller micro-batch than this one.
        micro_batches: Micro-batches of a run that then make the same run.
        recompute: Compute cheap activations again in the backward pass.
        proportion: Plan with this share of a tile's memory instead.
        proportion_now: The share that was planned with.
        partials: Keep partial sums of f16 products in f16.
        machine: Use this machine, whose IPUs have more memory.
        tried: The one of ``share_state``, ``recompute``, ``state_off_chip``, ``batch``, ``proportion``, ``partials``,
            ``halve`` and ``machine`` that was tried and makes the program fit; empty where none was found.
        share_state: Let replicas share the state of optimisers.
        state_off_chip: Keep the state of optimisers in streaming memory.
    """

    halve: bool
    batch: int | None
    micro_batches: int
    proportion: float | None
    proportion_now: float
    machine: str | None
    recompute: bool = False
    tried: str = ""
    why_not_halved: str = ""
    partials: bool = False
    in_vain: tuple[str, ...] = ()
    share_state: bool = False
    state_off_chip: bool = False

    def lines(self) -> list[str]:
        """The advice in the words of a session's own settings."""
        found = {}
        if self.halve:
            found["halve"] = "half precision: weights and inputs of type f16"
        if self.share_state:
            found["share_state"] = (
                "Locations(optimiser=TensorLocation(sharded=True)) in the schedule: replicas share what optimisers keep"
            )
        if self.recompute:
            found["recompute"] = "Settings(recompute=True)"
        if self.state_off_chip:
            found["state_off_chip"] = (
                "Locations(optimiser=TensorLocation(on_chip=False)) in the schedule: optimisers keep state off the chip"
            )
        if self.partials:
            found["partials"] = 'Settings(partials="f16"): partial sums of products in half precision'
        if self.batch is not None:
            found["batch"] = (
                f"a smaller micro-batch than {self.batch}, with {self.micro_batches} of them for the same run"
            )
        if self.proportion is not None:
            found["proportion"] = f"Settings(memory_proportion={self.proportion:g}) instead of {self.proportion_now:g}"
        if self.machine is not None:
            found["machine"] = f"a machine with more memory on an IPU: Settings(system={self.machine!r})"
        return self.ordered(found, "Settings(allow_out_of_memory=True) for a report of the program as it is")

    def ordered(self, found: dict[str, str], report: str) -> list[str]:
        """Sentences by the field that they are about: trials first, and the way to a report last."""
        if self.why_not_halved and "halve" in found:
            found["halve"] += f" (not tried: {self.why_not_halved})"
        first = [found.pop(self.tried) + TRIED] if self.tried in found else []
        return [*first, *found.values(), report]


Words = Callable[[Advice], list[str]]
"""Puts advice into the words of a front end."""


def advice(error: OutOfMemoryError, net: Network, schedule: Schedule, settings: Settings) -> Advice:
    """Remedies for a network that did not fit when it was compiled, as far as can be told without trying."""
    batch = batch_of(net)
    share = settings.memory_proportion or DEFAULT_PROPORTION
    return Advice(
        halve=any(v.dtype == f32 for v in (*net.parameters, *net.inputs)),
        batch=batch if batch > 1 else None,
        micro_batches=2 * schedule.micro_batches,
        proportion=share / 2 if temporaries_matter(error) else None,
        proportion_now=share,
        machine=larger_machine(settings.target()),
    )


def batch_of(net: Network) -> int:
    """Samples of a micro-batch, as the inputs show them."""
    return max((v.shape[0] for v in net.inputs if v.shape), default=1)


def temporaries_matter(error: OutOfMemoryError) -> bool:
    """True if temporaries, which plans and batches decide on, are a good part of the fullest tile."""
    worst = error.tiles[0] if error.tiles else {}
    return worst.get("temporaries", 0) * 4 >= worst.get("available_bytes", 1)


def larger_machine(system: System) -> str | None:
    """The machine whose IPUs have the most memory, if that is more than those of ``system``."""
    best = max(map(systems.get, systems.names()), key=_ipu_bytes)
    return best.name if _ipu_bytes(best) > _ipu_bytes(system) else None


def _ipu_bytes(system: System) -> int:
    return system.ipu.num_tiles * system.ipu.tile.total_bytes
