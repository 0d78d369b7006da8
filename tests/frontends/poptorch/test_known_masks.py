"""Models whose masks are known, with ``opts.Abele.skipHidden``: results and gradients beside PyTorch's."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from abele import poptorch
from abele.machine import systems

ROWS = 96


class Attention(nn.Module):
    """One layer, with a mask that is written in one of several ways."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask = mask
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)

    def forward(self, x: Tensor, wanted: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        q, k, v = self.qkv(x).view(len(x), ROWS, 3, 2, 16).permute(2, 0, 3, 1, 4)
        y: Tensor = self.out(self.attention(q, k, v).transpose(1, 2).reshape(x.shape))
        if wanted is None:
            return y
        return y, poptorch.identity_loss(functional.mse_loss(y, wanted), reduction="none")

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ids = torch.arange(ROWS) // 32
        if self.mask == "ids":
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=ids[:, None] == ids)
        if self.mask == "window":
            block = create_block_mask(lambda b, h, i, j: (i - j).abs() < 8, None, None, ROWS, ROWS, device="cpu")
            return flex_attention(q, k, v, block_mask=block)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if self.mask == "filled":
            return torch.softmax(scores.masked_fill(ids[:, None] != ids, -math.inf), -1) @ v
        added = torch.zeros(ROWS, ROWS).masked_fill(ids[:, None] != ids, -math.inf)
        return torch.softmax(scores + added, -1) @ v


def options(folder: Path | None = None) -> poptorch.Options:
    opts = poptorch.Options()
    opts.Abele.system(systems.bow_2000().evolve(ipu={"num_tiles": 12}))
    opts.Abele.skipHidden().allowOutOfMemory()
    if folder is not None:
        opts.Abele.dumpPasses(folder)
    return opts


def was_cut(folder: Path) -> bool:
    return any(folder.rglob("*-skip-hidden.net"))


@pytest.fixture(autouse=True)
def quiet() -> None:
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")


@pytest.mark.parametrize(
    "mask", ["ids", *(pytest.param(m, marks=pytest.mark.slow) for m in ("window", "filled", "added"))]
)
def test_skip_hidden__known_mask__is_cut_and_as_pytorch(mask: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Attention(mask), torch.randn(1, ROWS, 32)
    with torch.no_grad():
        wanted = model(x)
    got = poptorch.inferenceModel(model, options(tmp_path))(x)
    assert was_cut(tmp_path)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_skip_hidden__training__has_the_weights_of_pytorch(mode: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x, wanted = Attention("ids"), torch.randn(2, ROWS, 32), torch.randn(2, ROWS, 32)
    reference = Attention("ids")
    reference.load_state_dict(model.state_dict())
    opts = options(tmp_path)
    opts.Abele.mode(mode)
    trained = poptorch.trainingModel(model, opts, optimizer=torch.optim.SGD(model.parameters(), lr=0.5))
    there = torch.optim.SGD(reference.parameters(), lr=0.5)
    for _ in range(2):
        trained(x, wanted)
        there.zero_grad()
        reference(x, wanted)[1].backward()
        there.step()
    assert was_cut(tmp_path)
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_skip_hidden__mask_of_an_input__computes_all(tmp_path: Path) -> None:
    class Packed(Attention):
        def forward(self, x: Tensor, ids: Tensor) -> Tensor:  # type: ignore[override]
            q, k, v = self.qkv(x).view(len(x), ROWS, 3, 2, 16).permute(2, 0, 3, 1, 4)
            same = ids[:, None, :, None] == ids[:, None, None, :]
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=same)

    torch.manual_seed(0)
    model, x, ids = Packed(""), torch.randn(1, ROWS, 32), (torch.arange(ROWS) // 32)[None].int()
    got = poptorch.inferenceModel(model, options(tmp_path))(x, ids)
    assert not was_cut(tmp_path)
    torch.testing.assert_close(got, model(x, ids), rtol=1e-4, atol=1e-5)
