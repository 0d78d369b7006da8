"""Ops of ``popxl_addons`` against PyTorch and NumPy, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.nn.functional as F  # noqa: N812

from abele import popxl
from abele.arrays import Array
from abele.frontends.popxl_addons import array_munging as munging
from abele.frontends.popxl_addons.module import Module
from abele.frontends.popxl_addons.ops.cross_entropy import cross_entropy, cross_entropy_with_grad
from abele.frontends.popxl_addons.ops.dense_const_sparse_matmul import dense_const_sparse_matmul
from abele.frontends.popxl_addons.ops.fp8_mse_scale import fp8_mse_scale
from abele.frontends.popxl_addons.ops.grad_reduce_square_add import clip_factor, grad_reduce_square_add
from abele.frontends.popxl_addons.ops.group_quantize_decompress import (
    group_quantize_compress,
    group_quantize_decompress,
    group_quantize_decompress_numpy,
)
from abele.frontends.popxl_addons.ops.rotary_pos_embed import rotary_pos_embed, trig_table_constants
from abele.frontends.popxl_addons.testing_utils import ModuleRun, run_module
from abele.numerics import as_element_type
from abele.numerics.narrow import round_to_nearest

F32 = np.float32


class Of(Module):
    """A module that builds a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def build(self, *inputs: popxl.Tensor) -> Any:
        """The function's results."""
        return self.function(*inputs)


def ran(function: Callable[..., Any], *inputs: Any, grads: Sequence[Any] | None = None) -> ModuleRun:
    """A run of a function of tensors."""
    return run_module(Of(function), *inputs, grads=grads)


def rotate_every_two(x: torch.Tensor) -> torch.Tensor:
    """GPT-J's: neighbours change places."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """LLaMA's: halves change places."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def turned(x: torch.Tensor, rotary_dim: int, *, half: bool, base: float) -> torch.Tensor:
    """Hugging Face's rotary embedding of [batch, sequence, heads, features]."""
    speeds = 1.0 / (base ** (torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim))
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * speeds
    wide = torch.cat((angles, angles), -1) if half else angles.repeat_interleave(2, -1)
    sin, cos = wide.sin()[None, :, None], wide.cos()[None, :, None]
    head, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    rotate = rotate_half if half else rotate_every_two
    return torch.cat((head * cos + rotate(head) * sin, rest), -1)


@pytest.mark.parametrize(
    ("half", "rotary_dim", "axis"), [(False, 4, 1), (True, 8, 1), (True, 6, 2)], ids=["gptj", "llama", "neox"]
)
def test_rotary_pos_embed__both_styles__is_hugging_faces(half: bool, rotary_dim: int, axis: int) -> None:
    rng = np.random.default_rng(rotary_dim)
    x, grad = (rng.normal(size=(2, 5, 3, 8)) for _ in range(2))
    wanted = torch.tensor(x, requires_grad=True)
    made = turned(wanted, rotary_dim, half=half, base=500.0)
    made.backward(torch.tensor(grad))
    order = (0, 2, 1, 3) if axis == 2 else (0, 1, 2, 3)

    def function(t: popxl.Tensor) -> popxl.Tensor:
        sin, cos = trig_table_constants(5, rotary_dim, 500.0, popxl.float32)
        return rotary_pos_embed(t, sin, cos, rotary_dim, half=half, seq_axis=axis)

    run = ran(function, x.astype(F32).transpose(order), grads=[grad.astype(F32).transpose(order)])
    np.testing.assert_allclose(run.outputs[0].transpose(order), made.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(run.gradients[0].transpose(order), wanted.grad, atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "none", pytest.param("sum", marks=pytest.mark.slow)])
def test_cross_entropy__of_logits_that_are_far_apart__is_pytorchs(reduction: str) -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(2, 3, 7)).astype(F32) * 100
    labels = np.array([[0, 6, 3], [3, 2, 5]], np.int32)
    given = torch.tensor(logits, requires_grad=True)
    loss = F.cross_entropy(
        given.flatten(0, 1), torch.tensor(labels).flatten().long(), ignore_index=3, reduction=reduction
    )
    (loss.sum() * 2).backward()

    def function(v: popxl.Tensor, n: popxl.Tensor) -> tuple[popxl.Tensor, ...]:
        with_grad = cross_entropy_with_grad(v, n, 2.0, ignore_index=3, reduction=reduction)
        return (cross_entropy(v, n, ignore_index=3, reduction=reduction), *with_grad)

    shape = labels.shape if reduction == "none" else ()
    zero = np.zeros(shape, F32)
    run = ran(function, logits, labels, grads=[zero + 2, zero, np.zeros_like(logits)])
    for found in run.outputs[:2]:
        np.testing.assert_allclose(found.reshape(loss.shape), loss.detach(), rtol=1e-5, atol=1e-6)
    for found in (run.outputs[2], run.gradients[0]):
        np.testing.assert_allclose(found, given.grad, rtol=1e-5, atol=1e-6)


