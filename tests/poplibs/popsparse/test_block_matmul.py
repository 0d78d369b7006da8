"""Products with a mask of blocks against NumPy in 64 bits, placed and native."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench

from abele.errors import InvalidOptionError, SparsePatternError, TensorError, TypeMismatchError
from abele.numerics import f16
from abele.poplibs import popsparse
from abele.poplibs.popsparse.experimental import BSMatMulParams, SubBlockMask
from abele.poplibs.popsparse.experimental.explain import explain_block
from abele.poplibs.popsparse.experimental.partition import hilbert
from abele.poplibs.popsparse.explanation import SparseProblem
from abele.sparsity import Pattern, random_pattern
from support.examples import examples

experimental: Any = popsparse.experimental  # Calls in PopLibs' order too.
Array = np.ndarray[Any, Any]
METHODS = ("strip", "stripv0", "block", "block-naive", "block-group2")


def stacked(pattern: Pattern, groups: int, blocks: Array) -> Array:
    """Groups of the dense matrix of some blocks."""
    return pattern.to_dense(blocks).reshape((groups, -1, pattern.shape[1]))


def triangle(shape: tuple[int, int], mask: SubBlockMask) -> Array:
    """Ones where a mask leaves elements."""
    return {
        SubBlockMask.NONE: np.ones(shape),
        SubBlockMask.ZeroUpperTriangle: np.tri(*shape),
        SubBlockMask.ZeroLowerTriangle: 1 - np.tri(*shape, -1),
    }[mask]


def wanted(params: BSMatMulParams, lhs: Array, rhs: Array) -> Array:
    """The product of stored operands, in 64 bits."""
    groups, (m, k, n) = params.numGroups, params.dim
    left = lhs.reshape((groups, m, k))
    if params.isResultSparse:
        whole = left @ rhs.reshape((groups, k, n)) * triangle((m, n), params.subBlockMask)
        return params.pattern.values_of(whole.reshape((groups * m, n))).reshape(params.out_shape)
    right = stacked(params.pattern, groups, rhs)
    return (left @ (right.transpose((0, 2, 1)) if params.rhsNeedTranspose else right)).reshape(params.out_shape)


def check(params: BSMatMulParams, options: dict[str, Any], *, created: bool, num_tiles: int = 16) -> None:
    """Placed and native results of a product are NumPy's."""
    bench, rng = Bench(num_tiles), np.random.default_rng(7)
    dtype, operands = params.inDataType, []
    for make, shape in (
        (experimental.createBSMatMulInputLHS, params.lhs_shape),
        (experimental.createBSMatMulInputRHS, params.rhs_shape),
    ):
        values = rng.standard_normal(shape)
        tensor = make(bench.graph, params, "operand", options) if created else bench.tensor(values, dtype)
        bench.data[tensor] = values.astype(dtype.np)
        operands.append(tensor)
    out = experimental.bsMatMul(bench.graph, params, bench.prog, *operands, options)
    exact = wanted(params, *(bench.values(t) for t in operands))
    narrow = "f16" in (params.outDataType.name, params.partialDataType.name)
    tolerance = 2e-2 if params.partialDataType.name == "f16" else 2e-3 if narrow else 2e-5
    for mode in ("tiles", "native"):
        (got,) = bench.run(out, mode=mode)
        np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance * 8, err_msg=mode)


TYPES = (("f32", "f32", "f32"), ("f16", "f16", "f32"), ("f16", "f16", "f16"), ("f16", "f32", "f32"))


