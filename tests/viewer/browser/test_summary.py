"""The first page: what limits the program is said, and leads to where it can be seen."""

from __future__ import annotations

import pytest

from abele.report import Report
from abele.report.insights import insights

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_summary__a_report__says_what_its_insights_say(look, small: Report) -> None:
    found = insights(small, count=5)
    sight = look(small)
    assert sight.page.locator(".summary-limit").inner_text() == found.limit
    costs = sight.page.locator("[aria-label='The costs that matter'] .cost")
    assert costs.count() == len(found.costs)
    titles = costs.locator(".cost-head .cost-title").all_inner_texts()
    assert titles == [cost.title for cost in found.costs]
    levers = costs.locator(".lever").count()
    assert levers == sum(len(cost.levers) for cost in found.costs)


def test_summary__cost_clicked__goes_to_what_it_costs(look, small: Report) -> None:
    cost = insights(small, count=5).costs[0]
    sight = look(small)
    sight.page.locator(".cost .cost-title").first.click()
    sight.until("location.hash.includes('view=')")
    assert sight.page.evaluate("abele.state.number('op', -1)") == cost.select.get("op", -1)


def test_roofline__operations__are_told_apart_and_saved_as_svg(look, small: Report) -> None:
    from xml.etree import ElementTree

    sight = look(small)
    svg = ElementTree.fromstring(sight.page.evaluate("abele.shown.charts[0].svg()"))
    circles = [p for p in svg.iter() if p.tag.endswith("path") and "A" in p.get("d", "")]
    assert len(circles) == sum(roof.flops_per_second > 0 for roof in insights(small).roofline.ops)


def test_summary__facts_unfolded__stay_so_in_the_link(look, small: Report) -> None:
    sight = look(small)
    sight.page.click("summary >> text=Target")
    sight.until("location.hash.includes('summary.target=open')")
    assert sight.page.locator("details[open] .fact").count() > 10
