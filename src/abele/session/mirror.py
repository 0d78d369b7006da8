"""Mirrors: arrays of a device and their cells on the host, each of which may change, kept in step.

A cell counts its writes. The mirror notes the count at which it last uploaded a cell, or wrote it itself: another count
means that somebody else wrote the cell since, the host's program or another session. Copying is by cell, so that what
one side changed never overwrites what only the other side touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from abele.runtime import Engine
from abele.session.arrays import SharedArray, SharedArrays
from abele.session.ends import End
from abele.session.locks import ForkLock


class Mirror:
    """Arrays that live on a device and on the host.

    Args:
        ends: Their ends on the device, by name.
        arrays: Their cells on the host; those that are missing are passed over.
        lock: Held while the engine is used.
        follow_host: Whether a write on the host reaches the device by itself, and is newer than what the device has
            learnt. Otherwise only writes of other sessions do, and the device's values win.

    Attributes:
        changed: Whether the device may have newer values than the host.
    """

    def __init__(self, ends: Mapping[str, End], arrays: SharedArrays, lock: ForkLock, *, follow_host: bool) -> None:
        self._ends = ends
        self._arrays = arrays
        self._lock = lock
        self._follow_host = follow_host
        self._engine: Engine | None = None
        self._seen: dict[str, int] = {}
        self.changed = False

    def _cells(self) -> Iterator[tuple[End, SharedArray]]:
        for name, end in self._ends.items():
            if name in self._arrays:
                yield end, self._arrays.cell(name)

    def attach(self, engine: Engine) -> None:
        """Use an engine."""
        self._engine = engine

    def detach(self) -> None:
        """Use no engine any longer, and hold no cell."""
        self._engine = None
        for _, cell in self._cells():
            cell.release(self)

    def hold(self) -> None:
        """Be asked for the newest values from now on."""
        for _, cell in self._cells():
            if cell.holder is not self:
                cell.hold(self)

    def upload(self) -> None:
        """Copy all that the host has to the device, also over what the device has learnt."""
        for _, cell in self._cells():
            cell.bring_up_to_date(but=self)
        with self._lock.held():
            for end, cell in self._cells():
                self._write(end, cell)
            self.changed = False

    def refresh(self) -> None:
        """Copy to the device what others wrote since it was last uploaded."""
        stale = []
        for end, cell in self._cells():
            shared = cell.bring_up_to_date(but=self)
            if (shared or self._follow_host) and self._seen.get(end.handle) != cell.version:
                stale.append((end, cell))
        if not stale:
            return
        with self._lock.held():
            for end, cell in stale:
                self._write(end, cell)

    def _write(self, end: End, cell: SharedArray) -> None:
        if self._engine is not None:
            self._engine.write(end.handle, np.asarray(cell.values(), end.np, order="C"))
            self._seen[end.handle] = cell.version

    def download(self, *, over_host: bool = True) -> None:
        """Copy what the device has to the host, but for what somebody else holds.

        Args:
            over_host: Also over what was written on the host since it was last uploaded.
        """
        with self._lock.held():
            for end, cell in self._cells():
                mine = cell.holder in (self, None)
                if mine and (over_host or self._seen.get(end.handle) == cell.version):
                    self._read(end, cell)
            self.changed = False

    def _read(self, end: End, cell: SharedArray) -> None:
        if self._engine is not None:
            cell.assign(self._engine.read(end.handle))
            self._seen[end.handle] = cell.version

    def bring_to_host(self) -> bool:
        """Copy what runs changed to the host, if any did since the last time; returns whether it did."""
        if not self.changed:
            return False
        self.download(over_host=not self._follow_host)
        return True
