"""Rates beside a loop of multiply-adds, on machines that are calm and on others."""

import itertools
from collections.abc import Callable

import pytest

from abele.host_facts import UnsettledError, calm, share_of_arithmetic
from abele.host_facts.rates import ArithmeticLoop

OPERATIONS = 64.0
LOOP, RUN = 2e-5, 1e-6
"""Seconds of a loop, and of one run."""
AROUND, TURNS = 2e-6, 1 << 13
"""Seconds of a call that does nothing, and turns of a loop."""


class Clock:
    """Stands for the machine: a run takes ``RUN`` times how slow it is, by how often the clock was read."""

    def __init__(self, slowness: Callable[[int], float]) -> None:
        self.slowness, self.reads = slowness, 0

    def seconds(self, run: Callable[[int], None], times: int) -> float:
        self.reads += 1
        taken = LOOP * times / TURNS if run is self.loop else RUN * times
        return AROUND + taken * self.slowness(self.reads)

    def loop(self, turns: int) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], Clock]:
    def install(slowness: Callable[[int], float]) -> Clock:
        clock = Clock(slowness)
        loop = ArithmeticLoop(clock.loop, 16)
        clock.loop = loop.run  # type: ignore[method-assign]
        monkeypatch.setattr(calm, "arithmetic_loop", lambda: loop)
        monkeypatch.setattr(calm, "seconds", clock.seconds)
        return clock

    return install


def share() -> float:
    return share_of_arithmetic(lambda times: None, OPERATIONS)


EXPECTED = (OPERATIONS / RUN) / (TURNS * 16 / LOOP)


def test_share__on_a_calm_machine__is_that_of_both_rates(clock) -> None:
    clock(lambda read: 1.0)
    assert share() == pytest.approx(EXPECTED, rel=1e-3)


def test_share__of_a_slower_clock__is_the_same(clock) -> None:
    clock(lambda read: 3.0)
    assert share() == pytest.approx(EXPECTED, rel=1e-3)


@pytest.mark.parametrize("change", [3, 10, 31, 60])
def test_share__where_the_clock_halves_on_the_way__is_the_same(clock, change: int) -> None:
    clock(lambda read: 1.0 if read < change else 2.0)
    assert share() == pytest.approx(EXPECTED, rel=0.01)


def test_share__with_interrupts__counts_the_least(clock) -> None:
    clock(lambda read: 4.0 if read % 7 == 0 else 1.0)
    assert share() == pytest.approx(EXPECTED, rel=1e-3)


def test_share__where_nothing_is_ever_calm__is_refused(clock, monkeypatch: pytest.MonkeyPatch) -> None:
    made = clock(lambda read: 1.0)
    # Slow before each run and fast behind it, or the other way round.
    swinging = itertools.cycle([LOOP] * 4 + [1.5 * LOOP] * 4)
    monkeypatch.setattr(calm, "seconds", lambda run, n: next(swinging) if run is made.loop else made.seconds(run, n))
    with pytest.raises(UnsettledError, match="swings by more than 15%"):
        share()
    assert made.reads < 2000


def test_share__of_something_real__is_within_reason() -> None:
    loop = calm.arithmetic_loop()
    # The loop beside itself: ten turns of it.
    assert share_of_arithmetic(lambda times: loop.run(10 * times), 10 * loop.operations) == pytest.approx(1.0, rel=0.3)
