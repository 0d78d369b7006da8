"""Arrays of a device: one for the host, however many replicas have a tensor.

Replicas keep the same parameters, so the host writes all of them at once and reads the first. Where groups of replicas
have values of their own, the host has an array for each group, along a first dimension, or one that is cut into theirs
(:class:`~abele.parallel.split.Split`). A buffer that each replica
changes by what it sees itself, such as running statistics, is that of the first replica of a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.parallel import Schedule
from abele.runtime import Engine
from abele.session.ends import End

Array = npt.NDArray[Any]


class DeviceArrays:
    """The tensors of a program, to be read and written by the host.

    Args:
        engine: The engine that has them.
        schedule: How many replicas there are.
        rank: Which of the schedule's processes this is.
    """

    def __init__(self, engine: Engine, schedule: Schedule, rank: int = 0) -> None:
        self._engine = engine
        self._schedule = schedule
        self._first = rank * schedule.own_replicas

    def read(self, end: End) -> Array:
        """What the host has of a tensor; see :meth:`host_shape`."""
        values = self._engine.read(end.handle)
        if self._schedule.replicas == 1:
            values = values[None]
        if end.group is None:
            first: Array = values[0]
            return first
        own = self._schedule.own_replicas
        # Of each group the first replica that this process has.
        rows = values[
            [int(g[(g >= self._first) & (g < self._first + own)][0]) - self._first for g in self._groups(end)]
        ]
        return rows if end.split is None else end.split.join(rows)

    def _groups(self, end: End) -> npt.NDArray[np.int64]:
        """Replicas of each group that has values of its own, int64[groups, size]."""
        assert end.group is not None
        return end.group.members(self._schedule.replicas)

    def write(self, end: End, values: npt.ArrayLike) -> None:
        """Set a tensor in all replicas, each to the values of its group."""
        array = np.asarray(values)
        if end.group is None:
            self._engine.write(end.handle, array)
            return
        members = self._groups(end)
        rows = array if end.split is None else end.split.cut(array, len(members))
        group_of = np.argsort(members.ravel()) // members.shape[1]
        own = rows[group_of[self._first : self._first + self._schedule.own_replicas]]
        self._engine.write(end.handle, own if self._schedule.replicas > 1 else own[0])

    def read_random(self, end: End) -> list[int]:
        """The state of random ops: that of the first replica."""
        seed, counter = (int(v) for v in self.read(end))
        return [(seed - self._schedule.model_of[self._first] * _GOLDEN) % (1 << 32), counter]

    def write_random(self, end: End, state: npt.ArrayLike) -> None:
        """Set the state of random ops: replicas draw different numbers, each from a seed of its own; those that compute
        a model together draw the same.

        Seeds are 2³² / φ apart, as far from each other as any number of them can be; the first is the one given.
        """
        seed, counter = np.asarray(state, np.int64)
        seeds = seed + np.array(self._schedule.model_of, np.int64) * _GOLDEN
        seeds = seeds[self._first : self._first + self._schedule.own_replicas]
        own = np.stack([seeds, np.full_like(seeds, counter)], 1).astype(np.uint32)
        self._engine.write(end.handle, own if self._schedule.replicas > 1 else own[0])


_GOLDEN = 0x9E3779B9
"""2³² divided by the golden ratio, odd: multiples of it are all different, and far apart."""
