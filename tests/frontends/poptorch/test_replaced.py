"""Functions of PyTorch that look at values, or change what they do not say: captured all the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Apply, Lossy, check_against_torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from abele import poptorch
from abele.errors import UnsupportedOpError

TARGETS = torch.tensor([[1, 2, 2, 3], [4, 1, 1, 0]])
LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "mean": lambda x: functional.ctc_loss(x, TARGETS, [9, 7], [4, 3]),
    "each": lambda x: functional.ctc_loss(x, TARGETS, (9, 9), (4, 2), reduction="none"),
    "in one row": lambda x: functional.ctc_loss(x, TARGETS.flatten()[:7], [9, 9], [4, 3], reduction="sum"),
    "another blank": lambda x: functional.ctc_loss(x, TARGETS % 4, torch.tensor([9, 8]), torch.tensor([3, 4]), 4),
    "impossible": lambda x: functional.ctc_loss(x, TARGETS, [9, 2], [4, 3], zero_infinity=True),
    "one sequence": lambda x: functional.ctc_loss(x[:, 0], TARGETS[0], torch.tensor(9), torch.tensor(4)),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_ctc_loss__values_and_gradients__equal_pytorch(loss: Callable[..., torch.Tensor]) -> None:
    model = Lossy(Apply(lambda x: loss(x.log_softmax(2)), (9, 2, 5))).double()
    check_against_torch(model, (torch.randn(9, 2, 5, dtype=torch.float64),))


def test_ctc_loss__unmarked__trains_in_step_with_pytorch() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores, self.loss = nn.Linear(4, 5), nn.CTCLoss()

        def forward(self, x: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            steps = torch.tensor([9, 9])
            loss: torch.Tensor = self.loss(self.scores(x).log_softmax(2), targets, steps, lengths)
            return loss

    torch.manual_seed(0)
    ours = Net()
    theirs = copy.deepcopy(ours)
    args = torch.randn(9, 2, 4), TARGETS, torch.tensor([4, 3])
    training = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(2):
        loss = training(*args)
        optimizer.zero_grad()
        wanted = theirs(*args)
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(loss.detach(), wanted.detach(), rtol=1e-4, atol=1e-5)


def test_ctc_loss__targets_in_one_row_whose_lengths_only_the_device_knows__is_refused() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return functional.ctc_loss(x, targets, torch.tensor([9, 9]), lengths)

    args = torch.randn(9, 2, 5).log_softmax(2), TARGETS.flatten()[:7], torch.tensor([4, 3])
    with pytest.raises(UnsupportedOpError, match="targets in one row") as caught:
        poptorch.inferenceModel(Net())(*args)
    assert "[batch, labels]" in str(caught.value)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gaussian_nll_loss__values_and_gradients__equal_pytorch(reduction: str) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        spread = x[2].abs() * 0.5 - 0.1 * x[2].abs().detach()
        return functional.gaussian_nll_loss(x[0], x[1], spread, full=True, eps=0.05, reduction=reduction)

    check_against_torch(Lossy(Apply(loss, (3, 4, 5))).double(), (torch.randn(3, 4, 5, dtype=torch.float64),))


QUANTISED = {
    "numbers": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 3, 0, 7),
    "tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.5), torch.tensor(3, dtype=torch.int32), 0, 7
    ),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.tensor([0.5, 0.25, 1.0]), torch.tensor([0, 1, -2], dtype=torch.int32), 1, -4, 3
    ),
}


@pytest.mark.parametrize("quantise", QUANTISED.values(), ids=QUANTISED)
def test_fake_quantize__values_and_gradients__equal_pytorch(quantise: Callable[[torch.Tensor], torch.Tensor]) -> None:
    ours, x = Lossy(Apply(quantise, (4, 3))), torch.arange(-6.0, 6.0).reshape(4, 3) / 2
    assert isinstance(ours.body, Apply)
    with torch.no_grad():
        ours.body.scale.fill_(1.0)  # Halves are among the values.
    theirs = copy.deepcopy(ours)
    training = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.1))
    expected, loss = theirs(x)
    loss.backward()
    torch.testing.assert_close(training(x)[0], expected.detach())
    training.copyWeightsToHost()
    assert isinstance(theirs.body, Apply)
    assert theirs.body.scale.grad is not None
    stepped = theirs.body.scale.detach() - 0.1 * theirs.body.scale.grad
    torch.testing.assert_close(ours.body.scale.detach(), stepped)


NORMS: dict[str, Any] = {
    "instance norm": lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    "plain averages": lambda: nn.BatchNorm2d(3, momentum=None),
}


@pytest.mark.parametrize("make", NORMS.values(), ids=NORMS)
def test_norm__running_statistics__are_those_of_pytorch(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    ours = Lossy(make())
    theirs = copy.deepcopy(ours)
    training = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.0))
    for number in range(3):
        x = torch.randn(4, 3, 5, 4) * (number + 1) + number
        outputs, _ = training(x)
        torch.testing.assert_close(outputs, theirs(x)[0].detach(), rtol=1e-4, atol=1e-5)
    training.copyWeightsToHost()
    for name, buffer in theirs.named_buffers():
        torch.testing.assert_close(dict(ours.named_buffers())[name].to(buffer.dtype), buffer, rtol=1e-4, atol=1e-5)


class Packed(nn.Module):
    """A recurrent layer over packed sequences of known lengths."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layer = kind(5, 6, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, [2, 4, 3], batch_first=True, enforce_sorted=False)
        outputs, states = self.layer(packed)
        padded, _ = pad_packed_sequence(outputs, batch_first=True)
        leaves = torch.utils._pytree.tree_leaves((padded, states))
        return torch.cat([part.flatten() * (n + 1) for n, part in enumerate(leaves)])


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "gru": lambda: Packed(nn.GRU),
    "deep lstm both ways": lambda: Packed(nn.LSTM, num_layers=2, bidirectional=True),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_packed_sequences__values_and_gradients__equal_pytorch(make: Callable[[], nn.Module]) -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    check_against_torch(Lossy(make()).double(), (x,), rtol=1e-6)
