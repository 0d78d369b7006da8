"""Liveness step by step on bit vectors: the definition that the compiler's lifetimes are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from abele.arrays import Bool, Int64
from abele.compiler.access import Access
from abele.compiler.liveness import _covers
from abele.compiler.lower import Step, StepBlock


def dense_liveness(
    programs: Sequence[StepBlock], accesses: Mapping[int, Access], sizes: Int64, pinned: Bool | None = None
) -> tuple[Bool, Bool, dict[int, list[int]]]:
    """Variables in use, those that are always live, and the live ones of the others at each step."""
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
    return flow.used, always, {i: np.flatnonzero(d & ~always & flow.used).tolist() for i, d in flow.during.items()}


class _Flow:
    """Backward data flow over programs, on bit vectors over variables."""

    def __init__(self, accesses: Mapping[int, Access], sizes: Int64) -> None:
        self.accesses = accesses
        self.sizes = sizes
        self.drafts = 0
        self.starts: dict[int, list[int]] = {}
        self.during: dict[int, Bool] = {}
        self.unread = np.zeros(len(sizes), dtype=bool)
        self.ended = np.zeros(len(sizes), dtype=bool)
        self.used = np.zeros(len(sizes), dtype=bool)

    def written_in(self, block: StepBlock) -> Bool:
        """Variables that a program writes, bool[variables]."""
        result = np.zeros(len(self.sizes), dtype=bool)
        for step in block.steps():
            result[self.accesses[step.index].writes] = True
        return result

    def find_starts(self, block: StepBlock) -> None:
        """Find partial writes that begin a complete overwriting: in straight-line code, without a read between."""
        open_: dict[int, tuple[int, list[tuple[Int64, Int64]]]] = {}
        for item in _straight(block):
            if isinstance(item, StepBlock):
                open_.clear()
                for inner in item.items:
                    self.find_starts(inner if isinstance(inner, StepBlock) else StepBlock("sequence", (inner,)))
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

    def entry_of(self, program: StepBlock, live: Bool) -> Bool:
        """Live variables at the start of a program, given those at its end; notes what is live during each step."""
        self.ended[:] = False
        return self.backward(program, live)

    def backward(self, item: Step | StepBlock, live: Bool) -> Bool:
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

    def _sequence(self, items: Sequence[Step | StepBlock], live: Bool) -> Bool:
        for item in reversed(items):
            live = self.backward(item, live)
        return live

    def _draft(self, items: Sequence[Step | StepBlock], live: Bool) -> Bool:
        """Live variables before ``items`` when what the next round of a loop wants is not known yet."""
        self.drafts += 1
        try:
            return self._sequence(items, live)
        finally:
            self.drafts -= 1

    def _repeat(self, item: StepBlock, after: Bool) -> Bool:
        if item.count == 0:
            return after
        entry = self._draft(item.items, after.copy()) if item.count > 1 else after
        return self._sequence(item.items, entry | after)

    def _while(self, item: StepBlock, after: Bool) -> Bool:
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
        known = self.during.get(index)
        self.during[index] = during if known is None else during | known


def _straight(block: StepBlock) -> Iterator[Step | StepBlock]:
    """Steps of a block in order, sequences opened; other blocks are given whole."""
    for item in block.items if block.kind == "sequence" else [block]:
        if isinstance(item, StepBlock) and item.kind == "sequence":
            yield from _straight(item)
        else:
            yield item
