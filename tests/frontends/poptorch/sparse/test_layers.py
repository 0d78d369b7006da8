"""Layers with sparse weights: on the host, on the device, in files, and with wrong input."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from abele import poptorch
from abele.errors import InvalidOptionError, PatternMismatchError, SparseOverflowError, SparsePatternError
from abele.frontends.poptorch.sparse import BlockSparseLinear, SparseLinear
from abele.sparsity import Pattern, banded_pattern, random_pattern

BLOCKS = (1, 4, 8, 16)


class Net(nn.Module):
    """A sparse layer, a dense one, and a loss."""

    def __init__(self, sparse: SparseLinear) -> None:
        super().__init__()
        self.sparse, self.dense = sparse, nn.Linear(sparse.out_features, 5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        scores = self.dense(torch.tanh(self.sparse(x)))
        return scores, nn.functional.cross_entropy(scores.float(), labels)


def layer(block: int, *, dynamic: bool, density: float = 0.3) -> SparseLinear:
    return SparseLinear(32, 48, density=density, block=block, dynamic=dynamic, rows=4 if dynamic else None)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
def test_gradients__on_the_host__are_the_dense_ones_at_the_pattern(block: int, dynamic: bool) -> None:
    sparse = layer(block, dynamic=dynamic).double()
    dense = sparse.to_dense()
    x = torch.randn(3, 7, 32, dtype=torch.float64)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    (sparse(one) ** 3).sum().backward()
    (dense(other) ** 3).sum().backward()
    assert dense.weight.grad is not None
    assert sparse.values.grad is not None
    expected = sparse.pattern.values_of(dense.weight.grad.numpy())
    made = sparse.values.grad.numpy()
    held = made if sparse.plan is None else sparse.plan.decode(sparse.pattern, made)
    np.testing.assert_allclose(held, expected, rtol=1e-12)
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize(
    ("block", "dynamic"),
    [
        pytest.param(b, d, marks=[] if (b, d) in ((1, True), (16, False)) else pytest.mark.slow)
        for b in BLOCKS
        for d in (False, True)
    ],
)
def test_training__on_the_device__is_pytorch(block: int, dynamic: bool) -> None:
    net = Net(layer(block, dynamic=dynamic))
    twin = copy.deepcopy(net)
    training = poptorch.trainingModel(net, None, torch.optim.AdamW(net.parameters(), lr=0.01))
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.01)
    x, labels = torch.randn(7, 32), torch.randint(5, (7,))
    for _ in range(2):
        _, loss = training(x, labels)
        optimizer.zero_grad()
        _, expected = twin(x, labels)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.sparse.values.detach(), twin.sparse.values.detach(), rtol=1e-3, atol=1e-5)
    kinds = {op.kind for op in training._compiled.captured.net.ops} if training._compiled is not None else set()
    assert ("dynamic_sparse_matmul" if dynamic else "sparse_matmul") in kinds


@pytest.mark.parametrize("dynamic", [False, True])
def test_inference__in_half_precision__is_near_float64(dynamic: bool) -> None:
    sparse = layer(16, dynamic=dynamic).half()
    x = torch.randn(9, 32).half()
    made = poptorch.inferenceModel(sparse)(x)
    assert made.dtype == torch.float16
    torch.testing.assert_close(made.double(), copy.deepcopy(sparse).double()(x.double()), rtol=5e-3, atol=5e-3)


def test_layer__with_float32_weights_and_half_activations__computes_in_half() -> None:
    made = poptorch.inferenceModel(layer(4, dynamic=False))(torch.randn(3, 32).half())
    assert made.dtype == torch.float16


@pytest.mark.parametrize("dynamic", [False, True])
def test_layer__with_empty_rows_and_no_numbers__is_pytorch(dynamic: bool) -> None:
    mask = np.zeros((12, 8), bool)
    mask[3, 2] = mask[7, :] = True
    pattern = Pattern.from_dense_mask(mask, (4, 4))
    sparse = SparseLinear(32, 48, pattern=pattern, dynamic=dynamic, rows=2 if dynamic else None)
    x = torch.randn(2, 32)
    made = poptorch.inferenceModel(sparse)(x)
    torch.testing.assert_close(made, sparse(x).detach(), rtol=1e-4, atol=1e-5)
    assert sparse.bias is not None
    torch.testing.assert_close(made[:, :12], sparse.bias.detach()[:12].expand(2, 12))


def test_layer__of_zeros__gives_its_bias() -> None:
    sparse = layer(1, dynamic=True)
    with torch.no_grad():
        sparse.values.zero_()
    assert sparse.bias is not None
    made = poptorch.inferenceModel(sparse)(torch.randn(4, 32))
    torch.testing.assert_close(made, sparse.bias.detach().expand(4, 48))


@pytest.mark.parametrize("block", BLOCKS)
def test_from_dense__keeps_the_largest_blocks_and_comes_back(block: int) -> None:
    dense = nn.Linear(32, 48)
    sparse = SparseLinear.from_dense(dense, 0.25, block)
    weight = dense.weight.detach().numpy()
    back = sparse.to_dense().weight.detach().numpy()
    np.testing.assert_array_equal(sparse.weight.detach(), back)
    np.testing.assert_array_equal(back[back != 0], weight[back != 0])
    sums = np.abs(weight).reshape(48 // block, block, 32 // block, block).sum((1, 3))
    kept = sums[sparse.pattern.mask]
    assert kept.min() >= sums[~sparse.pattern.mask].max()
    np.testing.assert_array_equal(sparse.to_dense().bias.detach(), dense.bias.detach())


@pytest.mark.parametrize("dynamic", [False, True])
def test_state_dict__in_a_new_layer__brings_pattern_and_values(dynamic: bool, tmp_path: Path) -> None:
    one, other = layer(4, dynamic=dynamic), layer(4, dynamic=dynamic)
    assert one.pattern != other.pattern
    torch.save(one.state_dict(), tmp_path / "layer.pt")
    other.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    x = torch.randn(5, 32)
    assert other.pattern == one.pattern
    torch.testing.assert_close(other(x), one(x))
    torch.testing.assert_close(poptorch.inferenceModel(other)(x), one(x).detach(), rtol=1e-4, atol=1e-5)


def test_state_dict__of_another_pattern_in_a_compiled_static_layer__is_refused() -> None:
    sparse, other = layer(4, dynamic=False), layer(4, dynamic=False)
    before = sparse.values.detach().clone()
    poptorch.inferenceModel(sparse)(torch.randn(2, 32))
    with pytest.raises(PatternMismatchError, match="static pattern is part of the program"):
        sparse.load_state_dict(other.state_dict())
    with pytest.raises(PatternMismatchError, match="dynamic=True"):
        sparse.set_pattern(other.pattern)
    torch.testing.assert_close(sparse.values.detach(), before)
    sparse.thaw()
    sparse.set_pattern(other.pattern)
    assert sparse.pattern == other.pattern


def test_state_dict__damaged__names_what_is_missing() -> None:
    sparse = layer(4, dynamic=False)
    for change in ({"columns": torch.tensor([999])}, {"shape": [1]}, {"block": "no"}, {"row_starts": None}):
        state = sparse.state_dict()
        state["_extra_state"] = {**state["_extra_state"], **change}
        with pytest.raises(SparsePatternError):
            layer(4, dynamic=False).load_state_dict(state)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({}, InvalidOptionError, "takes a density or a pattern"),
        ({"density": 0.0}, InvalidOptionError, "above 0 and at most 1, got 0.0"),
        ({"density": 1.5}, InvalidOptionError, "got 1.5"),
        ({"density": 0.5, "block": 2}, InvalidOptionError, "1, 4, 8 or 16, got 2"),
        ({"density": 0.5, "block": 16}, SparsePatternError, "40 columns are no multiple"),
        ({"density": 0.5, "dynamic": True}, InvalidOptionError, "rows=32"),
        ({"density": 0.5, "dynamic": True, "rows": 0}, InvalidOptionError, "rows is a whole number from 1"),
        ({"pattern": random_pattern((40, 48), 0.5)}, PatternMismatchError, "48 outputs x 40 inputs"),
        ({"pattern": random_pattern((48, 40), 0.5, (2, 2))}, InvalidOptionError, "2 x 2"),
        ({"pattern": random_pattern((48, 40), 0.5), "density": 0.5}, InvalidOptionError, "not both"),
    ],
)
def test_layer__of_wrong_arguments__names_them(given: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        SparseLinear(40, 48, **given)


def test_set_pattern__beyond_the_slots__is_refused() -> None:
    sparse = layer(4, dynamic=True)
    with pytest.raises(SparseOverflowError, match="slots for"):
        sparse.set_pattern(random_pattern((48, 32), 0.9, (4, 4)))
    with pytest.raises(PatternMismatchError, match="no pattern for a layer"):
        sparse.set_pattern(random_pattern((48, 32), 0.1))


def test_block_layer__has_blocks_and_refuses_elements() -> None:
    sparse = BlockSparseLinear(64, 32, pattern=banded_pattern((32, 64), 1, (16, 16)))
    assert sparse.pattern.block == (16, 16)
    assert BlockSparseLinear(64, 32, density=0.5).pattern.block == (16, 16)
    with pytest.raises(InvalidOptionError, match="SparseLinear has 1"):
        BlockSparseLinear(64, 32, density=0.5, block=1)
    assert "blocks of 16 x 16" in repr(sparse)


def test_set_pattern__of_one_layer__leaves_others_of_its_pattern() -> None:
    pattern = random_pattern((48, 32), 0.2, (4, 4))
    one, other = (SparseLinear(32, 48, pattern=pattern, dynamic=True, rows=4) for _ in range(2))
    one.set_pattern(random_pattern((48, 32), 0.2, (4, 4), seed=5))
    assert other.plan is not None
    assert other.plan.pattern(other.words.numpy()) == pattern
    x = torch.randn(3, 32)
    made = poptorch.inferenceModel(SparseLinear(32, 48, pattern=pattern, dynamic=True, rows=4))
    torch.testing.assert_close(made(x), made.model(x).detach(), rtol=1e-4, atol=1e-5)


def test_wrapped_model__in_a_file__has_its_layers(tmp_path: Path) -> None:
    net = Net(layer(4, dynamic=True))
    training = poptorch.trainingModel(net, None, poptorch.optim.Adam(net.parameters(), lr=0.01))
    x, labels = torch.randn(4, 32), torch.randint(5, (4,))
    training(x, labels)
    training.save(tmp_path / "model.poptorch")
    _, loss = training(x, labels)
    training.destroy()
    again = poptorch.load(tmp_path / "model.poptorch")
    torch.testing.assert_close(again(x, labels)[1], loss)


def test_report__layers_of_one_shape__are_told_each_by_name_and_again_in_another_compile() -> None:
    pattern = random_pattern((32, 32), 0.3)
    net = torch.nn.Sequential(*(poptorch.sparse.SparseLinear(32, 32, pattern=pattern) for _ in range(2)))
    for _ in range(2):
        model = poptorch.inferenceModel(net, poptorch.Options())
        model(torch.zeros(8, 32))
        rows = list(model.report().sparse_operands.rows())
        assert [row["name"] for row in rows] == ["0.values", "1.values"]
        assert all(row["blocks"] == pattern.num_blocks for row in rows)
