"""The keeper of a rank: starts its program, and tells whoever started the job what becomes of it.

``python -P -m abele.launch.rank_supervisor [--replicas N] -- (program.py | -m module) [arguments]``. Its standard
output carries frames and nothing else.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from abele.job.launched import REPLICAS_VARIABLE, launched_rank, launched_size, ranks_on_host
from abele.launch.frames import BEAT, END, ERR, HELLO, OUT, frames_of
from abele.launch.launcher import GuardedGroup
from abele.launch.program import PIPE_VARIABLE

_LOOK_SECONDS = 0.1
_BEAT_SECONDS = 0.5
_DRAIN_SECONDS = 1.0
"""Seconds for which pipes are read after the program has ended."""
_THREADS_VARIABLE = "OMP_NUM_THREADS"


class Keeper:
    """Keeps one rank.

    Args:
        program: The program and its arguments.
        replicas: Replicas that the rank has by default; None where the program says.
    """

    def __init__(self, program: list[str], replicas: int | None) -> None:
        self._program = program
        self._replicas = replicas
        self._rank = launched_rank()
        self._beat: dict[str, Any] = {}
        self._heard = self._told = time.monotonic()
        self._partial = b""

    def run(self) -> int:
        """Start the program and keep it until it ends; returns its exit status, as shells have it."""
        group = GuardedGroup()
        try:
            return self._run(group)
        except BrokenPipeError:
            # Whoever started the job is gone.
            return 1
        finally:
            group.kill()

    def _run(self, group: GuardedGroup) -> int:
        self._tell(HELLO, {"size": launched_size(), "host": socket.gethostname(), "pid": os.getpid()})
        beats, pipe = os.pipe()
        os.set_inheritable(pipe, True)
        child = group.start(
            [sys.executable, "-P", "-m", "abele.launch.program", *self._program],
            # Typed input is for the first rank; launchers leave the input of others open for ever.
            stdin=None if self._rank == 0 else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(pipe),
            # MPI finds its launcher by a file descriptor that this process was given.
            close_fds=False,
        )
        os.close(pipe)
        assert child.stdout is not None
        assert child.stderr is not None
        sources = {child.stdout.fileno(): OUT, child.stderr.fileno(): ERR, beats: BEAT}
        with selectors.DefaultSelector() as selector:
            for source in sources:
                selector.register(source, selectors.EVENT_READ)
            while child.poll() is None:
                self._read(selector, sources, _LOOK_SECONDS)
                self._beat_for_silent()
            # Processes that the program left running end with it; their output is still in the pipes.
            code = child.returncode
            group.kill()
            end = time.monotonic() + _DRAIN_SECONDS
            while selector.get_map() and time.monotonic() < end:
                self._read(selector, sources, _LOOK_SECONDS)
        self._tell(END, {"code": code, **self._beat})
        return code if code >= 0 else 128 - code

    def _environment(self, pipe: int) -> Mapping[str, str]:
        found = {**os.environ, PIPE_VARIABLE: str(pipe)}
        if self._replicas is not None:
            found[REPLICAS_VARIABLE] = str(self._replicas)
        # Libraries that take all cores of a host by themselves would do so in each of its ranks.
        found.setdefault(_THREADS_VARIABLE, str(max(1, (os.cpu_count() or 1) // ranks_on_host())))
        return found

    def _read(self, selector: selectors.BaseSelector, sources: Mapping[int, str], seconds: float) -> None:
        for key, _ in selector.select(seconds):
            block = os.read(key.fd, 1 << 16)
            if not block:
                selector.unregister(key.fd)
            elif sources[key.fd] == BEAT:
                self._hear(block)
            else:
                for frame in frames_of(self._rank, sources[key.fd], block):
                    os.write(1, frame)

    def _hear(self, block: bytes) -> None:
        *lines, self._partial = (self._partial + block).split(b"\n")
        for line in lines:
            # An error that was told holds until the end.
            self._beat = {**self._beat, **json.loads(line)}
            self._heard = time.monotonic()
        if lines:
            self._tell(BEAT, self._beat)

    def _beat_for_silent(self) -> None:
        """Beat for a program whose own thread cannot, with the seconds since it last did."""
        now = time.monotonic()
        silent = now - self._heard
        if min(silent, now - self._told) < _BEAT_SECONDS:
            return
        waits = bool(self._beat.get("waits_for"))
        longer = "waited" if waits else "idle"
        self._tell(BEAT, {**self._beat, longer: self._beat.get(longer, 0.0) + silent, "silent": silent})

    def _tell(self, kind: str, what: Mapping[str, Any]) -> None:
        self._told = time.monotonic()
        for frame in frames_of(self._rank, kind, json.dumps(what, ensure_ascii=False).encode()):
            os.write(1, frame)


def main() -> int:
    """Keep the rank that the arguments name."""
    # A launcher that ends a job sends these; leaving by an exception ends the program.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    arguments = sys.argv[1:]
    place = arguments.index("--")
    replicas = int(arguments[1]) if arguments[0] == "--replicas" else None
    return Keeper(arguments[place + 1 :], replicas).run()


if __name__ == "__main__":
    sys.exit(main())
