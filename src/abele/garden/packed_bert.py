"""BERT on packs of sequences: the same loss in half the time.

Text of Python's standard library is cut into sequences with the lengths of Wikipedia's articles, half of whose tokens
would be padding in rows of 512. BERT is trained twice on the same sequences, once on a row for each of them and once on
packs, by the same rules; both trainings take turns, so that the host is as busy with other things in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from abele import poptorch
from abele.arrays import Int64
from abele.garden.packed_training import BertSizes, BertTraining, held_out_losses
from abele.garden.pretraining import Corpus, drawn_packs, drawn_sequences, one_each
from abele.garden.sources import held_out_split, standard_library, without_tables
from abele.garden.training import DemoResult, DemoSettings, HeldOut, Stopwatch, options, progress_bar, weights_digest
from abele.packing import PackingPlan, SizeHistogram, pack
from abele.packing.data.packed_rows import PackedRows
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Samples

# Lengths of Wikipedia's articles, cut to 512 tokens, as BERT's phase of long sequences has them.

LONGEST = 512
"""Tokens of the longest sequence."""
SHARES = (
    (4, 0.0),
    (16, 0.0032),
    (24, 0.0140),
    (32, 0.0359),
    (40, 0.0676),
    (48, 0.1035),
    (64, 0.1759),
    (96, 0.2897),
    (128, 0.3694),
    (192, 0.4834),
    (256, 0.5663),
    (384, 0.6836),
    (511, 0.7657),
    (512, 1.0),
)
"""Lengths, and the share of all sequences that are so long or shorter. Between two lengths, the logarithm is spread
evenly. That is at most 0.23 % of all sequences off, and 0.02 % in the mean length. Nearly a quarter of the sequences
are whole rows.

Source: histogram of 16,279,552 sequences published with Krell et al. (2021), of which these are quantiles.
"""


def histogram(count: int, shares: Sequence[tuple[int, float]] = SHARES) -> Int64:
    """Number of sequences of each length from 1 on, of ``count`` in all, [longest]."""
    lengths = np.arange(shares[-1][0] + 1)
    known, below = np.array(shares).T
    cumulative = np.interp(np.log(np.maximum(lengths, known[0])), np.log(known), below)
    found: Int64 = np.diff(np.rint(cumulative * count).astype(np.int64))
    return found


SIZES = BertSizes(tokens=LONGEST)
DEPTH = 3
COUNTED = 1_000_000
"""Sequences of the histogram that is packed; those to train on are drawn from its packs."""
NUM_PACKS = 128
"""Packs of an epoch."""
NUM_TEST = 32
TEST_BATCH = 8
HELD_OUT_SHARE = 0.1
PARTS = 8
"""Lines of the table of losses."""


@dataclass(frozen=True)
class PretrainingData:
    """Sequences to train on and others, of other files.

    Attributes:
        train: Sequences to train on.
        test: Others.
        corpus: The text of the former.
    """

    train: Samples
    test: Samples
    corpus: Corpus

    @classmethod
    def of(
        cls, lengths: tuple[Int64, Int64], vocabulary: int, seed: int, num_files: int | None = None
    ) -> PretrainingData:
        """Sequences of these lengths, to train on and others.

        Args:
            lengths: Of the sequences to train on, and of the others.
            vocabulary: Pieces that get a number.
            seed: Of everything that is drawn.
            num_files: The longest so many files alone are read; None for all.
        """
        files = without_tables(standard_library())
        files = files if num_files is None else sorted(files, key=lambda file: len(file.text))[-num_files:]
        kept, others = held_out_split(files, HELD_OUT_SHARE, seed)
        corpus = Corpus.of(kept, vocabulary)
        test = drawn_sequences(Corpus.of(others, vocabulary, corpus.words), lengths[1], seed + 1)
        return cls(drawn_sequences(corpus, lengths[0], seed), test, corpus)

    def counted_loss(self) -> float:
        """Mean loss by sequence of the pieces' frequencies in the training text, in nats."""
        counts = np.bincount(self.corpus.pieces, minlength=len(self.corpus.words)) + 1
        labels = self.test.columns["masked_lm_ids"]
        assert isinstance(labels, Ragged)
        losses = -np.log(counts / counts.sum())[labels.values]
        by_sequence = np.add.reduceat(losses, labels.offsets[:-1]) / labels.lengths
        return float(by_sequence.mean())


