"""Files from strangers: cut short, damaged, or made to do harm."""

from __future__ import annotations

import os
import random
import struct
import time
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele import trace
from abele.errors import FileFormatError
from abele.trace import Trace
from abele.trace import format as layout
from abele.trace.format import ChunkKind, Declarations, HeatmapHead, ProcessHead, SeriesHead, ThreadHead, chunk_bytes
from abele.trace.writer import TraceWriter

CHANNEL = trace.Channel("tests")
HEAD = layout.FILE_HEAD.pack(layout.MAGIC, layout.VERSION)


def chunks(content: bytes) -> list[tuple[int, int]]:
    """Begin and end of each chunk of a file, told without the reader."""
    found, at = [], 16
    while at < len(content):
        marker, _, _, size = struct.unpack_from("<4sIII", content, at)
        assert marker == b"ABCK"
        found.append((at, at + 24 + size))
        at = found[-1][1]
    return found


def declared(**more: object) -> bytes:
    fields: dict[str, object] = {
        "process": ProcessHead(7, "p", begin_ns=1000, begin_unix_ns=10**18),
        "channels": ["c"],
        "labels": [(0, "a"), (0, "b")],
        "threads": [ThreadHead(0, 70, "t")],
    }
    return chunk_bytes(ChunkKind.DECLARATIONS, 1, msgspec.json.encode(Declarations(**{**fields, **more})))  # type: ignore[arg-type]


def events(*columns: list[int]) -> bytes:
    parts = b"".join(layout.packed(np.array(column, np.int64)) for column in columns)
    return chunk_bytes(ChunkKind.EVENTS, len(columns[0]), parts)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with trace.recording(tmp_path / "a.abele-trace", flush_seconds=1000) as path:
        heat, series = CHANNEL.heatmap("h", [0, 1, 2]), CHANNEL.graph("g").series("s")
        for k in range(8):
            with CHANNEL.tracepoint(f"step {k}", {"k": k}), CHANNEL.tracepoint("inner"):
                series.add(k)
                heat.add([0.5, 1.5])
                CHANNEL.instant("i")
            trace.flush()
    return path


def test_file__layout__is_that_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "a.abele-trace"
    writer = TraceWriter(path)
    writer.columns(ChunkKind.EVENTS, *(np.array(c, np.int64) for c in ([0, 0], [1, 300], [5, 70000], [1, 2], [0, 0])))
    writer.flush()
    writer.close()
    content = path.read_bytes()
    assert content[:16] == b"abele-trace\0" + struct.pack("<I", 1)
    marker, kind, records, size, checksum, head = struct.unpack_from("<4sIIIII", content, 16)
    assert (marker, kind, records, size) == (b"ABCK", 2, 2, len(content) - 40)
    assert checksum == zlib.crc32(content[40:])
    assert head == zlib.crc32(content[16:36])
    column = struct.Struct("<qB7x")
    found, at = [], 40
    for _ in range(5):
        base, width = column.unpack_from(content, at)
        values = np.frombuffer(content, f"<u{width}", 2, at + 16)
        found.append((base, width, values.tolist()))
        at += 16 + (2 * width + 7) // 8 * 8
    assert at == len(content)
    assert found == [(0, 1, [0, 0]), (1, 2, [0, 299]), (5, 4, [0, 69995]), (1, 1, [0, 1]), (0, 1, [0, 0])]


