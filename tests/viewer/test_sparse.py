"""The questions of sparse operands."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abele.errors import InvalidOptionError
from abele.report import SPARSE_OPERANDS, SPARSE_PASSES, SPARSE_TILES, Report
from abele.viewer.answers import answer
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params


def with_sparse(report: Report) -> Report:
    operands = SPARSE_OPERANDS.table(
        name=["w"], library=["dynamic"], basis=["counted"], tiles=3, mean_values=[4], most_values=[9], imbalance=[2.25]
    )
    tiles = SPARSE_TILES.table(operand=[0, 0], first_tile=[0, 5], num_tiles=[2, 1], values=[2, 9])
    passes = SPARSE_PASSES.table(name=["p"], passes=[1], worst_passes=[3], cycles=[10], worst_cycles=[40])
    return replace(report, sparse_operands=operands, sparse_tiles=tiles, sparse_passes=passes)


def asked(report: Report, name: str, **params: str) -> Any:
    return answer(Opened("x", "x", report), name, Params(params))


def test_sparse__operands_and_passes__are_the_reports(made_small: Report) -> None:
    report = with_sparse(made_small)
    head = json.loads(json.dumps(asked(report, "sparse").head))
    told = json.loads(json.dumps(report.sparse.to_json()))
    assert head["operands"] == told["operands"]
    assert head["passes"] == told["passes"]
    assert head["worst_cycles"] - head["cycles"] == 30
    assert head["docs"]["sparse_operands"]["imbalance"] == SPARSE_OPERANDS.columns["imbalance"].doc


def test_sparse__report_without_operands__has_none(made_small: Report) -> None:
    assert asked(made_small, "sparse").head["num_operands"] == 0
    with pytest.raises(InvalidOptionError, match="no sparse operand 0"):
        asked(made_small, "sparse.tiles", operand="0")


def test_sparse_tiles__parts__have_the_fullest_tile_of_each(made_small: Report) -> None:
    report = with_sparse(made_small)
    values = report.sparse.values_by_tile(0)
    found = asked(report, "sparse.tiles", operand="0")
    arrays = found.arrays
    assert found.head == {"tiles": len(values), "fullest": 5, "values": 9}
    ends = np.append(arrays["first"][1:], len(values))
    assert len(ends) <= 1024
    for first, end, most, at, mean in zip(
        arrays["first"], ends, arrays["most"], arrays["at"], arrays["mean"], strict=True
    ):
        assert most == values[first:end].max() == values[at]
        assert mean == values[first:end].mean()
        assert first <= at < end
