"""The check for hidden dependence: vertices in an order drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.runtime.checks.every_access import BoundedVertices
from abele.runtime.supersteps.direct_calls import NativeVertices
from abele.runtime.supersteps.interpreted import can_interpret, run_vertex
from abele.runtime.supersteps.placed_groups import PlacedGroup


class ShuffledVertices:
    """Runs the vertices of a compute set one by one, in a new order each time; workers of a MultiVertex as well.

    Args:
        seed: Seed of the orders.
        interpreted: Run all of them as plain Python. Multi-worker vertices in Python always are.
        native: Runs those that are not.
        bounded: Runs those in C++ where accesses are checked.
    """

    def __init__(self, seed: int, interpreted: bool, native: NativeVertices, bounded: BoundedVertices) -> None:
        self._bounded = bounded
        self._seed = seed
        self._interpreted = interpreted
        self._native = native
        self.load()

    def load(self) -> None:
        """Begin again with the first order."""
        self._random = np.random.default_rng(self._seed)

    def __call__(self, groups: Sequence[PlacedGroup]) -> None:
        """Run all vertices of some groups, mixed."""
        owner = np.repeat(np.arange(len(groups)), [g.num for g in groups])
        number = np.concatenate([np.arange(g.num) for g in groups]) if len(owner) else owner
        order = self._random.permutation(len(owner))
        for which, vertex in zip(owner[order].tolist(), number[order].tolist(), strict=True):
            self._run_one(groups[which], vertex)

    def _run_one(self, placed: PlacedGroup, vertex: int) -> None:
        codelet = placed.group.codelet
        workers: Sequence[int | None] = (None,)
        if codelet.kind == "multi" and codelet.language != "stored":
            workers = self._random.permutation(int(codelet.attributes["num_workers"])).tolist()
        for worker in workers:
            if can_interpret(placed.group) and (self._interpreted or worker is not None):
                run_vertex(placed, vertex, worker)
            elif self._interpreted:
                self._bounded.run_native(placed, vertex, vertex + 1, worker)
            else:
                self._native.run(placed, vertex, vertex + 1, worker)
