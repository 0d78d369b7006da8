"""Targets by Poplar's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abele import machine
from abele.machine import AmpMode, TargetType
from abele.machine.target import architecture, cpu_system
from abele.numerics import ElementType, as_element_type

__all__ = ["Target", "TargetType"]


class Target(machine.Target):
    """A system, by the names that Poplar programs ask it with; every getter reads the system's data."""

    __slots__ = ()

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
        """Bytes of a word in which stores of two workers race."""
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
        """True if tiles that share a bus and want the same data receive it at twice the rate."""
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
        """Type of the target."""
        return self.type

    def getTargetArchString(self) -> str:
        """Name of the architecture: ``ipu1``, ``ipu2``, ``ipu21`` or ``cpu``."""
        return "cpu" if self.type is TargetType.CPU else self.system.ipu.generation

    def isHW(self) -> bool:
        """True if it is hardware: never here."""
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


def _activation(given: bool | ElementType) -> str:
    return ("f32" if given else "f16") if isinstance(given, bool) else as_element_type(given).name
