"""Cross entropy and negative log-likelihood in all their forms: values and gradients against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Iterable
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


class Losses(nn.Module):
    """Losses of scaled scores, reduced in every way: one of each kind, with a scale of its own."""

    def __init__(self, shape: tuple[int, ...], kinds: Iterable[dict[str, Any]], *, log_softmax: bool = False) -> None:
        super().__init__()
        self.kinds = list(kinds)
        scale = torch.linspace(0.5, 1.5, torch.Size(shape).numel()).reshape(shape)
        self.scales = nn.ParameterList(nn.Parameter(scale.clone()) for _ in self.kinds)
        self.dim = 1 if len(shape) > 1 else 0
        self.register_buffer("weight", torch.linspace(0.5, 2.0, shape[self.dim]))
        self.log_softmax = log_softmax

    def forward(self, x: torch.Tensor, *targets: torch.Tensor) -> Any:
        made = [self._loss(x * s, t, k) for s, t, k in zip(self.scales, targets, self.kinds, strict=True)]
        return *made, identity_loss(sum(made), "none")

    def _loss(self, scores: torch.Tensor, target: torch.Tensor, kind: dict[str, Any]) -> Any:
        settings = {k: v for k, v in kind.items() if k not in ("weighted", "ignored")}
        weight = self.weight if kind.get("weighted") else None
        if self.log_softmax:
            scores = functional.log_softmax(scores, self.dim)
        losses = functional.nll_loss if self.log_softmax else functional.cross_entropy
        terms = [losses(scores, target, weight=weight, reduction=r, **settings).sum() for r in REDUCTIONS]
        return terms[0] * 2 + terms[1] * 3 + terms[2]


def labels_of(shape: tuple[int, ...], kind: dict[str, Any]) -> torch.Tensor:
    classes = shape[1] if len(shape) > 1 else shape[0]
    labels = torch.randint(0, classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if "ignored" in kind and labels.dim():
        labels.view(-1)[0] = kind["ignored"]
    return labels


def check_labels(shape: str, kinds: dict[str, dict[str, Any]], *, log_softmax: bool) -> None:
    """Hold losses of labels of a shape against PyTorch: of every kind, or of the plain one alone for rare shapes."""
    chosen = list(kinds.values()) if shape in ("one_sample", "batch", "image") else [kinds["plain"]]
    sizes = SHAPES[shape]
    targets = (labels_of(sizes, kind) for kind in chosen)
    check_against_torch(Losses(sizes, chosen, log_softmax=log_softmax), (torch.randn(sizes), *targets), rtol=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy__of_labels__equals_pytorch(shape: str) -> None:
    torch.manual_seed(1)
    check_labels(shape, LABELS | SMOOTHED, log_softmax=False)


@pytest.mark.parametrize("shape", SHAPES)
def test_nll_loss__equals_pytorch(shape: str) -> None:
    torch.manual_seed(2)
    check_labels(shape, LABELS, log_softmax=True)


@pytest.mark.parametrize("shape", ["one_sample", "batch", "image"])
def test_cross_entropy__of_probabilities__equals_pytorch(shape: str) -> None:
    torch.manual_seed(3)
    sizes, kinds = SHAPES[shape], [{}, {"weighted": True}, {"label_smoothing": 0.2}]
    targets = (torch.softmax(torch.randn(sizes), 1 if len(sizes) > 1 else 0) for _ in kinds)
    check_against_torch(Losses(sizes, kinds), (torch.randn(sizes), *targets), rtol=1e-6)


def test_cross_entropy__every_label_ignored__has_no_gradient_as_in_pytorch() -> None:
    captured = check_against_torch(Losses((2, 4), [{}]), (torch.randn(2, 4), torch.tensor([-100, -100])))
    assert captured.net.loss is not None


COMPOSED: dict[str, tuple[torch.Tensor, ...]] = {
    "GaussianNLLLoss": (torch.rand(4, 3), torch.rand(4, 3) + 0.5),
    "MultiLabelSoftMarginLoss": (torch.eye(4, 3),),
    "TripletMarginWithDistanceLoss": (torch.rand(4, 3), torch.rand(4, 3)),
}


@pytest.mark.parametrize(
    ("kind", "reduction"),
    [
        pytest.param(kind, reduction, marks=[] if n == m else [pytest.mark.slow])
        for n, kind in enumerate(COMPOSED)
        for m, reduction in enumerate(REDUCTIONS)
    ],
)
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
