"""Overlays: results in the places of operands that die.

A vertex that works element by element reads element i of its operand before it writes element i of its result. Where
both lie alike on every tile and the operand dies there, the result needs no memory of its own. Poplar's libraries have
such functions twice, and its frameworks choose the one in place where nobody else wants the operand. Here programs keep
what they say, and the host runs them as they are: an overlay is a choice of addresses, made when lifetimes are known.

Which pairs may overlay is found where a compute set is analysed, from how its fields are wired. Which of them do is
decided here: those whose lifetimes meet in that step, while no other lifetimes of the two, or of what has their place
already, are on at once. Large ones come first. That is coalescing of variables, as register allocators do it (Chaitin,
1982), over intervals of steps.

>>> import numpy as np
>>> places = _Places(np.array([0, 1, 2]), np.array([0, 4]), np.array([5, 9]))
>>> places.join(0, 1, [4]), places.of(1), places.end.tolist()
(True, 0, [4, 9])
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from abele.arrays import Int64
from abele.compiler.access import Access
from abele.compiler.layout import Layout
from abele.compiler.liveness import Liveness
from abele.compiler.region_tiles import Residence
from abele.compiler.uses import FieldUse
from abele.graph.intervals import distinct

_NO_PAIRS = np.empty((0, 2), dtype=np.int64)


# Pairs that may overlay, by the wiring of one compute set.


def overlays_of(uses: Sequence[FieldUse], known: Mapping[int, Residence], access: Access, layout: Layout) -> Int64:
    """Variables that a compute set reads, each with a result for its place, int64[n, 2].

    Args:
        uses: Field uses of the compute set.
        known: Residences of their regions, by identity.
        access: Variables that it touches.
        layout: Tile and address of the graph's elements.

    Model: both have the same share of every tile, and every vertex that touches them has an element of the one and that
    of the other at the same place of its own tile's share, in fields that its codelet lets overlay. Whatever else reads
    the operand in the step, or a vertex on another tile, rules it out.
    """
    if not any(use.group.codelet.overlays for use in uses):
        return _NO_PAIRS
    single = {id(use): _single(use, layout) for use in uses}
    complete = set(access.complete.tolist())
    found: dict[int, set[int]] = {}
    readers: dict[int, int] = {}
    paired: dict[tuple[int, int], int] = {}
    by_field = {(id(use.group), use.field.name): use for use in uses}
    for use in uses:
        variable = single[id(use)]
        if use.reads:
            for each in _variables(use, layout) if variable is None else (variable,):
                readers[each] = readers.get(each, 0) + 1
        if not use.writes:
            continue
        if variable is None or variable not in complete or use.reads:
            # What several fields write has a partner only where all of them agree.
            for each in _variables(use, layout) if variable is None else (variable,):
                found[each] = set()
            continue
        partners = set[int]()
        for out, name in use.group.codelet.overlays:
            operand = by_field[id(use.group), name]
            other = single[id(operand)]
            if out == use.field.name and other is not None and _lie_alike(use, operand, variable, other, known, layout):
                partners.add(other)
                paired[other, variable] = paired.get((other, variable), 0) + 1
        found[variable] = found.get(variable, partners) & partners
    written = set(access.writes.tolist())
    pairs = [
        (other, variable)
        for variable, partners in found.items()
        for other in sorted(partners)
        if other not in written and readers.get(other) == paired[other, variable]
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _single(use: FieldUse, layout: Layout) -> int | None:
    """The only variable that a field is wired to."""
    regions = use.edge.regions
    if len(regions.begin) == 0:
        return None
    ends = np.array([int(regions.begin.min()), int((regions.begin + regions.length).max()) - 1])
    low, high = layout.variables_at(ends).tolist()
    return int(low) if low == high else None


def _variables(use: FieldUse, layout: Layout) -> Sequence[int]:
    begin = use.edge.regions.begin
    found: list[int] = layout.variables_in(begin, begin + use.edge.regions.length).tolist()
    return found


def _lie_alike(
    result: FieldUse, operand: FieldUse, variable: int, other: int, known: Mapping[int, Residence], layout: Layout
) -> bool:
    """True if the rows of two fields of vertices are the same parts of their tiles' shares of two variables."""
    if variable == other or layout.width[variable] != layout.width[other]:
        return False
    one, two = result.edge, operand.edge
    if len(one.index) != len(two.index) or not _same(one.row_begin, two.row_begin):
        return False
    held = layout.packing.shares
    mine, theirs = (slice(int(held.ptr[v]), int(held.ptr[v + 1])) for v in (variable, other))
    if not _same(held.tile[mine], held.tile[theirs]) or not _same(held.elements[mine], held.elements[theirs]):
        return False
    here, there = _places(result, known), _places(operand, known)
    return here is not None and there is not None and all(map(_same, here, there))


def _places(use: FieldUse, known: Mapping[int, Residence]) -> tuple[Int64, Int64] | None:
    """Place in its tile's share, and length, of each row of a field; None if one is not whole on its vertex's tile."""
    residence, index = known[id(use.edge.regions)], use.edge.index
    if not bool((residence.home[index] == use.row_tile).all()):
        return None
    first = residence.ptr[:-1][index]
    return residence.begin[first] - residence.share[first], residence.length[first]


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or np.array_equal(one, other)


# Which of them do, by lifetimes.


