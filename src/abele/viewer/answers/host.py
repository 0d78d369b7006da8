"""What was measured on the host: events of threads, instants, series, heat maps, and figures of a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError
from abele.viewer.answers.registry import Frozen, once, question
from abele.viewer.bars import COLUMNS, edges_of, seen
from abele.viewer.host_data import HostData, HostSource, host_data
from abele.viewer.opened import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer, Array
from abele.words import counted, shortened

_MOST_BARS = 1_000
_MOST_POINTS = 1_024
_MOST_FOUND = 20_000
_MOST_LABELS = 400
_MOST_ROWS = 512
_MOST_BINS = 128
_MOST_LEVEL = 50
_NAME_LETTERS = 200
_DETAIL_LETTERS = 4_000
_FROZEN_LEVELS = 4

Int64 = npt.NDArray[np.int64]


def _name(text: str) -> str:
    return shortened(text, _NAME_LETTERS)


def _frozen_events(opened: Opened) -> Frozen:
    for number, source in enumerate(host_data(opened).sources):
        for thread in range(min(len(source.columns.threads), 16)):
            for level in range(_FROZEN_LEVELS):
                for index in range(1 << level):
                    yield {"source": str(number), "thread": str(thread), "level": str(level), "index": str(index)}


def _frozen_series(opened: Opened) -> Frozen:
    for number, source in enumerate(host_data(opened).sources):
        for each in range(min(len(source.columns.series), 16)):
            yield {"source": str(number), "series": str(each), "level": "0", "index": "0"}


def _frozen_heatmaps(opened: Opened) -> Frozen:
    for number, source in enumerate(host_data(opened).sources):
        for each in range(min(len(source.columns.heatmaps), 8)):
            yield {"source": str(number), "heatmap": str(each), "level": "0", "index": "0"}


def _source(opened: Opened, params: Params) -> tuple[HostData, HostSource]:
    data = host_data(opened)
    number = params.number("source", high=1 << 20)
    if number >= len(data.sources):
        raise InvalidOptionError(
            f"there is no source {number}", remedy=f"{counted(len(data.sources), 'source')} of events are open"
        )
    return data, data.sources[number]


def _row(params: Params, name: str, rows: int) -> int:
    number = params.number(name, high=1 << 40)
    if number >= rows:
        raise InvalidOptionError(f"there is no {name} {number}", remedy=f"there are {rows:,}")
    return number


def _edges(data: HostData, params: Params, columns: int = COLUMNS) -> npt.NDArray[np.float64]:
    level = params.number("level", high=_MOST_LEVEL)
    index = params.number("index", high=(1 << level) - 1)
    return edges_of(index, level, 0.0, float(max(data.duration_ns, 1)), columns)


@question("host.outline", frozen=once, rank=3)
def outline(opened: Opened, params: Params) -> Answer:
    """What there is: sources with processes and threads, series and heat maps; times in ns.

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
        "channels": [_name(channel) for channel in held.channels[:_MOST_LABELS]],
        "left_out": max(len(threads) - _MOST_ROWS, 0),
        "processes": [
            {"name": _name(name), "id": int(number), "host": _name(host), "file": _name(file)}
            for name, number, host, file in zip(
                held.processes.name, held.processes.id, held.processes.host, held.processes.file, strict=True
            )
        ],
        "threads": [
            {
                "thread": thread,
                "process": int(threads.process[thread]),
                "name": _name(threads.name[thread]),
                "id": int(threads.id[thread]),
                "events": int(threads.num_events[thread]),
                "instants": int(marked[thread]),
                "depth": len(source.rows[thread]),
            }
            for thread in sorted(order.tolist())
        ],
        "series": [
            {
                "graph": _name(each.graph),
                "name": _name(each.name),
                "unit": _name(each.unit),
                "process": each.process,
                "points": len(each),
                "low": _finite(each.values, np.min),
                "high": _finite(each.values, np.max),
            }
            for each in held.series[:_MOST_ROWS]
        ],
        "heatmaps": [
            {
                "name": _name(each.name),
                "unit": _name(each.unit),
                "process": each.process,
                "rows": len(each),
                "bins": min(each.counts.shape[1], _MOST_BINS),
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


@question("host.events", frozen=_frozen_events, rank=5)
def events(opened: Opened, params: Params) -> Answer:
    """The events of a thread in a map tile.

    Parameters: ``source``, ``thread``, ``level``, ``index``.

    Answer: arrays ``depth``, ``start``, ``cycles`` (ns), ``node`` (index into head ``names``), ``channel``, ``row`` of
    the events table and ``count`` (events that each stands for); ``marks`` and ``mark_node``, the instants, those of a
    column once.
    """
    data, source = _source(opened, params)
    thread = _row(params, "thread", len(source.columns.threads))
    edges = _edges(data, params)
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
        {"names": [_name(held.labels[code]) for code in different.tolist()]},
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


@question("host.series", frozen=_frozen_series, rank=5)
def series(opened: Opened, params: Params) -> Answer:
    """A numeric series in a map tile, with one point before and behind it.

    Parameters: ``source``, ``series``, ``level``, ``index``.

    Answer: arrays ``time``, ``low``, ``high``, ``value`` (ns and values): single points, or least, largest and last of
    each column that has some.
    """
    data, source = _source(opened, params)
    held = source.columns.series[_row(params, "series", len(source.columns.series))]
    edges = _edges(data, params)
    first, last = np.searchsorted(held.time_ns, [edges[0], edges[-1]])
    rows = slice(max(int(first) - 1, 0), int(last) + 1)
    time, value = held.time_ns[rows], held.values[rows]
    if len(time) <= _MOST_POINTS:
        return Answer({}, {"time": time, "low": value, "high": value, "value": value})
    column = np.searchsorted(edges, time, side="right")
    starts = np.flatnonzero(np.append(True, np.diff(column) != 0))
    ends = np.append(starts[1:], len(time)) - 1
    low = np.fmin.reduceat(value, starts)
    high = np.fmax.reduceat(value, starts)
    return Answer({}, {"time": time[ends], "low": low, "high": high, "value": value[ends]})


@question("host.heatmap", frozen=_frozen_heatmaps, rank=6)
def heatmap(opened: Opened, params: Params) -> Answer:
    """A histogram over time in a map tile.

    Parameters: ``source``, ``heatmap``, ``level``, ``index``.

    Answer: arrays ``time`` (ns, where each column begins), ``until`` and ``counts`` float32[columns, bins], means of
    what falls into a column; ``edges`` of the bins.
    """
    data, source = _source(opened, params)
    held = source.columns.heatmaps[_row(params, "heatmap", len(source.columns.heatmaps))]
    edges = _edges(data, params)
    first, last = np.searchsorted(held.time_ns, [edges[0], edges[-1]])
    rows = slice(max(int(first) - 1, 0), max(int(last), 1))
    time, counts = held.time_ns[rows], held.counts[rows].astype(np.float64)
    ends = np.append(held.time_ns[rows.start + 1 : rows.stop], _next(held.time_ns, rows.stop, data.duration_ns))
    if len(time) > COLUMNS:
        column = np.searchsorted(edges, time, side="right")
        starts = np.flatnonzero(np.append(True, np.diff(column) != 0))
        sizes = np.diff(np.append(starts, len(time)))
        counts = np.add.reduceat(counts, starts, axis=0) / sizes[:, None]
        time, ends = time[starts], np.append(time[starts][1:], ends[-1])
    bins, bin_edges = _fewer_bins(counts, held.edges)
    return Answer(
        {},
        {"time": time, "until": ends[: len(time)], "counts": bins.astype(np.float32), "edges": bin_edges},
    )


def _next(times: Int64, place: int, end: int) -> int:
    """The time after some rows; as long as the one before where there is none."""
    if place < len(times):
        return int(times[place])
    if len(times) > 1:
        return min(int(2 * times[-1] - times[-2]), max(end, int(times[-1])))
    return end


def _fewer_bins(counts: Array, edges: Array) -> tuple[Array, Array]:
    """Neighbouring bins added up where there are too many to draw."""
    each = -(-counts.shape[1] // _MOST_BINS) if counts.shape[1] else 1
    starts = np.arange(0, counts.shape[1], each)
    if each == 1 or not len(starts):
        return counts, edges
    return np.add.reduceat(counts, starts, axis=1), np.append(edges[starts], edges[-1])


@question("host.event")
def event(opened: Opened, params: Params) -> Answer:
    """All that is known of an event: ``source``, ``row``."""
    _, source = _source(opened, params)
    held = source.columns
    row = _row(params, "row", len(held.events))
    parents: list[dict[str, Any]] = []
    above = int(held.events.parent[row])
    while above >= 0 and len(parents) < 64:
        parents.append({"row": above, "name": _name(held.labels[held.events.label[above]])})
        above = int(held.events.parent[above])
    label = held.events.label[row]
    alike = held.events.label == label
    code = int(held.events.detail[row])
    name = held.labels[label]
    return Answer(
        {
            "row": row,
            "name": shortened(name, 1_000),
            "channel": _name(held.channels[held.events.channel[row]]),
            "process": _name(held.processes.name[held.events.process[row]]),
            "thread": _name(held.threads.name[held.events.thread[row]]),
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
    programs = [str(program) for program in opened.report.meta.get("programs", ()) or ()]
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


@question("host.window", frozen=once, rank=4)
def figures(opened: Opened, params: Params) -> Answer:
    """What happens in a window: figures by name, and the call tree.

    Parameters: ``from`` and ``to`` in ns; all of it by default.

    Answer: head ``names`` with most time: ``name``, ``channel``, ``source``, ``count``, ``total``, ``self``, ``mean``,
    ``most`` (ns, of what lies in the window); ``tree``: ``name``, ``parent`` (place in the list, −1), ``count``,
    ``total``, ``self``.
    """
    data = host_data(opened)
    low = params.real("from")
    high = max(params.real("to", float(data.duration_ns)), low)
    names: list[dict[str, Any]] = []
    tree: list[dict[str, Any]] = []
    for number, source in enumerate(data.sources):
        held = source.columns
        inside = np.flatnonzero((held.events.begin_ns < high) & (held.events.end_ns > low))
        if not len(inside):
            continue
        cut = np.minimum(held.events.end_ns[inside], high) - np.maximum(held.events.begin_ns[inside], low)
        own = _self(held.events.parent, inside, cut, len(held.events))
        names += _by_name(source, number, inside, cut, own)
        tree += _tree(source, inside, cut, own, len(tree))
    names.sort(key=lambda entry: -entry["total"])
    return Answer({"low": low, "high": high, "names": names[:_MOST_LABELS], "tree": tree})


def _self(parent: Int64, inside: Int64, cut: Array, count: int) -> Array:
    """Time in a window that no event inside takes, of some events."""
    inner = np.bincount(parent[inside] + 1, cut, count + 1)[1:]
    return np.asarray(np.maximum(cut - inner[inside], 0))


def _by_name(source: HostSource, number: int, inside: Int64, cut: Array, own: Array) -> list[dict[str, Any]]:
    held = source.columns
    label = held.events.label[inside]
    size = len(held.labels)
    count = np.bincount(label, minlength=size)
    total, alone = np.bincount(label, cut, size), np.bincount(label, own, size)
    most = np.zeros(size)
    np.maximum.at(most, label, cut)
    channel = np.zeros(size, np.int64)
    channel[label] = held.events.channel[inside]
    return [
        {
            "name": _name(held.labels[n]),
            "channel": _name(held.channels[channel[n]]),
            "source": number,
            "count": int(count[n]),
            "total": float(total[n]),
            "self": float(alone[n]),
            "mean": float(total[n] / count[n]),
            "most": float(most[n]),
        }
        for n in np.argsort(-total, kind="stable")[:_MOST_LABELS].tolist()
        if count[n]
    ]


def _tree(source: HostSource, inside: Int64, cut: Array, own: Array, first: int) -> list[dict[str, Any]]:
    """Call paths with most time, each after what is around it."""
    node, parent, label = source.nodes
    size = len(parent)
    count = np.bincount(node[inside], minlength=size)
    total, alone = np.bincount(node[inside], cut, size), np.bincount(node[inside], own, size)
    kept = np.sort(np.argsort(-total, kind="stable")[:_MOST_LABELS])
    kept = kept[count[kept] > 0]
    place = np.full(size + 1, -1)
    place[kept] = np.arange(len(kept)) + first
    return [
        {
            "name": _name(source.columns.labels[label[n]]),
            "parent": int(place[parent[n]]) if parent[n] >= 0 else -1,
            "count": int(count[n]),
            "total": float(total[n]),
            "self": float(alone[n]),
        }
        for n in kept.tolist()
    ]
