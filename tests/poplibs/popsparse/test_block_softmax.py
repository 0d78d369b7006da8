"""Softmax over held blocks against NumPy in 64 bits, placed and native."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench

from abele.errors import SparsePatternError, TensorError, TypeMismatchError
from abele.numerics import i32
from abele.poplibs import popsparse
from abele.poplibs.popsparse.experimental import SubBlockMask
from abele.sparsity import Pattern, random_pattern
from support.examples import examples

experimental: Any = popsparse.experimental  # Calls in PopLibs' order too.
Array = np.ndarray[Any, Any]


def live(pattern: Pattern, groups: int, mask: str) -> Array:
    """Ones where elements of the stacked matrices are held and not hidden."""
    shape = (pattern.shape[0] // groups, pattern.shape[1])
    kept = {"None": np.ones(shape), "ZeroUpperTriangle": np.tri(*shape), "ZeroLowerTriangle": 1 - np.tri(*shape, k=-1)}
    ones = np.ones((pattern.num_blocks, *pattern.block))
    return np.asarray(pattern.to_dense(ones) * np.tile(kept[mask], (groups, 1)))


def softmax(pattern: Pattern, groups: int, mask: str, blocks: Array) -> Array:
    """Held blocks of the dense softmax; zeros in rows that have nothing."""
    kept = live(pattern, groups, mask) > 0
    dense = np.where(kept, pattern.to_dense(blocks), -np.inf)
    top = dense.max(1, keepdims=True)
    powers = np.exp(dense - np.where(np.isfinite(top), top, 0))
    total = powers.sum(1, keepdims=True)
    return pattern.values_of(powers / np.where(total > 0, total, 1)).reshape(blocks.shape)


@st.composite
def matrices(draw: Any) -> tuple[Pattern, int, str, str, bool]:
    """Patterns of stacked groups, some rows of which hold nothing."""
    groups = draw(st.sampled_from((1, 2)))
    grid, block = (
        draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        draw(st.sampled_from(((4, 4), (2, 8), (16, 16)))),
    )
    held = draw(st.lists(st.booleans(), min_size=groups * grid[0] * grid[1], max_size=groups * grid[0] * grid[1]))
    held[draw(st.integers(0, len(held) - 1))] = True
    pattern = Pattern.from_dense_mask(np.reshape(held, (groups * grid[0], grid[1])), block)
    mask = draw(st.sampled_from([m.value for m in SubBlockMask]))
    return pattern, groups, mask, draw(st.sampled_from(("f32", "f16"))), draw(st.booleans())


@given(matrices())
@examples(12)
def test_bs_softmax__any_mask__is_numpy_with_zeros_for_hidden_rows(case: tuple[Pattern, int, str, str, bool]) -> None:
    pattern, groups, mask, dtype, in_place = case
    bench, rng = Bench(8), np.random.default_rng(3)
    values = rng.standard_normal((pattern.num_blocks, pattern.block[0] * pattern.block[1])) * 30
    values[0, 0] = -np.inf
    x, g = bench.tensor(values, dtype), bench.tensor(rng.standard_normal(values.shape), dtype)
    y = bench.tensor(softmax(pattern, groups, mask, bench.values(x)), dtype)
    shape = (pattern.shape[0] // groups, pattern.shape[1])
    given_: dict[str, Any] = {"sub_block_mask": mask, "groups": groups}
    args = (shape, pattern.block, pattern.mask.astype(np.uint8).reshape(-1), bench.prog)
    grad = experimental.bs_softmax_grad(bench.graph, y, g, *args, **given_)
    if in_place:
        experimental.bs_softmax_in_place(bench.graph, x, *args, **given_)
        out = x
    else:
        out = experimental.bs_softmax(bench.graph, x, *args, **given_)
    wanted = softmax(pattern, groups, mask, bench.values(x))
    kept = live(pattern, groups, mask)
    fine_y, fine_g = (pattern.to_dense(bench.values(t)) * kept for t in (y, g))
    slope = pattern.values_of(fine_y * (fine_g - (fine_y * fine_g).sum(1, keepdims=True))).reshape(values.shape)
    tolerance = 3e-3 if dtype == "f16" else 2e-6
    for mode in ("tiles", "native"):
        got, got_slope = bench.run(out, grad, mode=mode)
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=mode)
        np.testing.assert_allclose(got_slope, slope, rtol=tolerance, atol=tolerance * 4, err_msg=mode)


def test_bs_softmax__rows_of_minus_infinity_and_large_values__are_zeros_and_finite() -> None:
    pattern = random_pattern((16, 16), 1.0, (8, 8))
    values = np.full((4, 64), 3e38)
    values[:2] = -np.inf
    bench = Bench(4)
    x = bench.tensor(values, "f32")
    out = experimental.bsSoftmax(
        bench.graph, x, [16, 16], [8, 8], [1, 1, 1, 1], SubBlockMask.NONE, bench.prog, "softmax"
    )
    for mode in ("tiles", "native"):
        (got,) = bench.run(out, mode=mode)
        np.testing.assert_array_equal(got[:2], 0)
        np.testing.assert_allclose(got[2:], 1 / 16, rtol=1e-6)
    assert pattern.num_blocks == 4


def test_bs_softmax__wrong_operands__are_typed_errors() -> None:
    bench = Bench(4)
    x, whole = bench.tensor(np.zeros((2, 64)), "f32"), bench.tensor(np.zeros((2, 64)), i32)
    with pytest.raises(TensorError, match=r"held blocks are \[3, 64\], got"):
        experimental.bs_softmax(bench.graph, x, (16, 16), (8, 8), [1, 1, 1, 0], bench.prog)
    with pytest.raises(SparsePatternError, match="a mask of 3 bytes for 2 x 2 blocks"):
        experimental.bs_softmax(bench.graph, x, (16, 16), (8, 8), [1, 1, 1], bench.prog)
    with pytest.raises(TypeMismatchError, match="blocks are of f16 or f32, got i32"):
        experimental.bs_softmax(bench.graph, whole, (16, 16), (8, 8), [1, 0, 0, 1], bench.prog)
