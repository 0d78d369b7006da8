"""``abele pack``: how sequences of some lengths would be packed, how good that is, and what it brings."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Table
from rich.text import Text

from abele.cli.output import console, print_json
from abele.machine import System, systems
from abele.packing import Method, PackingPlan, SizeHistogram, expected_speed_up, pack, read_lengths
from abele.words import counted

_DEPTHS = (1, 2, 3, 4, 8, 16)
_DEPTH_TOLERANCE = 0.0002
"""Distance from its bound that a row of the depth table may have: two in ten thousand do not show in its figures."""


def pack_command(
    lengths: Annotated[
        Path, typer.Argument(help="Lengths: one a line, length and count, a table, or .npy; - for standard input.")
    ],
    most: Annotated[int, typer.Option("--max", help="Tokens of a pack.")],
    depth: Annotated[int | None, typer.Option(help="The most sequences of a pack; no limit by default.")] = None,
    column: Annotated[str | None, typer.Option(help="The column of a table to read, by name.")] = None,
    method: Annotated[str, typer.Option(help="columns, lpfhp, spfhp or nnlshp.")] = "columns",
    split: Annotated[bool, typer.Option("--split", help="Cut longer sequences into pieces.")] = False,
    system: Annotated[str, typer.Option("--system", help="The machine to train on.")] = "bow-2000",
    overhead: Annotated[
        float | None, typer.Option(help="Percent that packs cost more in a step; published figures by default.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Strategies to print.")] = 8,
    picture: Annotated[Path | None, typer.Option(help="Draw lengths and waste to this PNG.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan packs for sequences of the lengths in LENGTHS: strategies, efficiency, what is lost by depth, speed-up."""
    machine = systems.resolve(system)
    if str(lengths) == "-":
        histogram = read_lengths(sys.stdin.buffer, column=column, name="standard input")
    else:
        histogram = read_lengths(lengths, column=column)
    plan = pack(histogram, most, depth=depth, method=cast(Method, method), too_long="split" if split else "refuse")
    share = None if overhead is None else overhead / 100
    rows = by_depth(plan, machine, share)
    if picture is not None:
        from abele.cli.pack_picture import draw

        draw(plan, [(row.name, row.plan) for row in rows], picture)
    if json:
        print_json(as_json(plan, rows, machine, share, top))
    else:
        show(plan, rows, machine, share, top)


@dataclass(frozen=True)
class DepthRow:
    """A depth, what is lost at it, and what it brings."""

    depth: int | None
    plan: PackingPlan
    speed_up: float

    @property
    def name(self) -> str:
        """The depth in words."""
        return "no limit" if self.depth is None else str(self.depth)


