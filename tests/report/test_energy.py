"""Energy of a step: amounts, energies of one, bounds, sources, and what is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from abele.cli.main import app
from abele.compiler import compile_program
from abele.errors import FileFormatError
from abele.graph import Copy, Execute, Graph, Sequence
from abele.machine import MEMORY_KINDS, Energy, systems
from abele.poplibs import poplin, popops
from abele.report import Report
from abele.report.compare import compare
from abele.report.energy import StepEnergy, amount_text


def products(element: str, partials: str, *, system: str = "bow-2000:1", size: int = 128) -> Report:
    graph, prog = Graph(system), Sequence()
    a = graph.variable(element, (size, size), name="a").map_linear()
    b = graph.variable(element, (size, size), name="b").map_linear()
    poplin.matmul(graph, a, b, prog, options={"partialsType": partials})
    return compile_program(graph, prog).report


def of(report: Report) -> StepEnergy:
    assert report.energy is not None
    return report.energy


def term(report: Report, name: str) -> tuple[float, tuple[float, float, float]]:
    (found,) = [t for t in of(report).terms if t.name == name]
    return found.amount, tuple(found.joules)


def test_energy__slide_of_convolutions__is_what_the_constants_say() -> None:
    """Deck of the ESO workshop, kernel power: pJ per flop by types of multiply, datapath and memory."""
    energy = Energy()
    assert [energy.f16_joules_per_flop, energy.f16_f32_joules_per_flop, energy.f32_joules_per_flop] == [
        1.0e-12,
        1.3e-12,
        2.5e-12,
    ]
    assert energy.f8_joules_per_flop == energy.f16_joules_per_flop / 2
    assert energy.source_of("f16_joules_per_flop").confidence == "S"
    # Real application data is typically 1/3 to 1/2 less energetic.
    assert (1 - energy.most_data_proportion, 1 - energy.least_data_proportion) == pytest.approx((1 / 3, 1 / 2))


def test_energy__slide_of_memories__is_what_the_constants_say() -> None:
    table = {kind.name: (kind.bytes / 1e9, kind.bytes_per_second / 1e9, kind.joules_per_byte * 1e12, kind.relative_cost)
             for kind in MEMORY_KINDS}  # fmt: skip
    assert table["HBM3"] == pytest.approx((96, 3000, 40, 4))
    assert table["LPDDR5"] == pytest.approx((512, 800, 50, 1))
    assert table["DDR5"] == pytest.approx((1536, 500, 300, 1.25))
    energy = Energy()
    # Much more than 50,000 GB/s and much less than 1 pJ/B: bounds.
    assert energy.sram_joules_per_byte < energy.most_sram_joules_per_byte == table["SRAM"][2] * 1e-12 == 1e-12
    assert energy.wire_joules_per_byte_millimetre == 0.5e-12
    assert energy.most_exchange_joules_per_byte == 30e-12
    # The way from corner to corner of a square die of 823 mm².
    assert energy.wire_joules_per_byte_millimetre * 2 * 823**0.5 == pytest.approx(30e-12, rel=0.05)
    assert energy.wire_joules_per_byte_millimetre * energy.exchange_millimetres < 30e-12


def test_energy__bow_at_its_peak_on_synthetic_data__takes_350_watts() -> None:
    """350 TFLOP/s at 1.0 pJ: what the slide's figures come to, above what a Bow is rated for."""
    ipu = systems.get("bow").ipu
    synthetic = ipu.peak_flops("f16", "f16") * ipu.energy.f16_joules_per_flop
    assert synthetic == pytest.approx(349, abs=1)
    assert ipu.energy.least_data_proportion * synthetic < ipu.energy.rated_watts < synthetic


@pytest.mark.parametrize("name", ["gc2", "gc200", "bow", "c600"])
def test_energy__every_chip_at_its_peak_on_real_data__keeps_to_its_rated_power(name: str) -> None:
    ipu = systems.get(name).ipu
    energy = ipu.energy
    each = {("f16", "f32"): energy.f16_f32_joules_per_flop, ("f32", "f32"): energy.f32_joules_per_flop}
    for types, joules in each.items():
        assert ipu.peak_flops(*types) * joules * energy.least_data_proportion < energy.rated_watts
    for lower, likely, most in (
        (energy.least_vector_joules_per_flop, energy.vector_joules_per_flop, energy.most_vector_joules_per_flop),
        (energy.least_link_joules_per_byte, energy.link_joules_per_byte, energy.most_link_joules_per_byte),
    ):
        assert lower <= likely <= most


