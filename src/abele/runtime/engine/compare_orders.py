"""Comparing orders: one program run from one state with vertices in several orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import ApplicationRuntimeError, EngineError
from abele.graph import Stream, Variable
from abele.runtime.checks.checking import Checks
from abele.runtime.image import Image

if TYPE_CHECKING:
    from abele.runtime.engine.engine import Engine

Arrays = dict[Stream, npt.NDArray[Any]]


class _Twin:
    """An engine of the same executable, in the state of another, with copies of the arrays of its streams."""

    def __init__(self, engine: Engine, image: Image, arrays: Arrays, checks: Checks | None) -> None:
        self.engine = type(engine)(engine.executable, mode="tiles", threads=engine.threads, checks=checks)
        self.image = self.engine.deployment.image
        self.arrays = {stream: array.copy() for stream, array in arrays.items()}
        for variable in engine.graph.variables:
            self.image.arena.images(variable)[...] = image.arena.images(variable)
        states = {(p.compute_set, p.position): p.tables.state for p in image.supersteps.placed}
        for placed in self.image.supersteps.placed:
            known = states.get((placed.compute_set, placed.position), [])
            for (mine, _), (theirs, _) in zip(placed.tables.state, known, strict=False):
                mine[...] = theirs
        for stream, copy in self.arrays.items():
            self.engine.connect(stream, copy)

    def run(self, program: int | str) -> None:
        """Run a program and end the threads."""
        with self.engine:
            self.engine.run(program)


def compare_orders(
    engine: Engine, image: Image, streams: Sequence[Stream], arrays: Arrays, program: int | str, seeds: Iterable[int]
) -> None:
    """Run a program in the usual order and in drawn ones, each time from the engine's present state.

    Raises:
        ApplicationRuntimeError: A result depends on the order.
        EngineError: A stream is connected to something other than an array.
    """
    for stream in streams:
        if stream not in arrays:
            raise EngineError(
                f"orders cannot be compared: {stream!r} is not connected to an array",
                at=stream.debug.location,
                because="each order must be given the same data",
                remedy=f"engine.connect({stream.name!r}, array)",
            )
    used = {stream: arrays[stream] for stream in streams}
    usual = _Twin(engine, image, used, None)
    usual.run(program)
    for seed in seeds:
        other = _Twin(engine, image, used, Checks(vertex_order=seed))
        other.run(program)
        _compare(usual, other, engine.graph.variables, seed)


def _compare(usual: _Twin, other: _Twin, variables: Iterable[Variable], seed: int) -> None:
    for variable in variables:
        pair = [t.image.arena.images(variable) for t in (usual, other)]
        place = _first_difference(*pair)
        if place is not None:
            index = ", ".join(map(str, place[1:]))
            what = f"element [{index}] of variable {variable.name!r}"
            raise _error(what, variable.debug.location, pair, place, seed)
    for stream, array in usual.arrays.items():
        pair = [array, other.arrays[stream]]
        place = _first_difference(*pair)
        if place is not None:
            what = f"element {list(place)} of what {stream!r} receives"
            raise _error(what, stream.debug.location, pair, place, seed)


def _first_difference(usual: npt.NDArray[Any], other: npt.NDArray[Any]) -> tuple[int, ...] | None:
    bits = f"u{usual.dtype.itemsize}"
    different = np.ascontiguousarray(usual).view(bits) != np.ascontiguousarray(other).view(bits)
    if not different.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(different)), different.shape))


def _error(
    what: str, at: str, pair: Sequence[npt.NDArray[Any]], place: tuple[int, ...], seed: int
) -> ApplicationRuntimeError:
    usual, other = (array[place] for array in pair)
    return ApplicationRuntimeError(
        f"the order of vertices decides {what}: {usual} in the usual order, {other} in that of seed {seed}",
        at=at,
        because="vertices of a compute set, or workers of a MultiVertex, may run in any order",
        remedy=f"Engine(…, checks=Checks(vertex_order={seed})) runs in this order",
    )
