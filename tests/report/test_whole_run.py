"""Parts of runs, unfolded from spans in loops, against brute force."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import InvalidOptionError
from abele.report import GROUPS, RUN_LOOPS, RUN_SPANS, STEPS, Report, Table


@st.composite
def runs(draw: st.DrawFn) -> tuple[Table, Table]:
    """Spans of two programs in loops in loops."""
    count = draw(st.integers(0, 4))
    loops = RUN_LOOPS.table(
        parent=[draw(st.sampled_from([-1, *range(k + 1, count)])) for k in range(count)],
        trips=[draw(st.integers(1, 4)) for _ in range(count)],
        period_cycles=[draw(st.integers(1, 40)) for _ in range(count)],
    )
    size = draw(st.integers(0, 6))
    spans = RUN_SPANS.table(
        program=sorted(draw(st.integers(0, 1)) for _ in range(size)),
        step=np.arange(size) % 5,
        first_group=np.zeros(size),
        start_cycle=[draw(st.integers(0, 60)) for _ in range(size)],
        cycles=[draw(st.integers(0, 30)) for _ in range(size)],
        loop=[draw(st.integers(-1, count - 1)) for _ in range(size)],
    )
    return spans, loops


def brute_force(spans: Table, loops: Table, program: int) -> Iterator[tuple[int, int, int]]:
    """Start, step and cycles of every execution."""
    for row in spans.rows():
        offsets, loop = [0], row["loop"]
        while loop >= 0:
            period = int(loops["period_cycles"][loop])
            offsets = [o + k * period for o in offsets for k in range(int(loops["trips"][loop]))]
            loop = int(loops["parent"][loop])
        if row["program"] == program:
            yield from ((row["start_cycle"] + o, row["step"], row["cycles"]) for o in offsets)


@given(runs(), st.integers(0, 400), st.integers(0, 200), st.integers(0, 1))
def test_spans_between__any_part__has_what_reaches_into_it(
    report: Report, run: tuple[Table, Table], first: int, length: int, program: int
) -> None:
    found = replace(report, run_spans=run[0], run_loops=run[1]).spans_between(first, first + length, program=program)
    expected = [
        each for each in brute_force(*run, program) if each[0] < first + length and each[0] + max(each[2], 1) > first
    ]
    columns = (found[name].tolist() for name in ("start_cycle", "step", "cycles"))
    assert sorted(zip(*columns, strict=True)) == sorted(expected)
    assert (np.diff(found["start_cycle"]) >= 0).all()


def looped(report: Report, trips: int) -> Report:
    return replace(
        report,
        run_spans=RUN_SPANS.table(program=[0], step=[0], first_group=[0], start_cycle=[0], cycles=[5], loop=[0]),
        run_loops=RUN_LOOPS.table(parent=[1, -1], trips=[trips, trips], period_cycles=[10, 10 * trips]),
    )


def test_spans_between__short_part_of_a_long_run__costs_what_is_in_it(report: Report) -> None:
    long = looped(report, 1_000_000)
    start = time.process_time()
    found = long.spans_between(5_000_000_000_000, 5_000_000_000_100)
    assert time.process_time() - start < 0.5
    assert found["start_cycle"].tolist() == [5_000_000_000_000 + 10 * k for k in range(10)]


def test_spans_between__too_much_at_once__is_refused(report: Report) -> None:
    with pytest.raises(InvalidOptionError, match=r"1,000,000 spans or more .* at most 1,000 are taken\n  try"):
        looped(report, 1000).spans_between(0, 1 << 40, most=1000)


def test_spans_between__hostile_loops__end(report: Report) -> None:
    n = 100_000
    loops = RUN_LOOPS.table(parent=[*range(1, n), -1], trips=1 << 44, period_cycles=1 << 44)
    spans = RUN_SPANS.table(program=[0], step=[0], first_group=[0], start_cycle=[0], cycles=[1 << 40], loop=[0])
    start = time.process_time()
    found = replace(report, run_spans=spans, run_loops=loops).spans_between(0, 10)
    assert time.process_time() - start < 1.0
    assert len(found) == 1


def test_spans_between__version_without_them__is_empty(report: Report) -> None:
    assert len(replace(report, groups=GROUPS.empty(), steps=STEPS.empty()).spans_between(0, 100)) == 0