def test_group_quantize_decompress__of_weights__gives_numbers_of_the_host() -> None:
    rng = np.random.default_rng(2)
    w = rng.normal(size=(3, 5, 16)).astype(F32)
    w[0, 0, :8] = 0.25  # A group without any spread.
    packed = group_quantize_compress(w, 8, F32)
    assert [a.shape for a in packed] == [(3, 5, 2, 2), (3, 5, 2, 1), (3, 5, 2, 1)]
    host = group_quantize_decompress_numpy(*packed)
    assert np.abs(host - w).max() <= packed[1].max() / 2 + 1e-6
    np.testing.assert_array_equal(host[0, 0, :8], 0.25)
    np.testing.assert_allclose(ran(group_quantize_decompress, *packed).outputs[0], host, atol=1e-6)
    # The first number is in the lowest bits, and the largest number has all of them.
    assert group_quantize_compress([[0, 15, 1, 2]], 4)[0].tolist() == [[[0x21F0]]]


@pytest.mark.parametrize("block", [1, 4])
def test_dense_const_sparse_matmul__with_gradient__is_the_dense_product(block: int) -> None:
    rng = np.random.default_rng(block)
    matrix = rng.normal(size=(8, 12)) * (rng.random((8, 12)) < 0.3)
    x, grad = rng.normal(size=(2, 3, 8)).astype(F32), rng.normal(size=(2, 3, 12)).astype(F32)
    given = matrix if block == 4 else scipy.sparse.csr_matrix(matrix)
    run = ran(lambda t: dense_const_sparse_matmul(t, given, block), x, grads=[grad])
    np.testing.assert_allclose(run.outputs[0], x @ matrix, atol=1e-5)
    np.testing.assert_allclose(run.gradients[0], grad @ matrix.T, atol=1e-5)


def _mse(x: Array, scale: int, name: str) -> float:
    large = {"F143": 240.0, "F152": 57344.0}[name]
    kind = as_element_type(name)
    narrow = round_to_nearest(np.clip(x * 2.0**scale, -large, large).astype(F32), kind)
    return float(np.mean((np.asarray(narrow, np.float64) * 2.0**-scale - x) ** 2))


@pytest.mark.parametrize("name", ["F143", pytest.param("F152", marks=pytest.mark.slow)])
def test_fp8_mse_scale__of_numbers_of_any_size__loses_least(name: str) -> None:
    rng = np.random.default_rng(5)
    arrays = [(rng.normal(size=400) * size).astype(F32) for size in (3e-5, 700.0)]
    for x, found in zip(arrays, ran(lambda *ts: [fp8_mse_scale(t, name) for t in ts], *arrays).outputs, strict=True):
        best = min(range(-31, 32), key=lambda s: _mse(x.astype(np.float64), s, name))
        assert _mse(x, int(found), name) <= _mse(x, best, name) * 1.0001


def test_grad_reduce_square_add__of_halves__does_not_overflow() -> None:
    rng = np.random.default_rng(3)
    arrays = [(rng.normal(size=s) * 3000).astype(np.float16) for s in ((4, 5), (7,), ())]

    def function(*ts: popxl.Tensor) -> tuple[popxl.Tensor, ...]:
        total = grad_reduce_square_add(ts, 8.0)
        return total, clip_factor(total, 1.0), clip_factor(total, 1e9)

    run = ran(function, *arrays)
    wanted = sum(float((a.astype(np.float64) ** 2).sum()) for a in arrays) / 64
    np.testing.assert_allclose(run.outputs[0], wanted, rtol=1e-5)
    np.testing.assert_allclose(run.outputs[1:], [wanted**-0.5, 1.0], rtol=1e-5)


X = np.arange(24, dtype=F32).reshape(4, 6)


