"""Several runs beside each other."""

from __future__ import annotations

import numpy as np
import pytest

import abele as ab
from abele.poplibs import poplin
from abele.report import Report
from abele.report.compare import compare

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def wider() -> Report:
    """A product of twice the width, and nothing else of ``small``."""
    graph = ab.Graph("bow-2000:1")
    a = graph.variable(ab.f32, (64, 64), name="a").map_linear()
    b = graph.variable(ab.f32, (64, 128), name="b").map_linear()
    program = ab.Sequence()
    poplin.matmul(graph, a, b, program, name="first")
    engine = ab.Engine(graph, program)
    engine["a"], engine["b"] = np.ones((64, 64), np.float32), np.ones((64, 128), np.float32)
    engine.run()
    return engine.report


def test_compare__two_reports__shows_the_figures_of_their_comparison(look, small: Report, wider: Report) -> None:
    found = compare([small, wider], labels=["a", "b"])
    sight = look(small, wider)
    sight.go("compare")
    rows = sight.page.locator(".compare-figures tbody tr")
    assert rows.count() == len(found.figures)
    first = rows.nth(0).locator("td").all_inner_texts()
    assert first[0] == found.figures[0].title
    before, after = found.figures[0].values
    assert first[1].replace(",", "") == str(round(before))
    assert first[3].replace(",", "").replace("−", "-").lstrip("+") == str(round(after - before))
    assert sight.page.locator(".change").count() == len(found.insights)


def test_compare__one_report__says_how_to_compare(look, small: Report) -> None:
    sight = look(small)
    sight.go("compare")
    assert "abele view FIRST SECOND" in sight.page.locator(".empty").inner_text()


def test_compare__eight_reports__are_shown_and_another_can_be_first(look, small: Report, wider: Report) -> None:
    sight = look(*[small, wider] * 4)
    sight.go("compare")
    assert sight.page.locator(".compare-figures thead th").count() == 1 + 8 + 7
    sight.page.select_option("select[aria-label=Report]", index=1)
    sight.until("abele.context.reports[0] === abele.source.reports[1].key")
    sight.settle()
    assert sight.page.locator(".compare-figures thead th").nth(1).inner_text() == "report-2"


def test_table__of_operations__has_a_row_for_each_that_changed(look, small: Report, wider: Report) -> None:
    found = compare([small, wider], labels=["a", "b"]).tables["ops"]
    sight = look(small, wider)
    sight.go("compare")
    sight.page.fill(".compare-tables input.filter", "status=removed")
    removed = sum(row.status == "removed" for row in found.rows)
    assert removed > 0
    sight.until(f"document.querySelector('.compare-tables .dim').textContent.startsWith('{removed} of')")
