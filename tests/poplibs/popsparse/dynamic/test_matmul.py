"""Dynamic sparse matrix products against float64, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele import Engine
from abele.errors import PatternMismatchError
from abele.graph import Graph, Sequence
from abele.poplibs.popsparse import dynamic
from abele.sparsity import random_pattern
from poplibs.popsparse.dynamic.sparse_kit import tiles_of, values_of

CASES = [
    ((40, 24, 8), (1, 1), "float", 1, False, False),
    ((40, 24, 8), (1, 1), "float", 2, True, True),
    ((32, 48, 12), (4, 4), "half", 1, False, True),
    ((32, 48, 12), (4, 4), "half", 2, True, False),
]


@pytest.mark.parametrize(("sizes", "block", "dtype", "groups", "turned", "swapped"), CASES)
def test_product__of_random_patterns__is_as_float64(
    sizes: tuple[int, int, int], block: Any, dtype: str, groups: int, turned: bool, swapped: bool
) -> None:
    m, k, n = sizes
    system = tiles_of()
    params = dynamic.MatMulParams.createWithNzRatio(dynamic.SparsityParams(blockDimensions=block), 0.3, groups, m, k, n)
    graph, prog = Graph(system), Sequence()
    lhs = dynamic.create_sparse_dense_matmul_lhs(graph, dtype, params)
    if turned or swapped:
        rows = m if turned else k
        rhs = graph.variable(dtype, (groups, n, rows) if swapped else (groups, rows, n), name="x", map="linear")
    else:
        rhs = dynamic.create_sparse_dense_matmul_rhs(graph, dtype, params)
    out = dynamic.sparse_dense_matmul(graph, lhs, rhs, prog, turned, swapped)
    patterns = [random_pattern((m, k), 0.25, block, seed=s) for s in range(groups)]
    kind = rhs.dtype.np
    values = values_of(patterns, kind)
    data = dynamic.Partitioner(params, dtype, system).createSparsityDataImpl(list(zip(patterns, values, strict=True)))
    x = np.random.default_rng(5).standard_normal(rhs.shape).astype(kind)
    dense = np.stack([p.to_dense(v.astype("f8")) for p, v in zip(patterns, values, strict=True)])
    left, right = dense.transpose((0, 2, 1)) if turned else dense, x.transpose((0, 2, 1)) if swapped else x
    wanted = left @ right.astype("f8")
    for mode in ("tiles", "native"):
        engine = Engine(graph, prog, mode=mode)
        for tensor, array in ((lhs.metaInfo, data.metaInfo), (lhs.nzValues, data.nzValues), (rhs, x)):
            engine.write(tensor, array)
        engine.run()
        limit = (5e-3 if dtype == "half" else 3e-6) * abs(wanted).max()
        assert abs(engine.read(out) - wanted).max() < limit, mode


def test_product__tensor_without_or_with_foreign_metadata__is_refused() -> None:
    graph, prog = Graph(tiles_of()), Sequence()
    element = dynamic.SparsityParams()
    params = dynamic.MatMulParams.createWithNzRatio(element, 0.2, 1, 16, 16, 8)
    lhs = dynamic.create_sparse_dense_matmul_lhs(graph, "float", params)
    rhs = dynamic.create_sparse_dense_matmul_rhs(graph, "float", params)
    with pytest.raises(PatternMismatchError, match="has no metadata"):
        dynamic.sparse_dense_matmul(graph, dynamic.SparseTensor(lhs.metaInfo, lhs.nzValues), rhs, prog)
    layer = dynamic.FullyConnectedParams.createWithNzRatio(element, 0.2, 8, 1, 16, 16)
    weights = dynamic.create_fully_connected_weights(graph, "float", layer)
    with pytest.raises(PatternMismatchError, match="metadata of fullyConnected"):
        dynamic.sparse_dense_matmul(graph, weights, rhs, prog)
    with pytest.raises(PatternMismatchError, match=r"proportion 0.6 → 0.5"):
        dynamic.sparse_dense_matmul(graph, lhs, rhs, prog, options={"availableMemoryProportion": 0.5})


def test_product__cpp_order_of_arguments__is_taken() -> None:
    graph, prog = Graph(tiles_of()), Sequence()
    cpp: Any = dynamic
    cache = dynamic.PlanningCache()
    params = dynamic.MatMulParams.createWithNzRatio(dynamic.SparsityParams(), 0.2, 1, 16, 16, 8)
    lhs = cpp.createSparseDenseMatMulLHS(graph, "float", params, "lhs", {}, cache)
    rhs = cpp.createSparseDenseMatMulRHS(graph, "float", params, "rhs", {}, cache)
    out = cpp.sparseDenseMatMul(graph, lhs, rhs, prog, False, False, {"product"}, {}, cache)
    assert out.shape == (1, 16, 8)
    assert cache.size() == 1
