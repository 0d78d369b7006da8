"""Memory of each tile: stacked by category, tile by tile, with level of detail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.report import Report
from abele.report.text_column import Text
from abele.report.tiles import spread
from abele.viewer.answers.buckets import chunk, frozen_chunks, place_of, small, top_level
from abele.viewer.answers.floor import ipu_tiles, physical_order
from abele.viewer.answers.recent import recent
from abele.viewer.answers.registry import question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

ORDERS = ("number", "size", "physical")
"""Of tiles: by number; fullest first; row by row as they lie on the chip."""
_MOST_TYPES = 6
_MANY = 400_000
"""Number of tiles from which on few divisions are kept."""
MOST_VARIABLES = 8
"""Variables that are drawn together."""


@dataclass(frozen=True)
class MemoryParts:
    """Bytes on each tile, part by part.

    Attributes:
        names: Names of the parts, from the bottom of the stack up.
        bytes: int64[parts, tiles].
    """

    names: tuple[str, ...]
    bytes: Int64


def _none(report: Report) -> MemoryParts:
    gaps = _category(report, "gaps")
    return MemoryParts(("in use", "gaps"), np.stack([report.memory.by_tile - gaps, gaps]))


def _categories(report: Report) -> MemoryParts:
    return MemoryParts(report.memory.categories, report.memory.bytes)


def _live(report: Report) -> MemoryParts:
    """Always live, or not: temporaries are those that come and go, at the worst step of each tile."""
    gaps, passing = _category(report, "gaps"), _category(report, "temporaries")
    return MemoryParts(
        ("always live", "not always live", "gaps"), np.stack([report.memory.by_tile - gaps - passing, passing, gaps])
    )


def _regions(report: Report) -> MemoryParts:
    """Bytes in interleaved memory, bytes that lie anywhere, and bytes beyond the memory of the tile.

    Of variables that come and go, the report does not say how much of them lies in interleaved memory at the worst
    step.
    """
    gaps, held = _category(report, "gaps"), report.memory.by_tile
    over = np.maximum(held - report.memory.available_bytes, 0)
    table, variables = report.variable_tiles, report.variables
    kept = (variables["interleaved"] & variables["always_live"])[table["variable"]]
    first, count, size = (table[name][kept] for name in ("first_tile", "num_tiles", "bytes"))
    room = np.maximum(held - gaps - over, 0)
    interleaved = np.minimum(spread(first, count, size, report.memory.num_tiles), room)
    names = ("not interleaved", "interleaved", "too much", "gaps")
    return MemoryParts(names, np.stack([room - interleaved, interleaved, over, held - room - over]))


def _types(report: Report) -> MemoryParts:
    """Variables that are always live by element type; the rest as categories have it."""
    memory = report.memory
    held = np.asarray(report.variables["always_live"], dtype=bool)
    types = report.variables.columns["type"]
    assert isinstance(types, Text)
    table = report.variable_tiles
    kept = held[table["variable"]]
    first, count, size = (table[name][kept] for name in ("first_tile", "num_tiles", "bytes"))
    code = types.codes[table["variable"][kept]]
    weight = np.bincount(code, size * count, minlength=len(types.words))
    most = [int(each) for each in np.argsort(-weight, kind="stable")[:_MOST_TYPES] if weight[each] > 0]
    rows = [spread(first[code == each], count[code == each], size[code == each], memory.num_tiles) for each in most]
    names = [types.words[each] or "no type" for each in most]
    # Bytes without a type: further types, and variables of reports that do not say where they lie.
    rest = np.maximum(_category(report, "variables") - sum(rows, np.zeros(memory.num_tiles, np.int64)), 0)
    others = [name for name in memory.categories if name not in ("variables", "gaps")]
    bytes = np.stack([*rows, rest, *(_category(report, name) for name in others), _category(report, "gaps")])
    names = [f"variables of {name}" for name in names]
    return MemoryParts((*names, "other variables", *others, "gaps"), bytes)


_DIVISIONS: dict[str, Callable[[Report], MemoryParts]] = {
    "category": _categories,
    "live": _live,
    "type": _types,
    "region": _regions,
    "none": _none,
}


def _category(report: Report, name: str) -> Int64:
    memory = report.memory
    if name not in memory.categories:
        return np.zeros(memory.num_tiles, np.int64)
    return np.repeat(memory.run_bytes[memory.categories.index(name)], memory.run_tiles)


def parts_of(opened: Opened, by: str, gaps: bool) -> MemoryParts:
    """Bytes on each tile, divided in one of the ways that there are, with or without gaps; empty parts are left out.

    Args:
        opened: The report.
        by: ``category``, ``live``, ``type``, ``region`` or ``none``; ``variables:3,7`` for variables by their rows.
        gaps: True to count gaps.
    """

    def make() -> MemoryParts:
        if by.startswith("variables:"):
            rows = variable_rows(opened.report, by.removeprefix("variables:"))
            names = opened.report.variables["name"]
            held = [opened.report.variable_by_tile(row) for row in rows]
            none = np.zeros((0, opened.report.memory.num_tiles), np.int64)
            return MemoryParts(tuple(str(names[row]) for row in rows), np.stack(held) if held else none)
        found = _DIVISIONS[by](opened.report)
        kept = [
            at for at, name in enumerate(found.names) if (gaps or name != "gaps") and (at == 0 or found.bytes[at].any())
        ]
        return MemoryParts(tuple(found.names[at] for at in kept), found.bytes[kept])

    return recent(opened, "parts of tiles", (by, gaps), make, 8 if opened.report.memory.num_tiles < _MANY else 2)


def variable_rows(report: Report, text: str) -> list[int]:
    """Rows of variables that a text with commas names; those that there are not are left out."""
    rows = [int(word) for word in text.split(",") if word.isdigit() and len(word) < 10]
    return [row for row in dict.fromkeys(rows) if row < len(report.variables)][:MOST_VARIABLES]


def order_of(opened: Opened, params: Params) -> tuple[MemoryParts, Int64]:
    """The parts that a question asks for, and its tiles in their order, int64[places]."""
    by = params.text("by", "category")
    if not by.startswith("variables:"):
        by = params.choice("by", tuple(_DIVISIONS), "category")
    gaps = params.choice("gaps", ("1", "0")) == "1"
    order = params.choice("order", ORDERS)
    ipu = params.number("ipu", -1, low=-1, high=1_000_000)
    parts = parts_of(opened, by, gaps)
    return parts, recent(opened, "orders of tiles", (by, gaps, order, ipu), lambda: _order(opened, parts, order, ipu))


def _order(opened: Opened, parts: MemoryParts, order: str, ipu: int) -> Int64:
    report = opened.report
    tiles, size = report.memory.num_tiles, ipu_tiles(report)
    if order == "size":
        found = np.argsort(-parts.bytes.sum(axis=0), kind="stable")
    elif order == "physical":
        found = physical_order(tiles, size)
    else:
        found = np.arange(tiles, dtype=np.int64)
    return found if ipu < 0 else found[found // size == ipu]


def _frozen(opened: Opened) -> Iterator[Mapping[str, str]]:
    for by in ("category", "live", "type"):
        for place in frozen_chunks(opened.report.memory.num_tiles):
            yield {"by": by, "gaps": "1", "order": "number", "ipu": "-1", **place}
    for place in frozen_chunks(opened.report.memory.num_tiles):
        yield {"by": "category", "gaps": "1", "order": "size", "ipu": "-1", **place}


@question("memory.tiles", frozen=_frozen, rank=2)
def memory_tiles(opened: Opened, params: Params) -> Answer:
    """A chunk of the curve of memory over tiles.

    Parameters: ``by`` as :func:`parts_of` takes it; ``gaps`` 1 or 0; ``order`` one of :data:`ORDERS`; ``ipu``, -1 for
    all; ``level`` and ``index`` of the chunk.

    Answer: head ``parts`` names, ``length`` of the axis, ``greatest`` total, ``top`` level; arrays as :func:`chunk` has
    them, with ``at`` the places on the axis and ``tile`` the tiles there.
    """
    parts, order = order_of(opened, params)
    level, index = place_of(params)
    plain = len(order) == parts.bytes.shape[1] and params.text("order", "number") == "number"
    ordered = parts.bytes if plain else parts.bytes[:, order]
    arrays = chunk(ordered, level, index)
    arrays["tile"] = small(order[arrays["at"].astype(np.int64)])
    total = parts.bytes.sum(axis=0)[order]
    head = {
        "parts": parts.names,
        "length": len(order),
        "greatest": int(total.max(initial=0)),
        "top": top_level(len(order)),
    }
    return Answer(head, arrays)


def _frozen_orders(opened: Opened) -> Iterator[Mapping[str, str]]:
    del opened
    yield {"by": "category", "gaps": "1", "order": "size", "ipu": "-1"}


@question("memory.order", frozen=_frozen_orders, rank=4)
def memory_order(opened: Opened, params: Params) -> Answer:
    """Tiles in the order of a curve: parameters as ``memory.tiles``; array ``tile`` [places]."""
    _, order = order_of(opened, params)
    return Answer({}, {"tile": small(order)})
