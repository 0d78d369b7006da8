"""Text that the debugger shows: steps, the program around them, tensors, tiles and vertices, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.compiler.text.program import step_text
from abele.graph import Execute, Graph, LibraryCall, Program, Steps, Tensor, Variable
from abele.runtime.debugger.walk import Stack
from abele.runtime.supersteps.interpreted import vertex_fields
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.words import counted

_MOST_ROWS = 24


def place_text(step: Program) -> str:
    """Source line of a step: file name and line."""
    debug = step.compute_set.debug if isinstance(step, Execute) else step.debug
    return f"{Path(debug.file).name}:{debug.line}" if debug.file else ""


def listing(program: Program, stack: Stack, at_hand: Program | None) -> Iterator[tuple[str, bool]]:
    """The program as an indented tree, with whether a line is the step at hand; library calls open only around it."""
    open_ = {frame.node for frame in stack}
    seen = False
    for step, depth in _tree(program, 0, open_):
        here = step is at_hand and not seen
        seen = seen or here
        place = place_text(step)
        yield f"{'  ' * depth}{step_text(step)}" + (f"   {place}" if place else ""), here


def listed_steps(program: Program, stack: Stack) -> list[Program]:
    """The steps of :func:`listing`, line by line."""
    return [step for step, _ in _tree(program, 0, {frame.node for frame in stack})]


def first_leaf(step: Program) -> Program:
    """The first step inside that does something itself."""
    while step.children():
        step = step.children()[0]
    return step


def _tree(step: Program, depth: int, open_: set[Program]) -> Iterator[tuple[Program, int]]:
    plain = isinstance(step, Steps)
    if not plain:
        yield step, depth
    if isinstance(step, LibraryCall) and step not in open_:
        return
    for part in step.children():
        yield from _tree(part, depth + (not plain), open_)


def tensor_lines(name: str, tensor: Tensor, values: Array) -> list[str]:
    """Values of a tensor, with a summary."""
    head = f"{name}: {tensor.dtype}{list(tensor.shape)} on {_tiles(tensor)}"
    if values.size > 1 and values.dtype.kind in "fiu":
        finite = values[np.isfinite(values)]
        if finite.size:
            head += f", {finite.min():.6g} to {finite.max():.6g}, mean {finite.mean(dtype=np.float64):.6g}"
        if finite.size < values.size:
            head += f", {int(np.isnan(values).sum())} NaN, {int(np.isinf(values).sum())} infinite"
    return [head, *np.array2string(values, threshold=200, edgeitems=3, max_line_width=110).splitlines()]


def _tiles(tensor: Tensor) -> str:
    tiles = np.unique(tensor.mapping.tile)
    return f"tile {tiles[0]}" if len(tiles) == 1 else f"{len(tiles):,} tiles, {tiles[0]} to {tiles[-1]}"


def tile_lines(graph: Graph, tile: int, read: Any, placed: Sequence[PlacedGroup]) -> list[str]:
    """Contents of a tile: its part of every variable, and its vertices in the step at hand."""
    lines = [f"tile {tile} of IPU {tile // graph.system.ipu.num_tiles}"]
    held = [(v, _held(v, tile)) for v in graph.variables]
    held = [(v, count) for v, count in held if count]
    for variable, count in sorted(held, key=lambda item: -item[1] * item[0].dtype.bytes)[:_MOST_ROWS]:
        values = _values_on(variable, tile, read)
        shown = np.array2string(values[:6], separator=" ", max_line_width=70)[1:-1]
        more = " …" if count > 6 else ""
        lines.append(
            f"  {count * variable.dtype.bytes:>9,} B  {variable.name:<24} {variable.dtype}[{count}]  {shown}{more}"
        )
    if len(held) > _MOST_ROWS:
        lines.append(f"  … {len(held) - _MOST_ROWS} more variables")
    total = sum(count * v.dtype.bytes for v, count in held)
    lines.append(f"  {total:>9,} B  in {counted(len(held), 'variable')}")
    for group in placed:
        mine = np.flatnonzero(group.group.tile == tile)
        if len(mine):
            numbers = ", ".join(map(str, mine[:8])) + (" …" if len(mine) > 8 else "")
            lines.append(f"  runs {len(mine)} × {group.group.codelet.name}: vertices {numbers}")
    return lines


def _held(variable: Variable, tile: int) -> int:
    mapping = variable.mapping
    return int(mapping.length[mapping.tile == tile].sum())


def _values_on(variable: Variable, tile: int, read: Any) -> Array:
    mapping = variable.mapping
    flat = np.asarray(read(variable)).reshape(-1)
    mine = np.flatnonzero(mapping.tile == tile)
    parts = [flat[mapping.begin[i] : mapping.begin[i] + mapping.length[i]] for i in mine[:8]]
    return np.concatenate(parts) if parts else flat[:0]


def vertex_lines(groups: Sequence[PlacedGroup], number: int) -> list[str]:
    """Fields of one vertex of the step at hand; vertices are numbered through its groups."""
    for placed in groups:
        if number < placed.group.num:
            group = placed.group
            head = f"vertex {number}: {group.codelet.name} on tile {int(group.tile[number])}"
            lines = [f"{head}   {group.origin_of(number).location}"]
            directions = {f.name: f.direction for f in group.codelet.fields}
            for name, value in vertex_fields(placed, number).items():
                lines.append(f"  {directions[name]:<5} {name:<12} {_field_text(value)}")
            return lines
        number -= placed.group.num
    return []


def _field_text(value: Any) -> str:
    if isinstance(value, list):
        sizes = ", ".join(str(len(row)) for row in value[:6]) + (" …" if len(value) > 6 else "")
        return f"{len(value)} rows of {sizes} elements"
    text = np.array2string(np.asarray(value), threshold=8, edgeitems=3, max_line_width=90)
    return text.replace("\n", " ")
