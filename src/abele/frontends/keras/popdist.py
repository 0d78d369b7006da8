"""``popdist``: one process, as programs see it that ask how many there are."""

from __future__ import annotations

import types
from typing import Any

from abele.frontends.keras.ipu.config import get_ipu_config
from abele.frontends.popdist import getDeviceId, getNumIpusPerReplica, init

__all__ = [
    "getDeviceId",
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "synchronize",
    "tensorflow",
]


def getNumInstances() -> int:
    """1."""
    return 1


def getInstanceIndex() -> int:
    """0."""
    return 0


def getNumTotalReplicas() -> int:
    """IPUs that were asked for: each is a replica, of models that are no pipelines."""
    return get_ipu_config().num_ipus


getNumLocalReplicas = getNumTotalReplicas  # noqa: N816


def getReplicaIndexOffset() -> int:
    """0."""
    return 0


def isPopdistEnvSet() -> bool:
    """False: no launcher started this process as one of several."""
    return False


def synchronize(*args: Any, **kwargs: Any) -> None:
    """Nothing: there is no other process."""


def _set_ipu_config(
    config: Any, ipus_per_replica: int | None = None, configure_device: bool = True, add_ipu_count: bool = True
) -> None:
    """Let a configuration ask for the IPUs of this process, if it asks for none."""
    if config.auto_select_ipus in ([], ()):
        config.auto_select_ipus = ipus_per_replica or 1


tensorflow = types.ModuleType(f"{__name__}.tensorflow", "``popdist.tensorflow``.")
tensorflow.set_ipu_config = _set_ipu_config  # type: ignore[attr-defined]
