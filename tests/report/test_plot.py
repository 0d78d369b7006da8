"""Pictures of reports: what they draw, what they refuse, and names that would upset a drawing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele.errors import InvalidOptionError, MissingPackageError
from abele.report import LIVENESS, OPS, STEPS, VARIABLES, Memory, Report
from abele.report.plot import KINDS

pytest.importorskip("matplotlib", reason="needs matplotlib")

NASTY = "$\\frac{$ <b>[red]\x1b[2J\u202e 名前 $x^2$\n" * 5


def words(figure: Any) -> str:
    """All text of a figure, as one string; drawing it proves that all of it can be drawn."""
    from matplotlib.text import Text

    figure.set_dpi(40)
    figure.canvas.draw()
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def colours(figure: Any) -> set[tuple[int, int, int]]:
    """The colours of a drawn figure."""
    figure.set_dpi(40)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].reshape(-1, 3)
    return {tuple(int(part) for part in each) for each in np.unique(pixels, axis=0)}


def bare(**changes: Any) -> Report:
    """A report of nothing: one tile, no steps, no runs."""
    given = {
        "target": ab.systems.get("bow").figures(),
        "graph": {},
        "steps": STEPS.empty(),
        "ops": OPS.empty(),
        "memory": Memory.of(1, 1000),
        "variables": VARIABLES.empty(),
        "liveness": LIVENESS.empty(),
    }
    return Report(**(given | changes))


@pytest.mark.parametrize("kind", KINDS)
def test_plot__each_kind__names_its_report_and_system(report: Report, overlapped: Report, kind: str) -> None:
    for drawn in (report, overlapped):
        text = words(drawn.plot(kind))
        assert drawn.target["name"] in text


@pytest.mark.parametrize("kind", KINDS)
def test_plot__report_of_nothing__is_drawn_all_the_same(kind: str) -> None:
    assert words(bare().plot(kind))
    assert words(bare(memory=Memory.of(1, 1000, variables=2000)).plot(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_plot__names_with_formulas_markup_and_control_characters__are_drawn_as_text(report: Report, kind: str) -> None:
    names = {column: [NASTY] * len(report.steps) for column in ("name", "block")}
    steps = STEPS.table(**{**report.steps.to_lists(), **names})
    ops = OPS.table(**{**report.ops.to_lists(), "name": [NASTY] * len(report.ops), "path": NASTY, "file": NASTY})
    named = replace(report, steps=steps, ops=ops).with_meta(name=NASTY)
    text = words(named.plot(kind))
    assert r"\$\frac{\$ <b>[red]�[2J� □□" in text
    assert "\x1b" not in text


def test_plot__memory__says_fullest_tile_and_limit_and_draws_each_category(report: Report) -> None:
    text = words(report.plot("memory"))
    assert "fits; fullest tile 7 holds 174 B, 17%" in text
    assert "a tile has 1,000 B, 6 times the fullest" in text
    full = replace(report, memory=Memory.of(8, 100, variables=np.arange(8) * 20, stacks=5))
    assert "does not fit on 3 tiles; fullest tile 7 holds 145 B, 145%" in words(full.plot("memory"))
    drawn = colours(full.plot("memory"))
    assert {(0x35, 0x66, 0xA8), (0x2F, 0x9E, 0x67)} <= drawn
    assert (0xE0, 0x8A, 0x1E) not in drawn


def test_plot__memory_of_a_pod__one_full_tile_of_many_is_marked() -> None:
    held = np.full(94_208, 100)
    held[70_001] = 5000
    figure = bare(memory=Memory.of(94_208, 4000, variables=held)).plot("memory")
    mark = next(line for line in figure.axes[0].lines if line.get_marker() != "None")
    assert mark.get_xdata()[0] == 70_001.5
    assert mark.get_ydata()[0] == 5000
    tops = [patch.get_data().values.max() for patch in figure.axes[0].patches]
    assert max(tops) == 5000


def test_plot__timeline__has_a_lane_for_each_group_in_the_colours_of_its_cycles(overlapped: Report) -> None:
    figure = overlapped.plot("timeline")
    lanes = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert lanes == overlapped.groups["name"].tolist()
    picture = figure.axes[0].images[0].get_array()
    host, compute = np.array([0x3D, 0x9B, 0xD1]), np.array([0x2F, 0x9E, 0x67])
    rows = picture.reshape(2, 50, -1, 3)[:, :42]
    blue = (rows == host).all(-1).mean(axis=(1, 2))
    green = (rows == compute).all(-1).mean(axis=(1, 2))
    assert blue.max() == pytest.approx(0.3, abs=0.01)
    assert green.max() == pytest.approx(0.2, abs=0.01)


def test_plot__cycles__shares_add_up_to_the_whole(overlapped: Report) -> None:
    figure = overlapped.plot("cycles")
    tops = np.max([patch.get_data().values for patch in figure.axes[1].patches], axis=0)
    np.testing.assert_allclose(tops, 100, atol=1e-6)


def test_plot__operations__lists_the_first_with_share_and_line(report: Report) -> None:
    text = words(report.plot("operations", top=1))
    assert "layer1/conv" in text
    assert "model.py:12" in text
    assert "1 of 2 operations" in text
    assert "loss" not in text


def test_plot__exchange__counts_executions(report: Report) -> None:
    text = words(report.plot("exchange"))
    assert "conv/exchange" in text
    assert "120 cycles   4 x 0 B" in text
    assert "program 1 exchanges nothing" in words(report.plot("exchange", program=1))


def test_plot__runs__of_the_host(report: Report) -> None:
    assert "no run of program 0 is recorded" in words(report.plot("runs"))
    ran = report.with_run(name="a", mode="native", threads=1, wall_seconds=0.002)
    assert "median 2 ms; native, 1 thread" in words(ran.plot("runs"))


def test_plot__real_program_that_does_not_fit__is_drawn() -> None:
    graph = ab.Graph("pod16")
    x = graph.variable(ab.f32, (300_000,), name="x").map_linear()
    y = graph.variable(ab.f32, (300_000,), name="y").map(5)
    report = ab.compile_program(graph, ab.Copy(x, y), allow_out_of_memory=True).report
    text = words(report.plot())
    assert "DOES NOT FIT on 1 tile; fullest tile 5" in text
    assert "timeline" in text
    assert "100% of the cycles" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "memroy"}, "there is no plot 'memroy' of a report\n  try      did you mean 'memory'"),
        ({"kind": "zzz"}, "one of overview, memory"),
        ({"program": 2}, "there is no program 2: the report has 2 programs"),
        ({"program": -1}, "there is no program -1"),
        ({"top": 0}, "top = 0: must be at least 1"),
        ({"cycles": 0}, "no cycles from 0 to 0 to show"),
        ({"first": -5}, "no cycles from -5"),
    ],
)
def test_plot__wrong_choice__is_refused(report: Report, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        report.plot(**arguments)
    assert message in str(caught.value)


def test_plot__without_matplotlib__says_what_to_install(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abele.report.plot.kinds.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="plots need matplotlib") as caught:
        report.plot()
    assert caught.value.remedy == "pip install 'abele[plot]'"
    assert isinstance(caught.value, ImportError)


def test_plot__notebook__is_given_a_picture(report: Report) -> None:
    assert report.plot("memory")._repr_png_().startswith(b"\x89PNG")


def test_plot__user_style_and_no_display__change_nothing(tmp_path: Path, report: Report) -> None:
    report.save(tmp_path / "r")
    code = (
        "import sys, matplotlib; matplotlib.rcParams.update({'text.usetex': True, 'font.size': 40})\n"
        "from abele import Report\n"
        f"Report.load({str(tmp_path / 'r')!r}).plot('memory').savefig({str(tmp_path / 'p.svg')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "MPLBACKEND": "TkAgg", "HOME": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(ab.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


def test_import__report__leaves_matplotlib_alone() -> None:
    code = "import abele, sys; abele.Report; import abele.report.plot; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert importlib.util.find_spec("matplotlib") is not None
