"""Live memory by step: the curve, lifetimes, and the variables at chosen steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.table import Table
from abele.report.text_column import Text
from abele.report.tiles import checked_step
from abele.viewer.answers.buckets import chunk, frozen_chunks, place_of, small, top_level
from abele.viewer.answers.holdings import rows_page, summed_by
from abele.viewer.answers.live_curve import (
    curve_of,
    held_on,
    kept_groups,
    moving_bytes,
    peak_steps,
    peaks,
    tiles_of_source,
)
from abele.viewer.answers.registry import once, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

MOST_STEPS = 4
"""Steps that are told beside each other."""
_MOST_LIFETIMES = 400
_MOST_NODES = 64
_GROUPINGS = ("none", "type", "scope", "role")


def _frozen(opened: Opened) -> Iterator[Mapping[str, str]]:
    for source in ("chip", "fullest", "most"):
        for place in frozen_chunks(len(opened.report.liveness)):
            yield {"source": source, "by": "none", "base": "1", **place}


@question("liveness.curve", frozen=_frozen, rank=2)
def curve(opened: Opened, params: Params) -> Answer:
    """A chunk of the curve of live bytes over the rows of the liveness table.

    Parameters: ``source`` (``chip``; ``fullest``, the tile that is fullest of all; ``most``, at each step the tile with
    most; ``ipu:N``; ``tiles``), ``tiles``, ``by`` (``none``, ``type``,
    ``scope``, ``role``), ``base`` 1 to have what is always live below, ``level``, ``index``.

    Answer: head ``parts``, ``length``, ``greatest``, ``base`` bytes, ``top`` level, ``peaks`` (places, highest first),
    ``available`` bytes of the tiles together (0 where that says nothing); arrays as ``chunk``, and ``step``.
    """
    source, tiles = params.text("source", "chip"), params.text("tiles")
    by = params.choice("by", _GROUPINGS)
    found = curve_of(opened, source, tiles, by)
    with_base = params.choice("base", ("1", "0")) == "1" and source != "most"
    parts, names = found.bytes, found.names
    if with_base:
        parts = np.concatenate([np.full((1, parts.shape[1]), found.base, np.int64), parts])
        names = ("always live", *names)
    total = parts.sum(axis=0)
    level, index = place_of(params)
    arrays = chunk(parts, level, index, total)
    arrays["step"] = small(opened.report.liveness["step"][arrays["at"].astype(np.int64)].astype(np.int64))
    room = opened.report.memory.available_bytes
    if source != "most":
        where = tiles_of_source(opened, source, tiles)
        room *= opened.report.memory.num_tiles if where is None else len(where)
    head = {
        "parts": names,
        "length": parts.shape[1],
        "greatest": int(total.max(initial=0)),
        "base": found.base if with_base else 0,
        "top": top_level(parts.shape[1]),
        "peaks": peaks(total),
        "available": room if with_base or source == "most" else 0,
    }
    return Answer(head, arrays)


@question("liveness.steps", frozen=once, rank=2)
def steps_of_curve(opened: Opened, params: Params) -> Answer:
    """The steps of the curve: array ``step`` [places], rows of the steps table."""
    del params
    return Answer({}, {"step": small(opened.report.liveness["step"].astype(np.int64))})


def _frozen_lifetimes(opened: Opened) -> Iterator[Mapping[str, str]]:
    for source in ("chip", "fullest"):
        yield {"source": source, "first": "0", "last": str(len(opened.report.liveness))}


@question("liveness.lifetimes", frozen=_frozen_lifetimes, rank=4)
def lifetimes(opened: Opened, params: Params) -> Answer:
    """Variables that live in a window and not always, largest first.

    Parameters: ``source`` and ``tiles``; ``first`` and ``last`` of the places on the curve, the last one left out;
    ``count``.

    Answer: head ``found`` variables in the window, ``name`` of those told; arrays ``row``, ``bytes`` (on these tiles),
    and for each time that they live ``of`` (which of those told), ``first`` and ``last`` place.
    """
    report = opened.report
    held = held_on(opened, params.text("source", "chip"), params.text("tiles"))
    table = report.lifetimes
    begin, end = params.number("first"), params.number("last", len(report.liveness))
    first, last = opened.once("places of lifetimes", lambda: _places_of_lifetimes(report))
    inside = (first < end) & (last >= begin) & (held[table["variable"]] > 0)
    mask = np.zeros(len(report.variables), dtype=bool)
    mask[table["variable"][inside]] = True
    rows = np.flatnonzero(mask)
    told = rows[np.argsort(-held[rows], kind="stable")[: params.number("count", _MOST_LIFETIMES, high=_MOST_LIFETIMES)]]
    rank = np.full(len(report.variables), -1, np.int64)
    rank[told] = np.arange(len(told))
    shown = np.flatnonzero(inside & (rank[table["variable"]] >= 0))
    arrays: dict[str, Array] = {
        "row": small(told),
        "bytes": held[told],
        "of": small(rank[table["variable"][shown]]),
        "first": small(first[shown]),
        "last": small(last[shown]),
    }
    names = report.variables.columns["name"]
    assert isinstance(names, Text)
    return Answer({"found": len(rows), "name": names[told].decode().tolist()}, arrays)


def _places_of_lifetimes(report: Report) -> tuple[Int64, Int64]:
    """First and last place of the curve that each lifetime covers, int64[lifetimes] each.

    A step without a row on the curve counts to the next one that has a row.
    """
    steps, table = report.liveness["step"], report.lifetimes
    first = np.searchsorted(steps, table["first_step"], side="left").astype(np.int64)
    last = np.searchsorted(steps, table["last_step"], side="right").astype(np.int64) - 1
    return first, np.maximum(last, first)


def chosen_steps(report: Report, text: str) -> list[int]:
    """Steps between commas, at most :data:`MOST_STEPS`.

    Raises:
        InvalidOptionError: One is no row of the steps table.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not (word.isdecimal() and len(word) < 10 and int(word) < len(report.steps)):
            raise InvalidOptionError(
                f"no step {word[:60]!r}", remedy=f"the report has rows 0 to {len(report.steps) - 1}"
            )
    return [int(word) for word in dict.fromkeys(words)][:MOST_STEPS]


