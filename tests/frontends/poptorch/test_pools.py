"""Pooling of every kind: values, places and gradients against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Apply, Lossy, check_against_torch

Function = Callable[..., Any]


def with_places(pooled: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Values and places in one."""
    values, places = pooled
    return torch.cat([values.flatten(), places.flatten().double()])


POOLS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "dilated": (lambda x: functional.max_pool2d(x, 3, 2, 1, dilation=2), (2, 3, 9, 11)),
    "places": (lambda x: with_places(functional.max_pool2d(x, (3, 2), 2, 1, return_indices=True)), (2, 3, 9, 8)),
    "places, dilated, rounded up": (
        lambda x: with_places(functional.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True, return_indices=True)),
        (2, 3, 9, 11),
    ),
    "places 1": (lambda x: with_places(functional.max_pool1d(x, 3, 2, 1, return_indices=True)), (2, 3, 9)),
    "places 3": (lambda x: with_places(functional.max_pool3d(x, 2, return_indices=True)), (1, 2, 4, 4, 5)),
    "one sample": (lambda x: with_places(functional.max_pool2d(x, 3, 2, return_indices=True)), (3, 9, 8)),
    "adaptive": (lambda x: with_places(functional.adaptive_max_pool2d(x, (4, 3), True)), (2, 3, 9, 12)),
    "adaptive, even": (lambda x: with_places(functional.adaptive_max_pool2d(x, (3, 4), True)), (2, 3, 9, 12)),
    "adaptive 3": (lambda x: functional.adaptive_max_pool3d(x, (2, None, 3)), (2, 3, 4, 4, 5)),
    "adaptive average 3": (lambda x: functional.adaptive_avg_pool3d(x, (2, 3, 3)), (2, 3, 4, 4, 5)),
    "average, rounded up": (lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 3, 9, 8)),
    "average, divided": (lambda x: functional.avg_pool2d(x, 3, 2, 1, divisor_override=5), (2, 3, 9, 8)),
    "power": (lambda x: functional.lp_pool2d(x, 2, 3, 2), (2, 3, 9, 8)),
}


@pytest.mark.parametrize(("function", "shape"), POOLS.values(), ids=POOLS)
def test_pool__values_places_and_gradients__equal_pytorch(function: Function, shape: tuple[int, ...]) -> None:
    model = Lossy(Apply(function, shape)).double()
    check_against_torch(model, (torch.randn(shape, dtype=torch.float64),), rtol=1e-6)


def test_pool__equal_elements__give_their_gradient_to_the_first_where_pytorch_does() -> None:
    model = Lossy(Apply(lambda x: functional.adaptive_max_pool1d(x * 0 + 1 + x * x, 2), (1, 1, 5))).double()
    check_against_torch(model, (torch.zeros(1, 1, 5, dtype=torch.float64),))


def test_fractional_pool__of_given_numbers__equals_pytorch() -> None:
    def pooled(x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return with_places(functional.fractional_max_pool2d(x, 3, (4, 5), return_indices=True, _random_samples=numbers))

    x, numbers = torch.randn(2, 3, 9, 12, dtype=torch.float64), torch.rand(2, 3, 2, dtype=torch.float64)
    check_against_torch(Lossy(Apply(pooled, (2, 3, 9, 12))).double(), (x, numbers))


def test_fractional_pool__three_dimensions__equals_pytorch() -> None:
    def pooled(x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return functional.fractional_max_pool3d(x, 2, (2, 3, 4), _random_samples=numbers)

    x, numbers = torch.randn(1, 2, 5, 6, 7, dtype=torch.float64), torch.rand(1, 2, 3, dtype=torch.float64)
    check_against_torch(Lossy(Apply(pooled, (1, 2, 5, 6, 7))).double(), (x, numbers))


def test_fractional_pool__one_sample_with_numbers_of_more__takes_the_first() -> None:
    numbers = torch.rand(2, 2, 3, dtype=torch.float64)
    model = Apply(lambda x: functional.fractional_max_pool3d(x, 2, (2, 3, 4), _random_samples=numbers), (2, 5, 6, 7))
    check_against_torch(Lossy(model).double(), (torch.randn(2, 5, 6, 7, dtype=torch.float64),))


TIED: dict[str, tuple[Function, tuple[int, ...]]] = {
    "overlapping": (lambda x: functional.max_pool2d(x, 3, 2, 1), (2, 4, 9, 8)),
    "rounded up": (lambda x: functional.max_pool2d(x, 3, 2, ceil_mode=True), (2, 4, 10, 9)),
    "dilated": (lambda x: functional.max_pool2d(x, 3, 1, 1, dilation=2), (2, 4, 9, 8)),
    "1": (lambda x: functional.max_pool1d(x, 3, 1, 1), (2, 4, 9)),
    "3": (lambda x: functional.max_pool3d(x, 2, 1), (2, 4, 3, 4, 5)),
    "adaptive, even": (lambda x: functional.adaptive_max_pool2d(x, (3, 4)), (2, 4, 9, 8)),
    "adaptive": (lambda x: functional.adaptive_max_pool2d(x, (4, 3)), (2, 4, 9, 8)),
    "places": (lambda x: with_places(functional.max_pool2d(x, 3, 2, 1, return_indices=True)), (2, 4, 9, 8)),
    "unpooled": (
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),  # type: ignore[misc]
        (2, 4, 8, 6),
    ),
}


@pytest.mark.parametrize(("function", "shape"), TIED.values(), ids=TIED)
def test_max_pool__full_of_ties__gives_each_gradient_to_pytorchs_element(
    function: Function, shape: tuple[int, ...]
) -> None:
    model = Lossy(Apply(function, shape)).double()
    model.body.scale.data.fill_(1.0)  # type: ignore[union-attr, operator]
    x = torch.randint(1, 4, shape, generator=torch.Generator().manual_seed(2)).double()
    check_against_torch(model, (x,), rtol=1e-12)


@pytest.mark.parametrize("field", [(9, 8), (11,)])
def test_max_pool_with_places__not_a_number_and_infinities__is_pytorchs(field: tuple[int, ...]) -> None:
    pool = (functional.max_pool1d, functional.max_pool2d)[len(field) - 1]
    x = torch.full((2, 3, *field), -torch.inf, dtype=torch.float64)
    some = torch.rand(x.shape, generator=torch.Generator().manual_seed(4))
    x[some < 0.1], x[some > 0.9] = torch.nan, 1.0
    check_against_torch(
        Lossy(Apply(lambda v: with_places(pool(v, 3, 2, 1, return_indices=True)), x.shape)).double(), (x,)
    )
