"""A Perfetto trace as the perfetto package's own classes read it, with begins and ends put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("perfetto", reason="needs the perfetto package")
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

__all__ = ["Event", "Parsed", "pb"]


@dataclass(frozen=True)
class Event:
    """A slice that begins, or an instant."""

    name: str
    track: str
    category: str
    time: int
    annotations: dict[str, Any]


class Parsed:
    """Contents of the packets. Slices are (name, track, begin, duration); of a track, begins and ends must match.

    Args:
        content: The file.
    """

    def __init__(self, content: bytes) -> None:
        self.trace = pb.Trace()
        self.trace.ParseFromString(content)
        names: dict[int, dict[int, str]] = {field: {} for field in range(4)}
        tracks: dict[int, str] = {}
        opened: dict[int, list[Event]] = {}
        self.slices: list[tuple[str, str, int, int]] = []
        self.begun: list[Event] = []
        self.instants: list[Event] = []
        self.counters: dict[str, list[tuple[int, float]]] = {}
        first = self.trace.packet[0]
        assert first.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        for packet in self.trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            interned = packet.interned_data
            for field, entries in enumerate(
                (interned.event_names, interned.event_categories, interned.debug_annotation_names)
            ):
                names[field].update((e.iid, e.name) for e in entries)
            names[3].update((e.iid, e.str.decode()) for e in interned.debug_annotation_string_values)
            if packet.HasField("track_descriptor"):
                d = packet.track_descriptor
                assert d.uuid not in tracks
                assert not d.parent_uuid or d.parent_uuid in tracks
                tracks[d.uuid] = d.name or d.thread.thread_name or d.process.process_name
            if not packet.HasField("track_event"):
                continue
            assert packet.sequence_flags & pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            event, time = packet.track_event, packet.timestamp
            track = tracks[event.track_uuid]
            if event.type == pb.TrackEvent.TYPE_COUNTER:
                self.counters.setdefault(track, []).append((time, event.double_counter_value))
            elif event.type == pb.TrackEvent.TYPE_SLICE_END:
                begun = opened[event.track_uuid].pop()
                assert time > begun.time
                self.slices.append((begun.name, track, begun.time, time - begun.time))
            else:
                said = {
                    names[2][a.name_iid]: names[3][a.string_value_iid] if a.string_value_iid else a.uint_value
                    for a in event.debug_annotations
                }
                (category,) = event.category_iids
                found = Event(names[0][event.name_iid], track, names[1][category], time, said)
                if event.type == pb.TrackEvent.TYPE_INSTANT:
                    self.instants.append(found)
                else:
                    assert event.type == pb.TrackEvent.TYPE_SLICE_BEGIN
                    self.begun.append(found)
                    opened.setdefault(event.track_uuid, []).append(found)
        assert not any(opened.values())
