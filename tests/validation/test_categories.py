"""Memory by category beside a published profile."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from abele.validation import categories
from abele.validation.figures import Comparison


@pytest.fixture(scope="module")
def found() -> dict[str, Comparison]:
    return {c.key: c for c in categories.compare()}


def test_categories__every_operation__has_a_figure_of_each_that_is_published(found: dict[str, Comparison]) -> None:
    assert list(found) == ["vertex_state", "exchange_code", "control_code", "vertex_code"]
    assert [len(c.figures) for c in found.values()] == [10, 9, 10, 1]


def test_categories__vertex_code_of_a_layer__is_as_published(found: dict[str, Comparison]) -> None:
    assert found["vertex_code"].spread.worst < 0.1


@pytest.mark.parametrize("category", ["vertex_state", "control_code"])
def test_categories__state_and_control_code__keep_to_the_bars(category: str, found: dict[str, Comparison]) -> None:
    assert found[category].holds, found[category].spread


def test_categories__elementwise_product__agrees_to_the_byte(found: dict[str, Comparison]) -> None:
    exact = [f for c in found.values() for f in c.figures if f.name.startswith("Z/Mul:")]
    assert len(exact) == 2
    assert all(f.predicted == f.reference for f in exact)


def test_categories__exchange_code__is_within_a_factor_of_three(found: dict[str, Comparison]) -> None:
    assert all(1 / 3 <= f.predicted / f.reference <= 3 for f in found["exchange_code"].figures)


@pytest.mark.shared
def test_published__rows__are_those_of_the_profile(shared_data: Path) -> None:
    columns = ("vertex_state_B", "exchange_code_B", "control_code_B")
    with (shared_data / "reference" / "tile_memory_breakdown.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    rows = {tuple(int(row[c]) for c in columns) for row in read if row["table"] == "operation"}
    assert all((p.state, p.exchange, p.control) in rows for p in categories.PUBLISHED)
    layers = [row for row in read if row["table"] == "layer" and row["model"].startswith("bert_large")]
    assert sum(row["vertex_code_B"] == str(categories.LAYER_CODE_BYTES) for row in layers) > len(layers) / 2