def live_at(report: Report, step: int) -> npt.NDArray[np.bool_]:
    """True for variables that live at a step and not always, bool[variables]."""
    table = report.lifetimes
    mask = np.zeros(len(report.variables), dtype=bool)
    mask[table["variable"][(table["first_step"] <= step) & (step <= table["last_step"])]] = True
    return mask


def _frozen_at(opened: Opened) -> Iterator[Mapping[str, str]]:
    for step in peak_steps(opened):
        yield {"source": "chip", "steps": str(step), "sort": "-live0", "count": "2000"}
    yield {"source": "chip", "always": "1", "sort": "-here", "count": "2000"}


@question("liveness.at", frozen=_frozen_at, rank=5)
def at(opened: Opened, params: Params) -> Answer:
    """Variables that live at chosen steps, with bytes at each of these.

    Parameters: ``steps`` (rows, at most 4), ``source``, ``tiles``, ``filter``, ``sort``, ``first``, ``count``;
    ``always`` 1 for those that always live instead.

    Answer: as ``memory.variables`` has it, with ``here`` bytes on these tiles and ``live0``, ``live1``, … at each step.
    """
    report = opened.report
    held = held_on(opened, params.text("source", "chip"), params.text("tiles"))
    steps = chosen_steps(report, params.text("steps"))
    always = np.asarray(report.variables["always_live"], dtype=bool)
    extra: dict[str, Array] = {"here": held}
    if params.choice("always", ("0", "1")) == "1":
        return rows_page(opened, "variables", params, extra, always & (held > 0))
    kept = np.zeros(len(held), dtype=bool)
    for place, step in enumerate(steps):
        mask = live_at(report, step)
        extra[f"live{place}"] = np.where(mask, held, 0)
        kept |= mask
    return rows_page(opened, "variables", params, extra, kept & (held > 0))


def _frozen_groups(opened: Opened) -> Iterator[Mapping[str, str]]:
    for by in ("line", "op", "scope", "role", "type"):
        for step in peak_steps(opened):
            yield {"source": "chip", "steps": str(step), "by": by}