@st.composite
def products(draw: Any) -> tuple[BSMatMulParams, dict[str, Any], bool]:
    """Products of small matrices with every kind of mask, one with empty rows and columns among them."""
    groups = draw(st.sampled_from((1, 1, 2)))
    grid = draw(st.tuples(*(st.integers(1, 4) for _ in range(3))))
    block = draw(st.tuples(*(st.sampled_from((2, 4, 8, 16)) for _ in range(3))))
    dim = tuple(g * b for g, b in zip(grid, block, strict=True))
    kind = draw(st.sampled_from(("plain", "turned", "sparse")))
    rows, columns = {"plain": grid[1:], "turned": grid[:0:-1], "sparse": (grid[0], grid[2])}[kind]
    mask = draw(st.lists(st.booleans(), min_size=groups * rows * columns, max_size=groups * rows * columns))
    mask[draw(st.integers(0, len(mask) - 1))] = True
    types = draw(st.sampled_from(TYPES))
    if kind == "sparse":
        params = BSMatMulParams(dim, block, mask, *types, draw(st.sampled_from(list(SubBlockMask))), groups)
    else:
        params = BSMatMulParams(dim, block, mask, kind == "turned", *types, groups)
    passes = draw(st.integers(1, 3)) if groups == 1 else 1
    options = {"numberOfPass": passes, "partitionMethod": draw(st.sampled_from(METHODS))}
    return params, options, draw(st.booleans())


@given(products())
@examples(12)
def test_bs_mat_mul__any_mask_type_and_option__is_numpy(case: tuple[BSMatMulParams, dict[str, Any], bool]) -> None:
    params, options, created = case
    check(params, options, created=created)


@pytest.mark.parametrize("method", METHODS)
def test_bs_mat_mul__each_method_on_many_tiles__is_numpy_and_plans_say_what_it_takes(method: str) -> None:
    pattern = random_pattern((64, 96), 0.4, (8, 16), seed=2)
    params = BSMatMulParams((48, 64, 96), (16, 8, 16), pattern, False, "half", "float", "float")
    options = {"partitionMethod": method, "memoryCycleRatio": 0}
    check(params, options, created=True, num_tiles=300)
    bench = Bench(300)
    lhs = experimental.createBSMatMulInputLHS(bench.graph, params, "lhs", options)
    rhs = experimental.createBSMatMulInputRHS(bench.graph, params, "rhs", options)
    experimental.bsMatMul(bench.graph, params, bench.prog, lhs, rhs, options)
    plan = experimental.block_plan(bench.graph, params, options=options)
    found = bench.executable.report.total_cycles
    assert found / 2 < plan.cycles < found * 2, plan
    assert method in str(plan)


def test_bs_mat_mul__more_passes__take_less_temporary_memory_and_more_cycles() -> None:
    params = BSMatMulParams((64, 512, 512), (16, 16, 16), random_pattern((512, 512), 0.5, (16, 16)), False, *TYPES[1])
    plans = [experimental.block_plan(Bench(16).graph, params, options={"numberOfPass": n}) for n in (1, 2, 4)]
    room, cycles = [p.temporary_bytes for p in plans], [p.cycles for p in plans]
    assert room[0] > room[1] > room[2], room
    assert cycles[0] < cycles[-1], cycles


def test_explain_block__a_random_pattern__adds_up_to_its_plan() -> None:
    problem = SparseProblem(512, 256, 64, 0.25, 16, f16)
    found = explain_block(Bench(64).graph, problem, options={"partitionMethod": "block"})
    assert found.cycles == pytest.approx(sum(cycles for _, cycles in found.terms))
    assert dict(found.split)["blocks"] == 128
    assert found.memory[0][1] < found.available_bytes
    with pytest.raises(InvalidOptionError, match="blocks of 1 are no blocks"):
        explain_block(Bench(64).graph, SparseProblem(512, 256, 64, 0.25, 1, f16))


def test_hilbert__a_square__is_walked_by_neighbours() -> None:
    y, x = (i.reshape(-1) for i in np.indices((16, 16)))
    order = np.argsort(hilbert(y, x))
    assert (abs(np.diff(y[order])) + abs(np.diff(x[order])) == 1).all()


