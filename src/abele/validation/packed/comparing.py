"""The tables of packing beside ours: packs of published sets, realised speed-up, and un-padding."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from abele.arrays import Float64
from abele.errors import FileFormatError, InvalidOptionError, nearest
from abele.packing import PackingPlan, SizeHistogram, pack
from abele.validation.figures import Bars, Comparison, Figure
from abele.validation.packed.costs import PackCosts, PackRuns
from abele.validation.packed.runs import padded_run

# Speed-up of un-padding where accelerators wait for the one with the most tokens.
#
# Un-padding computes the real tokens of a batch alone. Sequences are dealt out at random, so an update takes as long
# as the accelerator takes whose sequences are the longest. The number of tokens of a batch is a sum of lengths, whose
# distribution is that of the histogram, convolved with itself; the greatest of many has the power of its cumulative
# distribution. Both are computed, nothing is drawn.


def unpadded_speed_up(histogram: SizeHistogram, capacity: int, accelerators: int, batch: int) -> float:
    """Expected speed-up of un-padding over rows of ``capacity`` tokens.

    Args:
        histogram: Lengths of the sequences.
        capacity: Tokens of a padded row.
        accelerators: That wait for each other in every update.
        batch: Sequences of each of them.

    Returns:
        Padded tokens of an accelerator, over the mean of the greatest number of real ones.

    Raises:
        InvalidOptionError: ``accelerators`` or ``batch`` is below 1.
    """
    for name, value in (("accelerators", accelerators), ("batch", batch)):
        if value < 1:
            raise InvalidOptionError(f"{name} = {value}: must be at least 1")
    one = np.zeros(int(histogram.lengths.max()) + 1)
    one[histogram.lengths] = histogram.counts / histogram.num_items
    below = np.minimum(np.cumsum(_summed(one, batch)), 1.0)
    greatest = float((1 - below**accelerators).sum())
    return batch * capacity / greatest


def _summed(one: Float64, count: int) -> Float64:
    """The distribution of a sum of ``count`` numbers that have the distribution ``one``: a power of its transform."""
    length = count * (len(one) - 1) + 1
    # The transform leaves noise of either sign where there is nothing.
    found: Float64 = np.maximum(np.fft.irfft(np.fft.rfft(one, 2 * length) ** count)[:length], 0.0)
    whole: Float64 = found / found.sum()
    return whole


# The published tables of packing: deck 004, arXiv 2107.02027 and its public scripts (packing.md §2 and §5).

SOURCE = "arXiv 2107.02027, table 1"
WIKIPEDIA, SQUAD = "wikipedia_512", "squad11_384"
"""Columns of the file of histograms."""
_METHODS = {"columns": "column generation"}


@dataclass(frozen=True)
class PublishedPacking:
    """A row of a published table.

    Attributes:
        column: The histogram, by its column.
        capacity: Tokens of a pack.
        depth: Most sequences of a pack; None for no limit.
        method: As :data:`abele.packing.METHODS` calls it.
        packs: Packs.
        factor: Sequences in a pack on average, as published; None where that was not.
        overhead: Share of cycles that packs take more than padded sequences.
        realised: Speed-up over padded sequences.
        source: Source of the publication.
    """

    column: str
    capacity: int
    depth: int | None
    method: str
    packs: int
    factor: float | None = None
    overhead: float | None = None
    realised: float | None = None
    source: str = SOURCE

    @property
    def title(self) -> str:
        """Method and depth."""
        limit = "no limit" if self.depth is None else f"depth {self.depth}"
        return f"{_METHODS.get(self.method, self.method.upper())}, {limit}"


def _wikipedia(depth: int | None, method: str, packs: int, *figures: float, source: str = SOURCE) -> PublishedPacking:
    factor, overhead, realised = figures or (None, None, None)
    share = None if overhead is None else overhead / 100
    return PublishedPacking(
        WIKIPEDIA, 512, depth, method, packs, factor, overhead=share, realised=realised, source=source
    )


WIKIPEDIA_ROWS = (
    _wikipedia(2, "spfhp", 10_101_683, 1.612, 4.283, 1.544),
    _wikipedia(3, "spfhp", 9_094_695, 1.790, 4.287, 1.716),
    _wikipedia(3, "nnlshp", 8_155_059, 1.996, 4.287, 1.913),
    _wikipedia(4, "spfhp", 8_658_996, 1.880, 4.294, 1.803),
    _wikipedia(8, "spfhp", 8_224_673, 1.979, 4.481, 1.895),
    _wikipedia(16, "spfhp", 8_166_708, 1.993, 4.477, 1.905),
    *(
        _wikipedia(depth, "lpfhp", packs, source="public scripts of arXiv 2107.02027, run once")
        for depth, packs in (
            (2, 10_099_081),
            (3, 9_090_154),
            (4, 8_657_119),
            (8, 8_207_569),
            (12, 8_149_619),
            (16, 8_140_006),
            (None, 8_138_483),
        )
    ),
)


def _squad(depth: int | None, method: str, packs: int, factor: float, source: str = SOURCE) -> PublishedPacking:
    return PublishedPacking(SQUAD, 384, depth, method, packs, factor, source=source)


SQUAD_ROWS = (
    _squad(2, "spfhp", 45_335, 1.955),
    _squad(3, "spfhp", 40_711, 2.177),
    _squad(3, "lpfhp", 40_631, 2.182),
    _squad(3, "nnlshp", 40_808, 2.172, "deck 004, packing SQuAD 1.1"),
)

GLUE_ROWS = tuple(
    PublishedPacking(f"glue_{name}_128", 128, None, "spfhp", packs, source="public scripts of arXiv 2107.02027")
    for name, packs in (("cola", 913), ("mrpc", 1606), ("stsb", 1367), ("rte", 1330), ("wnli", 192))
)

UNPADDING = {32: 1.5, 2048: 1.3}
"""Realised speed-up of un-padding by number of accelerators, read off a figure of the paper."""


# Histograms of lengths from a file: a column ``length``, and a column of counts for each set.


def read_histograms(path: str | Path) -> dict[str, SizeHistogram]:
    """The histograms of a CSV file, by column; empty cells are zero, and so left out are columns without items.

    Raises:
        FileFormatError: The file cannot be read, has no column ``length``, a length twice, or a cell that is no
            whole number of at least 0.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"histograms cannot be read from {path}: {error}") from error
    if "length" not in columns:
        raise FileFormatError(f"{path} has no column length", remedy=f"its columns are {', '.join(columns) or 'none'}")
    table = {name: np.array([_number(path, name, i, row[name]) for i, row in enumerate(rows)]) for name in columns}
    lengths = table.pop("length")
    if len(np.unique(lengths)) != len(lengths):
        raise FileFormatError(f"{path} has a length twice", remedy="one row for each length")
    return {name: SizeHistogram.of_kinds(lengths, counts) for name, counts in table.items() if counts.any()}


