"""Devices: every way to get one means the machine that Abele models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Self

from abele.frontends.popart.errors import popart_exception
from abele.poplibs.gcl import CommGroup as Groups


class DeviceType(IntEnum):
    """Kinds of devices."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4


class DeviceConnectionType(IntEnum):
    """Time at which a device is attached."""

    Always = 0
    OnDemand = 1
    Never = 2


class SyncPattern(IntEnum):
    """IPUs that wait for the host."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class DeviceSelectionCriterion(IntEnum):
    """Choice of one of several devices."""

    First = 0
    Random = 1


class DeviceInfo:
    """A device of some IPUs.

    Attributes:
        type: Its kind.
        id: Its number.
        numIpus: Its IPUs.
        tilesPerIPU: Tiles of each; 0 for all.
        pattern: IPUs that wait for the host.
    """

    def __init__(
        self,
        kind: DeviceType = DeviceType.IpuModel,
        num_ipus: int = 1,
        tiles: int = 0,
        version: str = "ipu2",
        connection: DeviceConnectionType = DeviceConnectionType.Always,
        id: int = 0,
        *,
        pattern: SyncPattern = SyncPattern.Full,
    ) -> None:
        if int(num_ipus) < 1:
            raise popart_exception(f"a device has at least one IPU, not {num_ipus}")
        self.pattern = SyncPattern(pattern)
        self.type, self.numIpus, self.tilesPerIPU, self.id = kind, int(num_ipus), int(tiles), int(id)
        if version not in IPU_VERSIONS:
            raise popart_exception(f"there is no ipuVersion {version!r}", remedy=", ".join(IPU_VERSIONS))
        self.version, self.connectionType = version, connection
        self.driverIds, self.childIds = [int(id)], [int(id)]
        self.isAttached = self._was_attached = connection == DeviceConnectionType.Always

    def attach(self) -> bool:
        """Attach it."""
        self.isAttached = self._was_attached = True
        return True

    @property
    def previouslyAttached(self) -> bool:
        """True if it was attached before."""
        return self._was_attached

    def tryAttachUntilTimeout(self) -> bool:
        """Attach it, which always succeeds."""
        return self.attach()

    def detach(self) -> None:
        """Let go of it."""
        self.isAttached = False

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def toString(self) -> str:
        """Its kind and size in words."""
        return repr(self)

    def __repr__(self) -> str:
        return f"DeviceInfo({self.type.name}, {self.numIpus} IPU{'s' if self.numIpus > 1 else ''})"


IPU_VERSIONS = ("ipu1", "ipu2", "ipu21")
"""Versions of IPUs that a model of one may be asked for."""


class DeviceManager:
    """Ways to get a device, all of which succeed; there is one manager."""

    _only: ClassVar[DeviceManager | None] = None

    def __new__(cls) -> Self:
        """The manager."""
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only  # type: ignore[return-value]

    def createCpuDevice(self) -> DeviceInfo:
        """A device of one IPU."""
        return DeviceInfo(DeviceType.Cpu)

    def createIpuModelDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """A device of so many IPUs (``numIPUs``, ``tilesPerIPU``, ``ipuVersion``)."""
        return DeviceInfo(DeviceType.IpuModel, *_sizes(options), version=str(options.get("ipuVersion", "ipu2")))

    def createSimDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """As :meth:`createIpuModelDevice`."""
        return self.createIpuModelDevice(options)

    def createOfflineIPUDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """A device to compile for."""
        return DeviceInfo(DeviceType.OfflineIpu, *_sizes(options))

    def createOfflineIpuDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """As :meth:`createOfflineIPUDevice`."""
        return self.createOfflineIPUDevice(options)

    def createOfflineIpuFromDeviceInfo(self, deviceInfo: DeviceInfo) -> DeviceInfo:
        """A device to compile for, of the size of another."""
        size = deviceInfo.numIpus, deviceInfo.tilesPerIPU, deviceInfo.version
        return DeviceInfo(DeviceType.OfflineIpu, *size, pattern=deviceInfo.pattern)

    def createOfflineIpuFromSystemString(self, system: str, numIpus: int) -> DeviceInfo:
        """A device to compile for, of so many IPUs; every system is the one that is modelled."""
        return DeviceInfo(DeviceType.OfflineIpu, numIpus)

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
        **more: Any,
    ) -> DeviceInfo:
        """A device of so many IPUs."""
        return DeviceInfo(DeviceType.Ipu, numIpus, tilesPerIpu, connection=connectionType, pattern=pattern)

    def tryAcquireAvailableDevice(self, *given: Any, **named: Any) -> DeviceInfo:
        """As :meth:`acquireAvailableDevice`."""
        return self.acquireAvailableDevice(*given, **named)

    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """The device with a number, of one IPU."""
        return DeviceInfo(DeviceType.Ipu, connection=connectionType, id=id, pattern=pattern)

    def tryAcquireDeviceById(self, *given: Any, **named: Any) -> DeviceInfo:
        """As :meth:`acquireDeviceById`."""
        return self.acquireDeviceById(*given, **named)

    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """Devices of so many IPUs: one."""
        return [DeviceInfo(deviceType, numIpus, tilesPerIPU, connection=connectionType, pattern=pattern)]

    def setOnDemandAttachTimeout(self, seconds: int) -> None:
        """Set the time to wait for a device, which is there at once."""


_DEVICE_OPTIONS = ("numIPUs", "tilesPerIPU", "ipuVersion", "compileIPUCode", "syncPattern", "topology")


def _sizes(options: Mapping[str, Any]) -> tuple[int, int]:
    for name in options:
        if name not in _DEVICE_OPTIONS:
            raise popart_exception(f"a device has no option {name!r}", remedy=", ".join(_DEVICE_OPTIONS))
    return int(options.get("numIPUs", 1)), int(options.get("tilesPerIPU", 0))


class CommGroupType(IntEnum):
    """Kinds of groups of replicas."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    Ungrouped = 3


