"""The memory of one tile."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import MachineError
from abele.machine.source import constant, derived, parameter, stated
from abele.machine.spec import Spec


@dataclass(frozen=True, kw_only=True)
class TileMemory(Spec):
    """The SRAM of one tile: size, regions, elements (banks) and port widths.

    Attributes:
        total_bytes: All of it.
        base_address: Address of the first byte.
        element_bytes: One element; one access per element and cycle.
        plain_bytes: Region 0, not interleaved; region 1 behind it alternates between two elements every 8 bytes.
        executable_bytes: Instructions can be fetched only from the first so many bytes.
        reserved_bytes: At the end, beyond the loader's reach.
        alignment_bytes: Start of each variable is a multiple of this.
        read_bytes_per_cycle: Most that one cycle can read (two ports, or one 128-bit load from region 1).
        write_bytes_per_cycle: Most that one cycle can write beside the reads.
        memcpy_bytes_per_cycle: Copy rate that the libraries assume.
        interleaved_memcpy_bytes_per_cycle: The same when the source lies in region 1.
        load_latency_cycles: Hidden from workers, which issue every sixth cycle; a stall for the supervisor.
        worker_stack_bytes: Stack of one worker, where compiled code runs.
        supervisor_stack_bytes: Stack of the supervisor.
        compact_pointer_bytes: A pointer in a vertex's record that is stored as short as the memory's size allows.
        control_step_bytes: Control code of one step on a tile that works in it.
        control_exchange_bytes: The same of an exchange, on a tile that takes part.
    """

    total_bytes: int = parameter()
    base_address: int = parameter(minimum=0)
    element_bytes: int = constant(stated(16384, "SAG; OSM memory.rs:7"))
    plain_bytes: int = parameter(minimum=0)
    executable_bytes: int = parameter()
    reserved_bytes: int = parameter(minimum=0)
    alignment_bytes: int = constant(stated(8, "AMP and convolution operands are aligned to 8 or 16 B"))
    read_bytes_per_cycle: int = constant(derived(16, "ld128 or ld2x64pace; 1216 x 16 x 1.6 GHz = 31.1 TB/s (CIT)"))
    write_bytes_per_cycle: int = constant(derived(8, "ld2xst64pace; 1472 x 24 x 1.85 GHz = 65.4 TB/s (GC-ANL)"))
    memcpy_bytes_per_cycle: int = constant(stated(8, "Target::getMemcpyBytesPerCycle, quoted in OSM cost.rs:331"))
    interleaved_memcpy_bytes_per_cycle: int = constant(stated(16, "the same for interleaved reads, OSM cost.rs:335"))
    load_latency_cycles: int = constant(stated(6, "CIT: 3.75 ns at 1.6 GHz"))
    worker_stack_bytes: int = constant(stated(0x200, "workerStackSizeInBytes of the engine options in poplibs tests"))
    supervisor_stack_bytes: int = constant(stated(0x80, "supervisorStackSizeInBytes of the same options"))
    compact_pointer_bytes: int = constant(stated(4, "COMPACT_PTR is ONE_PTR on Mk2 (poplar_api.md 6.2)"))
    control_step_bytes: int = constant(
        derived(20, "POPLINER, BERT-Large: an elementwise product on 1,280 tiles has 25,600 B, casts on 4 have 80"),
        minimum=0,
    )
    control_exchange_bytes: int = constant(
        derived(4, "POPLINER, BERT-Large: masks added on 1,280 tiles, to which they are sent, have 30,720 B"), minimum=0
    )

    @property
    def interleaved_bytes(self) -> int:
        """Bytes of region 1."""
        return self.total_bytes - self.plain_bytes

    @property
    def usable_bytes(self) -> int:
        """Bytes that a program can be loaded into."""
        return self.total_bytes - self.reserved_bytes

    def check(self) -> None:
        """Regions lie inside the memory."""
        for name in ("plain_bytes", "executable_bytes", "reserved_bytes"):
            if getattr(self, name) > self.total_bytes:
                raise MachineError(
                    f"TileMemory.{name} = {getattr(self, name):,}: must be at most total_bytes = {self.total_bytes:,}"
                )
        if self.element_bytes & (self.element_bytes - 1):
            raise MachineError(f"TileMemory.element_bytes = {self.element_bytes:,}: must be a power of two")
