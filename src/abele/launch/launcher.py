"""Launcher of a job: it starts the ranks, shows their output, and ends all of them when one is lost."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any, TextIO

from abele.errors import LaunchError, ProgramRuntimeError, RankLostError
from abele.launch.frames import BEAT, END, ERR, HELLO, OUT, FrameReader, RankFrame
from abele.launch.group import GuardedGroup
from abele.launch.job import Job
from abele.launch.lines import LineSplitter
from abele.launch.mpiexec import command_of
from abele.launch.watch import Loss, RankView, lost
from abele.words import counted, visible

_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 0.7
"""Seconds for which the job goes on after a rank is lost, so that messages of the others are shown."""
_END_SECONDS = 1.5
"""Seconds that an MPI launcher has to end the ranks before it is killed."""
_MOST_WORDS = 20


class Launcher:
    """Runs a job.

    Args:
        job: Job to start.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._ranks = [RankView(rank) for rank in range(job.ranks)]
        self._heard = [0.0] * job.ranks
        self._splitters = {(rank, kind): LineSplitter() for rank in range(job.ranks) for kind in (OUT, ERR)}
        self._frames = FrameReader()
        self._words = LineSplitter()
        self._said: list[str] = []
        self._loss: Loss | None = None

    @property
    def reason(self) -> ProgramRuntimeError | None:
        """Why the job was ended, if it was."""
        return None if self._loss is None else self._loss.error()

    def run(self) -> int:
        """Run the job to its end; returns the exit status of the rank that was lost, or 0.

        Raises:
            LaunchError: The ranks could not be started.
            MissingPackageError: There is no ``mpiexec``.
            KeyboardInterrupt: Ctrl-C; all ranks have ended.
        """
        command = command_of(self._job)
        with _signals_end(), GuardedRun(command) as started:
            self._follow(started)
            left = started.left()
        return self._status(left)

    def _follow(self, started: GuardedRun) -> None:
        """Show what ranks print until all have ended, or one is lost."""
        end = None
        with selectors.DefaultSelector() as selector:
            for stream in (started.process.stdout, started.process.stderr):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map() and (end is None or time.monotonic() < end):
                ready = selector.select(_LOOK_SECONDS)
                for key, _ in ready:
                    block = os.read(key.fd, 1 << 16)
                    if not block:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is started.process.stdout:
                        self._take(block)
                    else:
                        self._note_words(self._words.feed(block))
                if not ready and started.is_over:
                    break
                self._judge(quiet=not ready)
                if self._loss is not None and end is None:
                    view = self._loss.view
                    # Of a rank that ended by itself, or because of another, there is more to be heard.
                    end = time.monotonic() + (_GRACE_SECONDS if view is not None and view.status else 0.0)
        for (rank, kind), splitter in self._splitters.items():
            self._show(rank, kind, splitter.end())

    def _take(self, block: bytes) -> None:
        for frame in self._frames.feed(block):
            if frame.rank >= len(self._ranks):
                raise self._unstarted(f"a rank {frame.rank} was started, of {self._job.ranks}")
            self._heard[frame.rank] = time.monotonic()
            self._note(self._ranks[frame.rank], frame)
        self._note_words(self._frames.others)
        self._frames.others.clear()

    def _note(self, view: RankView, frame: RankFrame) -> None:
        if frame.kind in (OUT, ERR):
            self._show(frame.rank, frame.kind, self._splitters[frame.rank, frame.kind].feed(frame.content))
            return
        told: dict[str, Any] = json.loads(frame.content)
        if frame.kind == HELLO:
            view.host = told["host"] if self._job.hosts or self._job.hostfile is not None else ""
            if told["size"] != self._job.ranks:
                raise self._unstarted(f"each was told that it is one of {told['size']} ranks")
        elif frame.kind == BEAT:
            view.beat = told
        elif frame.kind == END:
            view.code = told.pop("code")
            view.beat = {**view.beat, **told}

    def _note_words(self, lines: list[bytes]) -> None:
        """Words of the launcher of MPI; they are shown where nothing better explains what happened."""
        shown = [visible(line.decode("utf-8", "replace").rstrip()) for line in lines if line.strip()]
        self._said = [*self._said, *shown][-_MOST_WORDS:]

    def _show(self, rank: int, kind: str, lines: list[bytes]) -> None:
        """Print whole lines of a rank."""
        if not lines:
            return
        tag = f"[rank {rank}] ".encode() if self._job.tag_output else b""
        self._ranks[rank].last_line = lines[-1].decode("utf-8", "replace")
        stream: TextIO = sys.stdout if kind == OUT else sys.stderr
        stream.flush()
        stream.buffer.write(b"".join(tag + line for line in lines))
        stream.buffer.flush()

    def _judge(self, *, quiet: bool) -> None:
        """Look whether a rank is lost."""
        now = time.monotonic()
        for view, heard in zip(self._ranks, self._heard, strict=True):
            # Only where all that was sent is read does it mean something that nothing came.
            view.unheard = now - heard if quiet and heard else 0.0
        if self._loss is None:
            self._loss = lost(self._ranks, self._job.timeout_seconds)

    def _status(self, left: int | None) -> int:
        if self._loss is not None:
            codes = [view.status for view in self._ranks if view.status]
            return 1 if not codes else codes[0] if codes[0] > 0 else 128 - codes[0]
        if all(view.code == 0 for view in self._ranks):
            for word in self._said:
                print(f"[mpiexec] {word}", file=sys.stderr)
            return 0
        if all(self._heard):
            raise self._left_alone(left)
        raise self._unstarted(f"mpiexec ended with exit status {left}")

    def _left_alone(self, left: int | None) -> RankLostError:
        going = [view for view in self._ranks if view.code is None]
        return RankLostError(
            f"mpiexec ended with exit status {left}, and with it {counted(len(going), 'rank')}",
            at="\n".join(f"rank {view.rank}: {view.whereabouts()}; {view.printed()}" for view in going),
            because="\n".join(self._said) or None,
            remedy="look at what ended it, or one of its processes",
        )

    def _unstarted(self, what: str) -> LaunchError:
        started = sum(1 for heard in self._heard if heard)
        return LaunchError(
            f"{started} of {self._job.ranks} ranks were started: {what}" if started else f"no rank was started: {what}",
            at=" ".join(command_of(self._job)[:3]) + " …",
            because="\n".join(self._said) or None,
            remedy="look at whether mpiexec starts anything: mpiexec -n 2 hostname",
        )


