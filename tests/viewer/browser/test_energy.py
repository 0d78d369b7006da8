"""The panel of energy: a table that says what the report says, with its bounds, in both themes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from abele.report import Report
from abele.report.energy import amount_text

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PANEL = "section[aria-label='Energy of a step']"
PREFIXES = {"k": 1e3, "": 1.0, "m": 1e-3, "µ": 1e-6, "n": 1e-9, "p": 1e-12}


def joules(text: str) -> float:
    value, prefix = re.fullmatch(r"([\d.]+) (k|m|µ|n|p|)J", text).groups()  # type: ignore[union-attr]
    return float(value) * PREFIXES[prefix]


def rows(sight: Any, part: str) -> list[list[str]]:
    found: list[list[str]] = sight.page.evaluate(
        "(s) => [...document.querySelectorAll(s)].map((r) => [...r.cells].map((c) => c.innerText.trim()))",
        f"{PANEL} table.energy {part} tr",
    )
    return found


def test_energy__table__has_what_the_report_says(look, small: Report) -> None:
    energy = small.energy
    assert energy is not None
    terms = sorted(energy.terms, key=lambda term: -term.joules.likely)
    sight = look(small)
    found = rows(sight, "tbody")
    assert [row[0] for row in found] == [term.name for term in terms]
    for row, term in zip(found, terms, strict=True):
        for cell, value in ((1, term.joules.likely), (3, term.joules.least), (4, term.joules.most)):
            assert joules(row[cell]) == pytest.approx(value, rel=0.006)
        assert row[8] == f"{term.source.confidence} {term.source.text}"
    (total,) = rows(sight, "tfoot")
    assert [joules(total[k]) for k in (1, 3, 4)] == pytest.approx(
        [energy.joules.likely, energy.joules.least, energy.joules.most], rel=0.006
    )
    rated = sight.page.locator(f"{PANEL} .figure-value").last.inner_text()
    assert joules(rated) == pytest.approx(energy.rated_joules, rel=0.006), amount_text(energy.rated_joules, "J")


def test_energy__table__is_one_that_a_screen_reader_reads(look, small: Report) -> None:
    sight = look(small)
    page = sight.page
    assert page.locator(f"{PANEL} table.energy caption").inner_text().startswith("Dynamic energy of a step")
    assert page.get_by_role("region", name="Energy by use").count() == 1
    assert page.get_by_role("rowheader", name="exchange").count() == 1
    assert page.get_by_role("columnheader", name="bounds").count() == 1
    labels = page.locator(f"{PANEL} .energy-span").evaluate_all("(spans) => spans.map((s) => s.ariaLabel)")
    assert all(re.fullmatch(r"likely .+J, between .+J and .+J", label) for label in labels)
    assert "exchange" in page.locator(f"{PANEL} .shares").get_attribute("aria-label")


@pytest.mark.parametrize("dark", [False, True])
def test_energy__either_theme__has_words_that_can_be_read(look, small: Report, dark: bool) -> None:
    """Contrast of 4.5 at least (WCAG AA) of all words on the panel, and bars of the theme's own colours."""
    sight = look(small, dark=dark)
    worst = sight.page.evaluate(
        """(panel) => {
          const light = (text) => {
            const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
              .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const back = light(getComputedStyle(document.querySelector(panel)).backgroundColor);
          const words = document.querySelectorAll(`${panel} :is(th, td, p, caption, .figure-name, .figure-value)`);
          return Math.min(...[...words].map((w) => light(getComputedStyle(w).color)).map((ink) =>
            (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05)));
        }""",
        PANEL,
    )
    assert worst >= 4.5
    bars = sight.page.locator(f"{PANEL} .shares i").first.evaluate("(bar) => bar.style.background")
    first = sight.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--series-0').trim()")
    probe = "(c) => { const i = document.createElement('i'); i.style.background = c; return i.style.background; }"
    assert bars == sight.page.evaluate(probe, first)


def test_energy__damaged_energies__leave_the_rest_of_the_page(look, small: Report) -> None:
    sight = look(small.with_meta(energy={"rated_watts": "<b>many</b>"}))
    # The browser itself notes the answer's status.
    sight.excused = "Failed to load resource"
    assert "energies are damaged" in sight.page.locator(f"{PANEL} [role=alert]").inner_text()
    assert sight.page.locator("[aria-label='The costs that matter'] .cost").count() > 0


def test_energy__report_without_energies__has_no_panel(look, small: Report) -> None:
    sight = look(small.with_meta(energy=None))
    assert sight.page.locator(PANEL).count() == 0
    assert sight.page.locator("[aria-label='The costs that matter']").count() == 1


def test_energy__narrow_page__scrolls_the_table_alone(look, small: Report) -> None:
    sight = look(small, size={"width": 700, "height": 720})
    wide = sight.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert wide
    table, box = (f'document.querySelector("{PANEL} .energy-scroll").{side}' for side in ("scrollWidth", "clientWidth"))
    assert sight.page.evaluate(f"{table} >= {box}")
