"""Liveness: which variables hold a value that is still wanted, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.compiler.access import Access
from abele.compiler.lower import Block, Step
from abele.graph.intervals import Int64

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class Liveness:
    """Lifetimes of variables.

    Attributes:
        used: Variables that any program touches, bool[variables].
        always_live: Variables whose value must survive from one run to the next or is there from the start,
            bool[variables].
        live: For each step, the other variables that hold a wanted value while it runs, packed bits
            uint8[steps, ceil(variables / 8)] of ``candidates``.
        candidates: Positions of the variables that the bits stand for, int64[n].
    """

    used: Bool
    always_live: Bool
    live: npt.NDArray[np.uint8]
    candidates: Int64

    def at(self, step: int) -> Bool:
        """Which candidates are live during a step, bool[len(candidates)]."""
        return np.unpackbits(self.live[step], count=len(self.candidates)).astype(bool)


def liveness(
    programs: Sequence[Block], accesses: Mapping[int, Access], sizes: Int64, pinned: Bool | None = None
) -> Liveness:
    """Lifetimes of all variables under the given programs.

    Args:
        programs: Lowered programs.
        accesses: What each step touches, by step index.
        sizes: Elements of each variable of the graph, int64[variables].
        pinned: Variables that are always live in any case (constants), bool[variables].

    Rules, those of any compiler over whole variables: a value is live from where it is written to its last possible
    read, round loops and along both branches. A write of every element ends the life of the old value; so does the
    first of several partial writes that together cover the variable before anything reads it. A variable is always
    live if some program may read it before writing it: its value then comes from the host, from initial data or from
    the run before. A value that no program reads is meant for the host and lives to the end of its program. A
    variable that no program touches takes no memory.
    """
    flow = _Flow(accesses, sizes)
    for program in programs:
        flow.find_starts(program)
    nothing = np.zeros(len(sizes), dtype=bool)
    always = pinned & flow.used if pinned is not None else nothing.copy()
    for program in programs:
        always |= flow.entry_of(program, nothing.copy())
    results = flow.unread & ~always
    for program in programs:
        always |= flow.entry_of(program, results & flow.written_in(program))
    candidates = np.flatnonzero(flow.used & ~always)
    live = np.zeros((max(accesses, default=-1) + 1, -(-len(candidates) // 8)), dtype=np.uint8)
    for index, flags in flow.during.items():
        live[index] = np.packbits(np.unpackbits(flags, count=len(sizes))[candidates])
    return Liveness(flow.used, always, live, candidates)


class _Flow:
    """Backward data flow over programs, on bit vectors over variables."""

    def __init__(self, accesses: Mapping[int, Access], sizes: Int64) -> None:
        self.accesses = accesses
        self.sizes = sizes
        self.drafts = 0
        self.starts: dict[int, list[int]] = {}
        self.during: dict[int, npt.NDArray[np.uint8]] = {}
        self.unread = np.zeros(len(sizes), dtype=bool)
        self.ended = np.zeros(len(sizes), dtype=bool)
        self.used = np.zeros(len(sizes), dtype=bool)

    def written_in(self, block: Block) -> Bool:
        """Variables that a program writes, bool[variables]."""
        result = np.zeros(len(self.sizes), dtype=bool)
        for step in block.steps():
            result[self.accesses[step.index].writes] = True
        return result

    def find_starts(self, block: Block) -> None:
        """Find partial writes that begin a complete overwriting: in straight-line code, without a read between."""
        open_: dict[int, tuple[int, list[tuple[Int64, Int64]]]] = {}
        for item in _straight(block):
            if isinstance(item, Block):
                open_.clear()
                for inner in item.items:
                    self.find_starts(inner if isinstance(inner, Block) else Block("sequence", (inner,)))
                continue
            access = self.accesses[item.index]
            self.used[access.touched] = True
            for variable in (*access.reads, *access.complete, *access.undefined):
                open_.pop(int(variable), None)
            for variable, part in access.partial.items():
                if variable in access.reads:
                    continue
                first, parts = open_.setdefault(variable, (item.index, []))
                parts.append(part)
                if _covers(parts, int(self.sizes[variable])):
                    self.starts.setdefault(first, []).append(variable)
                    del open_[variable]

    def entry_of(self, program: Block, live: Bool) -> Bool:
        """Live variables at the start of a program, given those at its end; notes what is live during each step."""
        self.ended[:] = False
        return self.backward(program, live)

    def backward(self, item: Step | Block, live: Bool) -> Bool:
        """Live variables before ``item``, given those after it."""
        if isinstance(item, Step):
            return self._step(item, live)
        match item.kind:
            case "if":
                ways = [self.backward(way, live.copy()) for way in item.items]
                return np.asarray(np.logical_or.reduce(ways), dtype=bool)
            case "repeat":
                return self._repeat(item, live)
            case "while":
                return self._while(item, live)
        return self._sequence(item.items, live)

    def _sequence(self, items: Sequence[Step | Block], live: Bool) -> Bool:
        for item in reversed(items):
            live = self.backward(item, live)
        return live

    def _draft(self, items: Sequence[Step | Block], live: Bool) -> Bool:
        """Live variables before ``items`` when what the next round of a loop wants is not known yet."""
        self.drafts += 1
        try:
            return self._sequence(items, live)
        finally:
            self.drafts -= 1

    def _repeat(self, item: Block, after: Bool) -> Bool:
        if item.count == 0:
            return after
        entry = self._draft(item.items, after.copy()) if item.count > 1 else after
        return self._sequence(item.items, entry | after)

    def _while(self, item: Block, after: Bool) -> Bool:
        condition, body = item.items[:2], item.items[2:]
        head = self._draft(condition, after.copy())
        head = self._draft(condition, self._draft(body, head) | after)
        return self._sequence(condition, self._sequence(body, head) | after)

    def _step(self, step: Step, live: Bool) -> Bool:
        access = self.accesses[step.index]
        killed = access.complete
        started = self.starts.get(step.index)
        if started:
            killed = np.concatenate([killed, started])
        during = live.copy()
        during[access.writes] = True
        if not self.drafts:
            self.unread[access.writes[~(live | self.ended)[access.writes]]] = True
        self.ended[access.undefined] = True
        self.ended[access.complete] = False
        live[killed] = False
        live[access.undefined] = False
        live[access.reads] = True
        if not self.drafts:
            self._note(step.index, during | live)
        return live

    def _note(self, index: int, during: Bool) -> None:
        bits = np.packbits(during)
        known = self.during.get(index)
        self.during[index] = bits if known is None else bits | known


def _straight(block: Block) -> Iterator[Step | Block]:
    """Steps of a block in order, sequences opened; other blocks are given whole."""
    for item in block.items if block.kind == "sequence" else [block]:
        if isinstance(item, Block) and item.kind == "sequence":
            yield from _straight(item)
        else:
            yield item


def _covers(parts: Sequence[tuple[Int64, Int64]], size: int) -> bool:
    """Whether intervals of one variable cover its ``size`` elements."""
    if sum(int((end - begin).sum()) for begin, end in parts) < size:
        return False
    begin, end = (np.concatenate(side) for side in zip(*parts, strict=True))
    order = np.argsort(begin)
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    return int(reach[-1] - begin[0]) == size and bool((begin[1:] <= reach[:-1]).all())
