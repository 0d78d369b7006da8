"""A language model of characters: how does Python's own source text go on?

Text of the standard library, a few files held out. A small transformer reads 128 characters and gives the odds of the
next one at each place. Beside it stand tables of how often characters follow each other, counted on the very text that
the transformer was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.arrays import Float64, Int64
from abele.garden.sources import LibraryModule, held_out_split, standard_library, without_tables
from abele.garden.training import (
    DemoResult,
    DemoSettings,
    HeldOut,
    Predictor,
    Stopwatch,
    Training,
    WithLoss,
    options,
    weights_digest,
)

CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127)) + "\N{REPLACEMENT CHARACTER}"
"""Characters that the model knows: the last stands for all others."""
CONTEXT = 128
WIDTH = 128
HEADS = 4
LAYERS = 2
SHIFTS = 4
"""The characters before, each by an embedding of its own, that a place sees before attention."""
BATCH = 8
DEVICE_ITERATIONS = 20
NUM_TRAINING = 40 * BATCH * DEVICE_ITERATIONS
NUM_TEST = 512
TEST_BATCH = 8
HELD_OUT_SHARE = 0.1
EPOCHS = 1
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.01
SAMPLE = 320
TEMPERATURE = 0.7


def numbered(text: str) -> Int64:
    """The number of each character in ``CHARACTERS``."""
    table = np.full(128, len(CHARACTERS) - 1, np.int64)
    for number, character in enumerate(CHARACTERS[:-1]):
        table[ord(character)] = number
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    numbers: Int64 = np.where(codes < 128, table[np.minimum(codes, 127)], len(CHARACTERS) - 1)
    return numbers


def windows(files: Sequence[LibraryModule], count: int, seed: int) -> Int64:
    """Stretches of text that do not overlap, [count, CONTEXT + 1], drawn from all of the files."""
    cut = []
    for file in files:
        text = numbered(file.text)
        pieces = len(text) // (CONTEXT + 1)
        cut.append(text[: pieces * (CONTEXT + 1)].reshape(pieces, CONTEXT + 1))
    every = np.concatenate(cut)
    chosen: Int64 = every[np.random.default_rng(seed).permutation(len(every))[:count]]
    return chosen


class FollowingTable:
    """Frequencies of characters after the ones before them, blended from no context up to ``order - 1`` characters.

    Args:
        text: The text that is counted, [num_windows, length].
        order: Characters that are counted together.

    Counts of a longer context are blended with what shorter ones say, the more so the more kinds of characters followed
    it.
    Source: Witten and Bell, The zero-frequency problem, IEEE Transactions on Information Theory 37 (1991), method C.
    """

    def __init__(self, text: Int64, order: int) -> None:
        self.order = order
        size = len(CHARACTERS)
        self.counts = [
            np.bincount(self._keys(text, length), minlength=size**length).reshape(-1, size).astype(np.float64)
            for length in range(1, order + 1)
        ]

    @staticmethod
    def _keys(text: Int64, length: int) -> Int64:
        windows = np.lib.stride_tricks.sliding_window_view(text, length, axis=1)
        keys: Int64 = windows @ (len(CHARACTERS) ** np.arange(length - 1, -1, -1))
        return keys.reshape(-1)

    def bits(self, text: Int64) -> float:
        """Mean bits per character of all places of the windows but the first."""
        odds = [self._odds(text, place) for place in range(1, text.shape[1])]
        return float(-np.log2(np.concatenate(odds)).mean())

    def _odds(self, text: Int64, place: int) -> Float64:
        """Probability of the characters at one place of each window."""
        odds = np.full(len(text), 1.0 / len(CHARACTERS))
        for length, counts in enumerate(self.counts[: place + 1]):
            context = text[:, place - length : place] @ (len(CHARACTERS) ** np.arange(length - 1, -1, -1))
            seen = counts[context]
            total, kinds = seen.sum(axis=1), np.count_nonzero(seen, axis=1)
            mine = seen[np.arange(len(text)), text[:, place]]
            odds = np.where(total > 0, (mine + kinds * odds) / np.maximum(total + kinds, 1), odds)
        return odds


class TransformerBlock(nn.Module):
    """Causal self-attention and a feed-forward network, each added to its input after a layer norm.

    Args:
        width: Length of a place's vector.
        heads: Attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attended(self, x: Tensor) -> Tensor:
        """Vectors after attention, [batch, places, width]."""
        batch, places, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, places, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        made = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        y: Tensor = x + self.out(made.transpose(1, 2).reshape(batch, places, width))
        return y

    def forward(self, x: Tensor) -> Tensor:
        """Vectors of the same shape, [batch, places, width]."""
        x = self.attended(x)
        y: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return y


