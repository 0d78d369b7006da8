"""``abele view`` and ``abele demo --view``: what they show, where they say so, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from abele.cli import demo, view
from abele.cli.main import app
from abele.errors import InvalidOptionError, MissingPackageError
from abele.viewer import Viewer

RUNNER = CliRunner()


class Stopped(Viewer):
    """A viewer that was stopped as soon as it began."""

    def __init__(self) -> None:
        self.address = "http://127.0.0.1:1/?token=x"
        self.closed = False

    def wait(self) -> None:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("arguments", [[], ["--report", "run.abele-report"]])
def test_demo__view__shows_what_was_written_or_else_what_was_found(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(demo, "_run", lambda *given, **named: "the report")
    monkeypatch.setattr(demo, "serve", lambda reports, **how: shown.append((reports, how)))
    assert RUNNER.invoke(app, ["demo", "digits", "--view", *arguments]).exit_code == 0
    assert shown == [([Path(arguments[1]) if arguments else "the report"], {"quiet": False})]
    assert RUNNER.invoke(app, ["demo", "digits"]).exit_code == 0
    assert len(shown) == 1


@pytest.mark.parametrize("quiet", [False, True])
def test_view__interrupted__closes_the_viewer_and_says_its_address_where_it_should(
    capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    viewer = Stopped()
    with pytest.raises(KeyboardInterrupt):
        view.until_interrupted(viewer, quiet=quiet)
    assert viewer.closed
    said = capsys.readouterr()
    assert (said.err if quiet else said.out).startswith(viewer.address)
    assert (said.out if quiet else said.err) == ""


def test_view__several_reports_for_perfetto__are_refused(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["view", "a", "b", "--perfetto"])
    assert isinstance(result.exception, InvalidOptionError)


def test_view__perfetto_without_its_page__is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abele.viewer.perfetto.PACKAGE", "no_such_package_of_that_name")
    result = RUNNER.invoke(app, ["view", "a", "--perfetto"])
    assert isinstance(result.exception, MissingPackageError)


@pytest.mark.parametrize("size", ["-1", "0", "1000"])
def test_view__page_without_room__writes_nothing(tmp_path: Path, size: str, made_report: Path) -> None:
    html = tmp_path / "page.html"
    result = RUNNER.invoke(app, ["view", str(made_report), "--html", str(html), "--most-bytes", size])
    assert isinstance(result.exception, InvalidOptionError)
    assert not html.exists()


@pytest.fixture
def made_report(tmp_path: Path) -> Path:
    import abele as ab

    graph = ab.Graph("bow-2000:1")
    a = graph.variable(ab.f32, (64,), name="a").map_linear()
    program = ab.Sequence()
    ab.popops.add(graph, a, a, program)
    path = tmp_path / "run.abele-report"
    ab.compile_program(graph, program).report.save(path)
    return path
