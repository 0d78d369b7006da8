"""Train BERT with a quarter of its attention: blocks of 16 × 16 scores, beside the same network with all of them.

Text of Python's standard library is cut into rows of characters, some of which are hidden and guessed. Each block of 16
characters sees its neighbours, the first block, and some at random, as in BigBird; the first sees all. Queries and keys
are turned by their places (RoPE), so that layers find neighbouring characters early. Both networks begin with the same
weights and are trained on the same rows; the loss is that of rows of other files, beside that of guesses by how
frequent each character is.

    python examples/poptorch/block_attention.py
    python examples/poptorch/block_attention.py --mini      # BERT-mini: 4 layers of width 256, rows of 512
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from abele import poptorch
from abele.poptorch import sparse
from abele.sparsity import Pattern, bigbird_pattern

BLOCK = 16
DENSITY = 0.25
LETTERS = 128
HIDDEN = 127
"""A code that stands for a hidden character; no text has it."""


class Sizes(NamedTuple):
    """Sizes of the network and of its training."""

    tokens: int = 256
    width: int = 64
    layers: int = 2
    heads: int = 2
    batch: int = 4
    steps: int = 100
    rate: float = 3e-3
    files: int = 40
    tests: int = 4


SMALL = Sizes()
MINI = Sizes(tokens=512, width=256, layers=4, heads=4, batch=2, steps=1200, rate=1e-3, files=1000, tests=32)


def quarter(tokens: int) -> Pattern:
    """BigBird's pattern with as many random blocks as a quarter of all leaves room for."""

    def drawn(count: int) -> Pattern:
        shape = (tokens, tokens)
        around = 1 if tokens > 16 * BLOCK else 0
        return bigbird_pattern(shape, (BLOCK, BLOCK), window=around, num_global=1, num_random=count, seed=1)

    return max((p for count in range(8) if (p := drawn(count)).density <= DENSITY), key=lambda p: p.num_blocks)


def turned(heads: torch.Tensor) -> torch.Tensor:
    """Queries or keys [batch, heads, tokens, width] with pairs of elements turned by angles that grow with the place.

    Source: Su et al., RoFormer, 2021, section 3.2.2.
    """
    tokens, half = heads.shape[-2], heads.shape[-1] // 2
    angles = torch.arange(tokens)[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    one, two = heads.chunk(2, -1)
    sine, cosine = angles.sin(), angles.cos()
    return torch.cat((one * cosine - two * sine, one * sine + two * cosine), -1)


class Encoder(nn.Module):
    """A layer of attention, of all scores or of a pattern's, and one of its own."""

    def __init__(self, sizes: Sizes, pattern: Pattern | None) -> None:
        super().__init__()
        width = sizes.width
        self.heads, self.pattern = sizes.heads, pattern
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, width] to the same."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        q, k = turned(q), turned(k)
        if self.pattern is None:
            seen = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            seen = sparse.block_sparse_attention(q, k, v, self.pattern)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        made: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return made


