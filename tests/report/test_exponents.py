"""Exponents in reports: heat maps, text, pictures, the command, and damaged tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from abele.cli.main import app
from abele.errors import FileFormatError, InvalidOptionError
from abele.numerics.exponents import count_exponents
from abele.report import EXPONENT_COUNTS, Report
from abele.report.exponents import ExponentRecord, exponent_tables

from .conftest import make_report


def recorded(steps: int = 3) -> Report:
    """Gradients that shrink eightfold from step to step, and a weight of zeros."""
    records = []
    for step in range(1, steps + 1):
        gradient = np.float32([1.0, 1.5, 0.25, 0.0]) * np.float32(8.0 ** (1 - step))
        records.append(ExponentRecord(step, "gradient/fc", "gradient", "f32", count_exponents(gradient)))
        records.append(ExponentRecord(step, "fc", "weight", "f16", count_exponents(np.zeros(5, np.float16))))
    tables = exponent_tables(records)
    return replace(make_report(), exponent_records=tables[0], exponent_counts=tables[1])


def test_heat__of_a_tensor__has_its_octaves_step_by_step() -> None:
    found = recorded().exponents
    assert found.tensors == ("gradient/fc", "fc")
    heat = found.heat("gradient/fc")
    assert heat.steps.tolist() == [1, 2, 3]
    assert heat.octaves == (-8, 0)
    assert [heat.counts[n, 127 - 3 * n] for n in range(3)] == [2, 2, 2]
    assert [heat.counts[n, 125 - 3 * n] for n in range(3)] == [1, 1, 1]
    assert found.heat("fc").octaves == (0, 0)


def test_total__of_the_last_records__leaves_out_earlier_ones() -> None:
    found = recorded().exponents
    assert found.total("gradient/fc").octaves.sum() == 9
    last = found.total("gradient/fc", last=1)
    assert (last.octaves.sum(), last.zeros, last.largest) == (3, 1, 1.5 / 64)
    with pytest.raises(InvalidOptionError, match="how many records"):
        found.total("gradient/fc", last=0)


def test_quarter__of_zeros__is_none() -> None:
    found = recorded().exponents
    assert found.quarter("fc") is None
    choice = found.quarter("gradient/fc")
    assert choice is not None
    assert choice.format == "F143"


def test_text__of_a_tensor__draws_octaves_from_the_highest_down() -> None:
    lines = recorded().exponents.text("gradient/fc").splitlines()
    assert lines[0] == "gradient/fc: gradient, f32, 4 elements"
    assert lines[3] == "2^0    |@  |"
    assert lines[6].startswith("2^-3   | @ |")
    assert lines[-1].split() == ["step", "1", "3"]


def test_text__of_many_steps__joins_them() -> None:
    lines = recorded(200).exponents.text("gradient/fc").splitlines()
    assert max(map(len, lines)) < 100


def test_text__of_all__has_a_line_for_each_and_says_how_many_more() -> None:
    text = recorded().exponents.text(top=1)
    assert "gradient/fc" in text
    assert "and 1 more" in text
    assert "3 steps from 1 to 3" in text


def test_heat__unknown_tensor__names_the_nearest() -> None:
    with pytest.raises(InvalidOptionError, match=r"(?s)no exponents of a tensor 'gradient/fd'.*'gradient/fc'"):
        recorded().exponents.heat("gradient/fd")
    with pytest.raises(InvalidOptionError, match="none were recorded"):
        make_report().exponents.heat("fc")


def test_heat__octave_beyond_all__is_damage() -> None:
    report = recorded()
    counts = EXPONENT_COUNTS.table(record=[0], octave=[128], count=[1])
    with pytest.raises(FileFormatError, match="an octave above 127"):
        replace(report, exponent_counts=counts).exponents.heat("gradient/fc")


@pytest.mark.parametrize("report", [make_report(), recorded(), recorded(1)])
def test_plot__with_and_without_records__is_drawn(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.plot("exponents").savefig(tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 5000


def test_command__exponents__prints_heat_maps(tmp_path: Path) -> None:
    path = tmp_path / "one.abele-report"
    recorded().save(path)

    def said(*more: str) -> str:
        found = CliRunner().invoke(app, ["report", str(path), *more])
        assert found.exit_code == 0
        return found.stdout

    assert "8-bit float" in said("--exponents")
    assert "2^-8" in said("--exponents", "--tensor", "gradient/fc")
    records = json.loads(said("--exponents", "--json"))["records"]
    assert records[0]["octaves"] == {"-2": 1, "0": 2}
    assert json.loads(said("--json"))["exponents"]["records"] == records
    wrong = CliRunner().invoke(app, ["report", str(path), "--tensor", "fc"])
    assert isinstance(wrong.exception, InvalidOptionError) or "--exponents --tensor NAME" in wrong.output
