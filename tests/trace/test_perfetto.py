"""Perfetto traces, read back by the protobuf classes of the perfetto package."""

from __future__ import annotations

import gzip
import io
import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele import trace
from abele.trace import Trace, perfetto
from abele.trace.perfetto import PerfettoWriter, perfetto_file, write_perfetto
from support.perfetto_trace import Parsed, pb

CHANNEL = trace.Channel("tests")


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=20), st.integers(1, 2000))
def test_number_column__of_any_numbers__is_parsed_back(values: list[int], field: int) -> None:
    block = perfetto.number_column(field, np.array(values, np.uint64))
    for row, value in zip(block, values, strict=True):
        # A field that the message does not know keeps its number: parse it by hand as the encoding page says.
        content, numbers = row.tobytes(), []
        while content:
            place = next(k for k, byte in enumerate(content) if byte < 0x80) + 1
            numbers.append(sum((byte & 0x7F) << 7 * k for k, byte in enumerate(content[:place])))
            content = content[place:]
        assert numbers == [field << 3, value]


def test_slices__nested_touching_and_short__are_balanced_on_each_track() -> None:
    stream = io.BytesIO()
    writer = PerfettoWriter(stream)
    process = writer.process(1, "p")
    tracks = [writer.track(name, process, rank) for rank, name in enumerate("ab")]
    #            track begin duration: parents before children, also where they begin or end together
    rows = [
        (0, 0, 10),
        (0, 0, 5),
        (0, 0, 2),
        (0, 2, 3),
        (0, 5, 5),
        (0, 10, 0),
        (0, 10, 4),
        (1, 3, 7),
        (1, 10, 1),
        (1, 11, 0),
    ]
    track = np.array([tracks[t] for t, _, _ in rows])
    begin, duration = (np.array([row[k] for row in rows]) for k in (1, 2))
    names = writer.names(f"n{k}" for k in range(len(rows)))
    told = {"row": np.arange(len(rows)), "cycles": duration}
    said = {"detail": writer.texts(["", "x"]) * 0 + 0}
    said = {"detail": np.where(np.arange(len(rows)) % 3 == 0, writer.texts(["hello"])[0], 0)}
    writer.slices(
        track, names, writer.categories(["c"])[np.zeros(len(rows), int)], begin, duration, numbers=told, texts=said
    )
    parsed = Parsed(stream.getvalue())
    lasting = [k for k, row in enumerate(rows) if row[2]]
    assert sorted(parsed.slices) == sorted((f"n{k}", "ab"[rows[k][0]], rows[k][1], rows[k][2]) for k in lasting)
    assert sorted((i.name, i.track, i.time) for i in parsed.instants) == [("n5", "a", 10), ("n9", "b", 11)]
    for event in (*parsed.begun, *parsed.instants):
        k = int(event.name[1:])
        want: dict[str, Any] = {"row": k, "cycles": rows[k][2]}
        assert event.annotations == (want | {"detail": "hello"} if k % 3 == 0 else want)
        assert event.category == "c"
    times = [packet.timestamp for packet in parsed.trace.packet if packet.HasField("track_event")]
    assert times[: 2 * len(lasting)] == sorted(times[: 2 * len(lasting)])


def test_counters__values__are_parsed_back_but_for_nan() -> None:
    stream = io.BytesIO()
    writer = PerfettoWriter(stream)
    tracks = np.array([writer.counter("live", "bytes"), writer.counter("loss", "nats")])
    values = np.array([1.5, math.nan, -3, math.inf, 1e300])
    writer.counters(tracks[[0, 0, 1, 1, 0]], np.array([5, 6, 1, 2, 3]), values)
    parsed = Parsed(stream.getvalue())
    assert parsed.counters == {"live": [(3, 1e300), (5, 1.5)], "loss": [(1, -3.0)]}
    units = {
        p.track_descriptor.name: p.track_descriptor.counter for p in parsed.trace.packet if p.track_descriptor.name
    }
    assert units["live"].unit == pb.CounterDescriptor.UNIT_SIZE_BYTES
    assert units["loss"].unit_name == "nats"


