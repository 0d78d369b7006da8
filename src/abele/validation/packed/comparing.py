"""The tables of packing beside ours: packs of published sets, realised speed-up, and un-padding."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.progress import track

from abele.packing import PackingPlan, SizeHistogram, pack
from abele.validation.figures import Bars, Comparison, Figure
from abele.validation.packed.costs import PackCosts, PackRuns
from abele.validation.packed.lengths import histogram_of, read_histograms
from abele.validation.packed.published import (
    GLUE_ROWS,
    SQUAD_ROWS,
    UNPADDING,
    WIKIPEDIA,
    WIKIPEDIA_ROWS,
    PublishedPacking,
)
from abele.validation.packed.runs import padded_run
from abele.validation.packed.unpadding import unpadded_speed_up

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
