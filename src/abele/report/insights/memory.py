"""Memory of the fullest tile: its contents, the excess, and levers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from abele.report.code import CODE
from abele.report.insights.model import Cost, FullestTile, Lever, SourceLine
from abele.report.insights.program_steps import ProgramSteps, source_line, text_at
from abele.report.insights.tile_contents import TileContents
from abele.report.text import bytes_text, percent_text
from abele.words import counted, visible

if TYPE_CHECKING:
    from abele.report.memory_use import HeldVariable, MemoryUse
    from abele.report.report import Report

_LISTED = 8
_LONG = 0.25
"""Part of the steps from which on a lifetime is long: something kept for a later reader, as activations are."""
_WORTH = 0.02
_SHARDED = ("weight", "optimiser state")
"""Roles of variables that are equal on all replicas, so that these may share them."""
_DATA = ("host handle", "initial data", "kept")
"""Other roles of variables that may be fetched when they are needed."""
_CODE = {
    "exchange_code": (
        "exchange code",
        "each exchange of a tile is a piece of code for as many instructions as it has pieces",
        "less exchange code: data in fewer pieces, and one Function called several times instead of copies of it",
    ),
    "vertex_code": ("vertex code", "each codelet that a tile uses lies on it", "fewer distinct codelets on this tile"),
    "control_code": (
        "control code",
        "each step of the program that the tile takes part in is code",
        "loops and Functions instead of steps written out",
    ),
    "vertex_state": (
        "vertex state",
        "each vertex of the tile has its fields",
        "fewer, larger vertices on this tile, or over more tiles",
    ),
    "stream_buffers": ("stream buffers", "data on its way to or from the host", "smaller batches for each transfer"),
    "stacks": ("stacks", "each worker and the supervisor has one", ""),
    "gaps": ("gaps", "alignment and memory regions leave bytes unused", ""),
}
"""Categories that are no variables: name, reason, and lever."""


def memory_costs(report: Report, count: int) -> list[Cost]:
    """Costs of the fullest tile's contents, the largest first."""
    memory = report.memory
    if not memory.num_tiles or not memory.total_bytes:
        return []
    tile = memory.fullest_tile
    found, use = TileContents(report, tile), report.memory_use(tile)
    costs = [_variable_cost(report, found, held) for held in use.variables[:count] if held.bytes]
    if found.moving_bytes:
        costs.append(_moving_cost(report, found))
    for name, size in memory.of_tile(tile).items():
        if name in _CODE and size:
            costs.append(_code_cost(report, use, name, size))
    return sorted(costs, key=lambda cost: -cost.bytes)[:count]


def _code_cost(report: Report, use: MemoryUse, category: str, size: int) -> Cost:
    """Cost of a category other than variables on a tile, and the operation that most of it is for."""
    title, reason, lever = _CODE[category]
    levers = (Lever(lever, assumption="how much depends on the program"),) if lever else ()
    largest = use.largest(category) if category in CODE else ()
    if not largest:
        return _cost(report, use.tile, title, reason, size, levers)
    most = largest[0]
    reason += f"; most is that of {most.operation}, {bytes_text(getattr(most, category))}"
    return replace(_cost(report, use.tile, title, reason, size, levers), where=source_line(report.ops, most.op))


def overfull_cost(steps: ProgramSteps, fullest: FullestTile, contents: list[Cost]) -> Cost | None:
    """Cost of a program that does not fit, and the bytes to remove; None where it fits."""
    if fullest.fits:
        return None
    report, memory = steps.report, steps.report.memory
    even = memory.total_bytes / max(memory.num_tiles, 1)
    levers = [lever for cost in contents for lever in cost.levers if lever.gain_bytes]
    if even > memory.available_bytes:
        ipus = int(report.target.get("num_ipus", 1))
        needed = math.ceil(ipus * even / max(memory.available_bytes, 1))
        levers.insert(
            0, Lever(f"at least {counted(needed, 'IPU')}", assumption="all bytes dealt evenly over the tiles")
        )
    biggest = contents[0] if contents else None
    most = f"; most on it is {biggest.title} with {bytes_text(biggest.bytes)}" if biggest else ""
    spread = "evenly dealt it would fit" if even <= memory.available_bytes else "even evenly dealt it would not fit"
    return Cost(
        kind="memory",
        title="does not fit",
        reason=f"tile {fullest.tile:,} holds {bytes_text(fullest.bytes)} of {bytes_text(fullest.available_bytes)}: "
        f"{bytes_text(fullest.largest_excess_bytes)} have to go, and {counted(fullest.tiles_too_full, 'tile')} "
        f"{'is' if fullest.tiles_too_full == 1 else 'are'} too full{most}; {spread}",
        where=biggest.where if biggest else None,
        op=biggest.op if biggest else -1,
        step=biggest.step if biggest else -1,
        bytes=fullest.bytes,
        share=fullest.bytes / max(fullest.available_bytes, 1),
        levers=tuple(levers[:_LISTED]),
        view="memory",
        select={"tile": fullest.tile},
    )