def histogram_of(histograms: dict[str, SizeHistogram], column: str, path: str | Path) -> SizeHistogram:
    """The histogram of a column.

    Raises:
        FileFormatError: There is none.
    """
    if column not in histograms:
        close = nearest(column, histograms)
        raise FileFormatError(
            f"{path} has no histogram {column}", remedy=f"did you mean {close}?" if close else "add the column"
        )
    return histograms[column]


def _number(path: Path, column: str, row: int, text: str | None) -> int:
    # A row that ends early has None for what is missing.
    cell = (text or "0").strip() or "0"
    if not cell.isdecimal():
        raise FileFormatError(f"{path}, line {row + 2}: {column} is {text!r}, not a whole number of at least 0")
    return int(cell)


PACK_BARS = Bars(0.001)
"""NNLSHP's optimum is not unique: rounding gives up to 0.1 % more or fewer packs. All else is the same to a pack."""
BATCHES = (8, 16, 32)
"""Sequences of an accelerator for which un-padding is computed; which it was is not published."""


@dataclass(frozen=True)
class PackedRow:
    """A published row, and what we find for it."""

    published: PublishedPacking
    plan: PackingPlan

    @cached_property
    def factor(self) -> float:
        """The published packing factor, or that of the published packs."""
        published = self.published
        return self.plan.num_items / published.packs if published.factor is None else published.factor


