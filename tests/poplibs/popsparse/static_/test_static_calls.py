"""Calls of static products: PopLibs' order of arguments, the partitioner, what is refused, and what is charged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.errors import (
    InvalidOptionError,
    PatternMismatchError,
    SparsePatternError,
    TensorError,
    TypeMismatchError,
    UnsupportedOpError,
)
from abele.graph import Graph, Sequence
from abele.numerics import f16, f32
from abele.poplibs import popsparse
from abele.poplibs.popsparse import COOMatrix, CSCMatrix, CSRMatrix, static_
from abele.sparsity import Pattern, random_pattern

PATTERN = random_pattern((32, 48), 0.25, (4, 4), seed=2)
VALUES = np.random.default_rng(0).normal(size=(PATTERN.num_blocks, 4, 4)).astype(np.float32)
MATRIX = CSRMatrix.from_pattern(PATTERN, VALUES)
FORWARD = static_.MatMulParams.createForSparseDense(1, 32, 48, 8)
BACKWARD = static_.MatMulParams.createForDenseSparse(1, 8, 32, 48)


def test_calls__in_poplibs_order__are_understood() -> None:
    graph, prog, cache = Graph("bow"), Sequence(), static_.PlanningCache()
    options = {"availableMemoryProportion": "0.5", "enablePreprocessing": "false"}
    a = static_.createSparseDenseMatMulLHS(graph, f16, FORWARD, MATRIX, {"weights"}, options, cache)
    b = static_.createSparseDenseMatMulRHS(graph, f16, FORWARD, MATRIX, {"acts"}, options, cache)
    out = static_.sparseDenseMatMul(graph, a, b, prog, False, False, {"product"}, options, cache)
    assert out.shape == (1, 32, 8)
    assert cache.size() == 1
    assert popsparse.static_ is static_
    assert a.getNzValuesTensor() is a.nzValues
    assert a.shape == (1, 32, 48)


@pytest.mark.parametrize("params", [FORWARD, BACKWARD])
@pytest.mark.parametrize("kind", [COOMatrix, CSRMatrix, CSCMatrix])
@pytest.mark.parametrize("block", [1, 4, 8, 16])
def test_partitioner__three_formats__come_back(params: static_.MatMulParams, kind: Any, block: int) -> None:
    pattern = random_pattern((32, 48), 0.3, (block, block), seed=block)
    values = np.random.default_rng(block).normal(size=(pattern.num_blocks, block, block)).astype(np.float32)
    matrix = kind.from_pattern(pattern, values)
    partitioner = static_.Partitioner(params, "float", Graph("bow"))
    device = partitioner.createSparsityDataImpl(matrix)
    assert device.shape == (pattern.num_values,)
    for back in (
        partitioner.sparsityDataImplToCSRMatrix(device),
        partitioner.sparsityDataImplToCSCMatrix(device),
        partitioner.sparsityDataImplToCOOMatrix(device),
    ):
        np.testing.assert_array_equal(back.to_dense(), matrix.to_dense())


def test_partitioner__another_pattern__is_refused() -> None:
    partitioner = static_.Partitioner(FORWARD, "half", Graph("bow"))
    with pytest.raises(PatternMismatchError, match="createSparsityDataImpl"):
        partitioner.sparsityDataImplToCSRMatrix(np.zeros(PATTERN.num_values))
    partitioner.createSparsityDataImpl(MATRIX)
    other = CSRMatrix.from_pattern(random_pattern((32, 48), 0.25, (4, 4), seed=3), VALUES)
    with pytest.raises(PatternMismatchError, match=r"the matrix before[\s\S]*are others, the first at row 0, column"):
        partitioner.createSparsityDataImpl(other)
    with pytest.raises(PatternMismatchError, match="3 values do not fill"):
        partitioner.sparsityDataImplToCSRMatrix(np.zeros(3))


def test_create__what_does_not_fit__is_refused() -> None:
    graph = Graph("bow")
    with pytest.raises(PatternMismatchError, match="is no sparse operand of 48 x 32"):
        static_.createSparseDenseMatMulLHS(graph, f16, static_.MatMulParams.createForSparseDense(1, 48, 32, 8), MATRIX)
    with pytest.raises(PatternMismatchError, match="of the other product"):
        static_.createSparseDenseMatMulLHS(graph, f16, BACKWARD, MATRIX)
    with pytest.raises(SparsePatternError, match="blocks are 2 x 2"):
        static_.createSparseDenseMatMulLHS(graph, f16, FORWARD, PATTERN.recut((2, 2))[0])
    with pytest.raises(SparsePatternError, match="blocks are 4 x 2"):
        static_.createSparseDenseMatMulLHS(graph, f16, FORWARD, PATTERN.recut((4, 2))[0])
    with pytest.raises(TypeMismatchError, match="half, float or 8-bit floats, got i32"):
        static_.createSparseDenseMatMulLHS(graph, "i32", FORWARD, MATRIX)
    with pytest.raises(InvalidOptionError, match="numBand"):
        static_.createSparseDenseMatMulLHS(graph, f16, FORWARD, MATRIX, options={"numBand": 3})
    with pytest.raises(InvalidOptionError, match="availableMemoryProportion"):
        static_.createSparseDenseMatMulLHS(graph, f16, FORWARD, MATRIX, options={"availableMemoryProportion": 1.5})
    with pytest.raises(UnsupportedOpError, match="one group, got 2"):
        static_.MatMulParams.createForSparseDense(2, 32, 48, 8)
    with pytest.raises(SparsePatternError, match="at least 1"):
        static_.MatMulParams.createForSparseDense(1, 32, 48, 0)


def test_product__what_does_not_fit__is_refused() -> None:
    graph, prog = Graph("bow"), Sequence()
    sparse = static_.createSparseDenseMatMulLHS(graph, f16, FORWARD, MATRIX)
    dense = static_.createSparseDenseMatMulRHS(graph, f16, FORWARD, MATRIX)
    with pytest.raises(UnsupportedOpError, match="cannot be transposed"):
        static_.sparseDenseMatMul(graph, sparse, dense, prog, True, False)
    with pytest.raises(PatternMismatchError, match="options differ"):
        static_.sparseDenseMatMul(graph, sparse, dense, prog, options={"numBands": 3})
    with pytest.raises(PatternMismatchError, match="created for the other product"):
        static_.denseSparseMatMul(graph, dense, sparse, prog)
    with pytest.raises(TensorError, match=r"should be \[1, 48, 8\]"):
        static_.sparseDenseMatMul(graph, sparse, graph.variable(f16, (1, 48, 9), name="x", map="linear"), prog)
    with pytest.raises(TypeMismatchError, match="dense operand is f32"):
        static_.sparseDenseMatMul(graph, sparse, graph.variable(f32, (1, 48, 8), name="y", map="linear"), prog)
    with pytest.raises(TypeMismatchError, match="must be StaticSparseTensor"):
        static_.sparseDenseMatMul(graph, dense, dense, prog)
    elsewhere = Graph("bow")
    with pytest.raises(TensorError, match="another graph"):
        static_.sparseDenseMatMul(elsewhere, sparse, elsewhere.variable(f16, (1, 48, 8), name="z", map="linear"), prog)
    # The same options, however they are spelt, and a transposed dense operand.
    out = static_.sparseDenseMatMul(
        graph, sparse, dense.transpose((0, 2, 1)), prog, False, True, options={"available_memory_proportion": 0.6}
    )
    assert out.shape == (1, 32, 8)


def _report(pattern: Pattern, columns: int, **options: Any) -> tuple[Any, static_.SparseTensor]:
    graph, prog = Graph("bow"), Sequence()
    params = static_.MatMulParams.createForSparseDense(1, *pattern.shape, columns)
    sparse = static_.createSparseDenseMatMulLHS(graph, f16, params, pattern, options=options)
    dense = static_.createSparseDenseMatMulRHS(graph, f16, params, pattern, options=options)
    static_.sparseDenseMatMul(graph, sparse, dense, prog)
    return compile_program(graph, prog).report, sparse


def test_cycles__large_products__are_near_the_plan() -> None:
    for side, density, block, columns in ((1024, 1 / 8, 16, 256), (1024, 1 / 4, 1, 64), (2048, 1 / 16, 8, 64)):
        report, sparse = _report(random_pattern((side, side), density, (block, block)), columns)
        planned = sparse.layouts.layout.plan.cycles
        assert planned < report.cycles().total < 2.6 * planned


def test_values__one_part__stay_where_they_are() -> None:
    """With nSplit 1 only dense rows and partial sums move."""
    pattern = random_pattern((512, 512), 1 / 8, (8, 8))
    one, sparse = _report(pattern, 8, nSplit=1)
    assert len(sparse.nzValues.mapping.tile) > 0
    four, _ = _report(pattern, 8, nSplit=2)
    assert one.cycles().exchange < four.cycles().exchange


@pytest.mark.parametrize(
    ("block", "parts", "is_put_in_order"), [(1, 1, False), (8, 1, True), (1, 4, True), (8, 4, True)]
)
def test_result__in_pieces__is_put_in_order_with_a_cycle_for_each_byte(
    block: int, parts: int, is_put_in_order: bool
) -> None:
    report, _ = _report(random_pattern((512, 512), 1 / 8, (block, block)), 64, nSplit=parts, numBands=4)
    names = [str(name).split("/")[-1] for name in report.steps["name"]]
    cycles = dict(zip(names, report.steps["cycles"].tolist(), strict=True))
    assert ("order" in cycles) is is_put_in_order
    # Each of 1,472 tiles has up to 24 elements of the result; the rest is the launch.
    assert not is_put_in_order or 48 <= cycles["order"] < 48 + 200


def test_cycles__one_dense_row__costs_more_than_even_rows() -> None:
    """The whole row of a tile falls to one worker; a planner that looks at means does not see it."""
    even = Pattern.from_dense_mask(np.arange(512)[:, None] % 64 == np.arange(512)[None] % 64)
    skewed = Pattern.from_dense_mask(np.arange(512)[:, None] // 8 * np.ones((1, 512)) == 7)
    assert even.num_blocks == skewed.num_blocks
    cycles = [_report(p, 16, numBands=1, nSplit=1)[0].cycles().compute for p in (even, skewed)]
    assert cycles[1] > 2 * cycles[0]


def test_build__two_million_values__takes_seconds() -> None:
    import time

    start = time.process_time()
    report, sparse = _report(random_pattern((2048, 2048), 1 / 8), 16)
    assert report.cycles().total > 0
    assert sparse.pattern.num_values == 2**19
    assert time.process_time() - start < 5


def test_dense_operand__stored_turned_round__is_copied_into_long_rows_first() -> None:
    pattern = random_pattern((512, 512), 1 / 8, (16, 16), seed=1)
    params = static_.MatMulParams.createForSparseDense(1, 512, 512, 64)
    cycles = []
    for turned in (False, True):
        graph, prog = Graph("bow"), Sequence()
        sparse = static_.create_sparse_dense_matmul_lhs(graph, f16, params, pattern)
        shape = (64, 512) if turned else (512, 64)
        dense = graph.map_linear(graph.variable(f16, shape, name="dense"))
        static_.sparse_dense_matmul(graph, sparse, dense, prog, transpose_rhs=turned)
        cycles.append(compile_program(graph, prog).report.total_cycles)
    assert cycles[0] < cycles[1] < 2 * cycles[0]
