"""Sparse operands in reports: values by tile, imbalance, passes against the worst, and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from abele.errors import FileFormatError, InvalidOptionError
from abele.report import SPARSE_OPERANDS, SPARSE_PASSES, SPARSE_TILES, Report
from report.conftest import make_report


def with_sparse() -> Report:
    """Two operands on 8 tiles: one of buckets with 16 values at most, and one that is on tiles 0 to 3 alone."""
    operands = SPARSE_OPERANDS.table(
        name=["layer/w", "s"],
        library=["dynamic", "static"],
        type="f16",
        rows=[64, 32],
        columns=[32, 16],
        block_rows=[1, 4],
        block_columns=[1, 4],
        blocks=[80, 6],
        density=[80 / 2048, 96 / 512],
        basis=["counted", "static"],
        capacity=[16, 0],
        tiles=[8, 4],
        mean_values=[10, 24],
        most_values=[16, 48],
        imbalance=[1.6, 2],
        passes=[2, 0],
        worst_passes=[7, 0],
    )
    tiles = SPARSE_TILES.table(
        operand=[0, 0, 1, 1], first_tile=[0, 2, 0, 1], num_tiles=[2, 6, 1, 3], values=[16, 8, 48, 16]
    )
    passes = SPARSE_PASSES.table(
        name=["layer/product"], products=1, passes=2, worst_passes=7, cycles=200, worst_cycles=700
    )
    return replace(make_report(), sparse_operands=operands, sparse_tiles=tiles, sparse_passes=passes)


def test_values_by_tile__runs__are_spread() -> None:
    sparse = with_sparse().sparse
    assert sparse.values_by_tile("layer/w").tolist() == [16, 16, 8, 8, 8, 8, 8, 8]
    assert sparse.values_by_tile(1).tolist() == [48, 16, 16, 16, 0, 0, 0, 0]


@pytest.mark.parametrize("operand", [2, -1, "layer/v"])
def test_values_by_tile__no_such_operand__is_refused(operand: int | str) -> None:
    with pytest.raises(InvalidOptionError, match="no sparse operand"):
        with_sparse().sparse.values_by_tile(operand)


def test_worst_cycles__passes__are_those_of_the_run_with_the_worst_ones() -> None:
    report = with_sparse()
    assert report.sparse.worst_cycles == report.total_cycles - 200 + 700
    other = replace(report, sparse_passes=SPARSE_PASSES.table(name=["p"], program=1, cycles=5, worst_cycles=9))
    assert other.sparse.worst_cycles == report.total_cycles


def test_summary__sparse_operands__have_two_lines() -> None:
    lines = with_sparse().summary().splitlines()
    (operands,) = [line for line in lines if line.startswith("sparse")]
    assert operands.endswith(
        "2 operands (1 dynamic · 1 static); least even: s, whose fullest tile has 2 times the mean"
    )
    (passes,) = [line for line in lines if line.startswith("its passes")]
    assert "2 of 7 at worst" in passes
    assert not [line for line in make_report().summary().splitlines() if line.startswith("sparse")]


def test_text__operands__have_figures_tiles_and_passes() -> None:
    text = with_sparse().sparse.text()
    assert "64 x 32" in text
    assert "|██▄▄▄▄▄▄| layer/w" in text
    assert "|█▃▃▃    | s" in text
    assert text.splitlines()[-1].startswith("passes 2 of 7 at worst")
    assert "and 1 more" in with_sparse().sparse.text(1)
    assert make_report().sparse.text() == "the program has no sparse operand"


def test_json__sparse_operands__are_rows() -> None:
    told = with_sparse().to_json()["sparse"]
    assert [row["name"] for row in told["operands"]] == ["layer/w", "s"]
    assert told["passes"][0]["worst_passes"] == 7
    assert told["worst_cycles"] - told["cycles"] == 500
    assert make_report().to_json()["sparse"]["operands"] == []


def test_file__saved_and_loaded__says_the_same(tmp_path: Path) -> None:
    report = with_sparse()
    report.save(tmp_path / "r")
    loaded = Report.load(tmp_path / "r")
    assert loaded.sparse.text() == report.sparse.text()
    assert loaded.sparse.to_json() == report.sparse.to_json()


@pytest.mark.parametrize(
    ("column", "values"),
    [("operand", [0, 0, 1, 2]), ("first_tile", [0, 2, 0, 9]), ("num_tiles", [2, 60, 1, 3]), ("values", [1, 2, 3, -1])],
)
def test_file__damaged_relation__is_refused(tmp_path: Path, column: str, values: list[int]) -> None:
    report = with_sparse()
    columns = {name: np.asarray(report.sparse_tiles[name]) for name in SPARSE_TILES.columns}
    replace(report, sparse_tiles=SPARSE_TILES.table(**{**columns, column: values})).save(tmp_path / "r")
    with pytest.raises(FileFormatError, match=f"sparse_tiles/{column}"):
        Report.load(tmp_path / "r")
