"""The best k of each row as a host finds them: one pass over the row with a heap of the best so far.

On the machine a row is spread over tiles, which merge sorted blocks without looking at the data. A host has the row in
one memory and may branch on it. The heap holds the best k seen, the worst of them on top; most elements of a long row
are no better than that one and cost a comparison each, and one that is better takes its place and sinks. In the end the
heap is emptied from the top, which leaves the records in order. That is n + k·log k·log(n / k) steps for random rows,
where sorting the row takes n·log n.

Of equal keys the one that comes first is better, whether or not the call asks for it: the order is total, so what is
found depends on nothing else.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

import numpy as np

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, i64, u32


@macro
def _comes_later(self, at, key, place, larger_later):
    """True if the record ``at`` a place of the heap comes after that of ``key`` and ``place``."""
    other = self.best[at]
    by_key = other > key if larger_later else other < key
    return by_key or (other == key and self.places[at] > place)


@macro
def _sink(self, start, size, larger_later):
    """Let the record at ``start`` of a heap of ``size`` records sink below all that come later."""
    key = self.best[start]
    place = self.places[start]
    hole = i64(start)
    child = 2 * hole + 1
    sinking = child < size
    while sinking:
        # Where there is no right child, the left one is compared with itself, after which it does not come.
        right = min(child + 1, size - 1)
        if _comes_later(self, right, self.best[child], self.places[child], larger_later):
            child = right
        if _comes_later(self, child, key, place, larger_later):
            self.best[hole] = self.best[child]
            self.places[hole] = self.places[child]
            hole = child
            child = 2 * hole + 1
            sinking = child < size
        else:
            sinking = False
    self.best[hole] = key
    self.places[hole] = place


@cache
def top_k_codelet(dtype: ElementType, *, largest: bool, is_reversed: bool) -> type:
    """The best ``len(best)`` of a row of ``keys`` and their ``places``; best first, or reversed."""

    @codelet(name="HostTopK")
    class HostTopK(Vertex):
        keys: Input[Vector[dtype]]
        best: InOut[Vector[dtype]]
        places: InOut[Vector[u32]]

        def compute(self):
            k = i64(len(self.best))
            for i in range(k):
                self.best[i] = self.keys[i]
                self.places[i] = u32(i)
            for i in range(k // 2):
                _sink(self, k // 2 - 1 - i, k, not largest)
            for i in range(k, len(self.keys)):
                key = self.keys[i]
                if key > self.best[0] if largest else key < self.best[0]:
                    self.best[0] = key
                    self.places[0] = u32(i)
                    _sink(self, 0, k, not largest)
            # Another order of what was found needs another heap.
            if is_reversed:
                for i in range(k // 2):
                    _sink(self, k // 2 - 1 - i, k, largest)
            for i in range(k - 1):
                last = k - 1 - i
                key = self.best[last]
                place = self.places[last]
                self.best[last] = self.best[0]
                self.places[last] = self.places[0]
                self.best[0] = key
                self.places[0] = place
                _sink(self, 0, last, largest if is_reversed else not largest)

    return HostTopK


@cache
def pick_codelet(dtype: ElementType) -> type:
    """Elements of a row of ``values`` by their places."""

    @codelet(name="HostPick")
    class HostPick(Vertex):
        values: Input[Vector[dtype]]
        places: Input[Vector[u32]]
        out: Output[Vector[dtype]]

        def compute(self):
            for i in range(len(self.places)):
                self.out[i] = self.values[self.places[i]]

    return HostPick


def host_top_k(
    graph: Graph, keys: Tensor, values: list[Tensor], outs: list[Tensor], *, largest: bool, is_reversed: bool, name: str
) -> Sequence:
    """The steps of a top-k on the host.

    Args:
        graph: Where vertices are made.
        keys: [..., n].
        values: What goes with the keys, each [..., n].
        outs: Keys, places (u32) and values that are found, each [..., k].
        largest: True if larger keys are better.
        is_reversed: True if the best comes last; equal keys stay in their order.
        name: Of the compute sets.
    """
    steps = Sequence()
    best, places, *picked = outs
    finder = top_k_codelet(keys.dtype, largest=largest, is_reversed=is_reversed)
    steps.add(_rows(graph, f"{name}/host", finder, keys=keys, best=best, places=places))
    for given, out in zip(values, picked, strict=True):
        picker = pick_codelet(given.dtype)
        steps.add(_rows(graph, f"{name}/host_values", picker, values=given, places=places, out=out))
    return steps


def _rows(graph: Graph, name: str, codelet_class: type, **fields: Tensor) -> Execute:
    """One vertex per row; they cost nothing."""
    step = graph.compute_set(name)
    rows = {field: tensor.reshape((-1, tensor.shape[-1])) for field, tensor in fields.items()}
    num = len(next(iter(rows.values())))
    step.vertices(codelet_class, tile=np.zeros(num, np.int32), cycles=np.zeros(num, np.int64), **rows)
    return Execute(step)
