"""The target of a graph as Poplar shows it: a system, asked by Poplar's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from abele.errors import MachineError, nearest
from abele.machine import systems
from abele.machine.amp import AmpMode
from abele.machine.system import System
from abele.numerics import ElementType, as_element_type
from abele.words import counted

ARCHITECTURES = {
    "ipu1": {2: "c2"},
    "ipu2": {4: "m2000", 16: "pod16", 64: "pod64", 256: "pod256", 1024: "pod1024"},
    "ipu21": {1: "c600"},
}
"""Presets that stand for each architecture that Poplar names, by the most IPUs that each is taken for."""
_CPU_BYTES = 1 << 34
"""Memory of the one tile of a CPU target: as good as unlimited."""


class TargetType(Enum):
    """What runs a program."""

    IPU = "IPU"
    IPU_MODEL = "IPU_MODEL"
    CPU = "CPU"


@dataclass(frozen=True, slots=True)
class Target:
    """A system, by the names that Poplar programs ask it with.

    Attributes:
        system: The machine; every getter reads it.
        type: What kind of target it poses as.
    """

    system: System
    type: TargetType = TargetType.IPU_MODEL

    # --- making ------------------------------------------------------------------------------------------------------

    @staticmethod
    def createIPUTarget(
        numIPUs: int,
        tilesPerIPU: int | str | None = None,
        systemType: str | Mapping[str, Any] = "ipu2",
        options: Mapping[str, Any] | None = None,
    ) -> Target:
        """A target of ``numIPUs`` chips of an architecture, with all their tiles or only so many.

        ``createIPUTarget(n, "ipu2")`` and ``createIPUTarget(n, tiles, "ipu2")`` are both Poplar's.

        Raises:
            MachineError: An unknown architecture, or more tiles than the chip has.
        """
        if isinstance(tilesPerIPU, str):
            return Target(architecture(tilesPerIPU, numIPUs), TargetType.IPU)
        return Target(architecture(str(systemType), numIPUs, tilesPerIPU), TargetType.IPU)

    @staticmethod
    def createCPUTarget(accurateHalf: bool = True, numContexts: int = 1) -> Target:
        """A target of one tile with one worker and plenty of memory; half precision is always true half."""
        return Target(cpu_system(numContexts), TargetType.CPU)

    # --- sizes -------------------------------------------------------------------------------------------------------

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

    # --- Poplar's names ----------------------------------------------------------------------------------------------

    def getNumTiles(self) -> int:
        """Tiles of all IPUs."""
        return self.num_tiles

    def getTilesPerIPU(self) -> int:
        """Tiles of one IPU."""
        return self.tiles_per_ipu

    def getNumIPUs(self) -> int:
        """IPUs."""
        return self.num_ipus

    def getNumWorkerContexts(self) -> int:
        """Worker contexts of a tile."""
        return self.workers

    def getTypeSize(self, type: Any) -> int:
        """Bytes of an element in tile memory."""
        return self.type_size(type)

    def getVectorWidth(self, type: Any) -> int:
        """Elements that one arithmetic instruction handles."""
        return self.vector_width(type)

    def getFloatVectorWidth(self) -> int:
        """f32 elements that one arithmetic instruction handles."""
        return self.vector_width("float")

    def getHalfVectorWidth(self) -> int:
        """f16 elements that one arithmetic instruction handles."""
        return self.vector_width("half")

    def getDataPathWidth(self) -> int:
        """Width of the data path in bits."""
        return 8 * self.system.ipu.data_path_bytes

    def getRptCountMax(self) -> int:
        """Largest count of the hardware loop."""
        return self.system.ipu.max_repeats

    def getNumStrideBits(self) -> int:
        """Bits of a stride in loads and stores that advance their pointer."""
        return self.system.ipu.stride_bits

    def getAtomicStoreGranularity(self) -> int:
        """Bytes below which two workers that store into one word race."""
        return self.system.ipu.atomic_store_bytes

    def getBytesPerTile(self) -> int:
        """Memory of a tile in bytes."""
        return self.bytes_per_tile

    def getBytesPerIPU(self) -> int:
        """Memory of an IPU in bytes."""
        return self.system.ipu.memory_bytes

    def getTileClockFrequency(self) -> float:
        """Clock of the tiles in Hz."""
        return self.clock_hz

    def getExchangeBytesPerCycle(self) -> int:
        """Bytes that a tile sends, and at the same time receives, in a cycle."""
        return self.exchange_bytes_per_cycle

    def getMemcpyBytesPerCycle(self) -> int:
        """Bytes that a tile copies in a cycle inside its memory."""
        return self.system.ipu.tile.memcpy_bytes_per_cycle

    def getTilesPerSharedExchangeBus(self) -> int:
        """Tiles that share an exchange bus."""
        return self.system.ipu.exchange.tiles_per_bus

    def supportsExchangeBusSharing(self) -> bool:
        """Whether tiles that share a bus and want the same data receive it at twice the rate."""
        exchange = self.system.ipu.exchange
        return exchange.pair_bytes_per_cycle > exchange.bytes_per_cycle

    def getMaxIPUSyncDelay(self) -> int:
        """Longest way of a sync signal on an IPU, in cycles."""
        return self.system.ipu.sync.max_delay_cycles

    def getGlobalSyncCycles(self) -> int:
        """Cycles of a sync over all IPUs."""
        return self.system.sync_cycles

    def getMemoryElementOffsets(self) -> list[int]:
        """Offset of each memory element from the start of tile memory, in bytes."""
        tile = self.system.ipu.tile
        return list(range(0, tile.total_bytes, tile.element_bytes))

    def getInterleavedMemoryElementIndex(self) -> int:
        """Number of the first memory element that is interleaved with its neighbour."""
        tile = self.system.ipu.tile
        return tile.plain_bytes // tile.element_bytes

    def getTargetType(self) -> TargetType:
        """What kind of target it is."""
        return self.type

    def getTargetArchString(self) -> str:
        """Name of the architecture: ``ipu1``, ``ipu2``, ``ipu21`` or ``cpu``."""
        return "cpu" if self.type is TargetType.CPU else self.system.ipu.generation

    def isHW(self) -> bool:
        """Whether it is hardware: never here."""
        return False

    # --- matrix unit -------------------------------------------------------------------------------------------------

    def getFp8InFp16OutConvUnitsPerTile(self) -> int:
        """Convolution units of a tile that take f8 and accumulate f16; 0 where there are none."""
        return self._units("f8", "f16")

    def getFp16InFp16OutConvUnitsPerTile(self) -> int:
        """Convolution units of a tile that take and accumulate f16."""
        return self._units("f16", "f16")

    def getFp16InFp32OutConvUnitsPerTile(self) -> int:
        """Convolution units of a tile that take f16 and accumulate f32."""
        return self._units("f16", "f32")

    def getFp32InFp32OutConvUnitsPerTile(self) -> int:
        """Convolution units of a tile that take and accumulate f32."""
        return self._units("f32", "f32")

    def getNumConvUnits(self, inputType: Any, partialsType: Any) -> int:
        """Convolution units of a tile for a pair of types; 0 where there are none."""
        return self._units(as_element_type(inputType).name, as_element_type(partialsType).name)

    def getWeightsPerConvUnit(self, floatActivations: bool | ElementType = False) -> int:
        """Input channels that one convolution unit holds weights for, by the type of the activations."""
        name = _activation(floatActivations)
        return max((m.weights_per_unit for m in self.system.ipu.amp.modes if m.input == name), default=0)

    def getConvUnitInputLoadElemsPerCycle(self, floatActivations: bool | ElementType = False) -> int:
        """Activations that enter the units in a cycle, by their type."""
        size = as_element_type(_activation(floatActivations)).bytes
        return self.system.ipu.amp.input_load_bytes_per_cycle // size

    def getConvUnitCoeffLoadBytesPerCycle(self) -> int:
        """Bytes of weights that enter the units in a cycle with the widest loads."""
        return self.system.ipu.amp.wide_weight_load_bytes_per_cycle

    def getConvUnitMaxPipelineDepth(self) -> int:
        """Positions that the units have in flight at most."""
        return self.system.ipu.amp.pipeline_depth

    def _units(self, input: str, partials: str) -> int:
        modes: tuple[AmpMode, ...] = self.system.ipu.amp.modes
        return next((m.num_units for m in modes if (m.input, m.partials) == (input, partials)), 0)


def architecture(name: str, num_ipus: int, tiles_per_ipu: int | None = None) -> System:
    """The system that an architecture's name stands for.

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


def _activation(given: bool | ElementType) -> str:
    return ("f32" if given else "f16") if isinstance(given, bool) else as_element_type(given).name
