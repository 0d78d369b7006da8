"""Prefetching: threads that fill the buffers of copies to come while the program runs.

A stream has a ring of buffers: free ones, one that is being filled, and ready ones in the order of copies. The program
takes the oldest ready buffer, or fetches itself where there is none, and gives a buffer back when it is used.

Why the data is right: at most one prefetch of a stream is under way (``_busy``), the program fetches only when there
is none, and buffers become ready in the order in which they were asked for; so the feed sees one caller at a time, and
copies get its data in order. Why nothing hangs: a task that no thread has begun is withdrawn by whoever needs the data
(``_asked``), so a program waits for no busy pool, unless the feed leaves all work to threads; and who waits for a
prefetch that has begun is woken by its end or by :meth:`Prefetcher.abandon`, which a stop and Ctrl-C call. Why nothing
leaks into the next run: a prefetch that outlives its run is *stale*. Its buffer goes back unused and the feed is told
to invalidate, once, also if other buffers of that run were dropped before (``_owed``), unless the feed keeps what it
gave. No lock is held while the user's code runs.

Example: of 3 buffers, the program reads copy 0 from one while threads fill the others for copies 1 and 2.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from abele.runtime.streams.feeds import Feed
from abele.runtime.streams.stream_callback import Buffer

Task = Callable[[], None]


class RunAbandonedError(Exception):
    """Run that waited for host data was told to stop; the engine ends it quietly."""


class PrefetchThreads:
    """Threads that fill buffers. They start when there is work, in each process anew, and end when the object is
    collected."""

    def __init__(self, num: int) -> None:
        self._num = num
        self._tasks: SimpleQueue[Task | None]
        self._threads: list[threading.Thread]
        self._start()

    def _start(self) -> None:
        self._tasks, self._threads = SimpleQueue(), []
        self._lock = threading.Lock()
        self._process = os.getpid()
        weakref.finalize(self, _dismiss, self._tasks, self._threads)

    def submit(self, task: Task) -> None:
        """Let a thread do a task."""
        # A forked process has none of the threads, and perhaps a lock that one of them held.
        if self._process != os.getpid():
            self._start()
        with self._lock:
            if len(self._threads) < self._num:
                thread = threading.Thread(target=_work, args=(self._tasks,), name="abele-prefetch", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._tasks.put(task)

    def close(self) -> None:
        """End the threads after their present tasks; later tasks start new ones."""
        with self._lock:
            _dismiss(self._tasks, self._threads)


def _work(tasks: SimpleQueue[Task | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task


def _dismiss(tasks: SimpleQueue[Task | None], threads: list[threading.Thread]) -> None:
    for _ in range(len(threads)):
        tasks.put(None)
    threads.clear()


class Prefetcher:
    """Keeps buffers of one stream filled ahead of the program.

    At most one prefetch is under way; the feed is never fetched from meanwhile. Buffers are used in order.

    Args:
        feed: Feed that fills them.
        buffers: Buffers to fill; as many as may be ahead.
        threads: Threads that fill them.
    """

    def __init__(self, feed: Feed, buffers: Sequence[Buffer], threads: PrefetchThreads) -> None:
        self._feed = feed
        self._threads = threads
        self._free = deque(buffers)
        self._ready: deque[Buffer] = deque()
        self._change = threading.Condition()
        self._asked = 0
        self._busy = False
        self._refused = False
        self._stale = False
        self._owed = False
        self._running = False
        self._abandoned = False
        self._error: BaseException | None = None

    def begin(self) -> None:
        """A run starts: look ahead from here on."""
        with self._change:
            self._running, self._abandoned, self._refused = True, False, False
        self.more()

    def more(self) -> None:
        """Let a buffer be filled if one is free and there may be data for it."""
        with self._change:
            wanted = self._running and not (self._busy or self._refused or self._error or self._asked)
            if not wanted or not self._free:
                return
            self._asked += 1
        self._threads.submit(self._fill)

    def take(self) -> Buffer | None:
        """The oldest buffer that is filled, or None when the data must be fetched; :meth:`give_back` returns it.

        Raises:
            RunAbandonedError: The run was stopped while a prefetch was under way.
        """
        if self._feed.keeps:
            # Where a thread may do all of the work, only a thread is ever stuck in it, and the run can be stopped.
            self.more()
        with self._change:
            if not self._feed.keeps and not self._busy:
                # A task that no thread has begun is not waited for.
                self._asked = 0
            self._change.wait_for(lambda: self._ready or self._abandoned or not (self._busy or self._asked))
            if self._ready:
                return self._ready.popleft()
            if self._busy or self._asked:
                raise RunAbandonedError
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            self._refused = False
            return None

    def give_back(self, buffer: Buffer) -> None:
        """A buffer may be filled again."""
        with self._change:
            self._free.append(buffer)

    def retry(self) -> None:
        """A copy was used: a feed that had no data may have some now."""
        with self._change:
            self._refused = False
        self.more()

    def abandon(self) -> None:
        """Wait for nothing in this run any more."""
        with self._change:
            self._abandoned = True
            self._change.notify_all()

    def end(self) -> BaseException | None:
        """End a run: drop remaining data unless the feed keeps it.

        Returns:
            What a prefetch raised whose data was never asked for.
        """
        with self._change:
            self._running, self._asked = False, 0
            if self._feed.keeps:
                return None
            self._change.wait_for(lambda: not self._busy or self._abandoned)
            self._stale = self._busy
            error, self._error = self._error, None
            dropped = self._drop()
            self._owed = dropped and self._stale
        if dropped and not self._owed:
            self._feed.invalidate()
        return error

    def _drop(self) -> bool:
        dropped = bool(self._ready)
        self._free.extend(self._ready)
        self._ready.clear()
        return dropped

    def discard(self) -> None:
        """End the connection: drop remaining data, whatever the feed."""
        with self._change:
            self._running, self._asked = False, 0
            self._stale = self._busy
            dropped = self._drop() and not self._feed.keeps
            self._owed = dropped and self._stale
        if dropped and not self._owed:
            self._feed.invalidate()

    def _fill(self) -> None:
        """Body of a task: one prefetch, in a thread."""
        with self._change:
            if not self._asked or self._busy or not self._free:
                return
            self._asked, self._busy = 0, True
            buffer = self._free.popleft()
        try:
            filled, error = self._feed.prefetch(buffer), None
        except BaseException as raised:
            filled, error = False, raised
        with self._change:
            dropped = self._stale and (filled or self._owed) and not self._feed.keeps
        if dropped:
            # The run that asked for this is over.
            self._feed.invalidate()
        with self._change:
            stale, self._busy, self._stale, self._owed = self._stale, False, False, False
            if filled and not dropped:
                self._ready.append(buffer)
            else:
                self._free.appendleft(buffer)
                self._refused = not stale
            self._error = error if self._feed.keeps or not stale else None
            self._change.notify_all()
        self.more()
