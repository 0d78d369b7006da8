"""Fit: the error for a tile that is too full, with its contents and levers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Int64
from abele.compiler.lower import Step
from abele.compiler.memory import MemoryPlan
from abele.compiler.tile_vector import TileVector
from abele.errors import OutOfMemoryError
from abele.graph.graph import Graph
from abele.machine import System
from abele.words import counted

CANNOT_FIT = "Out of memory: Cannot fit all variable data onto one or more tiles"
"""Poplar's words, so that a search finds both."""
_WORST = 8
_LARGEST = 3


def check_fit(plan: MemoryPlan, graph: Graph, steps: Sequence[Step]) -> None:
    """Check that every tile has room for its data, and that its code lies where instructions can be fetched.

    Raises:
        OutOfMemoryError: Some tile needs more; the worst are described.

    Model: a program fits if the addresses of the fullest kinds of tiles do. Where all variables fit beside each other,
    none are looked for.
    """
    tile_memory = graph.system.ipu.tile
    if bool((plan.demands.alignment_bytes > 0).any()) or plan.demands.interleaved.any() or len(plan.demands.apart):
        is_surely_in = False
    else:
        is_surely_in = plan.unshared.max() <= plan.available_bytes
    if is_surely_in or plan.total.max() <= plan.available_bytes:
        _check_region(plan, graph, plan.code, tile_memory.executable_bytes, _CODE)
        _check_region(plan, graph, plan.interleaved, tile_memory.interleaved_bytes, _INTERLEAVED)
        if not is_surely_in:
            _check_addresses(plan, graph)
        return
    total = plan.total_bytes
    tile = int(total.argmax())
    over = int(total[tile]) - plan.available_bytes
    full = int((total > plan.available_bytes).sum())
    raise OutOfMemoryError(
        f"{CANNOT_FIT}: {_tile_name(tile, graph.system)} needs {int(total[tile]):,} B, has {plan.available_bytes:,} B "
        f"({over:,} B too much); {full:,} of {counted(len(total), 'tile')} are too full",
        tiles=_payload(plan, total),
        at=_where(plan, steps, tile),
        because=_because(plan, graph, tile),
        remedy=_remedy(plan, graph, tile),
    )


def _check_addresses(plan: MemoryPlan, graph: Graph) -> None:
    """Check that what must lie in interleaved memory leaves no tile's data beyond the end of its memory."""
    for placed in plan.addresses:
        if placed.top > plan.available_bytes:
            tile = int(placed.tiles[0])
            raise OutOfMemoryError(
                f"{CANNOT_FIT}: data of {_tile_name(tile, graph.system)} ends at {placed.top:,} B of "
                f"{plan.available_bytes:,} B",
                tiles=_payload(plan, np.where(np.arange(plan.num_tiles) == tile, placed.top, 0)),
                because=f"{int(plan.interleaved[tile]):,} B must lie in interleaved memory, which begins at "
                f"{plan.memory.plain_bytes:,} B",
                remedy="drop requests for interleaved memory, or spread the variables over more tiles",
            )


_CODE = (
    "of code, but instructions run only from the first {:,} B",
    "use fewer distinct codelets on this tile · Call a Function instead of repeating steps",
)
_INTERLEAVED = (
    "of interleaved memory, has {:,} B",
    "spread the variables that vertices want interleaved over more tiles",
)


def _check_region(plan: MemoryPlan, graph: Graph, held: TileVector, room: int, words: tuple[str, str]) -> None:
    """Check that a part of each tile's memory holds the data that can lie only there."""
    if held.max() <= room:
        return
    needed = held.dense()
    tile, (what, remedy) = int(needed.argmax()), words
    raise OutOfMemoryError(
        f"Out of memory: {_tile_name(tile, graph.system)} needs {int(needed[tile]):,} B {what.format(room)}",
        tiles=_payload(plan, needed),
        because=_because(plan, graph, tile),
        remedy=remedy,
    )


