"""BERT on packs of sequences: the same loss in half the time.

Text of Python's standard library is cut into sequences with the lengths of Wikipedia's articles, half of whose tokens
would be padding in rows of 512. BERT is trained twice on the same sequences, once on a row for each of them and once on
packs, by the same rules; both trainings take turns, so that the host is as busy with other things in both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from abele import poptorch
from abele.arrays import Int64
from abele.garden.packed_training import BertSizes, BertTraining, held_out_losses
from abele.garden.sources import LibraryModule, held_out_split, standard_library, without_tables
from abele.garden.training import DemoResult, DemoSettings, HeldOut, Stopwatch, options, progress_bar, weights_digest
from abele.packing import PackingPlan, SizeHistogram, pack
from abele.packing.data.packed_rows import PackedRows
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Samples
from abele.packing.packs import Packs
from abele.packing.tasks.bert import Masking, bert_pretraining

# Samples of BERT's pre-training: two stretches of text, tokens masked, and whether the stretches are in order.
#
# A sequence is ``[CLS] first [SEP] second [SEP]``: text of one file, cut in two, in half of the sequences the wrong
# way round. Its tokens are masked as BERT's are.
#
# Source: Devlin et al., BERT (2019), section 3.1; order of segments: Lan et al., ALBERT (2020), section 3.1.

# Text as numbers of words: a vocabulary of the commonest pieces of a library's source.

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNKNOWN, FIRST, SEPARATOR, MASK = range(len(SPECIAL))
_PIECE = re.compile(r"[A-Za-z]+|\d|[^\sA-Za-z\d]|\n")
"""Words without digits and underscores, single digits and signs, ends of lines."""


@dataclass(frozen=True)
class Corpus:
    """The pieces of some files, one file after the other.

    Attributes:
        pieces: Numbers of pieces, [num_pieces].
        ends: End of the file of each piece, [num_pieces].
        words: The pieces by number, :data:`SPECIAL` ones first.
    """

    pieces: Int64
    ends: Int64
    words: tuple[str, ...]

    @classmethod
    def of(cls, files: Sequence[LibraryModule], vocabulary: int, words: Sequence[str] = ()) -> Corpus:
        """The pieces of ``files``.

        Args:
            files: The files.
            vocabulary: Pieces that get a number; the commonest ones, the rest being ``[UNK]``.
            words: The pieces by number, as another corpus has them; then none are counted.
        """
        cut = [_PIECE.findall(file.text) for file in files]
        sizes = np.array([len(pieces) for pieces in cut], np.int64)
        found, numbers = np.unique(np.concatenate([np.array(p, dtype=np.str_) for p in cut]), return_inverse=True)
        if words:
            known = {word: number for number, word in enumerate(words)}
            table = np.array([known.get(word, UNKNOWN) for word in found.tolist()], np.int64)
        else:
            kept = np.argsort(-np.bincount(numbers), kind="stable")[: vocabulary - len(SPECIAL)]
            table = np.full(len(found), UNKNOWN, np.int64)
            table[kept] = len(SPECIAL) + np.arange(len(kept))
            words = (*SPECIAL, *found[kept].tolist())
        return cls(table[numbers], np.repeat(np.cumsum(sizes), sizes), tuple(words))

    def spans(self, sizes: Int64, rng: np.random.Generator) -> Int64:
        """Begins of stretches of ``sizes`` pieces, drawn at random, each inside of one file; [num_stretches].

        Raises:
            ValueError: No file is as long as the longest.
        """
        fits = self.ends - np.arange(len(self.ends))
        if sizes.max(initial=0) > fits.max(initial=0):
            raise ValueError(f"stretches of {sizes.max()} pieces in files of at most {fits.max(initial=0)}")
        begins = np.full(len(sizes), -1, np.int64)
        while (left := np.flatnonzero(begins < 0)).size:
            drawn = rng.integers(0, len(fits), len(left))
            begins[left] = np.where(fits[drawn] >= sizes[left], drawn, -1)
        return begins


SHORTEST = 5
"""Tokens of the shortest sequence: one of each stretch, and three that are special."""


def drawn_packs(plan: PackingPlan, count: int, seed: int) -> tuple[Int64, Packs]:
    """Packs drawn at random from those of a plan, and the lengths of their items: a sample of a large set.

    The items of the packs are numbered at random, so that rows of their own, in the order of numbers, mix all packs.

    Returns:
        Lengths of the items, [num_items], and the ``count`` packs of them.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(plan.counts), count, p=plan.counts / plan.num_packs)
    depths = plan.strategies.depths[chosen]
    begins = np.concatenate([[0], np.cumsum(depths)])
    slot = np.arange(begins[-1]) - np.repeat(begins[:-1], depths)
    kinds = plan.strategies.items[np.repeat(plan.strategies.begins[chosen], depths) + slot]
    number = rng.permutation(len(kinds))
    lengths = np.empty(len(kinds), np.int64)
    lengths[number] = plan.histogram.lengths[kinds]
    return lengths, Packs(number, begins)


def one_each(count: int) -> Packs:
    """A row of its own for each sequence."""
    return Packs(np.arange(count), np.arange(count + 1))


def drawn_sequences(corpus: Corpus, lengths: Int64, seed: int) -> Samples:
    """Sequences of ``lengths`` tokens, of text drawn at random, with what BERT is to guess.

    Raises:
        ValueError: A length is below :data:`SHORTEST`, or beyond the longest file.
    """
    ids, segments, in_order = sequences(corpus, lengths, np.random.default_rng(seed))
    masking = Masking(mask_id=MASK, vocabulary=len(corpus.words), kept_ids=(FIRST, SEPARATOR))
    return bert_pretraining(
        ids, masking, token_type_ids=segments, next_sentence_labels=in_order, padding_id=PAD, seed=(seed, 1)
    )


def sequences(corpus: Corpus, lengths: Int64, rng: np.random.Generator) -> tuple[Ragged, Ragged, Int64]:
    """Pieces and segments of sequences, and 1 where their stretches stand as in the text."""
    if lengths.min(initial=SHORTEST) < SHORTEST:
        raise ValueError(f"sequences of {lengths.min()} tokens: {SHORTEST} are the fewest")
    content = lengths - 3
    starts = corpus.spans(content, rng)
    cut = 1 + (rng.random(len(lengths)) * (content - 1)).astype(np.int64)
    in_order = rng.integers(0, 2, len(lengths))
    whose = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(whose)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # Stretches that change places are the text, turned round by the first one.
    turn, first = np.where(in_order, 0, cut), np.where(in_order, cut, content - cut)
    in_second = place > first[whose] + 1
    number = place - 1 - in_second
    pieces = corpus.pieces[starts[whose] + (number + turn[whose]) % content[whose]]
    pieces[place == 0] = FIRST
    pieces[(place == first[whose] + 1) | (place == lengths[whose] - 1)] = SEPARATOR
    return Ragged.of_lengths(pieces, lengths), Ragged.of_lengths(in_second.astype(np.int64), lengths), in_order


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
