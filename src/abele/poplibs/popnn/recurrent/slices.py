"""The step of a sequence that a counter names: read, or written. Every tile's share of it stays on the tile.

Source of the costs: machine reference §4.9 (DynamicSlice1D).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import TensorError
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.popops.generated import build
from abele.poplibs.poputil.order import StorageOrder, row_major_order, storage_order
from abele.poplibs.poputil.regions import count_up, flat_regions

Int64 = npt.NDArray[np.int64]

SUPERVISOR_CYCLES = 11 + 14
WORKER_SLOTS = 39
SUBSLICE_SLOTS = 24
VECTOR_SLOTS = 2
"""What the supervisor, a worker, a step of a worker and a vector of it take. Source: machine reference §4.9."""


def slice_step(
    graph: Graph, sequence: Tensor, index: Tensor, step: Tensor, prog: Sequence, name: str = "slice_step"
) -> None:
    """step ← sequence[index].

    Args:
        graph: Where vertices are made.
        sequence: [steps, ...].
        index: The step, u32 of one element.
        step: A tensor of the shape of one step; overwritten.
        prog: Sequence that the call is appended to.
        name: Name of the call.

    Raises:
        TensorError: The shapes do not fit each other.
    """
    _move(graph, "popops.dynamic_slice", sequence, index, step, prog, name, is_update=False)


def update_step(
    graph: Graph, sequence: Tensor, index: Tensor, step: Tensor, prog: Sequence, name: str = "update_step"
) -> None:
    """sequence[index] ← step; see :func:`slice_step`."""
    _move(graph, "popops.dynamic_update", sequence, index, step, prog, name, is_update=True)


def _move(
    graph: Graph,
    function: str,
    sequence: Tensor,
    index: Tensor,
    step: Tensor,
    prog: Sequence,
    name: str,
    *,
    is_update: bool,
) -> None:
    if sequence.shape[1:] != step.shape or sequence.dtype != step.dtype or index.size != 1:
        raise TensorError(f"{name}: {step!r} is no step of {sequence!r} at one index, {index!r}")
    shares = _shares(graph, sequence)
    operands = shares.regions(sequence, step)
    inputs = (step, index, sequence) if is_update else (sequence, index)
    outputs = (sequence,) if is_update else (step,)
    call = graph.library_call(prog, function, inputs=inputs, outputs=outputs, kernel=None, debug_name=name)
    with call as body:
        compute_set = graph.compute_set(name)
        whole, part = operands
        compute_set.vertices(
            step_codelet(step.dtype, is_update=is_update),
            tile=shares.tile,
            whole=whole,
            step=part,
            at=[index.reshape(())] * len(shares.tile),
            length=shares.inner,
            steps=sequence.shape[0],
        )
        body.add(Execute(compute_set))


@lru_cache(maxsize=64)
def step_codelet(dtype: ElementType, *, is_update: bool) -> type:
    """Moves step ``at`` between ``whole``, [cells, steps, length] flattened, and ``step``, [cells, length]."""
    ways = {False: ("Input", "Output"), True: ("InOut", "Input")}[is_update]
    fields = [
        f"whole: {ways[0]}[Vector[{dtype.name}]]",
        f"step: {ways[1]}[Vector[{dtype.name}]]",
        "at: Input[u32]",
        "length: i32",
        "steps: i32",
    ]
    element, place = "self.step[c * self.length + e]", "self.whole[(c * self.steps + i32(self.at)) * self.length + e]"
    move = f"{place} = {element}" if is_update else f"{element} = {place}"
    lines = [
        "cells = len(self.step) // self.length",
        "for n in range(worker_id, cells * self.length, 6):",
        "    c = n // self.length",
        "    e = n % self.length",
        f"    {move}",
    ]
    return build("UpdateStep" if is_update else "SliceStep", "MultiVertex", fields, lines, _cycles(dtype), extra=dtype)


def _cycles(dtype: ElementType) -> Any:
    def cycles(v: Any, ipu: Ipu) -> Int64:
        share = -(-np.asarray(v.step, np.int64) // ipu.num_workers)
        vectors = share // ipu.vector_width(dtype)
        slots = WORKER_SLOTS + SUBSLICE_SLOTS + VECTOR_SLOTS * vectors
        return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

    return cycles


@dataclass(frozen=True)
class _Shares:
    """What of a step each vertex moves.

    Attributes:
        order: Storage order of a step.
        whole_order: Storage order of the sequence.
        cell: Elements of a step that follow each other in the sequence.
        tile: Tile of each vertex, int32[n].
        begin: First element of each in the step's storage order, int64[n].
        size: Elements of each, int64[n].
        inner: Elements of each that follow each other within one step, int64[n].
    """

    order: StorageOrder
    whole_order: StorageOrder
    cell: int
    tile: npt.NDArray[np.int32]
    begin: Int64
    size: Int64
    inner: Int64

    def regions(self, sequence: Tensor, step: Tensor) -> tuple[Any, Any]:
        """What each vertex holds of the sequence, and of the step."""
        steps = sequence.shape[0]
        cells = self.size // self.inner
        is_whole = self.inner == self.cell
        vertex, number = count_up(np.where(is_whole, 1, steps * cells))
        begin, inner = self.begin[vertex], self.inner[vertex]
        first = np.where(
            is_whole[vertex], begin * steps, (begin // self.cell * steps + number) * self.cell + begin % self.cell
        )
        length = np.where(is_whole[vertex], self.size[vertex] * steps, inner)
        whole = self.whole_order.apply(sequence).flatten()
        part = self.order.apply(step).flatten()
        return (
            flat_regions(whole, first, length, vertex, len(self.size)),
            flat_regions(part, self.begin, self.size),
        )


def _shares(graph: Graph, sequence: Tensor) -> _Shares:
    steps = sequence.shape[0]
    whole = storage_order(sequence)
    if whole.of_dim.count(0) > 1:
        whole = row_major_order(sequence.shape)
    kept = [i for i, d in enumerate(whole.of_dim) if d != 0]
    renumbered = {old: new for new, old in enumerate(kept)}
    order = StorageOrder(
        sequence.shape[1:],
        tuple(whole.fine[i] for i in kept),
        tuple(whole.of_dim[i] - 1 for i in kept),
        tuple(renumbered[i] for i in whole.order if i in renumbered),
    )
    dims = list(whole.dims())
    cell = math.prod(whole.extents[dims.index(0) + 1 :]) if 0 in dims else math.prod(sequence.shape[1:])
    mapping = graph.mapping_of(order.apply(sequence[steps // 2]))
    begin, length, tile = _merged(mapping.begin, mapping.length, mapping.tile)
    is_whole = (begin % cell == 0) & (length % cell == 0)
    pieces = np.where(is_whole, 1, (begin + length - 1) // cell - begin // cell + 1)
    run, number = count_up(pieces)
    low = np.where(is_whole[run], begin[run], np.maximum(begin[run], (begin[run] // cell + number) * cell))
    end = (begin + length)[run]
    high = np.where(is_whole[run], end, np.minimum(end, (begin[run] // cell + number + 1) * cell))
    inner = np.where(is_whole[run], cell, high - low)
    return _Shares(order, whole, cell, tile[run], low, high - low, inner)


def _merged(begin: Int64, length: Int64, tile: Any) -> tuple[Int64, Int64, Any]:
    """Stretches that follow each other on one tile, joined."""
    is_first = np.ones(len(begin), bool)
    is_first[1:] = tile[1:] != tile[:-1]
    at = np.flatnonzero(is_first)
    return begin[at], np.add.reduceat(length, at), tile[at]
