"""Advice to the owner of a model that does not fit on the tiles, for a front end to put into its own words."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import OutOfMemoryError
from abele.machine import System, systems
from abele.numerics import f32
from abele.parallel import Network, Schedule
from abele.session.settings import Settings

DEFAULT_PROPORTION = 0.6
"""Share of a tile's memory that products and convolutions plan with where nothing was chosen."""


@dataclass(frozen=True)
class Advice:
    """What can be done about a program that does not fit; None, or False, for what would not help.

    Attributes:
        halve: Use half precision.
        batch: Use a smaller micro-batch than this one.
        micro_batches: Micro-batches of a run, twice as many as now, which then make the same run.
        proportion: Plan with this share of a tile's memory instead.
        proportion_now: The share that was planned with.
        machine: Use this machine, whose IPUs have more memory.
    """

    halve: bool
    batch: int | None
    micro_batches: int
    proportion: float | None
    proportion_now: float
    machine: str | None

    def lines(self) -> list[str]:
        """The advice in the words of a session's own settings."""
        found = ["half precision: weights and inputs of type f16"] if self.halve else []
        if self.batch is not None:
            found.append(f"a smaller micro-batch than {self.batch}, with {self.micro_batches} of them for the same run")
        if self.proportion is not None:
            found.append(f"Settings(memory_proportion={self.proportion:g}) instead of {self.proportion_now:g}")
        if self.machine is not None:
            found.append(f"a machine with more memory on an IPU: Settings(system={self.machine!r})")
        return [*found, "Settings(allow_out_of_memory=True) for a report of the program as it is"]


def advice(error: OutOfMemoryError, net: Network, schedule: Schedule, settings: Settings) -> Advice:
    """What can be done about an error that a network met when it was compiled."""
    sizes = [v.shape[0] for v in net.inputs if v.shape]
    batch = max(sizes, default=1)
    worst = error.tiles[0] if error.tiles else {}
    heavy = worst.get("temporaries", 0) * 4 >= worst.get("available_bytes", 1)
    share = settings.memory_proportion or DEFAULT_PROPORTION
    return Advice(
        halve=any(v.dtype == f32 for v in (*net.parameters, *net.inputs)),
        batch=batch if batch > 1 else None,
        micro_batches=2 * schedule.micro_batches,
        proportion=share / 2 if heavy else None,
        proportion_now=share,
        machine=_larger_machine(settings.target()),
    )


def _larger_machine(system: System) -> str | None:
    """The machine whose IPUs have the most memory, if that is more than those of ``system``."""
    best = max(map(systems.get, systems.names()), key=_ipu_bytes)
    return best.name if _ipu_bytes(best) > _ipu_bytes(system) else None


def _ipu_bytes(system: System) -> int:
    return system.ipu.num_tiles * system.ipu.tile.total_bytes
