"""Ops of popxl against NumPy and PyTorch: their values, and the gradients that autodiff makes of their graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from abele import popxl
from abele.popxl import ops
from frontends.popxl.popxl_kit import run, with_gradients

_draw = np.random.default_rng(7)
A, B = _draw.standard_normal((2, 3, 4)).astype(np.float32), _draw.standard_normal((2, 3, 4)).astype(np.float32)
ROW, SIDE = _draw.standard_normal(4).astype(np.float32), _draw.standard_normal((4, 5)).astype(np.float32)
POSITIVE = np.abs(A) + np.float32(0.5)
INTS = _draw.integers(-9, 9, (2, 3, 4)).astype(np.int32)
INDEX = np.array([[2, 0], [1, 1]], np.int32)
LABELS = np.array([[1, 0, 3], [2, 2, 0]], np.int32)
IMAGE, KERNEL = (_draw.standard_normal(s).astype(np.float32) for s in ((2, 4, 6, 5), (6, 2, 3, 3)))
TURNED = _draw.standard_normal((4, 3, 2, 2)).astype(np.float32)
BOOLS = A > 0


def _softmax_loss(x: Any, labels: Any, **options: Any) -> Any:
    return F.nll_loss(torch.log_softmax(x, -1).flatten(0, 1), labels.flatten().long(), **options)


def _normalised(x: Any, w: Any, b: Any, m: Any, v: Any) -> Any:
    weight, bias, mean, spread = (t.reshape(-1, 1, 1) for t in (w, b, m, v))
    return (x - mean) / (spread + 1e-5).sqrt() * weight + bias


Case = tuple[str, Callable[..., Any], Callable[..., Any], Sequence[Any]]
FLOATS: list[Case] = [
    ("abs", ops.abs, torch.abs, [A]),
    ("negate", lambda t: -t, torch.neg, [A]),
    ("ceil", ops.ceil, torch.ceil, [A]),
    ("floor", ops.floor, torch.floor, [A]),
    ("cos", ops.cos, torch.cos, [A]),
    ("sin", ops.sin, torch.sin, [A]),
    ("exp", ops.exp, torch.exp, [A]),
    ("log", ops.log, torch.log, [POSITIVE]),
    ("log2", ops.log2, torch.log2, [POSITIVE]),
    ("sqrt", ops.sqrt, torch.sqrt, [POSITIVE]),
    ("sign", ops.sign, torch.sign, [A]),
    ("tanh", ops.tanh, torch.tanh, [A]),
    ("relu", ops.relu, torch.relu, [A]),
    ("gelu", ops.gelu, lambda x: F.gelu(x, approximate="tanh"), [A]),
    ("geluerf", ops.geluerf, F.gelu, [A]),
    ("swish", ops.swish, F.silu, [A]),
    ("clip", lambda t: ops.clip(t, -0.5, 0.5), lambda x: x.clamp(-0.5, 0.5), [A]),
    ("add", lambda a, b: a + b, torch.add, [A, ROW]),
    ("radd", lambda a: 2 + a, lambda x: x + 2, [A]),
    ("rsub", lambda a: 2 - a, lambda x: 2 - x, [A]),
    ("sub", ops.sub, torch.sub, [A, B]),
    ("mul", ops.mul, torch.mul, [A, ROW]),
    ("div", lambda a, b: a / b, torch.div, [A, POSITIVE]),
    ("pow", ops.pow, torch.pow, [POSITIVE, A]),
    ("fmod", ops.fmod, torch.fmod, [A, POSITIVE]),
    ("maximum", ops.maximum, torch.maximum, [A, B]),
    ("scaled_add", lambda a, b: ops.scaled_add(a, b, 2.0, 0.5), lambda x, y: 2 * x + 0.5 * y, [A, B]),
    ("matmul", lambda a, b: a @ b, torch.matmul, [A, SIDE]),
    ("matmul stacks", lambda a, b: a @ b.transpose((0, 2, 1)), lambda x, y: x @ y.mT, [A, B]),
    ("sum", lambda t: ops.sum(t, [0, 2]), lambda x: x.sum((0, 2)), [A]),
    ("mean", lambda t: ops.mean(t, -1, keepdims=True), lambda x: x.mean(-1, keepdim=True), [A]),
    ("max", lambda t: ops.max(t, 1), lambda x: x.amax(1), [A]),
    ("min", ops.min, torch.amin, [A]),
    ("prod", lambda t: ops.prod(t, 1), lambda x: x.prod(1), [POSITIVE]),
    ("l1", lambda t: ops.l1(t, 1), lambda x: x.abs().sum(1), [A]),
    ("l2", lambda t: ops.l2(t, 1), lambda x: x.norm(dim=1), [A]),
    ("sumsquare", ops.sumsquare, lambda x: (x * x).sum(), [A]),
    ("logsum", lambda t: ops.logsum(t, 2), lambda x: x.sum(2).log(), [POSITIVE]),
    ("logsumexp", lambda t: ops.logsumexp(t, 2), lambda x: x.logsumexp(2), [100 * A]),
    ("cumsum", lambda t: ops.cumsum(t, 1), lambda x: x.cumsum(1), [A]),
    ("topk", lambda t: ops.topk(t, 2, 1)[0], lambda x: x.topk(2, 1)[0], [A]),
    ("reshape", lambda t: t.reshape((3, -1)), lambda x: x.reshape(3, -1), [A]),
    ("transpose", lambda t: t.T, lambda x: x.permute(2, 1, 0), [A]),
    ("squeeze", lambda t: ops.squeeze(t.reshape((2, 1, 12, 1))), lambda x: x.reshape(2, 12), [A]),
    ("diag", lambda t: t.diag(), torch.diag, [SIDE[:, :4]]),
    ("slice", lambda t: t[:, 1, ::2], lambda x: x[:, 1, ::2], [A]),
    ("slice back", lambda t: t[..., 3:0:-2], lambda x: x.flip(-1)[..., 0:3:2], [A]),
    ("concat", lambda a, b: ops.concat([a, b], 1), lambda x, y: torch.cat([x, y], 1), [A, B]),
    ("split", lambda t: ops.split(t, [1, 3], 2)[1], lambda x: x.split([1, 3], 2)[1], [A]),
    ("where", lambda a, b: ops.where(a > b, a, b), lambda x, y: torch.where(x > y, x, y), [A, B]),
    ("masked", lambda t: t[t > 0], lambda x: torch.where(x > 0, x, 0), [A]),
    ("softmax", lambda t: ops.softmax(t, 1), lambda x: x.softmax(1), [A]),
    (
        "layer_norm",
        lambda t, w, b: ops.layer_norm(t, w, b),
        lambda x, w, b: F.layer_norm(x, (4,), w, b),
        [A, ROW, ROW[::-1].copy()],
    ),
    (
        "group_norm",
        lambda t, w, b: ops.group_norm(t, w, b, 2),
        lambda x, w, b: F.group_norm(x, 2, w, b),
        [IMAGE, ROW, ROW[::-1].copy()],
    ),
    (
        "batch_norm_inference",
        lambda t, w, b, m, v: ops.batch_norm_inference(t, w, b, m, v),
        lambda x, w, b, m, v: _normalised(x, w, b, m, v),
        [IMAGE, ROW, ROW[::-1].copy(), ROW + 1, np.abs(ROW) + np.float32(1)],
    ),
    (
        "conv",
        lambda t, w: ops.conv(t, w, (2, 1), (1, 0, 1, 2), groups=2),
        lambda x, w: F.conv2d(F.pad(x, (0, 2, 1, 1)), w, stride=(2, 1), groups=2),
        [IMAGE, KERNEL],
    ),
    (
        "conv_transpose",
        lambda t, w: ops.conv_transpose(t, w, (2, 2), (1, 0, 1, 0), output_padding=(1, 1)),
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=(1, 0), output_padding=1),
        [IMAGE, TURNED],
    ),
    ("max_pool", lambda t: ops.max_pool(t, (2, 2), (2, 1)), lambda x: F.max_pool2d(x, 2, (2, 1)), [IMAGE]),
    ("average_pool", lambda t: ops.average_pool(t, (3, 2), 2), lambda x: F.avg_pool2d(x, (3, 2), 2), [IMAGE]),
]


@pytest.mark.parametrize("case", FLOATS, ids=lambda c: c[0])
def test_op_and_its_gradient_equal_pytorch(case: Case) -> None:
    _, build, reference, arrays = case
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = reference(*leaves)
    weight = torch.linspace(-1, 1, expected.numel()).reshape(expected.shape)
    wanted = torch.autograd.grad((expected * weight).sum(), leaves, allow_unused=True)

    (made,), gradients = with_gradients(build, *arrays)
    np.testing.assert_allclose(made, expected.detach().numpy(), rtol=2e-5, atol=2e-5)
    for got, want, leaf in zip(gradients, wanted, leaves, strict=True):
        shown = torch.zeros_like(leaf) if want is None else want
        np.testing.assert_allclose(got, shown.numpy(), rtol=1e-4, atol=5e-5)


PLAIN: list[Case] = [
    ("equal", ops.equal, np.equal, [INTS, INTS[::-1].copy()]),
    ("greater", lambda a, b: a > b, np.greater, [A, B]),
    ("less", lambda a, b: a < b, np.less, [A, B]),
    ("isfinite", lambda a: ops.isfinite(ops.log(a)), lambda x: np.isfinite(np.log(x)), [A.clip(0)]),
    ("isinf", lambda a: ops.isinf(ops.log(a)), lambda x: np.isinf(np.log(x)), [A.clip(0)]),
    ("isnan", lambda a: ops.isnan(ops.log(a)), lambda x: np.isnan(np.log(x)), [A]),
    ("and", lambda a, b: a & b, np.logical_and, [BOOLS, BOOLS[::-1].copy()]),
    ("or", lambda a, b: a | b, np.logical_or, [BOOLS, BOOLS[::-1].copy()]),
    ("not", lambda a: ~a, np.logical_not, [BOOLS]),
    ("add of integers", lambda a: a + 3, lambda x: x + 3, [INTS]),
    ("integers divide", lambda a: a / 4, lambda x: np.trunc(x / 4).astype(np.int32), [INTS]),
    ("negative integers", ops.negate, np.negative, [INTS]),
    ("cast", lambda a: ops.cast(a, popxl.float16), lambda x: x.astype(np.float16), [A]),
    ("cast to bool", lambda a: ops.cast(a, popxl.bool), lambda x: x != 0, [INTS]),
    ("argmax", lambda a: ops.argmax(a, 1), lambda x: x.argmax(1), [A]),
    ("argmin", lambda a: ops.argmin(a, -1, keepdim=True), lambda x: x.argmin(-1)[..., None], [A]),
    ("gather", lambda a, i: ops.gather(a, i, 1), lambda x, i: x.take(i, 1), [A, INDEX]),
    ("gather by index", lambda a, i: a[i], lambda x, i: x[i], [SIDE, INDEX]),
    (
        "gather outside",
        lambda a, i: ops.gather(a, i + 3, zero_OOR=True),
        lambda x, i: np.concatenate([x, np.zeros((3, 5), np.float32)])[i + 3],
        [SIDE, INDEX],
    ),
    ("increment_mod", lambda a: ops.increment_mod(a, 3, 5), lambda x: (x + 3) % 5, [np.abs(INTS)]),
    ("subsample", lambda a: ops.subsample(a, [1, 2, 3]), lambda x: x[:, ::2, ::3], [A]),
    ("lamb_square", ops.lamb_square, lambda x: (x * x).sum(), [A]),
    (
        "onehot",
        lambda a, v: ops.onehot(a, 4, v),
        lambda x, v: np.where(np.arange(4) == x[..., None], v[1], v[0]),
        [LABELS, np.array([-1, 2], np.float32)],
    ),
    (
        "scatter",
        lambda a, i, v: ops.scatter(a, i, v, 0),
        lambda x, i, v: torch.tensor(x).scatter(0, torch.tensor(i).long(), torch.tensor(v)).numpy(),
        [SIDE, np.array([[3, 1, 0, 2, 1]], np.int32), np.arange(5, dtype=np.float32)[None]],
    ),
    (
        "dynamic_slice",
        lambda a, i: ops.dynamic_slice(a, i, [0, 1], [2, 3]),
        lambda x, i: x[1:3, 2:5],
        [SIDE, np.array([1, 2], np.uint32)],
    ),
]


@pytest.mark.parametrize("case", PLAIN, ids=lambda c: c[0])
def test_op_equals_numpy(case: Case) -> None:
    _, build, reference, arrays = case
    with np.errstate(all="ignore"):
        expected = reference(*arrays)
    (made,) = run(build, *arrays)
    np.testing.assert_allclose(made, expected, rtol=1e-5)
    assert made.shape == np.shape(expected)


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"ignore_index": 2}], ids=str)
def test_losses_equal_pytorch(options: Any) -> None:
    scores = torch.tensor(A, requires_grad=True)
    expected = _softmax_loss(scores, torch.tensor(LABELS), **options)
    expected.backward()

    def losses(t: Any, labels: Any) -> list[Any]:
        probs = ops.softmax(t, -1)
        return [
            ops.nll_loss(probs, labels, **options),
            *ops.nll_loss_with_softmax_grad(probs, labels, **options),
        ]

    plain, loss, gradient = run(losses, A, LABELS)
    np.testing.assert_allclose([plain, loss], [expected.item()] * 2, rtol=1e-5)
    assert scores.grad is not None
    np.testing.assert_allclose(gradient, scores.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_in_place_ops_and_views_change_what_they_are_of() -> None:
    def changed(a: Any, b: Any) -> list[Any]:
        ops.add_(a[:, 0] * 0 + a[:, 0], a[:, 0])  # A copy changes: ``a`` stays.
        ops.scaled_add_(ops.slice_(a, 1, 3, axis=1).transpose_((2, 1, 0)), b.T[:, 1:], b=2.0)
        ops.relu_(a.reshape_((-1,)))
        ops.dynamic_update_(b, popxl.constant([1], popxl.uint32), ops.init((2, 1, 4), "float32"), [1], [1])
        ops.increment_mod_(b.flatten_(), 1.0, 100.0)
        return [a, b]

    first, second = run(changed, A, POSITIVE)
    expected = A.copy()
    expected[:, 1:3] += 2 * POSITIVE[:, 1:]
    np.testing.assert_allclose(first, expected.clip(0), rtol=1e-6)
    expected = POSITIVE.copy()
    expected[:, 1] = 0
    np.testing.assert_allclose(second, expected + 1, rtol=1e-6)


def test_random_ops_follow_their_seed() -> None:
    def drawn(seed: Any, t: Any) -> list[Any]:
        first, second = ops.split_random_seed(seed)
        normal = ops.random_normal(first, (4000,), 1.0, 2.0)
        uniform = ops.random_uniform(second, (4000,), -1.0, 3.0)
        return [first, second, normal, uniform, *(ops.dropout(t, s, 0.25) for s in (seed, seed, first))]

    seeds = popxl.create_seeds(3)
    one = np.ones(4000, np.float32)
    first, second, normal, uniform, dropped, same, other = run(drawn, seeds, one)
    assert (first != second).any()
    assert abs(normal.mean() - 1) < 0.15
    assert abs(normal.std() - 2) < 0.1
    assert -1 <= uniform.min() < -0.95
    assert 2.95 < uniform.max() < 3
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}
    assert abs((dropped == 0).mean() - 0.25) < 0.03
    assert (dropped == same).all()
    assert (dropped != other).any()


def test_var_updates_are_their_formulas() -> None:
    m, v, w = 0.1 * A, np.abs(B), POSITIVE

    def updated(t: Any, x: Any, m: Any, v: Any, w: Any, step: Any, rate: Any, table: Any, index: Any) -> list[Any]:
        u = ops.var_updates
        copies = [ops.identity(t) for _ in range(7)]
        u.accumulate_(copies[0], x)
        u.accumulate_(copies[1], x, rate)
        u.accumulate_square_(copies[2], x, 0.5)
        u.accumulate_mean_(copies[3], x, step)
        u.accumulate_moving_average_(copies[4], x, 0.9)
        u.accumulate_moving_average_square_(copies[5], x, rate)
        u.accumulator_scale_(copies[6], 0.25)
        u.sparse_accumulate_(table, x[0, :2], index, 0, 2.0)
        adam = u.adam_updater(m, v, w, step, 0.1, 0.9, 0.99, 1e-6)
        u.adam_var_update(w, adam, ops.lamb_square(w), ops.lamb_square(adam), rate, 10.0)
        return [*copies, table, adam, w, step]

    rate, table = np.float32(0.2), SIDE.T.copy()
    made = run(updated, A, B, m, v, w, np.float32(2), rate, table, np.array([3, 3], np.int32))
    sparse = table.copy()
    np.add.at(sparse, [3, 3], 2 * B[0, :2])
    adam = (m / (1 - 0.9**3)) / (np.sqrt(v / (1 - 0.99**3)) + 1e-6) + 0.1 * w
    ratio = min(float(np.linalg.norm(w)), 10.0) / np.linalg.norm(adam)
    expected = [
        A + B, A + 0.2 * B, A + 0.5 * B * B, A * 2 / 3 + B / 3, 0.9 * A + 0.1 * B, 0.2 * A + 0.8 * B * B, A / 4,
        sparse, adam, w - 0.2 * ratio * adam, np.float32(3),
    ]  # fmt: skip
    for got, want in zip(made, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
