"""LSTM layers: captured, differentiated, trained and refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from poptorch_kit import Lossy, check_against_torch
from torch import nn

from abele import poptorch
from abele.errors import UnsupportedOpError

LAYERS: dict[str, dict[str, Any]] = {
    "one": {},
    "two": {"num_layers": 2},
    "both ways": {"bidirectional": True},
    "deep both ways": {"num_layers": 3, "bidirectional": True, "batch_first": True},
    "batch first": {"batch_first": True},
    "without bias": {"bias": False},
}


class Layer(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, **options)

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> torch.Tensor:
        out, (h, c) = self.lstm(x, states or None)
        return torch.cat([out.flatten(), h.flatten() * 2, c.flatten() * 3])


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_lstm__values_and_gradients__equal_pytorch(options: dict[str, Any]) -> None:
    check_against_torch(Lossy(Layer(**options)).double(), (torch.randn(4, 3, 5, dtype=torch.float64),))


def test_lstm__one_sequence_with_states__equals_pytorch() -> None:
    x, h, c = (torch.randn(*s, dtype=torch.float64) for s in ((7, 5), (2, 6), (2, 6)))
    check_against_torch(Lossy(Layer(num_layers=2)).double(), (x, h, c))


class Tagger(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(11, 8), nn.LSTM(8, 12, batch_first=True, **options)
        self.tags = nn.Linear(24 if options.get("bidirectional") else 12, 4)

    def forward(self, words: torch.Tensor, tags: torch.Tensor | None = None) -> Any:
        scores = self.tags(self.lstm(self.words(words))[0])
        return scores if tags is None else nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())


@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
def test_lstm__trained_on_the_device__keeps_step_with_pytorch(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    ours = Tagger(**options)
    theirs = copy.deepcopy(ours)
    words, tags = torch.randint(0, 11, (3, 9)), torch.randint(0, 4, (3, 9))
    training = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.5))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    for _ in range(3):
        loss = training(words, tags)
        optimizer.zero_grad()
        wanted = theirs(words, tags)
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(loss.detach(), wanted.detach(), rtol=1e-4, atol=1e-5)
    training.copyWeightsToHost()
    scores = poptorch.inferenceModel(ours.eval())(words)
    torch.testing.assert_close(scores, theirs(words).detach(), rtol=1e-3, atol=1e-4)


def test_lstm__projections__are_refused_with_a_remedy() -> None:
    model = nn.LSTM(5, 6, proj_size=3)
    with pytest.raises(UnsupportedOpError, match="proj_size"):
        poptorch.inferenceModel(model)(torch.randn(4, 3, 5))