class LanguageNetwork(nn.Module):
    """A decoder: scores of the next character at each place."""

    def __init__(self, width: int = WIDTH, layers: int = LAYERS, heads: int = HEADS) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(len(CHARACTERS), width) for _ in range(SHIFTS))
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, len(CHARACTERS))
        for table in (*self.tables, self.places):
            nn.init.normal_(table.weight, std=0.1)

    def embedded(self, text: Tensor) -> Tensor:
        """Vectors [batch, places, width] of text [batch, places], of each character and those before it."""
        x: Tensor = self.places.weight + self.tables[0](text)
        for shift, table in enumerate(self.tables):
            if shift:
                x = x + F.pad(table(text[:, :-shift]), (0, 0, shift, 0))
        return x

    def forward(self, text: Tensor) -> Tensor:
        """Scores [batch, places, num_characters] of text [batch, places]."""
        scores: Tensor = self.scores(self.norm(self.blocks(self.embedded(text))))
        return scores


def next_character_loss(scores: Tensor, following: Tensor) -> Tensor:
    """Mean cross-entropy over all places, in nats."""
    return F.cross_entropy(scores.flatten(0, 1), following.flatten())


def run(settings: DemoSettings, console: Console) -> DemoResult:
    """Train on files, measure on others, let the model write, and report; progress goes to ``console``."""
    watch = Stopwatch()
    opts = options(settings).deviceIterations(DEVICE_ITERATIONS)
    with watch.measure("data"):
        files = without_tables(standard_library())
        kept, others = held_out_split(files, HELD_OUT_SHARE, settings.seed)
        train, held_out = windows(kept, NUM_TRAINING, settings.seed), windows(others, NUM_TEST, settings.seed)
        text = torch.from_numpy(train)
        data = poptorch.DataLoader(opts, TensorDataset(text[:, :-1], text[:, 1:]), batch_size=BATCH, drop_last=True)

    model = LanguageNetwork()
    optimizer = optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    epochs = settings.epochs or EPOCHS
    training = Training(data=data, options=opts, epochs=epochs)
    trained = training.run(WithLoss(model, next_character_loss), optimizer, watch, console)
    predict = Predictor(model, options(settings), TEST_BATCH)
    with watch.measure("validate"):
        figure = HeldOut(
            measure="bits per character",
            value=bits_per_character(predict, held_out),
            beside={name: FollowingTable(train, order).bits(held_out) for order, name in enumerate(TABLES, start=1)},
            on=f"{held_out[:, 1:].size:,} characters of {len(others)} held-out files",
        )
    with watch.measure("write"):
        sample = written(predict, "def ", settings.seed)
    return DemoResult(
        name="language",
        note="real text (Python's standard library), real training on this host; machine figures are modelled",
        figures={
            "held_out_bits_per_character": figure.value,
            "held_out_characters": held_out[:, 1:].size,
            "training_characters": train[:, 1:].size,
            "loss": trained.loss,
            "epochs": epochs,
            "weights_sha256": weights_digest(model),
        },
        seconds=watch.seconds,
        report=trained.report.with_meta(name="language training", sample_name="windows", step_name="weight update"),
        held_out=(figure,),
        exhibit=f"after 'def ' it writes\n{sample}",
    )


TABLES = ("single characters", "pairs", "triples")
"""Names of the tables of counts in the training text, beside the model."""


def bits_per_character(predict: Predictor, text: Int64) -> float:
    """Mean bits that the model needs for each character but the first of each window."""
    following = torch.from_numpy(text[:, 1:])
    scores = predict(torch.from_numpy(text[:, :-1])).double()
    nats = F.cross_entropy(scores.flatten(0, 1), following.flatten())
    return float(nats / np.log(2.0))


def written(predict: Predictor, start: str, seed: int) -> str:
    """Text that the model writes after ``start``, character by character, drawn by its odds."""
    generator = torch.Generator().manual_seed(seed)
    text = numbered(start).tolist()
    for _ in range(SAMPLE):
        seen = text[-CONTEXT:]
        scores = predict(torch.tensor([seen + [0] * (CONTEXT - len(seen))]))[0, len(seen) - 1]
        odds = torch.softmax(scores.double() / TEMPERATURE, dim=0)
        text.append(int(torch.multinomial(odds, 1, generator=generator)))
    return "".join(CHARACTERS[number] for number in text)
