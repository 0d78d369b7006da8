"""Data that one step moves, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int64
from abele.compiler.lower import Step
from abele.compiler.nodes.lookup import meaning_of
from abele.compiler.reasons import Reason, reasons_of
from abele.compiler.superstep import Exchanged, Superstep
from abele.compiler.text.program import step_text
from abele.compiler.text.words import bounded
from abele.compiler.uses import field_uses
from abele.graph.program import Execute
from abele.words import counted, tiles_text

if TYPE_CHECKING:
    from abele.compiler.executable import Executable

_BUSIEST = 2


def plan_text(executable: Executable, step: Step | int, *, most: int = 60) -> str:
    """The data movement of one step: its phases, the busiest tiles, and each field's pieces with where they come from.

    Args:
        executable: The compiled program.
        step: The step, or its index.
        most: Lines; what is beyond is counted.
    """
    found = executable.steps[step] if isinstance(step, int) else step
    return "\n".join(bounded(_lines(executable, found), most))


def _lines(executable: Executable, step: Step) -> Iterator[str]:
    superstep = executable.plan[step.superstep]
    yield f"step {step.index} {step.name!r}: {step_text(step.node)}"
    yield from phase_lines(superstep)
    yield from meaning_of(step.node).why(step.node)
    if isinstance(step.node, Execute):
        for reason in reasons_of(field_uses(step.node.compute_set.groups), executable.layout):
            yield reason_text(reason)
            yield from _piece_lines(executable, reason)


def phase_lines(superstep: Superstep) -> Iterator[str]:
    """The exchanges and copies of a superstep, one per line."""
    found = False
    for phase, what in ((superstep.before, "exchange before"), (superstep.after, "exchange after")):
        if phase is not None:
            found = True
            yield f"  {what}: {_phase_text(phase)}"
    for copied, what in ((superstep.gather, "copies before"), (superstep.scatter, "copies after")):
        if copied is not None:
            found = True
            slowest = copied.by_tile.max()
            tiles = tiles_text(copied.by_tile.nonzero())
            yield f"  {what}: {copied.bytes:,} B in {counted(copied.pieces, 'piece')} on {tiles}; {slowest:,} cycles"
    if superstep.host_bytes:
        found = True
        yield f"  outside the chip: {superstep.host_bytes:,} B; {superstep.host_cycles:,} cycles"
    if not found:
        yield "  nothing moves"


def _phase_text(phase: Exchanged) -> str:
    received = phase.received_bytes
    most = ", ".join(f"tile {tile} {size:,} B" for tile, size in received.largest(_BUSIEST))
    size = f"{phase.bytes:,} B in {counted(phase.fragments, 'piece')}"
    return f"{size} to {tiles_text(received.nonzero())}; {phase.cycles:,} cycles; most: {most}"


def reason_text(reason: Reason) -> str:
    """Why a field moves data, with one tile as an example."""
    tile = int(reason.tiles[0])
    example = reason.of_tile(tile)
    if reason.outward:
        how = "scattered to" if reason.is_arranged else "sent to"
    else:
        how = "gathered from" if reason.is_arranged else "received from"
    pieces = counted(len(example.length), "piece")
    line = f"  vertex {reason.field} on tile {tile}: {pieces} {how} {tiles_text(example.holder)}"
    if len(reason.tiles) == 1:
        return f"{line}, {reason.bytes:,} B"
    return f"{line}; so on {tiles_text(reason.tiles)}, {reason.bytes:,} B"


def _piece_lines(executable: Executable, reason: Reason) -> Iterator[str]:
    pieces = reason.pieces
    packed, _ = executable.layout.all_packed
    order, by_packed = np.argsort(pieces.needer, kind="stable")[:_SHOWN], np.argsort(packed)
    arrow = "→" if reason.outward else "←"
    for at in order:
        begin, length = int(pieces.begin[at]), int(pieces.length[at])
        what = _elements(executable, packed, by_packed, begin, length)
        yield (
            f"    tile {int(pieces.needer[at]):>5} {arrow} tile {int(pieces.holder[at]):>5}  {what:<40} "
            f"{length * reason.width:>9,} B"
        )
    if len(pieces.begin) > _SHOWN:
        yield f"    … {len(pieces.begin) - _SHOWN:,} more pieces"


_SHOWN = 12


def _elements(executable: Executable, packed: Int64, order: Int64, address: int, length: int) -> str:
    """Elements of a variable by the packed address of the first; ``order`` sorts the pieces' packed addresses."""
    layout = executable.layout
    piece = int(order[np.searchsorted(packed[order], address, side="right") - 1])
    begin = int(layout.begin[piece]) + address - int(packed[piece])
    variable, element = executable.graph.locate(begin)
    last = min(length, int(layout.end[piece]) - begin)
    more = " and on" if last < length else ""
    return f"{variable.name}[{element}:{element + last}){more}"
