"""The best k of each row as a host finds them: one pass over the row with a heap of the best so far.

On the machine a row is spread over tiles, which merge sorted blocks without looking at the data. A host has the row in
one memory and may branch on it. The heap holds the best k seen, the worst of them on top; most elements of a long row
are no better than that one and cost a comparison each, and one that is better takes its place and sinks. In the end the
heap is emptied from the top, which leaves the records in order. That is n + k·log k·log(n / k) steps for random rows,
where sorting the row takes n·log n. Where k is a large part of n, rows are sorted.

Of equal keys the one that comes first is better, whether or not the call asks for it: the order is total, so what is
found depends on nothing else.

Example: of 1,000,000 keys in random order, about 10 · ln(100,000) = 115 sink into a heap of the best 10.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, i64, u32
from abele.poplibs.poputil.host_body import host_rows

WHOLE = 4
"""Inverse of the share of a row from which on the row is sorted: a heap of 250 of 1,000 records takes as long."""
RUN = 16
"""Records that are put in order by ranks before they are merged: comparisons of one with all fill two vectors."""


@macro
def _is_before(one, other, largest_first):
    """True if a key stands before another, not beside it. NaN counts as the largest."""
    return not (one <= other or other != other) if largest_first else not (one >= other or one != one)


@macro
def _is_beside(one, other):
    """True if keys are equal, or both no numbers."""
    return one == other or (one != one and other != other)


@macro
def _comes_later(self, at, key, place, larger_later):
    """True if the record ``at`` a place of the heap comes after that of ``key`` and ``place``."""
    other = self.best[at]
    return _is_before(other, key, larger_later) or (_is_beside(other, key) and self.places[at] > place)


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


@macro
def _merge(keys, places, best, found, width, largest_first):
    """Neighbouring runs of ``width`` records of one pair of rows as runs of twice as many in the other.

    Two whole runs are merged from both ends: as many steps as one of them is long take the better half from the front
    and the other half from the back. Neither side can leave its runs, and neither waits for the other.
    """
    n = i64(len(keys))
    start = i64(0)
    while start < n:
        middle = min(start + width, n)
        end = min(start + 2 * width, n)
        low = start
        high = middle
        if end - start == 2 * width:
            low_back = middle - 1
            high_back = end - 1
            for step in range(width):
                one = keys[low]
                other = keys[high]
                later = _is_before(other, one, largest_first)
                taken = high if later else low
                best[start + step] = keys[taken]
                found[start + step] = places[taken]
                one_back = keys[low_back]
                other_back = keys[high_back]
                former = _is_before(other_back, one_back, largest_first)
                taken_back = low_back if former else high_back
                best[end - 1 - step] = keys[taken_back]
                found[end - 1 - step] = places[taken_back]
                ahead = i64(1) if later else i64(0)
                high = high + ahead
                low = low + (1 - ahead)
                back = i64(1) if former else i64(0)
                low_back = low_back - back
                high_back = high_back - (1 - back)
        else:
            at = start
            while low < middle and high < end:
                one = keys[low]
                other = keys[high]
                later = _is_before(other, one, largest_first)
                best[at] = other if later else one
                found[at] = places[high] if later else places[low]
                step = i64(1) if later else i64(0)
                high = high + step
                low = low + (1 - step)
                at = at + 1
            for i in range(low, middle):
                best[at + i - low] = keys[i]
                found[at + i - low] = places[i]
            at = at + middle - low
            for i in range(high, end):
                best[at + i - high] = keys[i]
                found[at + i - high] = places[i]
        start = end


@macro
def _rank(keys, best, places, begin, largest_first):
    """Put ``RUN`` records from ``begin`` in order: the place of each is the number of those that stand before it."""
    for i in range(RUN):
        key = keys[begin + i]
        rank = i64(0)
        for j in range(RUN):
            other = keys[begin + j]
            first = _is_before(other, key, largest_first) or (_is_beside(other, key) and j < i)
            rank = rank + (i64(1) if first else i64(0))
        best[begin + rank] = key
        places[begin + rank] = u32(begin + i)


@macro
def _insert(keys, best, places, begin, end, largest_first):
    """Put records ``begin`` to ``end``, fewer than :data:`RUN`, in order by insertion."""
    for i in range(begin, end):
        key = keys[i]
        hole = i64(i)
        sinking = hole > begin
        while sinking:
            before = best[hole - 1]
            if _is_before(key, before, largest_first):
                best[hole] = before
                places[hole] = places[hole - 1]
                hole = hole - 1
                sinking = hole > begin
            else:
                sinking = False
        best[hole] = key
        places[hole] = u32(i)


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
                if _is_before(key, self.best[0], largest):
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
def sort_codelet(dtype: ElementType, *, largest_first: bool) -> type:
    """``best`` and ``places``: a row's ``keys`` in order and where they were. Equal keys keep their order.

    Runs of :data:`RUN` by ranks, then merges of neighbouring runs, from one pair of rows to the other. A merge takes an
    element of the later run only where it is strictly better, which keeps equal keys in their order; what it takes is a
    choice of values, so that the processor has no branch to guess. There are ⌈log2(n / RUN)⌉ rounds; where these are
    odd, the runs are made in the spare rows.
    """

    @codelet(name="HostSort")
    class HostSort(Vertex):
        keys: Input[Vector[dtype]]
        best: InOut[Vector[dtype]]
        places: InOut[Vector[u32]]
        spare_best: InOut[Vector[dtype]]
        spare_places: InOut[Vector[u32]]

        def compute(self):
            n = i64(len(self.keys))
            rounds = i64(0)
            width = i64(RUN)
            while width < n:
                rounds = rounds + 1
                width = width * 2
            in_spare = rounds % 2 == 1
            begin = i64(0)
            while begin < n:
                end = min(begin + RUN, n)
                whole = end - begin == RUN
                if whole and in_spare:
                    _rank(self.keys, self.spare_best, self.spare_places, begin, largest_first)
                elif whole:
                    _rank(self.keys, self.best, self.places, begin, largest_first)
                elif in_spare:
                    _insert(self.keys, self.spare_best, self.spare_places, begin, end, largest_first)
                else:
                    _insert(self.keys, self.best, self.places, begin, end, largest_first)
                begin = end
            width = i64(RUN)
            while width < n:
                if in_spare:
                    _merge(self.spare_best, self.spare_places, self.best, self.places, width, largest_first)
                else:
                    _merge(self.best, self.places, self.spare_best, self.spare_places, width, largest_first)
                in_spare = not in_spare
                width = width * 2

    return HostSort


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
        graph: Graph in which vertices are made.
        keys: [..., n].
        values: Values that go with the keys, each [..., n].
        outs: Keys, places (u32) and values that are found, each [..., k].
        largest: True if larger keys are better.
        is_reversed: True if the best comes last; equal keys stay in their order.
        name: Of the compute sets.
    """
    best, places, *picked = outs
    if WHOLE * best.shape[-1] >= keys.shape[-1] and not is_reversed:
        return _first_of_sorted(graph, keys, values, outs, largest=largest, name=name)
    finder = top_k_codelet(keys.dtype, largest=largest, is_reversed=is_reversed)
    steps = host_rows(graph, name, finder, keys=keys, best=best, places=places)
    _pick(graph, steps, values, places, picked, name)
    return steps