@question("liveness.groups", frozen=_frozen_groups, rank=5)
def groups(opened: Opened, params: Params) -> Answer:
    """Bytes live at chosen steps by group, largest first.

    Parameters: ``steps``, ``source``, ``tiles``; ``by`` one of ``line``, ``op``, ``scope``, ``type``, ``role``.

    Answer: head ``name`` of each group; arrays ``bytes`` [steps, groups], ``moving`` [steps], ``variables`` (how many
    live at any of the steps).
    """
    report = opened.report
    source, tiles = params.text("source", "chip"), params.text("tiles")
    by = params.choice("by", ("line", "op", "scope", "type", "role"))
    held = held_on(opened, source, tiles)
    steps = chosen_steps(report, params.text("steps"))
    where = tiles_of_source(opened, "chip" if source == "most" else source, tiles)
    names, code = kept_groups(opened, by)
    live = [live_at(report, step) for step in steps]
    bytes = np.zeros((len(steps), len(names)), np.int64)
    for place, mask in enumerate(live):
        np.add.at(bytes[place], code[mask], held[mask])
    moving = moving_bytes(report, where)[np.array(steps, np.int64)]
    order = np.argsort(-bytes.max(axis=0, initial=0), kind="stable")
    order = order[bytes[:, order].any(axis=0)][:_MOST_LIFETIMES]
    anyhow = np.logical_or.reduce(live) if live else np.zeros(len(held), dtype=bool)
    number = np.bincount(code[anyhow], minlength=len(names))[order]
    return Answer(
        {"name": [names[each] for each in order.tolist()], "steps": steps},
        {"bytes": bytes[:, order], "moving": moving, "variables": number.astype(np.uint32)},
    )


def _frozen_floor(opened: Opened) -> Iterator[Mapping[str, str]]:
    yield from ({"step": str(step)} for step in peak_steps(opened))


@question("liveness.floor", frozen=_frozen_floor, rank=6)
def floor(opened: Opened, params: Params) -> Answer:
    """Bytes on each tile while a step runs.

    Parameters: ``step``, a row of the steps table.

    Answer: head ``unit`` (bytes that one stands for), ``greatest`` bytes, ``fullest`` tile; array ``values``
    uint16[tiles], rounded up: what is not empty is never told as empty.
    """
    values = opened.report.memory_at(params.number("step"))
    unit = max(1, -(-int(values.max(initial=0)) // 65_535))
    fullest = int(np.argmax(values)) if len(values) else -1
    head = {"unit": unit, "greatest": int(values.max(initial=0)), "fullest": fullest}
    return Answer(head, {"values": (-(-values // unit)).astype(np.uint16)})


def _frozen_touched(opened: Opened) -> Iterator[Mapping[str, str]]:
    yield from ({"step": str(step), "sort": "-written", "count": "2000"} for step in peak_steps(opened))


@question("liveness.touched", frozen=_frozen_touched, rank=6)
def touched(opened: Opened, params: Params) -> Answer:
    """Variables that a step reads and writes.

    Parameters: ``step``, ``filter``, ``sort``, ``first``, ``count``. Answer: as ``memory.variables`` has it, with
    ``read`` and ``written`` bytes.
    """
    report = opened.report
    found = report.variables_of(params.number("step"))
    count = len(report.variables)
    extra = {name: summed_by(found["variable"], found[f"{name}_bytes"], count) for name in ("read", "written")}
    kept = np.zeros(count, dtype=bool)
    kept[found["variable"]] = True
    return rows_page(opened, "variables", params, extra, kept)


@question("liveness.stack", frozen=_frozen_floor, rank=6)
def stack(opened: Opened, params: Params) -> Answer:
    """The nodes of the program that a step came from, innermost first: head ``nodes`` with ``text``, ``place``,
    ``row``.

    Parameters: ``step``.
    """
    report, step = opened.report, params.number("step")
    checked_step(report, step)
    tree, node = report.program_tree, int(report.nodes_by_step[step])
    told: list[dict[str, str | int]] = []
    while node >= 0 and len(told) < _MOST_NODES:
        kind, name, title, file = (_word(tree, column, node) for column in ("kind", "name", "title", "file"))
        place = f"{file}:{tree['line'][node]}" if file else ""
        words = [kind, *(word for word in (name, title) if word and word.lower() != kind.lower())]
        told.append({"text": " ".join(words), "place": place, "row": node})
        node = int(tree["parent"][node])
    return Answer({"nodes": told})


def _word(table: Table, name: str, row: int) -> str:
    """One text of a column, without the others."""
    column = table.columns[name]
    assert isinstance(column, Text)
    return column.words[int(column.codes[row])] if len(column) else ""
