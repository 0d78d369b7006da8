"""Sparse products of 8-bit floats: values against gfloat's in float64, costs, chips, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abele.cli.plan_sparse import explain
from abele.compiler import compile_program
from abele.errors import TypeMismatchError
from abele.graph import Graph, LibraryCall, Sequence, Tensor, walk
from abele.machine import System, systems
from abele.numerics import ElementType, f8_143, f8_152, f16, quarter, to_device
from abele.poplibs import popsparse
from abele.poplibs.poplin.options import QuarterPartialsWarning
from abele.poplibs.popsparse import CSRMatrix
from abele.poplibs.popsparse.experimental import BSMatMulParams
from abele.runtime import Engine
from abele.sparsity import Pattern, random_pattern
from support.quarters import decoded, rounded

MODES = ("tiles", "native")
Array = np.ndarray[Any, Any]
static_: Any = popsparse.static_  # Calls in PopLibs' order too.
experimental: Any = popsparse.experimental
dynamic: Any = popsparse.dynamic


def chip(name: str = "c600", tiles: int = 16) -> System:
    whole = systems.get(name)
    return replace(whole, num_ipus=1, ipu=replace(whole.ipu, num_tiles=tiles))


def codes(shape: tuple[int, ...], type_: ElementType, seed: int) -> Array:
    """Codes of random numbers about 1 times the type's scale, and what gfloat says that they are."""
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 2.0**type_.scale
    return np.asarray(to_device(values, type_))


def exact(stored: Array, type_: ElementType) -> Array:
    return np.asarray(decoded(type_)[stored.view(np.uint8)])


def run(graph: Graph, prog: Sequence, given: dict[Tensor, Array], out: Tensor, mode: str) -> Array:
    with Engine(compile_program(graph, prog), mode=mode, keep=[*given, out]) as engine:
        for tensor, array in given.items():
            engine[tensor] = array
        engine.run()
        return np.asarray(engine[out], np.float64)


def close(got: Array, wanted: Array) -> None:
    np.testing.assert_allclose(got, wanted, atol=4e-3 * max(float(np.abs(wanted).max(initial=0)), 1e-6), rtol=0)


def number(graph: Graph, given: dict[Tensor, Array], value: int) -> Tensor:
    made = graph.map(graph.variable("i32", (1,), name="scale"), 1)
    given[made] = np.asarray([value], np.int32)
    return made


