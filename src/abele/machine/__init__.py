"""Machines as data: chips, systems, and every constant of them with its source."""

from abele.machine import hosts, systems
from abele.machine.bibliography import WORKS, cited_works
from abele.machine.energy import MEMORY_KINDS, Energy, MemoryKind
from abele.machine.hosts import HostComputer
from abele.machine.ipu import Amp, AmpMode, Exchange, Ipu, Launch, Rearrange, SyncCosts, TileMemory
from abele.machine.source import CONFIDENCE, Source
from abele.machine.spec import MachineConstant, described, sources
from abele.machine.system import Dram, GatewayLinks, HostLink, IpuLinks, System
from abele.machine.target import Target, TargetType

__all__ = [
    "CONFIDENCE",
    "MEMORY_KINDS",
    "WORKS",
    "Amp",
    "AmpMode",
    "Dram",
    "Energy",
    "Exchange",
    "GatewayLinks",
    "HostComputer",
    "HostLink",
    "Ipu",
    "IpuLinks",
    "Launch",
    "MachineConstant",
    "MemoryKind",
    "Rearrange",
    "Source",
    "SyncCosts",
    "System",
    "Target",
    "TargetType",
    "TileMemory",
    "cited_works",
    "described",
    "hosts",
    "sources",
    "systems",
]
