"""Sparse operands that library calls note, as reports tell them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele import Engine
from abele.compiler import Executable
from abele.errors import FileFormatError
from abele.graph import BucketWords, Graph, Sequence
from abele.numerics import f32
from abele.poplibs.popsparse import CSRMatrix, dynamic, experimental, static_
from abele.report import Report
from abele.sparsity import Pattern, random_pattern
from poplibs.poplibs_kit import system_of
from poplibs.popsparse.dynamic.sparse_kit import grid

OPTIONS = grid(3, 4, 2)
PARAMS = dynamic.FullyConnectedParams.createWithNzRatio(dynamic.SparsityParams(), 0.15, 8, 1, 32, 48)


@pytest.fixture(scope="module")
def layer() -> tuple[Engine, Any]:
    graph, prog = Graph(system_of(24)), Sequence()
    weights = dynamic.createFullyConnectedWeights(graph, "float", PARAMS, "w", options=OPTIONS)
    acts = dynamic.createFullyConnectedInput(graph, "float", PARAMS, "x", options=OPTIONS)
    for _ in range(2):
        dynamic.fullyConnectedFwd(graph, weights, acts, PARAMS, prog, options=OPTIONS)
    return Engine(graph, prog), weights


def ran(layer: tuple[Engine, Any], pattern: Pattern) -> tuple[Report, Any]:
    engine, weights = layer
    partitioner = dynamic.Partitioner(PARAMS, "float", engine.graph, OPTIONS)
    data = partitioner.createSparsityDataImpl((pattern, np.ones((pattern.num_blocks, *pattern.block), np.float32)))
    engine.write(weights.metaInfo, data.metaInfo)
    engine.write(weights.nzValues, data.nzValues)
    engine.run()
    return engine.report, partitioner.place(pattern)


@pytest.mark.parametrize("rows", [0, 7])
def test_dynamic__written_pattern__is_counted_in_its_buckets(layer: tuple[Engine, Any], rows: int) -> None:
    mask = np.zeros((48, 32), bool)
    mask[:rows] = True
    report, place = ran(layer, Pattern.from_dense_mask(mask) if rows else random_pattern((48, 32), 0.14))
    (row,) = report.sparse_operands.rows()
    held = np.bincount(place.placed.bucket, minlength=24)
    assert report.sparse.values_by_tile("w").tolist() == held.tolist()
    assert (row["library"], row["basis"], row["blocks"]) == ("dynamic", "counted", held.sum())
    assert row["imbalance"] == pytest.approx(held.max() / held.mean())
    assert held.max() <= row["capacity"] == place.plan.nz_slots
    assert (row["passes"], row["worst_passes"]) == (place.passes, 11)
    assert [(p["passes"], p["worst_passes"]) for p in report.sparse_passes.rows()] == [(place.passes, 11)] * 2
    assert report.sparse.worst_cycles > report.total_cycles


def test_dynamic__executable__has_what_was_declared(layer: tuple[Engine, Any], tmp_path: Path) -> None:
    executable = layer[0].executable
    executable.save(tmp_path / "e")
    loaded = Executable.load(tmp_path / "e")
    for report in (executable.report, loaded.report):
        (row,) = report.sparse_operands.rows()
        assert (row["basis"], row["blocks"]) == ("assumed", PARAMS.numNonZeroValues)
        assert report.sparse.values_by_tile(0).sum() == PARAMS.numNonZeroValues
        assert len(report.sparse_passes) == 0


@pytest.mark.parametrize(
    "change",
    [{2: "f7"}, {3: [1 << 30, 1 << 30]}, {6: "a0.npy"}, {10: 0}, {12: [1 << 30, 1, 1, 1]}, {1: "other"}, {11: 1 << 20}],
)
def test_executable__hostile_note__is_refused_or_harmless(
    layer: tuple[Engine, Any], tmp_path: Path, change: dict[int, Any]
) -> None:
    layer[0].executable.save(tmp_path / "e")
    with zipfile.ZipFile(tmp_path / "e") as source, zipfile.ZipFile(tmp_path / "h", "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "executable.json":
                document = json.loads(content)
                for place, value in change.items():
                    document["graph"]["sparse_operands"][0][place] = value
                content = json.dumps(document).encode()
            target.writestr(name, content)
    try:
        loaded = Executable.load(tmp_path / "h")
    except FileFormatError:
        return
    assert Engine(loaded).report.sparse.text()


def test_static__pattern__has_values_of_each_part() -> None:
    graph, prog = Graph(system_of(24)), Sequence()
    pattern = random_pattern((64, 48), 0.3, (4, 4))
    matrix = CSRMatrix.from_pattern(pattern, np.ones((pattern.num_blocks, 4, 4)))
    params = static_.MatMulParams.createForSparseDense(1, 64, 48, 16)
    with graph.scope("layer"):
        sparse = static_.createSparseDenseMatMulLHS(graph, "float", params, matrix, "s")
    static_.sparseDenseMatMul(
        graph, sparse, static_.createSparseDenseMatMulRHS(graph, "float", params, matrix, "d"), prog
    )
    report = Engine(graph, prog).report
    (row,) = report.sparse_operands.rows()
    assert (row["name"], row["library"], row["basis"]) == ("layer/s", "static", "static")
    assert (row["rows"], row["columns"], row["block_rows"], row["blocks"]) == (64, 48, 4, pattern.num_blocks)
    parts = sparse.layouts.layout.plan.splits
    held = report.sparse.values_by_tile(0)
    assert held.sum() == parts * pattern.num_values
    assert row["imbalance"] == pytest.approx(held.max() / (held.sum() / row["tiles"]))


def test_experimental__masks__count_blocks_on_each_tile() -> None:
    graph, prog = Graph(system_of(16)), Sequence()
    pattern = random_pattern((64, 64), 0.4, (8, 8))
    params = experimental.BSMatMulParams((16, 64, 64), (16, 8, 8), pattern, False, f32, f32, f32)
    left = experimental.createBSMatMulInputLHS(graph, params, name="x")
    right = experimental.createBSMatMulInputRHS(graph, params, name="w")
    experimental.bsMatMul(graph, params, left, right, prog)
    report = Engine(graph, prog).report
    (row,) = report.sparse_operands.rows()
    assert (row["name"], row["library"], row["blocks"]) == ("w", "experimental", pattern.num_blocks)
    assert report.sparse.values_by_tile("w").sum() % pattern.num_values == 0


def test_bucket_words__what_no_partitioner_wrote__is_no_pattern() -> None:
    buckets = BucketWords(4, 40, 10, 1)
    rng = np.random.default_rng(0)
    for size in (0, 10, 84):
        assert buckets.values(np.zeros(size), 2) is None or size == 84
    for words in rng.integers(0, 1 << 16, (50, 84)):
        found = buckets.values(words, 2)
        assert found is None or (found >= 0).all()
