"""A headless Chromium for the page, and reports to show; skipped with a reason where there is no browser."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from abele.report import Report
from abele.viewer import Viewer, view
from page_coverage import keep, watch

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SIZE = {"width": 1280, "height": 720}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


PATIENCE_SECONDS = 120
"""Longest wait for the page to open and for its elements: a busy machine starts a browser late."""


class Sight:
    """A page that shows some reports, and what went wrong on it.

    Attributes:
        page: Playwright's page.
        viewer: Viewer that serves it.
        problems: Errors of scripts and of the console.
        asked: Addresses of all requests.
        excused: Words that problems may have in them, where a test provokes them.
    """

    def __init__(self, page: Page, viewer: Viewer) -> None:
        self.page = page
        self.viewer = viewer
        self.address = address = viewer.address
        self.problems: list[str] = []
        self.excused = ""
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda said: said.type == "error" and self.problems.append(said.text))
        page.on("request", lambda request: self.asked.append(request.url))
        self.calls = watch(page)
        page.set_default_timeout(1000 * PATIENCE_SECONDS)
        page.goto(address)
        page.wait_for_selector("main[data-view]")

    def go(self, view: str, **state: object) -> None:
        """Show a view, with this state."""
        self.page.evaluate("([view, state]) => abele.context.go(view, state)", [view, state])
        self.page.wait_for_selector(f"main[data-view={view}]")
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is loaded and the last frame is drawn."""
        self.until("abele.source.waiting.size === 0")
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.until("abele.source.waiting.size === 0 && abele.loading.element.hidden")

    def until(self, condition: str, seconds: float = 5.0) -> None:
        """Wait for an expression of the page to be true; the page's policy forbids what Playwright has for it."""
        limit = time.monotonic() + seconds
        while not self.page.evaluate(f"() => Boolean({condition})"):
            assert time.monotonic() < limit, f"not in {seconds} s: {condition}"
            time.sleep(0.02)


Look = Callable[..., Sight]


@pytest.fixture
def look(browser: Browser) -> Iterator[Look]:
    """Opens reports in a page: ``look(report, …)``; the test fails if the page had an error or asked anybody else."""
    closing: list[Callable[[], None]] = []
    sights: list[Sight] = []

    def opened(*reports: Report | Path, size: dict[str, int] | None = None, dark: bool = False) -> Sight:
        viewer = view(list(reports), browser=False)
        closing.append(viewer.close)
        page = browser.new_page(viewport=size or SIZE, color_scheme="dark" if dark else "light")
        closing.append(page.close)
        sights.append(Sight(page, viewer))
        return sights[-1]

    yield opened
    for sight in sights:
        keep(sight.calls)
    for close in reversed(closing):
        close()
    for sight in sights:
        assert [p for p in sight.problems if not sight.excused or sight.excused not in p] == []
        assert all(url.startswith(("http://127.0.0.1:", "blob:", "data:")) for url in sight.asked)


@pytest.fixture(scope="module")
def frame(browser: Browser, small: Report) -> Iterator[Sight]:
    """One page for tests of the modules' functions."""
    viewer = view(small, browser=False)
    page = browser.new_page(viewport=SIZE)
    sight = Sight(page, viewer)
    yield sight
    keep(sight.calls)
    page.close()
    viewer.close()


@pytest.fixture(scope="session")
def small() -> Report:
    """Two products and a sum on part of an IPU, run once."""
    import numpy as np

    import abele as ab
    from abele.poplibs import poplin, popops

    graph = ab.Graph("bow-2000:1")
    a, b = (graph.variable(ab.f32, (64, 64), name=name).map_linear() for name in "ab")
    program = ab.Sequence()
    product = poplin.matmul(graph, a, b, program, name="first")
    again = poplin.matmul(graph, product, b, program, name="second")
    popops.add(graph, product, again, program, name="sum")
    engine = ab.Engine(graph, program)
    engine["a"] = np.ones((64, 64), np.float32)
    engine["b"] = np.ones((64, 64), np.float32)
    engine.run()
    return engine.report


@pytest.fixture
def files(small: Report, tmp_path: Path) -> tuple[Path, Path]:
    """A report's file, and one of a trace of two threads with a series and an instant."""
    report, trace = tmp_path / "r.abele-report", tmp_path / "t.json"
    small.save(report)
    rows = [{"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "<b>loader</b>"}}]
    for n in range(50):
        rows.append(
            {
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "name": "load",
                "cat": "data",
                "ts": n * 100,
                "dur": 80,
                "args": {"batch": n},
            }
        )
        rows.append({"ph": "X", "pid": 1, "tid": 1, "name": "decode", "cat": "data", "ts": n * 100, "dur": 0.4})
        rows.append({"ph": "C", "pid": 1, "name": "loss", "ts": n * 100, "args": {"loss": 1 / (n + 1)}})
    rows.append({"ph": "i", "s": "t", "pid": 1, "tid": 1, "name": "epoch", "ts": 2500})
    rows.append({"ph": "X", "pid": 1, "tid": 2, "name": "Engine.run", "ts": 1000, "dur": 500})
    trace.write_text(json.dumps({"traceEvents": rows}))
    return report, trace
