"""Words for the place of a tensor, and for the part of a program in which an op runs."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from abele.frontends.popart_enums import ReplicatedTensorSharding, TensorStorage
from abele.frontends.popxl.errors import GraphTypeError


class TileSet(IntEnum):
    """Tiles that hold a tensor; this machine sets none aside for the host."""

    Compute = 0
    IO = 1
    Undefined = 2


class ExecutionContext(IntEnum):
    """Part of a program in which an op runs; here all are ``Normal`` or ``Subgraph``."""

    Normal = 0
    AccumulateOuterFragment = 1
    WeightsFromHostFragment = 2
    WeightsToHostFragment = 3
    OptimizerFromHostFragment = 4
    Subgraph = 5


class TensorLocation:
    """Place of a tensor.

    Args:
        storage: On the chip or in streaming memory.
        replicated_tensor_sharding: A part of it for each replica, or all of it.
        sharding_domain: Replicas that share it.

    Attributes:
        loadTileSet: Tiles that load it.
        storageTileSet: Tiles that hold it.
    """

    loadTileSet = storageTileSet = TileSet.Compute  # noqa: N815

    def __init__(
        self,
        storage: TensorStorage = TensorStorage.Undefined,
        replicated_tensor_sharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off,
        sharding_domain: Any = None,
    ) -> None:
        for value, kind in ((storage, TensorStorage), (replicated_tensor_sharding, ReplicatedTensorSharding)):
            if not isinstance(value, kind):
                raise GraphTypeError(f"a TensorLocation takes a {kind.__name__}, not {value!r}")
        self.storage, self.shardingDomain = storage, sharding_domain
        self.replicatedTensorSharding = replicated_tensor_sharding

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorLocation) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.storage, self.replicatedTensorSharding))

    def __repr__(self) -> str:
        return f"TensorLocation({self.storage.name}, {self.replicatedTensorSharding.name})"


__all__ = ["ExecutionContext", "ReplicatedTensorSharding", "TensorLocation", "TensorStorage", "TileSet"]