def wikipedia_plan(tokens: int, depth: int, method: str = "nnlshp") -> PackingPlan:
    """Packs of sequences with Wikipedia's lengths; in shorter rows than 512 tokens, of as much shorter ones."""
    lengths = np.maximum(5, -(-np.arange(1, LONGEST + 1) * tokens // LONGEST))
    counts = SizeHistogram.of_kinds(lengths, histogram(COUNTED))
    return pack(counts, tokens, depth=depth, method=method)  # type: ignore[arg-type]


def run(settings: DemoSettings, console: Console) -> DemoResult:
    """Train on sequences and on packs of them, compare, and report; progress goes to ``console``."""
    watch, seed, epochs = Stopwatch(), settings.seed, settings.epochs or 1
    with watch.measure("data"):
        plan = wikipedia_plan(SIZES.tokens, DEPTH)
        lengths, packs = drawn_packs(plan, epochs * NUM_PACKS, seed)
        test_lengths = drawn_packs(plan, NUM_TEST, seed + 1)[0][:NUM_TEST]
        data = PretrainingData.of((lengths, test_lengths), SIZES.vocabulary, seed)
    layouts = {"padded": (one_each(len(lengths)), 1), "packed": (packs, DEPTH)}
    with watch.measure("compile"):
        trainings = {
            name: BertTraining(SIZES, data.train, rows, host_options(settings), depth=depth, seed=seed)
            for name, (rows, depth) in layouts.items()
        }
        for training in trainings.values():
            training.compile()
    with watch.measure("train"):
        train(list(trainings.values()), console)
    padded, packed = trainings["padded"], trainings["packed"]
    report = packed.executor.report()
    for training in trainings.values():
        training.executor.detachFromDevice()
    with watch.measure("validate"):
        rows = PackedRows(data.test, one_each(NUM_TEST), SIZES.row_shape(1))
        losses = {
            name: held_out_losses(training.model, rows, host_options(settings), TEST_BATCH)[0]
            for name, training in trainings.items()
        }
    return DemoResult(
        name="packed-bert",
        note="real text (Python's standard library) with Wikipedia's lengths, real training on this host; machine "
        "figures are modelled, and of packs",
        figures={
            "loss_padded": float(padded.curve.means(PARTS)[-1]),
            "loss_packed": float(packed.curve.means(PARTS)[-1]),
            "held_out_padded": losses["padded"],
            "held_out_packed": losses["packed"],
            "factor": len(lengths) / len(packs),
            "sequences": len(lengths),
            "speed_up": padded.curve.per_sequence() / packed.curve.per_sequence(),
            "cpu_speed_up": padded.curve.per_sequence(cpu=True) / packed.curve.per_sequence(cpu=True),
            "weights_sha256": weights_digest(packed.model),
        },
        seconds=watch.seconds,
        report=report.with_meta(name="packed BERT training", sample_name="packs", step_name="weight update"),
        held_out=(
            HeldOut(
                measure="nats per masked token",
                value=losses["packed"],
                beside={"padded sequences": losses["padded"], "counts of pieces": data.counted_loss()},
                on=f"{NUM_TEST} held-out sequences",
            ),
        ),
        exhibit=losses_by_part(padded, packed, len(lengths)),
    )


def host_options(settings: DemoSettings) -> poptorch.Options:
    """Options of the demo; the host trains whether or not the modelled chip has room."""
    opts = options(settings)
    opts.Abele.allowOutOfMemory()
    return opts


def train(trainings: list[BertTraining], console: Console) -> None:
    """Make all updates, in turns: that which has seen the smaller share of its sequences goes next."""
    left = list(trainings)
    with progress_bar(console, "training", sum(training.updates for training in trainings)) as advance:
        while left:
            behind = min(left, key=lambda training: len(training.curve.sequences) / training.updates)
            advance(f"loss {behind.update():.4f}")
            left = [training for training in left if not training.done]


def losses_by_part(padded: BertTraining, packed: BertTraining, count: int) -> str:
    """Mean losses over equal parts of all sequences, and their times."""
    parts = min(PARTS, padded.updates, packed.updates)
    seen = np.linspace(0, count, parts + 1)
    lines = ["sequences        padded   packed   nats per masked token, by sequence"]
    for begin, end, one, other in zip(
        seen[:-1], seen[1:], padded.curve.means(parts), packed.curve.means(parts), strict=True
    ):
        lines.append(f"{begin:>5.0f} to {end:>5.0f} {one:>9.4f}{other:>9.4f}")
    each, together = padded.curve, packed.curve
    lines.append(
        f"{1e3 * each.per_sequence():.0f} ms by sequence on own rows, {1e3 * together.per_sequence():.0f} ms in "
        f"packs: {each.per_sequence() / together.per_sequence():.2f} times as fast "
        f"({each.per_sequence(cpu=True) / together.per_sequence(cpu=True):.2f} by processor time)"
    )
    return "\n".join(lines)
