"""Indexing, sorting and scanning spread their work over the tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from abele import poptorch

MOST_UNEVEN = 2.5
"""What the slowest tile of each step may compute, summed over steps, in means of all tiles. Rows that are merged in
pairs leave half of the tiles idle in the last rounds; work that lies on one tile has a thousand times the mean."""

RNG = torch.Generator().manual_seed(0)


def reals(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=RNG)


def places(bound: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, bound, shape, generator=RNG)


class Called(nn.Module):
    """A function of a weight, where there is one, and of inputs."""

    def __init__(self, function: Callable[..., Any], weight: torch.Tensor | None = None) -> None:
        super().__init__()
        self.function = function
        self.weight = None if weight is None else nn.Parameter(weight)

    def forward(self, *args: torch.Tensor) -> Any:
        if self.weight is None:
            return self.function(*args)
        result = self.function(self.weight, *args)
        return result, poptorch.identity_loss(result.square().sum(), reduction="sum")


pytestmark = pytest.mark.usefixtures("whole_machine")

CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "rows": (lambda x, i: x.index_select(0, i), lambda: (reals(5000, 64), places(5000, 4096))),
    "columns": (lambda x, i: x.index_select(1, i), lambda: (reals(2048, 300), places(300, 200))),
    "gather": (lambda x, i: x.gather(1, i), lambda: (reals(2048, 128), places(128, 2048, 128))),
    "two indices": (lambda x, i, j: x[i, :, j], lambda: (reals(128, 16, 128), places(128, 8192), places(128, 8192))),
    "one_hot": (lambda i: functional.one_hot(i, 500), lambda: (places(500, 1024),)),
    "scatter_add": (
        lambda x, i: torch.zeros(2048, 128).scatter_add(1, i, x),
        lambda: (reals(2048, 128), places(128, 2048, 128)),
    ),
    "index_add": (
        lambda x, i: torch.zeros(5000, 16).index_add(0, i, x),
        lambda: (reals(40_000, 16), places(5000, 40_000)),
    ),
    "index_put": (
        lambda x, i, v: x.index_put((i,), v),
        lambda: (reals(5000, 32), places(5000, 2048), reals(2048, 32)),
    ),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 1.0), lambda: (reals(512, 512),)),
    "sort": (lambda x: x.sort(1), lambda: (reals(2900, 60),)),
    "sort of one row": (lambda x: x.sort(), lambda: (reals(90_000),)),
    "topk": (lambda x: x.topk(10, 1), lambda: (reals(2900, 60),)),
    "topk of long rows": (lambda x: x.topk(10, 1), lambda: (reals(16, 20_000),)),
    "cumsum": (lambda x: x.cumsum(1), lambda: (reals(64, 4096),)),
    "cumsum of one row": (lambda x: x.cumsum(0), lambda: (reals(300_000),)),
    "cummax of columns": (lambda x: x.cummax(0), lambda: (reals(500, 256),)),
    "searchsorted": (torch.searchsorted, lambda: (reals(1000).sort()[0], reals(100_000))),
    "histc": (lambda x: torch.histc(x, 50, -3.0, 3.0), lambda: (reals(300_000),)),
    "randperm": (lambda x: x + torch.randperm(60_000), lambda: (places(5, 60_000),)),
}
TRAINED: dict[str, tuple[tuple[int, ...], Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "embedding": ((5000, 64), lambda w, i: functional.embedding(i, w), lambda: (places(5000, 8192),)),
    "embedding_bag": (
        (5000, 64),
        lambda w, i: functional.embedding_bag(i.reshape(1024, 8), w),
        lambda: (places(5000, 8192),),
    ),
    "gather": ((2048, 128), lambda w, i: w.gather(1, i), lambda: (places(128, 2048, 64),)),
    "columns": ((2048, 300), lambda w, i: w.index_select(1, i), lambda: (places(300, 200),)),
}


def _unevenness(model: Any, args: tuple[torch.Tensor, ...]) -> float:
    model.compile(*args)
    report = model.report()
    assert np.count_nonzero(report.compute_cycles_by_tile) > 1000
    return float(1 / report.tile_balance)


REPEATED = ["columns", "sort of one row", "topk", "cumsum", "cummax of columns", "randperm", "embedding_bag"]
"""Cases whose kernels others have too, in another shape."""


def once(cases: Iterable[str]) -> list[Any]:
    """Names of cases as parameters; those that repeat others are slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in REPEATED else []) for name in cases]


@pytest.mark.parametrize("name", once(CASES))
def test_indexing__real_size__is_even_on_tiles(name: str) -> None:
    function, args = CASES[name]
    assert _unevenness(poptorch.inferenceModel(Called(function)), args()) < MOST_UNEVEN


@pytest.mark.parametrize("name", once(TRAINED))
def test_indexing__trained_table__is_even_on_tiles(name: str) -> None:
    shape, function, args = TRAINED[name]
    module = Called(function, reals(*shape)).train()
    optimizer = poptorch.optim.SGD(module.parameters(), lr=0.1)
    assert _unevenness(poptorch.trainingModel(module, optimizer=optimizer), args()) < MOST_UNEVEN
