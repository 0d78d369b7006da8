"""Target of a program: a system, the kind of target that it poses as, and its figures for programs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from abele.errors import MachineError, nearest
from abele.machine import systems
from abele.machine.system import System
from abele.numerics import as_element_type
from abele.words import counted

ARCHITECTURES = {
    "ipu1": {2: "c2"},
    "ipu2": {4: "m2000", 16: "pod16", 64: "pod64", 256: "pod256", 1024: "pod1024"},
    "ipu21": {1: "c600"},
}
"""Presets for each architecture of Poplar, by the most IPUs of each."""
_CPU_BYTES = 1 << 34
"""Memory of the one tile of a CPU target: as good as unlimited."""


class TargetType(Enum):
    """Kind of machine that runs a program."""

    IPU = "IPU"
    IPU_MODEL = "IPU_MODEL"
    CPU = "CPU"


@dataclass(frozen=True, slots=True)
class Target:
    """A system, and the figures of it that programs ask for.

    Attributes:
        system: The machine; every figure is read from it.
        type: Kind of target that it poses as.
    """

    system: System
    type: TargetType = TargetType.IPU_MODEL

    @property
    def num_tiles(self) -> int:
        """Tiles of all IPUs."""
        return self.system.num_tiles

    @property
    def tiles_per_ipu(self) -> int:
        """Tiles of one IPU."""
        return self.system.ipu.num_tiles

    @property
    def num_ipus(self) -> int:
        """IPUs."""
        return self.system.num_ipus

    @property
    def workers(self) -> int:
        """Worker contexts of a tile."""
        return self.system.ipu.num_workers

    @property
    def bytes_per_tile(self) -> int:
        """Memory of a tile."""
        return self.system.ipu.tile.total_bytes

    @property
    def clock_hz(self) -> float:
        """Clock of the tiles."""
        return self.system.ipu.clock_hz

    @property
    def exchange_bytes_per_cycle(self) -> int:
        """Bytes that a tile sends, and at the same time receives, in a cycle."""
        return self.system.ipu.exchange.bytes_per_cycle

    def vector_width(self, type: Any) -> int:
        """Elements that one arithmetic instruction handles."""
        return self.system.ipu.vector_width(as_element_type(type))

    def type_size(self, type: Any) -> int:
        """Bytes of an element in tile memory."""
        return as_element_type(type).bytes


def architecture(name: str, num_ipus: int, tiles_per_ipu: int | None = None) -> System:
    """System of an architecture's name.

    Raises:
        MachineError: No such architecture, or more IPUs or tiles than it has.
    """
    if name not in ARCHITECTURES:
        close = nearest(name, ARCHITECTURES)
        raise MachineError(
            f"no IPU architecture is called {name!r}",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(ARCHITECTURES),
        )
    sizes = ARCHITECTURES[name]
    preset = next((preset for most, preset in sizes.items() if num_ipus <= most), None)
    if preset is None:
        raise MachineError(
            f"no {name} machine has {counted(num_ipus, 'IPU')}",
            remedy=f"at most {max(sizes)}; a system of your own may have more",
        )
    system = systems.get(preset).with_ipus(num_ipus)
    if tiles_per_ipu is None:
        return system
    if not 0 < tiles_per_ipu <= system.ipu.num_tiles:
        raise MachineError(
            f"an {name} target of {counted(tiles_per_ipu, 'tile')} per IPU",
            because=f"{system.ipu.name} has {counted(system.ipu.num_tiles, 'tile')}",
            remedy=f"1 to {system.ipu.num_tiles}",
        )
    return system.evolve(ipu={"num_tiles": tiles_per_ipu})


def cpu_system(num_workers: int = 1) -> System:
    """A machine of one tile with plenty of memory, as Poplar's CPU device has it."""
    memory = {"total_bytes": _CPU_BYTES, "plain_bytes": _CPU_BYTES, "executable_bytes": _CPU_BYTES}
    ipu = {"name": "CPU", "num_tiles": 1, "num_workers": num_workers, "tile": memory}
    return systems.get("gc200").evolve(name="cpu", title="CPU as one tile", ipu=ipu)
