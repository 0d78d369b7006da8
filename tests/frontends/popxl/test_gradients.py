"""Gradient graphs of popxl through loops, choices, changes in place and calls, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from abele import popxl
from abele.popxl import ops
from frontends.popxl.popxl_kit import with_gradients

_draw = np.random.default_rng(3)
A, B = _draw.standard_normal((3, 4)).astype(np.float32), _draw.standard_normal((3, 4)).astype(np.float32)
SQUARE = (_draw.standard_normal((4, 4)) / 2).astype(np.float32)
F32 = popxl.float32


def graph_of(build: Callable[..., Any], *tensors: Any) -> popxl.Graph:
    """A graph of a function of any arguments."""
    return popxl.gir().create_graph(build, *tensors)


def _trip(x: Any, w: Any) -> Any:
    return ops.tanh(x @ w) + x


def _repeated(count: int) -> Callable[..., Any]:
    def build(x: Any, w: Any) -> Any:
        return ops.repeat(graph_of(_trip, x, w), count, x, w)

    return build


def _torch_trips(count: int) -> Callable[..., Any]:
    def build(x: Any, w: Any) -> Any:
        for _ in range(count):
            x = torch.tanh(x @ w) + x
        return x

    return build


def _nested(x: Any, w: Any) -> Any:
    def outer(x: Any, w: Any) -> Any:
        return ops.repeat(graph_of(_trip, x, w), 2, x, w)[0] * 0.5

    return ops.repeat(graph_of(outer, x, w), 3, x, w)


def _torch_nested(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = _torch_trips(2)(x, w) * 0.5
    return x


def _swapping(x: Any, y: Any) -> Any:
    """Two carried values that change places, and a count of trips."""

    def trip(x: Any, y: Any, n: Any) -> Any:
        return y * ops.cast(n, F32), ops.sin(x), n + 1

    return ops.repeat(graph_of(trip, x, y, popxl.TensorSpec((), popxl.int32)), 3, x, y, popxl.constant(1))[:2]


def _torch_swapping(x: Any, y: Any) -> Any:
    for n in range(1, 4):
        x, y = y * n, torch.sin(x)
    return x, y


def _chosen(positive: bool) -> Callable[..., Any]:
    def build(x: Any, w: Any) -> Any:
        held = popxl.constant(positive)
        then = graph_of(lambda x, w: ops.tanh(x @ w), x, w)
        other = graph_of(lambda x: ops.exp(x) * 2, x)
        return ops.conditional(held, then, other, [x * 3, w], [x])

    return build


def _torch_chosen(positive: bool) -> Callable[..., Any]:
    return lambda x, w: torch.tanh(3 * x @ w) if positive else torch.exp(x) * 2 + 0 * w.sum()


def _choice_in_loop(x: Any, w: Any) -> Any:
    def trip(x: Any, w: Any) -> Any:
        then, other = graph_of(_trip, x, w), graph_of(lambda x: ops.sin(x) * x, x)
        return ops.conditional(ops.sum(x) > 0, then, other, [x, w], [x])

    return ops.repeat(graph_of(trip, x, w), 4, x, w)


def _torch_choice_in_loop(x: Any, w: Any) -> Any:
    for _ in range(4):
        x = torch.tanh(x @ w) + x if x.sum() > 0 else torch.sin(x) * x
    return x


def _in_place(x: Any, y: Any) -> Any:
    """Old values of products, views, and a result that shows an input."""
    z = x * y
    w = z * z  # Its gradient reads z as it is here.
    ops.relu_(z)
    u = ops.sin(z)
    ops.scaled_add_(z.reshape_((4, 3)), y.reshape((4, 3)), a=2.0, b=0.5)
    ops.gelu_(ops.slice_(z, 1, 3, axis=1))
    return w, z + u


def _torch_in_place(x: Any, y: Any) -> Any:
    z = x * y
    w = z * z
    z = torch.relu(z)
    u = torch.sin(z)
    z = 2 * z + 0.5 * y
    middle = torch.nn.functional.gelu(z[:, 1:3], approximate="tanh")
    return w, torch.cat([z[:, :1], middle, z[:, 3:]], 1) + u


def _changed_input(x: Any, y: Any) -> Any:
    ops.add_(x, ops.sin(y))
    return ops.exp_(x)


def _by_reference(x: Any, y: Any) -> Any:
    """An input that a call changes by reference, read before and afterwards."""

    def scale(x: popxl.TensorByRef, y: Any) -> Any:
        ops.scaled_add_(x, ops.sin(y), a=3.0)
        return ops.sum(x * y)

    before = x * x
    z = ops.identity(x)
    (total,) = ops.call(graph_of(scale, z, y), z, y)
    return before + z * z, total


def _torch_by_reference(x: Any, y: Any) -> Any:
    z = 3 * x + torch.sin(y)
    return x * x + z * z, (z * y).sum()


def _called_twice(x: Any, w: Any) -> Any:
    """Two calls of one graph, of which different results matter; and an output that is there twice."""

    def both(x: Any, w: Any) -> Any:
        return ops.tanh(x @ w), ops.sin(x)

    graph = graph_of(both, x, w)
    _, first = ops.call(graph, x, w)
    second, _ = ops.call(graph, first, w)
    twice = graph_of(lambda x: (y := ops.exp(x), y), x)
    one, other = ops.call(twice, second)
    return one * 2 + other * x


def _torch_called_twice(x: Any, w: Any) -> Any:
    second = torch.tanh(torch.sin(x) @ w)
    return torch.exp(second) * (2 + x)


Case = tuple[str, Callable[..., Any], Callable[..., Any], Sequence[Any]]
CASES: list[Case] = [
    ("repeat", _repeated(3), _torch_trips(3), [A, SQUARE]),
    ("repeat once", _repeated(1), _torch_trips(1), [A, SQUARE]),
    ("repeat never", _repeated(0), lambda x, w: x + 0 * w.sum(), [A, SQUARE]),
    ("nested repeats", _nested, _torch_nested, [A, SQUARE]),
    ("carried values that swap", _swapping, _torch_swapping, [A, B]),
    ("then", _chosen(True), _torch_chosen(True), [A, SQUARE]),
    ("else", _chosen(False), _torch_chosen(False), [A, SQUARE]),
    ("choice in a loop", _choice_in_loop, _torch_choice_in_loop, [A, SQUARE]),
    ("in place", _in_place, _torch_in_place, [A, B]),
    ("changed input", _changed_input, lambda x, y: torch.exp(x + torch.sin(y)), [A, B]),
    ("by reference", _by_reference, _torch_by_reference, [A, B]),
    ("called twice", _called_twice, _torch_called_twice, [A, SQUARE]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_gradient_equals_pytorch(case: Case) -> None:
    _, build, reference, arrays = case
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = reference(*leaves)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    total = sum((t * torch.linspace(-1, 1, t.numel()).reshape(t.shape)).sum() for t in expected)
    assert isinstance(total, torch.Tensor)
    wanted = [*expected, *torch.autograd.grad(total, leaves)]
    made, by = with_gradients(build, *arrays)
    for got, want in zip([*made, *by], wanted, strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=2e-4, atol=2e-5)
