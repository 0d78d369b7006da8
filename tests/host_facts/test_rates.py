"""The rates of this machine."""

import pytest

from abele.host_facts import MachineRates, rates


def test_measure_rates__any_machine__does_and_moves_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_ARRAY_BYTES", 1 << 20)
    monkeypatch.setattr(rates, "_MULTIPLY_ADDS", 1 << 14)
    monkeypatch.setattr(rates, "num_threads", lambda: 2)
    found = rates.measure_rates()
    assert found.threads == 2
    # Slower than 100 M a second, or faster than 64 lanes four times a cycle at 6 GHz, is no processor that there is.
    for rate in (found.flops_per_second, found.all_flops_per_second / 2):
        assert 1e8 < rate < 4e12
    for rate in (found.bytes_per_second, found.all_bytes_per_second / 2):
        assert 1e7 < rate < 4e12


def test_rates__of_some_threads__lie_between_those_of_one_and_all() -> None:
    machine = MachineRates(5, 10.0, 100.0, 30.0, 180.0)
    assert [machine.flops_of(n) for n in (1, 2, 3, 5, 8)] == [10, 15, 20, 30, 30]
    assert machine.bytes_of(3) == 140


def test_rates__of_a_single_core__are_those_of_one_thread() -> None:
    assert MachineRates(1, 10.0, 100.0, 10.0, 100.0).flops_of(4) == 10
