"""Events measured on the host: their sources and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import InvalidOptionError
from abele.report.programs import program_name
from abele.viewer.answers.registry import Frozen, once, question
from abele.viewer.bars import COLUMNS, edges_of, seen
from abele.viewer.host_data import HostData, HostSource, host_data
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from abele.words import counted, shortened

# Parameters of questions about the host: the source, row and map tile.

MOST_LABELS = 400
"""Names, channels and call paths of a source that are told."""
MOST_BINS = 128
"""Bins of a heat map that are told apart."""
FROZEN_LEVELS = 4
_MOST_LEVEL = 50
_NAME_LETTERS = 200


def short_name(text: str) -> str:
    """A name at the length at which it is sent."""
    return shortened(text, _NAME_LETTERS)


def source_asked(opened: Opened, params: Params) -> tuple[HostData, HostSource]:
    """Data measured on the host, and the source that the question names.

    Raises:
        InvalidOptionError: There is no such source.
    """
    data = host_data(opened)
    number = params.number("source", high=1 << 20)
    if number >= len(data.sources):
        raise InvalidOptionError(
            f"there is no source {number}", remedy=f"{counted(len(data.sources), 'source')} of events are open"
        )
    return data, data.sources[number]


def row_asked(params: Params, name: str, rows: int) -> int:
    """A row of one of ``rows``, as the parameter ``name`` says.

    Raises:
        InvalidOptionError: There is no such row.
    """
    number = params.number(name, high=1 << 40)
    if number >= rows:
        raise InvalidOptionError(f"there is no {name} {number}", remedy=f"there are {rows:,}")
    return number


def edges_asked(data: HostData, params: Params, columns: int = COLUMNS) -> npt.NDArray[np.float64]:
    """Edges of the columns of a map tile in ns, float64[columns + 1]."""
    level = params.number("level", high=_MOST_LEVEL)
    index = params.number("index", high=(1 << level) - 1)
    return edges_of(index, level, 0.0, float(max(data.duration_ns, 1)), columns)


_MOST_BARS = 1_000
_MOST_FOUND = 20_000
_MOST_ROWS = 512
_DETAIL_LETTERS = 4_000


@question("host.outline", frozen=once, rank=3)
def outline(opened: Opened, params: Params) -> Answer:
    """Sources of host events, with processes and threads, series and heat maps; times in ns.

    Answer: head ``duration``, ``sources``; ``profile`` (facts of the profile of the host), ``seconds`` of runs by what
    the host did, and ``runs``.
    """
    data = host_data(opened)
    return Answer(
        {
            "duration": data.duration_ns,
            "sources": [_listed(source) for source in data.sources],
            "runs": len(opened.report.runs),
            "seconds": opened.report.host_seconds,
            "leaves": len(opened.report.host_leaves),
            "profile": opened.report.host.head() if len(opened.report.host_leaves) else [],
        }
    )


def _listed(source: HostSource) -> dict[str, Any]:
    held = source.columns
    threads = held.threads
    order = np.argsort(-threads.num_events, kind="stable")[:_MOST_ROWS]
    marked = np.bincount(held.instants.thread, minlength=len(threads)) if len(threads) else np.zeros(0, np.int64)
    return {
        "kind": source.kind,
        "note": shortened(source.note, 2_000),
        "events": len(held.events),
        "instants": len(held.instants),
        "origin": held.origin_unix_ns,
        "channels": [short_name(channel) for channel in held.channels[:MOST_LABELS]],
        "left_out": max(len(threads) - _MOST_ROWS, 0),
        "processes": [
            {"name": short_name(name), "id": int(number), "host": short_name(host), "file": short_name(file)}
            for name, number, host, file in zip(
                held.processes.name, held.processes.id, held.processes.host, held.processes.file, strict=True
            )
        ],
        "threads": [
            {
                "thread": thread,
                "process": int(threads.process[thread]),
                "name": short_name(threads.name[thread]),
                "id": int(threads.id[thread]),
                "events": int(threads.num_events[thread]),
                "instants": int(marked[thread]),
                "depth": len(source.rows[thread]),
            }
            for thread in sorted(order.tolist())
        ],
        "series": [
            {
                "graph": short_name(each.graph),
                "name": short_name(each.name),
                "unit": short_name(each.unit),
                "process": each.process,
                "points": len(each),
                "low": _finite(each.values, np.min),
                "high": _finite(each.values, np.max),
            }
            for each in held.series[:_MOST_ROWS]
        ],
        "heatmaps": [
            {
                "name": short_name(each.name),
                "unit": short_name(each.unit),
                "process": each.process,
                "rows": len(each),
                "bins": min(each.counts.shape[1], MOST_BINS),
                "low": float(each.edges[0]) if len(each.edges) else 0.0,
                "high": float(each.edges[-1]) if len(each.edges) else 0.0,
                "most": int(each.counts.max(initial=0)),
            }
            for each in held.heatmaps[:_MOST_ROWS]
        ],
    }


def _finite(values: Array, pick: Any) -> float | None:
    finite = values[np.isfinite(values)]
    return float(pick(finite)) if len(finite) else None


def _frozen_events(opened: Opened) -> Frozen:
    for number, source in enumerate(host_data(opened).sources):
        for thread in range(min(len(source.columns.threads), 16)):
            for level in range(FROZEN_LEVELS):
                for index in range(1 << level):
                    yield {"source": str(number), "thread": str(thread), "level": str(level), "index": str(index)}


@question("host.events", frozen=_frozen_events, rank=5)
def events(opened: Opened, params: Params) -> Answer:
    """The events of a thread in a map tile.

    Parameters: ``source``, ``thread``, ``level``, ``index``.

    Answer: arrays ``depth``, ``start``, ``cycles`` (ns), ``node`` (index into head ``names``), ``channel``, ``row`` of
    the events table and ``count`` (events that each stands for); ``marks`` and ``mark_node``, the instants, those of a
    column once.
    """
    data, source = source_asked(opened, params)
    thread = row_asked(params, "thread", len(source.columns.threads))
    edges = edges_asked(data, params)
    held = source.columns
    columns: dict[str, list[Array]] = {name: [np.zeros(0)] for name in ("depth", "start", "cycles", "row", "count")}
    for depth, bars in enumerate(source.rows[thread]):
        found = seen(bars, edges, _MOST_BARS)
        columns["depth"].append(np.full(len(found.row), depth))
        columns["start"].append(found.begin)
        columns["cycles"].append(found.end - found.begin)
        columns["row"].append(found.row)
        columns["count"].append(found.count)
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    row = arrays["row"].astype(np.int64)
    marks = held.instants
    at = np.flatnonzero((marks.thread == thread) & (marks.time_ns >= edges[0]) & (marks.time_ns < edges[-1]))
    if len(at) > _MOST_BARS:
        column = np.searchsorted(edges, marks.time_ns[at], side="right")
        at = at[np.append(True, np.diff(column) != 0)]
    codes = np.concatenate([held.events.label[row], marks.label[at]]).astype(np.int64)
    different, place = np.unique(codes, return_inverse=True)
    return Answer(
        {"names": [short_name(held.labels[code]) for code in different.tolist()]},
        {
            "depth": arrays["depth"].astype(np.int32),
            "start": arrays["start"],
            "cycles": arrays["cycles"],
            "node": place[: len(row)].astype(np.int32),
            "channel": held.events.channel[row],
            "row": row,
            "count": arrays["count"].astype(np.int32),
            "marks": marks.time_ns[at],
            "mark_node": place[len(row) :].astype(np.int32),
        },
    )


@question("host.event")
def event(opened: Opened, params: Params) -> Answer:
    """All that is known of an event: ``source``, ``row``."""
    _, source = source_asked(opened, params)
    held = source.columns
    row = row_asked(params, "row", len(held.events))
    parents: list[dict[str, Any]] = []
    above = int(held.events.parent[row])
    while above >= 0 and len(parents) < 64:
        parents.append({"row": above, "name": short_name(held.labels[held.events.label[above]])})
        above = int(held.events.parent[above])
    label = held.events.label[row]
    alike = held.events.label == label
    code = int(held.events.detail[row])
    name = held.labels[label]
    return Answer(
        {
            "row": row,
            "name": shortened(name, 1_000),
            "channel": short_name(held.channels[held.events.channel[row]]),
            "process": short_name(held.processes.name[held.events.process[row]]),
            "thread": short_name(held.threads.name[held.events.thread[row]]),
            "thread_row": int(held.events.thread[row]),
            "start": int(held.events.begin_ns[row]),
            "cycles": int(held.events.duration_ns[row]),
            "self": int(source.self_ns[row]),
            "depth": int(held.events.depth[row]),
            "is_open": bool(held.events.is_open[row]),
            "detail": shortened(held.details[code], _DETAIL_LETTERS) if code >= 0 else "",
            "parents": parents,
            "alike": int(np.count_nonzero(alike)),
            "alike_total": int(held.events.duration_ns[alike].sum()),
            "program": _program_of(opened, source, row, name),
        }
    )


def _program_of(opened: Opened, source: HostSource, row: int, name: str) -> int:
    """The program that an event is a run of, −1 for none: its run in the report, or a name that the report knows."""
    runs = opened.report.runs
    if source.kind == "runs":
        while int(source.columns.events.parent[row]) >= 0:
            row = int(source.columns.events.parent[row])
        whole = np.flatnonzero(source.columns.events.depth[: row + 1] == 0)
        return int(runs["program"][min(len(whole), len(runs)) - 1]) if len(runs) else -1
    programs = [program_name(opened.report, n) for n in range(len(opened.report.meta.get("programs") or ()))]
    words = set(name.replace(":", " ").replace("(", " ").replace(")", " ").split())
    for number, program in enumerate(programs):
        if program and program in words and {"run", "Engine.run", "Engine::run", "execute"} & words:
            return number
    is_run = name.split("(")[0].strip() in {"run", "Engine.run", "Engine::run", "execute", "Engine.run_loaded"}
    return 0 if is_run else -1


@question("host.find")
def find(opened: Opened, params: Params) -> Answer:
    """Events whose names or channels hold some words, in order of time.

    Parameters: ``text``.

    Answer: head ``total``; arrays ``source``, ``thread``, ``row``, ``start``, ``cycles`` (ns).
    """
    words = params.text("text").casefold().split()
    parts = []
    for number, source in enumerate(host_data(opened).sources):
        held = source.columns
        mask = np.full(len(held.events), bool(words))
        for word in words:
            labels = np.array([word in label.casefold() for label in held.labels], dtype=bool)
            channels = np.array([word in channel.casefold() for channel in held.channels], dtype=bool)
            if len(held.events):
                mask &= labels[held.events.label] | channels[held.events.channel]
        at = np.flatnonzero(mask)
        parts.append(
            np.stack(
                [
                    np.full(len(at), number),
                    held.events.thread[at],
                    at,
                    held.events.begin_ns[at],
                    held.events.duration_ns[at],
                ]
            )
        )
    found = np.concatenate([np.zeros((5, 0), np.int64), *parts], axis=1)
    order = np.argsort(found[3], kind="stable")[:_MOST_FOUND]
    names = ("source", "thread", "row", "start", "cycles")
    return Answer({"total": found.shape[1]}, dict(zip(names, found[:, order], strict=True)))
