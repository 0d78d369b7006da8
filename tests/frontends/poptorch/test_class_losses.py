"""Cross entropy and negative log-likelihood in all their forms: values and gradients against PyTorch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import check_against_torch
from torch import nn

from abele.frontends.poptorch import identity_loss
from abele.frontends.poptorch.capture import capture

SHAPES = {
    "one_sample": (4,),
    "batch": (5, 4),
    "sequence": (5, 4, 3),
    "image": (2, 4, 3, 2),
    "single": (1, 4),
    "one_class": (5, 1),
    "unit_field": (3, 4, 1, 1),
}
REDUCTIONS = ("none", "mean", "sum")
LABELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ignored": {"ignored": -100},
    "ignored_class": {"ignore_index": 0},
    "weighted": {"weighted": True},
    "weighted_ignored": {"weighted": True, "ignored": -100},
    "weighted_ignored_class": {"weighted": True, "ignore_index": 0},
}
SMOOTHED = {f"smoothed_{name}": kind | {"label_smoothing": 0.1} for name, kind in LABELS.items()}


class Loss(nn.Module):
    """A loss of scaled scores, reduced in every way."""

    def __init__(self, shape: tuple[int, ...], kind: dict[str, Any], *, log_softmax: bool = False) -> None:
        super().__init__()
        count = torch.Size(shape).numel()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, count).reshape(shape))
        self.dim = 1 if len(shape) > 1 else 0
        self.kind = {k: v for k, v in kind.items() if k not in ("weighted", "ignored")}
        weight = torch.linspace(0.5, 2.0, shape[self.dim]) if kind.get("weighted") else None
        self.register_buffer("weight", weight)
        self.log_softmax = log_softmax

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        scores, weight = x * self.scale, self.weight
        if self.log_softmax:
            scores = functional.log_softmax(scores, self.dim)
        losses = functional.nll_loss if self.log_softmax else functional.cross_entropy
        terms = [losses(scores, target, weight=weight, reduction=r, **self.kind).sum() for r in REDUCTIONS]
        return identity_loss(terms[0] * 2 + terms[1] * 3 + terms[2], "none")


def labels_of(shape: tuple[int, ...], kind: dict[str, Any]) -> torch.Tensor:
    classes = shape[1] if len(shape) > 1 else shape[0]
    labels = torch.randint(0, classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if "ignored" in kind and labels.dim():
        labels.view(-1)[0] = kind["ignored"]
    return labels


CASES = [(shape, "plain") for shape in SHAPES]
CASES += [
    (shape, kind) for shape in ("one_sample", "batch", "image") for kind in (LABELS | SMOOTHED) if kind != "plain"
]


@pytest.mark.parametrize(("shape", "kind"), CASES)
def test_cross_entropy__of_labels__equals_pytorch(shape: str, kind: str) -> None:
    torch.manual_seed(1)
    settings, sizes = (LABELS | SMOOTHED)[kind], SHAPES[shape]
    check_against_torch(Loss(sizes, settings), (torch.randn(sizes), labels_of(sizes, settings)), rtol=1e-7)


@pytest.mark.parametrize(("shape", "kind"), [case for case in CASES if case[1] in LABELS])
def test_nll_loss__equals_pytorch(shape: str, kind: str) -> None:
    torch.manual_seed(2)
    settings, sizes = LABELS[kind], SHAPES[shape]
    model = Loss(sizes, settings, log_softmax=True)
    check_against_torch(model, (torch.randn(sizes), labels_of(sizes, settings)), rtol=1e-7)


@pytest.mark.parametrize("shape", ["one_sample", "batch", "image"])
@pytest.mark.parametrize("kind", [{}, {"weighted": True}, {"label_smoothing": 0.2}], ids=repr)
def test_cross_entropy__of_probabilities__equals_pytorch(shape: str, kind: dict[str, Any]) -> None:
    torch.manual_seed(3)
    sizes = SHAPES[shape]
    target = torch.softmax(torch.randn(sizes), 1 if len(sizes) > 1 else 0)
    check_against_torch(Loss(sizes, kind), (torch.randn(sizes), target), rtol=1e-6)


def test_cross_entropy__every_label_ignored__has_no_gradient_as_in_pytorch() -> None:
    model = Loss((2, 4), {})
    captured = check_against_torch(model, (torch.randn(2, 4), torch.tensor([-100, -100])))
    assert captured.net.loss is not None


COMPOSED: dict[str, tuple[torch.Tensor, ...]] = {
    "GaussianNLLLoss": (torch.rand(4, 3), torch.rand(4, 3) + 0.5),
    "MultiLabelSoftMarginLoss": (torch.eye(4, 3),),
    "TripletMarginWithDistanceLoss": (torch.rand(4, 3), torch.rand(4, 3)),
}


@pytest.mark.parametrize("kind", COMPOSED)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_loss__that_pytorch_computes_of_other_operators__is_found_as_the_loss(kind: str, reduction: str) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([0.5, 1.0, 2.0]))
            self.loss = getattr(nn, kind)(reduction=reduction)

        def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> Any:
            return self.loss(x * self.scale, *rest)

    captured = capture(Scaled(), (torch.rand(4, 3), *COMPOSED[kind]), training=True)
    assert captured.net.loss is captured.net.outputs[0]
