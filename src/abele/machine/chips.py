"""The chips that there are: GC2, GC200, Bow and C600."""

from __future__ import annotations

from abele.machine.amp import Amp, AmpMode
from abele.machine.energy import Energy
from abele.machine.exchange import Exchange
from abele.machine.ipu import Ipu
from abele.machine.memory import TileMemory
from abele.machine.source import calibrated, cite, derived, guessed, stated
from abele.machine.sync import SyncCosts

_UNITS_MK1 = "conv unit defaults of Mk1 targets, PLhist b13f4f7c"
_UNITS_MK2 = "getNumConvUnits, PL lib/poplin/PerformanceEstimation.hpp:1668"
_WEIGHTS = "weightsPerConvUnit, PL lib/poplin/ConvModel.cpp"
_CORE = "cycles per position, PL lib/poplin/PerformanceEstimation.hpp:808-840"

MEMORY_MK1 = cite(
    TileMemory,
    total_bytes=stated(262_144, "SAG TMEM_SIZE"),
    base_address=stated(0x40000, "SAG"),
    plain_bytes=stated(131_072, "SAG: 8 elements at interleave 1"),
    executable_bytes=guessed(262_144, "no restriction on instruction fetch is known for Mk1"),
    reserved_bytes=guessed(0, "no reserved tail is known for Mk1"),
    compact_pointer_bytes=stated(2, "SCALED_PTR64, Mk1 only (poplar_api.md 6.2): 256 KiB in units of 8 B"),
)
MEMORY_MK2 = cite(
    TileMemory,
    total_bytes=stated(638_976, "Poplar tutorial 4; POPLINER test_profile.py; OSM memory.rs:4"),
    base_address=stated(0x4C000, "OSM memory.rs:3"),
    plain_bytes=stated(0x34000, "OSM memory.rs:12-14; agrees with maximum tile addresses of benchmarks near 212,992"),
    executable_bytes=stated(0x34000, "OSM memory.rs:10-11: instructions only below 0x80000"),
    reserved_bytes=stated(0x450, "OSM memory.rs:18-22"),
)

_F16_MK1 = cite(
    AmpMode,
    input="f16",
    partials="f32",
    num_units=stated(8, _UNITS_MK1),
    weights_per_unit=stated(16, _WEIGHTS),
    core_cycles=derived(4, "1216 x 32 MAC x 1.6 GHz = 124.5 TFLOP/s as sold"),
)
_F32_MK1 = cite(
    AmpMode,
    input="f32",
    partials="f32",
    num_units=stated(4, _UNITS_MK1),
    weights_per_unit=stated(8, _WEIGHTS),
    core_cycles=derived(4, "1216 x 8 MAC x 1.6 GHz = 31.1 TFLOP/s as sold"),
)
AMP_MK1 = Amp(modes=(_F16_MK1.evolve(partials="f16"), _F16_MK1, _F32_MK1))

_MODES_MK2 = (
    cite(
        AmpMode,
        input="f16",
        partials="f16",
        num_units=stated(16, _UNITS_MK2),
        weights_per_unit=stated(16, _WEIGHTS),
        core_cycles=stated(4, _CORE),
    ),
    cite(
        AmpMode,
        input="f16",
        partials="f32",
        num_units=stated(8, _UNITS_MK2),
        weights_per_unit=stated(16, _WEIGHTS),
        core_cycles=stated(4, _CORE),
    ),
    cite(
        AmpMode,
        input="f32",
        partials="f32",
        num_units=stated(16, _UNITS_MK2),
        weights_per_unit=stated(8, _WEIGHTS),
        core_cycles=derived(8, "1472 x 16 MAC x 1.33 GHz = 62.6 TFLOP/s, sold as 62.5"),
    ),
)
_F8_MODE = cite(
    AmpMode,
    input="f8",
    partials="f16",
    num_units=stated(16, _UNITS_MK2),
    weights_per_unit=stated(32, _WEIGHTS),
    core_cycles=stated(4, _CORE),
)
AMP_MK2 = Amp(modes=_MODES_MK2)
AMP_IPU21 = Amp(modes=(*_MODES_MK2, _F8_MODE))

