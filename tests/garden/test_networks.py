"""The demos' networks: shapes and parameter counts as published."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele.garden.networks import BraggNetwork, DigitsNetwork

pytestmark = pytest.mark.torch


def test_digits_network__batch__gives_log_probabilities() -> None:
    output = DigitsNetwork().eval()(torch.rand(3, 1, 8, 8))
    assert output.shape == (3, 10)
    assert torch.allclose(output.exp().sum(dim=1), torch.ones(3))


def test_bragg_network__batch__gives_centres_from_200_features() -> None:
    network = BraggNetwork()
    assert network(torch.rand(5, 1, 11, 11)).shape == (5, 2)
    assert network.dense[0].in_features == 200
    assert [layer.out_features for layer in network.dense] == [64, 32, 16, 8]


def test_bragg_network__non_local_block__attends_over_81_pixels() -> None:
    block = BraggNetwork().non_local
    x = torch.rand(2, 64, 9, 9)
    assert block(x).shape == x.shape
    with torch.no_grad():
        block.out.weight.zero_()
        block.out.bias.zero_()
        assert torch.equal(block(x), x)
