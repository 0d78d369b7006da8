"""Sparse products through a virtual graph of the second of two IPUs: all that they make lies on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele import Engine
from abele.compiler import compile_program
from abele.graph import Graph, Sequence, VirtualGraph
from abele.poplibs import lowrank
from abele.poplibs.popsparse import CSRMatrix, dynamic, experimental, static_
from abele.sparsity import random_pattern
from poplibs.poplibs_kit import system_of, two_of
from poplibs.popsparse.dynamic.sparse_kit import grid, layer, patterns_of, values_of

TILES = 24


def second() -> tuple[Graph, VirtualGraph, Sequence]:
    whole = Graph(two_of(system_of(TILES)))
    return whole, whole.ipu(1), Sequence()


def check_tiles(graph: Graph) -> None:
    """Nothing of the machine lies or runs on the first IPU."""
    lying = {v.name: graph.interval_map([v]).tile for v in graph.variables if not v.name.endswith("/host")}
    assert not [name for name, tiles in lying.items() if ((tiles >= 0) & (tiles < TILES)).any()]
    assert all((placed.tile >= TILES).all() for cs in graph.compute_sets for placed in cs.groups)


def run(graph: Graph, prog: Sequence, data: dict[Any, Any], wanted: dict[Any, Any], tolerance: float = 1e-4) -> None:
    """Results are as wanted in every mode, on the second IPU alone."""
    check_tiles(graph)
    executable = compile_program(graph, prog)
    for mode in ("tiles", "native"):
        with Engine(executable, mode=mode, keep=[*data, *wanted]) as engine:
            for tensor, array in data.items():
                engine.write(tensor, array)
            engine.run()
            for tensor, array in wanted.items():
                np.testing.assert_allclose(engine.read(tensor), array, rtol=tolerance, atol=tolerance, err_msg=mode)


@pytest.mark.parametrize(
    ("block", "dtype", "options"),
    [
        ((1, 1), "float", {}),
        pytest.param((4, 4), "half", grid(2, 2, 3, gradWExchangeBuckets=True), marks=pytest.mark.slow),
    ],
)
def test_dynamic_layer__on_the_second_ipu__all_passes_are_numpys(block: Any, dtype: str, options: Any) -> None:
    made = layer((32, 24, 16), 0.3, block, dtype, ipu=1, **options)
    check_tiles(made.tensors[0].graph)
    made.check(patterns_of(made, 0.25))


def test_dynamic_table__on_the_second_ipu__slices_are_numpys() -> None:
    whole, graph, prog = second()
    params = dynamic.FullyConnectedParams.createWithNzRatio(dynamic.SparsityParams(), 0.3, 8, 1, 8, 48)
    table = dynamic.create_fully_connected_weights(graph, "float", params)
    indices = dynamic.create_indices_tensor(graph, params, 4)
    slices = dynamic.create_slice_tensor(graph, "float", params, 4)
    rows = dynamic.embedding_slice(graph, table, indices, prog, params)
    dynamic.embedding_update_add(graph, table, slices, indices, -0.5, prog, params)
    pattern = random_pattern((48, 8), 0.28)
    (values,) = values_of([pattern], np.float32)
    data = dynamic.Partitioner(params, "float", graph.system).createSparsityDataImpl((pattern, values))
    index = np.array([3, 0, 47, 3], "u4")
    given = {table.metaInfo: data.metaInfo, table.nzValues: data.nzValues, indices: index}
    run(whole, prog, {**given, slices: np.zeros(slices.shape, "f4")}, {rows: pattern.to_dense(values)[index]})


def test_static_product__on_the_second_ipu__is_numpys() -> None:
    whole, graph, prog = second()
    pattern = random_pattern((64, 48), 0.2, (4, 4))
    (values,) = values_of([pattern], np.float32)
    matrix = CSRMatrix.from_pattern(pattern, values)
    params = static_.MatMulParams.createForSparseDense(1, 64, 48, 20)
    sparse: Any = static_.createSparseDenseMatMulLHS(graph, "float", params, matrix)
    dense: Any = static_.createSparseDenseMatMulRHS(graph, "float", params, matrix)
    out: Any = static_.sparseDenseMatMul(graph, sparse, dense, prog)
    x = np.random.default_rng(1).standard_normal(dense.shape).astype("f4")
    held = static_.Partitioner(params, "float", graph).createSparsityDataImpl(matrix)
    run(whole, prog, {sparse.nzValues: held, dense: x}, {out: (pattern.to_dense(values) @ x[0])[None]})


def test_block_products_and_softmax__on_the_second_ipu__are_numpys() -> None:
    whole, graph, prog = second()
    blocks: Any = experimental
    pattern, rng = random_pattern((64, 48), 0.4, (16, 8)), np.random.default_rng(2)
    params = experimental.BSMatMulParams((32, 64, 48), (8, 16, 8), pattern, False, "float", "float", "float")
    lhs = blocks.createBSMatMulInputLHS(graph, params, "lhs")
    rhs = blocks.createBSMatMulInputRHS(graph, params, "rhs")
    out = blocks.bsMatMul(graph, params, prog, lhs, rhs)
    left, right = rng.standard_normal(lhs.shape).astype("f4"), rng.standard_normal(rhs.shape).astype("f4")
    run(whole, prog, {lhs: left, rhs: right}, {out: left @ pattern.to_dense(right)}, 1e-3)


def test_block_softmax__on_the_second_ipu__is_numpys() -> None:
    whole, graph, prog = second()
    blocks: Any = experimental
    pattern = random_pattern((32, 32), 0.5, (8, 8), seed=1)
    x = graph.variable("float", (pattern.num_blocks, 64), name="x", map="linear")
    out = blocks.bsSoftmax(graph, x, (32, 32), (8, 8), pattern, experimental.SubBlockMask.NONE, prog)
    values = np.random.default_rng(3).standard_normal(x.shape).astype("f4")
    kept = pattern.to_dense(np.ones(x.shape)) > 0
    powers = np.where(kept, np.exp(pattern.to_dense(values)), 0)
    shares = powers / np.maximum(powers.sum(1, keepdims=True), 1e-30)
    run(whole, prog, {x: values}, {out: pattern.values_of(shares).reshape(x.shape)})


def test_low_rank_product__on_the_second_ipu__is_numpys() -> None:
    whole, graph, prog = second()
    dense = 1 / (1 + 15 * np.abs(np.linspace(0, 1, 40)[:, None] - np.linspace(0.1, 1.1, 30)))
    matrix = lowrank.compress(dense, (8, 10), tolerance=1e-3)
    operator = lowrank.create_low_rank_operator(graph, matrix, "float")
    x = lowrank.create_low_rank_input(graph, operator)
    y = lowrank.low_rank_multiply(graph, operator, x, prog)
    values = np.random.default_rng(4).standard_normal(30).astype("f4")
    run(whole, prog, {x: values}, {y: matrix.multiply(values[None].astype("f8"))[0]})
