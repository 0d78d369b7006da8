"""Comparisons with silicon and published models keep to what is asked of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from abele.graph import Execute, Graph
from abele.numerics import f32
from abele.runtime import Engine
from abele.validation import amp, blur, dense, elementwise, matvec
from abele.validation.blur_vertex import blur_vertex
from abele.validation.figures import Figure, calibrated_constants
from abele.validation.measure import BenchmarkRow, Reference, compile_row, measure
from abele.validation.operators import compare_rows, comparisons
from abele.validation.parameters import Parameters

REDUCTION = BenchmarkRow(
    "sum", "reduction", Parameters.parse("--shape 64,32 --dims 0 --type half"), {"gc2": Reference(1000, 5000)}
)


@pytest.fixture(autouse=True, scope="module")
def made_once() -> Iterator[None]:
    """Comparisons that read no file are the same in all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (elementwise, matvec, blur):
            patch.setattr(module, "compare", functools.cache(module.compare))
        yield


def blurred(title: str) -> dict[str, Figure]:
    return {f.name: f for f in blur.compare().figures if f.name.startswith(f"{title}: ")}


@pytest.mark.shared
def test_silicon__every_row__is_within_two_percent(shared_data: Path) -> None:
    found = amp.compare(shared_data / "reference" / "amp_matmul_bow_silicon.csv")
    assert len(found.figures) == 64
    assert found.holds


@pytest.mark.parametrize(("rows", "cycles"), [(16, 402), (512, 2381), (2048, 8526)])
def test_silicon__library_program__has_no_exchange_and_is_close(rows: int, cycles: float) -> None:
    assert amp.predict(rows) == pytest.approx(cycles, rel=0.02)


def test_dense__table__keeps_to_the_bars() -> None:
    found = dense.compare()
    assert len(found.figures) == 20
    assert found.holds, found.spread


def test_elementwise__every_figure__is_within_three_percent() -> None:
    assert elementwise.compare().holds


def test_matvec__compute__is_close_to_measurement_and_model() -> None:
    found = matvec.compare()
    assert [f.reference for f in found.figures] == [28_300, 3_718]
    assert found.spread.worst < 0.05


def test_blur__phases__add_up_to_the_step() -> None:
    found = blurred("float, 1 IPU")
    step = found.pop("float, 1 IPU: step")
    assert sum(f.predicted for f in found.values()) == step.predicted
    assert found["float, 1 IPU: exchange"].error == pytest.approx(0, abs=0.25)


def test_calibrated__every_constant__names_figures_that_there_are() -> None:
    compared = elementwise.compare(), blur.compare(), matvec.compare()
    names = {f"{c.key}: {f.name}" for c in compared for f in c.figures}
    # Figures of a comparison with a file of measurements have the name of their line.
    names |= {f"silicon: [{rows}, 16] x [16, 16] on every tile" for rows in range(16, 2048, 32)}
    known = [on for c in calibrated_constants() for on in c.source.calibrated_on]
    assert len(known) >= 5
    # Operators are rows of a file that is given: a kind that is known, on a chip that is compared.
    rows = [on for on in known if on.startswith(("operators: ", "memory: "))]
    assert all(
        on.split(": ")[1].startswith(("cholesky_", "inception_tr_bs1_")) and on.endswith((", gc2", ", gc200"))
        for on in rows
    )
    assert set(known) - set(rows) <= names


def test_calibrated__figures__are_marked_and_count_in_no_error() -> None:
    found = elementwise.compare()
    marked = [f for f in found.figures if found.calibrated(f)]
    assert [f.name for f in marked] == ["add, 10 elements per tile", "scaled subtract, 256 elements"]
    assert found.spread.count == len(found.tested) == len(found.figures) - 2
    said = {f["name"]: f["calibrated"] for f in found.to_json()["figures"]}
    assert said["add, 10 elements per tile"] == ["ipu.launch.multi_vertex_cycles"]
    assert said["add, 1,024 elements per tile"] == []


def test_blur__sixteen_ipus__wait_and_exchange_as_measured() -> None:
    found = blurred("float, 16 IPUs")
    assert found["float, 16 IPUs: sync"].predicted == pytest.approx(640, rel=0.1)
    # Nothing of the exchange between IPUs was calibrated.
    assert found["float, 16 IPUs: exchange"].error == pytest.approx(0, abs=0.1)


def test_blur__small_image__is_the_blur(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blur, "IMAGE", (13, 22))
    graph = Graph("gc2")
    program = Execute(blur.blur_step(graph, blur_vertex(f32, 2), f32, 2, (3, 4)))
    start = np.random.default_rng(0).random((15, 48), dtype=np.float32)
    engine = Engine(graph, program, mode="tiles")
    engine["image"], engine["blurred"] = start, np.zeros_like(start)
    engine.run()
    image = start.reshape(15, 24, 2).astype(np.float64)
    weights = np.outer([0.25, 0.5, 0.25], [0.25, 0.5, 0.25])
    expected = sum(weights[i, j] * image[i : i + 13, j : j + 22] for i in range(3) for j in range(3))
    np.testing.assert_allclose(np.reshape(engine["blurred"], (15, 24, 2))[1:-1, 1:-1], expected, rtol=1e-5)


def test_measure__memory__leaves_out_code_stacks_and_gaps() -> None:
    memory = compile_row(REDUCTION.tool, REDUCTION.parameters, Graph("gc2").system).report.memory
    held = measure(REDUCTION, "gc2").predicted_bytes
    left_out = ("vertex_code", "control_code", "stacks", "gaps")
    assert held == memory.total_bytes - sum(memory.totals()[name] for name in left_out)
    assert 64 * 32 * 2 <= held < memory.total_bytes


def test_operators__one_cannot_be_built__the_others_are_compared() -> None:
    unknown = BenchmarkRow("odd", "reductions", Parameters({}), {"gc2": Reference(1, 1)})
    found = compare_rows([REDUCTION, unknown], jobs=1)
    assert [r.name for r in found.results] == ["sum"]
    assert "odd on gc2: UnsupportedOpError" in found.failures[0]
    cycles, held, partials = comparisons(found)
    assert (cycles.figures[0].reference, held.figures[0].reference) == (1000, 5000)
    assert partials.figures == ()  # A sum of rows has none.


def test_operators__plan_as_published__has_partial_sums_to_the_byte() -> None:
    parameters = Parameters.parse("--m 600 --k 64 --n 10000")
    row = BenchmarkRow("gemm", "gemm", parameters, {"gc200": Reference(19_998, 93_043_896, 229_912)})
    cycles, held, partials = comparisons(compare_rows([row], jobs=1))
    assert [(f.predicted, f.reference) for f in partials.figures] == [(16_920, 16_920)]
    assert abs(held.figures[0].error or 1) < 0.005
    assert cycles.holds
