"""Sources put together on one axis of time, their events nested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from abele.trace.columns import Events, HeatmapData, Instants, Processes, SeriesData, Threads
from abele.trace.nesting import nested
from abele.trace.source import TraceSource
from abele.words import counted

T = TypeVar("T", SeriesData, HeatmapData)
_APART_NS = 1 << 58
"""Files whose clocks are further apart (nine years) are not put on one axis by them."""


@dataclass(frozen=True, eq=False)
class TraceParts:
    """Columns of a trace; :class:`abele.trace.Trace` describes each."""

    events: Events
    instants: Instants
    series: tuple[SeriesData, ...]
    heatmaps: tuple[HeatmapData, ...]
    threads: Threads
    processes: Processes
    channels: tuple[str, ...]
    labels: tuple[str, ...]
    details: tuple[str, ...]
    origin_unix_ns: int | None
    notes: tuple[str, ...]


def assembled(sources: Sequence[TraceSource]) -> TraceParts:
    """The columns of some files together.

    Args:
        sources: The files. Times of those that do not say when they were recorded begin where the others do.
    """
    origin = min((s.unix_ns for s in sources if s.unix_ns is not None), default=None)
    shifts, notes = _shifts(sources, origin)
    # Rows of a file follow those of the files before it: its numbers move by their counts.
    first_process = _firsts(len(s.processes) for s in sources)
    first_thread = _firsts(len(s.threads) for s in sources)
    first_detail = _firsts(len(s.details) for s in sources)
    # Names are merged instead: the same channel or label in two files is one row.
    channels, channel_codes = _shared([s.channels for s in sources])
    labels, label_codes = _shared([s.labels for s in sources])
    threads = [(first_process[k] + t.process, t) for k, s in enumerate(sources) for t in s.threads]
    thread_process = np.array([row for row, _ in threads], np.int32)

    def codes(pick: Callable[[TraceSource], npt.NDArray[np.int32]], tables: Sequence[npt.NDArray[np.int32]]) -> Any:
        return _joined([table[pick(s)] for s, table in zip(sources, tables, strict=True)], np.int32)

    def rows(pick: Callable[[TraceSource], npt.NDArray[np.int32]], firsts: Sequence[int]) -> Any:
        found = [np.where(pick(s) < 0, -1, pick(s) + first) for s, first in zip(sources, firsts, strict=True)]
        return _joined(found, np.int32)

    def times(pick: Callable[[TraceSource], npt.NDArray[np.int64]]) -> Any:
        return _joined([pick(s) + shift for s, shift in zip(sources, shifts, strict=True)], np.int64)

    # Nesting needs all spans on one axis of time, and gives the order of the table.
    span_thread = rows(lambda s: s.spans.thread, first_thread)
    begin = times(lambda s: s.spans.begin_ns)
    duration = _joined([s.spans.duration_ns for s in sources], np.int64)
    found = nested(span_thread, begin, duration, len(threads))
    order = found.order
    if found.num_crossing:
        notes.append(
            f"{counted(found.num_crossing, 'event')} lie in stretches where events of one thread overlap without "
            "enclosing each other, as those of coroutines do: there the depth is a lane"
        )
    events = Events(
        process=thread_process[span_thread[order]],
        thread=span_thread[order],
        channel=codes(lambda s: s.spans.channel, channel_codes)[order],
        label=codes(lambda s: s.spans.label, label_codes)[order],
        begin_ns=begin[order],
        duration_ns=duration[order],
        depth=found.depth,
        parent=found.parent,
        detail=rows(lambda s: s.spans.detail, first_detail)[order],
        is_open=_joined([s.spans.is_open for s in sources], np.bool_)[order],
    )
    # Instants do not nest: time alone orders them.
    mark_thread = rows(lambda s: s.marks.thread, first_thread)
    moments = times(lambda s: s.marks.time_ns)
    by_time = np.argsort(moments, kind="stable")
    instants = Instants(
        process=thread_process[mark_thread[by_time]],
        thread=mark_thread[by_time],
        channel=codes(lambda s: s.marks.channel, channel_codes)[by_time],
        label=codes(lambda s: s.marks.label, label_codes)[by_time],
        time_ns=moments[by_time],
        detail=rows(lambda s: s.marks.detail, first_detail)[by_time],
    )

    def moved(k: int, data: T) -> T:
        return replace(
            data,
            channel=int(channel_codes[k][data.channel]),
            process=data.process + first_process[k],
            time_ns=data.time_ns + shifts[k],
        )

    return TraceParts(
        events=events,
        instants=instants,
        series=tuple(moved(k, data) for k, s in enumerate(sources) for data in s.series),
        heatmaps=tuple(moved(k, data) for k, s in enumerate(sources) for data in s.heatmaps),
        threads=Threads(
            process=thread_process,
            id=np.array([t.id for _, t in threads], np.int64),
            name=tuple(t.name for _, t in threads),
            first_event=found.first[:-1],
            num_events=np.diff(found.first),
        ),
        processes=Processes(
            id=np.array([p.id for s in sources for p in s.processes], np.int64),
            parent=np.array([p.parent for s in sources for p in s.processes], np.int64),
            name=tuple(p.name for s in sources for p in s.processes),
            host=tuple(p.host for s in sources for p in s.processes),
            file=tuple(s.file for s in sources for _ in s.processes),
        ),
        channels=channels,
        labels=labels,
        details=tuple(text for s in sources for text in s.details),
        origin_unix_ns=origin,
        notes=(*(f"{s.file}: {note}" for s in sources for note in s.notes), *notes),
    )


def _shifts(sources: Sequence[TraceSource], origin: int | None) -> tuple[list[int], list[str]]:
    """Shift of each source's times, and notes about it."""
    shifts, notes = [], []
    for source in sources:
        apart = 0 if source.unix_ns is None or origin is None else source.unix_ns - origin
        if source.unix_ns is None and origin is not None:
            notes.append(
                f"{source.file}: does not say when it was recorded; its time zero is put where the others begin"
            )
        if apart > _APART_NS:
            notes.append(f"{source.file}: was recorded years after the others; its time zero is put where they begin")
            apart = 0
        shifts.append(apart)
    return shifts, notes


def _firsts(sizes: Iterable[int]) -> list[int]:
    firsts = [0]
    for size in sizes:
        firsts.append(firsts[-1] + size)
    return firsts[:-1]


def _shared(words: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], list[npt.NDArray[np.int32]]]:
    """Words of several sources as one table, and for each source the code that each of its words has there."""
    index: dict[str, int] = {}
    tables = [np.array([index.setdefault(word, len(index)) for word in some], np.int32) for some in words]
    return tuple(index), tables


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)
