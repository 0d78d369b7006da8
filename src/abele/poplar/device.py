"""Devices: machines that a program attaches to, all of them in software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from abele.errors import EngineError, MachineError
from abele.machine import System, systems
from abele.machine.target import cpu_system
from abele.options import read_options
from abele.poplar.target import Target, TargetType
from abele.words import counted


class Device:
    """A machine to load programs onto.

    Args:
        target: Target of the device.
        id: Its number.
        members: Numbers of the single IPUs in it.
        busy: Numbers of the IPUs of the same machine that are attached to.
    """

    def __init__(
        self, target: Target, id: int = 0, members: Sequence[int] = (0,), busy: set[int] | None = None
    ) -> None:
        self._target = target
        self._id = id
        self._members = frozenset(members)
        self._busy: set[int] = set() if busy is None else busy
        self._attached = False

    @staticmethod
    def createCPUDevice(accurateHalf: bool = True, numContexts: int = 1) -> Device:
        """A device of one tile with plenty of memory."""
        return Device(Target(cpu_system(numContexts), TargetType.CPU))

    @property
    def system(self) -> System:
        """The machine."""
        return self._target.system

    def getTarget(self) -> Target:
        """Target of the device, to make a graph for."""
        return self._target

    def getId(self) -> int:
        """Number of the device."""
        return self._id

    def getDriverIDs(self) -> list[int]:
        """Numbers of its IPUs."""
        return sorted(self._members)

    def attach(self) -> bool:
        """Take the device for this program; False when one of its IPUs is taken."""
        if self._attached:
            return True
        if self._busy & self._members:
            return False
        self._busy |= self._members
        self._attached = True
        return True

    def detach(self) -> None:
        """Give the device back."""
        if self._attached:
            self._busy -= self._members
            self._attached = False

    def isAttached(self) -> bool:
        """True if this program has taken the device."""
        return self._attached

    def createVirtualDevice(self, tiles: int | Sequence[int]) -> Device:
        """The same device with so many tiles per IPU, or with as many as are listed; they are numbered from 0.

        Raises:
            MachineError: The device has fewer tiles.
        """
        ipu = self.system.ipu
        count = tiles if isinstance(tiles, int) else -(-len(tiles) // self.system.num_ipus)
        if not 0 < count <= ipu.num_tiles:
            raise MachineError(
                f"a virtual device of {counted(count, 'tile')} per IPU", because=f"{ipu.name} has {ipu.num_tiles}"
            )
        target = Target(self.system.evolve(ipu={"num_tiles": count}), self._target.type)
        return Device(target, self._id, tuple(self._members), self._busy)

    def supportsRemoteBuffers(self) -> bool:
        """True if the machine has streaming memory."""
        return self.system.dram is not None

    def hasRemoteBuffers(self) -> bool:
        """True if the machine has streaming memory."""
        return self.system.dram is not None

    def getAttributes(self) -> dict[str, str]:
        """Properties of the device, as text by name."""
        return {name: str(value) for name, value in self.system.figures().items()}

    def getAttribute(self, name: str) -> str:
        """One of :meth:`getAttributes`.

        Raises:
            EngineError: There is none of this name.
        """
        found = self.getAttributes()
        if name not in found:
            raise EngineError(f"a device has no attribute {name!r}", remedy="one of " + ", ".join(found))
        return found[name]

    def __enter__(self) -> Device:
        self.attach()
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"Device({self._id}, {self.system.name}, {counted(self.system.num_ipus, 'IPU')})"


class DeviceManager:
    """The devices of one machine: each IPU, and each aligned group of 2, 4, 8 … of them.

    Args:
        system: The machine; a Bow Pod16 by default.
    """

    def __init__(self, system: System | str = "bow-pod16") -> None:
        self._system = systems.resolve(system)
        busy: set[int] = set()
        self._devices = [
            Device(Target(self._system.with_ipus(len(group)), TargetType.IPU), number, group, busy)
            for number, group in enumerate(_groups(self._system.num_ipus))
        ]

    @staticmethod
    def createDeviceManager(system: System | str = "bow-pod16") -> DeviceManager:
        """A manager of the devices of a machine."""
        return DeviceManager(system)

    def getNumDevices(self) -> int:
        """Number of devices, groups included."""
        return len(self._devices)

    def getDevices(
        self, type: TargetType | None = None, numIPUs: int | None = None, options: Mapping[str, Any] | None = None
    ) -> list[Device]:
        """All devices, or those of a type with a number of IPUs."""
        if type is TargetType.CPU:
            return [Device.createCPUDevice()]
        return [d for d in self._devices if numIPUs in (None, d.getTarget().num_ipus)]

    def getDevice(self, id: int) -> Device:
        """The device of a number.

        Raises:
            EngineError: There is none.
        """
        if not 0 <= id < len(self._devices):
            raise EngineError(f"there is no device {id}", remedy=f"0 to {len(self._devices) - 1}")
        return self._devices[id]

    def acquireAvailableDevice(self, numIPUs: int = 1) -> Device:
        """The first device of so many IPUs that can be attached to, attached.

        Raises:
            EngineError: None is free.
        """
        for device in self.getDevices(TargetType.IPU, numIPUs):
            if not device.isAttached() and device.attach():
                return device
        raise EngineError(
            f"no device of {counted(numIPUs, 'IPU')} is free",
            because=f"{self._system.name} has {counted(self._system.num_ipus, 'IPU')}",
            remedy="detach another device, or ask for a power of two that the machine has",
        )


def createCPUDevice() -> Device:
    """A device of one tile with plenty of memory."""
    return Device.createCPUDevice()


def check_device_options(options: Mapping[str, Any] | None) -> None:
    """Devices in software have no options.

    Raises:
        InvalidOptionError: Some were given.
    """
    read_options("a device", options, {})


def _groups(num_ipus: int) -> Iterator[range]:
    size = 1
    while size <= num_ipus:
        for first in range(0, num_ipus - size + 1, size):
            yield range(first, first + size)
        size *= 2
