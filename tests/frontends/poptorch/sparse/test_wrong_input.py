"""Layers, methods of training and mixtures that are given what makes no sense: errors name what, and the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from abele import lowrank, poptorch
from abele.errors import AbeleError, TensorError, TypeMismatchError
from abele.poptorch import sparse
from abele.sparsity import banded_pattern

WRONG = [-1, True, 1.5, "x", None, float("nan"), [1]]


def _layer(**more: Any) -> sparse.SparseLinear:
    return sparse.SparseLinear(16, 16, **{"density": 0.5, **more})


@pytest.mark.parametrize("wrong", WRONG)
def test_layers__wrong_sizes__are_typed_errors(wrong: Any) -> None:
    pattern, model = banded_pattern((64, 64), 1, (16, 16)), torch.nn.Sequential(_layer(dynamic=True, rows=8))
    calls: dict[str, Callable[[], object]] = {
        "in_features": lambda: sparse.SparseLinear(wrong, 16, density=0.5),
        "density": lambda: _layer(density=wrong if wrong is not True else 2),
        "block": lambda: _layer(block=wrong),
        "rows": lambda: _layer(dynamic=True, rows=wrong),
        "dtype": lambda: _layer(dtype=wrong if wrong is not None else "f2"),
        "dense": lambda: sparse.SparseLinear.from_dense(wrong, 0.5),
        "heads": lambda: sparse.BlockSparseSelfAttention(32, wrong, pattern=pattern),
        "patterns": lambda: sparse.BlockSparseSelfAttention(32, 2, pattern=wrong),
        "interval": lambda: sparse.RigL(model, end=10, interval=wrong),
        "start": lambda: sparse.SET(model, end=10, start=wrong),
        "fraction": lambda: sparse.SET(model, end=10, fraction=wrong if wrong != 1.5 else "0"),
        "model": lambda: sparse.report(wrong),
        "noise": lambda: poptorch.MixtureOfExperts(16, 32, 4, noise=wrong if wrong != 1.5 else -2),
        "shared": lambda: poptorch.MixtureOfExperts(16, 32, 4, shared_hidden=wrong),
    }
    for what, call in calls.items():
        with pytest.raises(AbeleError):
            assert what == call()


def test_layer__input_of_whole_numbers__is_refused() -> None:
    with pytest.raises(TypeMismatchError, match=r"floating point, got torch\.int32"):
        _layer()(torch.ones(4, 16, dtype=torch.int32))
    with pytest.raises(AbeleError, match=r"takes \[..., 16\], got \[4, 15\]"):
        _layer()(torch.ones(4, 15))


def test_layer__values_of_another_shape_or_not_finite__are_refused() -> None:
    layer = _layer()
    with pytest.raises(TensorError, match=r"are \[128, 1, 1\], got \[3\]"):
        layer.set_pattern(layer.pattern, torch.ones(3))
    dense = torch.nn.Linear(16, 16)
    with torch.no_grad():
        dense.weight[3, 5] = torch.nan
    with pytest.raises(TensorError, match="1 of 256 weights are not finite"):
        sparse.SparseLinear.from_dense(dense, 0.5)


def test_low_rank__complex_vectors_and_other_matrices__are_refused() -> None:
    points = np.linspace(0, 1, 32)
    matrix = lowrank.compress(1 / (1 + abs(points[:, None] - points)), 16, tolerance=1e-3)
    with lowrank.LowRankProduct(matrix) as product:
        with pytest.raises(TypeMismatchError, match="real numbers, got complex128"):
            product(np.ones(32) * 1j)
        with pytest.raises(TypeMismatchError, match="what compress returns"):
            product.update(None)  # type: ignore[arg-type]
