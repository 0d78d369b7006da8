"""Costs of packs of every depth: each program that differs compiled once, several at a time."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import track

from abele.errors import AbeleError
from abele.validation.packed.runs import UpdateCost, overhead, packed_run, padded_run, update_cost
from abele.validation.training.run import TrainingRun

SPELLINGS = (("once", "once"), ("layers", "layers"), ("listing", "layers"))
"""Ways of writing the masks of packs, each with that of the padded rows beside them. One row is soon
made: with a pass of its own to add it, padded rows take the same whichever way it is made.
"""


@dataclass(frozen=True)
class PackCosts:
    """Updates on packs and on padded rows.

    Attributes:
        depth: Of the packs whose masks were written in every way.
        packed: The update on packs of that depth by how masks are written.
        padded: That on padded rows which it is held against.
        deepest: The greatest depth.
        deep: The update on packs of it, with masks made once.
    """

    depth: int
    packed: dict[str, UpdateCost]
    padded: dict[str, UpdateCost]
    deepest: int
    deep: UpdateCost

    def overhead(self, depth: int, masks: str = "once") -> float:
        """Share of time that packs of a depth take more than padded rows: that of the nearest that was compiled."""
        is_deep = masks == "once" and abs(depth - self.deepest) < abs(depth - self.depth)
        return overhead(self.deep if is_deep else self.packed[masks], self.padded[masks])


class PackRuns:
    """Runs on padded rows and on packs, compiled beside the maker's further work.

    How deep packs are changes the head alone, by some masked tokens, and its IPU waits for those with more layers. So
    of all depths two are compiled: the one nearest to 3, and the greatest.

    Args:
        padded: The run on padded rows, whose masks are made once.
        factors: For each depth the sequences of a pack on average.
        jobs: Processes at a time, with about 2.5 GB each for BERT-Large.
    """

    def __init__(self, padded: TrainingRun, factors: dict[int, float], *, jobs: int = 1) -> None:
        self.depth = min(factors, key=lambda d: abs(d - 3))
        held = dict.fromkeys(other for _, other in SPELLINGS)
        runs = {f"padded {masks}": padded_run(padded, padded.system, masks) for masks in held}
        packed = {f"packed {m}": packed_run(padded, self.depth, factors[self.depth], m) for m, _ in SPELLINGS}
        self.deepest = max(factors)
        deep = {"deep": packed_run(padded, self.deepest, factors[self.deepest])}
        context = multiprocessing.get_context("spawn")
        # A process for each run: the memory of one is free for the next.
        self._pool = ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1)
        self._found = {name: self._pool.submit(_attempt, run) for name, run in (runs | packed | deep).items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel the compilations that have not begun."""
        self._pool.shutdown(cancel_futures=True)

    def costs(self, console: Console | None = None) -> PackCosts | str:
        """The costs, or the error of the first run that does not compile; ``console`` shows progress."""
        done = as_completed(self._found.values())
        if console is not None:
            done = iter(track(done, "BERT on packs", total=len(self._found), console=console))
        try:
            wrong = [made for future in done if isinstance(made := future.result(), str)]
        except BrokenProcessPool:
            return (
                "BERT on packs: a process that compiled was ended from outside, maybe for want of memory; fewer --jobs"
            )
        if wrong:
            return wrong[0]
        found = {name: made for name, future in self._found.items() if isinstance(made := future.result(), UpdateCost)}
        return PackCosts(
            depth=self.depth,
            packed={masks: found[f"packed {masks}"] for masks, _ in SPELLINGS},
            padded={masks: found[f"padded {other}"] for masks, other in SPELLINGS},
            deepest=self.deepest,
            deep=found["deep"],
        )


def _attempt(run: TrainingRun) -> UpdateCost | str:
    try:
        return update_cost(run)
    except AbeleError as error:
        return f"{run.name} on {run.system}: {type(error).__name__}: {error.message}"
