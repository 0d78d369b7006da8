from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from abele.codelet import compile_codelet
from abele.compiler import Executable, compile_program
from abele.compiler.durations import host_cycles
from abele.compiler.fit import CANNOT_FIT
from abele.errors import (
    ConstantWriteError,
    ControlProgramError,
    DataRaceError,
    GraphConnectionError,
    OutOfMemoryError,
    TileMappingError,
)
from abele.graph import (
    Call,
    Copy,
    Execute,
    Graph,
    If,
    Program,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    TileMapping,
    WriteUndef,
    shared,
)
from abele.numerics import bool_, f32, i32
from compiler.support import SLOTS, Bump, Move, Multi, Reader, Search, Update, Writer, small_system
from support.vertices import Increment


def saxpy(graph: Graph) -> Execute:
    x, y = (graph.variable(f32, (8, 5), n).map_rows(range(8)) for n in "xy")
    cs = graph.compute_set("step")
    cs.vertices(Update, tile=range(8), x=x, y=y)
    return Execute(cs)


def test_compile__one_superstep__counts_slots_workers_and_launch(graph: Graph) -> None:
    found = compile_program(graph, Repeat(100, saxpy(graph)))
    (step,) = found.steps
    assert step.executions == 100
    ipu = graph.system.ipu
    launch = ipu.launch.compute_set_cycles + ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    cycles = found.report.cycles()
    assert cycles.compute == 100 * SLOTS * 6
    assert cycles.sync == 100 * launch
    assert cycles.exchange == 0
    assert found.report.tile_balance == 1.0
    assert found.report.graph["num_vertices"] == 8


