"""Contents of selected tiles: categories, variables, gaps; and the work of steps on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.report import Report
from abele.report.table import Table
from abele.report.text_column import Text
from abele.report.tiles import spread
from abele.viewer.answers.recent import recent
from abele.viewer.answers.registry import question
from abele.viewer.answers.selection import tiles_of
from abele.viewer.answers.table import matching
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

MOST_SIDE_BY_SIDE = 8
"""Tiles that have a column of their own."""
MOST_ROWS = 2_000
"""Rows of a page of a table."""
_MOST_TYPES = 64


def chosen(opened: Opened, text: str) -> Int64:
    """Tiles that a text names, all of them where it is empty, int64[n]."""
    return tiles_of(opened, text if text.strip() else "all")


class Overlap:
    """Number of selected tiles in runs of tiles, by counts of the tiles before each.

    Args:
        tiles: The selected tiles, each once, int64[n].
        num_tiles: Tiles in all.
    """

    def __init__(self, tiles: Int64, num_tiles: int) -> None:
        mask = np.zeros(num_tiles + 1, np.int64)
        mask[1:][tiles] = 1
        self._before = np.cumsum(mask)
        self._most = num_tiles

    def of(self, table: Table) -> Int64:
        """Selected tiles in each row of a relation with tiles, int64[rows]."""
        return self.covered(table["first_tile"], table["num_tiles"])

    def covered(self, first: npt.NDArray[Any], count: npt.NDArray[Any]) -> Int64:
        """Selected tiles in each of some runs, given their first tiles and numbers of tiles, int64[runs]."""
        begin = first.astype(np.int64)
        end = np.minimum(begin + count, self._most)
        covered: Int64 = self._before[end] - self._before[np.minimum(begin, self._most)]
        return covered


def _frozen_categories(opened: Opened) -> Iterator[Mapping[str, str]]:
    yield {}
    yield {"tiles": str(opened.report.memory.fullest_tile)}


@question("memory.categories", frozen=_frozen_categories, rank=2)
def categories(opened: Opened, params: Params) -> Answer:
    """The tree of what selected tiles hold, and the selection in figures.

    Parameters: ``tiles``, all where empty.

    Answer: head ``count``, ``over`` (selected tiles that are too full), ``available``, ``fullest`` (of the selected),
    ``tiles`` (those with a column), ``rows`` (``name``, ``depth``, ``key``); arrays ``sum``, ``mean``, ``least``,
    ``most``, ``fullest`` [rows] and ``each`` [tiles, rows].
    """
    report = opened.report
    tiles = chosen(opened, params.text("tiles"))
    rows, values = _tree(report, tiles)
    held = report.memory.by_tile[tiles]
    fullest = int(tiles[np.argmax(held)]) if len(tiles) else -1
    shown = tiles[:MOST_SIDE_BY_SIDE]
    head = {
        "count": len(tiles),
        "over": int((held > report.memory.available_bytes).sum()),
        "available": report.memory.available_bytes,
        "fullest": fullest,
        "tiles": shown.tolist(),
        "rows": rows,
    }
    some = values if len(tiles) else np.zeros((len(rows), 1), np.int64)
    at = int(np.argmax(held)) if len(tiles) else 0
    arrays: dict[str, Array] = {
        "sum": some.sum(axis=1),
        "mean": some.mean(axis=1),
        "least": some.min(axis=1),
        "most": some.max(axis=1),
        "fullest": some[:, at],
        "each": values[:, : len(shown)].T,
    }
    return Answer(head, arrays)


def _tree(report: Report, tiles: Int64) -> tuple[list[dict[str, Any]], Int64]:
    """Rows of the tree of categories, and their bytes on some tiles, int64[rows, tiles]."""
    memory = report.memory
    held = {name: memory.bytes[at][tiles] for at, name in enumerate(memory.categories)}
    none = np.zeros(len(tiles), np.int64)
    gaps, passing = held.get("gaps", none), held.get("temporaries", none)
    total = sum(held.values(), none)
    rows: list[tuple[int, str, str, Int64]] = [
        (0, "total", "including gaps", total),
        (1, "used", "excluding gaps", total - gaps),
        (2, "always", "always live (not overlapped)", total - gaps - passing),
    ]
    for name in memory.categories:
        if name not in ("gaps", "temporaries"):
            rows.append((3, name, name.replace("_", " "), held[name]))
            if name == "variables":
                rows += [(4, f"type {kind}", kind, each) for kind, each in _by_type(report, tiles, always=True)]
    rows.append((2, "passing", "not always live (overlapped), at its worst step", passing))
    behind = np.minimum(_padding(report)[tiles], gaps)
    rows.append((1, "gaps", "gaps", gaps))
    rows.append((2, "gaps behind", "behind variables that always live, up to whole words", behind))
    rows.append((2, "gaps placed", "where alignment and memory elements leave room", gaps - behind))
    rows.append((0, "free", "free", np.maximum(memory.available_bytes - total, 0)))
    rows.append((0, "over", "too much", np.maximum(total - memory.available_bytes, 0)))
    told = [{"depth": depth, "key": key, "name": title} for depth, key, title, _ in rows]
    return told, np.stack([values for *_, values in rows])


def _padding(report: Report) -> Int64:
    """Bytes behind variables that always live up to the next word, int64[tiles]."""
    table = report.variable_tiles
    kept = report.variables["always_live"][table["variable"]] & (table["padded_bytes"] > table["bytes"])
    first, count = table["first_tile"][kept], table["num_tiles"][kept]
    return spread(first, count, (table["padded_bytes"] - table["bytes"])[kept], report.memory.num_tiles)


def _by_type(report: Report, tiles: Int64, *, always: bool) -> list[tuple[str, Int64]]:
    """Bytes of variables on some tiles by element type, largest first."""
    table, variables = report.variable_tiles, report.variables
    if not len(table):
        return []
    kinds = variables.columns["type"]
    assert isinstance(kinds, Text)
    kept = variables["always_live"][table["variable"]] == always
    code = kinds.codes[table["variable"]]
    found = []
    for at in np.unique(code[kept])[:_MOST_TYPES].tolist():
        kind = kinds.words[at]
        mine = kept & (code == at)
        if mine.any():
            first, count, size = (table[name][mine] for name in ("first_tile", "num_tiles", "bytes"))
            held = spread(first, count, size, report.memory.num_tiles)[tiles]
            if held.any():
                found.append((kind or "no type", held))
    return sorted(found, key=lambda pair: -int(pair[1].sum()))


def on_tiles(opened: Opened, text: str) -> dict[str, Int64]:
    """Bytes of each variable on selected tiles: ``here``, ``padded`` and ``on`` (tiles), int64[variables] by name."""

    def make() -> dict[str, Int64]:
        report = opened.report
        table, count = report.variable_tiles, len(report.variables)
        covered = Overlap(chosen(opened, text), report.memory.num_tiles).of(table)
        owner = table["variable"]
        return {
            "here": summed_by(owner, table["bytes"] * covered, count),
            "padded": summed_by(owner, table["padded_bytes"] * covered, count),
            "on": summed_by(owner, covered, count),
        }

    return recent(opened, "variables on tiles", text, make)


def summed_by(owner: npt.NDArray[Any], values: Int64, count: int) -> Int64:
    """Sums of values by their owner, int64[count]; exact, however large they are."""
    found = np.zeros(count, np.int64)
    np.add.at(found, owner, values)
    return found


def _frozen_variables(opened: Opened) -> Iterator[Mapping[str, str]]:
    del opened
    yield {"sort": "-here", "count": str(MOST_ROWS)}


@question("memory.variables", frozen=_frozen_variables, rank=4)
def variables(opened: Opened, params: Params) -> Answer:
    """Variables with bytes on selected tiles.

    Parameters: ``tiles``, ``filter``, ``sort`` (a column of variables, or ``here``, ``on``, ``gap``), ``first``,
    ``count``.

    Answer: head ``total``, ``found``, ``text``; arrays ``row``, ``here`` (bytes on these tiles), ``each`` (on the one
    of them with most; their mean where tiles hold different parts), ``on`` (how many of them), ``gap``, and the columns
    of variables.
    """
    report = opened.report
    text = params.text("tiles")
    held = on_tiles(opened, text)
    extra: dict[str, Array] = {"here": held["here"], "on": held["on"], "gap": held["padded"] - held["here"]}
    extra["each"] = held["here"] / np.maximum(held["on"], 1)
    return rows_page(opened, "variables", params, extra, (held["on"] > 0) if len(report.variable_tiles) else None)


def rows_page(
    opened: Opened, name: str, params: Params, extra: Mapping[str, Array], kept: npt.NDArray[np.bool_] | None
) -> Answer:
    """A page of a table with columns more: filtered and sorted by either.

    Args:
        opened: The report.
        name: The table.
        params: ``filter``, ``sort``, ``first``, ``count``, as the question ``table`` takes them.
        extra: Columns more, [rows of the table] each.
        kept: Rows that are told; all when None.
    """
    whole: Table = getattr(opened.report, name)
    sort = params.text("sort")
    column = sort.removeprefix("-")
    terms, own = _terms(params.text("filter"), extra)
    rows = matching(opened, name, " ".join(terms), "" if column in extra else sort)
    for mask in own:
        rows = rows[mask[rows]]
    total = len(whole)
    if kept is not None:
        rows = rows[kept[rows]]
        total = int(kept.sum())
    if column in extra:
        keys = extra[column][rows]
        rows = rows[np.argsort(-keys if sort.startswith("-") else keys, kind="stable")]
    first, count = params.number("first"), params.number("count", 200, high=MOST_ROWS)
    page = rows[first : first + count]
    head: dict[str, Any] = {"total": total, "found": len(rows), "first": first, "text": {}}
    arrays: dict[str, Array] = {"row": page}
    for each in whole.names:
        held = whole.columns[each]
        if isinstance(held, Text):
            head["text"][each] = held[page].decode().tolist()
        else:
            arrays[each] = held[page]
    for each, values in extra.items():
        arrays[each] = values[page]
    return Answer(head, arrays)


def _terms(text: str, extra: Mapping[str, Array]) -> tuple[list[str], list[npt.NDArray[np.bool_]]]:
    """Words of a filter for the table's own columns, and masks of those that compare a column more."""
    signs: dict[str, Any] = {">=": np.greater_equal, "<=": np.less_equal, ">": np.greater, "<": np.less, "=": np.equal}
    theirs, own = [], []
    for term in text.split():
        for sign, compare in signs.items():
            column, found, value = term.partition(sign)
            number = value.replace(",", "")
            if found and column in extra and number.replace(".", "", 1).isdigit():
                own.append(np.asarray(compare(extra[column], float(number)), dtype=bool))
                break
        else:
            theirs.append(term)
    return theirs, own
