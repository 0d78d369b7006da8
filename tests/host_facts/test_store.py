"""Facts measured once on a host."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from abele.host_facts import forget, host_name, measured, rates


@dataclass(frozen=True)
class Costs:
    seconds: float
    sizes: list[int]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(rates, "_known", {})
    return tmp_path / "cache"


def counting():
    calls = []

    def measure() -> Costs:
        calls.append(None)
        return Costs(0.5 + len(calls), [1, 2])

    return calls, measure


def in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_known", {})


def test_measured__asked_again__measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, measure = counting()
    first = measured("costs", 1, Costs, measure)
    assert measured("costs", 1, Costs, measure) == first
    in_another_process(monkeypatch)
    assert measured("costs", 1, Costs, measure) == first
    assert len(calls) == 1


def test_measured__another_version_or_name__is_another_fact() -> None:
    calls, measure = counting()
    found = [measured(name, version, Costs, measure) for name, version in (("a", 1), ("a", 2), ("b", 1))]
    assert len(calls) == 3
    assert len({f.seconds for f in found}) == 3


@pytest.mark.parametrize("content", [b"", b"{", b'{"seconds": "soon", "sizes": []}', b"\xff\x00", b"[]"])
def test_measured__damaged_file__is_measured_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    calls, measure = counting()
    measured("costs", 1, Costs, measure)
    (path,) = folder.glob("host/*/costs-1.json")
    path.write_bytes(content)
    in_another_process(monkeypatch)
    assert measured("costs", 1, Costs, measure).seconds == 2.5
    in_another_process(monkeypatch)
    assert measured("costs", 1, Costs, measure).seconds == 2.5
    assert len(calls) == 2


def test_measured__cache_switched_off__keeps_it_in_the_process_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABELE_CACHE_DIR", "off")
    calls, measure = counting()
    measured("costs", 1, Costs, measure)
    measured("costs", 1, Costs, measure)
    assert len(calls) == 1
    assert not folder.exists()


def test_measured__folder_that_cannot_be_written__is_no_error(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    _, measure = counting()
    assert measured("costs", 1, Costs, measure) == Costs(1.5, [1, 2])


def test_measured__another_host__has_facts_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, measure = counting()
    measured("costs", 1, Costs, measure)
    monkeypatch.setattr(rates, "host_name", lambda: "another one, 512 cores")
    measured("costs", 1, Costs, measure)
    assert len(calls) == 2


def test_forget__what_was_measured__is_measured_again(folder: Path) -> None:
    calls, measure = counting()
    measured("costs", 1, Costs, measure)
    measured("others", 1, Costs, measure)
    assert forget() == 2
    assert forget() == 0
    measured("costs", 1, Costs, measure)
    assert len(calls) == 3


def test_host_name__ends_in_its_cores() -> None:
    assert host_name().endswith(("core", "cores"))