def compare(path: Path, *, jobs: int = 1, console: Console | None = None) -> tuple[list[Comparison], tuple[str, ...]]:
    """All comparisons of packing, and what could not be compared.

    Args:
        path: CSV of histograms: ``length`` and columns of counts, ``wikipedia_512``, ``squad11_384`` and
            ``glue_…_128``; those that it lacks are left out.
        jobs: Processes at a time that compile BERT.
        console: Console for progress, or None.

    Raises:
        FileFormatError: The file cannot be read, or has none of the columns.
    """
    histograms = read_histograms(path)
    every = (*WIKIPEDIA_ROWS, *SQUAD_ROWS, *GLUE_ROWS)
    if not any(row.column in histograms for row in every):
        histogram_of(histograms, WIKIPEDIA, path)
    rows = [row for row in every if row.column in histograms]
    factors = {
        row.depth: row.factor
        for row in rows
        if row.column == WIKIPEDIA and row.realised is not None and row.depth is not None and row.factor is not None
    }
    with ExitStack() as stack:
        runs = stack.enter_context(PackRuns(padded_run(), factors, jobs=jobs)) if factors else None
        # BERT is compiled beside: the published factors are all that its runs take from the packs.
        packed = [
            PackedRow(
                row,
                pack(histograms[row.column], row.capacity, depth=row.depth, method=row.method),  # type: ignore[arg-type]
            )
            for row in track(rows, "packing", console=console or Console(quiet=True))
        ]
        by_set = [(key, title, [r for r in packed if r.published in whole]) for key, title, whole in _SETS]
        found = [packs(key, title, part, histograms) for key, title, part in by_set if part]
        failures: tuple[str, ...] = ()
        if runs is not None:
            more, failures = realised(packed, runs, padded_run().system, console=console)
            found += [*more, unpadding(histograms[WIKIPEDIA])]
    return found, failures


_SETS = (
    ("packing_wikipedia", "packing of Wikipedia, 512 tokens", WIKIPEDIA_ROWS),
    ("packing_squad", "packing of SQuAD 1.1, 384 tokens", SQUAD_ROWS),
    ("packing_glue", "packing of GLUE, 128 tokens", GLUE_ROWS),
)


def packs(key: str, title: str, rows: Sequence[PackedRow], histograms: dict[str, SizeHistogram]) -> Comparison:
    """Numbers of packs by the published methods; beside them those of column generation."""
    figures = tuple(
        Figure(_name(row.published), row.published.method, row.plan.num_packs, row.published.packs, "packs",
               row.published.source)
        for row in rows
    )  # fmt: skip
    limits = dict.fromkeys((row.published.column, row.published.capacity, row.published.depth) for row in rows)
    ours = [
        (column, depth, pack(histograms[column], capacity, depth=depth, method="columns"))
        for column, capacity, depth in limits
    ]
    return Comparison(key, title, _ABOUT_PACKS, figures, PACK_BARS, _table(rows, ours))


def _name(published: PublishedPacking) -> str:
    column = published.column
    return f"{column.split('_')[1]}, {published.title}" if column.startswith("glue") else published.title


def realised(
    rows: Sequence[PackedRow], runs: PackRuns, system: str, *, console: Console | None = None
) -> tuple[list[Comparison], tuple[str, ...]]:
    """Speed-up over padded sequences by the modelled overhead of packs, and what failed to compile.

    Args:
        rows: Rows, of which those with published overheads are compared.
        runs: Runs to compile.
        system: Of the runs.
        console: Console for progress, or None.
    """
    costs = runs.costs(console)
    if isinstance(costs, str):
        return [], (costs,)
    known = [
        (row, costs.overhead(depth))
        for row in rows
        if row.published.realised is not None and (depth := row.published.depth) is not None
    ]
    figures = tuple(
        Figure(row.published.title, row.published.method, row.plan.factor / (1 + share),
               row.published.realised or 0.0, "times", row.published.source)
        for row, share in known
    )  # fmt: skip
    details = _realised_table(known, figures) + "\n" + _spellings_table(costs)
    seconds = f"{costs.padded['once'].seconds:.3f}"
    about = _ABOUT_REALISED.format(system=system, seconds=seconds, depth=costs.depth)
    title = "realised speed-up of packed BERT"
    return [Comparison("packing_realised", title, about, figures, Bars(0.10), details)], ()


