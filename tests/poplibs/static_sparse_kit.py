"""A static product, run and read back."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

import abele as ab
from abele.arrays import Float64
from abele.graph import Graph, Sequence
from abele.poplibs.popsparse import CSRMatrix, static_
from abele.sparsity import Pattern

Mode = Literal["tiles", "native"]


def static_product(
    pattern: Pattern, columns: int, dtype: str, mode: Mode, *, dense_first: bool = False, seed: int = 0, **options: Any
) -> tuple[Float64, Float64, static_.SparseTensor]:
    """The product of random values, what float64 makes of the same, and the sparse tensor."""
    rng = np.random.default_rng(seed)
    kind = np.float16 if dtype == "half" else np.float32
    values = rng.normal(size=(pattern.num_blocks, *pattern.block)).astype(kind)
    graph, prog = Graph("bow"), Sequence()
    matrix = CSRMatrix.from_pattern(pattern, values)
    rows, inner = pattern.shape[::-1] if dense_first else pattern.shape
    if dense_first:
        params = static_.MatMulParams.createForDenseSparse(1, columns, inner, rows)
        sparse = static_.createDenseSparseMatMulRHS(graph, dtype, params, matrix, options=options)
        dense = static_.createDenseSparseMatMulLHS(graph, dtype, params, matrix, options=options)
        out = static_.denseSparseMatMul(graph, dense, sparse, prog)
    else:
        params = static_.MatMulParams.createForSparseDense(1, rows, inner, columns)
        sparse = static_.createSparseDenseMatMulLHS(graph, dtype, params, matrix, options=options)
        dense = static_.createSparseDenseMatMulRHS(graph, dtype, params, matrix, options=options)
        out = static_.sparseDenseMatMul(graph, sparse, dense, prog)
    engine = ab.Engine(graph, prog, mode=mode)
    x = rng.normal(size=dense.shape).astype(kind)
    partitioner = static_.Partitioner(params, dtype, graph, options)
    if pattern.num_blocks:
        engine.write(sparse.nzValues, partitioner.createSparsityDataImpl(matrix))
    engine.write(dense, x)
    engine.run()
    held = pattern.to_dense(values).astype(np.float64)
    wanted = x[0].astype(np.float64) @ held if dense_first else held @ x[0].astype(np.float64)
    return np.asarray(engine.read(out), np.float64)[0], wanted, sparse


def check(got: Float64, wanted: Float64, dtype: str) -> None:
    """Rounded where partial sums are stored."""
    scale = max(float(np.abs(wanted).max(initial=0.0)), 1.0)
    np.testing.assert_allclose(got, wanted, atol=scale * (4e-3 if dtype == "half" else 2e-6), rtol=0)
