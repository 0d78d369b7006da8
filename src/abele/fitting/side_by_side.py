"""Tasks side by side: each is done by a process of its own, a fork of this one, as far as there are cores.

Compiling is Python, which one process has on one core alone. A fork has the networks already, so nothing but results
goes between processes.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any, TypeVar

from abele.errors import AbeleError
from abele.fitting.heap import keep_freed_memory
from abele.llvm.host import num_threads

T = TypeVar("T")

_LIMIT = 8
"""The most processes; each needs about 1 GB for a part of a large model."""

_tasks: Sequence[Callable[[], Any]] = ()
"""Tasks of this process and of its forks."""


def side_by_side(tasks: Sequence[Callable[[], T]], done: Callable[[int], None]) -> list[T]:
    """Results of tasks, in their order.

    Args:
        tasks: They depend on nothing that another one changes.
        done: Called with the number of tasks that are done.

    Raises:
        AbeleError: As of the first task that fails.
    """
    found = _forked(tasks, done)
    # What failed in a fork fails here, with the error as it was raised.
    for number, task in enumerate(tasks):
        if number not in found:
            done(len(found))
            found[number] = task()
    return [found[number] for number in range(len(tasks))]


def _forked(tasks: Sequence[Callable[[], T]], done: Callable[[int], None]) -> dict[int, T]:
    """Results by number of those tasks that forks could do."""
    global _tasks
    workers = min(len(tasks), num_threads(), _LIMIT)
    found: dict[int, T] = {}
    if workers < 2 or "fork" not in multiprocessing.get_all_start_methods() or multiprocessing.current_process().daemon:
        return found
    _tasks, context = tasks, multiprocessing.get_context("fork")
    try:
        # A process that is killed, for memory, breaks the pool.
        with ProcessPoolExecutor(workers, context, _begin) as pool, suppress(BrokenProcessPool):
            numbers = {pool.submit(_done, number): number for number in range(len(tasks))}
            for future in as_completed(numbers):
                fits, result = future.result()
                if fits:
                    found[numbers[future]] = result
                    done(len(found))
    finally:
        _tasks = ()
    return found


def _begin() -> None:
    """Begin a fork, which leaves the garbage of this process alone.

    A session that nobody has any more brings its weights to the host when it is collected. In a fork there are none of
    the threads that it would wait for.
    """
    gc.freeze()
    keep_freed_memory()


def _done(number: int) -> tuple[bool, Any]:
    try:
        return True, _tasks[number]()
    except AbeleError:
        return False, None
