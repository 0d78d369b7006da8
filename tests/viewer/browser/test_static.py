"""The page as one file: it shows what the served page shows, from a folder, in a frame without rights, offline."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from abele.report import Report
from abele.viewer import static_page
from abele.viewer.answers import QUESTIONS, answer
from abele.viewer.open_reports import Shelf
from abele.viewer.params import Params
from abele.viewer.static import address
from abele.viewer.wire import pack, unpack

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

Open = Callable[[Path], "Page"]


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Open]:
    """Opens a file offline; the test fails if the page had an error or asked for anything outside of itself."""
    closing: list[Callable[[], Any]] = []
    problems: list[str] = []
    asked: list[str] = []

    def opened(path: Path) -> Page:
        context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
        closing.append(context.close)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page

    yield opened
    for close in closing:
        close()
    assert problems == []
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in asked)


@pytest.fixture(scope="module")
def page_file(small: Report, made_small: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    static_page([small, made_small], path)
    return path


def test_static_page__from_a_folder__shows_every_view_without_a_server(open_file: Open, page_file: Path) -> None:
    page = open_file(page_file)
    page.wait_for_selector("main[data-view=summary]")
    for name in page.evaluate("import('abele/views/index.js').then((m) => m.VIEWS.map((v) => v.name))"):
        page.evaluate("(view) => abele.context.go(view)", name)
        page.wait_for_selector(f"main[data-view={name}]")
    page.evaluate("abele.context.go('operations')")
    page.wait_for_selector(".view-operations .tr[role=row]")
    assert "first" in page.inner_text(".view-operations")
    assert "without a server" in page.inner_text(".foot")


def test_static_page__first_sight_of_every_view__is_in_the_file(open_file: Open, page_file: Path) -> None:
    page = open_file(page_file)
    page.wait_for_selector("main[data-view=summary]")
    page.evaluate(
        """() => {
          globalThis.lacking = [];
          const { source } = abele;
          const ask = source.ask.bind(source);
          source.ask = (key, question, params = {}) => {
            if (!source.has(key, question, params)) {
              lacking.push(`${abele.state.get("view")}: ${question} ${JSON.stringify(params)}`);
            }
            return ask(key, question, params);
          };
        }"""
    )
    for name in page.evaluate("import('abele/views/index.js').then((m) => m.VIEWS.map((v) => v.name))"):
        page.evaluate("(view) => abele.context.go(view)", name)
        page.wait_for_selector(f"main[data-view={name}]")
        page.wait_for_timeout(300)
    assert page.evaluate("lacking") == []


def test_static_page__filter_of_a_table__works_on_the_rows_that_are_there(open_file: Open, page_file: Path) -> None:
    page = open_file(page_file)
    page.wait_for_selector("main[data-view=summary]")
    page.evaluate("abele.context.go('operations')")
    page.wait_for_selector(".view-operations .tr[role=row]")
    page.fill(".view-operations input[type=search]", "second")
    page.wait_for_function("() => document.querySelector('.view-operations').innerText.includes('1 of')")
    assert page.locator(".view-operations .tr[aria-rowindex]").count() == 1


def test_static_page__in_a_frame_without_rights__works_as_in_a_notebook(
    open_file: Open, page_file: Path, tmp_path: Path
) -> None:
    outer = tmp_path / "notebook.html"
    inner = escape(page_file.read_text("utf-8"))
    outer.write_text(f'<!doctype html><iframe sandbox="allow-scripts" width=1200 height=600 srcdoc="{inner}"></iframe>')
    page = open_file(outer)
    frame = page.frame_locator("iframe")
    frame.locator("nav button", has_text="Operations").click()
    frame.locator(".view-operations .tr[role=row]").first.wait_for()
    # The state changes, and writing it into an address that the frame has not must not be an error.
    page.wait_for_timeout(300)


def test_static_page__its_policy__lets_nothing_out(browser: Browser, page_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        outside.settimeout(0.5)
        target = f"http://127.0.0.1:{outside.getsockname()[1]}/"
        page = browser.new_page()
        page.goto(page_file.as_uri())
        page.wait_for_selector("main[data-view=summary]")
        refused = page.evaluate(
            """async (target) => {
              const tries = {};
              tries.fetch = await fetch(target, { mode: "no-cors" }).then(() => "sent", () => "refused");
              tries.beacon = navigator.sendBeacon(target) ? "queued" : "refused";
              tries.image = await new Promise((done) => {
                const image = new Image();
                image.onload = () => done("sent");
                image.onerror = () => done("refused");
                image.src = target;
              });
              tries.script = await import(target).then(() => "sent", () => "refused");
              tries.code = await new Promise((done) => {
                const script = document.createElement("script");
                script.textContent = "globalThis.ran = true";
                document.body.append(script);
                done(globalThis.ran ? "ran" : "refused");
              });
              return tries;
            }""",
            target,
        )
        page.close()
        assert {name: refused[name] for name in ("fetch", "image", "script", "code")} == dict.fromkeys(
            ("fetch", "image", "script", "code"), "refused"
        )
        with pytest.raises(TimeoutError):
            outside.accept()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"of": "ops", "sort": "-cycles", "count": "2000"},
        {"b": "2", "a": "1", "empty": ""},
        {"x": "a b+c&d=e/é~*'()!-._\N{GRINNING FACE}"},
    ],
)
def test_address__of_a_frozen_answer__is_the_one_that_the_page_asks(
    open_file: Open, page_file: Path, params: dict[str, str]
) -> None:
    page = open_file(page_file)
    page.wait_for_selector("main[data-view=summary]")  # Modules have names from here on.
    asked = page.evaluate(
        "([params]) => import('abele/core/source.js').then((m) => m.address('key', 'question', params))", [params]
    )
    assert address("key", "question", params) == asked


def test_static_page__answers__are_those_of_the_server(open_file: Open, page_file: Path, small: Report) -> None:
    page = open_file(page_file)
    page.wait_for_selector("main[data-view=summary]")
    facts = page.evaluate("abele.context.ask('facts').then((a) => JSON.stringify(a.head))")
    assert json.loads(facts)["rows"]["ops"] == len(small.ops)
    assert json.loads(facts)["cycles"] == small.total_cycles
    (opened,) = Shelf([small])
    for name in ("memory.tiles", "timeline.lanes", "operations", "matrix"):
        question = QUESTIONS[name]
        assert question.frozen is not None
        params = dict(next(question.frozen(opened)))
        told = page.evaluate(
            """([name, params]) => abele.context.ask(name, params).then(({ arrays }) => Object.fromEntries(
              Object.entries(arrays).map(([n, a]) => [n, [a.constructor.name, Array.from(a)]])))""",
            [name, params],
        )
        expected = unpack(pack(answer(opened, name, Params(params)))).arrays
        assert told.keys() == expected.keys()
        for array_name, (type_name, items) in told.items():
            assert type_name.removesuffix("Array").lower() == expected[array_name].dtype.name
            assert items == expected[array_name].reshape(-1).tolist()