@pytest.mark.parametrize(
    ("element", "partials", "name", "picojoules"),
    [
        ("f16", "half", "products of f16", 1.0),
        ("f16", "float", "products of f16 to f32", 1.3),
        ("f32", "float", "products of f32", 2.5),
    ],
)
def test_energy__product__takes_its_flops_at_the_energy_of_its_types(
    element: str, partials: str, name: str, picojoules: float
) -> None:
    amount, (least, likely, most) = term(products(element, partials), name)
    assert amount == 2 * 128**3
    assert most == pytest.approx(amount * picojoules * 1e-12)
    assert least == pytest.approx(most / 2)
    assert likely == pytest.approx(most * 7 / 12)


def test_energy__copy_of_one_tile_to_all__leaves_once_and_arrives_everywhere() -> None:
    graph, prog = Graph("bow-2000:1"), Sequence()
    one = graph.variable("f32", (256,), name="one", map=0)
    everywhere = graph.variable("f32", (100, 256), name="everywhere")
    for tile in range(100):
        graph.map(everywhere[tile], tile + 1)
    prog.add(Copy(one.broadcast(100, 0).reshape((100, 256)), everywhere))
    report = compile_program(graph, prog).report
    amount, joules = term(report, "exchange")
    assert amount == 1024
    assert joules == pytest.approx((0, 1024 * 0.5e-12 * 19.1, 1024 * 30e-12))


def test_energy__vectors__are_counted_with_the_memory_that_they_touch() -> None:
    graph, prog = Graph("bow-2000:1"), Sequence()
    x = graph.variable("f32", (4096,), name="x").map_linear()
    popops.exp_in_place(graph, x, prog)
    report = compile_program(graph, prog).report
    assert term(report, "arithmetic on vectors of f32")[0] == 4096
    # Read once, written once.
    assert term(report, "tile memory")[0] == 2 * 4 * 4096
    assert of(report).touched_bytes == 2 * 4 * 4096
    assert of(report).joules_from["HBM3"] == pytest.approx(2 * 4 * 4096 * 40e-12)
    assert of(report).uncounted_proportion == 0


def test_energy__vertices_that_nobody_counts__are_said_not_to_be_in_it() -> None:
    graph, prog = Graph("bow-2000:1"), Sequence()
    x = graph.variable("f32", (64, 64), name="x").map_linear()
    popops.sort_in_place(graph, x, 0, prog)
    found = of(compile_program(graph, prog).report)
    assert found.uncounted_proportion > 0.5
    assert "arithmetic of operations that nobody counts" in found.text()


def test_energy__repeated_and_run_in_steps__is_that_of_one_step() -> None:
    report = products("f32", "float")
    steps = replace(report, meta={**report.meta, "steps_per_run": 4, "samples_per_run": 64})
    assert of(steps).joules.likely == pytest.approx(of(report).joules.likely / 4)
    assert of(steps).seconds == pytest.approx(of(report).seconds / 4)
    each = of(steps).joules_per_sample
    assert each is not None
    assert each.likely == pytest.approx(of(steps).joules.likely / 16)
    assert of(steps).watts.likely == pytest.approx(of(report).watts.likely)


def test_energy__replicas__take_it_each() -> None:
    def built(replicas: int) -> Report:
        graph, prog = Graph("bow-2000:1"), Sequence()
        x = graph.variable("f32", (4096,), name="x").map_linear()
        popops.exp_in_place(graph, x, prog)
        report = compile_program(graph, prog).report
        return replace(report, target={**report.target, "num_replicas": replicas})

    one, four = of(built(1)), of(built(4))
    assert four.joules.likely == pytest.approx(4 * one.joules.likely)
    assert (one.num_ipus, four.num_ipus) == (1, 4)
    assert four.rated_joules == pytest.approx(4 * one.rated_joules)


