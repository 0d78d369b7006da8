"""Every execution of a program in few spans, against brute force that goes through every trip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler.schedule import Item, RepeatedItems, Rows
from abele.compiler.timeline import Part
from abele.compiler.whole_run import WholeRun, whole_run
from compiler.test_timeline_schedule import NUM_GROUPS, programs, rows_of

Execution = tuple[int, int, int, int]


def brute_force(program: Sequence[Item], parts: Sequence[Part]) -> Iterator[Execution]:
    """Row, meet, start and end of every execution, by walking through every trip."""
    free: dict[object, int] = {}
    for row in rows_of(program):
        part = parts[row]
        for number, meet in enumerate(part.meets):
            begin = max(free.get(g, 0) for g in meet)
            for link in part.links:
                begin = max(begin, free.get(link, 0) - (part.cycles - part.link_cycles))
            for needed in (*meet, *part.links):
                free[needed] = begin + part.cycles
            yield row, number, begin, begin + part.cycles


def unfolded(run: WholeRun) -> Iterator[Execution]:
    """Every execution that the spans stand for."""
    for row, meet, start, end, loop in zip(*(c.tolist() for c in run[:5]), strict=True):
        offsets = [0]
        while loop >= 0:
            assert run.parent[loop] < 0 or run.parent[loop] > loop
            period = int(run.period[loop])
            offsets = [offset + trip * period for offset in offsets for trip in range(int(run.trips[loop]))]
            loop = int(run.parent[loop])
        yield from ((row, meet, start + offset, end + offset) for offset in offsets)


@given(programs())
def test_whole_run__nested_loops__stands_for_every_trip_walked(program: tuple[tuple[Item, ...], list[Part]]) -> None:
    run = whole_run(*program, NUM_GROUPS)
    assert Counter(unfolded(run)) == Counter(brute_force(*program))
    assert set(run.known.tolist()) <= {-1}


@given(programs(), st.integers(0, 12))
def test_whole_run__too_little_room__tells_all_up_to_where_it_says(
    program: tuple[tuple[Item, ...], list[Part]], most: int
) -> None:
    run, (_, parts) = whole_run(*program, NUM_GROUPS, most=most), program
    assert len(run.row) <= most
    told, all_ = Counter(unfolded(run)), Counter(brute_force(*program))
    assert not told - all_
    for row, meet, start, end in all_ - told:
        for group in parts[row].meets[meet]:
            assert 0 <= run.known[group] <= start or start == end


def alone(group: int, cycles: int) -> Part:
    return Part("compute", compute=cycles, meets=((group,),))


def test_whole_run__loop_of_a_million_trips__is_the_spans_of_one() -> None:
    parts = [alone(0, 3), alone(1, 5), Part("exchange", exchange=2, meets=((0, 1),))]
    inner = RepeatedItems(10, (Rows(0, 2),))
    run = whole_run((RepeatedItems(1_000_000, (inner, Rows(2, 3))),), parts, 2)
    # Both IPUs go through the inner loop at their own pace, and meet once in each trip of the outer one.
    assert sorted(run.period.tolist()) == [3, 5, 52]
    assert len(run.row) == 3
    assert run.known.tolist() == [-1, -1]


def test_whole_run__groups_that_never_meet__have_loops_of_their_own() -> None:
    run = whole_run((RepeatedItems(1000, (Rows(0, 2),)),), [alone(0, 3), alone(1, 5)], 2)
    assert sorted(zip(run.trips.tolist(), run.period.tolist(), strict=True)) == [(1000, 3), (1000, 5)]
    assert len(run.row) == 2


@pytest.mark.parametrize("trips", [0.5, 2.5])
def test_whole_run__parts_of_trips__take_their_part_of_the_cycles(trips: float) -> None:
    run = whole_run((RepeatedItems(trips, (Rows(0, 1),)),), [alone(0, 10)], 1)
    assert sum(end - start for _, _, start, end in unfolded(run)) == 10 * trips
