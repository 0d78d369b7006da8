"""Train a small language model whose layers are split over groups of replicas, on two batches at a time.

Each of two groups of two replicas computes one model: attention by heads, feed-forward layers by columns and rows, the
vocabulary by entries. The weights of all stay whole on the host.

    python examples/poptorch/tensor_parallel.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from abele import poptorch
from abele.poptorch import tensor_parallel

TEXT = "the quick brown fox jumps over the lazy dog; the lazy dog sleeps while the quick brown fox jumps again. "


class Block(nn.Module):
    """Attention and feed-forward, each after a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape, alike on all replicas of a group."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    """Scores of the next letters, and their loss."""

    def __init__(self, letters: int, tokens: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.letters, self.positions = nn.Embedding(letters, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, letters)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The loss of all letters but the first."""
        hidden = self.letters(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        scores = self.head(hidden[:, :-1])
        return self.loss(scores.flatten(0, 1), ids[:, 1:].flatten())


PLAN = {
    "letters": "vocabulary",
    "blocks.*.heads": "divide",
    "blocks.*.qkv": tensor_parallel.ColumnSplit(blocks=3),
    "blocks.*.out": "row",
    "blocks.*.up": "column",
    "blocks.*.down": "row",
    "head": "vocabulary",
    "loss": "vocabulary",
}


def main(runs: int = 30, group: int = 2, models: int = 2, width: int = 32) -> tuple[float, float]:
    """Train; returns the first loss and the last.

    Args:
        runs: Updates.
        group: Replicas that compute one model together.
        models: Models, each on a batch of its own.
        width: Features of a letter.
    """
    torch.manual_seed(0)
    letters = sorted(set(TEXT))
    text = torch.tensor([letters.index(letter) for letter in TEXT * 2])
    tokens, batch = 16, 4
    model = Language(len(letters), tokens, width, heads=4, layers=2)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.01)
    tensor_parallel.parallelize_module(model, group, PLAN)

    options = poptorch.Options().replicationFactor(group * models)
    options.inputReplicaGrouping(group, poptorch.CommGroupType.Consecutive)
    options.outputMode(poptorch.OutputMode.All)
    trained = poptorch.trainingModel(model, options, optimizer)
    losses = []
    for _ in range(runs):
        begins = torch.randint(0, len(TEXT), (models * batch,))
        ids = torch.stack([text[b : b + tokens] for b in begins])
        losses.append(float(trained(ids).mean()))
    entries = len(trained.state_dict()["letters.weight"])
    print(f"{models} models on {group} replicas each: loss {losses[0]:.2f} → {losses[-1]:.2f}; {entries} letters")
    trained.destroy()
    return losses[0], losses[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--group", type=int, default=2)
    arguments = parser.parse_args()
    main(arguments.runs, arguments.group)
