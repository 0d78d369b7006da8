"""The curve of live bytes of a chip, an IPU or some tiles, divided in groups of variables; and its peaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.table import Table
from abele.report.text_column import Text
from abele.viewer.answers.floor import ipu_tiles
from abele.viewer.answers.holdings import Overlap, chosen, summed_by
from abele.viewer.answers.recent import recent
from abele.viewer.open_reports import Opened

# Curves of live memory: sums over lifetimes, for all tiles or some.


def weights(report: Report, tiles: Int64 | None) -> Int64:
    """Bytes of each variable on some tiles, gaps behind them included, int64[variables]; on all when None."""
    table, count = report.variable_tiles, len(report.variables)
    covered = _covered(report, tiles, table["first_tile"], table["num_tiles"])
    return summed_by(table["variable"], table["padded_bytes"] * covered, count)


def variable_bytes(report: Report, held: Int64, tiles: Int64 | None) -> Int64:
    """Bytes of not always-live variables at each row of the steps table, int64[steps].

    Args:
        report: The report.
        held: Bytes of each variable on the tiles, int64[variables]; 0 for those that do not count.
        tiles: The tiles; None for all.
    """
    table, count = report.lifetimes, len(report.steps)
    change = np.zeros(count + 1, np.int64)
    amount = held[table["variable"]]
    np.add.at(change, table["first_step"], amount)
    np.subtract.at(change, np.minimum(table["last_step"].astype(np.int64) + 1, count), amount)
    # On tiles that only send it a variable is free before its last step ends.
    sent = report.sent_tiles
    free = sent["bytes"] * _covered(report, tiles, sent["first_tile"], sent["num_tiles"]) * (held[sent["variable"]] > 0)
    np.subtract.at(change, sent["first_step"], free)
    np.add.at(change, np.minimum(sent["last_step"].astype(np.int64) + 1, count), free)
    return np.cumsum(change[:-1])


def moving_bytes(report: Report, tiles: Int64 | None) -> Int64:
    """Bytes for data in motion on some tiles at each row of the steps table, int64[steps]."""
    table = report.buffer_tiles
    superstep = report.steps["superstep"]
    most = max(int(table["superstep"].max(initial=-1)), int(superstep.max(initial=-1))) + 1
    if not most:
        return np.zeros(len(report.steps), np.int64)
    covered = _covered(report, tiles, table["first_tile"], table["num_tiles"])
    by_superstep = summed_by(table["superstep"], table["bytes"] * covered, most)
    moving: Int64 = np.where(superstep >= 0, by_superstep[np.maximum(superstep, 0)], 0)
    return moving


def live_bytes(report: Report, tiles: Int64 | None) -> Int64:
    """Bytes live and not always so, data in motion included, at each row of the liveness table, int64[rows]."""
    steps = report.liveness["step"]
    both = variable_bytes(report, weights(report, tiles), tiles) + moving_bytes(report, tiles)
    found: Int64 = both[steps]
    return found


def _covered(report: Report, tiles: Int64 | None, first: npt.NDArray[np.int32], count: npt.NDArray[np.int32]) -> Int64:
    """Number of some tiles, or of all, in each run of tiles, int64[rows]."""
    if tiles is None:
        return count.astype(np.int64)
    return Overlap(tiles, report.memory.num_tiles).covered(first, count)


# Variables in groups: by type, role, scope, operation, source line.

Groups = tuple[list[str], Int64]
"""Names of groups, and the group of each row."""

_DEEPEST_SCOPE = 3
_MOST_OF_A_SCOPE = 0.6
"""Part of the bytes beyond which a scope is told by the scopes in it."""


def variable_groups(report: Report, by: str) -> Groups:
    """Names of groups, and the group of each variable, int64[variables].

    Args:
        report: The report.
        by: ``type``; ``role``; ``scope``, the outermost parts of the name; ``op``, the operation that writes it first;
            ``line``, the source line that made it, or that of this operation where the report does not say.
    """
    variables = report.variables
    if by == "type":
        return _of_words(_text(variables, "type"), lambda word: word or "of no type")
    if by == "role":
        return _of_words(_text(variables, "role"), lambda word: word or "of no known role")
    if by == "scope":
        return _scopes(variables)
    op = _writer(report)
    if by == "op":
        return _through(
            op, _of_words(_text(report.ops, "name"), lambda word: word or "(no name)"), "always live, or unknown"
        )
    names, code = _through(op, _lines(report.ops), "")
    own_names, own = _lines(variables)
    # The line that made it; where that is unknown, the operation's.
    unknown = np.array([not name for name in own_names], dtype=bool)[own] if len(own) else np.zeros(0, dtype=bool)
    joined = [name or "of no known line" for name in (*own_names, *names)]
    return _distinct(joined, np.where(unknown, code + len(own_names), own))


def _text(table: Table, name: str) -> Text:
    column = table.columns[name]
    assert isinstance(column, Text)
    return column


def _of_words(column: Text, title: Callable[[str], str]) -> Groups:
    """Groups of rows whose words have the same title."""
    return _distinct([title(word) for word in column.words], column.codes.astype(np.int64))


def _distinct(names: Sequence[str], code: npt.NDArray[Any]) -> Groups:
    """Groups with equal names as one."""
    places: dict[str, int] = {}
    place = np.array([places.setdefault(name, len(places)) for name in names], dtype=np.int64)
    return list(places), place[code] if len(place) else code.astype(np.int64)


def _scopes(variables: Table) -> Groups:
    """Scopes that variables are in: as many parts of their names as are needed to tell most of the bytes apart."""
    column, size = _text(variables, "name"), variables["bytes"]
    parts = [word.split("/", _DEEPEST_SCOPE) for word in column.words]
    found: Groups = ([], np.zeros(0, np.int64))
    for depth in range(1, _DEEPEST_SCOPE + 1):
        found = _distinct(["/".join(each[:depth]) or "(no name)" for each in parts], column.codes.astype(np.int64))
        weight = np.bincount(found[1], size)
        if weight.max(initial=0) <= _MOST_OF_A_SCOPE * weight.sum():
            break
    return found


def _lines(table: Table) -> Groups:
    """Source lines as ``file:line``, empty where they are unknown."""
    files = _text(table, "file")
    width = int(table["line"].max(initial=0)) + 1
    keys, code = np.unique(files.codes.astype(np.int64) * width + table["line"], return_inverse=True)
    names = [f"{files.words[key // width]}:{key % width}" if files.words[key // width] else "" for key in keys.tolist()]
    return _distinct(names, code)


def _through(op: Int64, groups: Groups, otherwise: str) -> Groups:
    """Groups of operations as those of variables that they write; a group more where the operation is unknown."""
    names, code = groups
    if not len(code):
        return [otherwise], np.zeros(len(op), np.int64)
    return [*names, otherwise], np.where(op >= 0, code[np.maximum(op, 0)], len(names))


def _writer(report: Report) -> Int64:
    """The operation that writes each variable first, int64[variables]; -1 where that is unknown.

    Where the report does not say, the one in whose step the variable becomes live.
    """
    told = report.variables["op"].astype(np.int64)
    first = report.variables["first_step"]
    if len(report.steps):
        told = np.where((told < 0) & (first >= 0), report.steps["op"][np.maximum(first, 0)], told)
    return np.where(told < len(report.ops), told, -1)


_MOST_GROUPS = 7
_MOST_PEAKS = 8
_FROZEN_PEAKS = 3


@dataclass(frozen=True)
class Curve:
    """Bytes live over the rows of the liveness table.

    Attributes:
        names: Names of the stacked parts.
        bytes: int64[parts, rows].
        base: Bytes that are always live, beneath all of these.
    """

    names: tuple[str, ...]
    bytes: Int64
    base: int


def tiles_of_source(opened: Opened, source: str, tiles: str) -> Int64 | None:
    """Tiles that a curve is of; None for all.

    Args:
        opened: The report.
        source: ``chip``, ``fullest``, ``ipu:N`` or ``tiles``.
        tiles: The selection, for the last of these.

    Raises:
        InvalidOptionError: It is none of them.
    """
    report = opened.report
    kind, _, number = source.partition(":")
    if kind == "chip":
        return None
    if kind == "fullest":
        return np.array([report.memory.fullest_tile] if report.memory.num_tiles else [], np.int64)
    if kind == "tiles":
        return chosen(opened, tiles)
    size = ipu_tiles(report)
    if kind == "ipu" and number.isdigit() and int(number[:9]) * size < report.memory.num_tiles:
        first = int(number[:9]) * size
        return np.arange(first, min(first + size, report.memory.num_tiles), dtype=np.int64)
    raise InvalidOptionError(f"{source[:60]!r} has no curve", remedy="one of chip, fullest, most, tiles, ipu:0, …")


def curve_of(opened: Opened, source: str, tiles: str, by: str) -> Curve:
    """The curve of live bytes of a source, divided by element type, by scope, or not."""
    key = (source, tiles if source == "tiles" else "", by)
    return recent(opened, "curves of liveness", key, lambda: _curve(opened, source, tiles, by))


def held_on(opened: Opened, source: str, tiles: str) -> Int64:
    """Bytes of each variable on the tiles of a source, int64[variables]; on all tiles for ``most``."""
    of = "chip" if source == "most" else source
    key = (of, tiles if of == "tiles" else "")
    return recent(
        opened, "weights of variables", key, lambda: weights(opened.report, tiles_of_source(opened, of, tiles))
    )


def _curve(opened: Opened, source: str, tiles: str, by: str) -> Curve:
    report = opened.report
    rows = report.liveness["step"]
    if source == "most":
        return Curve(("not always live",), report.liveness["max_tile_bytes"][None, :].astype(np.int64), 0)
    where = tiles_of_source(opened, source, tiles)
    held = held_on(opened, source, tiles)
    passing = report.memory.categories.index("temporaries") if "temporaries" in report.memory.categories else None
    always = report.memory.by_tile - (report.memory.bytes[passing] if passing is not None else 0)
    base = int(always.sum() if where is None else always[where].sum())
    if not len(report.variable_tiles) and where is None:
        # A report of an old version tells sums alone.
        return Curve(("not always live",), report.liveness["live_bytes"][None, :].astype(np.int64), base)
    moving = moving_bytes(report, where)[rows]
    names, parts = _divided(opened, held, by)
    stacked = np.stack([*(variable_bytes(report, each, where)[rows] for each in parts), moving])
    names = [*names, "data in motion"]
    kept = [at for at in range(len(names)) if at == 0 or stacked[at].any()]
    return Curve(tuple(names[at] for at in kept), stacked[kept], base)


def _divided(opened: Opened, held: Int64, by: str) -> tuple[list[str], list[Int64]]:
    """Bytes of variables, int64[variables] for each of some groups: the largest ones, and the rest."""
    if by == "none":
        return ["variables"], [held]
    names, code = kept_groups(opened, by)
    passing = ~np.asarray(opened.report.variables["always_live"], dtype=bool)
    weight = np.bincount(code, np.where(passing, held, 0), minlength=len(names))
    order = [int(at) for at in np.argsort(-weight, kind="stable")[:_MOST_GROUPS] if weight[at] > 0]
    parts = [np.where(code == at, held, 0) for at in order]
    titles = [names[at] for at in order]
    rest = np.where(np.isin(code, order), 0, held)
    return ([*titles, "others"], [*parts, rest]) if order else (["variables"], [held])


def kept_groups(opened: Opened, by: str) -> tuple[list[str], Int64]:
    """As :func:`variable_groups` has them, worked out once."""
    return recent(opened, "groups of variables", by, lambda: variable_groups(opened.report, by))


def peaks(total: Int64) -> list[int]:
    """Places of the highest local maxima, highest first; of a flat top its first place, and no two that are close."""
    if not len(total):
        return []
    rises = np.append(True, total[1:] > total[:-1])
    # The next different value decides whether a flat top is a peak.
    change = np.flatnonzero(np.append(total[1:] != total[:-1], True))
    following = change[np.searchsorted(change, np.arange(len(total)))]
    falls = (following + 1 >= len(total)) | (total[np.minimum(following + 1, len(total) - 1)] < total)
    tops = np.flatnonzero(rises & falls)
    apart = max(1, len(total) // 60)
    found: list[int] = []
    for place in tops[np.argsort(-total[tops], kind="stable")][:512].tolist():
        if all(abs(place - other) >= apart for other in found):
            found.append(place)
        if len(found) == _MOST_PEAKS:
            break
    return found


def peak_steps(opened: Opened) -> list[int]:
    """The steps of the highest peaks of all tiles: those whose details a static page takes along."""
    found = curve_of(opened, "chip", "", "none")
    return [int(opened.report.liveness["step"][place]) for place in peaks(found.bytes.sum(axis=0))[:_FROZEN_PEAKS]]
