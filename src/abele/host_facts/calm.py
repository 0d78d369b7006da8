"""Rates beside a loop of multiply-adds, as measured on a machine that is calm.

A clock that changes, or another process on the same core, changes a time by as much as it likes. So a run and a loop of
multiply-adds in registers are timed in turns, and the rate of the run is given as a share of the loop's: what slows
both cancels out, and shares measured at different times compare. A run counts if the loops just before and after it
were as fast as any; the least of such times counts, by processor time. Interrupts take tens of microseconds, so a loop
is short, and the best of a few stands for the moment. On a busy machine there are more turns until enough count.

Example: a product takes 210 µs, and as many multiply-adds in registers 105 µs: its share is 0.5, at any clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from abele.host_facts.rates import arithmetic_loop

MOST_SWING = 0.15
"""The loop may take so much longer before and after a run that counts than it does at best."""
ENOUGH, ENOUGH_SECONDS = 3, 1.5e-3
"""Number of runs that have to count, and their least time together."""
MOST_RUNS, TRIES = 40, 3
"""Runs until enough count, and times that all is measured: a clock that fell for good lets no later run count."""
_TURNS, _LOOPS = 1 << 13, 4
"""Of a loop, some 15 to 30 µs; and loops at a time."""
_SAMPLE_SECONDS = 1.5e-4
"""Least time of a run; calling it and reading the clock take one or two, which are taken off."""


class UnsettledError(RuntimeError):
    """The machine's rate of arithmetic swings, so that nothing can be measured beside it."""


def share_of_arithmetic(run: Callable[[int], None], operations: float) -> float:
    """Rate of ``run``, as a share of the rate of this machine's multiply-adds in registers.

    Args:
        run: Runs so many times what is measured.
        operations: Of one time; a multiply-add counts two.

    Raises:
        UnsettledError: The machine does not come to rest.
    """
    loop, times = arithmetic_loop(), 1
    run(1)
    around = min(seconds(loop.run, 1) for _ in range(2 * _LOOPS))

    def loop_seconds() -> float:
        return max(1e-9, min(seconds(loop.run, _TURNS) for _ in range(_LOOPS)) - around)

    for _ in range(TRIES):
        loops: list[float] = [loop_seconds()]
        runs: list[float] = []
        while len(runs) < MOST_RUNS:
            taken = seconds(run, times) - around
            if taken < _SAMPLE_SECONDS:
                times, runs, loops = 2 * times, [], [loop_seconds()]
                continue
            runs.append(taken)
            loops.append(loop_seconds())
            most = (1 + MOST_SWING) * min(loops)
            counting = [taken for n, taken in enumerate(runs) if max(loops[n : n + 2]) <= most]
            if len(counting) >= ENOUGH and sum(counting) >= ENOUGH_SECONDS:
                return (times * operations / min(counting)) / (_TURNS * loop.operations / min(loops))
    raise UnsettledError(f"the rate of multiply-adds swings by more than {MOST_SWING:.0%}")


def seconds(run: Callable[[int], None], times: int) -> float:
    """Processor time of the calling thread for ``run(times)``."""
    start = time.thread_time()
    run(times)
    return max(time.thread_time() - start, 1e-9)