def test_energy__sources__are_no_surer_than_what_they_are_made_of() -> None:
    found = {t.name: t.source for t in of(products("f16", "half")).terms}
    assert found["products of f16"].confidence == "D"
    assert "kernel power" in found["products of f16"].text
    assert found["tile memory"].confidence == "G"
    assert found["exchange"].confidence == "D"


def test_energy__machine_of_the_user__is_that_of_its_report(tmp_path: Path) -> None:
    system = systems.get("bow-2000:1").evolve(ipu={"energy": {"f32_joules_per_flop": 7e-12, "rated_watts": 99.0}})
    graph, prog = Graph(system), Sequence()
    a = graph.variable("f32", (64, 64), name="a").map_linear()
    poplin.matmul(graph, a, a, prog)
    report = compile_program(graph, prog).report
    report.save(tmp_path / "own.abele-report")
    found = of(Report.load(tmp_path / "own.abele-report"))
    (own,) = [t for t in found.terms if t.name == "products of f32"]
    assert own.joules.most == pytest.approx(2 * 64**3 * 7e-12)
    assert own.source.confidence == "U"
    assert found.rated_watts == 99.0


def test_energy__report_of_an_earlier_version__has_none() -> None:
    report = products("f32", "float")
    meta = {key: value for key, value in report.meta.items() if key != "energy"}
    assert replace(report, meta=meta).energy is None
    assert "\nenergy " not in replace(report, meta=meta).summary()


@pytest.mark.parametrize("table", [3, {"f32_joules_per_flop": -1}, {"f32_joules": 1e-12}, {"rated_watts": "many"}])
def test_energy__damaged_energies__are_an_error_that_says_so(table: object) -> None:
    report = products("f32", "float")
    with pytest.raises(FileFormatError, match="the report's energies are damaged"):
        replace(report, meta={**report.meta, "energy": table}).energy  # noqa: B018


def test_energy__program_without_steps__takes_nothing() -> None:
    graph = Graph("bow-2000:1")
    x = graph.variable("f32", (4,), name="x", map=0)
    del x
    report = compile_program(graph, Sequence()).report
    assert of(report).terms == ()
    assert of(report).joules == (0, 0, 0)
    assert "0 J" in of(report).text()
    assert "\nenergy " not in report.summary()


def test_energy__empty_compute_set__is_no_arithmetic() -> None:
    graph, prog = Graph("bow-2000:1"), Sequence()
    prog.add(Execute(graph.compute_set("nothing")))
    assert of(compile_program(graph, prog).report).terms == ()


def test_report_command__energy__prints_terms_sources_and_what_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "one.abele-report"
    products("f16", "half").save(path)
    shown = CliRunner().invoke(app, ["report", str(path), "--energy"])
    assert shown.exit_code == 0
    for words in ("products of f16", "dynamic energy of one step", "at rated power", "leakage", "G: guessed", "HBM3"):
        assert words in shown.stdout
    told = json.loads(CliRunner().invoke(app, ["report", str(path), "--energy", "--json"]).stdout)
    assert told["joules"]["least"] < told["joules"]["likely"] < told["joules"]["most"]
    assert sum(t["joules"]["likely"] for t in told["terms"]) == pytest.approx(told["joules"]["likely"])
    whole = json.loads(CliRunner().invoke(app, ["report", str(path), "--json"]).stdout)
    assert whole["energy"] == told


def test_comparison__two_reports__has_the_energy_of_both() -> None:
    found = compare([products("f32", "float"), products("f16", "half")])
    (figure,) = [f for f in found.figures if f.name == "step_joules"]
    first, second = figure.values
    assert first is not None
    assert second is not None
    assert second < first
    assert "energy of one step" in found.text()
    assert "µJ" in found.text()


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.0, "0 J"), (1.0, "1 J"), (999.9e-6, "1 mJ"), (1.25e-3, "1.25 mJ"), (3e-15, "0.003 pJ"), (4.2e15, "4.2e+03 TJ")],
)
def test_amount__any_size__has_three_digits_and_a_prefix(amount: float, text: str) -> None:
    assert amount_text(amount, "J") == text


def test_energy__never_falls__when_work_is_added() -> None:
    sums = [of(products("f16", "half", size=size)).joules for size in (32, 64, 128)]
    assert np.all(np.diff(np.array(sums), axis=0) > 0)
