"""Schedules of programs over sync groups, against brute force that goes through every trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler.schedule import Item, RepeatedItems, Rows, schedule
from abele.compiler.timeline import Part

NUM_GROUPS = 4
LINKS = (("host", 0), ("host", 1), ("dram", 0))


@st.composite
def parts(draw: st.DrawFn) -> Part:
    label = draw(st.lists(st.integers(-1, 2), min_size=NUM_GROUPS, max_size=NUM_GROUPS).filter(lambda x: max(x) >= 0))
    meets = tuple(tuple(g for g in range(NUM_GROUPS) if label[g] == m) for m in sorted(set(label) - {-1}))
    cycles = draw(st.integers(0, 50))
    links = tuple(draw(st.sets(st.sampled_from(LINKS), max_size=2))) if len(meets) == 1 else ()
    return Part("compute", compute=cycles, meets=meets, links=links, link_cycles=draw(st.integers(0, cycles)))


@st.composite
def items(draw: st.DrawFn, rows: Iterator[int], depth: int = 3) -> tuple[Item, ...]:
    found: list[Item] = []
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            found.append(RepeatedItems(draw(st.sampled_from([0, 1, 2, 3, 7])), draw(items(rows, depth - 1))))
        else:
            row = next(rows)
            found.append(Rows(row, row + 1))
    return tuple(found)


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[Item, ...], list[Part]]:
    numbers = iter(range(10_000))
    program = draw(items(numbers))
    count = next(numbers)
    return program, draw(st.lists(parts(), min_size=count, max_size=count))


def rows_of(program: Sequence[Item]) -> Iterator[int]:
    for item in program:
        if isinstance(item, Rows):
            yield from range(item.first, item.end)
        else:
            for _ in range(int(item.trips)):
                yield from rows_of(item.items)


def brute_force(program: Sequence[Item], parts: Sequence[Part]) -> tuple[list[int], list[int]]:
    """First start of each row, and when each group is done, by walking through every trip."""
    free: dict[object, int] = {}
    starts = [-1] * len(parts)
    for row in rows_of(program):
        part = parts[row]
        begins = []
        for meet in part.meets:
            begin = max(free.get(g, 0) for g in meet)
            for link in part.links:
                begin = max(begin, free.get(link, 0) - (part.cycles - part.link_cycles))
            for needed in (*meet, *part.links):
                free[needed] = begin + part.cycles
            begins.append(begin)
        if starts[row] < 0:
            starts[row] = min(begins)
    return starts, [free.get(g, 0) for g in range(NUM_GROUPS)]


@given(programs(), st.sampled_from([0, 3, 1000]))
def test_schedule__nested_loops__equals_every_trip_walked(
    program: tuple[tuple[Item, ...], list[Part]], traced: int
) -> None:
    found = schedule(*program, NUM_GROUPS, traced=traced)
    starts, free = brute_force(*program)
    assert found.free.tolist() == free
    assert found.end == max(free)
    ran = set(rows_of(program[0]))
    assert [s for r, s in enumerate(found.starts.tolist()) if r in ran] == [s for s in starts if s >= 0]


@given(programs())
def test_schedule__trace__lists_executions_as_they_happen(program: tuple[tuple[Item, ...], list[Part]]) -> None:
    found = schedule(*program, NUM_GROUPS, traced=20)
    expected = [(r, m) for r in rows_of(program[0]) for m in range(len(program[1][r].meets))]
    assert [(s.row, s.meet) for s in found.trace] == expected[: len(found.trace)]
    assert all(s.end - s.start == program[1][s.row].cycles for s in found.trace)


@given(programs())
def test_schedule__groups_apart__never_take_longer_than_one_group(
    program: tuple[tuple[Item, ...], list[Part]],
) -> None:
    tree, rows = program
    together = [replace(p, meets=((0,),)) for p in rows]
    assert schedule(tree, together, 1).end == sum(rows[r].cycles for r in rows_of(tree))
    assert schedule(tree, rows, NUM_GROUPS).end <= schedule(tree, together, 1).end


@given(programs(), st.data())
def test_schedule__more_work__never_ends_sooner(
    program: tuple[tuple[Item, ...], list[Part]], data: st.DataObject
) -> None:
    tree, rows = program
    row = data.draw(st.integers(0, len(rows) - 1))
    more = [replace(p, compute=p.compute + 5) if r == row else p for r, p in enumerate(rows)]
    assert schedule(tree, more, NUM_GROUPS).end >= schedule(tree, rows, NUM_GROUPS).end


def test_schedule__a_billion_trips_of_two_groups_that_drift_apart__is_exact() -> None:
    # Group 1 is quicker on its own and starts far behind: it waits for group 0 only from some trip on, which no look
    # at the first trips would tell.
    meeting = Part("compute", compute=1, meets=((0, 1),))
    rows = [
        Part("compute", compute=1_000_000, meets=((1,),)),
        Part("compute", compute=100, meets=((0,),)),
        Part("compute", compute=99, meets=((1,),)),
        meeting,
    ]
    found = schedule((Rows(0, 1), RepeatedItems(10**9, (Rows(1, 3),)), Rows(3, 4)), rows, 2, traced=0)
    assert found.end == 100 * 10**9 + 1
    assert found.starts.tolist() == [0, 0, 1_000_000, 100 * 10**9]


def test_schedule__branch_taken_in_a_part_of_all_trips__counts_so_much() -> None:
    rows = [Part("compute", compute=100), Part("compute", compute=40)]
    found = schedule((RepeatedItems(10, (Rows(0, 1), RepeatedItems(0.3, (Rows(1, 2),)))),), rows, 1)
    assert found.end == 10 * (100 + 12)


@pytest.mark.parametrize("trips", [0, 3, 10**12])
def test_schedule__loops_in_which_nothing_runs__take_no_time(trips: int) -> None:
    rows = [Part("compute", compute=5)]
    found = schedule((RepeatedItems(trips, ()), RepeatedItems(trips, (RepeatedItems(0, (Rows(0, 1),)),))), rows, 2)
    assert (found.end, found.trace, found.starts.tolist()) == (0, (), [-1])