class GuardedRun:
    """A launcher of MPI that runs; it and its ranks end with this object, or with this process.

    Args:
        command: Command to run.

    Attributes:
        process: The launcher.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._group = GuardedGroup()
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> GuardedRun:
        terminal = sys.stdin is not None and sys.stdin.isatty()
        try:
            self.process = self._group.start(
                self._command,
                # Only the process that a terminal belongs to may read from it.
                stdin=subprocess.PIPE if terminal else None,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            self._group.kill()
            raise LaunchError(f"{self._command[0]} cannot be started: {error.strerror}") from error
        if terminal:
            threading.Thread(target=_hand_on, args=(self.process.stdin,), daemon=True).start()
        return self

    def left(self) -> int | None:
        """The launcher's exit status; None if it goes on although nothing more comes from it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(_GRACE_SECONDS)
        return None

    @property
    def is_over(self) -> bool:
        """True if the launcher has ended."""
        return self.process.poll() is not None

    def __exit__(self, *error: object) -> None:
        """End everything: first as the launcher does it, who knows of ranks on other hosts."""
        try:
            if not self.is_over:
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(_END_SECONDS)
        finally:
            self._group.kill()
            self.process.wait()
            for stream in (self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()


def _hand_on(stream: IO[bytes]) -> None:
    """Hand typed input to the ranks; the first gets it."""
    with contextlib.suppress(OSError, ValueError), stream:
        while block := os.read(0, 1 << 12):
            stream.write(block)
            stream.flush()


@contextmanager
def _signals_end() -> Iterator[None]:
    """Signals that would end this process leave by an exception inside, so that all ranks end first."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
