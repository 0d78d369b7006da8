"""The profile of the host: leaves on which threads were idle, and what instructions are of the machine's rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.report import HOST_FUNCTIONS, HOST_LEAVES, HostProfile, Table

RATES = {
    "threads": 4, "flops_per_second": 1e9, "bytes_per_second": 1e9,
    "all_flops_per_second": 4e9, "all_bytes_per_second": 4e9,
}  # fmt: skip


def profile(threads: int, functions: Table | None = None, **columns: Any) -> HostProfile:
    """A profile whose leaves have the given columns."""
    size = max(len(c) for c in columns.values())
    leaves = HOST_LEAVES.table(
        **{"name": ["leaf"] * size, "kind": ["kernel"] * size, "executions": [1] * size} | columns
    )
    facts = {"threads": threads, "rates": RATES}
    return HostProfile(leaves, HOST_FUNCTIONS.empty() if functions is None else functions, facts)


def reason(threads: int = 2, functions: Table | None = None, **columns: Any) -> str:
    (found,) = profile(threads, functions, seconds=[1.0], **columns).idle_threads
    return found.reason


def test_idle_threads__of_units_that_do_not_divide__says_how_many() -> None:
    assert reason(units=[3], balance=[0.75]) == "3 units for 2 threads: one of them has 2"
    assert reason(16, units=[20], balance=[0.6]) == "20 units for 16 threads: one of them has 2"


def test_idle_threads__of_one_unit__says_that_nothing_is_shared() -> None:
    assert reason(units=[1], balance=[0.5]).startswith("one unit")
    assert "Python" in reason(units=[1], balance=[0.5], kind=["callback"])


def test_idle_threads__of_functions_side_by_side__names_the_longest() -> None:
    functions = HOST_FUNCTIONS.table(
        leaf=[0, 0], name=["short", "long"], seconds=[0.1, 0.9], busy_seconds=[0.1, 0.95], calls=[1, 1]
    )
    assert reason(functions=functions, units=[8], balance=[0.55]).endswith("most of long")


def test_idle_threads__of_units_that_divide__blames_their_time() -> None:
    assert "unequal time" in reason(units=[64], balance=[0.7])


def test_idle_threads__of_one_thread_balanced_or_short_leaves__are_none() -> None:
    assert profile(1, units=[1], seconds=[1.0], balance=[0.5]).idle_threads == ()
    assert profile(2, units=[1], seconds=[1.0], balance=[0.8]).idle_threads == ()
    short = profile(2, units=[64, 1], seconds=[1.0, 0.01], balance=[1.0, 0.5])
    assert short.idle_threads == ()
    assert profile(2, units=[], seconds=[], balance=[]).idle_threads == ()


def test_idle_threads__of_several_leaves__come_by_what_is_lost_in_text_and_json() -> None:
    found = profile(2, name=["a", "b"], units=[1, 3], seconds=[1.0, 3.0], balance=[0.5, 0.75])
    assert [f.leaf for f in found.idle_threads] == [1, 0]
    assert [f.lost_seconds for f in found.idle_threads] == [0.75, 0.5]
    lines = found.text().splitlines()
    assert "balance 75 % on 75 % of the time, 750 ms lost: b: 3 units" in lines[-2].replace("%", " %").replace(
        "  ", " "
    )
    assert found.to_json()["idle_threads"][1]["name"] == "a"


@pytest.mark.parametrize(
    ("flops", "slots", "expected"), [(10**9, 0, 1.0), (0, 2 * 10**8, 0.4), (10**8, 5 * 10**7, 0.1)]
)
def test_machine_share__of_instructions__counts_two_operations_each(flops: int, slots: int, expected: float) -> None:
    found = profile(1, seconds=[1.0], flops=[flops], slots=[slots])
    np.testing.assert_allclose(found.machine_share, [expected])
    assert f"{expected:.0%}" in found.text()
