"""The page of comparisons: tables, verdicts, pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.errors import MissingPackageError
from abele.validation import page
from abele.validation.figures import Bars, Comparison, Figure, figure_text, spread


def comparison(errors: list[float], bars: Bars | None = None) -> Comparison:
    figures = tuple(Figure(f"f_{i}", "add", 1000 * (1 + e), 1000, "cycles", "x") for i, e in enumerate(errors))
    return Comparison("adding", "additions", "How it is done.", figures, bars)


def test_spread__errors_of_both_signs__are_sizes() -> None:
    found = spread([-0.4, 0.1, 0.2])
    assert (found.count, found.median, found.worst) == (3, pytest.approx(0.2), pytest.approx(0.4))
    assert spread([]).worst == 0


def test_holds__bars__are_of_median_and_worst() -> None:
    errors = [0.01, -0.02, 0.09]
    assert comparison(errors).holds
    assert comparison(errors, Bars(0.1, 0.05)).holds
    assert not comparison(errors, Bars(0.05)).holds
    assert not comparison(errors, Bars(0.1, 0.01)).holds


def test_figure__reference_of_zero__has_no_error() -> None:
    figure = Figure("x", "add", 5, 0, "cycles", "x")
    assert figure.error is None
    assert comparison([]).spread.count == 0


def test_figure_text__sizes__have_four_digits() -> None:
    assert [figure_text(n) for n in (1234567.8, 12.0, 5.4876)] == ["1,234,568", "12", "5.488"]


def test_page_text__small_comparison__has_every_figure() -> None:
    text = page.page_text([comparison([0.5, -0.1], Bars(0.2))], {}, ["odd: Error: it\n  because  no"])
    assert "| additions | 2 | 30.0% | 46.0% | 50.0% | every figure within 20% | **does not hold** |" in text
    assert "| f\\_0 | 1,500 | 1,000 | +50.0% |" in text
    assert "- odd: Error: it because no" in text
    assert "![" not in text


def test_page_text__figure_that_a_constant_was_calibrated_on__is_marked() -> None:
    names = "add, 10 elements per tile", "add, 1,024 elements per tile"
    figures = tuple(Figure(name, "add", 1500, 1000, "cycles", "x") for name in names)
    text = page.page_text([Comparison("elementwise", "additions", "How.", figures)], {})
    assert "| additions | 1 | 50.0%" in text
    assert "| add, 10 elements per tile | 1,500 | 1,000 | calibrated |" in text
    assert "| add, 1,024 elements per tile | 1,500 | 1,000 | +50.0% |" in text
    assert "| `ipu.launch.multi_vertex_cycles` | 40 cycles | add, 10 elements per tile |" in text
    many = (*figures, *(Figure(f"f{i}", "add", 1, 1, "cycles", "x") for i in range(50)))
    text = page.page_text([Comparison("elementwise", "additions", "How.", many)], {})
    assert "| add, 10 elements per tile | 1,500" not in text


def test_page_text__large_comparison__has_kinds_and_the_furthest() -> None:
    text = page.page_text([comparison([i / 100 for i in range(50)])], {})
    assert "| add | 50 |" in text
    assert "The 5 that are furthest off" in text
    assert "+49.0%" in text
    assert "+10.0%" not in text


def test_write_page__plots_installed__has_a_picture_each(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    files = page.write_page([comparison([0.1, 0.2])], tmp_path)
    assert [f.name for f in files] == ["validation.md", "validation-adding.png"]
    text = files[0].read_text(encoding="utf-8")
    assert "(pictures/validation-adding.png)" in text
    assert files[1].read_bytes().startswith(b"\x89PNG")


def test_plot__matplotlib_missing__says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "can_plot", lambda: False)
    with pytest.raises(MissingPackageError, match="plots need matplotlib"):
        page.plot(comparison([0.1]), tmp_path / "a.png")


def test_page_text__kind_whose_reason_is_known__says_it() -> None:
    figures = (Figure("a", "matrix_solver", 1, 2, "cycles", "x"), Figure("b", "add", 1, 2, "cycles", "x"))
    text = page.page_text([Comparison("operators", "operators: cycles", "How.", figures)], {})
    assert "## Where they disagree, and why" in text
    assert "- **matrix solver.** Vertices cost PopLibs' published" in text
    assert "**add" not in text


def test_write_page__comparison_is_left_out__stays_in_the_page(tmp_path: Path) -> None:
    solves = (Figure("a", "matrix_solver", 1, 2, "cycles", "x"),)
    blurs = (Figure("b", "step", 3, 2, "cycles", "x"),)
    first = Comparison("operators", "operators: cycles", "How.", solves), Comparison("blur", "blurs", "So.", blurs)
    page.write_page(first, tmp_path)
    whole = (tmp_path / "validation.md").read_text(encoding="utf-8")
    page.write_page(first[:1], tmp_path)
    assert (tmp_path / "validation.md").read_text(encoding="utf-8") == whole
    page.write_page([Comparison("blur", "blurs", "Anew.", blurs)], tmp_path)
    text = (tmp_path / "validation.md").read_text(encoding="utf-8")
    assert text.index("## Operators: cycles") < text.index("## Blurs\n\nAnew.")
    assert [text.count(part) for part in ("| operators: cycles | 1 |", "| blurs | 1 |", "- **matrix solver.**")] == [
        1
    ] * 3
