"""The systems that there are, by name, and how a name, a file or a value becomes a :class:`System`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from abele.errors import MachineError, nearest
from abele.machine.energy import Energy
from abele.machine.ipu import Amp, AmpMode, Exchange, Ipu, SyncCosts, TileMemory
from abele.machine.source import calibrated, cite, derived, guessed, stated
from abele.machine.spec import Spec
from abele.machine.system import Dram, GatewayLinks, HostLink, IpuLinks, System

# Reading the description of a system, or of a host, from a file.

Described = TypeVar("Described", bound=Spec)


def read_overrides(path: Path) -> dict[str, Any]:
    """The table that a TOML or JSON file holds.

    Raises:
        MachineError: The file is missing, not text, or not well formed; the error names the line where there is one.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise MachineError(
            f"{path}: {error.strerror or error}", remedy="give the path of a TOML or JSON file"
        ) from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise MachineError(f"{path}: not a well-formed system description", because=str(error)) from error
    if not isinstance(table, dict):
        raise MachineError(f"{path}: a system description is a table of fields, not a {type(table).__name__}")
    return table


def read_described(path: Path, get: Callable[[str], Described], *, what: str, example: str) -> Described:
    """Object that a TOML or JSON file describes: the name of a preset as ``base``, and fields that differ from it.

    Args:
        path: The file.
        get: Gives a preset by name.
        what: Name of the kind of preset, in a word.
        example: Name of a preset.

    Raises:
        MachineError: The file cannot be read, has no ``base``, or describes something impossible.
    """
    overrides = read_overrides(path)
    base = overrides.pop("base", None)
    if not isinstance(base, str):
        raise MachineError(
            f"{path}: no base {what} is named", remedy=f'begin the file with base = "{example}" (see {what}s.names())'
        )
    overrides.setdefault("name", path.stem)
    overrides.setdefault("title", f"{overrides['name']} (after {base})")
    try:
        return get(base).evolve(**overrides)
    except MachineError as error:
        raise MachineError(error.message, at=str(path), because=error.because, remedy=error.remedy) from error


# The chips that there are: GC2, GC200, Bow and C600.

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


_LINK_RATE = stated(
    128 * 1024**3 / 8, "IPUModel: 128 Gbit/s (x 1024^3), PL lib/poplibs_test/Util.cpp:402; sold as 16 GB/s"
)
_NUM_LINKS = stated(10, "GC-ESO, GC-MLP")

_LADDER = cite(IpuLinks, topology="ladder", num_links=_NUM_LINKS, link_bytes_per_second=_LINK_RATE)
_TORUS = _LADDER.evolve(topology="torus")
_CARD_LINKS = cite(
    IpuLinks,
    topology="pair",
    num_links=_NUM_LINKS,
    link_bytes_per_second=_LINK_RATE,
    pair_links=stated(3, "CIT: three links of 64 GB/s between the two chips of a C2 card"),
)
_NO_LINKS = cite(
    IpuLinks,
    topology="none",
    num_links=stated(4, "C600 brochure: 4 links, 1 Tbit/s together"),
    link_bytes_per_second=derived(1e12 / 8 / 4 / 2, "1 Tbit/s over 4 links and 2 directions"),
)
_PCIE = cite(
    HostLink,
    bytes_per_second=derived(32e9, "PCIe Gen4 x16: 64 GB/s bidirectional (GC-ESO)"),
    ipus_per_link=stated(2, "C2 card: two chips behind one slot"),
    ipu_bytes_per_second=derived(32e9, "no narrower than the slot"),
    latency_seconds=guessed(2e-6, "one PCIe round trip; no source found"),
)
_ETHERNET = cite(
    HostLink,
    bytes_per_second=derived(12.5e9, "100 Gbit Ethernet an IPU-M (GC-SW)"),
    ipus_per_link=stated(4, "an IPU-M holds four IPUs (GC-SW)"),
    ipu_bytes_per_second=derived(16e9, "IPU to gateway: PCIe Gen4 x8, 32 GB/s bidirectional (GC-SW)"),
    latency_seconds=guessed(5e-6, "one RDMA round trip through gateway and switch; no source found"),
)
_GATEWAY = cite(
    GatewayLinks,
    bytes_per_second=derived(25e9, "2 x 100 Gbit/s an IPU-M (GC-SW)"),
    ipus_per_machine=stated(4, "an IPU-M holds four IPUs (GC-SW)"),
)
_DRAM = cite(
    Dram,
    bytes=stated(128 * 10**9, "standard fitting of an IPU-M; up to 256 GB (GC-SW)"),
    bytes_per_second=guessed(47e9, "two channels of DDR4-2933; no measured figure found"),
    ipus_per_dram=stated(4, "an IPU-M holds four IPUs (GC-SW)"),
)


