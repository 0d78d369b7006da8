"""Programs that do not fit: compiled again with plans that need less memory, or refused with what was found."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from abele.errors import NetworkError, OutOfMemoryError
from abele.machine import System, systems
from abele.network import Adam, Group, Locations, Network, NetworkBuilder, Schedule, Sgd, TensorLocation
from abele.network.ops import build
from abele.report import Report
from abele.runtime.engine.run_log import REPORT_NAME
from abele.session import Settings, compile_network
from abele.session.remedies import Halved, NetworkCase, _has_room, fitted, found_advice, layers_shared


def chip(tiles: int) -> System:
    return systems.bow_2000().evolve(ipu={"num_tiles": tiles})


def product(rows: int, width: int, dtype: str = "f32") -> Network:
    net = NetworkBuilder()
    x = net.input((rows, width), dtype, "x")
    net.output(build.linear(net, x, net.parameter((width, width), dtype, "weight")))
    return net.finish()


@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_compile_network__shared_functions__send_operands_of_large_products_in_halves(kind: str) -> None:
    for shared in (False, True):
        net = NetworkBuilder()
        x, weight = net.input((64, 1024), "f16", "x"), net.parameter((128, 1024), "f16", "weight")
        product = (
            build.linear(net, x, weight)
            if kind == "linear"
            else build.matmul(net, x, build.permute(net, weight, (1, 0)))
        )
        net.output(product)
        compiled = compile_network(net.finish(), settings=Settings(system=chip(4), shared_functions=shared))
        names = compiled.executable.report.steps["name"]
        assert sum(name.endswith("/partials") for name in names) == 1 + shared


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
    assert not any("micro-batch" in line or "(tried" in line for line in tried)


HOPEFUL = too_full(needed_bytes=1500, temporaries=900, variables=500)
HALF = "half precision: weights and inputs of type f16"


def halved_lines(halved: Halved | None, *, fitting: str) -> list[str]:
    """The advice where the networks of this name fit."""

    def compile_(of: NetworkCase) -> tuple[object, object]:
        if of.settings.name != fitting:
            raise HOPEFUL
        return "ends", "executable"

    return found_advice(case(Settings(memory_proportion=0.6)), HOPEFUL, compile_, halved=halved).lines()


def half_case() -> NetworkCase:
    return case(Settings(name="half"))


def test_found_advice__half_precision_that_fits__leads() -> None:
    assert halved_lines(half_case, fitting="half")[0] == f"{HALF} (tried: it fits)"


def test_found_advice__half_precision_tried_in_vain__is_not_named() -> None:
    assert not any("half" in line for line in halved_lines(half_case, fitting="none"))


def test_found_advice__half_precision_that_was_not_tried__says_why() -> None:
    def fails() -> NetworkCase:
        raise NetworkError("the layer casts to f32")

    assert f"{HALF} (not tried: the front end makes no network of f16)" in halved_lines(None, fitting="none")
    assert f"{HALF} (not tried: the layer casts to f32)" in halved_lines(fails, fitting="none")
    assert f"{HALF} (not tried: what is said first fits)" in halved_lines(half_case, fitting="network")


def test_found_advice__half_of_the_data_too_much__is_not_tried() -> None:
    def asked() -> NetworkCase:
        raise AssertionError("it was")

    error = too_full(needed_bytes=3000, temporaries=900, variables=1500)
    assert not found_advice(case(Settings()), error, build_below(0, []), halved=asked).halve


def test_found_advice__smaller_batches_that_cannot_be_recorded__are_not_named() -> None:
    def smaller(parts: int) -> NetworkCase:
        raise NetworkError("the model says its batch")

    found = found_advice(case(Settings()), HOPEFUL, build_below(0, []), smaller)
    assert found.batch is None


def test_found_advice__what_was_tried_in_vain_before__is_not_named_beside_what_fits() -> None:
    def compile_(of: NetworkCase) -> tuple[object, object]:
        if of.settings.name != "cut":
            raise HOPEFUL
        return "ends", "executable"

    settings = Settings(memory_proportion=0.6)
    lines = found_advice(case(settings), HOPEFUL, compile_, lambda parts: case(Settings(name="cut"))).lines()
    assert "micro-batch" in lines[0]
    assert not any("memory_proportion" in line for line in lines)


@pytest.mark.parametrize(
    ("fits", "tried"),
    [(TensorLocation(sharded=True), "share_state"), (TensorLocation(on_chip=False), "state_off_chip")],
)
def test_found_advice__state_that_is_too_much__is_tried_elsewhere(fits: TensorLocation, tried: str) -> None:
    net = product(4, 64)
    groups = (Group(Adam(), net.parameters),)
    usual = NetworkCase(net, Schedule(replicas=2), groups, Settings(memory_proportion=0.6))

    def compile_(of: NetworkCase) -> tuple[object, object]:
        if of.schedule.locations.optimiser == fits:
            return "ends", "executable"
        raise too_full(needed_bytes=1020)

    # 2 · 4 · 64 · 64 bytes of state are 22 of each tile.
    found = found_advice(usual, too_full(needed_bytes=1020), compile_)
    assert found.tried == tried
    assert f"TensorLocation({'sharded=True' if fits.sharded else 'on_chip=False'})" in found.lines()[0]
    assert found.lines()[0].endswith("(tried: it fits)")


@pytest.mark.usefixtures("whole_machine")
def test_found_advice__state_that_is_not_what_lacks__is_not_tried() -> None:
    net = product(4, 64)
    away = Schedule(replicas=2, locations=Locations(TensorLocation(on_chip=False)))
    for schedule, optimiser, needed in (
        (Schedule(replicas=2), Adam(), 1040),
        (Schedule(replicas=2), Sgd(lr=0.1), 1010),
        (away, Adam(), 1010),
    ):
        of = NetworkCase(net, schedule, (Group(optimiser, net.parameters),), Settings(memory_proportion=0.6))

        def compile_(of: NetworkCase, given: Schedule = schedule) -> tuple[object, object]:
            if of.schedule == given:
                raise too_full(needed_bytes=5000)
            return "ends", "executable"

        found = found_advice(of, too_full(needed_bytes=needed), compile_)
        assert (found.share_state, found.state_off_chip) == (False, False)


def test_has_room__parts_of_temporaries__count_beside_the_rest() -> None:
    error = too_full(needed_bytes=2500, temporaries=1600)
    assert [parts for parts in (0, 2, 4, 8) if _has_room(error, parts)] == [0, 8]


def test_found_advice__partial_sums_of_halves__are_tried_in_f16() -> None:
    def compile_(of: NetworkCase) -> tuple[object, object]:
        if of.settings.partials != "f16":
            raise HOPEFUL
        return "ends", "executable"

    halves = NetworkCase(product(4, 4, "f16"), Schedule(), None, Settings(memory_proportion=0.6))
    first = found_advice(halves, HOPEFUL, compile_).lines()[0]
    assert first == 'Settings(partials="f16"): partial sums of products in half precision (tried: it fits)'
    assert not found_advice(case(Settings()), HOPEFUL, compile_).partials


def test_compile__partial_sums_in_f16__are_in_the_report() -> None:
    compiled = compile_network(product(4, 4, "f16"), settings=Settings(system=chip(20), partials="f16"))
    assert compiled.executable.report.meta["options"]["partials"] == "f16"


def test_compile__does_not_fit__leaves_its_report_where_options_of_the_environment_ask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = {"autoReport.outputGraphProfile": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    with pytest.raises(OutOfMemoryError, match="tried: it fits") as caught:
        compile_network(product(1024, 1024), settings=Settings(system=chip(32), memory_proportion=0.6))
    assert caught.value.report_path == tmp_path / "inference" / REPORT_NAME
    report = Report.load(tmp_path / "inference" / REPORT_NAME)
    assert not report.memory.fits
    assert "weight" in report.variables["role"]
    assert report.meta["options"]["memory_proportion"] == 0.6


def test_compile__temporaries_of_products_too_large__fits_with_a_smaller_share() -> None:
    net = product(1024, 1024)
    with pytest.raises(OutOfMemoryError, match=r"memory_proportion=0\.3.*tried: it fits"):
        compile_network(net, settings=Settings(system=chip(32), memory_proportion=0.6))
    compiled = compile_network(net, settings=Settings(system=chip(32)))
    assert compiled.settings.memory_proportion == 0.3
    assert compiled.executable.report.meta["options"]["memory_proportion"] == 0.3


def blocks(count: int) -> Network:
    net = NetworkBuilder()
    x = net.input((4, 8), "f32", "x")
    for number in range(count):
        w = net.parameter((8, 8), "f32", f"{number}.weight")
        y = build.nonlinearity(net, "gelu", build.linear(net, x, w))
        y = build.softmax(net, build.nonlinearity(net, "tanh", build.linear(net, y, w)), 1)
        y = build.nonlinearity(net, "sigmoid", build.linear(net, y, w))
        x = build.total(net, [x, build.softmax(net, build.nonlinearity(net, "gelu", y), 1)])
    net.output(x)
    return net.finish()


FULL_OF_CODE = too_full(needed_bytes=1500, temporaries=900, exchange_code=400, vertex_state=200)


def test_layers_shared__code_of_repeated_layers__is_held_once_and_told(caplog: pytest.LogCaptureFixture) -> None:
    of = NetworkCase(blocks(6), Schedule(), None, Settings())
    with caplog.at_level(logging.INFO, "abele"):
        attempt = layers_shared(of, FULL_OF_CODE, lambda changed: ("ends", changed.settings.shared_functions))
    assert attempt.made == ("ends", True)
    assert "repeated layers are functions of which the machine has one copy, so that it fits" in caplog.text


@pytest.mark.parametrize(
    ("count", "settings", "error"),
    [
        (1, Settings(), FULL_OF_CODE),
        (6, Settings(shared_functions=True), FULL_OF_CODE),
        (6, Settings(), too_full(needed_bytes=1500, temporaries=900, exchange_code=300)),
    ],
    ids=["no repeated layers", "asked for", "too little code"],
)
def test_layers_shared__what_cannot_help__is_not_tried(count: int, settings: Settings, error: OutOfMemoryError) -> None:
    of = NetworkCase(blocks(count), Schedule(), None, settings)
    attempt = layers_shared(of, error, build_below(0, tried := []))
    assert (attempt.case, attempt.made, attempt.error) == (of, None, error)
    assert tried == []


@pytest.mark.parametrize(("needed", "kept"), [(1200, True), (1600, False)])
def test_layers_shared__too_large_as_well__is_kept_where_it_came_closer(needed: int, kept: bool) -> None:
    of = NetworkCase(blocks(6), Schedule(), None, Settings())

    def compile_(changed: NetworkCase) -> tuple[object, object]:
        raise too_full(needed_bytes=needed, temporaries=900)

    attempt = layers_shared(of, FULL_OF_CODE, compile_)
    assert attempt.case.settings.shared_functions is kept
    assert attempt.error is not None
    assert attempt.error.tiles[0]["needed_bytes"] == (needed if kept else 1500)


@pytest.mark.usefixtures("whole_machine")
def test_found_advice__in_vain__is_said_in_order() -> None:
    def compile_(of: NetworkCase) -> tuple[object, object]:
        raise HOPEFUL

    of = case(Settings(shared_functions=True))
    found = found_advice(of, HOPEFUL, compile_, lambda parts: of, half_case)
    assert found.in_vain == (
        "the code of repeated layers held once",
        "less memory for products",
        "smaller micro-batches",
        "half precision",
    )


def small_tiles(size: int) -> System:
    """Four tiles of so many bytes."""
    tile = {"total_bytes": size, "plain_bytes": size, "executable_bytes": size}
    return systems.bow_2000().evolve(ipu={"num_tiles": 4, "tile": tile})


def test_compile__code_of_layers_too_large__fits_as_functions() -> None:
    system = small_tiles(40 * 1024)
    whole = compile_network(blocks(40), settings=Settings(system=system, allow_out_of_memory=True))
    assert not whole.executable.report.memory.fits
    fitting = compile_network(blocks(40), settings=Settings(system=system))
    assert fitting.settings.shared_functions
    assert fitting.executable.report.memory.fits
    assert fitting.executable.report.meta["options"]["shared_functions"] is True


def test_compile__nothing_fits__says_what_was_tried() -> None:
    with pytest.raises(OutOfMemoryError, match="too much") as caught:
        compile_network(blocks(40), settings=Settings(system=small_tiles(8 * 1024)))
    assert "\n           too large as well with the code of repeated layers held once" in str(caught.value)
    assert caught.value.tiles[0]["needed_bytes"] < 20_000
