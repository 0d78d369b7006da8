"""Scaled functions: variance 1 of results and gradients at random inputs, and PyTorch's function underneath."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.nn.functional as F  # noqa: N812

from abele.frontends.poptorch import unit_scaling as us
from abele.frontends.poptorch.errors import OptionValueError

pytestmark = pytest.mark.torch

SEPARATE: dict[str, Any] = {"constraint": "separate"}


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def deviations(function: Callable[..., Any], *inputs: Any) -> list[float]:
    """Standard deviation of the result, and root mean square of the gradient of each input."""
    made = function(*(t.requires_grad_() for t in inputs))
    made.backward(torch.randn_like(made))
    return [made.detach().std().item(), *(t.grad.square().mean().sqrt().item() for t in inputs)]


CASES = {
    "linear": (lambda x, w: us.linear(x, w, **SEPARATE), [(512, 96), (256, 96)]),
    "linear of 3 dims": (lambda x, w: us.linear(x, w, **SEPARATE), [(8, 60, 64), (200, 64)]),
    "conv1d": (lambda x, w: us.conv1d(x, w, None, 2, **SEPARATE), [(16, 32, 201), (64, 32, 5)]),
    "conv2d": (lambda x, w: us.conv2d(x, w, None, 1, 1, groups=4, **SEPARATE), [(8, 64, 33, 33), (128, 16, 3, 3)]),
    "matmul": (lambda a, b: us.matmul(a, b, **SEPARATE), [(16, 40, 64), (16, 64, 90)]),
    "gelu": (lambda x: us.gelu(x, **SEPARATE), [(100_000,)]),
    "sharp gelu": (lambda x: us.gelu(x, mult=4.0, **SEPARATE), [(100_000,)]),
    "gelu of demo": (lambda x: us.gelu(x, rules="demo", **SEPARATE), [(100_000,)]),
    "silu of demo": (lambda x: us.silu(x, rules="demo", **SEPARATE), [(100_000,)]),
    "tanh": (lambda x: us.tanh(x, **SEPARATE), [(100_000,)]),
    "sharp tanh": (lambda x: us.tanh(x, mult=3.0, **SEPARATE), [(100_000,)]),
    "relu": (lambda x: us.relu(x, **SEPARATE), [(100_000,)]),
    "layer norm": (lambda x: us.layer_norm(x, (64,)), [(200, 64)]),
    "rms norm": (lambda x: us.rms_norm(x, (64,)), [(200, 64)]),
    "add": (lambda a, b: us.add(a, b) * 1.0, [(300, 64), (64,)]),
    "dropout": (lambda x: us.dropout(x, 0.3), [(100_000,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_function__unconstrained__has_variance_1_forward_and_backward(name: str) -> None:
    function, shapes = CASES[name]
    found = deviations(function, *(torch.randn(shape) for shape in shapes))
    expected = 1.0
    if name == "add":  # a sum's own gradients are those of its operands over √2
        assert found[0] == pytest.approx(1.0, abs=0.1)
        assert found[1:] == pytest.approx([2**-0.5] * 2, abs=0.1)
        return
    assert all(0.9 <= deviation <= 1.1 for deviation in found), (found, expected)


@pytest.mark.parametrize("mult", [0.1, 1.0, 2.0])
def test_softmax__multipliers__has_nearly_variance_1(mult: float) -> None:
    output, grad = deviations(lambda x: us.softmax(x, -1, mult=mult, constraint="separate"), torch.randn(400, 200))
    assert 0.6 <= output <= 1.6
    assert 0.6 <= grad <= 1.6


@pytest.mark.parametrize("mult", [0.05, 1.0, 30.0])
def test_silu_glu__multipliers__has_nearly_variance_1(mult: float) -> None:
    found = deviations(lambda a, b: us.silu_glu(a, b, mult=mult), torch.randn(100_000), torch.randn(100_000))
    assert all(0.8 <= deviation <= 1.25 for deviation in found), found


@pytest.mark.parametrize("causal", [False, True])
def test_attention__soft_scores__has_nearly_variance_1(causal: bool) -> None:
    q, k, v = (torch.randn(8, 4, 64, 32) for _ in range(3))
    made = us.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert 0.8 <= made.std().item() <= 1.3


def test_embedding__gradient__has_variance_1_over_many_rows() -> None:
    table, index = torch.randn(50, 32), torch.randint(0, 50, (4000,))
    output, grad = deviations(lambda w: us.embedding(index, w), table)
    assert (output, grad) == pytest.approx((1, 1), abs=0.1)
    (demo,) = deviations(lambda w: us.embedding(index, w, rules="demo"), torch.randn(50, 32))[1:]
    assert demo == pytest.approx((50 / 4000) ** 0.5, rel=0.1)  # a mean


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy__flat_scores__has_a_gradient_of_variance_1(reduction: str) -> None:
    scores = torch.zeros(64, 50, requires_grad=True)
    target = torch.randint(0, 50, (64,))
    loss = us.cross_entropy(scores, target, reduction)
    loss.backward()
    assert scores.grad.square().mean().sqrt().item() == pytest.approx(1, rel=1e-5)
    assert loss.item() == pytest.approx(F.cross_entropy(scores, target, reduction=reduction).item())


def test_linear__by_hand__is_the_product_and_its_gradients_times_the_factors() -> None:
    x, w, b = torch.randn(5, 7, requires_grad=True), torch.randn(3, 7, requires_grad=True), torch.randn(3)
    b.requires_grad_()
    made = us.linear(x, w, b)
    torch.testing.assert_close(made, x @ w.T * 7**-0.5 + b)
    grad = torch.randn(5, 3)
    made.backward(grad)
    torch.testing.assert_close(x.grad, grad @ w * 7**-0.5)  # the output's scale for both
    torch.testing.assert_close(w.grad, grad.T @ x * 5**-0.5)
    torch.testing.assert_close(b.grad, grad.sum(0) * 5**-0.5)


@pytest.mark.parametrize(("rules", "tau"), [("library", 1.0), ("library", 0.3), ("demo", 0.2), ("library", None)])
def test_residual__branch_of_variance_1__keeps_it_and_sees_whole_gradients(rules: str, tau: float | None) -> None:
    x, w = torch.randn(500, 64, requires_grad=True), torch.randn(64, 64)
    seen: list[Any] = []

    def branch(value: Any) -> Any:
        made = us.linear(value, w)
        made.register_hook(seen.append)
        return made

    made = us.residual(x, branch, tau, rules=rules)
    made.backward(torch.randn_like(made))
    assert made.std().item() == pytest.approx(1, abs=0.1)
    assert seen[0].std().item() == pytest.approx(1, abs=0.1)
    assert x.grad.std().item() == pytest.approx(1, abs=0.1)


def test_functions__half__stay_in_half() -> None:
    x, w = torch.randn(8, 16).half().requires_grad_(), torch.randn(4, 16).half().requires_grad_()
    made = us.gelu(us.linear(x, w))
    assert made.dtype == torch.float16
    made.sum().backward()
    assert w.grad.dtype == torch.float16


def test_arguments__wrong__are_refused() -> None:
    x = torch.randn(4, 8)
    with pytest.raises(OptionValueError, match="flatten"):
        us.cross_entropy(torch.randn(2, 3, 4), torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(OptionValueError, match="'mean' or a 'sum'"):
        us.cross_entropy(x, torch.zeros(4, dtype=torch.long), "none")
    with pytest.raises(OptionValueError, match="odds from 0"):
        us.dropout(x, 1.0)
    with pytest.raises(OptionValueError, match="takes matrices"):
        us.matmul(x, torch.randn(8))
    with pytest.raises(OptionValueError, match="no rules 'paper'"):
        us.linear(x, torch.randn(3, 8), rules="paper")
