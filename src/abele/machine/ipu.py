"""One IPU chip."""

from __future__ import annotations

from dataclasses import dataclass

from abele.machine.amp import Amp
from abele.machine.energy import Energy
from abele.machine.exchange import Exchange
from abele.machine.launch import Launch
from abele.machine.memory import TileMemory
from abele.machine.rearrange import Rearrange
from abele.machine.source import constant, guessed, parameter, part, stated
from abele.machine.spec import Spec
from abele.machine.sync import SyncCosts
from abele.numerics import ElementType
from abele.words import counted


@dataclass(frozen=True, kw_only=True)
class Ipu(Spec):
    """One chip: its tiles, their clock, memory, issue rules, exchange, sync and matrix unit.

    Attributes:
        name: The chip's name.
        generation: ``ipu1``, ``ipu2`` or ``ipu21``, as Poplar names targets.
        num_tiles: Tiles that a program can use.
        clock_hz: Tile clock.
        num_workers: Worker contexts of a tile; each issues once every so many cycles.
        data_path_bytes: Width of the data path: 2 f32 or 4 f16.
        instruction_bytes: One instruction; a bundle is two.
        max_repeats: Largest count of the hardware loop.
        stride_bits: Bits of a stride in loads and stores that advance their pointer.
        atomic_store_bytes: Stores narrower than this read, change and write back a whole word, so workers that share
            the word race.
        tile: Memory of a tile.
        exchange: On-chip exchange.
        sync: Barriers.
        launch: Overheads around vertices.
        rearrange: Local data rearrangement.
        amp: Matrix unit.
        energy: Energy of arithmetic and traffic.
    """

    name: str
    generation: str
    num_tiles: int = parameter()
    clock_hz: float = parameter()
    num_workers: int = constant(stated(6, "SAG CTXT_WORKERS; every poplibs estimator multiplies by it"))
    data_path_bytes: int = constant(stated(8, "dataPathWidth = 64 bit in PL estimators"))
    instruction_bytes: int = constant(stated(4, "ISA"))
    max_repeats: int = constant(stated(0xFFF, "Target::getRptCountMax, which PL vertices split their loops by"))
    stride_bits: int = constant(stated(10, "Target::getNumStrideBits in PL lib/poplin"))
    atomic_store_bytes: int = constant(
        guessed(4, "Target::getAtomicStoreGranularity is 4 or 8 B in PL's comments; 4 B is the narrowest plain store")
    )
    tile: TileMemory = part(TileMemory)
    exchange: Exchange = part(Exchange)
    sync: SyncCosts = part(SyncCosts)
    launch: Launch = part(Launch, default=True)
    rearrange: Rearrange = part(Rearrange, default=True)
    amp: Amp = part(Amp)
    energy: Energy = part(Energy, default=True)

    def vector_width(self, type: ElementType) -> int:
        """Elements that one arithmetic instruction handles: 2 f32, 4 f16 or bf16; integers are scalar.

        Source: PL getVectorWidth; ISA (integer arithmetic is on the scalar side).
        """
        return max(self.data_path_bytes // type.bytes, 1) if type.is_float else 1

    @property
    def converts_quarters(self) -> bool:
        """True if there are instructions for 8-bit floats; otherwise workers put their bits together themselves."""
        return any(mode.input == "f8" for mode in self.amp.modes)

    @property
    def memory_bytes(self) -> int:
        """SRAM of the chip."""
        return self.num_tiles * self.tile.total_bytes

    @property
    def memory_bytes_per_second(self) -> float:
        """Peak SRAM bandwidth, reads and writes together."""
        per_tile = self.tile.read_bytes_per_cycle + self.tile.write_bytes_per_cycle
        return self.num_tiles * per_tile * self.clock_hz

    @property
    def exchange_bytes_per_second(self) -> float:
        """Peak exchange bandwidth: every tile sending."""
        return self.num_tiles * self.exchange.bytes_per_cycle * self.clock_hz

    def peak_flops(self, input: str, partials: str) -> float:
        """Peak rate of the matrix units in floating-point operations per second, types given by name.

        Raises:
            MachineError: The matrix unit lacks such a mode.
        """
        return 2.0 * self.num_tiles * self.amp.mode(input, partials).macs_per_cycle * self.clock_hz

    def __repr__(self) -> str:
        return f"Ipu({self.name!r}: {counted(self.num_tiles, 'tile')} at {self.clock_hz / 1e9:g} GHz)"
