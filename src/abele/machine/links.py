"""Ways out of a chip: IPU-Links, gateway links, the way to the host, and streaming memory."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import MachineError
from abele.machine.source import constant, derived, guessed, parameter, stated
from abele.machine.spec import Spec

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
        bytes_per_second: All links of one machine, one direction; on a ring of racks half of them lead either way.
        ipus_per_machine: IPUs that share them.
        hop_seconds: From an IPU of one rack to one of the next, for data and for a sync.
    """

    bytes_per_second: float = parameter()
    ipus_per_machine: int = parameter()
    hop_seconds: float = constant(
        guessed(1e-6, "PCIe to the gateway, 100 Gbit Ethernet, PCIe again; no source found, 0.3 to 3 us are likely"),
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
        packet_to_tile_bytes: Largest packet from host to tile.
        packet_to_host_bytes: Largest packet from tile to host.
    """

    bytes_per_second: float = parameter()
    ipus_per_link: int = parameter()
    ipu_bytes_per_second: float = parameter()
    latency_seconds: float = parameter(minimum=0)
    packet_to_tile_bytes: int = constant(stated(1024, "OSM exchange.rs:15-30"))
    packet_to_host_bytes: int = constant(stated(256, "OSM exchange.rs:15-30"))

    def bandwidth_bytes_per_second(self, num_ipus: int) -> float:
        """Bandwidth in one direction of ``num_ipus`` IPUs, packed into as few machines as possible."""
        num_links = -(-num_ipus // self.ipus_per_link)
        return min(num_links * self.bytes_per_second, num_ipus * self.ipu_bytes_per_second)


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