TYPES = [(f8_143, f8_143), (f8_152, quarter("F143", -6)), (quarter("F143", 4), quarter("F152", -3))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("dense_first", [False, True])
@pytest.mark.parametrize("types", TYPES, ids=str)
def test_static__of_8_bit_floats__is_the_product_of_their_numbers(
    types: tuple[ElementType, ElementType], dense_first: bool, block: int, mode: str
) -> None:
    held, taken = types
    pattern = random_pattern((6 * block, 9 * block), 0.4, (block, block), seed=block)
    graph, prog, columns = Graph(chip()), Sequence(), 21
    rows, inner = pattern.shape[::-1] if dense_first else pattern.shape
    if dense_first:
        params = static_.MatMulParams.createForDenseSparse(1, columns, inner, rows)
        sparse = static_.createDenseSparseMatMulRHS(graph, held, params, pattern)
        dense = static_.createDenseSparseMatMulLHS(graph, taken, params, pattern)
        out = static_.denseSparseMatMul(graph, dense, sparse, prog)
    else:
        params = static_.MatMulParams.createForSparseDense(1, rows, inner, columns)
        sparse = static_.createSparseDenseMatMulLHS(graph, held, params, pattern)
        dense = static_.createSparseDenseMatMulRHS(graph, taken, params, pattern)
        out = static_.sparseDenseMatMul(graph, sparse, dense, prog)
    assert (sparse.dtype, dense.dtype, out.dtype) == (held, taken, f16)
    values = exact(codes((pattern.num_blocks, block, block), held, 1), held)
    partitioner = static_.Partitioner(params, held, graph)
    stored = partitioner.createSparsityDataImpl(CSRMatrix.from_pattern(pattern, values))
    np.testing.assert_array_equal(partitioner.sparsityDataImplToCSRMatrix(stored).values, values)
    x = codes(dense.shape, taken, 2)
    got = run(graph, prog, {sparse.nzValues: stored, dense: x}, out, mode)
    matrix = pattern.to_dense(values)
    wanted = exact(x, taken)[0] @ matrix if dense_first else matrix @ exact(x, taken)[0]
    close(got[0], wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scales", [(3, -2), ("tensor", None), ("tensor", 2)], ids=str)
def test_static__with_scales__is_multiplied_by_both_and_rounded_once(scales: Any, mode: str) -> None:
    pattern = random_pattern((32, 48), 0.5, (16, 16), seed=3)
    graph, prog = Graph(chip()), Sequence()
    params = static_.MatMulParams.createForSparseDense(1, 32, 48, 8)
    sparse = static_.createSparseDenseMatMulLHS(graph, "F143", params, pattern)
    dense = static_.createSparseDenseMatMulRHS(graph, "F143", params, pattern)
    # Sums before scaling are 2^16 or more, beyond halves.
    stored = to_device(np.full(pattern.num_values, 64.0, np.float32), f8_143)
    x = to_device(np.full((1, 48, 8), 96.0, np.float32), f8_143)
    given: dict[Tensor, Array] = {sparse.nzValues: stored, dense: x}
    total = sum(-9 if s == "tensor" else s or 0 for s in scales)
    if total >= 0:
        total, scales = -7, (-9, 2)
    made = tuple(number(graph, given, -9) if s == "tensor" else s for s in scales)
    out = static_.sparseDenseMatMul(graph, sparse, dense, prog, scales=made)
    wanted = pattern.to_dense(np.full((pattern.num_blocks, 16, 16), 64.0)) @ np.full((48, 8), 96.0) * 2.0**total
    assert wanted.max() < 65504 < wanted.max() * 2.0**-total
    np.testing.assert_array_equal(run(graph, prog, given, out, mode)[0], wanted)


def cycles_of(dtype: str, block: int, n: int, density: float = 1 / 4) -> tuple[int, int, dict[str, int]]:
    """Cycles that are charged, bytes of the values on tiles, and the plan's terms."""
    pattern = random_pattern((1024, 1024), density, (block, block), seed=0)
    graph, prog, cache = Graph(systems.get("c600")), Sequence(), static_.PlanningCache()
    params = static_.MatMulParams.createForSparseDense(1, 1024, 1024, n)
    sparse = static_.createSparseDenseMatMulLHS(graph, dtype, params, pattern, cache=cache)
    dense = static_.createSparseDenseMatMulRHS(graph, dtype, params, pattern, cache=cache)
    static_.sparseDenseMatMul(graph, sparse, dense, prog)
    report = compile_program(graph, prog).report
    held = dict(zip(report.variables["name"].tolist(), report.variables["bytes"].tolist(), strict=True))
    assert any(isinstance(step, LibraryCall) for step in walk(prog))
    return report.total_cycles, held["sparse"], dict(sparse.layouts.layout.plan.terms)


def test_static__of_8_bit_floats__takes_half_the_bytes_and_fewer_cycles() -> None:
    half, quarters = (cycles_of(dtype, 16, 512) for dtype in ("half", "F143"))
    assert quarters[1] * 2 == half[1]
    assert quarters[0] < 0.8 * half[0]
    assert quarters[2]["dense rows in"] < half[2]["dense rows in"]
    assert quarters[2]["compute"] < half[2]["compute"]


FORMS = {
    "sparse operand": lambda p: BSMatMulParams(
        (24, 64, 48), (8, 16, 16), p((64, 48), (16, 16)), False, "F143", f16, f16
    ),
    "turned": lambda p: BSMatMulParams((24, 64, 48), (8, 8, 16), p((48, 64), (16, 8)), True, "F152", f16, f16),
    "groups": lambda p: BSMatMulParams((16, 32, 32), (8, 16, 8), p((64, 32), (16, 8)), False, "F143", f16, f16, 2),
    "sparse result": lambda p: BSMatMulParams((48, 40, 32), (16, 8, 16), p((48, 32), (16, 16)), "F143", f16, f16),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [None, -3, "tensor"])
@pytest.mark.parametrize("form", FORMS)
def test_blocks__of_8_bit_floats__are_the_product_of_their_numbers(form: str, scale: Any, mode: str) -> None:
    params = FORMS[form](lambda shape, block: random_pattern(shape, 0.5, block, seed=4))
    graph, prog = Graph(chip()), Sequence()
    taken = quarter("F152", 2) if scale is None else params.inDataType
    lhs = graph.map_linear(graph.variable(taken, params.lhs_shape, name="lhs"))
    rhs = experimental.createBSMatMulInputRHS(graph, params)
    given: dict[Tensor, Array] = {lhs: codes(lhs.shape, taken, 5), rhs: codes(rhs.shape, rhs.dtype, 6)}
    made = number(graph, given, -3) if scale == "tensor" else scale
    out = experimental.bsMatMul(graph, params, lhs, rhs, prog, scales=None if scale is None else (None, made))
    assert out.dtype == f16
    left, right = (exact(given[t], t.dtype) for t in (lhs, rhs))
    wanted = block_product(params, left, right) * (1.0 if scale is None else 2.0**-3)
    close(run(graph, prog, given, out, mode), wanted)


def block_product(params: BSMatMulParams, lhs: Array, rhs: Array) -> Array:
    groups, (m, k, n), pattern = params.numGroups, params.dim, params.pattern
    left = lhs.reshape((groups, m, k))
    if params.isResultSparse:
        whole = left @ rhs.reshape((groups, k, n))
        return pattern.values_of(whole.reshape((groups * m, n))).reshape(params.out_shape)
    right = pattern.to_dense(rhs).reshape((groups, -1, pattern.shape[1]))
    return (left @ (right.transpose((0, 2, 1)) if params.rhsNeedTranspose else right)).reshape(params.out_shape)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [None, -3, "tensor"])
@pytest.mark.parametrize("block", [8, 16])
def test_dynamic__of_8_bit_floats__is_the_product_of_their_numbers(block: int, scale: Any, mode: str) -> None:
    held, taken = (f8_143, quarter("F152", 2)) if scale is None else (quarter("F143", -1), f8_143)
    graph, prog = Graph(chip(tiles=24)), Sequence()
    sparsity = dynamic.SparsityParams(blockDimensions=(block, block))
    params = dynamic.MatMulParams.createWithNzRatio(sparsity, 0.3, 2, 6 * block, 8 * block, 20)
    # Most blocks lie in few rows, so that some buckets spill.
    options = {"planConstraints": '{"partition": {"x": 3, "y": 2, "z": 2}}'}
    patterns = [skewed((6, 8), block, seed) for seed in (1, 2)]
    values = [exact(codes((p.num_blocks, block, block), held, 3), held) for p in patterns]
    sparse = dynamic.createSparseDenseMatMulLHS(graph, held, params, options=options)
    dense = dynamic.createSparseDenseMatMulRHS(graph, taken, params, options=options)
    partitioner = dynamic.Partitioner(params, held, graph, options)
    data = partitioner.createSparsityDataImpl(list(zip(patterns, values, strict=True)))
    assert partitioner.place(patterns).passes > 0
    np.testing.assert_array_equal(partitioner.sparsityDataImplToCSRMatrix(data, 1).values, values[1])
    given: dict[Tensor, Any] = {sparse.metaInfo: data.metaInfo, sparse.nzValues: data.nzValues}
    given[dense] = codes(dense.shape, taken, 4)
    made = number(graph, given, -3) if scale == "tensor" else scale
    out = dynamic.sparseDenseMatMul(
        graph, sparse, dense, prog, scales=None if scale is None else (made, None), options=options
    )
    assert out.dtype == f16
    matrices = np.stack([p.to_dense(v) for p, v in zip(patterns, values, strict=True)])
    wanted = matrices @ exact(given[dense], taken) * (1.0 if scale is None else 2.0**-3)
    # Partial sums are halves too.
    np.testing.assert_allclose(
        run(graph, prog, given, out, mode), wanted, atol=1e-2 * float(np.abs(wanted).max()), rtol=0
    )


def skewed(grid: tuple[int, int], block: int, seed: int) -> Pattern:
    mask = np.zeros(grid)
    mask.reshape(-1)[: grid[0] * grid[1] * 3 // 10] = 1
    return Pattern.from_dense_mask(np.random.default_rng(seed).permutation(mask, axis=1), (block, block))


def test_dynamic__layer_of_8_bit_floats__is_its_forward_pass() -> None:
    graph, prog = Graph(chip()), Sequence()
    params = dynamic.FullyConnectedParams.createWithNzRatio(
        dynamic.SparsityParams(blockDimensions=(16, 16)), 0.4, 6, 1, 64, 48
    )
    weights = dynamic.createFullyConnectedWeights(graph, "F143", params)
    acts = dynamic.createFullyConnectedInput(graph, "F143", params)
    out = dynamic.fullyConnectedFwd(graph, weights, acts, params, prog, scales=(-2, 1))
    pattern = random_pattern((48, 64), 0.4, (16, 16), seed=5)
    values = exact(codes((pattern.num_blocks, 16, 16), f8_143, 1), f8_143)
    data = dynamic.Partitioner(params, "F143", graph).createSparsityDataImpl([(pattern, values)])
    x = codes(acts.shape, f8_143, 2)
    given = {weights.metaInfo: data.metaInfo, weights.nzValues: data.nzValues, acts: x}
    wanted = exact(x, f8_143) @ pattern.to_dense(values).T / 2
    np.testing.assert_allclose(run(graph, prog, given, out, "tiles"), wanted, atol=1e-2 * float(np.abs(wanted).max()))


def variable(graph: Graph, dtype: Any, *shape: int) -> Tensor:
    return graph.map_linear(graph.variable(dtype, shape, name="v"))


def _static(graph: Graph, dtype: Any, block: int, dense: Any = None, **call: Any) -> None:
    pattern = random_pattern((32, 32), 0.5, (block, block), seed=1)
    params = static_.MatMulParams.createForSparseDense(1, 32, 32, 8)
    sparse = static_.createSparseDenseMatMulLHS(graph, dtype, params, pattern)
    static_.sparseDenseMatMul(graph, sparse, variable(graph, dense or dtype, 32, 8), Sequence(), **call)


def _blocks(graph: Graph, kinds: tuple[Any, Any, Any], block: int = 16, lhs: Any = None, **call: Any) -> None:
    pattern = random_pattern((32, 32), 0.5, (block, 16), seed=1)
    params = BSMatMulParams((32, 32, 32), (16, block, 16), pattern, False, *kinds)
    rhs = experimental.createBSMatMulInputRHS(graph, params)
    experimental.bsMatMul(graph, params, variable(graph, lhs or kinds[0], 32, 32), rhs, Sequence(), **call)


def _dynamic(graph: Graph, dtype: Any, block: int = 16, turned: bool = False, **call: Any) -> None:
    sparsity = dynamic.SparsityParams(blockDimensions=(block, block))
    params = dynamic.MatMulParams.createWithNzRatio(sparsity, 0.3, 1, 48, 48, 8)
    sparse = dynamic.createSparseDenseMatMulLHS(graph, dtype, params)
    dense = dynamic.createSparseDenseMatMulRHS(graph, dtype, params)
    dynamic.sparseDenseMatMul(graph, sparse, dense, Sequence(), turned, False, **call)


def _layer(graph: Graph, option: str) -> None:
    sparsity = dynamic.SparsityParams(blockDimensions=(16, 16))
    params = dynamic.FullyConnectedParams.createWithNzRatio(sparsity, 0.3, 8, 1, 48, 48)
    dynamic.createFullyConnectedWeights(graph, "F143", params, options={option: True})


def _table(graph: Graph) -> None:
    sparsity = dynamic.SparsityParams(blockDimensions=(16, 16))
    params = dynamic.FullyConnectedParams.createWithNzRatio(sparsity, 0.3, 8, 1, 48, 48)
    dynamic.createSliceTensor(graph, "F143", params, 4)


REFUSED: dict[str, tuple[Any, str]] = {
    "static, another chip": (lambda c, b: _static(b, "F143", 16), "Bow does not multiply 8-bit floats"),
    "static, elements": (lambda c, b: _static(c, "F143", 1), "vector units, which take no 8-bit floats"),
    "static, blocks of 4": (lambda c, b: _static(c, "F152", 4), "blocks of 4 x 4 of f8_152 have no vertex"),
    "static, halves beside": (lambda c, b: _static(c, "F143", 16, f16), "by 8-bit floats alone"),
    "static, beside halves": (lambda c, b: _static(c, f16, 16, "F143"), "dense operand is f8_143, the sparse one f16"),
    "static, scales of halves": (lambda c, b: _static(c, f16, 16, scales=(1, 0)), "scales are of 8-bit floats"),
    "static, scale too large": (lambda c, b: _static(c, "F143", 16, scales=(32, 0)), "scaled by 2\\^32"),
    "blocks, another chip": (lambda c, b: _blocks(b, ("F143", f16, f16)), "Bow does not multiply 8-bit floats"),
    "blocks, result in f32": (lambda c, b: _blocks(c, ("F143", "f32", f16)), "are f16, f32 is asked for"),
    "blocks, too small": (lambda c, b: _blocks(c, ("F143", f16, f16), 4), "take 8 8-bit floats of a sum at a time"),
    "blocks, halves beside": (lambda c, b: _blocks(c, ("F143", f16, f16), lhs=f16), "lhs is f8_143 by its params"),
    "dynamic, another chip": (lambda c, b: _dynamic(b, "F143"), "Bow does not multiply 8-bit floats"),
    "dynamic, elements": (lambda c, b: _dynamic(c, "F143", 1), "in blocks of 1 x 1 have no vertex"),
    "dynamic, blocks of 4": (lambda c, b: _dynamic(c, "F143", 4), "in blocks of 4 x 4 have no vertex"),
    "dynamic, transposed": (lambda c, b: _dynamic(c, "F143", turned=True), "blocks of 8-bit floats are not transposed"),
    "dynamic, scales of halves": (lambda c, b: _dynamic(c, f16, scales=(1, 1)), "scales are of 8-bit"),
    "dynamic, gradient of inputs": (lambda c, b: _layer(c, "doGradAPass"), "have no gradients, 'doGradAPass' is set"),
    "dynamic, gradient of weights": (lambda c, b: _layer(c, "doGradWPass"), "have no gradients, 'doGradWPass' is set"),
    "dynamic, table": (lambda c, b: _table(c), "a table of f8_143 has no slices and updates"),
    "blocks, scales of halves": (lambda c, b: _blocks(c, (f16, f16, f16), scales=(None, 1)), "scales are of 8-bit"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_8_bit_floats__that_have_no_vertex__are_refused_with_the_reason(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(TypeMismatchError, match=words):
        call(Graph(chip()), Graph(chip("bow")))


def test_blocks__of_8_bit_floats__have_partial_sums_of_halves_with_a_warning() -> None:
    pattern = random_pattern((32, 32), 0.5, (16, 16), seed=1)
    with pytest.warns(QuarterPartialsWarning, match="are f16, not f32"):
        params = BSMatMulParams((32, 32, 32), (16, 16, 16), pattern, False, "F143", f16, "f32")
    assert params.partialDataType == f16


def test_partitioner__value_beyond_the_largest__is_refused() -> None:
    pattern = random_pattern((32, 32), 0.5, (16, 16), seed=1)
    params = static_.MatMulParams.createForSparseDense(1, 32, 32, 8)
    matrix = CSRMatrix.from_pattern(pattern, np.full((pattern.num_blocks, 16, 16), 300.0))
    with pytest.raises(TypeMismatchError, match=r"f8_143 cannot hold 300.0, which is too large"):
        static_.Partitioner(params, "F143", chip()).createSparsityDataImpl(matrix)
    stored = static_.Partitioner(params, quarter("F143", 1), chip()).createSparsityDataImpl(matrix)
    wanted = rounded(np.full(pattern.num_values, 300.0), quarter("F143", 1), saturate=False)
    np.testing.assert_array_equal(exact(stored, quarter("F143", 1)), wanted)


@pytest.mark.parametrize("mode", ["static", "block", "dynamic"])
def test_plan__of_8_bit_floats__is_explained_with_less_of_everything(mode: str) -> None:
    terms = {}
    for dtype in ("half", "F143"):
        plan = explain(systems.get("c600"), 2048, 2048, 512, density=1 / 16, block=16, mode=mode, type=dtype)
        terms[dtype] = plan.cycles, sum(size for _, size in plan.memory)
    assert terms["F143"][0] < terms["half"][0]
    assert terms["F143"][1] < terms["half"][1]
    with pytest.raises(TypeMismatchError, match="Bow does not multiply 8-bit floats"):
        explain(systems.get("bow"), 2048, 2048, 512, density=1 / 16, block=16, mode=mode, type="F143")
