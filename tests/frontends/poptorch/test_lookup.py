"""Embeddings and indexing by tensors: captured, trained, and refused where indices are wrong."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as functional
from poptorch_kit import Apply, Lossy, check_against_torch
from torch import nn

from abele import poptorch
from abele.errors import TensorIndexError

INDICES = torch.tensor([[3, 0, 3, 5], [1, 1, 6, 3]])


class Embedded(nn.Module):
    def __init__(self, padding: int | None = None, *, tied: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 12, padding_idx=padding)
        self.head = nn.Linear(12, 7, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.words(index)))


class Trained(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, index: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.body(index)
        return out, functional.cross_entropy(out.flatten(0, -2), target.flatten())


@pytest.mark.parametrize("padding", [None, 0, 3, -1])
@pytest.mark.parametrize("index", [INDICES, INDICES.to(torch.int32), INDICES[0], INDICES[0, 1]], ids=str)
def test_embedding__values_and_gradients__equal_pytorch(padding: int | None, index: torch.Tensor) -> None:
    check_against_torch(Lossy(Embedded(padding)).double(), (index,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, i],
        lambda x, i: x[..., i],
        lambda x, i: torch.index_select(x, -2, i.flatten()),
        lambda x, i: x[i][:, 0].sum(0)[0] * x[0, i],
        lambda x, i: functional.embedding(i, x[..., 0]),
    ],
)
def test_index_by_a_tensor__values_and_gradients__equal_pytorch(function: object) -> None:
    x = torch.randn(7, 7, 7, dtype=torch.float64)
    check_against_torch(Lossy(Apply(function, (7, 7, 7))).double(), (x, INDICES))  # type: ignore[arg-type]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_embedding__trained_on_the_device__keeps_step_with_pytorch(tied: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours = Trained(Embedded(2, tied=tied)).to(dtype)
    theirs = copy.deepcopy(ours).float()
    training = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for _ in range(3):
        _, loss = training(INDICES, INDICES)
        optimizer.zero_grad()
        _, wanted = theirs(INDICES, INDICES)
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(loss.float(), wanted.detach(), rtol=1e-2 if dtype == torch.float16 else 1e-5, atol=0)


@pytest.mark.parametrize("wrong", [7, -1])
def test_embedding__index_outside_the_table__is_refused_before_the_run(wrong: int) -> None:
    model = poptorch.inferenceModel(Embedded())
    with pytest.raises(
        TensorIndexError, match=f"index {wrong} of .*out of bounds: there are 7(.|\n)*indices of 0 to 6"
    ):
        model(torch.tensor([[0, wrong]]))


def test_embedding__gradients_by_frequency__are_divided_by_counts() -> None:
    embedded = Embedded()
    embedded.words.scale_grad_by_freq = True
    check_against_torch(Lossy(embedded).double(), (INDICES,))


class KeepNodes(torch.nn.Module):
    """Rows chosen by a mask that the model makes; PyTorch learns their number only from the other addend."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[0], dtype=torch.bool)
        return x + x[mask]


def test_index__mask_that_the_model_makes__is_a_choice_of_known_rows() -> None:
    x = torch.randn(6, 3)
    assert torch.equal(poptorch.inferenceModel(KeepNodes())(x), 2 * x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8, torch.int64])
def test_division_by_powers_of_two__of_integers__rounds_down_as_pytorch(dtype: torch.dtype) -> None:
    class Divided(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x // 4, x % 8, x // 1, x % 1, torch.div(x, 64, rounding_mode="floor"), x // 3, x % 5

    x = torch.tensor([-127, -65, -64, -9, -8, -7, -1, 0, 1, 5, 7, 8, 63, 64, 100, 127]).to(dtype)
    model = Divided()
    for got, want in zip(poptorch.inferenceModel(model)(x), model(x), strict=True):
        assert got.tolist() == want.tolist()
