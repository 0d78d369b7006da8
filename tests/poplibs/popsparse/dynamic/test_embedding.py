"""Slices and updates of dynamic sparse matrices against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele import Engine
from abele.errors import SparsePatternError, TypeMismatchError
from abele.graph import Graph, Sequence
from abele.poplibs.popsparse import dynamic
from abele.sparsity import random_pattern
from poplibs.popsparse.dynamic.sparse_kit import grid, tiles_of, values_of

CASES: list[Any] = [
    ((48, 8), (1, 1), 4, "float", {}),
    pytest.param((126, 65), (1, 1), 67, "float", {}, marks=pytest.mark.slow),
    pytest.param((64, 48), (4, 2), 126, "half", grid(3, 4, 2), marks=pytest.mark.slow),
    pytest.param(
        (64, 48),
        (8, 4),
        7,
        "half",
        {**grid(3, 4, 2, gradWExchangeBuckets=True), "partitioner.forceBucketSpills": True},
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("shape", "block", "count", "dtype", "options"), CASES)
def test_rows__by_index__are_sliced_and_updated_where_held(
    shape: tuple[int, int], block: Any, count: int, dtype: str, options: dict[str, Any]
) -> None:
    system, chosen = tiles_of(), {"metaInfoBucketOversizeProportion": 1.2, **options}
    params = dynamic.FullyConnectedParams.createWithNzRatio(
        dynamic.SparsityParams(blockDimensions=block), 0.3, 8, 1, shape[1], shape[0]
    )
    graph, prog = Graph(system), Sequence()
    table = dynamic.create_fully_connected_weights(graph, dtype, params, options=chosen)
    indices = dynamic.create_indices_tensor(graph, params, count, options=chosen)
    slices = dynamic.create_slice_tensor(graph, dtype, params, count, options=chosen)
    rows = dynamic.embedding_slice(graph, table, indices, prog, params, options=chosen)
    dynamic.embedding_update_add(graph, table, slices, indices, -0.5, prog, params, options=chosen)
    pattern = random_pattern(shape, 0.28, block)
    kind = slices.dtype.np
    values = values_of([pattern], kind)[0]
    partitioner = dynamic.Partitioner(params, dtype, system, chosen)
    data, place = partitioner.createSparsityDataImpl((pattern, values)), partitioner.place(pattern)
    rng = np.random.default_rng(2)
    index = rng.integers(0, shape[0], count).astype("u4")
    added = rng.standard_normal(slices.shape).astype(kind)
    total = np.zeros(shape)
    np.add.at(total, index, added.astype("f8"))
    wanted = values - 0.5 * pattern.values_of(total)
    for mode in ("tiles", "native"):
        engine = Engine(graph, prog, mode=mode)
        for tensor, array in (
            (table.metaInfo, data.metaInfo),
            (table.nzValues, data.nzValues),
            (indices, index),
            (slices, added),
        ):
            engine.write(tensor, array)
        engine.run()
        np.testing.assert_array_equal(engine.read(rows), pattern.to_dense(values)[index])
        found = place.unpack(engine.read(table.nzValues)).reshape(wanted.shape)
        assert abs(found - wanted).max() < (2e-2 if dtype == "half" else 2e-5), mode


def test_table__groups_or_signed_indices__are_refused() -> None:
    graph, prog = Graph(tiles_of()), Sequence()
    params = dynamic.FullyConnectedParams.createWithNzRatio(dynamic.SparsityParams(), 0.3, 8, 2, 16, 16)
    table = dynamic.create_fully_connected_weights(graph, "float", params)
    indices = dynamic.create_indices_tensor(graph, params, 4)
    with pytest.raises(SparsePatternError, match="one group, got 2"):
        dynamic.embedding_slice(graph, table, indices, prog, params)
    with pytest.raises(TypeMismatchError, match="indices are u32"):
        dynamic.embedding_slice(graph, table, indices.reinterpret("i32"), prog, params)
