"""Mirrors: arrays of a device and their cells on the host, each of which may change, kept in step.

A cell counts its writes. The mirror notes the count at which it last uploaded a cell, or wrote it itself: another count
means that somebody else wrote the cell since, the host's program or another session. Copying is by cell, so that what
one side changed never overwrites what only the other side touched.

Before each run a mirror looks for what others wrote. Where nobody else holds a cell and no cell has changed since it
last looked, there is nothing to find, and comparing one token tells so (:class:`~abele.session.arrays.Changes`): a
model of 1,000 weights is called as fast as one of 2.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from abele.session.arrays import CHANGES, SharedArray, SharedArrays
from abele.session.device_arrays import DeviceArrays
from abele.session.host_interface import End

# Locks that survive a fork.


class ForkLock:
    """A lock that a forked process finds open, whoever held it when it was forked."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()

    def held(self) -> contextlib.AbstractContextManager[bool]:
        """To be held inside ``with``; the same thread may do so again there."""
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.RLock()
        return self._lock


class Mirror:
    """Arrays that live on a device and on the host.

    Args:
        ends: Their ends on the device, by name.
        arrays: Their cells on the host; those that are missing are passed over.
        lock: Held while the engine is used.
        changing: Names of those that runs change.
        follow_host: True if a write on the host reaches the device by itself, and is newer than what the device has
            learnt. Otherwise only writes of other sessions do, and the device's values win.

    Attributes:
        changed: True if the device may have newer values than the host.
        told: Called with ``host`` or ``device`` when values were copied there because somebody else needed them.
    """

    told: Callable[[str], None] | None = None

    def __init__(
        self,
        ends: Mapping[str, End],
        arrays: SharedArrays,
        lock: ForkLock,
        *,
        changing: Collection[str],
        follow_host: bool,
    ) -> None:
        self._ends = ends
        self._changing = {name: end for name, end in ends.items() if name in changing}
        self._arrays = arrays
        self._lock = lock
        self._follow_host = follow_host
        self._device: DeviceArrays | None = None
        self._seen: dict[str, int] = {}
        self._settled: object = None
        self.changed = False

    def _cells(self, ends: Mapping[str, End]) -> Iterator[tuple[str, End, SharedArray]]:
        for name, end in ends.items():
            if name in self._arrays:
                yield name, end, self._arrays.cell(name)

    def note_run(self) -> None:
        """Note that the device has run: the cells that it changes are newer there."""
        self.changed = bool(self._changing)

    def attach(self, device: DeviceArrays) -> None:
        """Use a device."""
        self._device = device

    def detach(self) -> None:
        """Use no device any longer, and hold no cell."""
        self._device = self._settled = None
        for _, _, cell in self._cells(self._ends):
            cell.release(self)

    def hold(self) -> None:
        """Be asked for the newest values from now on."""
        if self._settled is CHANGES.last:
            return
        for _, _, cell in self._cells(self._changing):
            if cell.holder is not self:
                cell.hold(self)

    def upload(self, names: Collection[str] | None = None) -> None:
        """Copy what the host has to the device, also over what the device has learnt: all, or some by name."""
        ends = self._ends if names is None else {name: end for name, end in self._ends.items() if name in names}
        # Other holders first, outside the lock: each takes its own.
        for _, _, cell in self._cells(ends):
            cell.bring_up_to_date(but=self)
        with self._lock.held():
            for name, end, cell in self._cells(ends):
                self._write(name, end, cell)
            self.changed = self.changed and names is not None

    def refresh(self) -> None:
        """Copy to the device the cells that others wrote since they were last uploaded."""
        last = CHANGES.last
        if self._settled is last:
            return
        shared = {name for name, _, cell in self._cells(self._ends) if cell.bring_up_to_date(but=self)}
        # Another thread may run in between, so what is stale is looked for under the lock.
        copied = False
        with self._lock.held():
            for name, end, cell in self._cells(self._ends):
                follows = self._follow_host or cell.follows_host or name in shared
                if follows and self._seen.get(name) != cell.version:
                    self._write(name, end, cell)
                    copied = True
        if copied and self.told is not None:
            self.told("device")
        self._settled = last if self._is_alone() else None

    def _is_alone(self) -> bool:
        """True if nothing can be newer elsewhere until some cell notes a change."""
        return all(
            (cell.holder is self or (cell.holder is None and name not in self._changing))
            and (cell.notes_writes or not (self._follow_host or cell.follows_host))
            for name, _, cell in self._cells(self._ends)
        )

    def _write(self, name: str, end: End, cell: SharedArray) -> None:
        if self._device is not None:
            self._device.write(end, np.asarray(cell.values(), end.np, order="C"))
            self._seen[name] = cell.version

    def download(self) -> None:
        """Copy all values of the device to the host, except cells that another session holds."""
        self._download(self._ends, over_host=True)

    def _download(self, ends: Mapping[str, End], *, over_host: bool) -> None:
        with self._lock.held():
            for name, end, cell in self._cells(ends):
                # A cell that another session holds has newer values there than this device.
                mine = cell.holder in (self, None)
                if mine and (over_host or self._seen.get(name) == cell.version):
                    self._read(name, end, cell)
            self.changed = False

    def _read(self, name: str, end: End, cell: SharedArray) -> None:
        if self._device is not None:
            cell.assign(self._device.read(end))
            self._seen[name] = cell.version

    def bring_to_host(self) -> bool:
        """Copy what runs changed to the host, if any did since the last time; returns whether it did."""
        if not self.changed:
            return False
        self._download(self._changing, over_host=not self._follow_host)
        if self.told is not None:
            self.told("host")
        return True
