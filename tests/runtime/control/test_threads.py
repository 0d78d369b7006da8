"""Host threads in forked processes."""

from __future__ import annotations

import multiprocessing
import sys
import threading

import pytest

from abele.runtime.control.threads import Workers
from abele.runtime.streams.prefetch import PrefetchThreads


def _all_run(workers: Workers) -> bool:
    seen: list[int] = []
    workers.begin(seen.append)
    workers.wait()
    return sorted(seen) == list(range(workers.num))


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_threads__in_a_forked_process__start_anew() -> None:
    workers, prefetch, done = Workers(2), PrefetchThreads(1), threading.Event()
    prefetch.submit(done.set)
    assert _all_run(workers)
    assert done.wait(30)

    def child() -> None:
        fetched = threading.Event()
        prefetch.submit(fetched.set)
        sender.send(_all_run(workers) and fetched.wait(10))

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child)
    process.start()
    arrived = receiver.poll(30)
    process.kill()
    process.join()
    assert arrived
    assert receiver.recv()
    assert _all_run(workers)
    workers.close()