class VariableRetrievalMode(IntEnum):
    """Choice of the replicas whose values of a weight come back.

    ``AllReduceReplicas`` is a mean over the replicas of each group, which have the same values: so it is these.
    """

    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


class CommGroup:
    """Groups of replicas: all, neighbours, those a stride apart, or each for itself."""

    def __init__(self, type: CommGroupType = CommGroupType.All, replicaGroupSize: int = 0) -> None:
        self.type, self.replicaGroupSize = CommGroupType(type), int(replicaGroupSize)

    @property
    def groups(self) -> Groups:
        """The groups, as the machine has them."""
        match self.type:
            case CommGroupType.Consecutive:
                return Groups.consecutive(self.replicaGroupSize)
            case CommGroupType.Orthogonal:
                return Groups.orthogonal(self.replicaGroupSize)
            case CommGroupType.Ungrouped:
                return Groups.none()
        return Groups.all()


class VariableSettings:
    """Groups of replicas with values of their own of a weight, and the values that come back.

    Args:
        *given: A :class:`CommGroup` or a stride and a size of groups, and a :class:`VariableRetrievalMode`.
    """

    def __init__(self, *given: Any) -> None:
        self.group, self.mode, self.stride = CommGroup(), VariableRetrievalMode.OnePerGroup, 0
        numbers = [g for g in given if isinstance(g, int) and not isinstance(g, IntEnum)]
        for value in given:
            if isinstance(value, CommGroup):
                self.group = value
            elif isinstance(value, VariableRetrievalMode):
                self.mode = value
        if len(numbers) == 2:
            self.stride, size = numbers
            self.group = CommGroup(CommGroupType.Consecutive if self.stride == 1 else CommGroupType.Orthogonal, size)

    @staticmethod
    def of_text(text: str) -> VariableSettings:
        """Settings from a text of :meth:`text`."""
        kind, size, mode, stride = (int(n) for n in text.split(","))
        made = VariableSettings(CommGroup(CommGroupType(kind), size), VariableRetrievalMode(mode))
        made.stride = stride
        return made

    def text(self) -> str:
        """Kind and size of the groups, and which values come back, as a model's metadata have them."""
        return f"{int(self.group.type)},{self.group.replicaGroupSize},{int(self.mode)},{self.stride}"

    @property
    def replicas_together(self) -> Groups:
        """Replicas of each group, as the machine has them."""
        if self.stride:
            return Groups.strided(self.group.replicaGroupSize, self.stride)
        return self.group.groups

    @property
    def has_groups(self) -> bool:
        """True if there is more than one group, whatever the number of replicas."""
        return self.group.type != CommGroupType.All

    def getStride(self) -> int:
        """Distance between replicas of a group; 0 where it follows from their kind."""
        return self.stride

    def getGroupSize(self) -> int:
        """Replicas of a group; 0 for all."""
        return self.group.replicaGroupSize

    def getSharedVariableDomain(self) -> CommGroup:
        """The groups."""
        return self.group

    def getRetrievalMode(self) -> VariableRetrievalMode:
        """Choice of the values that come back."""
        return self.mode

    def getGroupCount(self, replicas: int) -> int:
        """Number of groups."""
        return len(self.groups(replicas))

    def numReplicasReturningVariable(self, replicas: int) -> int:
        """Number of replicas whose values come back."""
        return replicas if self.mode == VariableRetrievalMode.AllReplicas else self.getGroupCount(replicas)

    def groups(self, replicas: int) -> list[list[int]]:
        """Numbers of the replicas of each group."""
        return [[int(n) for n in row] for row in self.replicas_together.members(replicas)]

    def getGroupRepresentative(self, group: int, replicas: int = 1) -> int:
        """The first replica of a group."""
        return self.groups(max(replicas, group + 1))[group][0]

    def shapeOnHost(self, shape: Iterable[int], replicas: int) -> list[int]:
        """Shape of all values together."""
        count = self.numReplicasReturningVariable(replicas)
        return [*([count] if count > 1 else []), *shape]

    def shapeOnReplica(self, shape: Iterable[int], replicas: int, name: str = "") -> list[int]:
        """Shape of one replica's value, of all values'."""
        whole = list(shape)
        return whole[1:] if self.getGroupCount(replicas) > 1 else whole
