"""Data on its way: exchanges between tiles and replicas, and data that is put in order on tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from abele.report.insights.model import Cost, Lever
from abele.report.insights.op_groups import OpGroup
from abele.report.insights.program_steps import ProgramSteps
from abele.report.text import bytes_text, count_text, percent_text
from abele.words import counted

_FOLLOWED = 32
"""Most steps of a group of operations whose tiles are examined: the most expensive ones."""
_WORTH = 0.02
"""Part of the cost below which a lever is not listed."""
_WORDS = 0.5
"""Part of an exchange's cycles that words must take for it to be bound by its busiest tile."""


class Busiest(NamedTuple):
    """The busiest tile of one exchange step.

    Attributes:
        tile: The tile.
        receives: True if it is busy with receiving, False with sending.
        bytes: Bytes that it receives or sends.
        mean_bytes: Mean of that over the tiles.
        words_cycles: Cycles that its words take.
        even_cycles: Cycles that words would take if they were dealt evenly, and the other direction stayed.
    """

    tile: int
    receives: bool
    bytes: int
    mean_bytes: float
    words_cycles: float
    even_cycles: float


def busiest_of(steps: ProgramSteps, at: int) -> Busiest | None:
    """Busiest tile of a step; None where the report does not hold the work of each tile."""
    rate, runs = tile_bytes_per_cycle(steps), steps.tile_runs(int(steps.rows[at]))
    sent, received = (runs[name].astype(np.int64) for name in ("sent_bytes", "received_bytes"))
    if not rate or int(max(sent.max(initial=0), received.max(initial=0))) <= 0:
        return None
    receives = bool(received.max() >= sent.max())
    mine, other = (received, sent) if receives else (sent, received)
    mean = float(np.dot(mine, runs["num_tiles"])) / max(int(steps.tiles[at]), 1)
    limit = float(steps.column("exchange_cycles")[at])
    # What two tiles of a pair both want arrives faster, so that words never take more than the phase did.
    words = min(float(mine.max()) / rate, limit)
    even = min(max(mean, float(other.max())) / rate, words)
    tile = int(runs["first_tile"][int(np.argmax(mine))])
    return Busiest(tile, receives, int(mine.max()), mean, words, even)


def tile_bytes_per_cycle(steps: ProgramSteps) -> float:
    """Bytes that a tile exchanges in a cycle: the machine's peak by tiles and clock; 0 where the report lacks it."""
    target = steps.report.target
    tiles, clock = float(target.get("num_tiles", 0)), float(target.get("clock_hz", 0))
    of_all = float(target.get("num_ipus", 1)) * float(target.get("tiles_per_ipu", tiles) or tiles)
    return float(target.get("exchange_bytes_per_second", 0)) / (of_all * clock) if of_all and clock else 0.0


def exchange_cost(group: OpGroup) -> Cost:
    """Cost of the exchanges of some operations, with levers."""
    steps = group.steps
    looked_at = [(at, busiest_of(steps, at)) for at in group.at[:_FOLLOWED].tolist()]
    gain = sum(float(steps.times[at]) * (b.words_cycles - b.even_cycles) for at, b in looked_at if b is not None)
    found = looked_at[0][1]
    levers = []
    if found is not None and gain >= _WORTH * group.total:
        side = "what arrives" if found.receives else "what is sent"
        levers.append(
            Lever(
                f"spread {side} over more tiles",
                gain_cycles=steps.at_most(gain, group.worst_row),
                assumption="as many bytes in all, dealt evenly over the tiles, "
                f"at {tile_bytes_per_cycle(steps):g} B a cycle for each",
                at_most=True,
            )
        )
    if group.kind in ("compute set", "copy"):
        levers.append(
            Lever(
                "map what computes where the data lies",
                gain_cycles=steps.at_most(group.total, group.worst_row),
                assumption="nothing needs to move any more; what moves less costs in proportion at best",
                at_most=True,
            )
        )
    elif group.kind.startswith("poplin."):
        levers.append(
            Lever(
                "another plan: a higher availableMemoryProportion",
                assumption="where memory leaves the planner more room",
            )
        )
    return Cost(
        kind="exchange",
        title=f"exchange of {group.title}",
        reason=_reason(group, found),
        where=group.where,
        op=group.op,
        step=group.worst_row,
        cycles=group.total,
        bytes=moved_bytes(group),
        share=group.share,
        levers=tuple(levers),
        view="exchange",
        select={"op": group.op, "step": group.worst_row, **({} if found is None else {"tile": found.tile})},
    )


