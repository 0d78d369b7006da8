"""The critical path: the chain of steps that bounds a program, each waiting for the one before it.

A row of the program starts when the last of what it needs is free, so that one was the reason why it did not start
earlier. Followed backwards from the end of the program, the reasons are a chain whose cycles add up to the whole run. A
step on it shortens the run if it gets faster; another step does not.

The walk is that of :mod:`abele.compiler.schedule`, with a node beside each time that says what the chain to it is: that
of the reason, and a row more. A loop is a max-plus matrix with a node for each entry, and where matrices are
multiplied, the entry of the result has the chains of the two entries that attained it, one after the other. So chains
share their common parts, and a loop of a million trips costs twenty products here as there. The cycles of each row on
the chain are summed in one pass over the nodes, from the last to the first, with the number of times that each is used.
Tried before: a vector of cycles by row for each time, which is rows² for a long program.

Example: A takes 10 cycles on one sync group, B 30 on another, and C then 5 on both. The chain is B and C, 35 cycles,
and a faster A saves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from abele.arrays import Float64, Int64
from abele.compiler.schedule import NEVER, Item, RowNeeds, Rows, row_needs
from abele.compiler.timeline import Part

_WALKED = 8
"""Trips of a loop that are walked one by one; more are a power of a matrix."""
_WHOLE = 1e-9


class _State(NamedTuple):
    """Cycle at which each resource is free, float64[resources, k], and the chain to it, int64[resources, k]."""

    times: Float64
    chains: Int64


def critical_cycles(items: Sequence[Item], parts: Sequence[Part]) -> Float64:
    """Cycles of each row that are on the critical path of a run, float64[rows]; they add up to those of the run.

    Args:
        items: The program, as rows and loops.
        parts: Timeline of each row of the steps table.
    """
    needs, num_resources = row_needs(items, parts)
    walk = _Walk(needs, num_resources)
    start = _State(np.zeros((num_resources, 1)), np.zeros((num_resources, 1), dtype=np.int64))
    end = walk.through(items, start, 1.0)
    if not num_resources:
        return np.zeros(len(parts))
    return walk.chains.cycles(int(end.chains[int(end.times[:, 0].argmax()), 0]), len(parts))


@dataclass
class _Chains:
    """All chains: node 0 is the empty one; others are a chain and a row more, or two chains after each other."""

    size: int = 1
    made: list[tuple[int, Int64, Int64 | None, int, Float64]] = field(default_factory=list)

    def longer(self, before: Int64, row: int, cycles: Float64) -> Int64:
        """Chains that are ``cycles`` of a row longer."""
        return self._new(before, None, row, cycles)

    def joined(self, before: Int64, after: Int64) -> Int64:
        """Chains after each other."""
        return self._new(before, after, -1, np.empty(0))

    def _new(self, before: Int64, after: Int64 | None, row: int, cycles: Float64) -> Int64:
        first = self.size
        self.made.append((first, before.copy(), after, row, cycles))
        self.size += len(before)
        return np.arange(first, self.size, dtype=np.int64)

    def cycles(self, last: int, num_rows: int) -> Float64:
        """Cycles of each row on a chain."""
        used, total = np.zeros(self.size), np.zeros(num_rows)
        used[last] = 1.0
        # Whatever a chain is made of was made before it.
        for first, before, after, row, cycles in reversed(self.made):
            mine = used[first : first + len(before)]
            if not mine.any():
                continue
            np.add.at(used, before, mine)
            if after is None:
                total[row] += float(np.dot(mine, cycles))
            else:
                np.add.at(used, after, mine)
        return total


@dataclass
class _Walk:
    """A walk through the program.

    Attributes:
        needs: Needs of the rows.
        size: Resources that differ.
        chains: The chains so far.
    """

    needs: dict[int, RowNeeds]
    size: int
    chains: _Chains = field(default_factory=_Chains)
    _matrices: dict[tuple[int, float], _State] = field(default_factory=dict)

    def through(self, items: Sequence[Item], state: _State, scale: float) -> _State:
        """The state after some items; cycles count ``scale`` times."""
        for item in items:
            if isinstance(item, Rows):
                for row in range(item.first, item.end):
                    self._advance(row, state, scale)
                continue
            whole = int(item.trips + _WHOLE)
            part = item.trips - whole
            if whole <= _WALKED:
                for _ in range(whole):
                    state = self.through(item.items, state, scale)
            else:
                key = (id(item), scale)
                if key not in self._matrices:
                    self._matrices[key] = self.through(item.items, self._identity(), scale)
                state = self._times(self._power(self._matrices[key], whole), state)
            if part > _WHOLE:
                state = self.through(item.items, state, scale * part)
        return state

    def _advance(self, row: int, state: _State, scale: float) -> None:
        need = self.needs[row]
        cycles, columns = need.cycles * scale, np.arange(state.times.shape[1])
        for resources in need.meets:
            # A link may be busy for as long as the row does not need it: what overlaps counts for the link.
            used = np.concatenate([resources, need.links])
            overlap = np.repeat([0.0, need.latency * scale], [len(resources), len(need.links)])
            ready = state.times[used] - overlap[:, None]
            reason = ready.argmax(axis=0)
            start = ready[reason, columns]
            chain = self.chains.longer(state.chains[used[reason], columns], row, cycles - overlap[reason])
            state.times[used], state.chains[used] = start + cycles, chain

    def _identity(self) -> _State:
        times = np.where(np.eye(self.size, dtype=bool), 0.0, NEVER)
        return _State(times, np.zeros((self.size, self.size), dtype=np.int64))

    def _times(self, left: _State, right: _State) -> _State:
        """Max-plus product: first the steps of ``right``, then those of ``left``."""
        columns = np.arange(right.times.shape[1])
        result = _State(np.empty(right.times.shape), np.empty(right.times.shape, dtype=np.int64))
        for i in range(self.size):
            through = left.times[i][:, None] + right.times
            by_way_of = through.argmax(axis=0)
            result.times[i] = through[by_way_of, columns]
            result.chains[i] = self.chains.joined(right.chains[by_way_of, columns], left.chains[i, by_way_of])
        return result

    def _power(self, matrix: _State, exponent: int) -> _State:
        """The max-plus power, by squaring."""
        result: _State | None = None
        while exponent:
            if exponent & 1:
                result = matrix if result is None else self._times(matrix, result)
            exponent >>= 1
            if exponent:
                matrix = self._times(matrix, matrix)
        assert result is not None
        return result