def test_bs_mat_mul_params__bad_input__is_typed_errors() -> None:
    full = [1] * 4
    with pytest.raises(SparsePatternError, match="k of 30 is no multiple of its block, 16"):
        BSMatMulParams((32, 30, 32), (16, 16, 16), full, False, "half", "half", "float")
    with pytest.raises(SparsePatternError, match="a mask of 4 bytes for 4 x 2 blocks"):
        BSMatMulParams((32, 32, 32), (16, 16, 16), full, False, "half", "half", "float", 2)
    with pytest.raises(TypeMismatchError, match="f32 operands with f16 partial sums"):
        BSMatMulParams((32, 32, 32), (16, 16, 16), full, False, "float", "float", "half")
    with pytest.raises(TypeMismatchError, match="inDataType is f16, f32 or an 8-bit float, got i32"):
        BSMatMulParams((32, 32, 32), (16, 16, 16), full, "int", "float", "float")
    with pytest.raises(InvalidOptionError, match="no SubBlockMask 'ZeroUpper'"):
        BSMatMulParams((32, 32, 32), (16, 16, 16), full, "half", "half", "half", "ZeroUpper")
    with pytest.raises(SparsePatternError, match="dim is of whole numbers"):
        BSMatMulParams((32.5, 32, 32), (16, 16, 16), full, "half", "half", "half")  # type: ignore[arg-type]
    with pytest.raises(SparsePatternError, match="a mask of blocks is of bytes, got float64"):
        BSMatMulParams((32, 32, 32), (16, 16, 16), [float("nan"), 0, 0, 1], "half", "half", "half")
    assert BSMatMulParams((32, 32, 32), (16, 16, 16), b"\1\0\0\1", "half", "half", "half").pattern.num_blocks == 2
    with pytest.raises(TensorError, match="has no 'transpose'"):
        BSMatMulParams((32, 32, 32), (16, 16, 16), full, "half", "half", "half", transpose=True)


def test_bs_mat_mul__bad_options_and_operands__are_typed_errors() -> None:
    bench = Bench(4)
    params = BSMatMulParams((32, 32, 32), (16, 16, 16), [1, 0, 0, 1] * 2, False, *TYPES[0], 2)
    lhs, rhs = bench.tensor(np.zeros((64, 32)), "f32"), bench.tensor(np.zeros((4, 256)), "f32")
    with pytest.raises(InvalidOptionError, match="numberOfPass is 2 with 2 groups"):
        experimental.bsMatMul(bench.graph, params, bench.prog, lhs, rhs, {"numberOfPass": 2})
    with pytest.raises(InvalidOptionError, match="partitionMethod"):
        experimental.bsMatMul(bench.graph, params, bench.prog, lhs, rhs, {"partitionMethod": "stripes"})
    with pytest.raises(TensorError, match=r"rhs is \[4, 256\]"):
        experimental.bsMatMul(bench.graph, params, bench.prog, lhs, lhs)
    with pytest.raises(TypeMismatchError, match="lhs is f32 by its params"):
        experimental.bsMatMul(bench.graph, params, bench.prog, bench.tensor(np.zeros((64, 32)), "f16"), rhs)


def test_bs_mat_mul__nothing_held__is_zeros() -> None:
    bench = Bench(4)
    params = BSMatMulParams((32, 32, 32), (16, 16, 16), [0] * 4, False, *TYPES[0])
    lhs = bench.tensor(np.ones((32, 32)), "f32")
    rhs = experimental.createBSMatMulInputRHS(bench.graph, params)
    out = experimental.bsMatMul(bench.graph, params, bench.prog, lhs, rhs)
    for mode in ("tiles", "native"):
        np.testing.assert_array_equal(bench.run(out, mode=mode)[0], 0)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("created", [False, True])
def test_bs_mat_mul__groups_of_different_patterns__are_numpy(turned: bool, created: bool) -> None:
    mask = [1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    params = BSMatMulParams((12, 8, 12), (4, 4, 4), mask, turned, *TYPES[0], 2)
    check(params, {}, created=created)