@given(st.lists(st.integers(-(1 << 59), 1 << 59), max_size=50), st.sampled_from([1, 100, 10**5, 10**10, 1 << 60]))
def test_packed__integers__come_back(values: list[int], most: int) -> None:
    given_values = np.array([value % most - most // 2 for value in values], np.int64)
    content = layout.packed(given_values)
    assert len(content) % 8 == 0
    found, after = layout.unpacked(memoryview(content), 0, len(values))
    assert found.tolist() == given_values.tolist()
    assert after == len(content)


def test_file__cut_anywhere__gives_all_whole_chunks_before(recorded: Path, tmp_path: Path) -> None:
    content = recorded.read_bytes()
    whole = Trace.load(recorded)
    assert (len(whole.events), len(whole.instants), whole.note) == (16, 8, "")
    cut = tmp_path / "cut.abele-trace"
    places = sorted({*range(0, len(content), 37), *(end for _, end in chunks(content)), *range(20)})
    sizes = []
    for place in places:
        cut.write_bytes(content[:place])
        loaded = Trace.load(cut)
        assert ("has no end" in loaded.note) == (place < len(content))
        last = max([end for _, end in chunks(content) if end <= place], default=16)
        left = place - last
        assert (f"the last {left} bytes are no whole chunk" in loaded.note) == (left > 1), place
        sizes.append(len(loaded.events))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 8


def test_file__growing_by_single_bytes__is_read_as_one_that_is_read_at_once(recorded: Path, tmp_path: Path) -> None:
    content = recorded.read_bytes()
    path = tmp_path / "grows.abele-trace"
    path.write_bytes(b"")
    loaded = Trace.load(path)
    for place in range(0, len(content), 41):
        with path.open("ab") as stream:
            stream.write(content[place : place + 41])
        assert loaded.grown()
        loaded = loaded.reload()
    whole = Trace.load(recorded)
    assert (loaded.note, loaded.details) == ("", whole.details)
    for name, column in vars(whole.events).items():
        assert (column == getattr(loaded.events, name)).all(), name
    assert loaded.heatmaps[0].counts.tolist() == [[1, 1]] * 8
    assert loaded.series[0].values.tolist() == list(range(8))


def test_file__with_a_damaged_payload__shows_the_rest_and_says_where(recorded: Path, tmp_path: Path) -> None:
    content = bytearray(recorded.read_bytes())
    kinds = [struct.unpack_from("<I", content, start + 4)[0] for start, _ in chunks(content)]
    place = [k for k, kind in enumerate(kinds) if kind == ChunkKind.EVENTS][3]
    start, end = chunks(content)[place]
    content[end - 30] ^= 4
    path = tmp_path / "damaged.abele-trace"
    path.write_bytes(content)
    loaded = Trace.load(path)
    assert 8 <= len(loaded.events) < 16
    assert loaded.note == f"damaged.abele-trace: damaged at byte {start:,}: a chunk does not have its checksum"
    content[start + 8] ^= 1
    path.write_bytes(content)
    loaded = Trace.load(path)
    assert len(loaded.events) < 8
    assert f"damaged at byte {start:,}: no chunk begins there" in loaded.note


def test_file__whose_names_are_lost__still_has_its_events(tmp_path: Path) -> None:
    path = tmp_path / "a.abele-trace"
    path.write_bytes(HEAD + events([0, 3], [5, 1 << 50], [10, 20], [5, 5], [0, 9]))
    loaded = Trace.load(path)
    assert [row["label"] for row in loaded.rows()] == ["(lost)", "(lost)"]
    assert loaded.processes.name == ("unknown process",)
    assert loaded.origin_unix_ns is None
    assert loaded.events.detail.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", None),
        (b"abele-tr", None),
        (b"abele-txxx", "not an Abele trace"),
        (b"not a trace at all, but some text", "not an Abele trace"),
        (layout.FILE_HEAD.pack(layout.MAGIC, 2), "version 2 of the format"),
    ],
)
def test_file__that_is_none__is_refused(tmp_path: Path, content: bytes, message: str | None) -> None:
    path = tmp_path / "a.abele-trace"
    path.write_bytes(content)
    if message is None:
        assert len(Trace.load(path).events) == 0
        return
    with pytest.raises(FileFormatError, match=message):
        Trace.load(path)


def test_file__that_is_missing__is_refused(tmp_path: Path) -> None:
    for name in ("a.abele-trace", "a.json"):
        with pytest.raises(FileFormatError, match="cannot be read: No such file"):
            Trace.load(tmp_path / name)


def test_path__that_is_no_plain_file__is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.abele-trace")
    for path in (tmp_path / "pipe.abele-trace", Path("/dev/zero")):
        with pytest.raises(FileFormatError, match="no plain file"):
            Trace.load(path)
    (tmp_path / "folder.abele-trace").mkdir()
    with pytest.raises(FileFormatError, match="the folder holds no"):
        Trace.load(tmp_path)


