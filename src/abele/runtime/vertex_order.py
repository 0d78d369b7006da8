"""The check for hidden dependence: vertices in an order drawn from a seed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from abele.codelet import CodeletDef, CompiledCodelet
from abele.llvm.flush import denormals_flushed
from abele.runtime.arena import address_of
from abele.runtime.groups import fields_overlap
from abele.runtime.interpreted import run_vertex
from abele.runtime.placed import PlacedGroup
from abele.runtime.traced import can_interpret

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

RunOne = Callable[[int], None]


class ShuffledVertices:
    """Runs the vertices of a compute set one by one, in a new order each time; workers of a MultiVertex as well.

    Args:
        seed: What the orders are drawn from.
        interpreted: Run all of them as plain Python. Multi-worker vertices in Python always are.
        compile: Gives the native code of a codelet.
    """

    def __init__(self, seed: int, interpreted: bool, compile: Callable[[CodeletDef], CompiledCodelet]) -> None:
        self._seed = seed
        self._interpreted = interpreted
        self._compile = compile
        self._native: dict[PlacedGroup, RunOne] = {}
        self.load()

    def load(self) -> None:
        """Begin again with the first order."""
        self._random = np.random.default_rng(self._seed)

    def __call__(self, groups: Sequence[PlacedGroup]) -> None:
        """Run all vertices of some groups, mixed."""
        owner = np.repeat(np.arange(len(groups)), [g.num for g in groups])
        number = np.concatenate([np.arange(g.num) for g in groups]) if len(owner) else owner
        order = self._random.permutation(len(owner))
        with denormals_flushed():
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
            self._native_run(placed)(vertex)

    def _native_run(self, placed: PlacedGroup) -> RunOne:
        if placed not in self._native:
            code = self._compile(placed.group.codelet)
            run = _RUN(code.run_aliasing if fields_overlap(placed.tables) else code.run)
            tables = np.array(placed.tables.addresses, dtype=np.int64)
            self._native[placed] = lambda vertex: run(vertex, vertex + 1, address_of(tables))
        return self._native[placed]
