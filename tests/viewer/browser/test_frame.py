"""The frame of the page: it loads, changes views, filters, and comes back by its link."""

from __future__ import annotations

import pytest

from abele.report import Report

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_page__a_report__shows_it_without_errors(look, small: Report) -> None:
    sight = look(small)
    assert sight.page.locator(".top").inner_text().count("Abele") == 1
    sight.go("operations")
    assert sight.page.locator(".tr").count() == len(small.ops)


def test_table__filter__rows_that_match_are_left(look, small: Report) -> None:
    sight = look(small)
    sight.go("operations")
    kind = str(small.ops["kind"][-1])
    sight.page.fill("input.filter", f"kind={kind}")
    sight.until("document.querySelector('.table .dim').textContent.includes(' of ')")
    sight.settle()
    kinds = sight.page.locator(".tr .td:nth-child(2)").all_inner_texts()
    assert kinds == [kind] * int((small.ops["kind"] == kind).sum())