def test_folder__one_file_of_it_is_none__the_others_are_shown(recorded: Path) -> None:
    bad = recorded.parent / "bad.abele-trace"
    bad.write_bytes(b"something else altogether")
    loaded = Trace.load(recorded.parent)
    assert len(loaded.events) == 16
    assert loaded.note == f"{bad}: not an Abele trace"
    assert not loaded.grown()
    for paths in ([bad], [recorded, bad], [recorded.parent, bad]):
        with pytest.raises(FileFormatError, match="not an Abele trace"):
            Trace.load(*paths)
    recorded.unlink()
    (recorded.parent / "worse.abele-trace").write_bytes(b"something else altogether")
    with pytest.raises(FileFormatError, match="not an Abele trace"):
        Trace.load(recorded.parent)


def _columns(*columns: list[int]) -> bytes:
    return b"".join(layout.packed(np.array(column, np.int64)) for column in columns)


HOSTILE = {
    "more records than bytes": layout._CHUNK_HEAD.pack(b"ABCK", 2, 1 << 31, 8, zlib.crc32(bytes(8)), 0),
    "a payload of 4 GB": layout._CHUNK_HEAD.pack(b"ABCK", 2, 1, 0xFFFFFFF8, 0, 0),
    "a width of 0": chunk_bytes(ChunkKind.EVENTS, 8, struct.pack("<qB7x", 0, 0) * 5),
    "a width of 3": chunk_bytes(ChunkKind.EVENTS, 1, struct.pack("<qB7x", 0, 3) * 5),
    "a column that is too short": chunk_bytes(ChunkKind.EVENTS, 64, struct.pack("<qB7x", 0, 8) + bytes(64)),
    "columns that are missing": chunk_bytes(ChunkKind.EVENTS, 1, _columns([1])),
    "a base out of range": chunk_bytes(ChunkKind.EVENTS, 1, (struct.pack("<qB7x", (1 << 63) - 1, 1) + bytes(8)) * 5),
    "values out of range": chunk_bytes(
        ChunkKind.EVENTS, 1, (struct.pack("<qB7x", 0, 8) + struct.pack("<q", -(1 << 63))) * 5
    ),
    "a negative duration": events([0], [0], [5], [-1], [0]),
    "no JSON": chunk_bytes(ChunkKind.DECLARATIONS, 1, b'{"channels": [}'),
    "JSON of other types": chunk_bytes(ChunkKind.DECLARATIONS, 1, b'{"channels": [1]}'),
    "deep JSON": chunk_bytes(ChunkKind.DECLARATIONS, 1, b'{"x": ' + b"[" * 500_000),
    "numbers of names without bound": chunk_bytes(
        ChunkKind.DECLARATIONS, 1, msgspec.json.encode(Declarations(first_label=1 << 40, labels=[(0, "x")]))
    ),
    "negative numbers of names": chunk_bytes(
        ChunkKind.DECLARATIONS, 1, msgspec.json.encode(Declarations(first_channel=-5, channels=["x"]))
    ),
    "edges that descend": chunk_bytes(
        ChunkKind.DECLARATIONS, 1, msgspec.json.encode(Declarations(heatmaps=[HeatmapHead(0, "h", [2.0, 1.0])]))
    ),
    "one edge": chunk_bytes(
        ChunkKind.DECLARATIONS, 1, msgspec.json.encode(Declarations(heatmaps=[HeatmapHead(0, "h", [2.0])]))
    ),
    "counts of no heat map": chunk_bytes(ChunkKind.HEATMAP, 1, _columns([5], [0], [0, 0])),
    "values of no series": chunk_bytes(ChunkKind.SAMPLES, 1, _columns([5], [0]) + bytes(8)),
    "values that are missing": chunk_bytes(ChunkKind.SAMPLES, 1, _columns([5], [0])),
    "a kind nobody knows": chunk_bytes(77, 1, b"x"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", HOSTILE)
def test_chunk__made_to_do_harm__is_said_and_the_rest_shown(tmp_path: Path, name: str) -> None:
    content = HOSTILE[name]
    checked = len(content) == 24  # A head alone, whose checksum has to be right.
    if checked:
        content = content[:20] + struct.pack("<I", zlib.crc32(content[:20])) + bytes(8)
    path = tmp_path / "a.abele-trace"
    good = events([0, 0], [1, 0], [1010, 1000], [5, 20], [0, 0])
    path.write_bytes(HEAD + declared() + good + content + good)
    begin = time.perf_counter()
    loaded = Trace.load(path)
    assert time.perf_counter() - begin < 2
    assert len(loaded.events) == (2 if checked else 4)
    assert "damaged at byte" in loaded.note or "does not know" in loaded.note or "not declared" in loaded.note


def test_file__clocks_out_of_range__are_not_believed(tmp_path: Path) -> None:
    first, second = tmp_path / "a.abele-trace", tmp_path / "b.abele-trace"
    good = events([0], [0], [1010], [5], [0])
    first.write_bytes(HEAD + declared() + good)
    for unix in (-5, 0, 1 << 62, (1 << 62) - 1):
        second.write_bytes(HEAD + declared(process=ProcessHead(8, "q", begin_ns=1000, begin_unix_ns=unix)) + good)
        loaded = Trace.load(first, second)
        assert loaded.events.begin_ns.tolist() == [10, 10]
        assert "its time zero is put where" in loaded.note
    second.write_bytes(HEAD + declared(process=ProcessHead(8, "q", begin_ns=1 << 61)) + good)
    assert "its clock is out of range" in Trace.load(second).note


def test_file__extreme_times__do_not_wrap(tmp_path: Path) -> None:
    path = tmp_path / "a.abele-trace"
    most = (1 << 60) - (1 << 33)
    path.write_bytes(
        HEAD
        + declared(process=ProcessHead(7, "p", begin_ns=-most, begin_unix_ns=10**18))
        + events([0, 0, 0], [0, 1, 0], [-most, most, 0], [most, most, most], [0, 0, 0])
    )
    loaded = Trace.load(path)
    assert loaded.events.begin_ns.tolist() == [0, most, 2 * most]
    assert (loaded.events.end_ns > loaded.events.begin_ns).all()
    assert (loaded.events.depth >= 0).all()


def test_file__staircase_of_crossing_events__is_read_in_time(tmp_path: Path) -> None:
    path = tmp_path / "a.abele-trace"
    count = 60_000
    rows = np.arange(count)
    zero = rows * 0
    path.write_bytes(HEAD + declared() + events(*(c.tolist() for c in (zero, zero, rows, zero + count, zero))))
    begin = time.perf_counter()
    loaded = Trace.load(path)
    assert time.perf_counter() - begin < 10
    assert loaded.events.depth.tolist() == rows.tolist()


def test_file__declarations_of_everything__are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abele.trace.recorded.MOST_THREADS", 3)
    monkeypatch.setattr("abele.trace.recorded.MOST_EVENTS", 3)
    path = tmp_path / "a.abele-trace"
    many = [ThreadHead(k, k, "t") for k in range(5)]
    good = events([0, 0], [1, 0], [1010, 1000], [5, 20], [0, 0])
    series = declared(series=[SeriesHead(k, "g", "s") for k in range(5)])
    path.write_bytes(HEAD + declared(threads=many) + series + good + good)
    loaded = Trace.load(path)
    assert len(loaded.events) == 2
    assert "more than 3 threads" in loaded.note
    assert "more than 3 events; the later ones are left out" in loaded.note


def test_file__random_damage_with_right_checksums__never_fails_otherwise(recorded: Path, tmp_path: Path) -> None:
    content = recorded.read_bytes()
    drawn = random.Random(5)
    path = tmp_path / "a.abele-trace"
    for _ in range(300):
        mutated = bytearray(content)
        start, end = drawn.choice(chunks(content))
        for _ in range(drawn.randint(1, 4)):
            place = drawn.choice([drawn.randrange(start + 4, start + 12), drawn.randrange(start + 24, end)])
            mutated[place] = drawn.choice([0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, drawn.randrange(256)])
        struct.pack_into("<I", mutated, start + 16, zlib.crc32(mutated[start + 24 : end]))
        struct.pack_into("<I", mutated, start + 20, zlib.crc32(mutated[start : start + 20]))
        path.write_bytes(mutated)
        loaded = Trace.load(path)
        events_found = loaded.events
        assert (events_found.duration_ns >= 0).all()
        assert (events_found.parent < np.arange(len(events_found))).all()
        assert (events_found.label < len(loaded.labels)).all()
        assert (events_found.channel < len(loaded.channels)).all()
        assert (events_found.thread < len(loaded.threads)).all()
        assert (events_found.detail < len(loaded.details)).all()
        for data in (*loaded.series, *loaded.heatmaps):
            assert 0 <= data.channel < len(loaded.channels)
        assert repr(loaded)
