"""The view of sparse operands: its table, bars by tile, and what it says of a chosen one, in both themes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abele.report import SPARSE_OPERANDS, SPARSE_PASSES, SPARSE_TILES, Report

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def with_sparse(report: Report) -> Report:
    operands = SPARSE_OPERANDS.table(
        name=["layer/w", "<b>s</b>"],
        library=["dynamic", "static"],
        type="f16",
        rows=64,
        columns=32,
        blocks=[80, 90],
        density=[0.04, 0.045],
        basis=["counted", "static"],
        capacity=[16, 0],
        tiles=[64, 32],
        mean_values=[10, 24],
        most_values=[13, 48],
        imbalance=[1.3, 2],
        passes=[2, 0],
        worst_passes=[7, 0],
    )
    tiles = SPARSE_TILES.table(
        operand=[0, 0, 1, 1], first_tile=[0, 20, 0, 1], num_tiles=[20, 44, 1, 31], values=[13, 9, 48, 23]
    )
    passes = SPARSE_PASSES.table(name=["p"], passes=[2], worst_passes=[7], cycles=[100], worst_cycles=[350])
    return replace(report, sparse_operands=operands, sparse_tiles=tiles, sparse_passes=passes)


@pytest.mark.parametrize("dark", [False, True])
def test_sparse__least_even_operand__is_shown_first_and_another_by_a_click(look, small: Report, dark: bool) -> None:
    sight = look(with_sparse(small), dark=dark)
    sight.go("sparse")
    page = sight.page
    details = page.locator("section[aria-label='Operand']")
    assert details.locator("h3").first.inner_text() == "<b>s</b>"
    assert "tile 0, 48 values" in details.inner_text()
    page.get_by_text("layer/w").first.click()
    sight.settle()
    assert details.locator("h3").first.inner_text() == "layer/w"
    assert "16 values, 81% used on the fullest" in details.inner_text()
    assert "2 beyond the first, 7 at worst" in details.inner_text()
    label = page.evaluate("() => abele.shown.charts[0].canvas.getAttribute('aria-label')")
    assert "10 on the mean tile, 13 on tile 0" in label
    assert "<text" in page.evaluate("() => abele.shown.charts[0].svg()")


def test_sparse__click_on_a_bar__selects_the_tile(look, small: Report) -> None:
    sight = look(with_sparse(small))
    sight.go("sparse")
    box = sight.page.locator("canvas[aria-label^='Values of']").bounding_box()
    sight.page.mouse.click(box["x"] + 78, box["y"] + box["height"] / 2)
    sight.settle()
    assert sight.page.evaluate("() => abele.context.state.get('tiles')") is not None


def test_sparse__report_without_operands__says_so(look, small: Report) -> None:
    sight = look(small)
    sight.go("sparse")
    assert "no sparse operand" in sight.page.locator("main").inner_text()