def by_depth(plan: PackingPlan, machine: System, overhead: float | None) -> list[DepthRow]:
    """The same items at other depths, up to the one that limits nothing more."""
    histogram, capacity = plan.histogram, plan.capacity[0]
    deepest = min(capacity // int(histogram.lengths[0]), histogram.num_items)
    depths: list[int | None] = [depth for depth in sorted({*_DEPTHS, plan.depth or 1}) if depth < deepest]
    rows: list[DepthRow] = []
    for depth in [*depths, None]:
        same = depth == plan.depth or (depth is None and (plan.depth or 0) >= deepest)
        found = plan if same else _at_depth(histogram, capacity, depth, rows[-1].plan if rows else None)
        # One sequence in each pack is what there is without packing.
        brought = 1.0 if depth == 1 else expected_speed_up(found, machine.title, overhead=overhead).speed_up
        rows.append(DepthRow(depth, found, brought))
    return rows


def _at_depth(histogram: SizeHistogram, capacity: int, depth: int | None, before: PackingPlan | None) -> PackingPlan:
    """A plan near the bound of a depth; the one of the depth ``before`` is one too, and kept where it is as good."""
    found = pack(histogram, capacity, depth=depth, method="lpfhp")
    if before is not None and before.num_packs <= found.bound * (1 + _DEPTH_TOLERANCE):
        return replace(before, bound=found.bound)
    found = pack(histogram, capacity, depth=depth, tolerance=_DEPTH_TOLERANCE, like=before)
    if before is not None and before.num_packs < found.num_packs:
        return replace(before, bound=found.bound)
    return found


def as_json(
    plan: PackingPlan, rows: list[DepthRow], machine: System, overhead: float | None, top: int
) -> dict[str, Any]:
    """The result as JSON, for programs."""
    expected = expected_speed_up(plan, machine.title, overhead=overhead)
    return {
        **_figures(plan),
        "method": plan.method,
        "capacity": plan.capacity[0],
        "depth": plan.depth,
        "num_sequences": plan.num_items,
        "num_tokens": int(plan.histogram.totals[0]),
        "num_strategies": len(plan.counts),
        "strategies": [{"lengths": lengths, "packs": count} for lengths, count in _strategies(plan, top)],
        "system": machine.name,
        "speed_up": expected.speed_up,
        "overhead_proportion": expected.overhead,
        "overhead_source": expected.source,
        "by_depth": [{"depth": row.depth, **_figures(row.plan), "speed_up": row.speed_up} for row in rows],
    }


def _figures(plan: PackingPlan) -> dict[str, Any]:
    return {
        "num_packs": plan.num_packs,
        "bound": plan.bound,
        "efficiency": plan.efficiency,
        "factor": plan.factor,
        "padding_tokens": plan.padding,
    }


def _strategies(plan: PackingPlan, top: int) -> list[tuple[list[int], int]]:
    lengths = plan.histogram.lengths
    return [
        (lengths[members].tolist(), count)
        for members, count, _ in zip(plan.strategies, plan.counts.tolist(), range(top), strict=False)
    ]


def show(plan: PackingPlan, rows: list[DepthRow], machine: System, overhead: float | None, top: int) -> None:
    """Print a plan for people."""
    out = console()
    noun = "piece" if plan.splits else "sequence"
    limit = "" if plan.depth is None else f", at most {plan.depth:,} in a pack"
    out.print(
        Text(f"{counted(plan.num_items, noun)} in packs of {plan.capacity[0]:,} tokens{limit}: {plan.method}", "bold")
    )
    expected = expected_speed_up(plan, machine.title, overhead=overhead)
    above = "none has fewer" if not plan.gap else f"{plan.gap:,} above the proven bound of {plan.bound:,}"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    grid.add_row("packs", f"{plan.num_packs:,}, {above}")
    grid.add_row("efficiency", f"{plan.efficiency:.3%}, {plan.padding:,} tokens of padding")
    grid.add_row("factor", f"{plan.factor:.3f} {noun}s per pack")
    grid.add_row("speed-up", f"{expected.speed_up:.3f} expected on {machine.title}")
    grid.add_row("overhead", f"{expected.overhead:.3%}, {expected.source}")
    out.print(grid)
    out.print()
    out.print(_strategy_table(plan, top))
    out.print()
    out.print(_depth_table(rows, plan.depth))


def _strategy_table(plan: PackingPlan, top: int) -> Table:
    shown = min(top, len(plan.counts))
    table = Table(
        title=f"strategies, {shown} of {len(plan.counts):,}", title_justify="left", box=None, padding=(0, 2, 0, 0)
    )
    table.add_column("packs", justify="right")
    table.add_column("of all", justify="right")
    table.add_column("lengths", overflow="fold")
    for lengths, count in _strategies(plan, top):
        table.add_row(f"{count:,}", f"{count / plan.num_packs:.2%}", _lengths_text(lengths))
    return table


def _lengths_text(lengths: list[int]) -> str:
    """``201 + 160 + 23``, a length that is there over and over as ``12 × 40``."""
    times = Counter(lengths)
    return " + ".join(f"{count} × {length:,}" if count > 1 else f"{length:,}" for length, count in times.items())


def _depth_table(rows: list[DepthRow], chosen: int | None) -> Table:
    table = Table(title="what is lost by depth", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("depth", "packs", "bound", "padding", "efficiency", "factor", "speed-up"):
        table.add_column(heading, justify="right")
    for row in rows:
        plan = row.plan
        whole = (f"{number:,}" for number in (plan.num_packs, plan.bound, plan.padding))
        cells = (row.name, *whole, f"{plan.efficiency:.2%}", f"{plan.factor:.3f}", f"{row.speed_up:.3f}")
        table.add_row(*cells, style="bold" if row.depth == chosen else "")
    return table
