"""Savings by sparsity, as a table."""

from __future__ import annotations

import pytest
import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.sparse import SparseLinear, report


def test_report__of_a_model__counts_weights_and_cycles_of_each_layer() -> None:
    model = torch.nn.Sequential(
        SparseLinear(128, 64, density=1 / 16, block=16, dtype=torch.float16),
        torch.nn.ReLU(),
        SparseLinear(64, 32, density=0.25, dynamic=True, rows=8),
    )
    found = report(model)
    one, other = found.layers
    assert (one.name, one.held, one.size, one.bytes, one.dense_bytes) == ("0", 512, 8192, 1024, 16384)
    assert (other.name, other.dynamic, other.held) == ("2", True, 512)
    assert one.step > one.forward > 0
    assert other.bytes > 4 * other.held
    text = str(found)
    assert "1,024 of 10,240 weights are held (10.0 %)" in text
    assert text.count("\n") == 4


def test_report__of_a_dense_model__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no sparse layer"):
        report(torch.nn.Linear(3, 3))
