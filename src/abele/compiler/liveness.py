"""Liveness: which variables hold a value that is still wanted, as intervals of steps.

The rules are those of any compiler over whole variables, and so is the method: backward data flow over basic blocks.
A run of steps without control between them either *reads* a variable before it overwrites it, *overwrites* it first, or
leaves it alone; so what is live before the run follows from what is live after it by one assignment for the variables
that the run decides. All runs of a program are found at once, by sorting what its steps touch by run, variable and
step. Control works on these assignments alone:

- a branch is live in what any way wants; only variables that some way decides are looked at;
- a loop ends with what its next round or the code behind it wants. What is assigned does not depend on what was live,
  so one pass over the body finds that (a second one changes nothing), and another notes the lifetimes;
- a loop that looks before each trip does the same with its condition and its body.

A variable that is live and left alone costs nothing: its interval stays open until a run decides it. Hence time and
memory follow what steps touch, not steps times variables. Tried before: a bit for each step and variable, which is as
fast for a few hundred variables, and takes 100 GB for a million steps over a million of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from abele.arrays import Bool, Int64
from abele.compiler.access import Access
from abele.compiler.lower import Step, StepBlock
from abele.graph.intervals import distinct, order_of


@dataclass(frozen=True, eq=False, slots=True)
class Liveness:
    """Lifetimes of variables.

    Attributes:
        used: Variables that any program touches, bool[variables].
        always_live: Variables whose value must survive from one run to the next or is there from the start,
            bool[variables].
        candidates: Positions of the other variables that are used, int64[n], ascending.
        ptr: Lifetimes of candidate i are ``ptr[i]`` to ``ptr[i + 1]``, int64[n + 1].
        begin: First step of each lifetime, int64[k]; ascending, and apart, within a candidate.
        end: One past its last step, int64[k].
        num_steps: Steps of all programs.
        place: Candidate at whose address each lies, int64[n]: itself, unless one took the place of another.
        end_apart: End of each lifetime where none takes the place of another, int64[k].
        late: True for lifetimes that begin with the vertices of their first step, bool[k].
        stays: For lifetimes that end, on some tiles, before the vertices of their last step: True for the variable's
            shares that stay for these, bool[shares].
    """

    used: Bool
    always_live: Bool
    candidates: Int64
    ptr: Int64
    begin: Int64
    end: Int64
    num_steps: int
    place: Int64
    end_apart: Int64
    late: Bool
    stays: Mapping[int, Bool]

    @property
    def owner(self) -> Int64:
        """Candidate of each lifetime, int64[k]."""
        return np.repeat(np.arange(len(self.candidates)), np.diff(self.ptr))

    @property
    def half_begin(self) -> Int64:
        """Half step at which each lifetime begins, int64[k]: 2 n has the inputs of step n, 2 n + 1 its vertices."""
        return 2 * self.begin + self.late

    def at(self, step: int) -> Bool:
        """Candidates that are live during a step, bool[len(candidates)]."""
        result = np.zeros(len(self.candidates), dtype=bool)
        result[self.owner[(self.begin <= step) & (step < self.end)]] = True
        return result

    def span(self) -> tuple[Int64, Int64]:
        """First and last step at which each candidate is live, int64[n] each; −1 where it never is."""
        lives = np.diff(self.ptr) > 0
        first, last = np.full(len(lives), -1, dtype=np.int64), np.full(len(lives), -1, dtype=np.int64)
        first[lives] = self.begin[self.ptr[:-1][lives]]
        last[lives] = self.end[self.ptr[1:][lives] - 1] - 1
        return first, last


def liveness(
    programs: Sequence[StepBlock], accesses: Mapping[int, Access], sizes: Int64, pinned: Bool | None = None
) -> Liveness:
    """Lifetimes of all variables under the given programs.

    Args:
        programs: Lowered programs.
        accesses: Variables that each step touches, by step index.
        sizes: Elements of each variable of the graph, int64[variables].
        pinned: Variables that are always live in any case (constants), bool[variables].

    Rules: a value is live from where it is written to its last possible read, round loops and along both branches. A
    write of every element ends the life of the old value; so does the first of several partial writes that together
    cover the variable before anything reads it. A variable is always live if some program may read it before writing
    it: its value then comes from the host, from initial data or from the run before. A value that no program reads is
    meant for the host and lives to the end of its program. A variable that no program touches takes no memory.
    """
    num_steps = max(accesses, default=-1) + 1
    regions, runs = _regions(programs)
    events = _Events.of(accesses, _starts(programs, accesses, sizes), runs, len(sizes), num_steps)
    used = events.used(len(sizes))
    always = pinned & used if pinned is not None else np.zeros(len(sizes), dtype=bool)
    flow = _Flow(events, runs, len(sizes))
    nothing = np.zeros(len(sizes), dtype=bool)
    for region in regions:
        always |= flow.entry_of(region, nothing)
    results = flow.unread & ~always
    for region in regions:
        always |= flow.entry_of(region, results & events.written(region, len(sizes)))
    candidates = np.flatnonzero(used & ~always)
    ptr, begin, end = _united(flow.lifetimes(), candidates, len(sizes), num_steps)
    return Liveness(
        used=used,
        always_live=always,
        candidates=candidates,
        ptr=ptr,
        begin=begin,
        end=end,
        num_steps=num_steps,
        place=np.arange(len(candidates)),
        end_apart=end,
        late=np.zeros(len(begin), dtype=bool),
        stays={},
    )


@dataclass(eq=False, slots=True)
class _StepRegion:
    """A part of a program: a run of steps without control, or parts under one rule.

    Attributes:
        kind: ``run``, or the kind of a block.
        first: First step.
        end: One past the last.
        first_run: Number of the first run inside.
        end_run: One past the number of the last.
        items: The parts of a block; of a ``while`` its condition and its body.
        count: Trips of a ``repeat``.
    """

    kind: str
    first: int
    end: int
    first_run: int
    end_run: int
    items: list[_StepRegion] = field(default_factory=list)
    count: int = 1


def _regions(programs: Sequence[StepBlock]) -> tuple[list[_StepRegion], Int64]:
    """Programs as regions, and the first step of each run, int64[runs + 1]."""
    starts: list[int] = []
    at = 0

    def run(steps: list[Step]) -> _StepRegion:
        nonlocal at
        at = steps[-1].index + 1
        starts.append(steps[0].index)
        return _StepRegion("run", steps[0].index, at, len(starts) - 1, len(starts))

    def part(kind: str, items: Sequence[Step | StepBlock], count: int = 1) -> _StepRegion:
        region = _StepRegion(kind, at, at, len(starts), len(starts), count=count)
        if kind == "while":
            region.items = [part("sequence", items[:2]), part("sequence", items[2:])]
        elif kind == "if":
            region.items = [part("sequence", [way]) for way in items]
        else:
            region.items = list(inside(items))
        region.end, region.end_run = at, len(starts)
        return region

    def inside(items: Sequence[Step | StepBlock]) -> Iterator[_StepRegion]:
        steps: list[Step] = []
        for item in _opened(items):
            if isinstance(item, Step):
                steps.append(item)
                continue
            if steps:
                yield run(steps)
                steps = []
            yield part(item.kind, item.items, item.count)
        if steps:
            yield run(steps)

    found = [part("sequence", [program]) for program in programs]
    return found, np.array([*starts, at], dtype=np.int64)


def _opened(items: Sequence[Step | StepBlock]) -> Iterator[Step | StepBlock]:
    """Items in order, sequences opened; other blocks are given whole."""
    # With a stack: nested generators would pass every item on through all sequences that it is in.
    stack = [iter(items)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, StepBlock) and item.kind == "sequence":
                stack.append(iter(item.items))
                break
            yield item
        else:
            stack.pop()


_READ, _KILL, _WRITE, _UNDEFINED, _COMPLETE = 1, 2, 4, 8, 16
_DECIDES = _READ | _KILL
_ENDS = _UNDEFINED | _COMPLETE


@dataclass(frozen=True, eq=False, slots=True)
class _Events:
    """Reads, writes and ends of variables by steps, in order of run, variable and step.

    Attributes:
        variable: Variable of each event, int64[n].
        step: Its step, int64[n].
        does: Events as flags, int64[n].
        run: Run of the step, int64[n].
        fresh: True where an event is the first of its run and variable, bool[n].
    """

    variable: Int64
    step: Int64
    does: Int64
    run: Int64
    fresh: Bool

    @staticmethod
    def of(
        accesses: Mapping[int, Access], starts: Sequence[tuple[int, int]], runs: Int64, num_variables: int, steps: int
    ) -> _Events:
        """The events of all steps; each of ``starts`` is a step whose partial write of a variable kills its value."""
        different, which = _distinct_accesses(accesses, steps)
        # Steps of equal compute sets share one access, so flags are sorted once per access and then repeated for its
        # steps.
        ptr, variable, does = _by_access(different, num_variables)
        known = np.flatnonzero(which >= 0)
        head, count = ptr[which[known]], np.diff(ptr)[which[known]]
        step = np.repeat(known, count)
        # Row i of the repeated columns starts at head[i]; subtracting how far the output has come turns one arange into
        # all rows.
        source = np.arange(len(step)) + np.repeat(head - (np.cumsum(count) - count), count)
        variable, does = variable[source], does[source]
        if starts:
            place, killed = np.array(starts, dtype=np.int64).T
            does[np.searchsorted(step * num_variables + variable, place * num_variables + killed)] |= _KILL
        # Steps are in order already, and the sort is stable: sorting by (run, variable) leaves the steps of each pair
        # in order.
        run = np.searchsorted(runs, step, side="right") - 1
        key = run * num_variables + variable
        order = order_of(key)
        key = key[order]
        fresh = np.append(True, key[1:] != key[:-1])[: len(key)]
        return _Events(variable[order], step[order], does[order], run[order], fresh)

    def used(self, num_variables: int) -> Bool:
        """Variables that some step reads or writes, bool[variables]."""
        result = np.zeros(num_variables, dtype=bool)
        result[self.variable[(self.does & (_READ | _WRITE)) > 0]] = True
        return result

    def written(self, region: _StepRegion, num_variables: int) -> Bool:
        """Variables that some step of a program writes, bool[variables]."""
        result = np.zeros(num_variables, dtype=bool)
        inside = (self.does & _WRITE > 0) & (self.step >= region.first) & (self.step < region.end)
        result[self.variable[inside]] = True
        return result

    def where(self, flags: int) -> Int64:
        """Positions of the events with any of some flags, int64[k]."""
        return np.flatnonzero(self.does & flags)

    def neighbours(self, flags: int) -> tuple[Int64, Int64]:
        """Nearest events before and after each with any of some flags, of the same run and variable.

        Returns:
            Positions of events, int64[n] each; −1 where there is none.
        """
        n = len(self.step)
        # Nearest event of a kind, ignoring runs and variables; those found in another group are thrown out below.
        group = np.cumsum(self.fresh)
        found = self.where(flags)
        slot = np.searchsorted(found, np.arange(n), side="left")
        padded = np.concatenate([[-1], found, [-1]])
        before = padded[slot]
        # An event that is of the kind itself is at its own slot, so the next one is a slot further on.
        after = padded[slot + 1 + (np.append(found, -1)[np.minimum(slot, len(found))] == np.arange(n))]
        for other in (before, after):
            other[(other >= 0) & (group[other] != group)] = -1
        return before, after


def _distinct_accesses(accesses: Mapping[int, Access], steps: int) -> tuple[list[Access], Int64]:
    """Distinct accesses, and the number of that of each step, int64[steps]; −1 where it has none."""
    numbers: dict[int, int] = {}
    different: list[Access] = []
    which = np.full(steps, -1, dtype=np.int64)
    for step, access in accesses.items():
        number = numbers.setdefault(id(access), len(different))
        if number == len(different):
            different.append(access)
        which[step] = number
    return different, which


def _by_access(accesses: Sequence[Access], num_variables: int) -> tuple[Int64, Int64, Int64]:
    """Variables of each access, ascending, and its effects on them: pointers, variables and flags."""
    keys, flags = [], []
    kinds = (("reads", _READ), ("writes", _WRITE), ("complete", _KILL | _COMPLETE), ("undefined", _KILL | _UNDEFINED))
    for name, flag in kinds:
        columns = [getattr(a, name) for a in accesses]
        owner = np.repeat(np.arange(len(columns)), [len(c) for c in columns])
        keys.append(owner * num_variables + np.concatenate([np.empty(0, dtype=np.int64), *columns]))
        flags.append(np.full(len(owner), flag))
    key, flag_of = np.concatenate(keys), np.concatenate(flags)
    order = order_of(key)
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    does = np.bitwise_or.reduceat(flag_of[order], first) if len(first) else flag_of
    key = key[first]
    ptr = np.searchsorted(key, np.arange(len(accesses) + 1) * num_variables)
    return ptr, key % max(1, num_variables), does


class _Flow:
    """Backward data flow over regions.

    ``live`` says what is wanted at the place that the walk has reached, and ``until`` where the open lifetime of each
    live variable ends. ``ended`` holds variables that were declared undefined further on.
    """

    def __init__(self, events: _Events, runs: Int64, num_variables: int) -> None:
        self.live = np.zeros(num_variables, dtype=bool)
        self.until = np.zeros(num_variables, dtype=np.int64)
        self.ended = np.zeros(num_variables, dtype=bool)
        self.unread = np.zeros(num_variables, dtype=bool)
        self._events, self._starts = events, runs
        self._pieces: list[tuple[Int64, Int64, Int64]] = []
        self._skipped: list[tuple[int, int]] = []
        self._decide()
        self._look_for_unread()

    def _decide(self) -> None:
        """Find the variables that each run reads or writes, if it reads them first, and its last decision on each."""
        events = self._events
        before, after = events.neighbours(_DECIDES)
        deciding = events.where(_DECIDES)
        # The first decision of a run says what the run wants before it; a value that is live behind the run starts at
        # the last.
        first, last = deciding[before[deciding] < 0], deciding[after[deciding] < 0]
        self._decided, self._wanted = events.variable[first], (events.does[first] & _READ) > 0
        self._last = events.step[last]
        self._ptr = np.searchsorted(events.run[first], np.arange(len(self._starts)))
        reading = events.where(_READ)
        previous = before[reading]
        # A read extends a lifetime back to the event before it, or to the start of the run where the value came from
        # outside.
        begin = np.where(previous >= 0, events.step[previous], self._starts[events.run[reading]])
        writing = events.where(_WRITE)
        self._inside = (
            np.concatenate([events.variable[reading], events.variable[writing]]),
            np.concatenate([begin, events.step[writing]]),
            np.concatenate([events.step[reading], events.step[writing]]) + 1,
        )
        _, later = events.neighbours(_ENDS)
        ending = events.where(_ENDS)
        earlier, _ = events.neighbours(_ENDS)
        top = ending[earlier[ending] < 0]
        self._end_variable, self._end_value = events.variable[top], (events.does[top] & _COMPLETE) == 0
        self._end_ptr = np.searchsorted(events.run[top], np.arange(len(self._starts)))
        self._later_end, self._later_decision = later, after

    def _look_for_unread(self) -> None:
        """Find the writes of each run whose value it does not read, and the conditions for them to be dead.

        A value is unread if it is neither live nor declared undefined right after its write.
        """
        events, writing = self._events, self._events.where(_WRITE)
        decided, ended = self._later_decision[writing], self._later_end[writing]
        wanted = (decided >= 0) & (events.does[decided] & _READ > 0)
        undefined = (ended >= 0) & (events.does[ended] & _COMPLETE == 0)
        open_ = np.flatnonzero(~wanted & ~undefined)
        self._write_variable = events.variable[writing[open_]]
        self._asks_live, self._asks_ended = decided[open_] < 0, ended[open_] < 0
        self._write_ptr = np.searchsorted(events.run[writing[open_]], np.arange(len(self._starts)))

    def entry_of(self, program: _StepRegion, live: Bool) -> Bool:
        """Live variables at the start of a program, given those at its end; notes lifetimes."""
        self.ended[:] = False
        self.live[:] = live
        self.until[live] = program.end
        self._walk(program)
        self._close(np.flatnonzero(self.live), program.first)
        return self.live.copy()

    def lifetimes(self) -> tuple[Int64, Int64, Int64]:
        """Variable, first step and end of all pieces of lifetimes that were noted; they may overlap."""
        variable, begin, end = (np.concatenate(side) for side in zip(self._inside, *self._pieces, strict=True))
        for first, last in sorted(set(self._skipped)):
            inside, after = (begin < last) & (end > first), end > last
            kept, rest = ~inside | (begin < first), inside & after
            variable = np.concatenate([variable[kept], variable[rest]])
            begin, end = (
                np.concatenate([begin[kept], np.full(int(rest.sum()), last)]),
                np.concatenate([np.where(inside, np.minimum(end, first), end)[kept], end[rest]]),
            )
        return variable, begin, end

    def _walk(self, region: _StepRegion) -> None:
        """Go back over a region and note lifetimes."""
        match region.kind:
            case "run":
                self._run(region)
            case "if":
                self._branch(region)
            case "repeat":
                self._repeat(region)
            case "while":
                self._while(region)
            case _:
                for item in reversed(region.items):
                    self._walk(item)

    def _run(self, region: _StepRegion) -> None:
        number = region.first_run
        writes = slice(self._write_ptr[number], self._write_ptr[number + 1])
        variable = self._write_variable[writes]
        wanted = self._asks_live[writes] & self.live[variable] | self._asks_ended[writes] & self.ended[variable]
        self.unread[variable[~wanted]] = True
        self._end(number)
        own = slice(self._ptr[number], self._ptr[number + 1])
        variable, before = self._decided[own], self._wanted[own]
        after = self.live[variable]
        if after.any():
            self._note(variable[after], self._last[own][after], self.until[variable[after]])
        # One assignment decides all: what was live behind the run matters only for the lifetime noted above.
        self.live[variable] = before
        self.until[variable[before]] = region.first

    def _end(self, number: int) -> None:
        """Enter the values that end in a run."""
        ends = slice(self._end_ptr[number], self._end_ptr[number + 1])
        if ends.stop > ends.start:
            self.ended[self._end_variable[ends]] = self._end_value[ends]

    def _branch(self, region: _StepRegion) -> None:
        touched = self._touched(region)
        after = self.live[touched]
        self._close(touched[after], region.end)
        before = np.zeros_like(after)
        # Each way starts from the same state behind the branch; what any of them wants is wanted before it.
        for way in region.items:
            self.live[touched] = after
            self.until[touched] = way.end
            self._walk(way)
            now = self.live[touched]
            self._close(touched[now], way.first)
            before |= now
        self.live[touched] = before
        self.until[touched] = region.first

    def _repeat(self, region: _StepRegion) -> None:
        if region.count == 0:
            self._skipped.append((region.first, region.end))
            return
        # The end of the body wants what the next trip wants. One pass over the body finds it, as its assignments do not
        # depend on what was live; the walk afterwards notes lifetimes with that known.
        if region.count > 1:
            touched = self._touched(region)
            after = self.live[touched]
            self._pass(region.items)
            fresh = touched[self.live[touched] & ~after]
            self.until[fresh] = region.end
            self.live[touched[after]] = True
        for item in reversed(region.items):
            self._walk(item)

    def _while(self, region: _StepRegion) -> None:
        condition, body = region.items
        touched = self._touched(region)
        after = self.live[touched]
        self._pass([condition, body], rejoined=(touched, after))
        # The body runs back to the condition, so its end wants `head`. What only the code behind the loop wants is made
        # by the condition: that lifetime is open from the end of the body onwards, since the steps of the condition
        # come first.
        head = self.live[touched]
        self._close(touched[after & ~head], body.end)
        self.until[touched[head & ~after]] = body.end
        self._walk(body)
        # Behind the condition both ways meet: into the body, and out of the loop.
        joining = touched[after & ~self.live[touched]]
        self.live[joining] = True
        self.until[joining] = condition.end
        self._walk(condition)

    def _pass(self, items: Sequence[_StepRegion], rejoined: tuple[Int64, Bool] | None = None) -> None:
        """Go back over some regions without noting anything; before the first, the variables of ``rejoined`` are wanted
        too.
        """
        for position in reversed(range(len(items))):
            self._pass_over(items[position])
            if position == 1 and rejoined is not None:
                self.live[rejoined[0][rejoined[1]]] = True

    def _pass_over(self, region: _StepRegion) -> None:
        match region.kind:
            case "run":
                number = region.first_run
                self._end(number)
                own = slice(self._ptr[number], self._ptr[number + 1])
                self.live[self._decided[own]] = self._wanted[own]
            case "if":
                touched = self._touched(region)
                after = self.live[touched]
                before = np.zeros_like(after)
                for way in region.items:
                    self.live[touched] = after
                    self._pass_over(way)
                    before |= self.live[touched]
                self.live[touched] = before
            case "while":
                touched = self._touched(region)
                self._pass(region.items, rejoined=(touched, self.live[touched]))
            case "repeat" if region.count == 0:
                return
            case _:
                self._pass(region.items)

    def _touched(self, region: _StepRegion) -> Int64:
        """Variables that some run of a region decides, ascending."""
        return distinct(self._decided[self._ptr[region.first_run] : self._ptr[region.end_run]])

    def _close(self, variable: Int64, step: int) -> None:
        """Note that the open lifetimes of variables reach back to a step."""
        if len(variable):
            self._note(variable, np.full(len(variable), step), self.until[variable])

    def _note(self, variable: Int64, begin: Int64, end: Int64) -> None:
        self._pieces.append((variable, begin, end))


def _united(
    pieces: tuple[Int64, Int64, Int64], candidates: Int64, num_variables: int, num_steps: int
) -> tuple[Int64, Int64, Int64]:
    """Pieces of the lifetimes of some variables, overlapping and adjoining ones joined: pointers, begins and ends."""
    variable, begin, end = pieces
    position = np.full(num_variables, -1, dtype=np.int64)
    position[candidates] = np.arange(len(candidates))
    kept = np.flatnonzero((position[variable] >= 0) & (begin < end))
    span = num_steps + 1
    # Candidates lie on one axis, `span` apart, so that one sort and one running maximum serve all of them.
    base = position[variable[kept]] * span
    low, high = base + begin[kept], base + end[kept]
    order = order_of(low)
    low, reach = low[order], np.maximum.accumulate(high[order])
    if len(low):
        fresh = np.flatnonzero(np.append(True, low[1:] > reach[:-1]))
        low, reach = low[fresh], reach[np.append(fresh[1:], len(low)) - 1]
    ptr = np.searchsorted(low, np.arange(len(candidates) + 1) * span)
    return ptr, low % span, reach - low // span * span


def _starts(programs: Sequence[StepBlock], accesses: Mapping[int, Access], sizes: Int64) -> list[tuple[int, int]]:
    """Partial writes that begin a complete overwriting, in straight-line code without a read between.

    Returns:
        Step and variable of each.
    """
    found: list[tuple[int, int]] = []

    def look(items: Sequence[Step | StepBlock]) -> None:
        open_: dict[int, tuple[int, list[tuple[Int64, Int64]]]] = {}
        for item in _opened(items):
            if isinstance(item, StepBlock):
                open_.clear()
                for inner in item.items:
                    look([inner])
                continue
            access = accesses[item.index]
            if open_:
                for column in (access.reads, access.complete, access.undefined):
                    for variable in column.tolist():
                        open_.pop(variable, None)
            for variable, part in access.partial.items():
                if variable in access.reads:
                    continue
                first, parts = open_.setdefault(variable, (item.index, []))
                parts.append(part)
                if _covers(parts, int(sizes[variable])):
                    found.append((first, variable))
                    del open_[variable]

    for program in programs:
        look([program])
    return found


def _covers(parts: Sequence[tuple[Int64, Int64]], size: int) -> bool:
    """True if intervals of one variable cover its ``size`` elements."""
    if sum(int((end - begin).sum()) for begin, end in parts) < size:
        return False
    begin, end = (np.concatenate(side) for side in zip(*parts, strict=True))
    order = np.argsort(begin)
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    return int(reach[-1] - begin[0]) == size and bool((begin[1:] <= reach[:-1]).all())
