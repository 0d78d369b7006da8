"""Capture of control flow, of functions with their own backward passes, of checkpoints and of regions without
gradients: held against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
import torch.utils.checkpoint as checkpoints
from poptorch_kit import check_against_torch
from torch import nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan

from abele.frontends.poptorch import Error, identity_loss, inferenceModel
from abele.frontends.poptorch.capture import capture


class Model(nn.Module):
    """A linear layer, then a function of it and its input, whose squares are the loss."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        out = self.function(self, self.fc(x), x)
        return out, identity_loss(out * out, "sum")


def kinds(model: nn.Module, *args: torch.Tensor, training: bool = True) -> list[str]:
    """Kinds of the ops of a captured network, those in regions included."""
    return [op.kind for op in capture(model, args, training=training).net.walk()]


# --- control flow -----------------------------------------------------------------------------------------------------


def branch(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda a: torch.sin(m.other(a)), lambda a: a - 1, (y,))


def plain_branch(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.sin(m.other(y)) if x.sum() > 0 else y - 1


def scanned(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    last, rows = scan(lambda carry, row: (carry * 0.5 + row, carry * row), torch.zeros(4), y, dim=0)
    return rows + last


def plain_scanned(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    carry, rows = torch.zeros(4).to(y), []
    for row in y:
        rows.append(carry * row)
        carry = carry * 0.5 + row
    return torch.stack(rows) + carry


def mapped(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return map_rows(lambda row, shift: torch.tanh(row) + shift, y, x[0])


def plain_mapped(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.tanh(row) + x[0] for row in y])


def looped(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        y = torch.tanh(m.other(y))
    return y


@pytest.mark.parametrize(
    ("function", "plain", "sign"),
    [
        (branch, plain_branch, 1.0),
        (branch, plain_branch, -1.0),
        (scanned, plain_scanned, 1.0),
        (mapped, plain_mapped, 1.0),
        (looped, looped, 1.0),
    ],
)
def test_control__any_operator__equals_pytorch(function: Any, plain: Any, sign: float) -> None:
    check_against_torch(Model(function), (sign * torch.rand(3, 4),), twin=Model(plain))


def test_control__scan__is_one_loop() -> None:
    assert kinds(Model(scanned), torch.rand(3, 4)).count("loop") == 1


class Newton(nn.Module):
    """Square roots by steps until they are near."""

    def forward(self, x: torch.Tensor) -> Any:
        def far(count: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
            return (count < 50) & ((root * root - x).abs().amax() > 1e-4)

        def step(count: torch.Tensor, root: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count + 1, 0.5 * (root + x / root)

        return torch.while_loop(far, step, (torch.tensor(0), torch.ones_like(x)))


def test_control__while_loop__ends_when_its_condition_does() -> None:
    x = torch.tensor([4.0, 9.0, 2.0])
    count, root = inferenceModel(Newton())(x)
    assert torch.allclose(root, x.sqrt(), atol=1e-4)
    assert int(count) == 5


# --- functions with backward passes -----------------------------------------------------------------------------------


class Quantise(torch.autograd.Function):
    """Rounds; gradients pass where the value is small."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, steps: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.round(x * steps) / steps

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (x.abs() < 0.3), None


class TwoResults(torch.autograd.Function):
    """Two results and a gradient that is not theirs; in the style with a context of its own."""

    @staticmethod
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + y, x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> Any:
        x, y = ctx.saved_tensors
        return first * 2 + second * y, -second * x


class Reversal(torch.autograd.Function):
    """Turns gradients round."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad


quantise = Quantise.apply


@pytest.mark.parametrize(
    "function",
    [
        lambda m, y, x: quantise(y, 8.0),
        lambda m, y, x: sum(TwoResults.apply(y, m.other(x))),
        lambda m, y, x: TwoResults.apply(y, m.other(x))[1],
        lambda m, y, x: Reversal.apply(y) * m.other(Reversal.apply(x)),
        lambda m, y, x: quantise(Reversal.apply(quantise(y, 2.0)), 4.0),
    ],
)
def test_own_backward__any_function__gives_its_gradients(function: Any) -> None:
    check_against_torch(Model(function), (torch.rand(3, 4),))


def test_own_backward__for_inference__is_not_recorded() -> None:
    assert "own_gradient" not in kinds(Model(lambda m, y, x: quantise(y, 8.0)), torch.rand(3, 4), training=False)


def test_own_backward__too_few_gradients__is_refused() -> None:
    class Lacking(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad

    with pytest.raises(Error, match=r"LackingBackward returned an incorrect number of gradients \(expected 2, got 1\)"):
        capture(Model(lambda m, y, x: Lacking.apply(y, x)), (torch.rand(3, 4),), training=True)


# --- regions ----------------------------------------------------------------------------------------------------------


def without_gradients(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = torch.exp(m.other(y))
        with torch.enable_grad():
            shift = m.other(x)
    return y * scale + shift


def without_gradients_beside_control(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        chosen = torch.cond(x.sum() > 0, lambda a: torch.tanh(m.other(a)), lambda a: a - 1, (y,))
        scale = torch.exp(m.other(y)) + chosen
        scale.mul_(m.other(x))
        with torch.enable_grad():
            shift = m.other(x)
    return y * scale + shift


def without_gradients_beside_no_control(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    scale = (torch.exp(m.other(y)) + torch.tanh(m.other(y))) * m.other(x)
    return y * scale.detach() + m.other(x)


def stepped_without_gradients(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    def step(count: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return count + 1, torch.tanh(m.other(a))

    with torch.no_grad():
        _, last = torch.while_loop(lambda count, _: count < 3, step, (torch.tensor(0), y))
    return y * last


def mixed(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = m.other(y)
    assert z.dtype == torch.bfloat16
    return z.float() + y


def test_no_grad__region__lets_no_gradient_through() -> None:
    check_against_torch(Model(without_gradients), (torch.rand(3, 4),))


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        (without_gradients_beside_control, without_gradients_beside_no_control),
        (stepped_without_gradients, lambda m, y, x: y * looped(m, y, x).detach()),
    ],
)
def test_no_grad__region_with_control_flow__lets_no_gradient_through(function: Any, plain: Any) -> None:
    check_against_torch(Model(function), (torch.rand(3, 4),), twin=Model(plain))


def test_autocast__region__computes_in_its_type() -> None:
    net = capture(Model(mixed), (torch.rand(3, 4),), training=True).net
    assert [str(op.output.dtype) for op in net.ops if op.kind == "linear"] == ["f32", "bf16"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint__region__is_computed_again_with_the_same_gradients(reentrant: bool) -> None:
    def twice(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        def inner(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.sin(m.other(a)), a.chunk(2, 1)[0]

        def outer(a: torch.Tensor) -> torch.Tensor:
            first, second = checkpoints.checkpoint(inner, torch.exp(a), use_reentrant=reentrant)
            return torch.cat([first, second], 1)

        return checkpoints.checkpoint(outer, y, use_reentrant=reentrant) * y.sum()

    def once(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        a = torch.exp(y)
        return torch.cat([torch.sin(m.other(a)), a.chunk(2, 1)[0]], 1) * y.sum()

    captured = check_against_torch(Model(twice), (torch.rand(3, 4),), twin=Model(once))
    found = [op for op in captured.net.walk() if op.kind == "checkpoint"]
    assert [any(op.kind == "checkpoint" for op in o.regions[0].ops) for o in found] == [True, False]


# --- losses -----------------------------------------------------------------------------------------------------------


def test_loss__several_marks_of_which_one_is_final__is_that_one() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.fc(x)
            first = identity_loss(y, "mean")
            second = identity_loss(functional.mse_loss(y, x) * 3, "none")
            return identity_loss(first + second + functional.l1_loss(y, x), "sum")

    captured = check_against_torch(Several(), (torch.rand(3, 4),))
    assert captured.net.loss in captured.net.outputs


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, t: functional.hinge_embedding_loss(y, torch.sign(t - 0.5)),
        lambda y, t: functional.margin_ranking_loss(y, t, torch.ones(3, 4)),
        lambda y, t: functional.cosine_embedding_loss(y, t, torch.ones(3)),
        lambda y, t: functional.poisson_nll_loss(y, t),
        lambda y, t: functional.triplet_margin_loss(y, t, -t),
        lambda y, t: functional.kl_div(functional.log_softmax(y, -1), functional.softmax(t, -1), reduction="batchmean"),
        lambda y, t: functional.gaussian_nll_loss(y, t, t + 0.5),
        lambda y, t: functional.multilabel_soft_margin_loss(y, torch.round(t)),
        lambda y, t: functional.triplet_margin_with_distance_loss(y, t, -t),
    ],
)
def test_loss__made_of_other_operators__is_recognised(loss: Any) -> None:
    class Composed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return loss(self.fc(x), x)

    check_against_torch(Composed(), (torch.rand(3, 4),))


def test_forward__when_captured__runs_once() -> None:
    calls = []

    def counted(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        functional.mse_loss(y, x)
        return y.cumsum(1)

    capture(Model(counted), (torch.rand(3, 4),), training=True)
    assert len(calls) == 1


# --- gradients in the forward pass ------------------------------------------------------------------------------------


def physics(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A residual of first and second derivatives of a network by its input."""
    place = x.detach().requires_grad_()
    value = m.other(torch.tanh(m.fc(place)))
    (slope,) = torch.autograd.grad(value.sum(), place, create_graph=True)
    (curve,) = torch.autograd.grad(slope, place, torch.ones_like(slope), create_graph=True)
    return y + curve + slope * value


def test_autograd_grad__in_forward__is_differentiated_again() -> None:
    check_against_torch(Model(physics), (torch.rand(3, 4),))


def test_autograd_grad__by_a_value_of_the_model__leaves_the_graph_when_asked() -> None:
    def penalised(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        (slope,) = torch.autograd.grad(torch.sin(m.other(y)).sum(), y)
        return y * slope

    check_against_torch(Model(penalised), (torch.rand(3, 4),))


def test_backward__in_forward__is_refused() -> None:
    def backward(m: Model, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y.sum().backward()
        return y

    with pytest.raises(Error, match=r"backward\(\) cannot be called while a model is recorded"):
        capture(Model(backward), (torch.rand(3, 4),), training=True)
