"""The memory of one tile as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from abele.compiler.fit import largest_variables
from abele.compiler.footprint import code_bytes_of
from abele.compiler.text.words import bounded
from abele.errors import TileMappingError
from abele.graph.program import Execute
from abele.words import counted

if TYPE_CHECKING:
    from abele.compiler.executable import Executable

_MOST = 12
"""Variables and codelets shown of each category, the largest first."""


def memory_text(executable: Executable, tile: int, *, most: int = 80) -> str:
    """Memory of a tile: bytes by category, with the variables, the vertices and the codelets behind them.

    Args:
        executable: The compiled program.
        tile: The tile.
        most: Most lines; further ones are counted.

    Raises:
        TileMappingError: There is no such tile.
    """
    num_tiles = executable.graph.num_tiles
    if not 0 <= tile < num_tiles:
        raise TileMappingError(f"there is no tile {tile}: {executable.system.name} has {counted(num_tiles, 'tile')}")
    return "\n".join(bounded(_lines(executable, tile), most))


def _lines(executable: Executable, tile: int) -> Iterator[str]:
    memory, ipu = executable.memory, executable.system.ipu
    used, room = memory.total[tile], memory.available_bytes
    ipu_tile = f"tile {tile % ipu.num_tiles} of IPU {tile // ipu.num_tiles}"
    state = f"{room - used:,} B free" if used <= room else f"{used - room:,} B too much"
    yield f"{ipu_tile}: {used:,} B of {room:,} B ({used / room:.1%}), {state}"
    for name, amounts in memory.categories.items():
        amount = amounts[tile]
        if amount:
            yield f"  {name.replace('_', ' '):<16} {amount:>9,} B{_note(executable, tile, name)}"
            yield from _details(executable, tile, name)
    interleaved = memory.interleaved[tile]
    if interleaved:
        yield f"  of these, {interleaved:,} B must lie in the {ipu.tile.interleaved_bytes:,} B of interleaved memory"
    yield from _addresses(executable, tile)


def _addresses(executable: Executable, tile: int) -> Iterator[str]:
    """Addresses of the data of a tile, ascending; a line that says so where they are not known."""
    found = executable.memory.addresses_of(tile)
    if found is None:
        yield "  addresses are known of the fullest kinds of tiles: of this one, what lives together is added up"
        return
    yield f"  addresses, of {executable.memory.available_bytes:,} B; the highest in use ends at {found.top:,}"
    if found.program_bytes:
        yield f"    {0:>9,} {found.program_bytes:>9,} B  code, state of vertices, stacks, stream buffers"
    order = np.argsort(found.address, kind="stable")
    variables = executable.graph.variables
    for place in order[:_MOST].tolist():
        name = variables[int(found.variable[place])].name
        yield f"    {int(found.address[place]):>9,} {int(found.bytes[place]):>9,} B  {name}"
    if len(order) > _MOST:
        yield f"    and {len(order) - _MOST:,} variables more"
    if len(found.step):
        low, high = int(found.step_address.min()), int((found.step_address + found.step_bytes).max())
        yield f"    {low:>9,} to {high:,}  data in motion, during {counted(len(found.step), 'step')}"


def _note(executable: Executable, tile: int, category: str) -> str:
    memory = executable.memory
    if category == "temporaries":
        step = memory.peak_steps[tile]
        return f"  at step {step} {executable.steps[step].name!r}, where they are most" if step >= 0 else ""
    if category == "vertex_state":
        return f"  {counted(sum(_vertices(executable, tile).values()), 'vertex')}"
    return ""


def _details(executable: Executable, tile: int, category: str) -> Iterator[str]:
    if category in ("variables", "temporaries"):
        found = largest_variables(executable.memory, tile, temporary=category == "temporaries", count=None)
        for number, size in found[:_MOST]:
            yield f"    {executable.graph.variables[number].name:<28} {size:>9,} B"
        if len(found) > _MOST:
            yield f"    {f'{len(found) - _MOST:,} more':<28} {sum(size for _, size in found[_MOST:]):>9,} B"
        peak = executable.memory.categories["temporaries"][tile]
        rest = peak - sum(size for _, size in found)
        if category == "temporaries" and rest > 0:
            yield f"    {'data in motion, padding':<28} {rest:>9,} B"
    elif category == "vertex_state":
        for name, count in list(_vertices(executable, tile).items())[:_MOST]:
            yield f"    {count:,} × {name}"
    elif category == "vertex_code":
        for name, size in sorted(_codelets(executable, tile).items(), key=lambda item: -item[1])[:_MOST]:
            yield f"    {name:<28} {size:>9,} B"


def _vertices(executable: Executable, tile: int) -> dict[str, int]:
    """Vertices of each codelet on a tile, over all compute sets."""
    counts: dict[str, int] = {}
    for superstep in executable.plan:
        if isinstance(superstep.node, Execute):
            for group in superstep.node.compute_set.groups:
                here = int(np.count_nonzero(group.tile == tile))
                if here:
                    counts[group.codelet.name] = counts.get(group.codelet.name, 0) + here
    return counts


def _codelets(executable: Executable, tile: int) -> dict[str, int]:
    """Code of each codelet on a tile."""
    sizes: dict[str, int] = {}
    for superstep in executable.plan:
        if isinstance(superstep.node, Execute):
            for group in superstep.node.compute_set.groups:
                if bool((group.tile == tile).any()):
                    sizes[group.codelet.name] = code_bytes_of(group.codelet)
    return sizes
