"""The critical path, against chains that are walked one execution at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler.critical import critical_cycles
from abele.compiler.schedule import Item, RepeatedItems, Rows, schedule
from abele.compiler.timeline import Part
from support.examples import examples

parts = st.lists(
    st.builds(
        lambda cycles, groups, link, late: Part(
            "stream" if link else "compute",
            compute=0 if link else cycles,
            host=cycles if link else 0,
            meets=(tuple(sorted(groups)),),
            links=(("host", 0),) if link else (),
            link_cycles=min(late, cycles) if link else 0,
        ),
        st.integers(1, 50),
        st.sets(st.integers(0, 3), min_size=1, max_size=3),
        st.booleans(),
        st.integers(0, 30),
    ),
    min_size=6,
    max_size=6,
)
loops = st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 3))


def program(shape: tuple[int, int, int]) -> list[Item]:
    """Rows 0 to 5: some, then a loop with a loop in it, then the last."""
    first, trips, inner = shape
    return [
        Rows(0, first),
        RepeatedItems(float(trips), (Rows(first, 4), RepeatedItems(float(inner), (Rows(4, 5),)))),
        Rows(5, 6),
    ]


def walked(items: Sequence[Item]) -> list[int]:
    rows: list[int] = []
    for item in items:
        if isinstance(item, Rows):
            rows += range(item.first, item.end)
        else:
            rows += int(item.trips) * walked(item.items)
    return rows


def chain(rows: list[int], made: Sequence[Part]) -> np.ndarray:
    """Cycles of each row on the chain to the end, with every execution kept."""
    free: dict[object, tuple[int, int]] = {}
    executions: list[tuple[int, int, int]] = []
    for row in rows:
        part = made[row]
        latency = part.cycles - part.link_cycles
        waits = [(free.get(g, (0, -1)), 0) for g in part.meets[0]]
        waits += [((free.get(link, (0, -1))[0], free.get(link, (0, -1))[1]), latency) for link in part.links]
        (time, before), overlap = max(waits, key=lambda w: w[0][0] - w[1])
        end = time - overlap + part.cycles
        executions.append((row, before, part.cycles - overlap))
        for key in (*part.meets[0], *part.links):
            free[key] = (end, len(executions) - 1)
    total, at = np.zeros(len(made)), max(free.values())[1]
    while at >= 0:
        row, at_before, cycles = executions[at]
        total[row] += cycles
        at = at_before
    return total


@examples(30)
@given(parts, loops)
def test_critical_cycles__any_program__add_up_to_the_run(made: list[Part], shape: tuple[int, int, int]) -> None:
    items = program(shape)
    found = critical_cycles(items, made)
    assert found.sum() == pytest.approx(schedule(items, made, 4).end)
    assert (found >= 0).all()
    # Of chains that are equally long either may be told, so a row that is not tied is compared by making it longer.
    assert chain(walked(items), made).sum() == pytest.approx(found.sum())


def test_critical_cycles__a_row_that_gets_shorter__shortens_the_run_by_what_is_on_the_path() -> None:
    """The derivative of the run by a row's cycles is how often the row is on the path."""
    made = [Part("compute", compute=c, meets=(g,)) for c, g in ((10, (0,)), (7, (1,)), (3, (0, 1)), (20, (1,)))]
    items: list[Item] = [RepeatedItems(1000.0, (Rows(0, 4),))]
    before = schedule(items, made, 2).end
    found = critical_cycles(items, made)
    for row, part in enumerate(made):
        longer = [*made[:row], Part("compute", compute=part.compute + 1, meets=part.meets), *made[row + 1 :]]
        assert schedule(items, longer, 2).end - before == found[row] / part.compute


def test_critical_cycles__a_million_trips__are_as_quick_as_a_few() -> None:
    made = [Part("compute", compute=c, meets=(g,)) for c, g in ((5, (0,)), (9, (1,)), (1, (0, 1)))]
    found = critical_cycles([RepeatedItems(1e6, (Rows(0, 3),))], made)
    assert found.tolist() == [0, 9e6, 1e6]


def test_critical_cycles__part_of_a_trip__counts_in_part() -> None:
    made = [Part("compute", compute=10), Part("compute", compute=4)]
    assert critical_cycles([Rows(0, 1), RepeatedItems(2.5, (Rows(1, 2),))], made).tolist() == [10, 10]


def test_critical_cycles__nothing__is_nothing() -> None:
    assert critical_cycles([], [Part("compute", compute=3)]).tolist() == [0]
