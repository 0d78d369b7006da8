"""Values of static products against NumPy in float64: random patterns, and those that are hard to share out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from static_sparse_kit import check, static_product

from abele.sparsity import Pattern, random_pattern
from support.examples import examples

MODES = ("tiles", "native")


PRODUCTS = st.tuples(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 21),
    st.floats(0, 1),
    st.sampled_from([1, 4, 8, 16]),
    st.sampled_from(["half", "float"]),
    st.booleans(),
    st.sampled_from(MODES),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 2**16),
)
"""Block rows, block columns, dense columns, density, block, type, order of operands, mode, bands, parts, seed."""


def _check_product(case: tuple[Any, ...]) -> None:
    rows, inner, columns, density, block, dtype, dense_first, mode, bands, splits, seed = case
    pattern = random_pattern((rows * block, inner * block), density, (block, block), seed=seed)
    got, wanted, _ = static_product(
        pattern, columns, dtype, mode, dense_first=dense_first, seed=seed, numBands=bands, nSplit=splits
    )
    check(got, wanted, dtype)


@examples(6)
@given(PRODUCTS)
def test_products__random_pattern__are_those_of_float64(case: tuple[Any, ...]) -> None:
    _check_product(case)


def _skewed(rows: int, inner: int) -> Pattern:
    mask = np.random.default_rng(1).random((rows, inner)) < np.linspace(0, 0.5, rows)[:, None] ** 2
    mask[rows // 2] = True
    mask[3] = False
    mask[:, 5] = False
    return Pattern.from_dense_mask(mask)


PATTERNS = {
    "one dense row": Pattern.from_dense_mask(np.arange(80)[:, None] == np.full((1, 700), 17)),
    "skewed, empty rows and columns": _skewed(150, 90),
    "diagonal": Pattern.from_dense_mask(np.eye(130)),
    "antidiagonal": Pattern.from_dense_mask(np.eye(130)[::-1]),
    "whole": Pattern.from_dense_mask(np.ones((40, 40))),
    "nothing": Pattern.from_dense_mask(np.zeros((40, 40))),
    "one element": Pattern.from_coordinates((60, 50), [59], [0])[0],
    "one row": Pattern.from_dense_mask(np.arange(400)[None] % 3 == 0),
    "one column": Pattern.from_dense_mask(np.arange(400)[:, None] % 3 == 0),
}


@pytest.mark.parametrize("dtype", ["half", "float"])
@pytest.mark.parametrize("name", PATTERNS)
def test_products__uneven_pattern__are_those_of_float64(name: str, dtype: str) -> None:
    for dense_first in (False, True):
        got, wanted, _ = static_product(PATTERNS[name], 11, dtype, "tiles", dense_first=dense_first)
        check(got, wanted, dtype)


@pytest.mark.parametrize(("bands", "splits"), [(1, 1), (1, 5), (7, 1), (7, 3), (128, 5)])
@pytest.mark.parametrize("preprocesses", [True, False])
def test_products__any_split__are_the_same(bands: int, splits: int, preprocesses: bool) -> None:
    got, wanted, sparse = static_product(
        PATTERNS["skewed, empty rows and columns"],
        20,
        "float",
        "tiles",
        numBands=bands,
        nSplit=splits,
        enablePreprocessing=preprocesses,
    )
    check(got, wanted, "float")
    plan = sparse.layouts.layout.plan
    assert plan.splits == splits
    assert 1 <= plan.bands <= bands


def test_products__values_not_finite__spoil_only_their_rows() -> None:
    import abele as ab
    from abele.graph import Graph, Sequence
    from abele.poplibs.popsparse import CSRMatrix, static_

    matrix = CSRMatrix(3, 3, [np.nan, 2.0, np.inf], [0, 1, 2], [0, 1, 2, 3])
    params = static_.MatMulParams.createForSparseDense(1, 3, 3, 2)
    graph, prog = Graph("bow"), Sequence()
    sparse = static_.createSparseDenseMatMulLHS(graph, "float", params, matrix)
    dense = graph.variable(ab.f32, (3, 2), name="x", map="linear")
    out = static_.sparseDenseMatMul(graph, sparse, dense, prog)
    engine = ab.Engine(graph, prog)
    engine.write(sparse.nzValues, static_.Partitioner(params, "float", graph).createSparsityDataImpl(matrix))
    engine.write(dense, np.ones((3, 2), np.float32))
    engine.run()
    got = np.asarray(engine.read(out))
    assert out.shape == (3, 2)
    assert np.isnan(got[0]).all()
    assert (got[1] == 2).all()
    assert np.isinf(got[2]).all()
