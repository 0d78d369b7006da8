"""The graph by Poplar's constructor: for a target or a device, with a replication factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from abele import graph as g
from abele.errors import MachineError
from abele.machine import System, Target
from abele.poplar.device import Device


@dataclass(frozen=True, slots=True)
class replication_factor:  # noqa: N801
    """Number of replicas, as an argument of :class:`Graph`.

    Attributes:
        value: The number.
    """

    value: int


class Graph(g.Graph):
    """A graph for a target, a device, or a system; ``Graph(target, replication_factor(4))`` makes replicas of it."""

    TileToTensorMapping = list
    """Poplar's type of a mapping: a list of intervals for each tile."""

    def __init__(self, target: Target | Device | System | str = "", replication: replication_factor | int = 1) -> None:
        if isinstance(target, str) and not target:
            raise MachineError("a Graph is for a target, a device or a system", remedy="Graph(device.getTarget())")
        replicas = replication.value if isinstance(replication, replication_factor) else replication
        system = target.system if isinstance(target, (Target, Device)) else target
        super().__init__(system, replicas=replicas)


def concat(first: g.Tensor | Sequence[g.Tensor], second: Any = None, dim: int = 0) -> g.Tensor:
    """The view of tensors after each other: ``concat(a, b[, dim])`` or ``concat([a, b, …][, dim])``."""
    if isinstance(first, g.Tensor):
        return g.concat([first, second], dim)
    return g.concat(list(first), dim if second is None else int(second))


def append(t: g.Tensor, x: g.Tensor, dim: int = 0) -> g.Tensor:
    """The view of ``t`` and, after it along ``dim``, one more index that is ``x``."""
    return g.concat([t, x.expand_dims(dim)], dim)