def test_trace__of_threads_and_all_kinds__is_parsed_back(tmp_path: Path) -> None:
    def work() -> None:
        for k in range(50):
            with CHANNEL.tracepoint("outer", {"k": k}), CHANNEL.tracepoint("\ud800<b>"):
                CHANNEL.instant("mark", {"at": k})

    with trace.recording(tmp_path) as path:
        threads = [threading.Thread(target=work, name=f"w{k}") for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        series = CHANNEL.graph("loss").series("train")
        series.add(1)
        series.add(math.nan)
        CHANNEL.heatmap("h", [0, 2, 4]).add([1, 1, 3])
    loaded = Trace.load(path)
    for name in ("t.pftrace", "t.pftrace.gz"):
        write_perfetto(loaded, tmp_path / name)
    content = (tmp_path / "t.pftrace").read_bytes()
    assert gzip.decompress((tmp_path / "t.pftrace.gz").read_bytes()) == content
    parsed = Parsed(content)
    want = sorted((r["label"], r["thread"], r["begin_ns"], r["duration_ns"]) for r in loaded.rows())
    assert sorted(parsed.slices) == want
    assert len(parsed.slices) == 300
    told = sorted(json.loads(event.annotations["detail"])["k"] for event in parsed.begun if event.annotations)
    assert told == sorted([*range(50)] * 3)
    assert sorted(json.loads(i.annotations["detail"])["at"] for i in parsed.instants) == sorted([*range(50)] * 3)
    assert {k: [v for _, v in values] for k, values in parsed.counters.items()} == {
        "loss train": [1.0],
        "mean of h": [pytest.approx(5 / 3)],
    }
    (clock,) = (p.clock_snapshot for p in parsed.trace.packet if p.HasField("clock_snapshot"))
    assert {c.clock_id: c.timestamp for c in clock.clocks} == {6: 0, 1: loaded.origin_unix_ns}
    processes = [p.track_descriptor.process for p in parsed.trace.packet if p.track_descriptor.HasField("process")]
    assert [p.pid for p in processes] == loaded.processes.id.tolist()


def test_trace__whose_events_cross__has_a_track_for_each_lane(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    rows = [(0, 10), (5, 10), (12, 10), (30, 5), (31, 2)]
    events = [{"ph": "X", "ts": t, "dur": d, "name": f"n{t}", "pid": 2**40, "tid": "main"} for t, d in rows]
    path.write_text(json.dumps(events))
    with perfetto_file(tmp_path / "empty.pftrace"):
        pass
    assert Parsed((tmp_path / "empty.pftrace").read_bytes()).slices == []
    write_perfetto(Trace.load(path), tmp_path / "t.pftrace")
    parsed = Parsed((tmp_path / "t.pftrace").read_bytes())
    assert sorted((begin, duration, track) for _, track, begin, duration in parsed.slices) == [
        (0, 10000, "main"),
        (5000, 10000, "main (lane 1)"),
        (12000, 10000, "main"),
        (30000, 5000, "main"),
        (31000, 2000, "main (lane 1)"),
    ]


def test_trace__of_equal_process_numbers__keeps_them_apart(tmp_path: Path) -> None:
    for name in "ab":
        events = [{"ph": "X", "ts": 1, "dur": 2, "name": name, "pid": 5, "tid": tid} for tid in (1, 2)]
        (tmp_path / f"{name}.json").write_text(json.dumps(events))
    write_perfetto(Trace.load(tmp_path / "a.json", tmp_path / "b.json"), tmp_path / "t.pftrace")
    parsed = Parsed((tmp_path / "t.pftrace").read_bytes())
    descriptors = [p.track_descriptor for p in parsed.trace.packet if p.HasField("track_descriptor")]
    pids = [d.process.pid for d in descriptors if d.HasField("process")]
    assert len(set(pids)) == 2
    assert pids[0] == 5
    tids = [d.thread.tid for d in descriptors if d.HasField("thread")]
    assert len(set(tids)) == 4
