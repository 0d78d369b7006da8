"""``ipu.distributed`` and ``ipu.horovod``: strategies and sums over processes, of which there is one."""

from __future__ import annotations

import sys
from typing import Any

import jax

from abele.frontends.keras.ipu.ipu_strategy import IPUStrategyV1

__all__ = [
    "IPUHorovodStrategy",
    "PopDistStrategy",
    "allgather",
    "allreduce",
    "broadcast",
    "horovod_strategy",
    "init",
    "ipu_horovod_strategy",
    "local_rank",
    "local_size",
    "popdist_strategy",
    "rank",
    "size",
]


class PopDistStrategy(IPUStrategyV1):
    """An :class:`IPUStrategyV1`: all replicas are in this process.

    Args:
        ipu_device: Name of the device.
        add_ipu_cross_replica_reductions: Not used: gradients are means over replicas.
        enable_dataset_iterators: Not used.
        enable_keras_extensions: False to leave models as Keras makes them.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        super().__init__(ipu_device, enable_keras_extensions=enable_keras_extensions)


IPUHorovodStrategy = PopDistStrategy
popdist_strategy = horovod_strategy = ipu_horovod_strategy = sys.modules[__name__]


def init(*args: Any, **kwargs: Any) -> None:
    """Nothing: there is one process."""


def size() -> int:
    """1."""
    return 1


def rank() -> int:
    """0."""
    return 0


local_size, local_rank = size, rank


def allreduce(tensor: Any, op: Any = None, prescale_factor: float = 1.0, name: Any = None) -> Any:
    """The tensor of the one process, scaled."""
    return tensor if prescale_factor == 1.0 else jax.tree.map(lambda a: a * prescale_factor, tensor)


def allgather(tensor: Any, name: Any = None) -> Any:
    """The tensor of the one process."""
    return tensor


def broadcast(tensor: Any, root_rank: int = 0, name: Any = None) -> Any:
    """The tensor of the one process."""
    return tensor
