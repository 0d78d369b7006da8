"""Launcher of a job: it starts the ranks, shows their output, and ends all of them when one is lost."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, TextIO

from abele.errors import (
    GraphReplicationError,
    InvalidOptionError,
    LaunchError,
    MissingPackageError,
    ProgramRuntimeError,
    RankLostError,
)
from abele.job.launched import is_launched
from abele.launch.frames import BEAT, END, ERR, HELLO, OUT, FrameReader, RankFrame
from abele.launch.watch import Loss, RankView, lost
from abele.words import counted, visible

# Job to be started: its program, ranks and hosts, and the checks of its options.


@dataclass(frozen=True, slots=True)
class Job:
    """Ranks that run one program.

    Attributes:
        program: The Python file and its arguments; or ``-m``, a module and its arguments.
        ranks: Number of processes that run it.
        replicas: Replicas of all ranks together; None where the program says.
        hosts: Names of hosts with commas between, for ``mpiexec``; empty for this one.
        hostfile: A file of hosts, for ``mpiexec``.
        tag_output: True if each line that a rank prints begins with its number.
        timeout_seconds: Time after which a job that one rank holds up is ended; 0 for never.
    """

    program: tuple[str, ...]
    ranks: int = 1
    replicas: int | None = None
    hosts: str = ""
    hostfile: Path | None = None
    tag_output: bool = True
    timeout_seconds: float = 10.0

    def check(self) -> None:
        """Raise unless the job can be started from here.

        Raises:
            InvalidOptionError: A number out of range, no such program or file, or a job within a job.
            GraphReplicationError: The replicas do not divide into the ranks.
        """
        for name, value in (("ranks", self.ranks), ("replicas", 1 if self.replicas is None else self.replicas)):
            if value < 1:
                raise InvalidOptionError(f"{name} = {value}: must be at least 1")
        if not self.timeout_seconds >= 0:
            raise InvalidOptionError(f"timeout = {self.timeout_seconds:g}: must be 0 or more seconds")
        if self.replicas is not None and self.replicas % self.ranks:
            raise GraphReplicationError(
                f"{self.replicas} replicas cannot be shared by {self.ranks} ranks: each runs equally many",
                remedy=f"--replicas {-(-self.replicas // self.ranks) * self.ranks}",
            )
        if is_launched():
            raise InvalidOptionError(
                "abele run was started as a rank of another job",
                because="it starts ranks itself",
                remedy="abele run by itself, or mpiexec with python in its place",
            )
        if self.hosts and self.hostfile is not None:
            raise InvalidOptionError("hosts and a file of hosts exclude each other", remedy="one of the two")
        if self.hostfile is not None and not self.hostfile.is_file():
            raise InvalidOptionError(f"there is no file {self.hostfile}", remedy="a file with a host on each line")
        if self.program[0] != "-m":
            self._check_program(Path(self.program[0]))

    def _check_program(self, program: Path) -> None:
        if not program.exists() and (self.hosts or self.hostfile is not None):
            # Other hosts may have it.
            return
        if not program.is_file() and not (program / "__main__.py").is_file():
            raise InvalidOptionError(f"there is no program {program}", remedy="abele run --ranks 2 PROGRAM.py")
        if program.is_dir() or program.suffix in (".pyc", ".pyz", ".zip"):
            return
        try:
            compile(program.read_bytes(), str(program), "exec", dont_inherit=True)
        except OSError as error:
            raise InvalidOptionError(f"{program} cannot be read: {error.strerror}") from error
        except (SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise InvalidOptionError(
                f"{program} is no Python program", at=f"{program}{line}", because=reason, remedy="a file of Python code"
            ) from error


# Groups of processes that end together, whatever becomes of their parent.

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


# The command that starts the ranks of a job.

LAUNCHER_VARIABLE = "ABELE_MPIEXEC"
"""The ``mpiexec`` to use, where another one than the first is wanted."""


def find_mpiexec() -> str:
    """Path of ``mpiexec``: the one named by the environment, on PATH, or installed with this Python.

    Raises:
        MissingPackageError: There is none.
    """
    named = os.environ.get(LAUNCHER_VARIABLE, "")
    beside = Path(sys.executable).parent
    for name, path in ((named or "mpiexec", None), ("" if named else "mpiexec", str(beside))):
        found = shutil.which(name, path=path) if name else None
        if found:
            return found
    raise MissingPackageError(
        f"there is no {named or 'mpiexec'}",
        because=f"{LAUNCHER_VARIABLE} names it" if named else f"it is neither on PATH nor in {beside}",
        remedy="pip install 'abele[mpi]'",
    )


def command_of(job: Job) -> list[str]:
    """Command that starts all ranks of a job; one rank alone needs no launcher.

    Raises:
        MissingPackageError: There is no ``mpiexec``.
    """
    replicas = [] if job.replicas is None else ["--replicas", str(job.replicas // job.ranks)]
    keeper = [sys.executable, "-P", "-m", "abele.launch.rank_supervisor", *replicas, "--", *job.program]
    if job.ranks == 1 and not job.hosts and job.hostfile is None:
        return keeper
    hosts: Sequence[str] = ()
    if job.hosts:
        hosts = ("-host", job.hosts)
    elif job.hostfile is not None:
        hosts = ("-hostfile", str(job.hostfile))
    return [find_mpiexec(), *hosts, "-n", str(job.ranks), *keeper]


# Whole lines out of blocks of bytes.

_MOST_BYTES = 1 << 16
"""A longer line is shown in pieces."""
_SHOWN_SECONDS = 1.0
"""Seconds between two showings of a line that is written over and over, such as a progress bar."""


class LineSplitter:
    """Joins blocks and splits them into lines.

    A line that ends in a carriage return is written over on a terminal: it is shown once a second.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._shown = 0.0

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that are complete with some more bytes, each with a newline at its end."""
        *lines, rest = (self._rest + block).split(b"\n")
        found = [_last_written(line) + b"\n" for line in lines]
        if len(rest) > _MOST_BYTES:
            found.append(rest + b"\n")
            rest = b""
        # A carriage return at the very end may be half of the end of a line.
        over, carriage, _ = rest.rstrip(b"\r").rpartition(b"\r")
        if carriage:
            rest = rest[len(over) + 1 :]
            if time.monotonic() - self._shown > _SHOWN_SECONDS:
                self._shown = time.monotonic()
                found.append(_last_written(over) + b"\n")
        self._rest = rest
        return found

    def end(self) -> list[bytes]:
        """Rest of the output when no more bytes come, as a line."""
        rest, self._rest = self._rest, b""
        return [_last_written(rest) + b"\n"] if rest else []


def _last_written(line: bytes) -> bytes:
    """A line without the text that was written over."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


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
