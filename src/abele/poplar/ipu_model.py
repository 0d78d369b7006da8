"""IPUModel: a device that is described by fields, each a figure of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from abele.errors import MachineError, nearest
from abele.machine import System
from abele.machine.target import architecture
from abele.poplar.device import Device, check_device_options
from abele.poplar.target import Target, TargetType


class RelativeSyncDelayType(Enum):
    """Poplar's choice of how the sync delay of a tile is modelled; here every tile waits for the farthest."""

    AUTO = "auto"
    NO_DELAY = "no_delay"


@dataclass(frozen=True, slots=True)
class _ModelField:
    """Field of the model: its value on a machine, and the effect of changing it."""

    read: Callable[[System], Any]
    change: Callable[[System, Any], dict[str, Any]]


def _plain(*path: str, scale: int = 1) -> _ModelField:
    """A field that is one figure of the machine, times ``scale``."""

    def read(system: System) -> Any:
        value: Any = system
        for name in path:
            value = getattr(value, name)
        return value * scale

    def change(system: System, value: Any) -> dict[str, Any]:
        if scale != 1 and value % scale:
            raise MachineError(f"{'.'.join(path)} is counted in units of {scale}, {value} is no multiple")
        found: Any = value if scale == 1 else value // scale
        for name in reversed(path):
            found = {name: found}
        return dict(found)

    return _ModelField(read, change)


def _shares_bus(system: System) -> bool:
    return system.ipu.exchange.pair_bytes_per_cycle > system.ipu.exchange.bytes_per_cycle


def _share_bus(system: System, value: bool) -> dict[str, Any]:
    rate = system.ipu.exchange.bytes_per_cycle * (system.ipu.exchange.tiles_per_bus if value else 1)
    return {"ipu": {"exchange": {"pair_bytes_per_cycle": rate}}}


def _first_interleaved(system: System) -> int:
    return system.ipu.tile.plain_bytes // system.ipu.tile.element_bytes


def _interleave_from(system: System, value: int) -> dict[str, Any]:
    return {"ipu": {"tile": {"plain_bytes": value * system.ipu.tile.element_bytes}}}


def _element_offsets(system: System) -> list[int]:
    return Target(system).getMemoryElementOffsets()


def _place_elements(system: System, value: list[int]) -> dict[str, Any]:
    step = value[1] - value[0] if len(value) > 1 else system.ipu.tile.total_bytes
    if list(value) != [i * step for i in range(len(value))]:
        raise MachineError("memoryElementOffsets must rise from 0 in equal steps", because=f"they are {list(value)}")
    return {"ipu": {"tile": {"element_bytes": step}}}


def _global_sync(system: System) -> int:
    return system.sync_cycles


def _sync_in(system: System, value: int) -> dict[str, Any]:
    if system.num_ipus == 1:
        return {"ipu": {"sync": {"on_chip_cycles": value}}}
    # The time on the chips stays as it is, unless the whole is to be shorter.
    on_chips = min(system.ipu.sync.max_delay_cycles, value)
    way = (value - on_chips) / (2 * system.ipu.clock_hz)
    return {"ipu": {"sync": {"max_delay_cycles": on_chips, "edge_seconds": way, "hop_seconds": 0}}}


def _units(input: str, partials: str) -> _ModelField:
    """Convolution units for a pair of types."""

    def read(system: System) -> int:
        modes = system.ipu.amp.modes
        return next((m.num_units for m in modes if (m.input, m.partials) == (input, partials)), 0)

    def change(system: System, value: int) -> dict[str, Any]:
        system.ipu.amp.mode(input, partials)
        modes = tuple(
            m.evolve(num_units=value) if (m.input, m.partials) == (input, partials) else m for m in system.ipu.amp.modes
        )
        return {"ipu": {"amp": {"modes": modes}}}

    return _ModelField(read, change)


