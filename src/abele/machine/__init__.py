"""Machines as data: chips, systems, and every constant of them with its source."""

from abele.machine import hosts, systems
from abele.machine.amp import Amp, AmpMode
from abele.machine.bibliography import WORKS, cited_works
from abele.machine.energy import MEMORY_KINDS, Energy, MemoryKind
from abele.machine.exchange import Exchange
from abele.machine.host_computer import HostComputer
from abele.machine.ipu import Ipu
from abele.machine.launch import Launch
from abele.machine.links import Dram, GatewayLinks, HostLink, IpuLinks
from abele.machine.memory import TileMemory
from abele.machine.rearrange import Rearrange
from abele.machine.source import CONFIDENCE, Source
from abele.machine.spec import MachineConstant, described, sources
from abele.machine.sync import SyncCosts
from abele.machine.system import System
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