def _cards() -> list[System]:
    one, two = stated(1, "one chip of a C2 card"), stated(2, "LOUW: C2 card, two GC2")
    c600_host = cite(
        HostLink,
        bytes_per_second=derived(32e9, "PCIe Gen4 x16: 64 GB/s bidirectional (GC-ESO)"),
        ipus_per_link=stated(1, "C600 brochure: one chip a card"),
        ipu_bytes_per_second=derived(32e9, "no narrower than the slot"),
        latency_seconds=guessed(2e-6, "one PCIe round trip; no source found"),
    )
    return [
        cite(System, name="gc2", title="one GC2 IPU", num_ipus=one, ipu=GC2, ipu_links=_CARD_LINKS, host=_PCIE),
        cite(System, name="c2", title="C2 card", num_ipus=two, ipu=GC2, ipu_links=_CARD_LINKS, host=_PCIE),
        cite(
            System,
            name="c600",
            title="C600 card",
            num_ipus=stated(1, "C600 brochure"),
            ipu=C600,
            ipu_links=_NO_LINKS,
            host=c600_host,
        ),
    ]


def _machine(name: str, title: str, ipu: Ipu, num_ipus: int) -> System:
    racks = num_ipus > 64
    return cite(
        System,
        name=name,
        title=title,
        num_ipus=stated(num_ipus, f"{title}: {num_ipus} IPUs (GC-ANL, GC-SW)"),
        ipu=ipu,
        ipu_links=_LADDER if num_ipus <= 16 else _TORUS,
        host=_ETHERNET,
        gateway=_GATEWAY if racks else None,
        dram=_DRAM,
    )


def _machines() -> list[System]:
    sizes = (16, 64, 256, 1024)
    return [
        _machine("gc200", "one GC200 IPU of an IPU-M2000", GC200, 1),
        _machine("m2000", "IPU-M2000", GC200, 4),
        *(_machine(f"pod{n}", f"IPU-POD{n}", GC200, n) for n in sizes),
        _machine("bow", "one Bow IPU of a Bow-2000", BOW, 1),
        _machine("bow-2000", "Bow-2000", BOW, 4),
        *(_machine(f"bow-pod{n}", f"Bow Pod{n}", BOW, n) for n in sizes),
    ]


_PRESETS = {system.name: system for system in (*_cards(), *_machines())}


def names() -> tuple[str, ...]:
    """Names of the presets."""
    return tuple(_PRESETS)


def get(name: str) -> System:
    """The preset called ``name``; ``NAME:N`` is that preset with N IPUs in use.

    Raises:
        MachineError: There is no such preset.
    """
    base, _, count = name.lower().replace("_", "-").partition(":")
    if base not in _PRESETS:
        close = nearest(base, _PRESETS)
        raise MachineError(
            f"no system is called {name!r}",
            remedy=(f"did you mean {close!r}? " if close else "") + "the presets are " + ", ".join(_PRESETS),
        )
    if not count:
        return _PRESETS[base]
    if not count.isdecimal():
        raise MachineError(f"{name!r}: after the colon comes a number of IPUs", remedy=f"{base}:1")
    return _PRESETS[base].with_ipus(int(count))


def load(path: str | Path) -> System:
    """System described in a TOML or JSON file: the name of a preset as ``base``, and fields that differ from it.

    Raises:
        MachineError: The file cannot be read, has no ``base``, or describes something impossible.
    """
    return read_described(Path(path), get, what="system", example="bow-2000")


def resolve(system: str | Path | System) -> System:
    """The system meant by a value, a preset's name, or the path of a description file.

    Raises:
        MachineError: No such preset, a description that is none, or a value that means no system.
    """
    if isinstance(system, System):
        return system
    if not isinstance(system, (str, Path)):
        raise MachineError(
            f"{system!r} is no system", remedy='a System, the name of a preset as in "bow", or a description file'
        )
    if isinstance(system, Path) or Path(system).suffix in (".toml", ".json"):
        return load(system)
    return get(system)


def gc2() -> System:
    """One GC2 IPU."""
    return get("gc2")


def c2() -> System:
    """A C2 card: two GC2 IPUs."""
    return get("c2")


def c600() -> System:
    """A C600 card: one IPU with 8-bit floating point."""
    return get("c600")


def gc200() -> System:
    """One GC200 IPU of an IPU-M2000."""
    return get("gc200")


def m2000() -> System:
    """An IPU-M2000: four GC200 IPUs."""
    return get("m2000")


def bow() -> System:
    """One Bow IPU of a Bow-2000."""
    return get("bow")


def bow_2000() -> System:
    """A Bow-2000: four Bow IPUs."""
    return get("bow-2000")


def pod(num_ipus: int) -> System:
    """An IPU-POD of 16, 64, 256 or 1024 GC200 IPUs."""
    return get(f"pod{num_ipus}")


def bow_pod(num_ipus: int) -> System:
    """A Bow Pod of 16, 64, 256 or 1024 Bow IPUs."""
    return get(f"bow-pod{num_ipus}")
