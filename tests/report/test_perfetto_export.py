"""The timeline of a report as a Perfetto trace, read back by the perfetto package's classes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import abele as ab
from abele.errors import InvalidOptionError
from abele.report import GROUPS, SPANS, STEPS, Report
from abele.report.perfetto import write_perfetto
from support.perfetto_trace import Parsed


@pytest.fixture(scope="module")
def report() -> Report:
    """Two programs, one with a loop and tiles that stream apart from the others."""
    graph = ab.Graph("bow-2000:2")
    x = graph.variable(ab.f32, (2944, 8), name="x").map_linear()
    y = graph.variable(ab.f32, (2944, 8), name="y").map_linear(first_tile=17)
    z = graph.variable(ab.f32, (2944, 8), name="z").map_linear(first_tile=40)
    steps = ab.Repeat(3, ab.Sequence(ab.Copy(x, y), ab.Copy(y, z), ab.Copy(z, x)))
    return ab.compile_program(graph, {"loop": steps, "once": ab.Copy(x, z)}).report


def test_report__in_cycles__has_every_span_with_its_figures(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r.pftrace"
    write_perfetto(report, path, unit="cycles")
    parsed = Parsed(path.read_bytes())
    spans, steps = report.spans, report.steps
    assert len(spans) >= 10
    names, groups = steps["name"][spans["step"]], report.groups["name"][spans["group"]]
    want = sorted(zip(names, groups, spans["start_cycle"].tolist(), spans["cycles"].tolist(), strict=True))
    assert sorted(parsed.slices) == want
    for event in parsed.begun:
        row = event.annotations["step"]
        assert event.category == steps["kind"][row]
        assert event.annotations["cycles"] == steps["cycles"][row]
        for part in ("compute_cycles", "exchange_cycles", "sync_cycles", "host_cycles", "exchanged_bytes"):
            assert event.annotations[part] == steps[part][row]
    processes = [p.track_descriptor.process.process_name for p in parsed.trace.packet if p.HasField("track_descriptor")]
    assert [name for name in processes if name] == ["program loop", "program once"]


def test_report__in_seconds__rounds_to_nanoseconds_without_overlaps(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r.pftrace"
    write_perfetto(report, path)
    parsed = Parsed(path.read_bytes())
    scale = 1e9 / report.target["clock_hz"]
    spans = report.spans
    ends = sorted(((spans["start_cycle"] + spans["cycles"]) * scale).tolist())
    found = sorted(begin + duration for _, _, begin, duration in parsed.slices)
    assert found == pytest.approx(ends, abs=0.6)
    write_perfetto(replace(report, spans=spans.where("program", 0)), path)
    tracks: dict[str, int] = {}
    for _, track, begin, duration in sorted(Parsed(path.read_bytes()).slices, key=lambda s: s[2]):
        assert begin >= tracks.get(track, 0)
        tracks[track] = begin + duration


def test_report__live_bytes__are_those_of_the_steps(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r.pftrace"
    write_perfetto(report, path, unit="cycles")
    parsed = Parsed(path.read_bytes())
    live = dict(zip(report.liveness["step"].tolist(), report.liveness["live_bytes"].tolist(), strict=True))
    want: list[tuple[int, float]] = []
    for program in (0, 1):
        spans = report.spans.where("program", program)
        at: dict[int, float] = {}
        for step, start in sorted(
            zip(spans["step"].tolist(), spans["start_cycle"].tolist(), strict=True), key=lambda s: s[1]
        ):
            at[start] = live[step]
        changes = list(at.items())
        want += [one for k, one in enumerate(changes) if k == 0 or one[1] != changes[k - 1][1]]
    assert len(want) > 2
    assert parsed.counters["not always-live bytes of all tiles"] == want


def test_report__without_spans__is_an_empty_trace(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "r.pftrace"
    write_perfetto(replace(report, spans=SPANS.empty()), path)
    assert Parsed(path.read_bytes()).slices == []


def test_report__another_unit__is_refused(report: Report, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="time in 'days'"):
        write_perfetto(report, tmp_path / "r.pftrace", unit="days")


def test_report__names_from_strangers__are_text(report: Report, tmp_path: Path) -> None:
    names = ["<script>", "\x00\x1b[31m", "\ud800", "x" * 5000, ""]
    steps = STEPS.table(name=names, kind="compute", cycles=np.full(5, 10))
    spans = SPANS.table(step=np.arange(5), start_cycle=np.arange(5) * 10, cycles=np.full(5, 10))
    odd = replace(
        report, steps=steps, spans=spans, groups=GROUPS.table(name=["<b>"]), liveness=report.liveness.select([])
    )
    odd = replace(odd, meta={"programs": "no list"})
    write_perfetto(odd, tmp_path / "r.pftrace")
    parsed = Parsed((tmp_path / "r.pftrace").read_bytes())
    assert [name for name, *_ in parsed.slices] == ["<script>", "\x00\x1b[31m", "?", "x" * 5000, ""]


@pytest.mark.slow
def test_report__of_a_million_spans__takes_seconds(report: Report, tmp_path: Path) -> None:
    count, lanes = 1_000_000, 64
    steps = STEPS.table(name=[f"step {k}" for k in range(5000)], kind="exchange", cycles=np.full(5000, 9))
    lane = np.tile(np.arange(lanes), count // lanes)
    start = np.repeat(np.arange(count // lanes) * 10, lanes)
    spans = SPANS.table(group=lane, step=np.arange(len(lane)) % 5000, start_cycle=start, cycles=np.full(len(lane), 9))
    large = replace(report, steps=steps, spans=spans, groups=GROUPS.table(name=[f"IPU {k}" for k in range(lanes)]))
    large = replace(large, liveness=report.liveness.select([]))
    begin = time.process_time()
    write_perfetto(large, tmp_path / "r.pftrace")
    assert time.process_time() - begin < 15
    assert (tmp_path / "r.pftrace").stat().st_size < 120 << 20
