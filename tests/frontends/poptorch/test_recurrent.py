"""Recurrent layers and cells: captured, differentiated and trained."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from poptorch_kit import Lossy, check_against_torch
from torch import nn

from abele import poptorch

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
    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(11, 8), kind(8, 12, batch_first=True, **options)
        self.tags = nn.Linear(24 if options.get("bidirectional") else 12, 4)

    def forward(self, words: torch.Tensor, tags: torch.Tensor | None = None) -> Any:
        scores = self.tags(self.lstm(self.words(words))[0])
        return scores if tags is None else nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())


TAGGERS: list[dict[str, Any]] = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"kind": nn.GRU, "bidirectional": True},
    {"kind": nn.RNN, "bidirectional": True},
]


@pytest.mark.parametrize(
    "options", [pytest.param(o, marks=[pytest.mark.slow] * ("num_layers" not in o), id=str(o)) for o in TAGGERS]
)
def test_recurrent_tagger__trained_on_the_device__keeps_step_with_pytorch(options: dict[str, Any]) -> None:
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


OTHERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "gru": (nn.GRU(5, 6), (4, 3, 5)),
    "deep gru both ways": (nn.GRU(5, 6, num_layers=2, bidirectional=True, batch_first=True), (3, 4, 5)),
    "gru without bias": (nn.GRU(5, 6, bias=False), (4, 3, 5)),
    "gru of one sequence": (nn.GRU(5, 6), (4, 5)),
    "plain": (nn.RNN(5, 6, num_layers=2), (4, 3, 5)),
    "plain both ways, relu": (nn.RNN(5, 6, bidirectional=True, nonlinearity="relu"), (4, 3, 5)),
    "projections": (nn.LSTM(5, 6, proj_size=3), (4, 3, 5)),
    "deep projections both ways": (nn.LSTM(5, 6, 2, proj_size=3, bidirectional=True, bias=False), (4, 3, 5)),
    "lstm cell": (nn.LSTMCell(5, 6), (3, 5)),
    "gru cell": (nn.GRUCell(5, 6), (3, 5)),
    "gru cell of one sample": (nn.GRUCell(5, 6), (5,)),
    "plain cell": (nn.RNNCell(5, 6, bias=False, nonlinearity="relu"), (3, 5)),
}


class AllResults(nn.Module):
    """The results of a layer in one row."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        leaves = torch.utils._pytree.tree_leaves(self.layer(*args))
        return torch.cat([part.flatten() * (n + 1) for n, part in enumerate(leaves)])


@pytest.mark.parametrize(("layer", "shape"), OTHERS.values(), ids=OTHERS)
def test_recurrent_layer__values_and_gradients__equal_pytorch(layer: nn.Module, shape: tuple[int, ...]) -> None:
    model = AllResults(layer)
    check_against_torch(Lossy(model).double(), (torch.randn(shape, dtype=torch.float64),))


def test_gru__states_given__equals_pytorch() -> None:
    args = torch.randn(4, 3, 5, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    check_against_torch(Lossy(AllResults(nn.GRU(5, 6, num_layers=2))).double(), args)