def largest_variables(
    plan: MemoryPlan, tile: int, *, temporary: bool, count: int | None = _LARGEST
) -> list[tuple[int, int]]:
    """Variables that take most of a tile, as (position in the graph, bytes), largest first.

    Args:
        plan: The memory plan.
        tile: The tile.
        temporary: Those live at the tile's peak, instead of those that always live.
        count: Number of variables; None for all.
    """
    held = plan.liveness.always_live
    if temporary:
        held = np.zeros_like(held)
        step = int(plan.peak_steps[tile])
        if step >= 0:
            held[plan.liveness.candidates[plan.liveness.at(step)]] = True
    here = np.flatnonzero((plan.shares.tile == tile) & held[plan.shares.variable])
    order = here[np.argsort(-plan.shares.bytes[here], kind="stable")][:count]
    return [(int(plan.shares.variable[i]), int(plan.shares.bytes[i])) for i in order]


def _tile_name(tile: int, system: System) -> str:
    return f"tile {tile % system.ipu.num_tiles} of IPU {tile // system.ipu.num_tiles}"


def _payload(plan: MemoryPlan, amount: Int64) -> tuple[dict[str, int], ...]:
    worst = np.argsort(-amount, kind="stable")[:_WORST]
    total = plan.total_bytes
    return tuple(
        {
            "tile": int(t),
            "needed_bytes": int(total[t]),
            "available_bytes": plan.available_bytes,
            **{name: values[t] for name, values in plan.categories.items()},
        }
        for t in worst
        if amount[t]
    )


def _where(plan: MemoryPlan, steps: Sequence[Step], tile: int) -> str | None:
    step = int(plan.peak_steps[tile])
    if step < 0 or int(plan.categories["temporaries"][tile]) == 0:
        return None
    node = steps[step].node
    place = f"; {node.debug.location}" if node.debug.file else ""
    return f"{steps[step].name} (program step {step}{place})"


def _because(plan: MemoryPlan, graph: Graph, tile: int) -> str:
    parts = []
    names = sorted(plan.categories, key=lambda c: -int(plan.categories[c][tile]))
    for name in names:
        amount = int(plan.categories[name][tile])
        if amount:
            parts.append(f"{_LABELS.get(name, name.replace('_', ' '))} {amount:,} B{_inside(plan, graph, tile, name)}")
    code, room = int(plan.code[tile]), plan.memory.executable_bytes
    if code > room:
        parts.append(f"code has {code:,} B, but instructions run only from the first {room:,} B")
    return " · ".join(parts)


_LABELS = {"variables": "always-live variables"}


def _inside(plan: MemoryPlan, graph: Graph, tile: int, category: str) -> str:
    if category not in ("variables", "temporaries"):
        return ""
    found = largest_variables(plan, tile, temporary=category == "temporaries")
    inner = ", ".join(f"{graph.variables[v].name} {size:,} B" for v, size in found)
    return f" ({inner})" if inner else ""


def _remedy(plan: MemoryPlan, graph: Graph, tile: int) -> str:
    hints = []
    for temporary in (True, False):
        for number, size in largest_variables(plan, tile, temporary=temporary)[:1]:
            rows = plan.shares.of_variable(number)
            tiles, total = rows.stop - rows.start, int(plan.shares.bytes[rows].sum())
            # Worth saying only for variables on few tiles that fill a good part of each.
            if tiles < graph.num_tiles // 2 and size * 8 > plan.available_bytes:
                name = graph.variables[number].name
                hints.append(f"spread {name} ({total:,} B on {tiles:,} of {graph.num_tiles:,} tiles)")
    if int(plan.categories["temporaries"][tile]) * 4 > plan.available_bytes:
        hints.append("a lower available_memory_proportion · partials in half")
    if int(plan.least_total[tile]) <= plan.available_bytes:
        hints.append("what is live together would fit without gaps: fewer or smaller temporaries leave fewer")
    if int(plan.total_bytes.mean()) * 4 > plan.available_bytes * 3:
        hints.append(f"more IPUs than {graph.system.num_ipus} · a smaller batch")
    hints.append("allow_out_of_memory=True to see the whole report")
    return " · ".join(hints)
