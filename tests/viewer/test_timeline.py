"""Lanes, flames, tiles and windows of the timeline against recomputation, span by span."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import abele as ab
from abele.errors import InvalidOptionError
from abele.poplibs import poplin, popops
from abele.report import GROUPS, PHASE_TILES, SPANS, STEPS, Memory, Report
from abele.report.block_runs import block_runs
from abele.viewer.answers import answer
from abele.viewer.bars import LaneBars, edges_of, seen
from abele.viewer.flames import make_blocks, make_flame, make_paths
from abele.viewer.lanes import COMPLETE, FIRST, PARTS, loops_of, make_lanes, parts_of_steps, stepped_shares
from abele.viewer.lanes import STEPS as OF_STEPS
from abele.viewer.open_reports import Opened, Shelf
from abele.viewer.params import Params
from abele.viewer.tile_lanes import (
    KINDS,
    Owners,
    fine_by_tile,
    looped_shares_by_tile,
    make_owners,
    row_edges,
    shares_by_tile,
    stretches,
    vertices_for_workers,
    work_of,
)
from abele.viewer.wire import Answer


def made(rng: np.random.Generator, *, groups: int = 3, steps: int = 12, spans: int = 60) -> Report:
    """A report with random steps and spans: gaps between spans, and spans shorter and longer than their steps."""
    kinds = rng.choice(["compute", "exchange", "copy", "stream"], steps)
    partner = np.where(kinds == "stream", rng.choice(["host", "streaming memory"], steps), "")
    parts = {f"{name}_cycles": rng.integers(0, 50, steps) for name in ("compute", "exchange", "sync")}
    parts["host_cycles"] = np.where(kinds == "stream", rng.integers(0, 90, steps), 0)
    table = STEPS.table(
        name=[f"a{n % 3}/b{n % 2}/step{n}" for n in range(steps)],
        kind=kinds.tolist(),
        partner=partner.tolist(),
        block=[f"stage{n // 4}" if n % 5 else "" for n in range(steps)],
        op=np.full(steps, -1),
        phase=np.arange(steps) % 7,
        superstep=np.arange(steps),
        executions=np.full(steps, 5),
        cycles=sum(parts.values()),
        **parts,
    )
    columns: dict[str, list[np.ndarray]] = {name: [] for name in SPANS.columns}
    ends = []
    for group in range(groups):
        step = rng.integers(0, steps, spans)
        length = np.where(rng.random(spans) < 0.3, rng.integers(0, 200, spans), table["cycles"][step])
        start = np.cumsum(length + rng.integers(0, 30, spans)) - length
        for name, column in (
            ("step", step),
            ("start_cycle", start),
            ("cycles", length),
            ("group", np.full(spans, group)),
        ):
            columns[name].append(column)
        columns["program"].append(np.zeros(spans, np.int64))
        ends.append(int((start + length).max()))
    tiles, num_tiles = [], 40 * groups
    for phase in range(7):
        edges = np.sort(rng.choice(np.arange(num_tiles + 1), 9, replace=False))
        tiles += [(phase, a, b - a, *rng.integers(0, 60, 3)) for a, b in zip(edges[:-1:2], edges[1::2], strict=True)]
    phases = dict(zip(PHASE_TILES.columns, np.array(tiles).T, strict=True))
    graph = ab.Graph("bow-2000:1")
    base = ab.compile_program(graph, ab.Sequence()).report
    memory = Memory.of(num_tiles, 1_000)
    return replace(
        base,
        memory=memory,
        target={**base.target, "tiles_per_ipu": 40, "num_tiles": num_tiles},
        steps=table,
        spans=SPANS.table(**{name: np.concatenate(each) for name, each in columns.items()}),
        groups=GROUPS.table(
            name=[f"IPU {g}" for g in range(groups)],
            program=np.zeros(groups),
            tiles=np.full(groups, 40),
            end_cycle=ends,
        ),
        phase_tiles=PHASE_TILES.table(**phases),
    )


def opened(report: Report) -> Opened:
    return next(iter(Shelf([report])))


def ask(report: Report | Opened, question: str, **params: object) -> Answer:
    held = report if isinstance(report, Opened) else opened(report)
    return answer(held, question, Params({name: str(value) for name, value in params.items()}))


def painted(report: Report, group: int, total: int) -> np.ndarray:
    """Activity of a group in each cycle, as an index into PARTS, -1 where it waits: cycle by cycle."""
    found = np.full(total, -1)
    steps, parts = report.steps, parts_of_steps(report)
    spans = report.spans
    for row in np.flatnonzero(spans["group"] == group):
        step, start, length = int(spans["step"][row]), int(spans["start_cycle"][row]), int(spans["cycles"][row])
        sizes = [int(steps[f"{name}_cycles"][step]) for name in ("sync", "exchange", "host", "compute")]
        ends = np.cumsum(sizes) if sum(sizes) == length else np.rint(np.cumsum(sizes) * (length / max(sum(sizes), 1)))
        ends = np.minimum(ends, length)
        ends[-1] = length
        begin = start
        for slot, end in enumerate(ends):
            found[begin : start + int(end)] = parts[step, slot]
            begin = start + int(end)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_covered__any_edges__sums_are_those_of_cycles_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    report = made(rng)
    lanes = make_lanes(report, 0)
    for group in range(3):
        cycles = painted(report, group, lanes.total)
        edges = np.unique(rng.integers(0, lanes.total + 1, 40)).astype(np.float64)
        found = lanes.covered(group, edges)
        for n, (low, high) in enumerate(zip(edges[:-1].astype(int), edges[1:].astype(int), strict=True)):
            expected = [np.count_nonzero(cycles[low:high] == part) for part in range(len(PARTS))]
            assert found[n].tolist() == expected


def test_covered__edges_inside_cycles__adds_up_over_any_cut() -> None:
    lanes = make_lanes(made(np.random.default_rng(9)), 0)
    whole = lanes.covered(1, np.array([0.0, float(lanes.total)]))[0]
    parts = lanes.covered(1, np.linspace(0, lanes.total, 977)).sum(axis=0)
    assert np.allclose(whole, parts, rtol=0, atol=1e-6)
    span = slice(*lanes.first[1:3])
    assert whole.sum() == lanes.cuts[span, -1].sum()


def test_lanes__streams__have_lanes_of_their_own_once_each() -> None:
    report = made(np.random.default_rng(2), groups=2)
    lanes = make_lanes(report, 0)
    assert lanes.names[:2] == ("IPU 0", "IPU 1")
    assert set(lanes.names[2:]) <= {"host streams", "streaming memory"}
    for lane in range(2, len(lanes)):
        steps = lanes.step[lanes.first[lane] : lanes.first[lane + 1]]
        assert (report.steps["host_cycles"][steps] > 0).all()


def test_lanes__spans_that_overlap__the_first_stays_and_nothing_counts_twice() -> None:
    report = made(np.random.default_rng(3), groups=1)
    spans = report.spans
    crowded = SPANS.table(**{name: spans[name] if name != "start_cycle" else spans[name] // 2 for name in spans.names})
    lanes = make_lanes(replace(report, spans=crowded), 0)
    covered = lanes.covered(0, np.linspace(0, lanes.total, 300))
    assert (covered.sum(axis=1) <= lanes.total / 299 + 1e-6).all()


def test_lanes__report_with_the_first_spans_only__tells_up_to_where() -> None:
    report = made(np.random.default_rng(4), groups=1)
    longer = replace(
        report, groups=report.groups.select(slice(0, 0)).append(**{**next(report.groups.rows()), "end_cycle": 10**6})
    )
    lanes = make_lanes(longer, 0)
    assert lanes.made_of == FIRST
    assert lanes.known[0] == int((report.spans["start_cycle"] + report.spans["cycles"]).max())
    edges = np.linspace(0, lanes.total, 11)
    assert lanes.unknown(0, edges).sum() == 10**6 - lanes.known[0]
    assert "hatched" in ask(longer, "timeline.outline").head["note"]


def test_lanes__report_without_spans__steps_follow_each_other() -> None:
    report = made(np.random.default_rng(5))
    old = replace(report, spans=SPANS.empty(), groups=GROUPS.empty())
    lanes = make_lanes(old, 0)
    assert lanes.made_of == OF_STEPS
    assert lanes.total == int(np.dot(report.steps["cycles"], report.steps["executions"]))
    assert lanes.covered(0, np.array([0.0, lanes.total])).sum() == lanes.total


def test_lanes__cycles_beyond_all_bounds__is_refused_in_words() -> None:
    report = made(np.random.default_rng(6), groups=1)
    spans = SPANS.table(**{name: report.spans[name] for name in SPANS.columns if name != "cycles"}, cycles=2**62)
    with pytest.raises(InvalidOptionError, match="add up to more than"):
        make_lanes(replace(report, spans=spans), 0)


@pytest.mark.parametrize("seed", range(3))
def test_stepped_shares__any_cell__parts_add_up_to_the_cell_once_rounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    covered = rng.random((200, 7))
    widths = covered.sum(axis=1) * (1 + (rng.random(200) < 0.5))
    shares = stepped_shares(covered, widths).astype(int)
    assert np.array_equal(shares.sum(axis=1), np.rint(covered.sum(axis=1) / widths * 255).astype(int))
    assert (np.abs(shares / 255 - covered / widths[:, None]) <= 1 / 255).all()


def test_map_tiles__of_all_levels__shares_are_those_of_the_spans() -> None:
    report = made(np.random.default_rng(7), spans=2_500)
    held = opened(report)
    lanes = make_lanes(report, 0)
    for level, index in ((0, 0), (1, 1)):
        found = ask(held, "timeline.lanes", level=level, index=index)
        assert found.head["mode"] == "shares"
        edges = edges_of(index, level, 0.0, lanes.total)
        for lane in range(len(lanes)):
            wanted = lanes.covered(lane, edges) / np.diff(edges)[:, None]
            assert np.abs(found.arrays["shares"][lane, :, :-1] / 255 - wanted).max() <= 1 / 255
    deep = ask(held, "timeline.lanes", level=4, index=3)
    assert deep.head["mode"] == "spans"
    low, high = deep.head["low"], deep.head["high"]
    spans, groups = report.spans, deep.arrays["lane"] < 3
    inside = (spans["start_cycle"] < high) & (spans["start_cycle"] + spans["cycles"] > low)
    assert np.count_nonzero(groups) == np.count_nonzero(inside)


def test_seen__more_bars_than_asked_for__every_column_shows_its_longest() -> None:
    rng = np.random.default_rng(8)
    gaps, lengths = rng.integers(0, 4, 900), rng.integers(0, 40, 900)
    begin = np.cumsum(gaps + lengths) - lengths
    bars = LaneBars(begin, begin + lengths, np.arange(900))
    edges = np.linspace(0, int(bars.end[-1]), 65)
    found = seen(bars, edges, 100)
    for low, high in itertools.pairwise(edges):
        covered = np.minimum(bars.end, high) - np.maximum(bars.begin, low)
        shown = (found.begin < high - 1e-9) & (found.end > low + 1e-9)
        if covered.max() > 0:
            assert covered[found.row[shown]].max() == covered.max()
    assert len(found.row) <= 64
    few = seen(bars, edges, 900)
    assert few.begin.tolist() == begin.tolist()
    assert set(few.count.tolist()) == {1}


def test_flame__of_any_lane__bars_nest_and_cover_the_spans() -> None:
    report = made(np.random.default_rng(10))
    lanes, paths = make_lanes(report, 0), make_paths(report)
    flame = make_flame(lanes, paths.node, 0)
    spans = slice(0, int(lanes.first[1]))
    for n, bars in enumerate(flame):
        assert (bars.begin[1:] >= bars.end[:-1]).all()
        for begin, end, row in zip(bars.begin, bars.end, bars.row, strict=True):
            inside = (lanes.start[spans] >= begin) & (lanes.stop[spans] <= end) & (np.arange(spans.stop) >= row)
            nodes = paths.node[lanes.step[spans][inside & (lanes.start[spans] < max(end, begin + 1))], n]
            assert nodes[0] == paths.node[lanes.step[row], n]
            if n:
                assert ((flame[n - 1].begin <= begin) & (flame[n - 1].end >= end)).any()
    names = [paths.names[n] for n in paths.node[0] if n >= 0]
    assert names == ["a0", "b0", "step0"]


@pytest.mark.parametrize("seed", range(5))
def test_blocks__of_any_lane__are_those_that_the_report_tells(seed: int) -> None:
    report = made(np.random.default_rng(seed), spans=120)
    lanes = make_lanes(report, 0)
    for group in range(3):
        found = make_blocks(report, lanes, group)
        told = block_runs(report, group)
        assert found.bars.begin.tolist() == [run.start_cycle for run in told]
        assert found.bars.end.tolist() == [run.end_cycle for run in told]
        assert found.number.tolist() == [run.number for run in told]
        assert [str(report.steps["block"][row]) for row in found.bars.row] == [run.block for run in told]


def dense(report: Report, column: str, phase: int) -> np.ndarray:
    """A column of a phase, tile by tile."""
    values = np.zeros(report.memory.num_tiles)
    table = report.phase_tiles
    for row in np.flatnonzero(table["phase"] == phase):
        first = int(table["first_tile"][row])
        values[first : first + int(table["num_tiles"][row])] += int(table[column][row])
    return values


@pytest.mark.parametrize(("height", "chunk"), [(0, 0), (1, 0), (3, 0), (0, 1)])
def test_work__rows_of_tiles__means_and_peaks_of_each_row(height: int, chunk: int) -> None:
    report = made(np.random.default_rng(11), groups=4)
    edges = row_edges(report.memory.num_tiles, height, chunk)
    found = work_of(report, np.arange(7), edges, most=True)
    for phase in range(7):
        compute = dense(report, "compute_cycles", phase)
        traffic = np.maximum(dense(report, "sent_bytes", phase), dense(report, "received_bytes", phase))
        for row, (a, b) in enumerate(itertools.pairwise(edges)):
            assert found.compute[phase, row] == pytest.approx(compute[a:b].mean())
            assert found.most[phase, row] == compute[a:b].max()
            assert found.traffic[phase, row] == pytest.approx(traffic[a:b].mean() / max(traffic.max(), 1))


@pytest.mark.parametrize("seed", range(3))
def test_shares_by_tile__whole_run__adds_up_to_every_execution_on_every_tile(seed: int) -> None:
    report = made(np.random.default_rng(seed))
    lanes = make_lanes(report, 0)
    owners = make_owners(report, lanes)
    spans, steps = report.spans, report.steps
    for part in stretches(owners, row_edges(report.memory.num_tiles, 0, 0)):
        found = shares_by_tile(report, lanes, part, np.linspace(0, lanes.total, 100))
        expected = np.zeros(len(part.edges) - 1)
        for row in np.flatnonzero(spans["group"] == part.lane):
            step = int(spans["step"][row])
            scale = spans["cycles"][row] / max(int(steps["cycles"][step]), 1)
            expected += scale * dense(report, "compute_cycles", int(steps["phase"][step]))[part.edges[:-1]]
        work = found[:, :, KINDS.index("compute")] + found[:, :, KINDS.index("arrange")]
        assert np.allclose(work.sum(axis=1), expected)
        sync = lanes.covered(part.lane, np.array([0.0, lanes.total]))[0, PARTS.index("sync")]
        assert np.allclose(found[:, :, KINDS.index("sync")].sum(axis=1), sync)


def test_fine__a_window__has_the_spans_that_reach_into_it() -> None:
    report = made(np.random.default_rng(12))
    lanes = make_lanes(report, 0)
    part = stretches(make_owners(report, lanes), row_edges(report.memory.num_tiles, 0, 0))[1]
    found = fine_by_tile(report, lanes, part, 100, 400)
    spans = report.spans
    mine = (spans["group"] == part.lane) & (spans["start_cycle"] < 400) & (spans["start_cycle"] + spans["cycles"] > 100)
    assert found.step.tolist() == spans["step"][mine].tolist()
    assert found.compute.shape == (len(found.step), len(part.edges) - 1)


def test_owners__a_named_group__has_the_tiles_that_its_own_steps_touch() -> None:
    graph = ab.Graph("bow-2000:1")
    graph.sync_group(range(1400, 1472), "io")
    a = graph.variable(ab.f32, (64, 64), name="a").map_linear()
    program = ab.Sequence()
    popops.add(graph, a, a, program, name="sum")
    far = graph.variable(ab.f32, (72,), name="far").map_linear(1, first_tile=1400)
    popops.add(graph, far, far, program, name="far")
    report = ab.compile_program(graph, program).report
    lanes = make_lanes(report, 0)
    owners = make_owners(report, lanes)
    touched = report.step_by_tile("compute_cycles", int(np.flatnonzero(report.steps["name"] == "far/far")[0])) > 0
    assert owners.inferred
    assert touched[1400:].any()
    assert (owners.lane[touched] == lanes.names.index("io")).all()
    assert (owners.lane[~touched] == lanes.names.index("IPU 0")).all()


def test_stretches__rows_of_no_lane__are_left_out() -> None:
    owners = Owners(np.array([0, 0, -1, -1, 1, 1]), False)
    found = stretches(owners, np.array([0, 2, 4, 6]))
    assert [(part.lane, part.first) for part in found] == [(0, 0), (1, 2)]


@pytest.fixture(scope="module")
def looped() -> dict[int, Report]:
    """A program with loops in a loop, of few trips and of so many that nobody unfolds them."""
    found = {}
    for trips in (3, 2_000_000):
        graph = ab.Graph("bow-2000:1")
        a, b = (graph.variable(ab.f32, (64, 64), name=name).map_linear() for name in "ab")
        inner, outer, body = ab.Sequence(), ab.Sequence(), ab.Sequence()
        popops.add(graph, a, b, inner, name="inner")
        popops.sub(graph, a, b, outer, name="outer")
        body.add(outer)
        body.add(ab.Repeat(4, inner))
        found[trips] = ab.compile_program(graph, ab.Sequence(ab.Copy(a, b), ab.Repeat(trips, body))).report
    return found


def test_lanes__loops__every_execution_is_unfolded(looped: dict[int, Report]) -> None:
    report = looped[3]
    lanes = make_lanes(report, 0)
    assert lanes.made_of == COMPLETE
    assert np.bincount(lanes.step, minlength=len(report.steps)).tolist() == report.steps["executions"].tolist()
    cycles = report.cycles(0)
    covered = lanes.covered(0, np.array([0.0, lanes.total]))[0]
    assert covered.sum() == cycles.total
    assert covered[PARTS.index("compute")] + covered[PARTS.index("arrange")] == cycles.compute


def test_lanes__more_executions_than_are_unfolded__sums_stay_exact_and_windows_have_them(
    looped: dict[int, Report],
) -> None:
    report = looped[2_000_000]
    held = opened(report)
    outline = ask(held, "timeline.outline").head
    assert outline["made_of"] == FIRST
    assert "unfolded" in outline["note"]
    total = outline["total"]
    cycles = report.cycles(0)
    told = ask(held, "timeline.window", **{"from": 0, "to": total}).head["lanes"][0]
    assert told["unknown"] == 0
    assert told["cycles"]["compute"] + told["cycles"]["arrange"] == pytest.approx(cycles.compute, rel=1e-12)
    assert sum(told["cycles"].values()) == pytest.approx(cycles.total, rel=1e-12)
    # In the middle of the run single executions are there, and their sums are those of the loops.
    low = total // 2
    near = ask(held, "timeline.window", **{"from": low, "to": low + 30_000}).head["lanes"][0]["cycles"]
    spans = report.spans_between(low, low + 30_000)
    steps = report.steps
    inside = np.clip(
        np.minimum(spans["start_cycle"] + spans["cycles"], low + 30_000) - np.maximum(spans["start_cycle"], low),
        0,
        None,
    )
    assert sum(near.values()) == inside.sum()
    assert near["sync"] == pytest.approx(np.dot(steps["sync_cycles"][spans["step"]], inside / spans["cycles"]), abs=200)
    level = int(np.log2(total / 30_000))
    tile = ask(held, "timeline.lanes", level=level, index=1 << (level - 1))
    assert tile.head["mode"] == "spans"
    assert len(tile.arrays["start"])


def test_loops__sums_between_any_edges__are_those_of_the_unfolded_run(looped: dict[int, Report]) -> None:
    from abele.viewer.lanes import looped_covered

    report = looped[3]
    held, lanes = opened(report), make_lanes(report, 0)
    edges = np.sort(np.random.default_rng(1).random(60)) * lanes.total
    assert np.allclose(looped_covered(held, lanes, 0, 0, edges), lanes.covered(0, edges), atol=1e-6)


def test_loops__tiles_between_any_edges__do_what_they_do_in_the_unfolded_run(looped: dict[int, Report]) -> None:
    report = looped[3]
    held, lanes = opened(report), make_lanes(report, 0)
    (part,) = stretches(make_owners(report, lanes), row_edges(1472, 0, 0))
    edges = np.array([0.0, lanes.total / 3, float(lanes.total)])
    loops = loops_of(held, lanes, 0, 0)
    found = looped_shares_by_tile(report, lanes, part, edges, loops, lanes.covered(0, edges))
    assert np.allclose(found, shares_by_tile(report, lanes, part, edges))


def test_tiles__of_a_run_too_long_to_unfold__add_up_to_what_the_report_tells_of_each(looped: dict[int, Report]) -> None:
    report = looped[2_000_000]
    found = ask(report, "timeline.tiles", height=0, chunk=0)
    assert found.head["mode"] == "shares"
    total = ask(report, "timeline.outline").head["total"]
    shares = found.arrays["shares"][:, :, [KINDS.index("compute"), KINDS.index("arrange")]].sum(axis=2) / 255
    expected = report.program_by_tile("compute_cycles")[:128] / total
    assert np.abs(shares.mean(axis=1) - expected).max() < 1 / 255


def test_vertices_for_workers__codelets_that_share_a_vertex__are_told_apart(looped: dict[int, Report]) -> None:
    report = looped[3]
    found = vertices_for_workers(opened(report))
    kinds = report.codelets["kind"][report.vertices["codelet"]]
    for superstep in np.unique(report.vertices["superstep"]):
        alone = (kinds[report.vertices["superstep"] == superstep] == "vertex").all()
        rows = np.flatnonzero(report.steps["superstep"] == superstep)
        wanted = report.steps["num_vertices"][rows] / report.steps["active_tiles"][rows] if alone else -1
        assert np.allclose(found[rows], wanted)


@pytest.fixture(scope="module")
def compiled() -> Report:
    graph = ab.Graph("bow-2000:1")
    a, b = (graph.variable(ab.f32, (64, 64), name=name).map_linear() for name in "ab")
    program = ab.Sequence()
    product = poplin.matmul(graph, a, b, program, name="first")
    popops.add(graph, product, a, program, name="sum")
    return ab.compile_program(graph, program).report


def test_summary__of_a_program__is_what_the_report_tells(compiled: Report) -> None:
    told = ask(compiled, "timeline.summary").head
    timeline = compiled.timeline()
    assert told["total"] == timeline.total
    assert told["tile_balance"] == pytest.approx(compiled.tile_balance)
    expected = sorted((link.name, link.total) for link in timeline.critical_path)
    assert sorted((link["name"], round(link["cycles"])) for link in told["critical"]) == expected
    lane = timeline.lanes[0]
    assert told["lanes"][0]["cycles"] == {
        name.replace("streaming_memory", "memory"): n for name, n in lane.cycles.items()
    }
    assert told["bytes"]["exchange"] == int(np.dot(compiled.steps["exchanged_bytes"], compiled.steps["executions"]))


def test_window__of_the_whole_run__operations_have_the_cycles_of_their_table(compiled: Report) -> None:
    told = ask(compiled, "timeline.window", **{"from": 0, "to": compiled.total_cycles}).head
    cycles = {op["row"]: op["cycles"] for op in told["ops"] if op["row"] >= 0}
    assert cycles == {n: float(c) for n, c in enumerate(compiled.ops["cycles"]) if c}
    assert told["executions"] == int(compiled.steps["executions"].sum())


def test_find__words__are_the_executions_of_steps_that_have_them(compiled: Report) -> None:
    found = ask(compiled, "timeline.find", text="first exchange")
    names = compiled.steps["name"]
    wanted = [n for n, name in enumerate(names) if "first" in name and "exchange" in name]
    assert sorted(set(found.arrays["step"].tolist())) == wanted
    assert (np.diff(found.arrays["start"]) >= 0).all()
    assert ask(compiled, "timeline.find", text="no such step").head["total"] == 0


def test_at__a_cycle__is_the_execution_that_runs_then(compiled: Report) -> None:
    spans = compiled.spans
    for row in range(len(spans)):
        if spans["cycles"][row]:
            told = ask(compiled, "timeline.at", lane=0, at=int(spans["start_cycle"][row])).head
            assert (told["step"], told["start"]) == (spans["step"][row], spans["start_cycle"][row])
    assert ask(compiled, "timeline.at", lane=0, at=10**12).head["step"] == -1


@pytest.mark.parametrize("question", ["outline", "lanes", "flame", "blocks", "tiles", "window", "summary", "find"])
def test_questions__a_program_that_there_is_not__is_refused(compiled: Report, question: str) -> None:
    with pytest.raises(InvalidOptionError, match="no program 7"):
        ask(compiled, f"timeline.{question}", program=7)


def test_step__that_there_is_not__is_refused(compiled: Report) -> None:
    with pytest.raises(InvalidOptionError, match="no step 99999"):
        ask(compiled, "timeline.step", step=99_999)


def test_outline__program_without_steps__has_nothing_to_show() -> None:
    empty = ab.compile_program(ab.Graph("bow-2000:1"), ab.Sequence()).report
    told = ask(empty, "timeline.outline").head
    assert sum(lane["spans"] for lane in told["lanes"]) == 0
    assert ask(empty, "timeline.tiles", height=4).head["mode"] == "spans"
