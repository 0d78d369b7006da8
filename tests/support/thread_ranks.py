"""Ranks that are threads of one process, for programs with replicas in several processes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from queue import Queue
from typing import Any

from abele.errors import AbeleError


class ThreadRanks:
    """One rank of a job of threads."""

    def __init__(self, rank: int, size: int, shared: dict[str, Any]) -> None:
        self.rank, self.size, self._shared = rank, size, shared

    @staticmethod
    def job(size: int) -> list[ThreadRanks]:
        """All ranks of a job."""
        shared = {"barrier": threading.Barrier(size, timeout=120), "sent": defaultdict(Queue), "words": [b""] * size}
        return [ThreadRanks(rank, size, shared) for rank in range(size)]

    def exchange(self, messages: Sequence[Any], step: str) -> None:
        """Send and receive."""
        for message in messages:
            if message.sent.size:
                self._shared["sent"][self.rank, message.rank].put(message.sent.copy())
        for message in messages:
            if message.received.size:
                message.received[:] = self._shared["sent"][message.rank, self.rank].get(timeout=120)

    def gather(self, words: bytes, step: str) -> list[bytes]:
        """Words of every rank."""
        self._shared["words"][self.rank] = words
        self._shared["barrier"].wait()
        found = list(self._shared["words"])
        self._shared["barrier"].wait()
        return found


def in_ranks(size: int, work: Callable[[ThreadRanks], Any]) -> list[Any]:
    """Results of ``work`` in each rank, or the errors that it raises there."""
    found: list[Any] = [None] * size

    def run(ranks: ThreadRanks) -> None:
        try:
            found[ranks.rank] = work(ranks)
        except AbeleError as error:
            found[ranks.rank] = error

    threads = [threading.Thread(target=run, args=(ranks,)) for ranks in ThreadRanks.job(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