def moved_bytes(group: OpGroup) -> int:
    """Bytes that the steps of a group move in a run."""
    steps = group.steps
    return int((steps.executions * steps.column("exchanged_bytes"))[group.at].sum())


def _reason(group: OpGroup, found: Busiest | None) -> str:
    steps, at = group.steps, group.worst
    cycles = float(steps.column("exchange_cycles")[at])
    if found is None:
        most = int(steps.column("max_receive_bytes")[at])
        return f"its busiest tile receives {bytes_text(most)} in {count_text(cycles)} cycles"
    verb = "receives" if found.receives else "sends"
    if found.words_cycles < _WORDS * cycles:
        crosses = len(steps.report.groups_of(group.worst_row)) > 1
        why = "links between IPUs" if crosses else "starting the exchange, and many small pieces"
        part = f"{percent_text(found.words_cycles / cycles)} of {count_text(cycles)} cycles"
        return f"its busiest tile {verb} no more than {bytes_text(found.bytes)}, {part}: the rest is {why}"
    return (
        f"tile {found.tile:,} {verb} {bytes_text(found.bytes)}, {count_text(found.words_cycles)} of "
        f"{count_text(cycles)} cycles; the mean tile {verb} {bytes_text(found.mean_bytes)}"
    )


def arrange_cost(group: OpGroup) -> Cost:
    """Cost of putting data in order on tiles for some operations, with levers."""
    steps = group.steps
    times = float(steps.times[group.at].sum())
    anew = bool(steps.is_written_anew[group.worst])
    what = "operands or results are written anew in the order of their reader" if anew else "pieces are put together"
    tiles = int(steps.active_tiles[group.worst])
    return Cost(
        kind="arrange",
        title=f"rearrangement in {group.title}",
        reason=f"{what} on {counted(tiles, 'tile')}; {count_text(times)} such steps in a run",
        where=group.where,
        op=group.op,
        step=group.worst_row,
        cycles=group.total,
        share=group.share,
        levers=tuple(_order_levers(group)),
        view="operations",
        select={"op": group.op, "step": group.worst_row},
    )


def _order_levers(group: OpGroup) -> Iterator[Lever]:
    """Levers that make data come in order. Inside of library calls only rewritten operands depend on the caller."""
    steps = group.steps
    own = group.kind in ("compute set", "copy")
    written = np.unique(steps.column("superstep")[group.mask & steps.is_written_anew])
    around = group.mask & np.isin(steps.column("superstep"), written[written >= 0])
    gain = group.total if own else float((steps.times * steps.column("cycles"))[around].sum())
    if gain:
        yield Lever(
            "lay the data out as its reader wants it" + ("" if own else ", as the library's create functions do"),
            gain_cycles=steps.at_most(gain, group.worst_row),
            assumption="no other reader or writer wants it otherwise; with the exchange and barriers for it",
            at_most=own,
        )
    if group.kind.startswith("poplin."):
        yield Lever("another plan: another availableMemoryProportion", assumption="where a plan that moves less exists")


def replicas_cost(group: OpGroup) -> Cost:
    """Cost of exchanges between replicas."""
    return Cost(
        kind="replicas",
        title=f"exchange between replicas in {group.title}",
        reason=f"{counted(int(group.steps.report.target.get('num_replicas', 1)), 'replica')} exchange "
        f"{bytes_text(moved_bytes(group))} in a run",
        where=group.where,
        op=group.op,
        step=group.worst_row,
        cycles=group.total,
        bytes=moved_bytes(group),
        share=group.share,
        levers=(
            Lever("more micro-batches for each update", assumption="gradients are exchanged once for each update"),
            Lever("gradients in half precision", assumption="where they are f32", changes_numbers=True),
        ),
        view="timeline",
        select={"op": group.op, "step": group.worst_row},
    )