FIELDS: dict[str, _ModelField] = {
    "numWorkerContexts": _plain("ipu", "num_workers"),
    "memoryBytesPerTile": _plain("ipu", "tile", "total_bytes"),
    "interleavedMemoryElementIndex": _ModelField(_first_interleaved, _interleave_from),
    "memoryElementOffsets": _ModelField(_element_offsets, _place_elements),
    "tileClockFrequency": _plain("ipu", "clock_hz"),
    "exchangeBytesPerCycle": _plain("ipu", "exchange", "bytes_per_cycle"),
    "memcpyBytesPerCycle": _plain("ipu", "tile", "memcpy_bytes_per_cycle"),
    "tilesPerSharedExchangeBus": _plain("ipu", "exchange", "tiles_per_bus"),
    "tilesPerSuperTile": _plain("ipu", "exchange", "tiles_per_bus"),
    "supportsSuperTileSendReceive": _ModelField(_shares_bus, _share_bus),
    "minIPUSyncDelay": _plain("ipu", "sync", "on_chip_cycles"),
    "maxIPUSyncDelay": _plain("ipu", "sync", "max_delay_cycles"),
    "globalSyncCycles": _ModelField(_global_sync, _sync_in),
    "instructionBytes": _plain("ipu", "instruction_bytes"),
    "dataPathWidth": _plain("ipu", "data_path_bytes", scale=8),
    "numStrideBits": _plain("ipu", "stride_bits"),
    "rptCountMax": _plain("ipu", "max_repeats"),
    "atomicStoreGranularity": _plain("ipu", "atomic_store_bytes"),
    "fp16InFp16OutConvUnitsPerTile": _units("f16", "f16"),
    "fp16InFp32OutConvUnitsPerTile": _units("f16", "f32"),
    "fp32InFp32OutConvUnitsPerTile": _units("f32", "f32"),
    "convUnitMaxPipelineDepth": _plain("ipu", "amp", "pipeline_depth"),
}
"""Fields of the model that are figures of the machine, in the order of their changes."""
_OWN = ("IPUVersion", "numIPUs", "tilesPerIPU", "compileIPUCode", "relativeSyncDelay")


class IPUModel:
    """A machine to be described field by field: ``model.tilesPerIPU = 4``; then ``createDevice()``.

    Fields that are not set are the architecture's. ``compileIPUCode`` and ``relativeSyncDelay`` change nothing: code
    sizes are always estimated, and every tile waits for the farthest.

    Args:
        version: ``ipu1``, ``ipu2`` or ``ipu21``.

    Raises:
        MachineError: An unknown architecture or field, or a value that makes no machine.
    """

    RelativeSyncDelayType = RelativeSyncDelayType

    def __init__(self, version: str = "ipu2") -> None:
        architecture(version, 1)
        own = {"IPUVersion": version, "numIPUs": 1, "tilesPerIPU": None, "compileIPUCode": True}
        object.__setattr__(self, "_own", own | {"relativeSyncDelay": RelativeSyncDelayType.AUTO})
        object.__setattr__(self, "_set", {})

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            self._own[name] = value
        elif name in FIELDS:
            self._set[name] = value
        else:
            raise self._unknown(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _OWN:
            value = self._own[name]
            return self.system.ipu.num_tiles if value is None else value
        if name in FIELDS:
            return self._set.get(name, FIELDS[name].read(self._base()))
        raise self._unknown(name)

    @property
    def system(self) -> System:
        """The machine that the fields describe."""
        system = self._base()
        for name, item in FIELDS.items():
            if name in self._set:
                system = system.evolve(**item.change(system, self._set[name]))
        return system

    def createDevice(
        self, options: Mapping[str, Any] | None = None, accurateHalf: bool = False, deviceManagerId: int = 0
    ) -> Device:
        """A device of this description; half precision is always true half.

        Raises:
            InvalidOptionError: An option; there are none.
            MachineError: The fields make no machine.
        """
        check_device_options(options)
        return Device(Target(self.system, TargetType.IPU_MODEL), deviceManagerId)

    def _base(self) -> System:
        return architecture(self._own["IPUVersion"], self._own["numIPUs"], self._own["tilesPerIPU"])

    @staticmethod
    def _unknown(name: str) -> MachineError:
        names = (*_OWN, *FIELDS)
        close = nearest(name, names)
        return _UnknownFieldError(
            f"an IPUModel has no field {name!r}",
            remedy=f"did you mean {close!r}?" if close else "its fields are " + ", ".join(names),
        )


class _UnknownFieldError(MachineError, AttributeError):
    """A field of the model that does not exist; also an AttributeError, so that ``hasattr`` works."""
