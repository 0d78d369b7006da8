"""Every node of the program tree: the steps that it becomes, what they cost, and what they touch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from abele.compiler import Executable, compile_program
from abele.compiler.lower import lower
from abele.compiler.nodes.control import MODE_CYCLES, SEED_SLOTS, TIMER_READ_CYCLES
from abele.errors import ControlProgramError, GraphRecursionError, StreamMemoryError
from abele.graph import (
    Abort,
    AbortOnCondition,
    AssumeEqualAcrossReplicas,
    Block,
    Call,
    Copy,
    CrossReplicaCopy,
    CycleCount,
    CycleStamp,
    ErrorProgram,
    Execute,
    GetHwSeeds,
    Graph,
    HostCall,
    If,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    SetFloatingPointBehaviour,
    SetHwSeeds,
    Switch,
    Sync,
    Tensor,
    WriteUndef,
)
from abele.numerics import bool_, f32, i32, u32
from compiler.support import SLOTS, Reader, small_system


def work(graph: Graph, name: str = "work") -> Execute:
    """A superstep of eight vertices that move nothing."""
    x = graph.variable(f32, (8, 5), f"{name}/x").map_rows(range(8))
    cs = graph.compute_set(name)
    cs.vertices(Reader, tile=range(8), x=x)
    return Execute(cs)


def work_cycles(graph: Graph) -> int:
    ipu = graph.system.ipu
    launch = ipu.launch.compute_set_cycles + ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    return launch + 6 * SLOTS


def kinds(found: Executable) -> list[str]:
    return [s.kind for s in found.steps]


def columns(found: Executable, *names: str) -> list[tuple[int, ...]]:
    return list(zip(*(found.report.steps[n].tolist() for n in names), strict=True))


def test_switch__cases_and_default__are_ways_of_one_decision(graph: Graph) -> None:
    control = graph.variable(i32, (), "control").map(3)
    cases = {4: work(graph, "four"), -1: work(graph, "minus")}
    found = compile_program(graph, Repeat(5, Switch(control, cases, work(graph, "other"))))
    assert kinds(found) == ["decide", "execute", "execute", "execute"]
    assert [s.executions for s in found.steps] == [5, 5, 0, 0]
    assert [s.is_assumed for s in found.steps] == [False, True, True, True]
    assert found.report.steps["exchanged_bytes"][0] == 7 * 4
    assert found.memory.liveness.always_live[0]


def test_switch__without_cases__takes_its_default(graph: Graph) -> None:
    control = graph.variable(u32, (), "control").map(0)
    found = compile_program(graph, Switch(control, {}, work(graph)))
    assert [s.executions for s in found.steps] == [1, 1]


def test_switch__value_written_in_all_ways__is_not_live_before(graph: Graph) -> None:
    control = graph.variable(i32, (), "control").map(0)
    a, b, c = (graph.variable(f32, (8,), n).map(0) for n in "abc")
    everywhere = Switch(control, {0: Copy(a, b), 1: Copy(a, b)}, Copy(a, b))
    found = compile_program(graph, Sequence(everywhere, Copy(b, c)))
    assert found.memory.liveness.always_live.tolist() == [True, True, False, False]
    somewhere = Switch(control, {0: Copy(a, b)}, None)
    found = compile_program(graph, Sequence(somewhere, Copy(b, c)))
    assert found.memory.liveness.always_live.tolist() == [True, True, True, False]


def test_block__names__are_on_the_steps_inside(graph: Graph) -> None:
    inner = Block(work(graph, "a"), "inner")
    found = compile_program(graph, Sequence(Block(Sequence(inner, work(graph, "b")), "outer"), work(graph, "c")))
    assert [s.block for s in found.steps] == ["outer/inner", "outer", ""]
    assert found.report.cycles().total == 3 * work_cycles(graph)


@pytest.mark.parametrize("kind", ["internal", "external", "global"])
def test_sync__of_each_kind__costs_its_barrier(kind: str) -> None:
    graph = Graph(small_system(4, num_ipus=4), replicas=2)
    system = graph.whole_system
    found = compile_program(graph, Sequence(Sync(kind), work_on(graph, 4)))
    row = columns(found, "sync_cycles", "host_cycles", "compute_cycles", "exchange_cycles")[0]
    host = math.ceil(system.ipu.sync.host_seconds * system.ipu.clock_hz) if kind == "global" else 0
    barrier = system.ipu.sync.on_chip_cycles if kind == "internal" else system.sync_cycles
    assert row == (barrier, host, 0, 0)


def work_on(graph: Graph, tiles: int) -> Execute:
    x = graph.variable(f32, (tiles, 5), "x").map_rows(range(tiles))
    cs = graph.compute_set("work")
    cs.vertices(Reader, tile=range(tiles), x=x)
    return Execute(cs)


def test_abort__with_a_condition__sends_it_to_every_tile(graph: Graph) -> None:
    flag = graph.variable(bool_, (), "flag").map(2)
    found = compile_program(graph, Sequence(AbortOnCondition(flag, "no"), Abort("never")))
    assert kinds(found) == ["abort", "abort"]
    assert columns(found, "exchanged_bytes", "sync_cycles") == [
        (28, graph.system.sync_cycles),
        (0, graph.system.sync_cycles),
    ]
    assert found.memory.liveness.always_live.tolist() == [True]


def test_error_program__prints_its_tensor(graph: Graph) -> None:
    x = graph.variable(f32, (8, 5), "x").map_rows(range(8))
    found = compile_program(graph, Sequence(ErrorProgram("bad", x), PrintTensor(x)))
    error, printed = found.report.steps["host_cycles"].tolist()
    assert error == printed > 0
    assert kinds(found) == ["abort", "print"]


def test_mode__is_some_cycles_on_every_tile_and_no_barrier(graph: Graph) -> None:
    found = compile_program(graph, SetFloatingPointBehaviour(stochastic_rounding=True))
    assert columns(found, "compute_cycles", "sync_cycles", "cycles") == [(MODE_CYCLES, 0, MODE_CYCLES)]


def test_assume_equal__costs_nothing_and_keeps_its_tensor(graph: Graph) -> None:
    x = graph.variable(i32, (), "x").map(0)
    found = compile_program(graph, Sequence(AssumeEqualAcrossReplicas(x), work(graph)))
    assert kinds(found) == ["assume", "execute"]
    assert found.report.cycles().total == work_cycles(graph)
    assert found.memory.liveness.always_live[0]


def test_program__that_is_empty__is_legal(graph: Graph) -> None:
    for program in (Program(), Sequence(), Repeat(0, work(graph)), Sequence(Program(), Sequence())):
        program.debug = Sequence().debug
        assert compile_program(graph, program).report.cycles().total == 0


def test_cycle_count__wraps_its_body_between_two_barriers(graph: Graph) -> None:
    result = graph.variable(u32, (2,), "result").map(1)
    node = CycleCount(work(graph), result, tile=1)
    found = compile_program(graph, Repeat(3, node))
    assert kinds(found) == ["timer_start", "execute", "timer_read"]
    assert [s.executions for s in found.steps] == [3, 3, 3]
    assert [s.kind for s in found.steps_of(node)] == ["timer_start", "timer_read"]
    sync = graph.system.ipu.sync.on_chip_cycles
    assert found.report.steps["cycles"].tolist() == [sync, work_cycles(graph), sync + TIMER_READ_CYCLES]
    start, _, read = (found.plan[s.superstep].access for s in found.steps)
    assert (start.writes.tolist(), read.complete.tolist()) == ([], [0])


def test_cycle_stamp__result_on_another_tile__is_sent_there(graph: Graph) -> None:
    result = graph.variable(u32, (2,), "result").map(5)
    found = compile_program(graph, CycleStamp(result, tile=1))
    assert kinds(found) == ["timer_read"]
    assert found.report.steps["exchanged_bytes"].tolist() == [8]
    phase = found.plan[0].before
    assert phase is not None
    assert phase.received_bytes.tolist() == [0, 0, 0, 0, 0, 8, 0, 0]


@pytest.mark.parametrize("node", [GetHwSeeds, SetHwSeeds])
def test_seeds__on_their_own_tiles__cost_the_workers_only(graph: Graph, node: type[Program]) -> None:
    seeds = graph.variable(u32, (8, 6, 4), "seeds").map_rows(range(8))
    found = compile_program(graph, node(seeds))  # type: ignore[call-arg]
    ipu = graph.system.ipu
    launch = ipu.launch.compute_set_cycles + ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    assert columns(found, "compute_cycles", "exchanged_bytes") == [(launch + 6 * 4 * SEED_SLOTS, 0)]
    access = found.plan[0].access
    assert (access.complete if node is GetHwSeeds else access.reads).tolist() == [0]


@pytest.mark.parametrize(("node", "moved"), [(GetHwSeeds, [672, *[0] * 7]), (SetHwSeeds, [0, *[96] * 7])])
def test_seeds__on_one_tile__cross_the_exchange(graph: Graph, node: type[Program], moved: list[int]) -> None:
    seeds = graph.variable(u32, (8, 6, 4), "seeds").map(0)
    phase = compile_program(graph, node(seeds)).plan[0].before  # type: ignore[call-arg]
    assert phase is not None
    assert phase.received_bytes.tolist() == moved


def test_call__with_arguments__copies_in_and_out(graph: Graph) -> None:
    a, b, p, r = (graph.variable(f32, (8, 5), n).map_rows(range(8)) for n in "abpr")
    body = Copy(p, r)
    function = graph.function(body, "f", parameters=[p], results=[r])
    found = compile_program(graph, Sequence(Call(function, [a], [b]), Repeat(2, Call(function, [b], [a]))))
    assert kinds(found) == ["copy"] * 6
    assert [s.executions for s in found.steps] == [1, 1, 1, 2, 2, 2]
    assert len(found.plan) == 5
    assert len(found.steps_of(body)) == 2
    one = found.report.steps["cycles"].tolist()
    assert one == [one[0]] * 6
    assert found.memory.liveness.always_live.tolist() == [True, False, False, False]


def test_call__code_of_a_function__is_counted_once(graph: Graph) -> None:
    function = graph.function(work(graph), "f")
    once, often = (compile_program(graph, Sequence(*[Call(function)] * n)) for n in (1, 5))
    for category in ("vertex_code", "control_code", "vertex_state"):
        assert once.memory.by_category[category].tolist() == often.memory.by_category[category].tolist()
    assert often.report.cycles().total == 5 * once.report.cycles().total


def test_call__recursion_through_another_function__is_refused(graph: Graph) -> None:
    f, g = Sequence(), Sequence()
    first, second = graph.function(f, "first"), graph.function(g, "second")
    f.add(Call(second))
    g.add(Call(first))
    with pytest.raises(GraphRecursionError, match="function 'first' calls itself") as caught:
        compile_program(graph, Call(first))
    assert "test_nodes.py:" in str(caught.value)
    assert isinstance(caught.value, ControlProgramError)


def transfer_cycles(graph: Graph, num_bytes: int, rate: float, *, sync: bool = False) -> int:
    system = graph.system
    seconds = system.host.latency_seconds + num_bytes / rate + (system.ipu.sync.host_seconds if sync else 0)
    return math.ceil(seconds * system.ipu.clock_hz)


def test_host_call__takes_inputs_and_gives_outputs(graph: Graph) -> None:
    x = graph.variable(f32, (8, 5), "x").map_rows(range(8))
    y = graph.variable(f32, (8, 10), "y").map_rows(range(8))
    function = graph.host_function("f", [(f32, (8, 5))], [(f32, (8, 10))])
    found = compile_program(graph, HostCall(function, (x,), (y,)))
    rate = graph.system.host.bandwidth_bytes_per_second(1)
    host = sum(transfer_cycles(graph, n, rate, sync=True) for n in (160, 320))
    assert columns(found, "host_cycles", "sync_cycles", "exchanged_bytes") == [
        (host, 2 * graph.system.sync_cycles, 480)
    ]
    access = found.plan[0].access
    assert (access.reads.tolist(), access.complete.tolist()) == ([0], [1])
    assert found.memory.by_category["stream_buffers"].tolist() == [40] * 8


def test_remote_buffer__rows__cost_streaming_memory(graph: Graph) -> None:
    x = graph.variable(f32, (2, 40), "x").map_rows([1, 2])
    rows = graph.variable(u32, (2,), "rows").map(0)
    buffer = graph.remote_buffer("weights", f32, 40, repeats=10)
    found = compile_program(graph, Sequence(Copy(buffer, x, offset=rows), Copy(x, buffer, offset=rows)))
    assert kinds(found) == ["remote_in", "remote_out"]
    dram = graph.system.dram
    assert dram is not None
    rate = min(dram.ipu_bytes_per_second, graph.system.host.ipu_bytes_per_second)
    host = transfer_cycles(graph, 320, rate)
    assert columns(found, "host_cycles", "exchanged_bytes") == [(host, 320)] * 2
    assert found.plan[0].access.reads.tolist() == [1]
    assert found.plan[0].access.complete.tolist() == [0]
    assert found.plan[1].access.reads.tolist() == [0, 1]
    assert found.report.ops["name"].tolist() == ["remote buffer weights"] * 2


def test_remote_buffer__system_without_dram__uses_the_host(graph: Graph) -> None:
    plain = Graph(small_system().evolve(dram=None))
    x = plain.variable(f32, (40,), "x").map(0)
    found = compile_program(plain, Copy(plain.remote_buffer("w", f32, 40), x))
    rate = plain.system.host.bandwidth_bytes_per_second(1)
    assert found.report.steps["host_cycles"].tolist() == [transfer_cycles(plain, 160, rate, sync=True)]


def test_remote_buffer__more_than_the_streaming_memory__is_refused(graph: Graph) -> None:
    assert graph.system.dram is not None
    graph.remote_buffer("small", f32, 40)
    graph.remote_buffer("large", f32, 2**20, repeats=graph.system.dram.bytes // 2**22 + 1)
    x = graph.variable(f32, (40,), "x").map(0)
    with pytest.raises(StreamMemoryError, match=r"remote buffers need [\d,]+ B of streaming memory") as caught:
        compile_program(graph, Copy(graph.remote_buffers["small"], x))
    assert "'large'" in str(caught.value)
    assert "test_nodes.py:" in str(caught.value)


@pytest.fixture
def pair() -> Graph:
    """A graph of two replicas of two IPUs each."""
    return Graph(small_system(4, num_ipus=4), replicas=2)


def test_replicas__report__is_of_one_and_names_all(pair: Graph) -> None:
    target = compile_program(pair, work_on(pair, 8)).report.target
    assert (target["num_replicas"], target["num_ipus"], target["num_tiles"]) == (2, 2, 8)
    assert (target["whole_system"], target["whole_system_num_ipus"]) == ("small-4", 4)


def test_cross_replica_copy__bytes_between_all_ipus__equal_brute_force(pair: Graph) -> None:
    from abele.compiler import Layout
    from abele.compiler.exchange import plan_replica_copies

    a = pair.variable(f32, (8, 3), "a").map_rows(range(8))
    b = pair.variable(f32, (8, 3), "b").map_rows([7, 0, 0, 5, 1, 2, 3, 4])
    layout = Layout.of(pair.interval_map(), pair.variables, pair.num_tiles)
    plan = plan_replica_copies([CrossReplicaCopy(a, b, {0: 1, 1: 0})], layout, 4)
    expected = np.zeros((4, 4), dtype=np.int64)
    for row, target in enumerate([7, 0, 0, 5, 1, 2, 3, 4]):
        for replica in (0, 1):
            expected[replica * 2 + row // 4, (1 - replica) * 2 + target // 4] += 12
    assert plan.before is not None
    assert plan.before.link_bytes.dense(4).tolist() == expected.tolist()
    assert plan.before.total_bytes == 8 * 12


def test_cross_replica_copy__syncs_all_ipus_and_takes_longer_than_a_copy(pair: Graph) -> None:
    a, b = (pair.variable(f32, (8, 3000), n).map_rows(range(8)) for n in "ab")
    found = compile_program(pair, CrossReplicaCopy(a, b, {0: 1, 1: 0}))
    assert kinds(found) == ["cross_replica"]
    assert found.report.steps["sync_cycles"][0] == pair.whole_system.sync_cycles
    links = pair.whole_system.ipu_links
    least = 4 * 3000 * 4 / links.bundle_bytes_per_second(links.num_links) * pair.system.ipu.clock_hz
    assert found.report.steps["exchange_cycles"][0] > least
    local = compile_program(pair, Copy(a, b))
    assert local.report.steps["exchange_cycles"].sum() == 0
    same = compile_program(pair, CrossReplicaCopy(a, b, {0: 0, 1: 1}))
    assert same.report.steps["exchange_cycles"].sum() == 0


def test_cross_replica_copy__groups__all_ipus_meet_and_without_a_phase_on_chips() -> None:
    graph = Graph(small_system(4, num_ipus=8), replicas=8)
    a, b = (graph.variable(f32, (4, 300), n).map_rows(range(4)) for n in "ab")
    swaps = CrossReplicaCopy(a, b, {r: r ^ 1 for r in range(8)})
    ring = CrossReplicaCopy(a, b, {r: (r + 1) % 8 for r in range(8)})
    found = [compile_program(graph, program).report.steps for program in (swaps, ring)]
    whole = graph.whole_system
    assert [int(steps["sync_cycles"][0]) for steps in found] == [whole.sync_cycles] * 2
    exchange = graph.system.ipu.exchange
    links = whole.ipu_links
    across = 4 * 300 * 4 / links.bundle_bytes_per_second(links.cross_links) * graph.system.ipu.clock_hz
    start = exchange.phase_overhead_cycles + exchange.route_mean_cycles
    assert found[0]["exchange_cycles"][0] == start + np.ceil(across)


def diverges(graph: Graph, program: Program) -> str:
    with pytest.raises(ControlProgramError, match="control flow could diverge between the 2 replicas") as caught:
        compile_program(graph, program)
    assert "AssumeEqualAcrossReplicas(" in str(caught.value)
    return str(caught.value)


def flag_from_stream(graph: Graph, *, replicated: bool) -> tuple[Tensor, Program]:
    flag = graph.variable(i32, (), "flag").map(0)
    stream = graph.host_stream_in("choices", i32, (), replicated=replicated)
    between = graph.variable(i32, (), "between").map(1)
    return flag, Sequence(Copy(stream, between), Copy(between, flag))


@pytest.mark.parametrize("kind", [If, RepeatWhileTrue, Switch])
def test_divergence__predicate_from_a_stream_of_each_replica__is_refused(pair: Graph, kind: object) -> None:
    flag, fill = flag_from_stream(pair, replicated=True)
    node: Program
    if kind is If:
        node = If(flag, work_on(pair, 8))
    elif kind is Switch:
        node = Switch(flag, {1: work_on(pair, 8)})
    else:
        node = RepeatWhileTrue(Sequence(), flag, work_on(pair, 8))
    text = diverges(pair, Sequence(fill, node))
    assert "it is computed from 'between' · stream 'choices', which has data of its own for each replica" in text
    assert "test_nodes.py:" in text
    compile_program(pair, Sequence(fill, AssumeEqualAcrossReplicas(flag), node))


def test_divergence__of_what_comes_of_a_promised_variable__is_allowed(pair: Graph) -> None:
    halves = pair.variable(i32, (2,), "halves").map(0)
    stream = pair.host_stream_in("both", i32, (2,), replicated=True)
    made = pair.variable(i32, (), "made").map(0)
    steps = Sequence(Copy(stream, halves), Copy(halves[0], made))
    assert "data of its own" in diverges(
        pair, Sequence(steps, AssumeEqualAcrossReplicas(halves[0]), If(made, Sequence()))
    )
    compile_program(pair, Sequence(steps, AssumeEqualAcrossReplicas(halves), If(made, Sequence())))


def test_divergence__broadcast_stream_or_constant__may_steer(pair: Graph) -> None:
    flag, fill = flag_from_stream(pair, replicated=False)
    compile_program(pair, Sequence(fill, If(flag, work_on(pair, 8))))
    compile_program(pair, If(pair.constant(i32, (), 1), Sequence()))
    counter = pair.variable(i32, (), "counter", initial=3).map(0)
    compile_program(pair, If(counter, Sequence()))


def test_divergence__replica_number_host_value_or_remote_row__is_refused(pair: Graph) -> None:
    assert "number of the replica" in diverges(pair, If(pair.replica_index(), Sequence()))
    value = pair.variable(i32, (1,), "value").map(0)
    assert "first value comes from the host" in diverges(pair, If(value[0], Sequence()))
    row = pair.remote_buffer("rows", i32, 1)
    assert "remote buffer 'rows'" in diverges(pair, Sequence(Copy(row, value), If(value[0], Sequence())))
    function = pair.host_function("ask", [], [(i32, (1,))])
    assert "host function 'ask'" in diverges(pair, Sequence(HostCall(function, (), (value,)), If(value[0], Sequence())))


def test_divergence__one_replica__is_not_asked(graph: Graph) -> None:
    flag, fill = flag_from_stream(graph, replicated=True)
    compile_program(graph, Sequence(fill, If(flag, Sequence())))


def test_lower__unknown_node__is_refused() -> None:
    class Odd(Program):
        debug = Sequence().debug

    with pytest.raises(ControlProgramError, match="a Odd is no program step"):
        lower([Odd()])


def test_compile__step_of_another_graph__is_refused(graph: Graph) -> None:
    other = Graph(small_system())
    x, y = graph.variable(f32, (8,), "x").map(0), other.variable(f32, (8,), "y").map(0)
    for program in (Copy(x, y), work(other), PrintTensor(y), WriteUndef(y), If(other.constant(i32, (), 1), Sequence())):
        with pytest.raises(ControlProgramError, match="belongs to another graph") as caught:
            compile_program(graph, program)
        assert "test_nodes.py:" in str(caught.value)
    cs = graph.compute_set("mixed")
    cs.vertex(Reader, tile=0, x=y)
    with pytest.raises(ControlProgramError, match=r"compute set 'mixed' is wired to .*'y'"):
        compile_program(graph, Execute(cs))
