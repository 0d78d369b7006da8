"""Host threads: persistent, one per core; all run the same job in step."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue


@dataclass
class _ThreadJob:
    """One job on all threads."""

    job: Callable[[int], None]
    threads: int
    started: set[int] = field(default_factory=set)
    finished: list[int] = field(default_factory=list)
    signal: SimpleQueue[None] = field(default_factory=SimpleQueue)

    def run(self, number: int) -> None:
        try:
            self.job(number)
        finally:
            self.finished.append(number)
            self.signal.put(None)


_Inbox = SimpleQueue[_ThreadJob | None]


class Workers:
    """A fixed number of threads that sleep between jobs.

    They start at the first job and end with :meth:`close`, or when the object is collected. They are daemons: an
    interpreter that exits does not wait for them. A process that is forked has none of them: its first job starts
    new ones.
    """

    def __init__(self, num: int) -> None:
        self.num = num
        self._inboxes: list[_Inbox] = []
        self._round: _ThreadJob | None = None
        self._process = os.getpid()
        weakref.finalize(self, _dismiss, self._inboxes)

    def begin(self, job: Callable[[int], None], threads: int | None = None) -> None:
        """Take on a job: so many threads are to call ``job`` with their numbers. :meth:`wait` sets them going."""
        # After a fork the inboxes are those of threads that exist in the parent alone.
        if self._process != os.getpid():
            self._inboxes.clear()
            self._process = os.getpid()
        if not self._inboxes:
            self._inboxes.extend(_hired(self.num))
        self._round = _ThreadJob(job, self.num if threads is None else threads)

    def wait(self, seconds: float | None = None) -> bool:
        """Do the job; return when all threads have, or when the time is over, and then False.

        May be interrupted at any point, and must then be called again, as it must where it gave False.
        """
        task = self._round
        if task is None:
            return True
        # What a signal cuts off may be done twice: a thread takes a round once, and the list decides, not the queue.
        for number in range(task.threads):
            if number not in task.started:
                self._inboxes[number].put(task)
        try:
            while len(task.finished) < task.threads:
                task.signal.get(timeout=seconds)
        except Empty:
            return False
        self._round = None
        return True

    def close(self) -> None:
        """End the threads; a later job starts new ones."""
        _dismiss(self._inboxes)


def _hired(num: int) -> list[_Inbox]:
    inboxes: list[_Inbox] = [SimpleQueue() for _ in range(num)]
    for number in range(num):
        threading.Thread(target=_serve, args=(number, inboxes[number]), name=f"abele-{number}", daemon=True).start()
    return inboxes


def _serve(number: int, inbox: _Inbox) -> None:
    """Body of a thread."""
    while (task := inbox.get()) is not None:
        if number not in task.started:
            task.started.add(number)
            task.run(number)
        del task


def _dismiss(inboxes: list[_Inbox]) -> None:
    while inboxes:
        inboxes.pop().put(None)
