"""Programs in PopLibs' C++, line by line: order of arguments, constructors, getters, options as strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from abele.errors import AbeleError, SparsePatternError
from abele.poplar import FLOAT, Engine, Graph, IPUModel, OptionFlags
from abele.poplar.program import Sequence
from abele.poplibs import popsparse as library
from abele.poplibs import poputil as utilities
from abele.poplibs.popsparse import COOMatrix, CSCMatrix, CSRMatrix
from abele.sparsity import (
    Pattern,
    banded_pattern,
    bigbird_pattern,
    n_of_m_pattern,
    random_pattern,
    split_stack,
    strided_pattern,
)

# Names in camelCase are made at import, where a type checker does not see them.
popsparse: Any = library
poputil: Any = utilities
dynamic: Any = library.dynamic
static_: Any = library.static_

ROWS, COLUMNS, BATCH = 24, 32, 8


def _device() -> Any:
    model = IPUModel()
    model.tilesPerIPU = 16
    return model.createDevice()


def _matrix() -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.2)


def _csr(matrix: Any) -> CSRMatrix:
    found = scipy.sparse.csr_matrix(matrix)
    return CSRMatrix(ROWS, COLUMNS, found.data, found.indices, found.indptr)


def _params() -> Any:
    return dynamic.MatMulParams.createWithNzRatio(dynamic.SparsityParams(), 0.3, 1, ROWS, COLUMNS, BATCH)


def _partitioner() -> Any:
    return dynamic.Partitioner(_params(), "float", "bow")


def _run(graph: Any, prog: Any, device: Any, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    for name, (tensor, _) in inputs.items():
        graph.createHostWrite(name, tensor)
    for name, tensor in outputs.items():
        graph.createHostRead(name, tensor)
    engine = Engine(graph, prog)
    engine.load(device)
    for name, (_, values) in inputs.items():
        engine.writeTensor(name, values)
    engine.run(0)
    found = {name: np.empty(tuple(tensor.shape()), np.float32) for name, tensor in outputs.items()}
    for name, array in found.items():
        engine.readTensor(name, array)
    return found


def test_sparse_fc_layer__three_passes__are_numpys() -> None:
    device, prog, cache = _device(), Sequence(), dynamic.PlanningCache()
    graph = Graph(device.getTarget())
    popsparse.addCodelets(graph)
    element = dynamic.SparsityParams(dynamic.SparsityType.Element, dynamic.SparsityStructure.Unstructured, [1, 1])
    params = dynamic.FullyConnectedParams.createWithNzRatio(element, 0.25, BATCH, 1, COLUMNS, ROWS)
    options = OptionFlags({"doGradAPass": "true", "doGradWPass": "true", "availableMemoryProportion": "0.6"})
    weights = dynamic.createFullyConnectedWeights(graph, FLOAT, params, "weights", options, cache)
    acts = dynamic.createFullyConnectedInput(graph, FLOAT, params, "input", options, cache)
    grad = graph.addVariable(FLOAT, [BATCH, ROWS], "grad")
    poputil.mapTensorLinearly(graph, grad)
    fwd = dynamic.fullyConnectedFwd(graph, weights, acts, params, prog, "fwd", options, cache)
    grad_a = dynamic.fullyConnectedGradA(graph, weights, grad, params, prog, "gradA", options, cache)
    meta = weights.getMetaInfoTensor()
    grad_w = dynamic.fullyConnectedSparseGradW(graph, meta, grad, acts, params, prog, "gradW", options, cache)

    partitioner = dynamic.Partitioner(params, FLOAT, device.getTarget(), options, cache, "partitioner")
    matrix = _matrix()
    data = partitioner.createSparsityDataImpl(_csr(matrix))
    rng = np.random.default_rng(1)
    x, g = (rng.normal(size=(BATCH, n)).astype(np.float32) for n in (COLUMNS, ROWS))
    inputs = {
        "metaInfo": (meta, data.metaInfo),
        "nzValues": (weights.getNzValuesTensor(), data.nzValues),
        "x": (acts, x),
        "g": (grad, g),
    }
    found = _run(graph, prog, device, inputs, {"fwd": fwd, "gradA": grad_a, "gradW": grad_w})
    np.testing.assert_allclose(found["fwd"], x @ matrix.T, atol=1e-5)
    np.testing.assert_allclose(found["gradA"], g @ matrix, atol=1e-5)
    back = partitioner.sparsityDataImplToCSRMatrix(dynamic.SparsityDataImpl(data.metaInfo, found["gradW"]))
    np.testing.assert_allclose(back.to_dense(), (g.T @ x) * (matrix != 0), atol=1e-5)


def test_static_product__target_and_option_strings__is_numpys() -> None:
    device, prog, cache = _device(), Sequence(), static_.PlanningCache()
    graph, matrix = Graph(device.getTarget()), _matrix()
    params, csr = static_.MatMulParams.createForSparseDense(1, ROWS, COLUMNS, BATCH), _csr(matrix)
    options = OptionFlags({"availableMemoryProportion": "0.6", "enablePreprocessing": "true", "numBands": "2"})
    values = static_.Partitioner(params, FLOAT, device.getTarget(), options, cache).createSparsityDataImpl(csr)
    a = static_.createSparseDenseMatMulLHS(graph, FLOAT, params, csr, "lhs", options, cache)
    b = static_.createSparseDenseMatMulRHS(graph, FLOAT, params, csr, "rhs", options, cache)
    c = static_.sparseDenseMatMul(graph, a, b, prog, False, False, "mm", options, cache)
    x = np.random.default_rng(1).normal(size=(1, COLUMNS, BATCH)).astype(np.float32)
    found = _run(graph, prog, device, {"a": (a.getNzValuesTensor(), values), "b": (b, x)}, {"c": c})
    np.testing.assert_allclose(found["c"][0], matrix @ x[0], atol=1e-5)


@pytest.mark.parametrize("kind", [CSRMatrix, CSCMatrix, COOMatrix])
def test_formats__each_constructor__is_the_same_matrix(kind: Any) -> None:
    matrix = _matrix()
    whole = kind.from_dense(matrix)
    held = whole.nzValues, whole.columnIndices, whole.rowIndices
    assigned = kind([1, 1])
    assigned.numRows, assigned.numCols = ROWS, COLUMNS
    assigned.nzValues, assigned.columnIndices, assigned.rowIndices = held
    unsized = kind(*held, (1, 1))
    for other in (assigned, unsized.with_sizes((ROWS, COLUMNS)), kind(ROWS, COLUMNS, *held)):
        np.testing.assert_array_equal(other.to_dense(), matrix)
    with pytest.raises(SparsePatternError, match="without sizes"):
        unsized.to_dense()
    partitioner = _partitioner()
    back = partitioner.sparsityDataImplToCOOMatrix(partitioner.createSparsityDataImpl(unsized))
    np.testing.assert_array_equal(back.to_dense(), matrix.astype(np.float32))
    static = static_.Partitioner(static_.MatMulParams.createForSparseDense(1, ROWS, COLUMNS, BATCH), "float", "bow")
    back = static.sparsityDataImplToCSCMatrix(static.createSparsityDataImpl(unsized))
    np.testing.assert_array_equal(back.to_dense(), matrix.astype(np.float32))


def test_formats__a_field_assigned_later__is_read_anew() -> None:
    csr = CSRMatrix(2, 4, [1.0, 2.0], [0, 3], [0, 1, 2])
    csr.columnIndices = [1, 2]  # type: ignore[assignment]
    assert csr.to_dense().tolist() == [[0, 1, 0, 0], [0, 0, 2, 0]]
    with pytest.raises(ValueError, match="read-only"):
        csr.columnIndices[0] = 3
    csr.rowIndices = [0, 1, 5]  # type: ignore[assignment]
    with pytest.raises(AbeleError, match="there are 2 values"):
        csr.to_dense()


def test_params__getters__are_poplibs() -> None:
    block = dynamic.SparsityParams(dynamic.SparsityType.Block, dynamic.SparsityStructure.Unstructured, [4, 4])
    product = dynamic.MatMulParams.createWithNumNonZeroValues(block, 64, 2, 16, 32, 8)
    assert (product.getNumGroups(), product.getM(), product.getK(), product.getN()) == (2, 16, 32, 8)
    assert (product.getNzRatio(), product.getNumNonZeroValues()) == (64 / 1024, 64)
    assert product.getSparsityParams() == block
    layer = dynamic.FullyConnectedParams.createWithNzRatio(
        block, 0.25, batchSize=8, numGroups=2, inputChannels=32, outputChannels=16
    )
    assert (layer.getBatchSize(), layer.getInputChannels(), layer.getOutputChannelsPerGroup()) == (8, 64, 16)
    static = static_.MatMulParams.createForDenseSparse(1, 8, 32, 16)
    assert (static.getNumGroups(), static.getM(), static.getK(), static.getN()) == (1, 16, 32, 8)


@pytest.mark.parametrize("wrong", [-1, 0, True, 1.5, "16", None, float("nan")])
def test_sizes__wrong_ones__are_refused_in_words(wrong: Any) -> None:
    element, pattern = dynamic.SparsityParams(), random_pattern((16, 16), 0.2, (4, 4))
    data = _partitioner().createSparsityDataImpl(_csr(_matrix()))
    calls: dict[str, Callable[[], object]] = {
        "groups": lambda: dynamic.MatMulParams.createWithNzRatio(element, 0.1, wrong, 16, 16, 8),
        "block": lambda: dynamic.SparsityParams(blockDimensions=wrong),
        "params": lambda: dynamic.MatMulParams.createWithNzRatio(wrong, 0.1, 1, 16, 16, 8),
        "rows": lambda: CSRMatrix(wrong, 4, [1.0], [0], [0, 1]),
        "mask": lambda: library.experimental.BSMatMulParams((16, wrong, 16), (8, 8, 8), [1] * 4, False, *["float"] * 3),
        "recut": lambda: pattern.recut((wrong, 4)),
        "stack": lambda: split_stack(pattern, wrong),
        "data": lambda: dynamic.Partitioner(wrong, "float", "bow"),
        "static": lambda: static_.Partitioner(wrong, "float", "bow"),
        "matrix": lambda: _partitioner().createSparsityDataImpl(wrong),
        "group": lambda: _partitioner().sparsityDataImplToCSRMatrix(data, 1),
        "options": lambda: dynamic.Partitioner(_params(), "float", "bow", {str(wrong): 1}),
    }
    for call in calls.values():
        with pytest.raises(AbeleError):
            call()


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "16", None, float("nan"), [1]])
def test_makers__wrong_counts__are_refused(wrong: Any) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: random_pattern((16, 16), 0.5, seed=wrong),
        lambda: random_pattern((16, 16), wrong),
        lambda: banded_pattern((16, 16), wrong),
        lambda: strided_pattern((16, 16), wrong),
        lambda: bigbird_pattern((64, 64), (16, 16), window=wrong),
        lambda: bigbird_pattern((64, 64), (16, 16), num_random=wrong),
        lambda: n_of_m_pattern(np.ones((4, 8)), wrong, 4),
    )
    for call in calls:
        with pytest.raises(AbeleError):
            call()


def test_patterns__sizes_of_numpy_and_lists__are_equal_to_pythons() -> None:
    first = Pattern.from_coordinates((4, 8), [0], [1], (2, 4))[0]
    other = Pattern.from_coordinates(np.array([4, 8]), [0], [1], [np.int64(2), 4])[0]  # type: ignore[arg-type]
    assert first == other
    assert other.block == (2, 4)
    with pytest.raises(AbeleError, match="whole numbers"):
        Pattern.from_coordinates((4, 4), [0.5], [1])
    with pytest.raises(AbeleError, match="at most"):
        Pattern.from_coordinates((2**40, 2**40), [0], [1])
