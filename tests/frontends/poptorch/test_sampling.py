"""Grids, distances, bilinear forms, and losses over pairs of classes: against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Apply, Lossy, check_against_torch

Function = Callable[..., torch.Tensor]


def check(function: Function, x: torch.Tensor, *rest: torch.Tensor, rtol: float = 1e-6) -> None:
    wide = [v.double() if v.is_floating_point() else v for v in (x, *rest)]
    check_against_torch(Lossy(Apply(function, tuple(x.shape))).double(), tuple(wide), rtol=rtol)


GRIDS = list(product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)))


@pytest.mark.parametrize(("mode", "padding", "corners"), GRIDS, ids=str)
def test_grid_sample__values_and_gradients__equal_pytorch(mode: str, padding: str, corners: bool) -> None:
    torch.manual_seed(1)
    image = torch.randn(2, 3, 5, 6, dtype=torch.float64)

    def sampled(grid: torch.Tensor) -> torch.Tensor:
        pixels = image * grid.mean() if mode == "nearest" else image
        return functional.grid_sample(pixels, grid * 1.3, mode=mode, padding_mode=padding, align_corners=corners)

    # Places are made in f32.
    check(sampled, torch.randn(2, 4, 3, 2), rtol=2e-5)


def test_grid_sample__three_dimensions__equals_pytorch() -> None:
    grid = torch.rand(1, 3, 2, 2, 3, dtype=torch.float64) - 0.5
    check(lambda x: functional.grid_sample(x, grid, align_corners=False), torch.randn(1, 2, 4, 5, 6), rtol=2e-5)


FUNCTIONS: dict[str, Function] = {
    "cdist": lambda x: torch.cdist(x, x[:, :3] * 2 + 1),
    "cdist, product": lambda x: torch.cdist(x, x[:, :3] * 2 + 1, compute_mode="use_mm_for_euclid_dist"),
    "cdist 1": lambda x: torch.cdist(x[0], x[1], p=1),
    "cdist 3": lambda x: torch.cdist(x[0], x[1], p=3.0),
    "cdist infinite": lambda x: torch.cdist(x[0], x[1], p=float("inf")),
    "cdist, equal rows": lambda x: torch.cdist(x[0], x[0]),
    "pdist": lambda x: functional.pdist(x[0]),
    "pdist 3": lambda x: functional.pdist(x[0], p=3.0),
    "bilinear": lambda x: functional.bilinear(x[0], x[1, :, :3], x[:, :, :3].permute(1, 0, 2)[:2, [0, 1, 0, 1, 0]]),
    "addbmm": lambda x: torch.addbmm(x[0, :, :4], x, x.mT, beta=0.5, alpha=2),
    "multilabel margin": lambda x: functional.multilabel_margin_loss(x[0], LABELS, reduction="none"),
    "soft margin": lambda x: functional.soft_margin_loss(x * 9, x.detach().sign()),
    "divergence from zero": lambda x: functional.kl_div(x, functional.relu(x.detach()), reduction="sum"),
}
LABELS = torch.tensor([[3, 0, -1, 1, 2], [0, -1, 4, 4, 4], [4, 3, 2, 1, 0], [-1, 0, 0, 0, 0]])


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_function__values_and_gradients__equal_pytorch(function: Function) -> None:
    torch.manual_seed(2)
    check(function, torch.randn(2, 4, 5))