def test_array_munging__there_and_back__is_nothing() -> None:
    parts = munging.shard(X, 2, -1)
    assert (parts.shape, parts.flags.c_contiguous) == ((2, 4, 3), True)
    np.testing.assert_array_equal(parts[1], X[:, 3:])
    for axis, count in ((0, 4), (1, 3), (-1, 1)):
        np.testing.assert_array_equal(munging.unshard(munging.shard(X, count, axis), axis), X)
    grid = munging.shard2D(X, 2, 3, 0, 1)
    np.testing.assert_array_equal(grid[4], X[2:, 2:4])
    np.testing.assert_array_equal(munging.unshard2D(grid, 2, 3, 0, 1), X)
    np.testing.assert_array_equal(munging.shard2D(X, 3, 2, 1, 0)[2], X[:2, 2:4])
    np.testing.assert_array_equal(munging.repeat_shard(X, 2, 2, 0), [X[:2], X[:2], X[2:], X[2:]])
    assert [munging.repeat(X, 3, n).shape for n in (0, -1)] == [(3, 4, 6), (4, 6, 3)]
    padded = munging.pad_axis(X, 8, -1, value=-1)
    np.testing.assert_array_equal(padded, np.concatenate([X, np.full((4, 2), -1)], 1))


def test_tensor_parallel_input__over_models__gives_neighbours_the_same_sample() -> None:
    data = np.arange(12).reshape(6, 2)
    dealt = munging.tensor_parallel_input(data, 2, 4)
    np.testing.assert_array_equal(dealt[:, :, 0], [[0, 0, 2, 2], [4, 4, 6, 6], [8, 8, 10, 10]])
    np.testing.assert_array_equal(munging.tensor_parallel_output(dealt, 2, 4), data)
    shifted = munging.tensor_parallel_input(data, 2, 4, lambda d: np.stack([d, d - 3]))
    np.testing.assert_array_equal(shifted[0, :, 0], [0, -3, 2, -1])
    assert munging.tensor_parallel_input(data[:1], 4, 4).shape == (4, 2)


def _table(rows: int, dim: int) -> Callable[[popxl.Tensor], popxl.Tensor]:
    return lambda t: rotary_pos_embed(t, *trig_table_constants(rows, dim, dtype=popxl.float32))


WRONG = {
    "shards": (lambda: munging.shard(X, 4, 1), "pad_axis"),
    "axis": (lambda: munging.shard(X, 2, 2), "has axis 2, its array 2 dimensions"),
    "count": (lambda: munging.repeat(X, 0), "whole number from 1"),
    "pad": (lambda: munging.pad_axis(X, 3, 0), "which has 4"),
    "one axis": (lambda: munging.shard2D(X, 2, 2, 0, -2), "got 0 and -2"),
    "models": (lambda: munging.tensor_parallel_input(X, 3, 4), "4 replicas in groups of 3"),
    "samples": (lambda: munging.tensor_parallel_input(X[:3], 2, 4), "deals"),
    "offsets": (lambda: munging.tensor_parallel_input(X, 2, 4, lambda d: d), "offset_fn makes"),
    "odd pairs": (lambda: trig_table_constants(4, 3), "features make pairs"),
    "positions": (lambda: ran(_table(4, 4), np.zeros((1, 5, 1, 8), F32)), "tables of 4 positions, x has 5"),
    "features": (lambda: ran(_table(5, 16), np.zeros((1, 5, 1, 8), F32)), "half of the features"),
    "labels": (lambda: ran(cross_entropy, X, np.zeros((4, 1), np.int32)), "labels"),
    "groups": (lambda: group_quantize_compress(X, 4), "multiple of 4 that divides"),
    "words": (lambda: ran(group_quantize_decompress, X, X, X), "takes uint16"),
    "inner": (lambda: ran(lambda t: dense_const_sparse_matmul(t, X), X), "inner dimensions differ"),
    "empty": (lambda: ran(lambda t: dense_const_sparse_matmul(t, 0 * X.T), X), "holds nothing"),
    "format": (lambda: ran(lambda t: fp8_mse_scale(t, "F134"), X), "F143 or F152"),
    "no tensors": (lambda: ran(lambda t: grad_reduce_square_add([]), X), "at least one"),
}


@pytest.mark.parametrize("case", WRONG)
def test_ops__what_does_not_fit__is_refused(case: str) -> None:
    made, words = WRONG[case]
    with pytest.raises(ValueError if case != "words" else TypeError, match=words):
        made()
