"""Notes of a builder on parts of a model: place, recomputation, storage."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from abele.frontends.popart_enums import ReplicatedTensorSharding, TensorStorage


class RecomputeType(IntEnum):
    """Choice between keeping a node's results for the backward pass and making them again."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class TileSet(IntEnum):
    """Tiles that hold a tensor."""

    Compute = 0
    IO = 1
    Undefined = 2


class ExchangeStrategy(IntEnum):
    """Time of a transfer from or to the host."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class ReplicatedStreamMode(IntEnum):
    """Choice of inputs for each replica, or of one for all."""

    Replicate = 0
    Broadcast = 1


class DebugContext:
    """The name that an operator's results get: ``builder.aiOnnx.add([a, b], popart.DebugContext("sum"))``."""

    def __init__(self, name: str = "") -> None:
        self.name = str(name)

    def getPathName(self) -> str:
        """The name."""
        return self.name


class InputSettings:
    """Way of an input to the machine."""

    def __init__(self, *given: TileSet | ExchangeStrategy | ReplicatedStreamMode) -> None:
        self.tileSet, self.exchangeStrategy = TileSet.Compute, ExchangeStrategy.JustInTime
        self.replicatedStreamMode = ReplicatedStreamMode.Replicate
        kinds = {TileSet: "tileSet", ExchangeStrategy: "exchangeStrategy", ReplicatedStreamMode: "replicatedStreamMode"}
        for value in given:
            if type(value) not in kinds:
                raise TypeError(f"InputSettings takes {', '.join(k.__name__ for k in kinds)}, got {value!r}")
            setattr(self, kinds[type(value)], value)


class TensorLocation:
    """Place of tensors: on the chip or off it, their tiles, and sharing by replicas.

    Args:
        *given: A :class:`TensorStorage`, then :class:`TileSet` of loading and of storing, and
            :class:`ReplicatedTensorSharding`, each of which may be left out; groups of replicas that share come last.
        **named: The same by names of attributes.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        self.storage = TensorStorage.Undefined
        self.loadTileSet = self.storageTileSet = TileSet.Compute
        self.replicatedTensorSharding = ReplicatedTensorSharding.Off
        self.shardingDomain: Any = None
        tiles = [value for value in given if isinstance(value, TileSet)]
        for value in given:
            if isinstance(value, TensorStorage):
                self.storage = value
            elif isinstance(value, ReplicatedTensorSharding):
                self.replicatedTensorSharding = value
            elif not isinstance(value, TileSet):
                self.shardingDomain = value
        if tiles:
            self.loadTileSet, self.storageTileSet = tiles[0], tiles[-1]
        for name, value in named.items():
            if name not in vars(self):
                raise TypeError(f"TensorLocation has no {name!r}, it has {', '.join(vars(self))}")
            setattr(self, name, value)

    def serialized(self) -> list[int]:
        """It as an attribute of a node."""
        return [int(self.storage), int(self.loadTileSet), int(self.storageTileSet), int(self.replicatedTensorSharding)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorLocation) and self.serialized() == other.serialized()

    def __hash__(self) -> int:
        return hash(tuple(self.serialized()))

    def __repr__(self) -> str:
        return f"TensorLocation({self.storage.name}, {self.replicatedTensorSharding.name})"


class TensorLocationSettings:
    """Place of a kind of tensors, from a number of elements on.

    Args:
        location: The place.
        minElementsForOffChip: Elements below which a tensor stays on the chip.
        minElementsForReplicatedTensorSharding: Elements below which replicas each have all of a tensor.
    """

    def __init__(
        self,
        location: TensorLocation | TensorStorage | None = None,
        minElementsForOffChip: int = 2,
        minElementsForReplicatedTensorSharding: int = 8192,
    ) -> None:
        held = TensorLocation(location) if isinstance(location, TensorStorage) else location
        self.location = held or TensorLocation(TensorStorage.OnChip)
        self.minElementsForOffChip = minElementsForOffChip
        self.minElementsForReplicatedTensorSharding = minElementsForReplicatedTensorSharding


__all__ = [
    "DebugContext",
    "ExchangeStrategy",
    "InputSettings",
    "RecomputeType",
    "ReplicatedStreamMode",
    "ReplicatedTensorSharding",
    "TensorLocation",
    "TensorLocationSettings",
    "TensorStorage",
    "TileSet",
]