def overlaid(lives: Liveness, accesses: Mapping[int, Access], size: Int64, apart: Int64) -> Liveness:
    """Lifetimes with results at the places of operands that die: such an operand ends with the step before.

    Args:
        lives: Lifetimes of the variables.
        accesses: Variables that each step touches, by step index.
        size: Bytes of each variable of the graph, int64[variables].
        apart: Variables that vertices want apart from others, and that no other may have the place of.
    """
    step, pairs = _meetings(accesses)
    position = np.full(len(lives.used), -1, dtype=np.int64)
    position[lives.candidates] = np.arange(len(lives.candidates))
    position[apart] = -1
    one, other = position[pairs].T
    kept = (one >= 0) & (other >= 0)
    step, one, other = step[kept], one[kept], other[kept]
    # The operand's lifetime that ends with the step, and the result's that begins with it.
    span = lives.num_steps + 1
    dying, ends = _row(lives.owner * span + lives.end, one * span + step + 1)
    _, begins = _row(lives.owner * span + lives.begin, other * span + step)
    meet = ends & begins
    meet[meet] = lives.begin[dying[meet]] < step[meet]
    if not meet.any():
        return lives
    step, one, other = step[meet], one[meet], other[meet]
    order = np.lexsort((step, other, one, -size[lives.candidates[one]]))
    steps_of: dict[tuple[int, int], list[int]] = {}
    for at, dies, takes in zip(step[order].tolist(), one[order].tolist(), other[order].tolist(), strict=True):
        steps_of.setdefault((dies, takes), []).append(at)
    places = _Places(lives.ptr, lives.begin, lives.end)
    for (dies, takes), steps in steps_of.items():
        places.join(dies, takes, steps)
    place = np.arange(len(lives.candidates))
    for number in distinct(np.concatenate([one, other])).tolist():
        place[number] = places.of(number)
    return replace(lives, end=places.end, place=place)


def _meetings(accesses: Mapping[int, Access]) -> tuple[Int64, Int64]:
    """Steps in which pairs may overlay, int64[n], and the pairs, int64[n, 2]."""
    some = [(step, access.overlays) for step, access in accesses.items() if len(access.overlays)]
    step = np.repeat(np.array([s for s, _ in some], dtype=np.int64), [len(pairs) for _, pairs in some])
    return step, np.concatenate([_NO_PAIRS, *(pairs for _, pairs in some)])


def _row(keys: Int64, wanted: Int64) -> tuple[Int64, np.ndarray]:
    """Place of each wanted key among keys in ascending order, and if it is there."""
    if len(keys) == 0:
        return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted), dtype=bool)
    row = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return row, keys[row] == wanted


class _Places:
    """Places of variables, and the lifetimes of all that have one: sets with union, each with intervals in order.

    Args:
        ptr: Lifetimes of variable i are ``ptr[i]`` to ``ptr[i + 1]``.
        begin: First step of each, ascending within a variable.
        end: One past its last.

    Attributes:
        end: The same, less the steps in which another takes the place.
    """

    def __init__(self, ptr: Int64, begin: Int64, end: Int64) -> None:
        self.end = end.copy()
        self._ptr, self._begin = ptr, begin
        self._above: dict[int, int] = {}
        self._lives: dict[int, list[tuple[int, int]]] = {}

    def of(self, number: int) -> int:
        """The variable whose place another has; the first of all that have it."""
        above = self._above
        while (higher := above.get(number, number)) != number:
            above[number] = above.get(higher, higher)
            number = higher
        return number

    def join(self, dies: int, takes: int, steps: Sequence[int]) -> bool:
        """Let a variable take the place of one that dies in some steps, if no lifetimes are then on at once."""
        low, high = self.of(dies), self.of(takes)
        if low == high:
            return False
        lives, others = self._of(low), self._of(high)
        # Its lifetime before each step ends one step earlier; where others are still on at once, it does not.
        ends = [bisect_left(lives, (step, 0)) - 1 for step in steps]
        whole = [lives[at] for at in ends]
        for at, step in zip(ends, steps, strict=True):
            lives[at] = lives[at][0], step
        many, few = (lives, others) if len(lives) >= len(others) else (others, lives)
        if not all(_is_free(many, each) for each in few):
            for at, life in zip(ends, whole, strict=True):
                lives[at] = life
            return False
        for each in few:
            many.insert(bisect_left(many, each), each)
        first, second = min(low, high), max(low, high)
        self._above[second] = first
        self._lives.pop(second)
        self._lives[first] = many
        rows = slice(int(self._ptr[dies]), int(self._ptr[dies + 1]))
        self.end[np.searchsorted(self._begin[rows], steps) - 1 + rows.start] = steps
        return True

    def _of(self, number: int) -> list[tuple[int, int]]:
        """Lifetimes at the place of a first variable, in order."""
        if number not in self._lives:
            rows = slice(int(self._ptr[number]), int(self._ptr[number + 1]))
            self._lives[number] = list(zip(self._begin[rows].tolist(), self.end[rows].tolist(), strict=True))
        return self._lives[number]


def _is_free(lives: Sequence[tuple[int, int]], life: tuple[int, int]) -> bool:
    """True if a lifetime meets none of some in order."""
    at = bisect_left(lives, life)
    return (at == 0 or lives[at - 1][1] <= life[0]) and (at == len(lives) or life[1] <= lives[at][0])
