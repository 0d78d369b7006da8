"""Half steps: what dies when inputs are there, and what begins only with the vertices.

A step whose vertices want data that does not lie as they read it begins with an exchange and copies on tiles, then the
vertices run. Poplar has program steps for each ("DoExchange", "OnTileExecute"), and what is live is said for each. An
operand that is read for the last time lies on its tiles until it was sent or copied; the vertices read what arrived. It
stays where a vertex of the same tile reads it as it lies. A result that the step writes as a whole begins with the
vertices. So a tile needs the larger of

    operands + data in motion    and    data in motion + operands that stay + results,

not the sum of all. Example: a weight update gathers 37 KB from 28 KB of rearranged operands, and its partial sums take
16 KB. In one step these are 81 KB, in halves 65 KB, of which the vertices need 53 KB.

A result at the place of an operand that dies (:mod:`abele.compiler.overlays`) begins where that ends, with the first
half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from abele.arrays import Bool, Int64
from abele.compiler.access import Access
from abele.compiler.layout import Layout
from abele.compiler.liveness import Liveness
from abele.compiler.region_tiles import Residence
from abele.compiler.uses import FieldUse
from abele.graph.intervals import distinct

# Shares that vertices of their tile read as they lie, by the wiring of one compute set.


def stays_of(
    uses: Sequence[FieldUse], known: Mapping[int, Residence], access: Access, layout: Layout
) -> dict[int, Bool]:
    """Variables that a compute set only reads, with their shares in use in place on their tiles.

    Args:
        uses: Field uses of the compute set.
        known: Residences of their regions, by identity.
        access: Variables that it touches.
        layout: Tile and address of the graph's elements.

    Returns:
        For each variable True for the shares that stay, bool[shares of the variable], in the order of tiles; without
        variables all of whose shares stay.
    """
    held = layout.packing.shares
    stays = {
        int(v): np.zeros(int(held.ptr[v + 1] - held.ptr[v]), dtype=bool)
        for v in np.setdiff1d(access.reads, access.writes, assume_unique=True).tolist()
    }
    for use in uses:
        if not use.reads or len(use.edge.index) == 0:
            continue
        shares = distinct(_shares_in_place(use, known[id(use.edge.regions)]))
        variable = layout.variables_at(shares)
        for number in distinct(variable).tolist():
            if number in stays:
                rows = slice(int(held.ptr[number]), int(held.ptr[number + 1]))
                first = layout.base[number] + np.cumsum(held.elements[rows]) - held.elements[rows]
                stays[number][np.searchsorted(first, shares[variable == number])] = True
    return {number: which for number, which in stays.items() if not which.all()}


def _shares_in_place(use: FieldUse, residence: Residence) -> Int64:
    """First packed address of each share that vertices of its tile read as it lies, int64[k], some repeated."""
    index = use.edge.index
    whole = index[residence.home[index] == use.row_tile]
    found: Int64 = residence.share[residence.ptr[:-1][whole]]
    return found


# Lifetimes in halves.


def halved(lives: Liveness, accesses: Mapping[int, Access], arranging: Bool) -> Liveness:
    """Lifetimes with the half of a step in which each begins and, share by share, ends.

    Args:
        lives: Lifetimes of the variables.
        accesses: Variables that each step touches, by step index.
        arranging: True for steps whose vertices run behind an exchange or copies on tiles, bool[steps].
    """
    position = np.full(len(lives.used), -1, dtype=np.int64)
    position[lives.candidates] = np.arange(len(lives.candidates))
    span, owner = lives.num_steps + 1, lives.owner
    begins = owner * span + lives.begin
    late = np.isin(begins, _results(accesses, arranging, position, span))
    # Where a result takes the place of an operand, the place is taken through the whole step.
    shrunk = lives.end != lives.end_apart
    late &= ~np.isin(lives.place[owner] * span + lives.begin, lives.place[owner[shrunk]] * span + lives.end[shrunk])
    ends = owner * span + lives.end - 1
    stays: dict[int, Bool] = {}
    for key, which in _operands(accesses, arranging, position, span):
        row = int(np.searchsorted(ends, key))
        if row < len(ends) and ends[row] == key and not shrunk[row]:
            stays[row] = which
    return replace(lives, late=late, stays=MappingProxyType(dict(sorted(stays.items()))))


def _results(accesses: Mapping[int, Access], arranging: Bool, position: Int64, span: int) -> Int64:
    """Candidates that steps write as a whole and do not read, with the step, as one number each."""
    numbers, steps = list[int](), list[int]()
    for step in np.flatnonzero(arranging).tolist():
        access = accesses[step]
        # Steps touch few variables: sets of Python are quicker than NumPy's.
        written = set(access.complete.tolist()).difference(access.reads.tolist())
        numbers += written
        steps += [step] * len(written)
    candidate = position[np.array(numbers, dtype=np.int64)]
    is_one = candidate >= 0
    return candidate[is_one] * span + np.array(steps, dtype=np.int64)[is_one]


def _operands(
    accesses: Mapping[int, Access], arranging: Bool, position: Int64, span: int
) -> Iterator[tuple[int, Bool]]:
    """Candidates of which steps only send some shares, with the step, as one number; and the shares that stay."""
    for step in np.flatnonzero(arranging).tolist():
        for variable, which in accesses[step].stays.items():
            if position[variable] >= 0:
                yield int(position[variable]) * span + step, which
