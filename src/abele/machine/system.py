"""A whole system: chips, links, host, streaming memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from abele import card
from abele.errors import MachineError
from abele.machine.ipu import Ipu
from abele.machine.source import constant, derived, guessed, parameter, part, stated
from abele.machine.spec import Spec
from abele.words import counted

# Ways out of a chip: IPU-Links, gateway links, the way to the host, and streaming memory.

TOPOLOGIES = ("none", "pair", "ladder", "torus")


@dataclass(frozen=True, kw_only=True)
class IpuLinks(Spec):
    """Links between IPUs.

    Attributes:
        topology: ``none``, ``pair``, ``ladder`` or ``torus``.
        num_links: Links of one IPU.
        link_bytes_per_second: One link, one direction, raw.
        efficiency_proportion: Part of it that payload can use.
        pair_links: Links between the two IPUs of a pair.
        cross_links: Links of a rung between pairs.
        rail_links: Links up, and again down, a rail.
        ipus_per_rack: IPUs that these links join; beyond, gateway links do.
    """

    topology: str
    num_links: int = parameter(minimum=0)
    link_bytes_per_second: float = parameter(minimum=0)
    efficiency_proportion: float = constant(stated(0.85, "IPUModel: PL lib/poplibs_test/Util.cpp:402-404"))
    pair_links: int = constant(stated(4, "IPUModel ladder: PL lib/poplibs_test/Util.cpp:360-427"), minimum=0)
    cross_links: int = constant(stated(2, "IPUModel ladder: PL lib/poplibs_test/Util.cpp:360-427"), minimum=0)
    rail_links: int = constant(stated(2, "IPUModel ladder: PL lib/poplibs_test/Util.cpp:360-427"), minimum=0)

    ipus_per_rack: int = constant(stated(64, "a Pod64 is one IPU-Link domain, larger Pods join such racks (GC-SW)"))

    def bundle_bytes_per_second(self, num_links: int) -> float:
        """Usable bandwidth of ``num_links`` links in one direction."""
        return num_links * self.link_bytes_per_second * self.efficiency_proportion

    def check(self) -> None:
        """The topology is a known one."""
        if self.topology not in TOPOLOGIES:
            raise MachineError(f"IpuLinks.topology = {self.topology!r}: must be one of {', '.join(TOPOLOGIES)}")


@dataclass(frozen=True, kw_only=True)
class GatewayLinks(Spec):
    """Links between machines of several racks.

    Attributes:
        bytes_per_second: All links of one machine, one direction, raw; on a ring of racks half of them lead either way.
        ipus_per_machine: IPUs that share them.
        efficiency_proportion: Part of it that payload can use.
        hop_seconds: From an IPU of one rack to one of the next, for data and for a sync.
    """

    bytes_per_second: float = parameter()
    ipus_per_machine: int = parameter()
    efficiency_proportion: float = constant(
        guessed(
            0.74,
            "packets of 256 B, the largest that a tile writes, each with 90 B around it: 24 B of PCIe, 28 B of IP and "
            "UDP, 18 B of Ethernet, 20 B between frames; no source found for how gateways pack them",
        )
    )
    hop_seconds: float = constant(
        guessed(
            2e-6,
            "PCIe to the gateway, 100 Gbit Ethernet, PCIe again: as RDMA takes between devices on PCIe, 1 to 3 us; no "
            "source found",
        ),
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class HostLink(Spec):
    """The way between IPUs and the host's memory.

    Attributes:
        bytes_per_second: One link, one direction.
        ipus_per_link: IPUs that share a link.
        ipu_bytes_per_second: One IPU's own port, one direction.
        latency_seconds: From request to first byte of one transfer.
        ipus_per_host: IPUs that one host feeds.
        packet_to_tile_bytes: Largest packet from host to tile.
        packet_to_host_bytes: Largest packet from tile to host.
    """

    bytes_per_second: float = parameter()
    ipus_per_link: int = parameter()
    ipu_bytes_per_second: float = parameter()
    latency_seconds: float = parameter(minimum=0)
    ipus_per_host: int = constant(stated(64, "ML20 system descriptions: a Pod64 has one host, Pod128 two, Pod256 four"))
    packet_to_tile_bytes: int = constant(stated(1024, "OSM exchange.rs:15-30"))
    packet_to_host_bytes: int = constant(stated(256, "OSM exchange.rs:15-30"))

    def bandwidth_bytes_per_second(self, num_ipus: int) -> float:
        """Bandwidth in one direction of ``num_ipus`` IPUs, packed into as few machines as possible."""
        num_links = -(-num_ipus // self.ipus_per_link)
        return min(num_links * self.bytes_per_second, num_ipus * self.ipu_bytes_per_second)

    def longest_proportion(self, num_ipus: int) -> float:
        """Time of the host of ``num_ipus`` that answers last over the mean time of one.

        Model: times of hosts are independent and exponential, so the last of n takes 1 + 1/2 + ... + 1/n times
        the mean. Guessed: nothing is published of how much hosts differ.
        """
        return sum(1 / n for n in range(1, -(-num_ipus // self.ipus_per_host) + 1))


@dataclass(frozen=True, kw_only=True)
class Dram(Spec):
    """Streaming memory beside the IPUs.

    Attributes:
        bytes: Capacity of one machine's memory.
        bytes_per_second: Its bandwidth.
        ipus_per_dram: IPUs that share it.
        ipu_bytes_per_second: Bandwidth of one IPU, however few others use it.
    """

    bytes: int = parameter()
    bytes_per_second: float = parameter()
    ipus_per_dram: int = parameter()
    ipu_bytes_per_second: float = constant(
        derived(6.8e9, "attention over a cache in DDR on a Bow-2000: 6.6 to 7.1 GB/s an IPU; streamed layers agree")
    )


@dataclass(frozen=True, kw_only=True)
class System(Spec):
    """Any number of equal IPUs with their links.

    Tiles are numbered through: tile ``t`` of IPU ``i`` is ``i * ipu.num_tiles + t``.

    Attributes:
        name: Short name, as ``systems.get`` takes it.
        title: Name as sold.
        num_ipus: IPUs.
        ipu: The chip.
        ipu_links: Links between chips.
        host: The way to the host.
        gateway: Links between racks, where there are any.
        dram: Streaming memory, where there is any.
    """

    name: str
    title: str
    num_ipus: int = parameter()
    ipu: Ipu = part(Ipu)
    ipu_links: IpuLinks = part(IpuLinks)
    host: HostLink = part(HostLink)
    gateway: GatewayLinks | None = part(GatewayLinks, optional=True)
    dram: Dram | None = part(Dram, optional=True)

    @property
    def num_tiles(self) -> int:
        """Tiles of all IPUs."""
        return self.num_ipus * self.ipu.num_tiles

    @property
    def memory_bytes(self) -> int:
        """SRAM of all IPUs."""
        return self.num_ipus * self.ipu.memory_bytes

    @property
    def dram_bytes(self) -> int:
        """Streaming memory of all machines."""
        return -(-self.num_ipus // self.dram.ipus_per_dram) * self.dram.bytes if self.dram else 0

    def dram_bytes_per_second(self, num_busy: int) -> float:
        """Bandwidth of each of ``num_busy`` IPUs to the streaming memory of a machine; 0 without any."""
        if self.dram is None:
            return 0.0
        own = min(self.dram.ipu_bytes_per_second, self.host.ipu_bytes_per_second)
        return min(own, self.dram.bytes_per_second / num_busy)

    @property
    def sync_cycles(self) -> int:
        """Cycles of a sync over all tiles."""
        return self.sync_cycles_of(self.num_ipus, -(-self.num_ipus // self.ipu_links.ipus_per_rack))

    def sync_cycles_of(self, num_ipus: int, num_racks: int = 1) -> int:
        """Cycles of a sync over some IPUs.

        Args:
            num_ipus: Number of IPUs.
            num_racks: Racks that they are in.

        Model: a sync in each rack, and the way from the rack that is farthest on the ring of gateways and back.
        """
        per_rack, clock_hz = -(-num_ipus // num_racks), self.ipu.clock_hz
        within = self.ipu.sync.global_cycles(per_rack, clock_hz)
        if num_racks == 1 or self.gateway is None:
            return within
        return within + math.ceil(2 * (num_racks // 2) * self.gateway.hop_seconds * clock_hz)

    @property
    def host_bytes_per_second(self) -> float:
        """Host bandwidth of all IPUs together, one direction."""
        return self.host.bandwidth_bytes_per_second(self.num_ipus)

    def peak_flops(self, input: str = "f16", partials: str = "f16") -> float:
        """Peak rate of all matrix units in floating-point operations per second, types given by name."""
        return self.num_ipus * self.ipu.peak_flops(input, partials)

    def seconds(self, cycles: float) -> float:
        """Time of ``cycles`` tile cycles."""
        return cycles / self.ipu.clock_hz

    def figures(self) -> dict[str, float | int | str]:
        """The main figures by name, in the units that the names end in; that of f8 where the chip has it."""
        return {
            "name": self.name,
            "title": self.title,
            "ipu": self.ipu.name,
            "num_ipus": self.num_ipus,
            "tiles_per_ipu": self.ipu.num_tiles,
            "num_tiles": self.num_tiles,
            "num_workers": self.ipu.num_workers,
            "clock_hz": self.ipu.clock_hz,
            "tile_bytes": self.ipu.tile.total_bytes,
            "memory_bytes": self.memory_bytes,
            "memory_bytes_per_second": self.num_ipus * self.ipu.memory_bytes_per_second,
            "exchange_bytes_per_second": self.num_ipus * self.ipu.exchange_bytes_per_second,
            **({"f8_flops_per_second": self.peak_flops("f8", "f16")} if self.ipu.converts_quarters else {}),
            "f16_flops_per_second": self.peak_flops("f16", "f16"),
            "f32_flops_per_second": self.peak_flops("f32", "f32"),
            "host_bytes_per_second": self.host_bytes_per_second,
            "dram_bytes": self.dram_bytes,
        }

    def with_ipus(self, num_ipus: int) -> System:
        """System with ``num_ipus`` IPUs in use; its name says so, as in ``bow-2000:1``.

        A part of a torus is an open ladder: the links that close it are those of the other IPUs.

        Raises:
            MachineError: ``num_ipus`` is not at least 1.
        """
        if num_ipus == self.num_ipus:
            return self
        base = self.name.partition(":")[0]
        links = self.ipu_links
        if links.topology == "torus" and num_ipus < min(self.num_ipus, links.ipus_per_rack):
            links = replace(links, topology="ladder")
        return replace(self, num_ipus=num_ipus, name=f"{base}:{num_ipus}", ipu_links=links)

    def check(self) -> None:
        """Several IPUs need links."""
        if self.num_ipus > 1 and self.ipu_links.topology == "none":
            raise MachineError(
                f"{self.name}: {counted(self.num_ipus, 'IPU')}, but IpuLinks.topology = 'none'",
                remedy="give the links a topology: pair, ladder or torus",
            )

    def __repr__(self) -> str:
        chips = f"{counted(self.num_ipus, self.ipu.name + ' IPU')}, {counted(self.num_tiles, 'tile')}"
        return f"System({self.name!r}: {chips} at {self.ipu.clock_hz / 1e9:g} GHz, {self.memory_bytes / 1e6:,.0f} MB)"

    def _repr_html_(self) -> str:
        rows = [(f.replace("_", " "), v if isinstance(v, str) else f"{v:,.0f}") for f, v in self.figures().items()]
        return card.card(f"System {self.name}", rows)