def _realised_table(known: Sequence[tuple[PackedRow, float]], figures: Sequence[Figure]) -> str:
    lines = ["| | factor | overhead | realised | published overhead | published |", "|---|--:|--:|--:|--:|--:|"]
    for (row, share), figure in zip(known, figures, strict=True):
        published = row.published.overhead or 0.0
        lines.append(
            f"| {row.published.title} | {row.plan.factor:.3f} | {share:.2%} | "
            f"{figure.predicted:.3f} | {published:.2%} | {figure.reference:.3f} |"
        )
    return "\n".join(lines) + "\n"


def _spellings_table(costs: PackCosts) -> str:
    """Table of the costs of each way to write a mask, at the depth that was compiled whole."""
    heads = (f"depth {costs.depth}", "overhead", "masks made", "masks added", "losses by sequence")
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    for masks, title in _SPELLED.items():
        cost = costs.packed[masks]
        shares = (costs.overhead(costs.depth, masks), *(p / cost.others for p in cost.parts))
        lines.append(f"| {title} | " + " | ".join(f"{share:.2%}" for share in shares) + " |")
    return "\n".join(lines) + "\n"


_SPELLED = {
    "once": "made once by each stage, added where scores are scaled",
    "layers": "made in each layer, added in a pass of its own",
    "listing": "the published listing, operation by operation",
}


def unpadding(histogram: SizeHistogram) -> Comparison:
    """Speed-up of un-padding by numbers of accelerators."""
    figures = tuple(
        Figure(f"{count:,} accelerators, {batch} sequences each", f"{batch} sequences",
               unpadded_speed_up(histogram, 512, count, batch), published, "times", "arXiv 2107.02027, a figure of it")
        for count, published in UNPADDING.items()
        for batch in BATCHES
    )  # fmt: skip
    return Comparison(
        "packing_unpadding", "un-padding, which waits for the fullest accelerator", _ABOUT_UNPADDING, figures
    )


def _table(rows: Sequence[PackedRow], ours: Sequence[tuple[str, int | None, PackingPlan]]) -> str:
    """Strategies, packs, padding, efficiency and factor of each row, then those of column generation with its bound."""
    heads = ("", "strategies", "packs", "bound", "padding tokens", "efficiency", "factor")
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    lines += [_line(_name(row.published), row.plan) for row in rows]
    for column, depth, plan in ours:
        lines.append(_line(_name(PublishedPacking(column, plan.capacity[0], depth, "columns", plan.num_packs)), plan))
    return "\n".join(lines) + "\n"


def _line(name: str, plan: PackingPlan) -> str:
    return (
        f"| {name} | {len(plan.strategies):,} | {plan.num_packs:,} | {plan.bound:,} | {plan.padding:,} | "
        f"{plan.efficiency:.3%} | {plan.factor:.3f} |"
    )


_ABOUT_PACKS = (
    "Packs that each published method makes of the published histogram, by our implementation of it. The table has all "
    "other columns of the published one, and, in its last rows, what column generation finds, by default; its bound is "
    "proven. Plans of other methods have the bound that follows from tokens and from pairs that fit no pack."
)
_ABOUT_REALISED = (
    "Factor over one plus overhead. BERT-Large with 512 tokens, configured as the run of MLPerf on {system} in "
    "replicas of four IPUs, is compiled on padded sequences ({seconds} s for an update) and on packs. Packs have a "
    "mask for each pack instead of one of one row, losses by sequence and a head for every sequence. How deep packs "
    "are changes the head alone, by some masked tokens, and its IPU waits for the others: updates are compiled at "
    "depth {depth} and at the greatest, and each other depth has the overhead of the nearer one. The published "
    "overhead was profiled on an M2000, of a program that is known by its description alone. What packs cost depends "
    "on how their mask is written, so the second table has three ways: ours, which the figures are of; a mask that "
    "each layer makes anew; and the published listing, in which each operation is a pass. There the mask does not lie "
    "as scores do, and each layer puts it into their order, element by element. The last three columns are cycles "
    "over those of all other steps; in the first way the pass that scales scores adds the mask, so none are its own. "
    "Padded rows of the other two add their masks in passes of their own as well."
)
_ABOUT_UNPADDING = (
    "The expected greatest number of tokens on any accelerator, of sequences dealt out at random, computed from the "
    "histogram. How many sequences an accelerator had is not published, so nothing is asked of these; the published "
    "figures lie between those of 16 and of 32. Packs of one length do not wait for each other: their speed-up is the "
    "same on any number."
)
