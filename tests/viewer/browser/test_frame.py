"""The frame of the page: it loads, changes views, filters, and comes back by its link."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest

from abele.report import Report
from abele.viewer.answers import QUESTIONS

if TYPE_CHECKING:
    from playwright.sync_api import Route

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
    kinds = sight.page.locator(".tr .td:nth-child(3)").all_inner_texts()
    assert kinds == [kind] * int((small.ops["kind"] == kind).sum())


def test_keys__number__goes_to_that_view_but_not_while_typing(look, small: Report) -> None:
    sight = look(small)
    sight.page.keyboard.press("6")
    sight.page.wait_for_selector("main[data-view=operations]")
    sight.page.click("input.filter")
    sight.page.keyboard.type("3")
    assert sight.page.input_value("input.filter") == "3"
    assert sight.page.get_attribute("main", "data-view") == "operations"


def test_palette__words__offer_commands_and_things_of_the_report(look, small: Report) -> None:
    sight = look(small)
    sight.page.keyboard.press("Control+k")
    sight.page.keyboard.type("show oper")
    sight.page.wait_for_selector(".palette-item.chosen >> text=Show operations")
    sight.page.keyboard.press("Enter")
    sight.page.wait_for_selector("main[data-view=operations]")
    sight.page.keyboard.press("Control+k")
    sight.page.keyboard.type(max(small.variables["name"].tolist(), key=len))
    sight.page.wait_for_selector(".palette-item >> text=variable")
    sight.page.keyboard.press("Escape")
    sight.page.locator("dialog").wait_for(state="detached")


def test_help__question_mark__lists_keys(look, small: Report) -> None:
    sight = look(small)
    sight.page.keyboard.press("?")
    text = sight.page.locator("dialog").inner_text()
    assert "zoom in and out" in text
    assert "Show memory" in text


def pixels(png: bytes) -> npt.NDArray[np.int64]:
    """Colours from 0 to 255, int64[rows, columns, channels]."""
    return np.rint(matplotlib.image.imread(BytesIO(png), format="png") * 255).astype(np.int64)


@pytest.mark.parametrize("view", ["summary", "operations"])
def test_link__opened_elsewhere__shows_the_same_pixels(look, small: Report, view: str) -> None:
    first = look(small)
    first.go(view, op=1, theme="dark", unit="B")
    first.until("location.hash.includes('theme')")
    second = look(small)
    second.page.evaluate("(hash) => { location.hash = hash }", first.page.evaluate("location.hash"))
    second.page.wait_for_selector(f"main[data-view={view}]")
    # Fonts and bars of scrolling may be drawn later on a busy machine.
    for pause in (0, 0, 100, 200, 400, 800, 1600, 3200, 6400):
        second.page.wait_for_timeout(pause)
        for sight in (first, second):
            sight.page.mouse.move(1, 1)
            sight.page.evaluate("document.activeElement.blur()")
            sight.settle()
        one, other = (pixels(sight.page.locator("main").screenshot()) for sight in (first, second))
        if one.shape == other.shape and np.abs(one - other).max() <= 1:
            break
    # Round corners are smoothed with a rounding of their own each time that they are drawn.
    np.testing.assert_allclose(one, other, rtol=0, atol=1)


@pytest.mark.parametrize("size", [(1280, 720), (3840, 2160)])
def test_page__small_and_large_screens__nothing_lies_outside(look, small: Report, size: tuple[int, int]) -> None:
    sight = look(small, size={"width": size[0], "height": size[1]})
    for view in ("summary", "operations"):
        sight.go(view)
        wide, high = sight.page.evaluate(
            "[document.documentElement.scrollWidth - innerWidth, document.documentElement.scrollHeight - innerHeight]"
        )
        assert (wide, high) == (0, 0)
        box = "document.querySelector('main')"
        assert sight.page.evaluate(f"{box}.scrollWidth - {box}.clientWidth") == 0


def test_theme__t__flips_and_stays_in_the_link(look, small: Report) -> None:
    sight = look(small)
    light = sight.page.evaluate("getComputedStyle(document.body).backgroundColor")
    sight.page.keyboard.press("t")
    dark = sight.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    sight.until("location.hash.includes('theme=dark')")


def test_file__written_anew_while_open__is_offered_and_shown(look, small: Report, tmp_path: Path) -> None:
    path = tmp_path / "run.abele-report"
    small.save(path)
    sight = look(path)
    sight.page.evaluate("abele.source.watch(50)")
    small.with_meta(name="another", samples_per_run=7).save(path)
    sight.page.click("text=Show it as it is now")
    sight.until("abele.context.facts.meta.samples_per_run === 7")
    assert sight.page.locator(".notice").count() == 0


def test_server__stopped__page_says_so_and_stays(look, small: Report) -> None:
    sight = look(small)
    sight.excused = "ERR_CONNECTION_REFUSED"
    sight.page.evaluate("abele.source.watch(50)")
    sight.viewer.close()
    sight.page.wait_for_selector("text=The viewer has stopped")
    assert sight.page.locator(".summary-limit").count() == 1


def of_format(sight, call: str) -> object:
    return sight.page.evaluate(f"import('abele/core/format.js').then((m) => m.{call})")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("short(0)", "0"),
        ("short(999)", "999"),
        ("short(999.6)", "1 k"),
        ("short(1234567)", "1.23 M"),
        ("short(-45678)", "−45.7 k"),
        ("bytes(1536, 'KiB')", "1.5 KiB"),
        ("bytes(1536)", "1.54 kB"),
        ("bytes(12, 'B')", "12 B"),
        ("seconds(0.000204)", "204 µs"),
        ("seconds(1.9956)", "2 s"),
        ("percent(0.5263)", "53%"),
        ("percent(0.0155)", "1.6%"),
        ("percent(NaN)", "–"),
        ("signed(-5)", "−5"),
        ("ranges('3, 10-12')", [[3, 3], [10, 12]]),
        ("ranges('3, x')", None),
        ("marks(0, 10, 5).marks", [0, 2, 4, 6, 8, 10]),
        ("marks(3, 3, 5).marks", []),
    ],
)
def test_format__values__read_as_people_read_them(frame, call: str, text: object) -> None:
    assert of_format(frame, call) == text


def test_range__zoom_and_move__stay_within_and_keep_the_place(frame) -> None:
    low, high, moved, least = frame.page.evaluate(
        """import('abele/core/range.js').then(({ Range }) => {
            const range = new Range(0, 1000, 10);
            range.zoom(0.5, 250);
            const [low, high] = [range.low, range.high];
            range.move(-10);
            const moved = [range.low, range.high];
            range.zoom(1e-9);
            return [low, high, moved, range.span];
        })"""
    )
    assert (low, high) == (125, 625)
    assert moved == [0, 500]
    assert least == pytest.approx(10)


def test_svg__hostile_text__is_text(frame) -> None:
    svg = frame.page.evaluate(
        """import('abele/core/svg.js').then(({ SvgContext }) => {
            const pen = new SvgContext(100, 50);
            pen.fillStyle = '"><script>alert(1)</script>';
            pen.save(); pen.beginPath(); pen.rect(0, 0, 10, 10); pen.clip();
            pen.fillText('<script>&"\\u0001', 5, 5);
            pen.restore();
            return pen.text();
        })"""
    )
    tree = ElementTree.fromstring(svg)
    assert [part.tag.rpartition("}")[2] for part in tree.iter()].count("script") == 0
    assert next(part.text for part in tree.iter() if part.tag.endswith("text")) == '<script>&"\ufffd'


def test_csv__cells_that_a_spreadsheet_would_run__are_text(frame) -> None:
    asked = "import('abele/core/table.js').then((m) => ['=1+1', 'a,b', 'say \"x\"', 7].map(m.quoted))"
    assert frame.page.evaluate(asked) == ["'=1+1", '"a,b"', '"say ""x"""', "7"]


