"""Ranks by MPI: processes that ``mpiexec`` started, on one host or many.

Messages are nonblocking, and this process looks at them in turn, first as fast as it can and then at leisure: so it
can give up on a rank that never comes, which no blocking call of MPI does, and leaves the processor to others on hosts
with fewer cores than ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from abele.errors import MissingPackageError, RankLostError
from abele.job.launched import launched_rank, launched_size, ranks_on_host
from abele.job.progress import PROGRESS
from abele.llvm.host import num_threads
from abele.runtime.ranks.group import RankMessage

PATIENCE_VARIABLE = "ABELE_RANKS_TIMEOUT"
"""Seconds after which a missing rank is given up; without it, a process waits as long as it takes."""

_SPIN_SECONDS = 2e-3
"""Seconds for which a process looks for messages without a pause, on a host with a core for each of its ranks."""
_LEAST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2e-5, 2e-3
_PAUSE_PART = 1 / 20
"""Length of a pause as part of the wait so far: the most that it adds to a wait."""


@cache
def mpi_ranks() -> MpiRanks:
    """The ranks of the job that this process was started in.

    Raises:
        MissingPackageError: The extra ``mpi`` is not installed.
    """
    return MpiRanks()


class MpiRanks:
    """All processes of an MPI job.

    Args:
        patience_seconds: Seconds to wait for a rank; None to wait as long as it takes (or as the environment says).

    Raises:
        MissingPackageError: The extra ``mpi`` is not installed.
    """

    def __init__(self, patience_seconds: float | None = None) -> None:
        others = tuple(rank for rank in range(launched_size()) if rank != launched_rank())
        with PROGRESS.joining("join the job", others):
            mpi = _mpi4py()
            self._mpi = mpi
            self._world = mpi.COMM_WORLD.Dup()
        self._requests: dict[int, tuple[Sequence[RankMessage], list[Any]]] = {}
        self._spin_seconds = _SPIN_SECONDS if ranks_on_host() <= num_threads() else 0.0
        given = os.environ.get(PATIENCE_VARIABLE)
        self._patience = patience_seconds if patience_seconds is not None or given is None else float(given)

    @property
    def rank(self) -> int:
        """Number of this process."""
        return int(self._world.Get_rank())

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(self._world.Get_size())

    def exchange(self, messages: Sequence[RankMessage], step: str) -> None:
        """Send and receive messages; see :class:`~abele.runtime.ranks.group.Ranks`."""
        key = id(messages)
        if key not in self._requests:
            self._requests[key] = messages, self._prepared(messages)
        requests = self._requests[key][1]
        self._mpi.Prequest.Startall(requests)
        self._wait(lambda: bool(self._mpi.Request.Testall(requests)), tuple(m.rank for m in messages), step)

    def _prepared(self, messages: Sequence[RankMessage]) -> list[Any]:
        made = []
        for message in messages:
            if message.received.size:
                made.append(self._world.Recv_init([message.received, self._mpi.BYTE], message.rank))
            if message.sent.size:
                made.append(self._world.Send_init([message.sent, self._mpi.BYTE], message.rank))
        return made

    def gather(self, words: bytes, step: str) -> list[bytes]:
        """Bytes of every rank; see :class:`~abele.runtime.ranks.group.Ranks`."""
        others = tuple(r for r in range(self.size) if r != self.rank)
        sizes = np.zeros(self.size, np.int64)
        self._all_gather(np.array([len(words)], np.int64), sizes, step, others)
        longest = int(sizes.max())
        mine = np.zeros(longest, np.uint8)
        mine[: len(words)] = np.frombuffer(words, np.uint8)
        every = np.zeros((self.size, longest), np.uint8)
        if longest:
            self._all_gather(mine, every, step, others)
        return [row[:size].tobytes() for row, size in zip(every, sizes.tolist(), strict=True)]

    def _all_gather(self, mine: Any, every: Any, step: str, others: tuple[int, ...]) -> None:
        request = self._world.Iallgather(mine, every)
        self._wait(lambda: bool(request.Test()), others, step)

    def _wait(self, done: Callable[[], bool], others: tuple[int, ...], step: str) -> None:
        """Return when ``done`` is true."""
        if done():
            PROGRESS.meet(step, ())
            return
        PROGRESS.meet(step, others)
        begin = time.monotonic()
        while not done():
            waited = time.monotonic() - begin
            if self._patience is not None and waited > self._patience:
                names = ", ".join(map(str, others))
                raise RankLostError(
                    f"rank {names} did not come to {step!r} in {self._patience:g} s",
                    because=f"rank {self.rank} waits for it there",
                    remedy=f"look at what it does, or allow more time: {PATIENCE_VARIABLE}",
                )
            if waited > self._spin_seconds:
                time.sleep(min(max(_PAUSE_PART * waited, _LEAST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))
        PROGRESS.met()


def _mpi4py() -> Any:
    """The module ``mpi4py.MPI``, which joins the job when it is imported.

    Raises:
        MissingPackageError: It is not installed, or finds no MPI.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingPackageError(
            "several ranks need mpi4py and an MPI, which are not there",
            because=str(error),
            remedy="pip install 'abele[mpi]'",
        ) from error
    return MPI
