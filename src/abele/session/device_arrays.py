"""Arrays of a device: one for the host, however many replicas have a tensor.

Replicas keep the same parameters, so the host writes all of them at once and reads the first. Where groups of replicas
have values of their own, the host has an array for each group, along a first dimension, or one that is cut into theirs
(:class:`~abele.network.split.Split`). A buffer that each replica changes by what it sees itself, such as running
statistics, is that of the first replica of a group.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.network import Schedule
from abele.runtime import Engine
from abele.session.host_interface import End, Flat


class DeviceArrays:
    """The tensors of a program, to be read and written by the host.

    Args:
        engine: The engine that has them.
        schedule: Schedule, with the number of replicas.
        rank: Number of this process among the schedule's.
    """

    def __init__(self, engine: Engine, schedule: Schedule, rank: int = 0) -> None:
        self._engine = engine
        self._schedule = schedule
        self._first = rank * schedule.own_replicas

    def read(self, end: End) -> Array:
        """Values of a tensor as the host has them; see :meth:`host_shape`."""
        values = self._of_replicas(end)
        if end.flat is not None and end.flat.replicas > 1:
            return _whole(end.flat, values)
        if end.group is None:
            return _whole(end.flat, values[0])
        own = self._schedule.own_replicas
        # Of each group the first replica that this process has.
        here = [g[(g >= self._first) & (g < self._first + own)] - self._first for g in self._groups(end)]
        rows = np.stack([_whole(end.flat, values[g[0]]) for g in here])
        return rows if end.split is None else end.split.join(rows)

    def write(self, end: End, values: npt.ArrayLike) -> None:
        """Set a tensor in all replicas, each to the values of its group."""
        array = np.asarray(values)
        if end.group is not None:
            members = self._groups(end)
            parts = array if end.split is None else end.split.cut(array, len(members))
            rows = np.stack([_cut(end.flat, part) for part in parts])
            group_of = np.argsort(members.ravel()) // members.shape[1]
            own = group_of[self._first : self._first + self._schedule.own_replicas]
            self._write(end, rows[own], each=True)
        elif end.flat is not None and end.flat.replicas > 1:
            self._write(end, _cut(end.flat, array).reshape(end.flat.replicas, -1), each=True)
        else:
            self._write(end, _cut(end.flat, array), each=False)

    def _groups(self, end: End) -> npt.NDArray[np.int64]:
        """Replicas of each group that has values of its own, int64[groups, size]."""
        assert end.group is not None
        return end.group.members(self._schedule.replicas)

    def _of_replicas(self, end: End) -> Array:
        """Values of each replica of this process."""
        if end.is_remote:
            return np.stack([self._remote(end, replica) for replica in range(self._schedule.own_replicas)])
        values = self._engine.read(end.handle)
        return values if self._schedule.replicas > 1 else values[None]

    def _write(self, end: End, values: Array, *, each: bool) -> None:
        """Set what the replicas of this process have: all the same, or ``each`` a row."""
        if end.is_remote:
            for replica in range(self._schedule.own_replicas):
                self._remote(end, replica)[...] = values[replica] if each else values
            return
        self._engine.write(end.handle, values[0] if each and self._schedule.replicas == 1 else values)

    def _remote(self, end: End, replica: int) -> Array:
        """The memory itself of a tensor in streaming memory, in one of the process's replicas."""
        assert end.flat is not None
        assert end.flat.begin is not None
        memory = self._engine.deployment.remote
        elements = memory.rows(memory.find(end.handle), replica).reshape(-1)
        return elements[end.flat.begin : end.flat.begin + end.flat.width]

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


def _whole(flat: Flat | None, values: Array) -> Array:
    """A tensor in its shape, of the elements in the order in which it lies."""
    if flat is None:
        return values
    order = flat.order
    elements = values.reshape(-1)[: math.prod(order.shape)].reshape(order.extents)
    back = sorted(range(len(order.order)), key=order.order.__getitem__)
    return elements.transpose(back).reshape(order.shape)


def _cut(flat: Flat | None, array: Array) -> Array:
    """The elements of a tensor in the order in which it lies, zeros behind them where shares are longer."""
    if flat is None:
        return array
    elements = array.reshape(flat.order.fine).transpose(flat.order.order).reshape(-1)
    return np.pad(elements, (0, flat.width * flat.replicas - elements.size))
