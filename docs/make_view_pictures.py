"""Take the pictures of the analyser's views: python docs/make_view_pictures.py FOLDER [--only NAME].

The folder holds reports, NAME.abele-report: digits, braggnn, bert-pod16 (BERT-Large in a pipeline), resnet50 (as
MLPerf's submission trained it), before and after (Smith-Waterman). Pictures of those that are not there are left as
they are. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

from abele.viewer import view

PICTURES = Path(__file__).parent / "pictures"
SIZE = {"width": 1280, "height": 720}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

SHOTS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "view-summary": (("digits",), {"view": "summary"}),
    "view-timeline": (("bert-pod16",), {"view": "timeline"}),
    "view-timeline-tiles": (("braggnn",), {"view": "timeline", "timeline.view": "tiles"}),
    "view-memory": (("bert-pod16",), {"view": "memory"}),
    "view-memory-temporaries": (("resnet50",), {"view": "memory", "memory.tab": "kept", "tiles": "top 1"}),
    "view-memory-code": (("resnet50",), {"view": "memory", "memory.tab": "code", "tiles": "top 1"}),
    "view-liveness": (("braggnn",), {"view": "liveness"}),
    "view-program": (("braggnn",), {"view": "program", "theme": "dark"}),
    "view-operations": (("braggnn",), {"view": "operations"}),
    "view-graph": (("braggnn",), {"view": "graph"}),
    "view-exchange": (("bert-pod16",), {"view": "exchange"}),
    "view-matrix": (("braggnn",), {"view": "matrix"}),
    "view-host": (("braggnn",), {"view": "host"}),
    "view-compare": (("before", "after"), {"view": "compare"}),
}
"""Names of pictures, the reports that they show, and the state of the page."""


def shoot(browser: Browser, reports: list[Path], state: dict[str, str], target: Path) -> None:
    """Take one picture."""
    viewer = view(reports, browser=False)
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(viewer.address)
    page.wait_for_selector("main[data-view]")
    page.evaluate("(hash) => { location.hash = hash }", urlencode(state))
    page.wait_for_selector(f"main[data-view={state['view']}]")
    page.wait_for_timeout(1500)
    page.screenshot(path=target)
    page.close()
    viewer.close()


def main() -> None:
    """Take them all, or some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the reports lie")
    parser.add_argument("--only", default="", help="pictures whose name has this in it")
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, (reports, state) in SHOTS.items():
            paths = [given.folder / f"{report}.abele-report" for report in reports]
            if given.only in name and all(path.exists() for path in paths):
                shoot(browser, paths, state, PICTURES / f"{name}.png")
                print(f"written: {name}.png")
        browser.close()


if __name__ == "__main__":
    main()
