"""The page to talk to a model, in a headless Chromium."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from abele.llm.serving.app import serving_app
from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.worker import GenerationWorker
from support.scripted_model import scripted_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_MILLISECONDS = 120_000
REFUSED = "Failed to load resource: the server responded with a status of 4"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in this process."""
    import uvicorn

    model = scripted_model(positions=1024, step_seconds=0.002)
    app = serving_app(model, GenerationWorker(model.engine, ServingLimits()), key="secret")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page with its key; it must have no errors and ask nobody else."""
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    problems: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: said.type == "error" and REFUSED not in said.text and problems.append(said.text))
    page.on("request", lambda request: asked.append(request.url))
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.goto(address)
    page.wait_for_selector(".about.bad >> text=key")
    page.fill("#key", "secret")
    page.press("#key", "Tab")
    page.wait_for_selector(".step-row")
    yield page
    page.close()
    assert problems == []
    assert all(url.startswith((address, "data:")) for url in asked)


def ask(page: Page, text: str, **settings: object) -> None:
    for name, value in settings.items():
        page.fill(f"#{name}", str(value))
    page.fill(".ask", text)
    page.press(".ask", "Enter")


def test_question__is_answered_token_by_token_with_times(page: Page) -> None:
    ask(page, "What is gravity?", max_tokens=20, seed=3, temperature=1)
    page.wait_for_selector(".status:text('20 tokens, cut off at the limit')")
    tokens = page.locator(".token")
    assert tokens.count() == 20
    said = page.locator(".model .said").inner_text()
    page.hover(".token >> nth=7")
    tip = page.locator(".tip").inner_text()
    assert "token 8" in tip
    assert "1,850" in tip
    assert page.evaluate("() => abele.strip.index") == 7
    figures = page.locator(".side .figures").inner_text()
    assert "1 µs" in figures
    assert "tokens/s, modelled" in figures
    page.click("button:text('New')")
    assert page.locator(".message").count() == 0
    ask(page, "What is gravity?")
    page.wait_for_selector(".status:text('20 tokens, cut off at the limit')")
    assert page.locator(".model .said").inner_text() == said


def test_step__shows_parts_by_their_cycles(page: Page) -> None:
    rows = page.locator(".step-row").all_inner_texts()
    assert len(rows) == 7
    assert rows[0].split("\n") == ["products with weights", "38%", "700"]
    assert "It fits: 400 kB of 639 kB" in page.locator(".side").inner_text()


def test_escape__stops_an_answer_and_its_sequence(page: Page, address: str) -> None:
    ask(page, "Tell me a lot", max_tokens=900)
    page.wait_for_selector(".token >> nth=5", state="attached")
    page.keyboard.press("Escape")
    page.wait_for_selector(".status:text('stopped')")
    assert 5 < page.locator(".token").count() < 900
    health = "fetch('/health').then((answer) => answer.json())"
    while page.evaluate(f"() => {health}")["running"]:
        time.sleep(0.02)
    ask(page, "Go on", max_tokens=3)
    page.wait_for_selector(".status:text('3 tokens')")


def test_refusal__is_told_and_the_question_stays(page: Page) -> None:
    ask(page, "x" * 2000)
    page.wait_for_selector(".status.bad:has-text('context')")
    assert page.input_value(".ask") == "x" * 2000


def test_text_of_a_model__is_text(page: Page) -> None:
    ask(page, "<img src=x onerror=alert(1)>", max_tokens=2)
    page.wait_for_selector(".status:text('2 tokens')")
    assert page.locator(".user .said").inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator("img").count() == 0


def test_keys_and_theme(page: Page) -> None:
    page.click("h2 >> nth=0")
    page.keyboard.press("/")
    assert page.evaluate("() => document.activeElement.className") == "ask"
    ask(page, "Hi", max_tokens=4)
    page.wait_for_selector(".status:text('4 tokens')")
    page.focus(".chart canvas")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".token").nth(1).get_attribute("class") == "token pointed"
    before = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.click("button:text('theme')")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize("width", [360, 800, 1280, 2600])
def test_any_width__nothing_runs_over(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 760})
    ask(page, "word " * 60, max_tokens=60)
    page.wait_for_selector(".status:has-text('60 tokens')")
    page.check("#times")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.locator(".go").is_visible()


def test_events__in_pieces_of_any_size__are_put_together(page: Page) -> None:
    sent = 'data: {"a":1}\n\n: waiting\n\ndata: two\ndata: lines\r\n\r\ndata: [DONE]\n\n'
    script = """async ([sent, size]) => {
        const { EventLines } = await import("chat/events.js");
        const lines = new EventLines();
        const found = [];
        for (let i = 0; i < sent.length; i += size) found.push(...lines.push(sent.slice(i, i + size)));
        return found;
    }"""
    for size in (1, 2, 3, 7, len(sent)):
        found: list[Any] = page.evaluate(script, [sent, size])
        assert [found[0], *found[1:]] == ['{"a":1}', "two\nlines", "[DONE]"], size
    assert json.loads(found[0]) == {"a": 1}