_ON_CHIP_SYNC = calibrated(
    64,
    "measured sync of one superstep of the half4 blur on one Mk1, LBM exchange-vs-compute.csv",
    on=("blur: half4, 1 IPU: sync",),
)

_OLDER_PROCESS = (
    "1.5 times that of Mk2 (16 nm, not 7 nm): at 124.5 TFLOP/s on real data f16 with f32 partials then takes 142 W of "
    "the 150 W that the chip is rated for"
)
ENERGY_GC2 = cite(
    Energy,
    f16_joules_per_flop=guessed(1.5e-12, _OLDER_PROCESS),
    f16_f32_joules_per_flop=guessed(1.95e-12, _OLDER_PROCESS),
    f32_joules_per_flop=guessed(3.75e-12, _OLDER_PROCESS),
    vector_joules_per_flop=guessed(15e-12, "no source; 1.5 times that of Mk2"),
    least_vector_joules_per_flop=guessed(2.5e-12, "no less than Mk2"),
    rated_watts=stated(150.0, "LOUW: 300 W for a C2 card of two chips"),
)
_SAME_ENERGY = "GC-ESO, taming Vdd: Bow is 1.4 times as fast at the same energy per operation; kernel power, of Bow"
ENERGY_GC200 = cite(
    Energy,
    f16_joules_per_flop=derived(1.0e-12, _SAME_ENERGY),
    f16_f32_joules_per_flop=derived(1.3e-12, _SAME_ENERGY),
    f32_joules_per_flop=derived(2.5e-12, _SAME_ENERGY),
    rated_watts=guessed(
        325.0, "IPU-M2000 with four IPUs, 1.1 to 1.5 kW by the press (§3), all of the machine included"
    ),
)
ENERGY_C600 = cite(
    Energy,
    rated_watts=stated(185.0, "C600 brochure: 185 W for the card"),
)

GC2 = cite(
    Ipu,
    name="GC2",
    generation="ipu1",
    num_tiles=stated(1216, "LOUW; SAG: 1,216 of 1,280 physical tiles usable"),
    clock_hz=stated(1.6e9, "LOUW"),
    tile=MEMORY_MK1,
    exchange=cite(
        Exchange,
        max_words_per_send=stated(64, "SAG SENDOFF_INTERNAL_COUNT_LIMIT"),
        route_min_cycles=guessed(18, "as on IPU21"),
        route_mean_cycles=guessed(64, "as on IPU21"),
        route_max_cycles=guessed(164, "as on IPU21"),
        phase_overhead_cycles=guessed(112, "as on IPU21"),
    ),
    sync=cite(SyncCosts, on_chip_cycles=_ON_CHIP_SYNC),
    amp=AMP_MK1,
    energy=ENERGY_GC2,
)
GC200 = cite(
    Ipu,
    name="GC200",
    generation="ipu2",
    num_tiles=stated(1472, "GC-MLP; POPLINER"),
    clock_hz=stated(1.33e9, "ML11 system descriptions; the IPUModel's clock"),
    tile=MEMORY_MK2,
    exchange=cite(Exchange, max_words_per_send=stated(4148, "OSM: longest simple transfer row of IPU21")),
    sync=cite(SyncCosts, on_chip_cycles=guessed(64, "as measured on Mk1; no Mk2 measurement found")),
    amp=AMP_MK2,
    energy=ENERGY_GC200,
)
BOW = cite(
    Ipu,
    name="Bow",
    generation="ipu2",
    num_tiles=stated(1472, "GC-ESO"),
    clock_hz=stated(1.85e9, "ML20 system descriptions; TESS tile_clock_frequency"),
    tile=MEMORY_MK2,
    exchange=GC200.exchange,
    sync=GC200.sync,
    amp=AMP_MK2,
)
C600 = cite(
    Ipu,
    name="C600",
    generation="ipu21",
    num_tiles=stated(1472, "OSM topology.rs"),
    clock_hz=stated(1.5e9, "OSM README"),
    tile=MEMORY_MK2,
    exchange=GC200.exchange,
    sync=GC200.sync,
    amp=AMP_IPU21,
    energy=ENERGY_C600,
)
