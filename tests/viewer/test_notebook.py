"""Reports in notebooks: a frame without rights that holds the whole page; elsewhere the browser."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace

import pytest

import abele as ab
from abele.report import Report
from abele.viewer import Page, notebook, show, static_html


class Frames(HTMLParser):
    """Notes the elements of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def in_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(kernel=object())
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)


@pytest.mark.usefixtures("in_notebook")
def test_show__in_a_notebook__is_a_frame_without_rights_that_holds_the_page(made_small: Report) -> None:
    page = show(made_small, height=500)
    assert isinstance(page, Page)
    assert "<iframe" not in repr(page)
    ((tag, attributes),) = Frames(page._repr_html_()).found
    assert tag == "iframe"
    assert set(str(attributes["sandbox"]).split()) == {"allow-scripts", "allow-downloads"}
    assert attributes["height"] == "500"
    assert attributes["srcdoc"] == static_html(made_small, notebook.NOTEBOOK_BYTES)


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_show__in_a_program_or_a_terminal__opens_the_browser(
    made_small: Report, monkeypatch: pytest.MonkeyPatch, shell: object
) -> None:
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    viewer = show(made_small)
    assert not isinstance(viewer, Page)
    viewer.close()
    assert opened == [viewer.address]


@pytest.mark.usefixtures("in_notebook")
def test_engine__view__shows_its_report() -> None:
    graph = ab.Graph("bow-2000:1")
    a = graph.variable(ab.f32, (64,), name="a").map_linear()
    program = ab.Sequence()
    ab.popops.add(graph, a, a, program, name="only sum")
    page = ab.Engine(graph, program).view()
    assert isinstance(page, Page)
    assert "abele-frozen" in page.html
