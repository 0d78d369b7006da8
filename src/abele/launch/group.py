"""Groups of processes that end together, whatever becomes of their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

_GUARD = ("/bin/sh", "-c", "read _; kill -9 0")
"""Waits for the end of its input, and then kills its process group, itself among it."""


class GuardedGroup:
    """A process group with a guard in it: when this process ends in any way, the group is killed.

    Attributes:
        id: Number of the process group.
    """

    def __init__(self) -> None:
        # Only the guard reads, only this process can write: when it is gone, the guard's input ends.
        reading, self._writing = os.pipe()
        quiet = subprocess.DEVNULL
        try:
            self._guard = subprocess.Popen(_GUARD, stdin=reading, stdout=quiet, stderr=quiet, process_group=0)
        finally:
            os.close(reading)
        self.id = self._guard.pid

    def start(self, command: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
        """Start a process in the group.

        Args:
            command: Command to run.
            settings: Further arguments of :class:`subprocess.Popen`.

        Raises:
            OSError: It cannot be started.
        """
        return subprocess.Popen(command, process_group=self.id, **settings)

    def kill(self) -> None:
        """Kill all processes of the group."""
        if self._writing < 0:
            return
        # The guard was not waited for yet, so its number is that of this group, whatever became of it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.id, signal.SIGKILL)
        self._guard.wait()
        os.close(self._writing)
        self._writing = -1