def test_compile__multi_vertices__add_up_on_their_tile(graph: Graph) -> None:
    x = graph.variable(f32, (2, 5), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertices(Multi, tile=[0, 0], x=x, cycles=[100, 50])
    cs.vertices(Reader, tile=[0] * 2, x=x, cycles=7)
    found = compile_program(graph, Execute(cs))
    assert found.report.cycles().compute == 150 + 6 * 7


def test_compile__steps_of_a_superstep__are_listed_with_their_bytes(graph: Graph) -> None:
    x = graph.variable(f32, (80,), "x").map(0)
    y = graph.variable(f32, (8, 5), "y").map_rows(range(8))
    cs = graph.compute_set("step")
    cs.vertices(Update, tile=range(8), x=x.reshape(10, 8).T[:, :5], y=y)
    steps = compile_program(graph, Execute(cs)).report.steps
    assert steps["kind"].tolist() == ["exchange", "copy", "compute"]
    assert steps["exchanged_bytes"].tolist() == [7 * 20, 20, 0]
    assert steps["name"].tolist() == ["step: exchange", "step: arrange inputs", "step"]
    assert steps["cycles"].sum() == compile_program(graph, Execute(cs)).report.cycles().total


def test_compile__library_call__owns_its_steps(graph: Graph) -> None:
    main = Sequence()
    x = graph.variable(f32, (8, 5), "x").map_rows(range(8))
    with graph.library_call(main, "popops.map", inputs=(x,), outputs=(x,), flops=40) as body:
        cs = graph.compute_set("map")
        cs.vertices(Update, tile=range(8), x=x, y=x)
        body.add(Execute(cs))
    main.add(saxpy(graph))
    ops = compile_program(graph, Repeat(3, main)).report.ops
    assert ops["kind"].tolist() == ["popops.map", "compute set"]
    assert ops["flops"].tolist() == [120, 0]
    assert ops["executions"].tolist() == [3, 3]
    assert ops["cycles"][0] == ops["cycles"][1]
    assert ops["file"][0].endswith("test_compile.py")


def test_compile__function_called_twice__is_analysed_once_and_counted_twice(graph: Graph) -> None:
    function = graph.function(saxpy(graph), "f")
    found = compile_program(graph, Sequence(Call(function), Repeat(4, Call(function))))
    assert [s.executions for s in found.steps] == [1, 4]
    assert len(found.plan) == 1
    assert len(found.steps_of(function.body)) == 2
    assert found.report.ops["executions"].tolist() == [5]


def test_compile__streams__cost_host_time(graph: Graph) -> None:
    x = graph.variable(f32, (8, 5), "x").map_rows(range(8))
    into = graph.host_stream_in("in", f32, (8, 5))
    out = graph.host_stream_out("out", f32, (8, 5))
    found = compile_program(graph, Sequence(Copy(into, x), Copy(x, out)))
    assert found.report.steps["kind"].tolist() == ["stream", "stream"]
    assert found.report.steps["exchanged_bytes"].tolist() == [160, 160]
    host = graph.system.host
    seconds = graph.system.ipu.sync.host_seconds + host.latency_seconds + 160 / host.bandwidth_bytes_per_second(1)
    assert found.report.steps["host_cycles"][0] == np.ceil(seconds * graph.system.ipu.clock_hz)
    assert found.memory.by_category["stream_buffers"].tolist() == [20] * 8
    assert not found.memory.liveness.always_live.any()


def test_compile__stream_copies_in_a_row__meet_the_host_once(graph: Graph) -> None:
    x, y = (graph.variable(f32, (8, 5), n).map_rows(range(8)) for n in "xy")
    into = graph.host_stream_in("in", f32, (8, 5))
    out = graph.host_stream_out("out", f32, (8, 5))
    load, store = (lambda: Copy(into, x)), (lambda: Copy(y, out))
    body = Sequence(Sequence(load(), Copy(into, y)), load(), store(), store(), Copy(x, y), store())
    found = compile_program(graph, Sequence(load(), Repeat(2, body)))
    streams = [s for s in found.steps if s.kind.startswith("stream")]
    assert [s.joins_previous for s in streams] == [False, False, True, True, False, True, False]
    first, joined = (found.plan[streams[i].superstep] for i in (1, 2))
    assert joined.host_cycles == host_cycles(160, 1, graph.system, rendezvous=False) < first.host_cycles
    cycles = found.report.steps["sync_cycles"][found.report.steps["kind"] == "stream"]
    assert (cycles > 0).tolist() == [True, True, False, False, True, False, True]


def test_compile__branches_and_loops__are_marked_as_assumed(graph: Graph) -> None:
    flag = graph.variable(bool_, (), "flag").map(3)
    loop = RepeatWhileTrue(Sequence(), flag, saxpy(graph))
    found = compile_program(graph, Sequence(If(flag, saxpy_of(graph, "a"), saxpy_of(graph, "b")), loop))
    assert [(s.kind, s.executions, s.is_assumed) for s in found.steps] == [
        ("decide", 1, False),
        ("execute", 1, True),
        ("execute", 0, True),
        ("decide", 1, True),
        ("execute", 1, True),
    ]
    assert found.report.steps["exchanged_bytes"][0] == 7 * 4


def saxpy_of(graph: Graph, name: str) -> Execute:
    with graph.scope(name):
        return saxpy(graph)


def test_compile__counted_slots__replace_assumed_ones(graph: Graph) -> None:
    x = graph.variable(f32, (8, 5), "x").map_rows(range(8))
    y = graph.variable(i32, (8,), "y").map_rows(range(8))
    cs = graph.compute_set("step")
    cs.vertices(Search, tile=range(8), x=x, y=y)
    found = compile_program(graph, Execute(cs))
    assert [s.estimated for s in found.estimated] == [("Search",)]
    assert found.report.graph["num_estimated_steps"] == 1
    assert found.report.cycles().compute == (5 + 1) * 6
    account = found.account_of(slots={0: {0: np.arange(8)}})
    counted = found.report_of(account)
    assert counted.cycles().compute == 7 * 6
    assert counted.graph["num_estimated_steps"] == 0
    assert found.cycles_of(0, account) == counted.cycles().total
    assert found.report.cycles().compute == (5 + 1) * 6
    assert found.plan[0].data_dependent == ("Search",)


def test_compile__recorded_executions__replace_assumed_trips(graph: Graph) -> None:
    found = compile_program(graph, Repeat(2, saxpy(graph)))
    before = found.report.cycles().total
    assert found.report_of(found.account_of([6])).cycles().total == 3 * before
    assert found.report.cycles().total == before


def test_compile__timeline__ends_with_the_sum_of_all_steps(graph: Graph) -> None:
    found = compile_program(graph, Sequence(saxpy_of(graph, "a"), Repeat(3, saxpy_of(graph, "b"))))
    start, end = found.start_cycles()
    assert start.tolist() == [0, end // 4]
    assert end == found.report.cycles().total


def test_compile__progress__goes_through_all_stages(graph: Graph) -> None:
    seen: list[tuple[str, float]] = []
    compile_program(graph, saxpy(graph), progress=lambda stage, part: seen.append((stage, part)))
    assert list(dict.fromkeys(s for s, _ in seen)) == ["lower", "supersteps", "memory"]
    assert seen[-1] == ("memory", 1.0)


def test_memory__categories__are_what_the_program_holds(graph: Graph) -> None:
    found = compile_program(graph, saxpy(graph))
    by = {name: values.tolist() for name, values in found.memory.by_category.items()}
    memory = graph.system.ipu.tile
    assert by["variables"] == [40] * 8
    assert by["gaps"] == [8] * 8
    assert by["temporaries"] == [0] * 8
    assert by["vertex_state"] == [16] * 8
    assert by["vertex_code"] == [compile_codelet(Update.codelet).code_bytes] * 8
    assert by["exchange_code"] == [0] * 8
    assert by["control_code"] == [memory.control_step_bytes] * 8
    assert by["stacks"] == [memory.supervisor_stack_bytes] * 8


def test_memory__compiled_code__needs_stacks_for_its_workers_where_it_runs(graph: Graph) -> None:
    x = graph.variable(f32, (2, 5), "x").map_rows([0, 3])
    cs = graph.compute_set()
    y = graph.variable(f32, (2, 5), "y").map_rows([0, 3])
    cs.vertices(Move, tile=[0, 3], x=x, y=y)
    memory = graph.system.ipu.tile
    stacks = compile_program(graph, Execute(cs)).memory.by_category["stacks"].tolist()
    needed = 6 * memory.worker_stack_bytes + memory.supervisor_stack_bytes
    assert stacks == [needed, 0, 0, needed, 0, 0, 0, 0]


def test_memory__temporaries_that_never_meet__share_their_place(graph: Graph) -> None:
    a, b, c, d = (graph.variable(f32, (8, 100), n).map_rows(range(8)) for n in "abcd")
    found = compile_program(graph, Sequence(Copy(a, b), Copy(b, c), Copy(c, d)))
    assert found.memory.by_category["variables"].tolist() == [400] * 8
    assert found.memory.by_category["temporaries"].tolist() == [800] * 8
    table = found.report.variables
    assert table["always_live"].tolist() == [True, False, False, False]
    assert table["first_step"].tolist() == [-1, 0, 1, 2]
    assert table["last_step"].tolist() == [-1, 1, 2, 2]


def test_memory__write_undef__ends_a_life(graph: Graph) -> None:
    a, b, c = (graph.variable(f32, (8, 100), n).map_rows(range(8)) for n in "abc")
    found = compile_program(graph, Sequence(Copy(a, b), WriteUndef(b), Copy(a, c)))
    assert found.memory.by_category["temporaries"].tolist() == [400] * 8


def test_memory__received_data__needs_a_buffer_while_the_step_runs(graph: Graph) -> None:
    x = graph.variable(f32, (100,), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertices(Reader, tile=range(8), x=shared(x))
    found = compile_program(graph, Execute(cs))
    assert found.memory.by_category["temporaries"].tolist() == [0] + [400] * 7


def test_out_of_memory__one_full_tile__names_tile_categories_variables_and_remedy(graph: Graph) -> None:
    with graph.scope("encoder"):
        x = graph.variable(f32, (200_000,), "weights").map(3)
    cs = graph.compute_set("step")
    cs.vertex(Increment, tile=3, y=x)
    with pytest.raises(OutOfMemoryError) as caught:
        compile_program(graph, Execute(cs))
    text = str(caught.value)
    assert text.startswith(f"{CANNOT_FIT}: tile 3 of IPU 0 needs ")
    assert "637,872 B" in text
    assert "1 of 8 tiles are too full" in text
    assert "always-live variables 800,000 B (encoder/weights 800,000 B)" in text
    assert "spread encoder/weights (800,000 B on 1 of 8 tiles)" in text
    assert caught.value.tiles[0]["tile"] == 3
    assert caught.value.tiles[0]["variables"] == 800_000
    allowed = compile_program(graph, Execute(cs), allow_out_of_memory=True)
    assert not allowed.report.memory.fits


def test_out_of_memory__temporaries__names_the_step(graph: Graph) -> None:
    a = graph.variable(f32, (1,), "a").map(0)
    big = graph.variable(f32, (200_000,), "big").map(0)
    with pytest.raises(OutOfMemoryError, match=r"temporaries 800,000 B \(big 800,000 B\)") as caught:
        compile_program(graph, Copy(a.broadcast_to((200_000,)), big, name="spread"))
    assert "spread (program step 0; " in str(caught.value)
    assert "partials in half" in str(caught.value)


def fails(graph: Graph, program: Program, kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        compile_program(graph, program)
    return str(caught.value)


def test_compile__unmapped_variable__is_named_with_where_it_was_made(graph: Graph) -> None:
    x = graph.variable(f32, (6, 10), "x")
    y = graph.variable(f32, (6, 10), "y").map(0)
    text = fails(graph, Copy(x, y), TileMappingError)
    assert text.startswith("variable 'x' (f32[6, 10], 60 elements) is mapped to no tile\n")
    assert "test_compile.py:" in text
    assert ".map_linear()" in text


def test_compile__half_mapped_constant__names_the_first_interval(graph: Graph) -> None:
    x = graph.variable(f32, (6, 10), "x")
    x[0].map(0)
    x[2:].map(1)
    y = graph.variable(f32, (6, 10), "y").map(0)
    text = fails(graph, Copy(x, y), TileMappingError)
    assert "10 of 60 elements of variable 'x' (f32[6, 10]) are mapped to no tile, the first of them [10:20)" in text


def test_compile__unmapped_variable_that_nobody_uses__is_no_error(graph: Graph) -> None:
    graph.variable(f32, (6, 10), "unused")
    compile_program(graph, saxpy(graph))


def test_compile__tile_that_the_system_lacks__names_both(graph: Graph) -> None:
    x, y = (graph.variable(f32, (6,), n).map(0) for n in "xy")
    x.variables[0].mapping = TileMapping(6, np.array([0]), np.array([9], dtype=np.int32))
    text = fails(graph, Copy(x, y), TileMappingError)
    assert "variable 'x' is mapped to tile 9, but small-8 has 8 tiles" in text


def test_compile__vertex_on_a_tile_that_the_system_lacks__names_it(graph: Graph) -> None:
    execute = saxpy(graph)
    execute.compute_set.groups[0].tile[2] = 99
    text = fails(graph, execute, TileMappingError)
    assert "vertex 2 of VertexGroup(8 × Update) in compute set 'step' is on tile 99" in text


def test_compile__field_without_edge__is_named(graph: Graph) -> None:
    execute = saxpy(graph)
    del execute.compute_set.groups[0].edges["y"]
    assert "field Update.y is not connected in compute set 'step'" in fails(graph, execute, GraphConnectionError)


def test_compile__rows_that_do_not_fit__are_named(graph: Graph) -> None:
    execute = saxpy(graph)
    group = execute.compute_set.groups[0]
    group.edges["y"] = replace(group.edges["y"], index=np.arange(3))
    assert "field Update.y in compute set 'step' does not fit 8 vertices" in fails(graph, execute, GraphConnectionError)


def test_compile__write_to_a_constant__names_it(graph: Graph) -> None:
    execute = saxpy(graph)
    execute.compute_set.groups[0].edges["y"].regions.tensor.variables[0].kind = "constant"
    assert "compute set 'step' writes to constant 'y'" in fails(graph, execute, ConstantWriteError)


def test_compile__race__is_refused_and_leaves_the_graph_usable(graph: Graph) -> None:
    x = graph.variable(f32, (8,), "x").map(0)
    cs = graph.compute_set("bad")
    cs.vertices(Writer, tile=range(2), y=shared(x))
    good = saxpy(graph)
    fails(graph, Execute(cs), DataRaceError)
    assert isinstance(compile_program(graph, good), Executable)


def test_compile__function_that_calls_itself__is_refused(graph: Graph) -> None:
    body = Sequence()
    function = graph.function(body, "f")
    body.add(Call(function))
    assert "function 'f' calls itself" in fails(graph, Call(function), ControlProgramError)


def test_compile__no_program__is_refused(graph: Graph) -> None:
    with pytest.raises(ControlProgramError, match="no program to compile"):
        compile_program(graph, [])
    with pytest.raises(ControlProgramError, match="not ComputeSet"):
        compile_program(graph, graph.compute_set("step"))  # type: ignore[arg-type]


def test_compile__several_programs__keep_their_names(graph: Graph) -> None:
    found = compile_program(graph, {"init": saxpy_of(graph, "a"), "step": saxpy_of(graph, "b")})
    assert found.program_names == ("init", "step")
    assert [s.program for s in found.steps] == [0, 1]
    assert found.report.meta["programs"] == ["init", "step"]


def test_compile__more_elements__never_cost_less() -> None:
    def total(rows: int) -> int:
        graph = Graph(small_system())
        x = graph.variable(f32, (rows, 16), "x").map(0)
        y = graph.variable(f32, (rows, 16), "y").map_rows(np.arange(rows) % 8)
        cs = graph.compute_set("step")
        cs.vertices(Update, tile=np.arange(rows) % 8, x=x, y=y)
        return compile_program(graph, Execute(cs)).report.cycles().total

    costs = [total(r) for r in (1, 4, 8, 9, 40, 100)]
    assert costs == sorted(costs)


def test_compile__integers_and_scalars__work(graph: Graph) -> None:
    x = graph.variable(i32, (), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertex(Bump, tile=1, x=x)
    report = compile_program(graph, Execute(cs)).report
    assert report.steps["kind"].tolist() == ["exchange", "compute", "exchange"]
    assert "cycles" in report.summary()


@pytest.mark.parametrize("turns", [(1 << 2000, 1 << 62), (1 << 40, 1 << 20), (1 << 61, 1)])
def test_compile__loops_with_more_cycles_than_can_be_counted__are_refused(turns: tuple[int, int]) -> None:
    graph = Graph("bow")
    x, y = (graph.variable(f32, (600,), name=n).map(0) for n in "xy")
    copy = Copy(x, y)
    with pytest.raises(ControlProgramError, match=r"2\^62 is the most") as caught:
        compile_program(graph, Repeat(turns[0], Repeat(turns[1], copy)))
    assert "is executed" in str(caught.value)
    assert compile_program(graph, Repeat(1 << 40, copy)).report.total_cycles > 1 << 40