def _first_of_sorted(
    graph: Graph, keys: Tensor, values: list[Tensor], outs: list[Tensor], *, largest: bool, name: str
) -> Sequence:
    """The steps of a top-k by sorting: rows in order, of which the first records are copied."""
    best, places, *picked = outs
    rows = keys.reshape((-1, keys.shape[-1]))
    found = [graph.variable(t, rows.shape, name=f"{name}/sorted", map="linear") for t in (keys.dtype, u32)]
    steps = host_sort(graph, rows, *found, largest_first=largest, name=name)
    for whole, out in zip(found, (best, places), strict=True):
        steps.add(Copy(whole[:, : out.shape[-1]].reshape(out.shape), out))
    _pick(graph, steps, values, places, picked, name)
    return steps


def host_sort(
    graph: Graph,
    keys: Tensor,
    best: Tensor,
    places: Tensor,
    values: Iterable[Tensor] = (),
    outs: Iterable[Tensor] = (),
    *,
    largest_first: bool,
    name: str,
) -> Sequence:
    """The steps of a sort of rows on the host.

    Args:
        graph: Graph in which vertices are made.
        keys: [rows, n].
        best: The keys in order.
        places: The places (u32) that they had.
        values: Values that go with the keys, each [rows, n].
        outs: The values in the order of their keys.
        largest_first: True for descending order.
        name: Of the compute sets.
    """
    spare = [graph.map_linear(graph.variable(t.dtype, t.shape, name=f"{name}/spare")) for t in (best, places)]
    codelet = sort_codelet(keys.dtype, largest_first=largest_first)
    steps = host_rows(
        graph, name, codelet, keys=keys, best=best, places=places, spare_best=spare[0], spare_places=spare[1]
    )
    _pick(graph, steps, values, places, outs, name)
    return steps


def _pick(
    graph: Graph, steps: Sequence, values: Iterable[Tensor], places: Tensor, outs: Iterable[Tensor], name: str
) -> None:
    """Append the steps that put values into the order of ``places``."""
    for given, out in zip(values, outs, strict=True):
        picker = pick_codelet(given.dtype)
        steps.add(host_rows(graph, f"{name}/values", picker, values=given, places=places, out=out))
