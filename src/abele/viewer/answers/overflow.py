"""Tiles that are too full: by how much, with what, and what would have to go."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.report import Report
from abele.report.relations import rows_of
from abele.report.text_column import Text
from abele.report.tiles import spread
from abele.viewer.answers.floor import ipu_tiles
from abele.viewer.answers.holdings import Overlap, summed_by
from abele.viewer.answers.live_curve import live_bytes
from abele.viewer.answers.registry import once, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from abele.words import counted, shortened, tiles_text, visible

_MOST = 12
"""Contributors that are told."""
_SENTENCES = 3


@question("memory.overflow", frozen=once, rank=2)
def overflow(opened: Opened, params: Params) -> Answer:
    """Tiles beyond their memory, and the contents that would have to go.

    Answer: head ``count`` (tiles that are too full), ``over_bytes`` (of all), ``worst`` (``tile``, ``bytes``, ``step``
    at which it is fullest, -1 where nothing tells), ``where`` in words, ``advice`` (sentences), ``contributors``:
    ``kind``, ``name``, ``row`` (of a variable, else -1), ``bytes`` on the tiles that are too full, ``each`` (greatest
    on one of them), ``share``, ``would_fit`` (tiles that would fit without it).
    """
    del params
    report = opened.report
    memory = report.memory
    tiles = np.flatnonzero(memory.by_tile > memory.available_bytes)
    if not len(tiles):
        return Answer({"count": 0, "over_bytes": 0, "contributors": [], "advice": []})
    excess = memory.by_tile[tiles] - memory.available_bytes
    worst = int(tiles[np.argmax(excess)])
    step = _worst_step(report, worst)
    found = [*_categories(report, tiles, excess), *_variables(report, tiles, excess, step)]
    found.sort(key=lambda each: -each["bytes"])
    told = found[: 2 * _MOST]
    head = {
        "count": len(tiles),
        "over_bytes": int(excess.sum()),
        "worst": {"tile": worst, "bytes": int(excess.max()), "step": step},
        "where": tiles_text(tiles),
        "by_ipu": np.bincount(tiles // ipu_tiles(report)).tolist()[:1024],
        "contributors": told,
        "advice": _advice(report, told, len(tiles), int(excess.sum())),
    }
    return Answer(head)


def _worst_step(report: Report, tile: int) -> int:
    """The step at which most is live on a tile, of those in the liveness table; -1 where there are none."""
    curve = live_bytes(report, np.array([tile], np.int64))
    if not len(curve) or not curve.any():
        return -1
    return int(report.liveness["step"][int(np.argmax(curve))])


def _entry(kind: str, name: str, row: int, held: Int64, excess: Int64, total: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "row": row,
        "bytes": int(held.sum()),
        "each": int(held.max(initial=0)),
        "share": float(held.sum() / total) if total else 0.0,
        "would_fit": int((held >= excess).sum()),
        "less": float((excess / held).max()) if (held >= excess).all() and len(held) else 1.0,
    }


def _categories(report: Report, tiles: Int64, excess: Int64) -> list[dict[str, Any]]:
    """Code, state and the like on tiles that are too full; variables and temporaries are told one by one."""
    memory = report.memory
    total = int(memory.by_tile[tiles].sum())
    found = []
    for at, name in enumerate(memory.categories):
        held = memory.bytes[at][tiles]
        if held.any() and (name not in ("variables", "temporaries") or not len(report.variable_tiles)):
            found.append(_entry("category", name.replace("_", " "), -1, held, excess, total))
    return found


def _variables(report: Report, tiles: Int64, excess: Int64, step: int) -> list[dict[str, Any]]:
    """The largest variables there: always live, or live at the worst step of the fullest tile."""
    table, count = report.variable_tiles, len(report.variables)
    if not count:
        return []
    covered = Overlap(tiles, report.memory.num_tiles).of(table)
    held = summed_by(table["variable"], table["padded_bytes"] * covered, count)
    always = np.asarray(report.variables["always_live"], dtype=bool)
    counts = always.copy()
    if step >= 0:
        now = (report.lifetimes["first_step"] <= step) & (step <= report.lifetimes["last_step"])
        counts[report.lifetimes["variable"][now]] = True
    held = np.where(counts, held, 0)
    total = int(report.memory.by_tile[tiles].sum())
    names = report.variables.columns["name"]
    assert isinstance(names, Text)
    found = []
    for row in np.argsort(-held, kind="stable")[:_MOST].tolist():
        if held[row] <= 0:
            break
        rows = rows_of(table, "variable", row)
        first, number, size = (table[name][rows] for name in ("first_tile", "num_tiles", "padded_bytes"))
        here = spread(first, number, size, report.memory.num_tiles)[tiles]
        kind = "variable" if always[row] else "temporary"
        found.append(_entry(kind, names.words[int(names.codes[row])], row, here, excess, total))
    return found


def _advice(report: Report, told: list[dict[str, Any]], count: int, over: int) -> list[str]:
    """Sentences: what would have to go, and what usually helps with it."""
    lines = []
    whole = [each for each in told if each["would_fit"] == count]
    for each in sorted(whole, key=lambda each: float(each["less"]))[:_SENTENCES]:
        lines.append(f"{each['less'] * 100:.0f} % less of {_named(each)} would be enough for all of them.")
    if not whole and told:
        best = max(told, key=lambda each: int(each["would_fit"]))
        if best["would_fit"]:
            lines.append(f"Without {_named(best)} {counted(best['would_fit'], 'tile')} of {count:,} would fit.")
        else:
            gone = np.cumsum([each["bytes"] for each in told])
            left = min(int(np.searchsorted(gone, over)) + 1, len(told))
            lines.append(f"No single thing is enough: {left} of the things below or more would have to go.")
    spare = report.memory.num_tiles - count
    if spare:
        free = int(np.maximum(report.memory.available_bytes - report.memory.by_tile, 0).sum())
        enough = "enough for it" if free >= over else "not enough for it"
        lines.append(f"The other {counted(spare, 'tile')} have {free:,} B free, {enough}: spread wider what lies here.")
    kinds = {each["kind"] for each in told[:4]} | {each["name"] for each in told[:4] if each["kind"] == "category"}
    if "temporary" in kinds:
        lines.append(
            "Temporaries: a lower available_memory_proportion, partials in half, or recomputation of activations."
        )
    if "variable" in kinds:
        lines.append("Variables: map them over more tiles, hold them in half precision, or in streaming memory.")
    if "vertex state" in kinds or "vertex code" in kinds:
        lines.append("Vertices: fewer and larger ones a tile, and fewer kinds of codelets.")
    if "exchange code" in kinds:
        lines.append("Exchange code: longer pieces a message; keep mappings of neighbouring operations alike.")
    return lines


def _named(each: dict[str, Any]) -> str:
    return shortened(visible(each["name"]), 80)
