"""Entries in processes of their own, so that a crash or a hang is a row and not an end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import torch

from operators.running import Limits, Row, run_entry
from operators.samples import DTYPES, Entry

_GRACE = 10
"""Multiple of a case's own limit, in processor time, after which its process is ended by the clock."""


@dataclass
class _Worker:
    """A process, our end of its pipe, and what it is doing."""

    process: Any
    pipe: connection.Connection
    task: int | None = None
    label: str = ""
    since: float = 0.0


def run_all(tasks: Sequence[tuple[Entry, str]], limits: Limits, jobs: int) -> Iterator[Row]:
    """Rows of all (entry, type) pairs, as they are done.

    Processes are forked from this one, which has computed nothing yet: a fork costs milliseconds, importing seconds.
    """
    waiting = list(range(len(tasks)))[::-1]
    workers = [_start(tasks, limits) for _ in range(min(jobs, len(tasks)))]
    try:
        while True:
            for worker in workers:
                if worker.task is None and waiting:
                    worker.task, worker.since = waiting.pop(), time.monotonic()
                    worker.pipe.send(worker.task)
            busy = [w for w in workers if w.task is not None]
            if not busy:
                return
            ready = connection.wait([w.pipe for w in busy], timeout=1.0)
            for place, worker in enumerate(workers):
                if worker.task is None:
                    continue
                lost = ""
                if worker.pipe in ready:
                    try:
                        kind, content = worker.pipe.recv()
                    except (EOFError, ConnectionError):
                        worker.process.join()
                        lost = f"the process ended with {_ending(worker.process.exitcode)}"
                    else:
                        worker.since = time.monotonic()
                        if kind == "row":
                            worker.task = None
                            yield content
                        else:
                            worker.label = content
                elif time.monotonic() - worker.since > _GRACE * limits.seconds * (
                    4 if worker.label == "samples" else 1
                ):
                    os.kill(worker.process.pid, signal.SIGKILL)
                    worker.process.join()
                    lost = "hangs where Python does not hear of it"
                if lost:
                    entry, dtype = tasks[worker.task]
                    reason = f"{worker.label}: {lost}"
                    yield Row(entry.name, dtype, entry.kind, "fail", reason, failures=[reason])
                    workers[place] = _start(tasks, limits)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _ending(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"status {code}"


def _start(tasks: Sequence[tuple[Entry, str]], limits: Limits) -> _Worker:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, tasks, limits), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(pipe: connection.Connection, tasks: Sequence[tuple[Entry, str]], limits: Limits) -> None:
    torch.set_num_threads(1)
    # PyTorch writes whole graphs to stderr when an export fails.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        entry, dtype = tasks[pipe.recv()]
        row = run_entry(entry, DTYPES[dtype], dtype, limits, lambda label: pipe.send(("begin", label)))
        pipe.send(("row", row))