class Bert(nn.Module):
    """An encoder that guesses hidden characters; gives the mean loss."""

    def __init__(self, sizes: Sizes, pattern: Pattern | None) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, sizes.width)
        self.norm = nn.LayerNorm(sizes.width)
        self.layers = nn.Sequential(*(Encoder(sizes, pattern) for _ in range(sizes.layers)))
        self.head = nn.Linear(sizes.width, LETTERS)

    def forward(self, ids: torch.Tensor, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of the characters at ``hidden`` [batch, guesses]."""
        x = self.norm(self.layers(self.letters(ids)))
        guessed = x.gather(1, hidden[..., None].expand(-1, -1, x.shape[-1]))
        return nn.functional.cross_entropy(self.head(guessed).flatten(0, 1), labels.flatten())


def texts(files: int) -> tuple[np.ndarray, np.ndarray]:
    """Characters of the standard library's own modules: those of nine files in ten, and of the tenth."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:files]
    held = ["".join(p.read_text("utf-8", "ignore") for p in paths[n::10]) for n in range(10)]
    codes = [np.minimum(np.frombuffer(t.encode("latin-1", "replace"), np.uint8), HIDDEN - 1) for t in held]
    return np.concatenate(codes[:9]).astype(np.int64), codes[9].astype(np.int64)


def batches(text: np.ndarray, sizes: Sizes, count: int, seed: int) -> list[tuple[torch.Tensor, ...]]:
    """Rows of characters with an eighth hidden, their places, and what they were."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        begins = rng.integers(0, len(text) - sizes.tokens, sizes.batch)
        ids = text[begins[:, None] + np.arange(sizes.tokens)]
        places = rng.random(ids.shape).argsort(1)[:, : sizes.tokens // 8]
        labels = np.take_along_axis(ids, places, 1)
        np.put_along_axis(ids, places, HIDDEN, 1)
        made.append(tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in (ids, places, labels)))
    return made


def loss_of_frequencies(text: np.ndarray, rows: list[tuple[torch.Tensor, ...]]) -> float:
    """The loss of rows where each guess is the share of characters in ``text``."""
    shares = (np.bincount(text, minlength=LETTERS) + 1) / (len(text) + LETTERS)
    return float(-np.log(np.concatenate([shares[labels.numpy()].ravel() for _, _, labels in rows])).mean())


class Curve(NamedTuple):
    """Course of one training.

    Attributes:
        losses: Mean loss of each tenth of the updates.
        held_out: Loss of rows of other files.
        cycles: Cycles of an update on the modelled machine.
    """

    losses: list[float]
    held_out: float
    cycles: int


def train(name: str, sizes: Sizes, pattern: Pattern | None) -> Curve:
    """Train one network on rows of the text, and test it on rows of other files."""
    torch.manual_seed(0)
    model, (text, others) = Bert(sizes, pattern), texts(sizes.files)
    optimizer = torch.optim.AdamW(model.parameters(), lr=sizes.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, sizes.rate, total_steps=sizes.steps + 1, pct_start=0.1)
    options = poptorch.Options()
    options.Abele.allowOutOfMemory()
    trained, begin = poptorch.trainingModel(model, options, optimizer), time.perf_counter()
    found, means = [], []
    for step, batch in enumerate(batches(text, sizes, sizes.steps, seed=2), 1):
        found.append(float(trained(*batch)))
        schedule.step()
        trained.setOptimizer(optimizer)
        if step % max(sizes.steps // 10, 1) == 0 or step == sizes.steps:
            means.append(float(np.mean(found)))
            print(f"{name:>7} to update {step:4}: loss {means[-1]:.3f}", flush=True)
            found.clear()
    seconds = time.perf_counter() - begin
    tester = poptorch.inferenceModel(trained, options)
    losses = [float(tester(*batch)) for batch in batches(others, sizes, sizes.tests, seed=3)]
    report = trained.report()
    print(f"{name:>7} {report}, {seconds:.0f} s on this host", flush=True)
    return Curve(means, float(np.mean(losses)), report.total_cycles)


def main(sizes: Sizes = SMALL) -> dict[str, float]:
    """Train both networks; returns their losses on other files, and that of frequencies."""
    pattern = quarter(sizes.tokens)
    print(pattern)
    dense, blocks = train("dense", sizes, None), train("blocks", sizes, pattern)
    text, others = texts(sizes.files)
    frequencies = loss_of_frequencies(text, batches(others, sizes, sizes.tests, seed=3))
    share = 100 * (blocks.held_out / dense.held_out - 1)
    print(f"loss on other files: dense {dense.held_out:.4f}, blocks {blocks.held_out:.4f}, {share:+.2f} %")
    print(f"loss of guesses by frequency: {frequencies:.4f}")
    times = dense.cycles / blocks.cycles
    print(f"cycles of an update: dense {dense.cycles:,}, blocks {blocks.cycles:,}, {times:.2f} times as fast")
    return {"dense": dense.held_out, "blocks": blocks.held_out, "frequencies": frequencies}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mini", action="store_true", help="BERT-mini, about 12 minutes of one core")
    main(MINI if parser.parse_args().mini else SMALL)