def headroom_cost(fullest: FullestTile, contents: list[Cost]) -> Cost | None:
    """That the fullest tile has little room left; None where it has, or too little."""
    if not fullest.fits or fullest.available_bytes <= 0 or fullest.headroom_bytes > 0.1 * fullest.available_bytes:
        return None
    levers = [lever for cost in contents for lever in cost.levers if lever.gain_bytes]
    return Cost(
        kind="memory",
        title="little room on the fullest tile",
        reason=f"tile {fullest.tile:,} holds {bytes_text(fullest.bytes)} of {bytes_text(fullest.available_bytes)}, "
        f"{bytes_text(fullest.headroom_bytes)} are left; the mean tile holds {bytes_text(fullest.mean_bytes)}",
        where=contents[0].where if contents else None,
        bytes=fullest.bytes,
        share=fullest.bytes / fullest.available_bytes,
        levers=tuple(levers[:_LISTED]),
        view="memory",
        select={"tile": fullest.tile},
    )


def _cost(
    report: Report,
    tile: int,
    title: str,
    reason: str,
    size: int,
    levers: tuple[Lever, ...],
    *,
    select: Mapping[str, int] = MappingProxyType({}),
    step: int = -1,
    where: SourceLine | None = None,
) -> Cost:
    steps = ProgramSteps(report, int(report.steps["program"][step]) if step >= 0 else 0)
    op = int(report.steps["op"][step]) if step >= 0 else -1
    return Cost(
        kind="memory",
        title=title,
        reason=reason,
        where=where or steps.place_of(op),
        op=op,
        step=step,
        bytes=size,
        share=size / max(report.memory.available_bytes, 1),
        levers=levers,
        view="memory" if "variable" not in select else "liveness",
        select={"tile": tile, **select},
    )


def _variable_cost(report: Report, found: TileContents, held: HeldVariable) -> Cost:
    row, size = held.variable, held.bytes
    variables, tiles = report.variables, max(report.memory.num_tiles, 1)
    name, type_, total = text_at(variables, "name", row), text_at(variables, "type", row), int(variables["bytes"][row])
    always, on_tiles = bool(variables["always_live"][row]), int(variables["tiles"][row])
    levers = []
    # Spread: the tile has much more than an even share.
    if size - total / tiles > _WORTH * size:
        levers.append(
            Lever(
                f"spread {visible(name)} over all {counted(tiles, 'tile')}: it lies on {on_tiles:,}",
                gain_bytes=int(size - math.ceil(total / tiles)),
                assumption="it is dealt evenly over all tiles",
                at_most=True,
            )
        )
    # Recompute: the value is live over a large part of the program, though not always.
    first, last = int(variables["first_step"][row]), int(variables["last_step"][row])
    long_lived = not always and last - first > _LONG * max(len(report.steps), 1)
    if long_lived:
        levers.append(
            Lever(
                f"recompute {visible(name)} where it is read, or keep it in streaming memory",
                gain_bytes=size,
                assumption="it is not live at the peak any more, and what it is recomputed from is there anyway",
                at_most=True,
            )
        )
    # Shard or move out: state that all replicas hold, or data that could wait off the chip.
    role = text_at(variables, "role", row)
    replicas = int(report.target.get("num_replicas", 1))
    if always and role in _SHARDED and replicas > 1:
        levers.append(
            Lever(
                f"shard {visible(name)} over {counted(replicas, 'replica')} (replicated tensor sharding)",
                gain_bytes=size - math.ceil(size / replicas),
                assumption="each replica keeps its part, and what is gathered is gone at the peak; it costs cycles",
                at_most=True,
            )
        )
    if always and role in ("", *_SHARDED, *_DATA):
        levers.append(
            Lever(
                f"keep {visible(name)} in streaming memory",
                gain_bytes=size,
                assumption="it is not on chip at the peak; fetching it costs cycles",
                at_most=True,
            )
        )
    # Narrow: half the bytes, but other results.
    if type_ == "f32":
        levers.append(
            Lever(
                f"{visible(name)} in f16", gain_bytes=size // 2, assumption="half as many bytes", changes_numbers=True
            )
        )
    life = "always live" if always else f"live when the tile is fullest: {held.why}"
    whole = f"{bytes_text(total)} over {counted(on_tiles, 'tile')}"
    reason = f"{bytes_text(size)} of its {whole} lie on the fullest tile, {life}"
    return _cost(
        report,
        found.tile,
        f"variable {visible(name)}",
        reason,
        size,
        tuple(levers),
        select={"variable": row},
        step=max(first, -1),
        where=source_line(variables, row),
    )


def _moving_cost(report: Report, found: TileContents) -> Cost:
    step = found.peak_step
    op = int(report.steps["op"][step])
    kind = text_at(report.ops, "kind", op) if op >= 0 else ""
    title = visible(text_at(report.steps, "name", step))
    levers = (
        (Lever("a lower availableMemoryProportion", assumption="the planner then splits its products further"),)
        if kind.startswith("poplin.")
        else (Lever("in several parts one after the other", assumption="where its parts do not need each other"),)
    )
    reason = f"what arrives or is put in order for {title}, when the tile is fullest"
    share = found.moving_bytes / max(report.memory.available_bytes, 1)
    reason += f" ({percent_text(share)} of the tile)"
    size = found.moving_bytes
    return _cost(report, found.tile, "data in motion", reason, size, levers, select={"step": step}, step=step)