def test_page__that_opens__says_so_before_any_module_is_there(look, small: Report) -> None:
    sight = look(small)
    page = sight.page
    held: list[Route] = []
    page.route("**/web/**", lambda route: held.append(route))
    page.goto(sight.address, wait_until="commit")
    page.wait_for_selector("text=opens: reading the page", timeout=2_000)
    for route in held:
        route.continue_()
    page.unroute("**/web/**")
    page.goto(sight.address)
    page.wait_for_selector("main[data-view]")


def test_view__that_is_read__has_an_outline_with_what_and_how_far_at_once(look, small: Report) -> None:
    sight = look(small)
    page = sight.page
    held: list[Route] = []
    views = page.evaluate("import('abele/views/index.js').then((m) => m.VIEWS.map((v) => v.name))")
    # Modules are known: what is held back is data alone.
    for name in views:
        sight.go(name)
    for name in views:
        page.evaluate("abele.source.kept.clear()")
        held.clear()
        page.route("**/data/**", lambda route: held.append(route))
        page.evaluate("(view) => abele.context.go(view)", name)
        if name != "compare":  # One report is open: it asks nothing.
            loading = "document.querySelector('.loading')"
            sight.until(f"!{loading}.hidden && {loading}.offsetHeight > 0")
            sight.until(
                "/reading .+ of .+ 0 of \\d+ parts? read/.test(document.querySelector('.loading-words').textContent)"
            )
        for route in held:
            route.continue_()
        page.unroute("**/data/**")
        page.wait_for_selector(f"main[data-view={name}]")
        sight.settle()
        sight.until("document.querySelector('.loading').hidden")


def test_wanted__every_question__has_words(frame) -> None:
    told = frame.page.evaluate("import('abele/core/loading.js').then((m) => Object.keys(m.WANTED))")
    assert sorted(told) == sorted(QUESTIONS)
