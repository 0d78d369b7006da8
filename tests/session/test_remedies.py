"""Programs that do not fit: compiled again with plans that need less memory, or refused with what was found."""

from __future__ import annotations

import logging

import pytest

from abele.errors import OutOfMemoryError
from abele.machine import System, systems
from abele.parallel import Network, NetworkBuilder, Schedule
from abele.parallel.ops import build
from abele.session import Settings, compile_network
from abele.session.remedies import NetworkCase, _has_room, fitted, found_advice


def chip(tiles: int) -> System:
    return systems.bow_2000().evolve(ipu={"num_tiles": tiles})


def product(rows: int, width: int) -> Network:
    net = NetworkBuilder()
    x = net.input((rows, width), "f32", "x")
    net.output(build.linear(net, x, net.parameter((width, width), "f32", "weight")))
    return net.finish()


def case(settings: Settings) -> NetworkCase:
    return NetworkCase(product(4, 4), Schedule(), None, settings)


def too_full(**tile: int) -> OutOfMemoryError:
    return OutOfMemoryError("too much", tiles=({"tile": 0, "available_bytes": 1000, **tile},))


def build_below(share: float, tried: list[float | None]) -> object:
    """A compiler to which only products planned with less than ``share`` of a tile fit."""

    def compile_(of: NetworkCase) -> tuple[object, object]:
        tried.append(of.settings.memory_proportion)
        if (of.settings.memory_proportion or 0.6) >= share:
            raise too_full(needed_bytes=1500, temporaries=900)
        return "ends", "executable"

    return compile_


def test_fitted__smaller_share__is_taken_and_told(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[float | None] = []
    with caplog.at_level(logging.INFO, "abele"):
        found, *made = fitted(case(Settings()), too_full(needed_bytes=1500, temporaries=900), build_below(0.2, tried))
    assert (tried, found.settings.memory_proportion) == ([0.3, 0.15], 0.15)
    assert made == ["ends", "executable"]
    assert "planned with 0.15 of a tile's memory instead of 0.6" in caplog.text


@pytest.mark.parametrize(
    ("settings", "tile"),
    [
        (Settings(memory_proportion=0.6), {"needed_bytes": 1500, "temporaries": 900}),
        (Settings(), {"needed_bytes": 1500, "temporaries": 100}),
        (Settings(), {"needed_bytes": 3500, "temporaries": 900}),
    ],
    ids=["share chosen by the user", "few temporaries", "too much beside them"],
)
def test_fitted__what_cannot_help_or_is_the_users__is_not_tried(settings: Settings, tile: dict[str, int]) -> None:
    tried: list[float | None] = []
    error = too_full(**tile)
    with pytest.raises(OutOfMemoryError) as caught:
        fitted(case(settings), error, build_below(1.0, tried))
    assert caught.value is error
    assert tried == []


def test_found_advice__smaller_batches__the_first_that_fits_leads() -> None:
    asked = []

    def smaller(parts: int) -> NetworkCase:
        asked.append(parts)
        return case(Settings(name=str(parts)))

    def compile_(of: NetworkCase) -> tuple[object, object]:
        if of.settings.name != "4":
            raise too_full(needed_bytes=1500, temporaries=900)
        return "ends", "executable"

    error = too_full(needed_bytes=1400, temporaries=900)
    lines = found_advice(case(Settings()), error, compile_, smaller).lines()
    assert asked == [2, 4]
    assert lines[0] == "a smaller micro-batch than 4, with 4 of them for the same run (tried: it fits)"
    assert lines[-1].startswith("Settings(allow_out_of_memory=True)")


def test_found_advice__batches_tried_in_vain__are_not_named() -> None:
    def compile_(of: NetworkCase) -> tuple[object, object]:
        raise too_full(needed_bytes=1500, temporaries=900)

    error = too_full(needed_bytes=1400, temporaries=900)
    untried = found_advice(case(Settings()), error, compile_, None).lines()
    tried = found_advice(case(Settings()), error, compile_, lambda parts: case(Settings())).lines()
    assert any("micro-batch" in line for line in untried)
    assert not any("micro-batch" in line or "tried" in line for line in tried)


def test_has_room__parts_of_temporaries__count_beside_the_rest() -> None:
    error = too_full(needed_bytes=2500, temporaries=1600)
    assert [parts for parts in (0, 2, 4, 8) if _has_room(error, parts)] == [0, 8]


def test_compile__temporaries_of_products_too_large__fits_with_a_smaller_share() -> None:
    net = product(1024, 1024)
    with pytest.raises(OutOfMemoryError, match=r"memory_proportion=0\.3.*tried: it fits"):
        compile_network(net, settings=Settings(system=chip(40), memory_proportion=0.6))
    compiled = compile_network(net, settings=Settings(system=chip(40)))
    assert compiled.settings.memory_proportion == 0.3
    assert compiled.executable.report.meta["options"]["memory_proportion"] == 0.3
