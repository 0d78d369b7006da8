"""Reports from strangers in the page: names stay text, what is damaged is said, the rest is shown, nothing leaves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from abele.report import Report
from abele.report import file as report_file
from abele.report.schema import TABLES
from abele.report.text_column import Text
from abele.viewer import static_page, view

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NASTY = (
    "</script><script>globalThis.pwned = 1</script>",
    "<img src=x onerror='globalThis.pwned = 2'>",
    "<!--<script>",
    "]]></style><style>*{display:none}</style>",
    "\"'><svg onload=globalThis.pwned=3>",
    "javascript:globalThis.pwned=4",
    "${globalThis.pwned=5}{{constructor.constructor('globalThis.pwned=6')()}}",
    "\u202egnp.exe\u2066\u200f\u0000\u0007\u001b[31m\r\n\t",
    "\ud800 half a pair",
    '=HYPERLINK("http://evil.example")',
    "a\u0301" * 300,
    "x" * 60_000,
    "../../../../etc/passwd%00%2e%2e",
    "__proto__",
    "constructor",
    "",
)


@pytest.fixture(scope="module")
def nasty(made_small: Report) -> Report:
    """The small report with a nasty text wherever a file may hold any text."""
    tables: dict[str, Any] = {}
    for name, schema in TABLES.items():
        columns = {}
        for key, spec in schema.columns.items():
            held = getattr(made_small, name).columns[key]
            if isinstance(held, Text) and not spec.choices:
                words = tuple(f"{NASTY[i % len(NASTY)]}{'/' if i % 3 else ''}{i}" for i in range(len(held.words)))
                held = Text(held.codes, words)
            columns[key] = held
        tables[name] = schema.table(**columns)
    meta = {**made_small.meta, "name": NASTY[0] + NASTY[7], "programs": [NASTY[0], NASTY[1]], NASTY[1]: NASTY[2]}
    return replace(made_small, **tables, meta=meta, target={**made_small.target, "title": NASTY[1]})


def views(page: Page) -> list[str]:
    named: list[str] = page.evaluate("import('abele/views/index.js').then((m) => m.VIEWS.map((v) => v.name))")
    return named


def hold(page: Page) -> None:
    """Nothing of a name became more than text."""
    found = page.evaluate(
        """() => ({
          pwned: globalThis.pwned ?? null,
          elements: document.querySelectorAll("#app img, #app script, #app style, #app iframe, #app object").length,
          handlers: [...document.querySelectorAll("#app *")].filter((e) =>
            e.getAttributeNames().some((name) => name.startsWith("on"))).length,
          links: [...document.querySelectorAll("#app a[href]")].map((a) => a.href)
            .filter((href) => !/^(blob:|http:\\/\\/127\\.0\\.0\\.1|file:|#|about:)/.test(href)),
          hidden: getComputedStyle(document.querySelector("nav")).display,
        })"""
    )
    assert found == {"pwned": None, "elements": 0, "handlers": 0, "links": [], "hidden": "flex"}


def test_nasty_names__in_every_view__stay_text(look: Callable[..., Any], nasty: Report) -> None:
    sight = look(nasty)
    for name in views(sight.page):
        sight.go(name)
        hold(sight.page)
    sight.go("operations")
    # Names are cut where they are alike; the whole of one is its title.
    whole = "[...document.querySelectorAll('.view-operations [title]')].map((e) => e.title).join('\\n')"
    assert "</script><script>" in sight.page.evaluate(whole)


def test_nasty_names__selected_and_searched_for__stay_text(look: Callable[..., Any], nasty: Report) -> None:
    sight = look(nasty)
    sight.go("operations")
    sight.page.locator(".view-operations .tr[role=row][aria-rowindex]").first.click()
    sight.page.keyboard.press("Control+k")
    sight.page.keyboard.type("<img")
    sight.page.wait_for_timeout(400)
    hold(sight.page)


def test_nasty_names__in_a_static_page__stay_text(browser: Browser, nasty: Report, tmp_path: Path) -> None:
    path = tmp_path / "nasty.html"
    static_page(nasty, path)
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.goto(path.as_uri())
    page.wait_for_selector("main[data-view]")
    for name in views(page):
        page.evaluate("(view) => abele.context.go(view)", name)
        page.wait_for_selector(f"main[data-view={name}]")
        page.wait_for_timeout(150)
        hold(page)
    page.close()
    assert problems == []


@pytest.mark.parametrize(
    "state",
    [
        "view=%3Cscript%3E&reports=__proto__,../x&tiles=0-99999999999&step=-1&op=1e308&variable=NaN&program=77",
        "view=timeline&from=1e300&to=-1e300&theme=%22%3E%3Cimg%3E&unit=constructor",
        "view=memory&tiles=a-b,,-3,9-1,5000000&memory.graph=__proto__",
        "view=liveness&step=99999999999&from=Infinity&to=NaN",
        "view=matrix&from=5&to=5",
        "%ff%fe=%00&=&&&===",
    ],
)
def test_link__that_nobody_wrote__shows_the_page(look: Callable[..., Any], made_small: Report, state: str) -> None:
    sight = look(made_small)
    sight.page.evaluate("(hash) => { location.hash = hash; }", state)
    sight.page.wait_for_timeout(300)
    sight.page.reload()
    sight.page.wait_for_selector("main[data-view]")
    sight.problems[:] = [told for told in sight.problems if "Failed to load resource" not in told]  # refused in words
    assert sight.page.locator("nav button").count() >= 10


@pytest.mark.parametrize("made", ["tiny", "empty", "out_of_memory"])
def test_report__of_little_or_too_much__is_shown_by_every_view(
    look: Callable[..., Any], generators: ModuleType, made: str
) -> None:
    sight = look(generators.MADE[made]())
    for name in views(sight.page):
        sight.go(name)
        assert sight.page.inner_text(f".view-{name}").strip()


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_file, "SMALL_BYTES", 0)


@pytest.mark.usefixtures("lazy")
def test_damaged_column__in_the_page__is_told_in_its_place_and_the_rest_is_shown(
    browser: Browser, made_small: Report, tmp_path: Path, damage: Callable[[Path, str], bool]
) -> None:
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    assert damage(path, "ops/flops")
    viewer = view(path, browser=False)
    try:
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(viewer.address)
        page.wait_for_selector("main[data-view=summary]")
        page.evaluate("abele.context.go('operations')")
        page.wait_for_function("() => document.querySelector('.view-operations .bad')?.innerText.includes('damaged')")
        for name in set(views(page)) - {"operations"}:
            page.evaluate("(view) => abele.context.go(view)", name)
            page.wait_for_selector(f"main[data-view={name}]")
            assert page.inner_text(f".view-{name}").strip()
        page.close()
        assert errors == []
    finally:
        viewer.close()


def test_file__replaced_while_the_page_is_open__is_offered(
    browser: Browser, made_small: Report, generators: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    viewer = view(tmp_path, browser=False)
    try:
        page = browser.new_page()
        page.goto(viewer.address)
        page.wait_for_selector("main[data-view=summary]")
        generators.tiny().save(path)
        page.locator(".notice button", has_text="Show it as it is now").click(timeout=8_000)
        page.locator(".top", has_text="100 cycles").wait_for()
        os.unlink(path)
        page.locator(".notice").wait_for(timeout=8_000)
        page.locator(".notice button", has_text="Show it as it is now").click()
        page.locator(".notice .bad").wait_for()
        assert "100 cycles" in page.inner_text(".top")
        page.close()
    finally:
        viewer.close()


def test_viewer__that_stops_while_the_page_is_open__is_told(browser: Browser, made_small: Report) -> None:
    viewer = view(made_small, browser=False)
    page = browser.new_page()
    page.goto(viewer.address)
    page.wait_for_selector("main[data-view=summary]")
    begin = time.monotonic()
    viewer.close()
    assert time.monotonic() - begin < 5
    page.locator(".foot .warn", has_text="stopped").wait_for(timeout=8_000)
    page.close()


def test_viewers__of_several_processes_in_one_browser__keep_apart(
    browser: Browser, made_small: Report, small: Report
) -> None:
    viewers = [view(report, browser=False) for report in (made_small, small)]
    context = browser.new_context()
    pages = []
    for viewer in viewers:
        pages.append(context.new_page())
        pages[-1].goto(viewer.address)
        pages[-1].wait_for_selector("main[data-view=summary]")
    titles = []
    for page in pages:
        page.reload()
        page.wait_for_selector("main[data-view=summary]")
        titles.append(page.title())
    context.close()
    for viewer in viewers:
        viewer.close()
    assert len(set(titles)) == 2
