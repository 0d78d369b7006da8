"""Train a character language model on documents of very different length, several in each row.

Padded to the longest, most of a batch would be padding. Packed, rows are nearly full; no document sees another, and in
the loss each counts alike. The same documents are trained on both ways, over equal numbers of epochs.

    python examples/poptorch/packed_text.py --epochs 3
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from abele import poptorch
from abele.packing.data import PackedRows, PackOrder, Ragged, RowShape, pack_rows, packed_settings
from abele.packing.tasks import language_model
from abele.packing.torch import PackedDataset, PackSampler, SequenceMeanLoss, attention_mask

TEXT = "the quick brown fox jumps over a lazy dog and then sleeps while seven wizards box with my jug of liquor"
WORDS = TEXT.split()


def documents(count: int, longest: int, seed: int = 0) -> tuple[Ragged, int]:
    """Token ids of documents of random words, mostly short, and the number of ids; 0 is for padding."""
    rng = np.random.default_rng(seed)
    letters = sorted(set(TEXT))
    ids = {letter: number + 1 for number, letter in enumerate(letters)}
    texts = []
    for words in np.minimum(rng.geometric(0.12, count), longest // 8):
        text = " ".join(WORDS[number] for number in rng.integers(0, len(WORDS), words))
        texts.append([ids[letter] for letter in text[:longest]])
    return Ragged.of(texts), len(letters) + 1


class Language(nn.Module):
    """One layer of attention and one of its own; its loss counts each document alike."""

    def __init__(self, letters: int, tokens: int, depth: int, width: int) -> None:
        super().__init__()
        self.letters, self.positions = nn.Embedding(letters, width), nn.Embedding(tokens, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.head = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Linear(width, letters),
        )
        self.loss = SequenceMeanLoss(depth)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss of all next letters."""
        x = self.letters(batch["input_ids"]) + self.positions(batch["position_ids"])
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        mask = attention_mask(batch["sequence_ids"], causal=True, dtype=torch.float32)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        logits = self.head(x + self.down(nn.functional.gelu(self.up(self.norm2(x)))))
        return poptorch.identity_loss(self.loss(logits, batch["labels"], batch["sequence_ids"]), reduction="none")


def trained(rows: PackedRows, letters: int, *, epochs: int, batch: int, betas: tuple[float, ...]) -> dict[str, Any]:
    """Losses by epoch, rows, and processor seconds of all but the first epoch, in which the model is compiled."""
    torch.manual_seed(0)
    tokens = rows.shape.capacity_of("tokens")
    model = Language(letters, tokens, rows.shape.depth, width=32)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=1e-2, betas=betas)
    options = poptorch.Options()
    training = poptorch.trainingModel(model, options, optimizer)
    order = PackOrder(num_packs=len(rows), batch_size=batch)
    loader = poptorch.DataLoader(options, PackedDataset(rows), batch_size=batch, sampler=PackSampler(order))
    losses, seconds = [], 0.0
    for epoch in range(epochs):
        start = time.process_time()
        losses.append(float(np.mean([float(training(batch)) for batch in loader])))
        seconds += time.process_time() - start if epoch else 0.0
    training.destroy()
    return {"losses": losses, "rows": len(rows), "seconds": seconds}


def main(
    *, count: int = 480, tokens: int = 128, epochs: int = 3, batch: int = 24
) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """Train both ways; returns the packing factor and what became of packed and of padded training."""
    texts, letters = documents(count, tokens)
    samples = language_model(texts)
    packed = pack_rows(samples, RowShape(tokens, depth=8), seed=0)
    padded = pack_rows(samples, RowShape(tokens, depth=1), seed=0)
    factor = len(samples) / len(packed)
    print(f"{count} documents: {len(padded)} rows padded, {len(packed)} packed, {factor:.2f} documents in a row")

    # A packed batch of as many documents has fewer rows; what does not divide goes into the moments.
    settings = packed_settings(factor, betas=(0.9, 0.999), accumulation=batch)
    of_packs = trained(packed, letters, epochs=epochs, batch=settings.accumulation, betas=settings.betas)
    of_single = trained(padded, letters, epochs=epochs, batch=batch, betas=(0.9, 0.999))
    for name, found in (("packed", of_packs), ("padded", of_single)):
        first, last = found["losses"][0], found["losses"][-1]
        print(f"{name}  loss {first:.3f} → {last:.3f}  {found['seconds']:.2f} s of processor time")
    return factor, of_packs, of_single


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--count", type=int, default=480)
    given = parser.parse_args()
    main(epochs=given.epochs, count=given.count)
