"""PopDist's names: what a program asks about the job that it is part of, and its other processes.

An *instance* is a rank of :mod:`abele.launch`: ``abele run --ranks 2 --replicas 8 train.py`` starts two, each with four
replicas. A program that was started by itself is instance 0 of 1 with one replica.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from abele.errors import InvalidOptionError
from abele.job.launched import REPLICAS_VARIABLE, is_launched, launched_rank, launched_replicas, launched_size
from abele.runtime.ranks.mpi import mpi_ranks


def isPopdistEnvSet() -> bool:
    """True if a launcher started this process as a part of a job."""
    return is_launched() or REPLICAS_VARIABLE in os.environ


def init(*args: Any, **kwargs: Any) -> None:
    """Nothing: ranks find each other when the first program of several replicas is loaded."""


def finalizeDistributed(*args: Any, **kwargs: Any) -> None:
    """Nothing: a rank leaves its job when the process ends."""


def getNumInstances() -> int:
    """Processes of the job."""
    return launched_size()


def getInstanceIndex() -> int:
    """Number of this process among those of the job."""
    return launched_rank()


def getNumLocalReplicas() -> int:
    """Replicas of this process."""
    return launched_replicas()


def getNumTotalReplicas() -> int:
    """Replicas of all processes."""
    return launched_size() * launched_replicas()


def getReplicaIndexOffset() -> int:
    """Number of this process's first replica among all."""
    return launched_rank() * launched_replicas()


def getNumIpusPerReplica() -> int:
    """1: a program says itself what else it needs, by ``popxl.ipu`` or stages."""
    return 1


def getDeviceId(*args: Any) -> int:
    """0: the machine is modelled, and each program has one to itself."""
    return 0


def getDevice(*args: Any, **kwargs: Any) -> Any:
    """The machine that Abele models, with the IPUs of this process's replicas."""
    return importlib.import_module("abele.frontends.popdist.popart").getDevice(*args, **kwargs)


def synchronize(*args: Any, **kwargs: Any) -> None:
    """Wait until all processes of the job are here.

    Raises:
        RankLostError: One does not come.
        MissingPackageError: There are several, and the extra ``mpi`` is not installed.
    """
    if launched_size() > 1:
        mpi_ranks().gather(b"", "popdist.synchronize")


def execute_on_instances(instances: Iterable[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of functions that some processes run, and that give None in others.

    Args:
        instances: Numbers of those processes.

    Raises:
        InvalidOptionError: There is no such process.
    """
    chosen = frozenset(int(n) for n in instances)
    wrong = sorted(n for n in chosen if not 0 <= n < getNumInstances())
    if wrong:
        raise InvalidOptionError(f"instance {wrong[0]} is none of the {getNumInstances()} of this job")

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if getInstanceIndex() in chosen else None

        return run

    return decorated


def run_on_instances(function: Callable[..., Any], instances: Iterable[int] = (0,), *args: Any, **kwargs: Any) -> Any:
    """The result of a function in some processes, None in others; all go on when it is done.

    Args:
        function: The function.
        instances: Numbers of the processes that call it.
        *args: Its arguments.
        **kwargs: Further ones by name.
    """
    made = execute_on_instances(instances)(function)(*args, **kwargs)
    synchronize()
    return made


def __getattr__(name: str) -> Any:
    # These need the package onnx.
    if name in ("popart", "popxl"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "execute_on_instances",
    "finalizeDistributed",
    "getDevice",
    "getDeviceId",
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "run_on_instances",
    "synchronize",
]
