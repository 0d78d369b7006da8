"""One IPU chip."""

from __future__ import annotations

import math
from dataclasses import dataclass

from abele.errors import MachineError
from abele.machine.energy import Energy
from abele.machine.source import calibrated, constant, derived, guessed, parameter, part, stated
from abele.machine.spec import Spec
from abele.numerics import ElementType
from abele.words import counted

# The accumulating matrix product unit of a tile.


@dataclass(frozen=True, kw_only=True)
class AmpMode(Spec):
    """One way to run the unit: a pair of input and partials types.

    Attributes:
        input: Element type of inputs and weights, by name.
        partials: Element type of the accumulators, by name.
        num_units: Convolution units at work: output channels of one pass.
        weights_per_unit: Input channels that one unit holds weights for.
        core_cycles: Cycles from one position to the next, once pipelined.
    """

    input: str
    partials: str
    num_units: int = parameter()
    weights_per_unit: int = parameter()
    core_cycles: int = parameter()

    @property
    def name(self) -> str:
        """``input→partials``."""
        return f"{self.input}→{self.partials}"

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates per cycle on one tile."""
        return self.num_units * self.weights_per_unit // self.core_cycles


@dataclass(frozen=True, kw_only=True)
class Amp(Spec):
    """The matrix unit of a tile.

    Attributes:
        modes: The type pairs that it knows.
        weight_load_bytes_per_cycle: Rate at which weights enter the units.
        wide_weight_load_bytes_per_cycle: The same with 128-bit loads from interleaved memory.
        input_load_bytes_per_cycle: Rate at which activations enter.
        pipeline_depth: Positions in flight at most.
    """

    modes: tuple[AmpMode, ...] = part(AmpMode)
    weight_load_bytes_per_cycle: int = constant(
        stated(8, "convUnitCoeffLoadBytesPerCycle without use128BitConvUnitLoad, PL lib/poplin/ConvOptions.hpp:42")
    )
    wide_weight_load_bytes_per_cycle: int = constant(stated(16, "the same with use128BitConvUnitLoad"))
    input_load_bytes_per_cycle: int = constant(
        stated(8, "Target::getConvUnitInputLoadElemsPerCycle: 2 f32 or 4 f16, PL lib/poplin")
    )
    pipeline_depth: int = constant(guessed(4, "Target::getConvUnitMaxPipelineDepth; no value is published"))

    def mode(self, input: str, partials: str) -> AmpMode:
        """Mode of the unit with these types, given by name.

        Raises:
            MachineError: It has no such mode.
        """
        for mode in self.modes:
            if (mode.input, mode.partials) == (input, partials):
                return mode
        raise MachineError(
            f"the matrix unit has no mode {input}→{partials}",
            remedy="one of " + ", ".join(mode.name for mode in self.modes),
        )


# The memory of one tile.


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


# The on-chip exchange: statically scheduled, stateless, no contention.


@dataclass(frozen=True, kw_only=True)
class Exchange(Spec):
    """Costs of sending and receiving on one IPU.

    Attributes:
        bytes_per_cycle: One tile sends, and at the same time receives, at most this.
        pair_bytes_per_cycle: Rate at which a pair of tiles receives when both want the same data.
        tiles_per_bus: Tiles that share an exchange bus.
        granule_bytes: Smallest thing exchanged, and its alignment; smaller pieces need a rearrangement first.
        route_min_cycles: Send to readable word, nearest pair of tiles.
        route_mean_cycles: The same, mean over all pairs.
        route_max_cycles: The same, farthest pair.
        phase_overhead_cycles: Delay before the first word of a phase leaves.
        fragment_cycles: Control events of a receiver for each separate fragment.
        instruction_bytes: One exchange instruction.
        message_code_bytes: Exchange code of a tile that sends or receives one piece in a phase, return included.
        fragment_code_bytes: Exchange code of each further piece.
        base_code_bytes: Code that sets one base register before an exchange program that supersteps share.
        max_words_per_send: Longest single send, in 4-byte words.
    """

    bytes_per_cycle: int = constant(
        stated(4, "Target::getExchangeBytesPerCycle, OSM cost.rs:330; 1472 x 4 x 1.85 GHz = 10.9 TB/s, sold as 11")
    )
    pair_bytes_per_cycle: int = constant(stated(8, "PL lib/poplin/ExchangeEstimator.hpp:41-56, bus sharing"))
    tiles_per_bus: int = constant(stated(2, "Target::getTilesPerSharedExchangeBus, OSM cost.rs"))
    granule_bytes: int = constant(stated(4, "OSM EXCHANGE_INSTRUCTION_REFERENCE.md; PL lib/popops/DynamicSlice.cpp"))
    route_min_cycles: int = constant(derived(18, "IPU21 route function of OSM topology.rs over all tile pairs"))
    route_mean_cycles: int = constant(derived(64, "IPU21 route function of OSM topology.rs, mean over all pairs"))
    route_max_cycles: int = constant(derived(164, "IPU21 route function of OSM topology.rs, maximum"))
    phase_overhead_cycles: int = constant(
        derived(112, "pre-delay of a point-to-point phase as the SDK lays it out (OSM point_to_point)"), minimum=0
    )
    fragment_cycles: int = constant(stated(3, "OSM PLANNER_SUGGESTIONS.md, validated within 3 % on a C600"), minimum=0)
    instruction_bytes: int = constant(stated(4, "PL lib/popops/DynamicSlice.cpp:4331-4500"))
    message_code_bytes: int = constant(
        derived(14, "POPLINER, BERT: one word sent to each of 1,472 tiles has 20,596 to 20,608 B; at most 36 (OSM)"),
        minimum=0,
    )
    fragment_code_bytes: int = constant(
        stated(4, "one instruction for each piece, as PopLibs' planners charge (PL lib/popops/DynamicSlice.cpp)"),
        minimum=0,
    )
    base_code_bytes: int = constant(
        guessed(4, "one instruction: `sendoff` sends from an offset to a register (SAG); receivers' pointers alike"),
        minimum=0,
    )
    max_words_per_send: int = parameter()

    def check(self) -> None:
        """Route times are ordered and a pair is no slower than one tile."""
        if not self.route_min_cycles <= self.route_mean_cycles <= self.route_max_cycles:
            raise MachineError(
                f"Exchange.route_mean_cycles = {self.route_mean_cycles}: must lie between route_min_cycles = "
                f"{self.route_min_cycles} and route_max_cycles = {self.route_max_cycles}"
            )
        if self.pair_bytes_per_cycle < self.bytes_per_cycle:
            raise MachineError(
                f"Exchange.pair_bytes_per_cycle = {self.pair_bytes_per_cycle}: must be at least bytes_per_cycle = "
                f"{self.bytes_per_cycle}"
            )


# Barriers: inside a tile, across a chip, between chips.
#
# A barrier is a tree of requests and of acknowledgements that run the same way back. On a chip, tiles ask its sync
# controller, and the acknowledgement reaches the nearest tile after ``on_chip_cycles``, the farthest after
# ``max_delay_cycles``: both are round trips. Between chips, controllers pass the request on to a root in the middle of
# the ladder of IPUs, hop by hop; it leaves and enters chips by the ports of their links. So a barrier of several IPUs
# is the round trip to the farthest tile, and twice the way from an outer controller to the root.


@dataclass(frozen=True, kw_only=True)
class SyncCosts(Spec):
    """Costs of barriers and rendezvous.

    Attributes:
        worker_cycles: Supervisor waits for its workers.
        on_chip_cycles: All tiles of one IPU, once every tile has arrived.
        max_delay_cycles: From the request of the tile that is farthest from the sync controller to its acknowledgement.
        edge_seconds: Between the sync controllers and the links' far ends, once each way: ports and serialisers.
        hop_seconds: One hop of the sync network between IPUs.
        host_seconds: Rendezvous with the host before a stream copy.
    """

    worker_cycles: int = constant(stated(6, "PL lib/poplin/PerformanceEstimation.hpp"), minimum=0)
    on_chip_cycles: int = parameter(minimum=0)
    max_delay_cycles: int = constant(stated(126, "Target::getMaxIPUSyncDelay, OSM cost.rs"), minimum=0)
    edge_seconds: float = constant(
        calibrated(
            49e-9,
            "what a step of the float blur waits longer on 16 GC2 than on one: 640 - 117 = 523 cycles (LBM), less "
            "126 on the chips and 2 x 5 hops of 24; half of 157 cycles at 1.6 GHz",
            on=("blur: float, 16 IPUs: sync",),
        ),
        minimum=0,
    )
    hop_seconds: float = constant(stated(15e-9, "IPUModel: PL lib/poplibs_test/Util.cpp:430-437"), minimum=0)
    host_seconds: float = constant(
        derived(
            46e-6,
            "tutorial 6 on an M2000: 135,850 cycles of sync where Graphcore's model has 1,135, over two meetings "
            "with the host, for the inputs and for the result: 50.6 us each, less the latency of the link. If the "
            "two inputs meet it one by one, it is 29 us",
        ),
        minimum=0,
    )

    def global_cycles(self, num_ipus: int, clock_hz: float) -> int:
        """Cycles of a sync over ``num_ipus`` IPUs; with one IPU, the on-chip sync, and never less than that.

        Source: the hops are the IPUModel's, 1 + (IPUs / 2) / 2: across a rung, then along half the ladder.
        """
        if num_ipus == 1:
            return self.on_chip_cycles
        hops = 1 + num_ipus // 2 // 2
        way = (self.edge_seconds + self.hop_seconds * hops) * clock_hz
        # Rounded before it is rounded up: products of clocks and nanoseconds are whole but for floating point.
        return max(self.on_chip_cycles, self.max_delay_cycles + math.ceil(round(2 * way, 6)))


# Local data rearrangement before and after an exchange.

_FIT = "poplibs' regression for transforms: 587 + r x KiB (PL lib/poplin/ConvModel.cpp:1575-1585)"


@dataclass(frozen=True, kw_only=True)
class Rearrange(Spec):
    """Cost of copying a tile's data into another order, by the width of its contiguous pieces.

    Attributes:
        fixed_cycles: Any rearrangement.
        wide_cycles_per_kib: Pieces are multiples of 8 bytes.
        word_cycles_per_kib: Pieces are multiples of 4 bytes.
        half_word_cycles_per_kib: Pieces are multiples of 2 bytes.
        local_copy_cycles: Fixed cost of one plain local copy, both rendezvous included.
    """

    fixed_cycles: int = constant(stated(587, _FIT), minimum=0)
    wide_cycles_per_kib: int = constant(stated(451, _FIT))
    word_cycles_per_kib: int = constant(stated(3200, _FIT))
    half_word_cycles_per_kib: int = constant(stated(5271, _FIT))
    local_copy_cycles: int = constant(stated(288, "measured on a C600, OSM cost.rs:341"), minimum=0)

    def cycles_per_kib(self, piece_bytes: int) -> int:
        """Cycles per KiB for contiguous pieces of ``piece_bytes``."""
        if piece_bytes % 8 == 0:
            return self.wide_cycles_per_kib
        return self.word_cycles_per_kib if piece_bytes % 4 == 0 else self.half_word_cycles_per_kib


# Launch: the cost of starting work on a tile.


@dataclass(frozen=True, kw_only=True)
class Launch(Spec):
    """Cycles outside the vertices themselves.

    Silicon exceeds PopLibs' estimators by a constant per compute set that depends on the kind of the vertex alone;
    ``docs/machine.md`` shows the figures.

    Attributes:
        supervisor_cycles: Overhead of a library's supervisor vertex around its workers.
        scaled_pointer_cycles: In addition, when fields are scaled pointers.
        run_all_cycles: Starting all workers.
        compute_set_cycles: Control code around one compute set: calling it, finding its vertices, and returning.
        multi_vertex_cycles: Starting one MultiVertex. A SupervisorVertex has code of its own that starts its workers,
            and its formula holds that; the workers of a MultiVertex are started by a stub of the runtime, which no
            formula holds: it fetches entry point and state, calls, waits and returns.
    """

    supervisor_cycles: int = constant(stated(11, "basicOpSupervisorOverhead, PL lib/popops/PerformanceEstimation.cpp"))
    scaled_pointer_cycles: int = constant(stated(2, "PL lib/popops/PerformanceEstimation.cpp:19-30"), minimum=0)
    run_all_cycles: int = constant(stated(6, "PL lib/poplin/PerformanceEstimation.hpp:708-712"), minimum=0)
    compute_set_cycles: int = constant(
        calibrated(
            42,
            "silicon minus estimator for vertices whose formula has the supervisor's own code: +46 scaled subtract, "
            "+39 AMP matmul with 128-bit loads (TESS measurements); their mean. Seven six-cycle stalls; +-5",
            on=("elementwise: scaled subtract, 256 elements", "silicon: [1008, 16] x [16, 16] on every tile"),
        ),
        minimum=0,
    )
    multi_vertex_cycles: int = constant(
        calibrated(
            40,
            "silicon minus estimator of a MultiVertex, +82 binary add (TESS measurement), less what any compute set "
            "takes; +-5",
            on=("elementwise: add, 10 elements per tile",),
        ),
        minimum=0,
    )


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
