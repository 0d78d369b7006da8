"""Programs whose sync groups advance on their own: what they take, and what the report says of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Executable, compile_program
from abele.compiler.durations import host_cycles
from abele.compiler.sync_groups import SyncGroups
from abele.errors import InvalidOptionError
from abele.graph import (
    Block,
    Copy,
    Execute,
    Graph,
    If,
    Program,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    SetFloatingPointBehaviour,
    Sync,
    Tensor,
    concat,
)
from abele.machine import systems
from abele.numerics import bool_, f32, i32
from abele.report import Report
from compiler.support import Search, small_system
from support.vertices import Increment

WORK = 3000
"""Issue slots of the vertices here."""


def increment(graph: Graph, x: Tensor, tiles: list[int], slots: int = WORK, name: str = "work") -> Execute:
    """A compute set of one vertex for each row of ``x``, on the tile of that row."""
    cs = graph.compute_set(name)
    cs.vertices(Increment, tile=tiles, y=x, cycles=slots)
    return Execute(cs)


def launch(graph: Graph) -> int:
    ipu = graph.system.ipu
    return ipu.launch.compute_set_cycles + ipu.launch.run_all_cycles + ipu.sync.worker_cycles


def io_program(graph: Graph, trips: int) -> Program:
    """Tiles 0 and 1 take a stream in, tiles 2 and 3 compute on what came before."""
    stream = graph.host_stream_in("x", f32, (2, 1000))
    inbox = graph.variable(f32, (2, 1000), "inbox").map_rows([0, 1])
    here = graph.variable(f32, (2, 1000), "here").map_rows([2, 3])
    return Repeat(trips, Sequence(Copy(stream, inbox), Copy(inbox, here), increment(graph, here, [2, 3])))


def compiled_io(trips: int, *, io_tiles: bool) -> Executable:
    graph = Graph(small_system())
    if io_tiles:
        graph.sync_group([0, 1], "io tiles")
    return compile_program(graph, io_program(graph, trips))


def test_io_tiles__overlap_the_stream_with_compute__take_the_longer_instead_of_the_sum() -> None:
    trips = 1000
    found = compiled_io(trips, io_tiles=True)
    system = found.system
    sync, exchange = system.ipu.sync.on_chip_cycles, system.ipu.exchange
    stream = sync + host_cycles(8000, 1, system)
    move = sync + exchange.phase_overhead_cycles + exchange.route_mean_cycles + 4000 // exchange.bytes_per_cycle
    work = launch(found.graph) + 6 * WORK
    assert compiled_io(trips, io_tiles=False).report.cycles().total == trips * (stream + move + work)
    cycles = found.report.cycles()
    assert work > stream
    assert cycles.total == stream + trips * (move + work)
    assert cycles.hidden == (trips - 1) * stream
    assert found.report.steps["start_cycle"].tolist() == [0, stream, stream + move]
    groups = [found.report.groups_of(step) for step in range(3)]
    assert groups == [["io tiles"], ["IPU 0", "io tiles"], ["IPU 0"]]


def test_groups_table__of_the_overlap__says_who_waits() -> None:
    report = compiled_io(10, io_tiles=True).report
    groups = {row["name"]: row for row in report.groups.rows()}
    total = report.cycles().total
    assert groups["IPU 0"]["tiles"] == 6
    assert groups["io tiles"]["tiles"] == 2
    assert groups["IPU 0"]["end_cycle"] == total
    assert groups["IPU 0"]["idle_cycles"] == report.steps["cycles"][0]
    assert groups["io tiles"]["compute_cycles"] == 0
    assert groups["io tiles"]["host_cycles"] == 10 * report.steps["host_cycles"][0]
    assert all(g["busy_cycles"] + g["idle_cycles"] == total for g in groups.values())
    assert groups["IPU 0"]["tile_balance"] == pytest.approx(2 / 6)
    assert report.steps["tile_balance"][2] == pytest.approx(2 / 6)
    assert report.tile_balance == pytest.approx(2 / 6)


def test_summary__more_than_one_group__has_a_section_of_them() -> None:
    text = compiled_io(10, io_tiles=True).report.summary()
    assert "overlap hides" in text
    assert "sync group\n" in text
    assert "host streams  io tiles\n" in text
    assert "sync group" not in compiled_io(10, io_tiles=False).report.summary()


def test_timeline_text__of_the_overlap__shows_stream_under_compute() -> None:
    report = compiled_io(1000, io_tiles=True).report
    head, compute, io, legend = report.timeline_text(80, cycles=145_390).splitlines()
    assert head.startswith("cycles 0 to ")
    assert head.endswith(" of 19,308,199; one character is 2,077")
    assert compute.startswith("IPU 0     .......C")
    assert io.startswith("io tiles  HHHHHHHHHHHHHH..X")
    assert any((a, b) == ("C", "H") for a, b in zip(compute[10:], io[10:], strict=True))
    assert legend.endswith("C compute  . idle")


def test_ipus__without_traffic_between_them__advance_on_their_own() -> None:
    graph = Graph(small_system(4, 2))
    a = graph.variable(f32, (1, 8), "a").map(0)
    b = graph.variable(f32, (1, 8), "b").map(4)
    main = Sequence(increment(graph, a, [0], 100), increment(graph, b, [4], 50), increment(graph, b, [4], 50, "again"))
    found = compile_program(graph, main)
    one = launch(graph)
    assert found.report.cycles().total == max(one + 600, 2 * (one + 300))
    assert found.report.steps["start_cycle"].tolist() == [0, 0, one + 300]
    assert found.report.groups["name"].tolist() == ["IPU 0", "IPU 1"]


def test_sync__within_and_between_ipus__costs_what_takes_part() -> None:
    graph = Graph(small_system(4, 4))
    x = graph.variable(f32, (3, 8), "x").map_rows([0, 1, 4])
    report = compile_program(graph, Sequence(Copy(x[0], x[1]), Copy(x[0], x[2]))).report
    steps = report.steps
    sync, clock = graph.system.ipu.sync, graph.system.ipu.clock_hz
    assert steps["sync_cycles"].tolist() == [sync.on_chip_cycles, sync.global_cycles(4, clock)]
    assert [report.groups_of(step) for step in range(2)] == [["IPU 0"], [f"IPU {i}" for i in range(4)]]


def test_sync__copies_within_and_between_ipus_in_one_step__are_two_phases_with_a_barrier_each() -> None:
    graph = Graph(small_system(4, 4))
    x = graph.variable(f32, (4, 8), "x").map_rows([0, 4, 1, 5])
    apart = graph.variable(f32, (3, 8), "apart").map_rows([0, 4, 8])
    both = Copy(x[:2], x[2:]), Copy(concat([x[0:1], x[0:1]]), concat([x[2:3], x[1:2]]))
    report = compile_program(graph, Sequence(*both, Copy(apart[0], apart[1]))).report
    ipu = graph.system.ipu
    within, between = ipu.sync.on_chip_cycles, ipu.sync.global_cycles(4, ipu.clock_hz)
    pair = ipu.sync.global_cycles(2, ipu.clock_hz)
    assert report.steps["sync_cycles"].tolist() == [pair, within + between, between]
    start = ipu.exchange.phase_overhead_cycles + ipu.exchange.route_mean_cycles
    exchange = report.steps["exchange_cycles"].tolist()
    assert exchange[1] - exchange[2] == pytest.approx(start, abs=16)


def test_sync__more_ipus__never_costs_less() -> None:
    sync = systems.get("bow-pod16").ipu.sync
    cycles = [sync.global_cycles(n, 1.85e9) for n in range(1, 65)]
    assert cycles == sorted(cycles)


def test_barrier__kinds__let_those_meet_that_it_names() -> None:
    def starts(barrier: Program) -> list[int]:
        graph = Graph(small_system(4, 2))
        graph.sync_group([3], "io")
        a = graph.variable(f32, (3, 8), "a").map_rows([0, 3, 4])
        steps = [
            increment(graph, a[i : i + 1], [tile], slots) for i, tile, slots in ((0, 0, 100), (1, 3, 5), (2, 4, 5))
        ]
        after = [increment(graph, a[i : i + 1], [tile], 1, "after") for i, tile in ((1, 3), (2, 4))]
        report = compile_program(graph, Sequence(*steps, barrier, *after)).report
        launched = launch(graph)
        return [s - launched for s in report.steps["start_cycle"][-2:].tolist()]

    system = small_system(4, 2)
    inside, outside = system.ipu.sync.on_chip_cycles, system.sync_cycles
    assert starts(Sync("internal")) == [600 + inside, 30 + inside]
    assert starts(Sync("external")) == [600 + outside, 600 + outside]
    assert starts(SetFloatingPointBehaviour(overflow=False)) == [30 + 12, 30 + 12]


def test_streams__of_ipus_behind_one_link__share_its_bandwidth() -> None:
    graph = Graph(small_system(4, 4))
    elements = 4 * 50_000
    parts = []
    for ipu in range(4):
        x = graph.variable(f32, (4, elements // 4), f"x{ipu}").map_rows(range(4 * ipu, 4 * ipu + 4))
        parts.append(Copy(graph.host_stream_in(f"s{ipu}", f32, (4, elements // 4)), x))
    found = compile_program(graph, Sequence(*parts))
    host, clock = graph.system.host, graph.system.ipu.clock_hz
    bytes_alone = 4 * elements * 4 / host.bytes_per_second * clock
    one = int(found.report.steps["cycles"][0])
    assert host.ipus_per_link == 4
    assert bytes_alone < found.report.cycles().total < bytes_alone + 0.2 * one
    latency = one - 4 * elements / host.bytes_per_second * clock
    assert found.report.cycles().total == pytest.approx(bytes_alone + latency, abs=8)
    assert found.report.cycles().total < 4 * one


@pytest.mark.parametrize(("pattern", "joined"), [("full", True), ("single_pipeline", False)])
def test_streams__of_other_ipus__share_a_rendezvous_where_all_are_at_it(pattern: str, joined: bool) -> None:
    graph = Graph(small_system(4, 2))
    graph.sync_pattern = pattern
    x = graph.variable(f32, (3, 8), "x").map_rows([0, 1, 4])
    s = [graph.host_stream_in(f"s{i}", f32, (8,)) for i in range(3)]
    found = compile_program(graph, Sequence(*(Copy(s[i], x[i]) for i in range(3))))
    assert [step.joins_previous for step in found.steps] == [False, True, joined]


@pytest.mark.parametrize(("pattern", "waits"), [("full", True), ("single_pipeline", False)])
def test_streams__of_one_ipu__keep_the_others_waiting_in_the_full_pattern(pattern: str, waits: bool) -> None:
    graph = Graph(small_system(4, 2))
    graph.sync_pattern = pattern
    x = graph.variable(f32, (2, 8), "x").map_rows([0, 4])
    stream = Copy(graph.host_stream_in("s", f32, (8,)), x[0])
    report = compile_program(graph, Sequence(stream, increment(graph, x[1:], [4], 100))).report
    start = report.steps["cycles"][0] if waits else 0
    assert report.steps["start_cycle"].tolist() == [0, start]


def test_sync_pattern__that_there_is_not__is_refused() -> None:
    graph = Graph(small_system())
    with pytest.raises(InvalidOptionError, match="'singel_pipeline'"):
        graph.sync_pattern = "singel_pipeline"
    assert graph.sync_pattern == "full"


def test_exchange__between_two_ipus__has_all_at_its_barrier() -> None:
    graph = Graph(small_system(4, 4))
    graph.sync_group([15], "io")
    x = graph.variable(f32, (4, 8), "x").map_rows([0, 4, 8, 15])
    busy = increment(graph, x[2:3], [8], 1000)
    report = compile_program(graph, Sequence(busy, Copy(x[0], x[1]), increment(graph, x[3:], [15], 10))).report
    assert report.steps["start_cycle"].tolist() == [0, report.steps["cycles"][0], 0]


@st.composite
def moves(draw: st.DrawFn, depth: int = 2) -> list[object]:
    kinds = st.sampled_from(["copy", "work", "repeat"] if depth else ["copy", "work"])
    tile = st.integers(0, 7)
    found: list[object] = []
    for kind in draw(st.lists(kinds, min_size=1, max_size=4)):
        if kind == "repeat":
            found.append((draw(st.integers(0, 40)), draw(moves(depth - 1))))
        else:
            found.append((kind, draw(tile), draw(tile), draw(st.integers(1, 200))))
    return found


def built(graph: Graph, x: Tensor, found: list[object]) -> Program:
    main = Sequence()
    for item in found:
        match item:
            case (int(count), list(inner)):
                main.add(Repeat(count, built(graph, x, inner)))
            case ("copy", source, destination, _) if source != destination:
                main.add(Copy(x[source], x[destination]))
            case (_, tile, _, slots):
                main.add(increment(graph, x[tile : tile + 1], [tile], slots))
    return main


def report_of(found: list[object], io: list[int], num_ipus: int) -> Report:
    graph = Graph(small_system(8 // num_ipus, num_ipus))
    if io:
        graph.sync_group(io, "io")
    x = graph.variable(f32, (8, 40), "x").map_rows(range(8))
    return compile_program(graph, built(graph, x, found)).report


@given(moves(), st.sets(st.integers(0, 7), min_size=1, max_size=7))
def test_sync_group__added_to_a_program__never_makes_it_longer(found: list[object], io: set[int]) -> None:
    alone, apart = report_of(found, [], 1), report_of(found, sorted(io), 1)
    cycles = apart.cycles()
    assert cycles.total <= alone.cycles().total == cycles.total + cycles.hidden
    assert all(apart.groups["busy_cycles"] + apart.groups["idle_cycles"] == cycles.total)
    ran = apart.steps["executions"] > 0
    assert ((apart.steps["start_cycle"] >= 0) == ran).all()


def loops(graph: Graph) -> tuple[Program, Tensor]:
    x = graph.variable(f32, (2, 8), "x").map_rows([0, 4])
    flag = graph.variable(bool_, (), "flag").map(0)
    first, second = (increment(graph, x[i : i + 1], [t], s, n) for i, t, s, n in ((0, 0, 50, "a"), (1, 4, 70, "b")))
    body = Sequence(If(flag, first, second), RepeatWhileTrue(increment(graph, x[:1], [0], 5, "look"), flag, second))
    return Sequence(first, Block(Repeat(10, body), "loop")), x


def test_recorded_executions__of_loops_and_branches__shape_the_timeline() -> None:
    graph = Graph(small_system(8))
    found = compile_program(graph, loops(graph)[0])
    names = [s.name for s in found.steps]
    assert names == ["a", "if", "a", "b", "look", "repeat_while", "b"]
    assert found.report.steps["block"].tolist() == ["", *["loop"] * 6]
    assert set(found.report.steps["basis"].tolist()) == {"static", "assumed"}
    account = found.account_of([1, 10, 3, 7, 35, 35, 25])
    report, steps = found.report_of(account), found.report_of(account).steps
    assert report.cycles().total == int(np.dot(steps["executions"], steps["cycles"]))
    assert report.cycles().hidden == 0
    assert set(steps["basis"].tolist()) == {"static", "counted"}
    assert found.start_cycles(account)[1] == report.cycles().total == found.cycles_of(0, account)


def test_recorded_executions__of_two_groups__stay_between_the_busiest_and_the_sum() -> None:
    graph = Graph(small_system(4, 2))
    found = compile_program(graph, loops(graph)[0])
    for counts in ([1, 10, 1, 0, 10, 10, 10], [1, 10, 3, 7, 35, 35, 25], [1, 10, 0, 10, 10, 10, 0]):
        account = found.account_of(counts)
        report = found.report_of(account)
        assert found.cycles_of(0, account) == report.cycles().total
        busy = int(np.dot(report.steps["executions"], report.steps["cycles"]))
        assert report.groups["busy_cycles"].max() <= report.cycles().total <= busy


def test_counted_slots__make_the_rows_of_a_step_counted() -> None:
    graph = Graph(small_system(8))
    x = graph.variable(f32, (8, 5), "x").map_rows(range(8))
    y = graph.variable(i32, (8,), "y").map_rows(range(8))
    cs = graph.compute_set("search")
    cs.vertices(Search, tile=range(8), x=x, y=y)
    found = compile_program(graph, Execute(cs))
    assert found.report.steps["basis"].tolist() == ["assumed"]
    steps = found.report_of(found.account_of(slots={0: {0: np.arange(8) + 10}})).steps
    assert steps["basis"].tolist() == ["counted"]
    assert steps["compute_cycles"].tolist() == [17 * 6]
    assert steps["tile_balance"][0] == pytest.approx(13.5 / 17)


def test_start_cycles__several_programs__each_begins_its_own_run() -> None:
    graph = Graph(small_system(8))
    x = graph.variable(f32, (1, 8), "x").map(0)
    found = compile_program(graph, [increment(graph, x, [0], 7), increment(graph, x, [0], 9)])
    starts, end = found.start_cycles()
    assert starts.tolist() == [0, 0]
    assert end == launch(graph) + 42
    assert found.report.groups["program"].tolist() == [0, 1]
    assert found.report.cycles(1).total == launch(graph) + 54


def test_sync_groups__of_a_graph__are_disjoint_and_named() -> None:
    graph = Graph(small_system(4, 2))
    graph.sync_group([0, 1, 2, 3, 4], "first")
    groups = SyncGroups.of(graph)
    assert groups.names == ("IPU 1", "first")
    assert groups.of_tile.tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    assert groups.ipus([1]) == (0, 1)
    assert groups.by_ipu == ((0, 1),)
    assert groups.apart == ((0,), (1,))
    assert groups.num_tiles([0, 1]) == 8
