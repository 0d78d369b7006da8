"""``popdist.popart``: devices and options of PopART for the replicas of this process."""

from __future__ import annotations

from typing import Any

from abele.frontends.popart.devices import DeviceInfo, DeviceManager
from abele.frontends.popart.options import SessionOptions
from abele.frontends.popdist import getNumIpusPerReplica, getNumLocalReplicas


def getDevice(*args: Any, **kwargs: Any) -> DeviceInfo:
    """The machine that Abele models, with the IPUs of this process's replicas."""
    return DeviceManager().acquireAvailableDevice(getNumLocalReplicas() * getNumIpusPerReplica())


def configureSessionOptions(options: SessionOptions, *args: Any, **kwargs: Any) -> SessionOptions:
    """Options of a session with the replicas of this process.

    Args:
        options: Changed in place.
        *args: Not used.
        **kwargs: Not used.
    """
    if getNumLocalReplicas() > 1:
        options.enableReplicatedGraphs = True
        options.replicatedGraphCount = getNumLocalReplicas()
    return options


__all__ = ["configureSessionOptions", "getDevice"]
