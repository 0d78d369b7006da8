"""The check for hidden dependence: vertices in an order drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.runtime.direct import NativeVertices
from abele.runtime.interpreted import can_interpret, run_vertex
from abele.runtime.placed import PlacedGroup


class ShuffledVertices:
    """Runs the vertices of a compute set one by one, in a new order each time; workers of a MultiVertex as well.

    Args:
        seed: What the orders are drawn from.
        interpreted: Run all of them as plain Python. Multi-worker vertices in Python always are.
        native: Runs those that are not.
    """

    def __init__(self, seed: int, interpreted: bool, native: NativeVertices) -> None:
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
        python = can_interpret(placed.group)
        if python and placed.group.codelet.kind == "multi":
            workers = int(placed.group.codelet.attributes["num_workers"])
            for worker in self._random.permutation(workers).tolist():
                run_vertex(placed, vertex, worker)
        elif python and self._interpreted:
            run_vertex(placed, vertex)
        else:
            self._native.run(placed, vertex, vertex + 1)
