"""The rates of this machine."""

import pytest

from abele.host_facts import rates


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
