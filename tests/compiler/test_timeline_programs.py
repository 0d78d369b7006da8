"""Timelines of whole programs against a simulation that goes through every trip of every loop, tile set by tile set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Executable, compile_program
from abele.compiler.durations import host_cycles
from abele.graph import Copy, Execute, Graph, If, Program, Repeat, RepeatWhileTrue, Steps
from abele.numerics import f32, i32
from compiler.support import Multi, small_system
from support.examples import examples

TILES, IPUS = 4, 2
ALL = TILES * IPUS


@dataclass(frozen=True)
class Work:
    """A compute set on some tiles, all of which take so many cycles."""

    tiles: tuple[int, ...]
    cycles: int


@dataclass(frozen=True)
class Send:
    """A copy from a tile to another."""

    source: int
    target: int


@dataclass(frozen=True)
class Loop:
    """A Repeat."""

    count: int
    body: tuple[Work | Send | Loop, ...]


Item = Work | Send | Loop
tiles = st.lists(st.integers(0, ALL - 1), min_size=1, max_size=3, unique=True).map(tuple)
leaves = st.builds(Work, tiles, st.integers(1, 5000)) | st.permutations(range(ALL)).map(lambda p: Send(p[0], p[1]))


def bodies(inner: st.SearchStrategy[Item]) -> st.SearchStrategy[tuple[Item, ...]]:
    return st.lists(inner, min_size=1, max_size=4).map(tuple)


programs = bodies(st.recursive(leaves, lambda inner: st.builds(Loop, st.integers(1, 7), bodies(inner)), max_leaves=6))
partitions = st.lists(st.integers(0, 2), min_size=ALL, max_size=ALL)
"""Number of the user's sync group of each tile; 0 is none."""


@dataclass
class Built:
    """A graph with a program, and which step does what."""

    graph: Graph
    items: dict[str, Work | Send] = field(default_factory=dict)

    def program(self, items: Sequence[Item]) -> Steps:
        return Steps(*(self.step(i) for i in items))

    def step(self, item: Item) -> Program:
        if isinstance(item, Loop):
            return Repeat(item.count, self.program(item.body))
        name = f"s{len(self.items)}"
        self.items[name] = item
        if isinstance(item, Send):
            source, target = (self.graph.variable(f32, (4,), f"{name}{e}") for e in "ab")
            return Copy(source.map(item.source), target.map(item.target), name=name)
        x = self.graph.variable(f32, (len(item.tiles), 2), f"{name}x").map_rows(item.tiles)
        compute_set = self.graph.compute_set(name)
        compute_set.vertices(Multi, tile=item.tiles, x=x, cycles=item.cycles)
        return Execute(compute_set)


def compiled(items: Sequence[Item], partition: Sequence[int] = (), ipus: int = IPUS) -> tuple[Executable, Built]:
    graph = Graph(small_system(ALL // ipus, ipus))
    for number in set(partition) - {0}:
        graph.sync_group([t for t, p in enumerate(partition) if p == number], f"group {number}")
    built = Built(graph)
    return compile_program(graph, built.program(items)), built


def unrolled(items: Sequence[Item], names: Iterator[str]) -> Iterator[str]:
    for item in items:
        if not isinstance(item, Loop):
            yield next(names)
            continue
        trip = list(unrolled(item.body, names))
        for _ in range(item.count):
            yield from trip


def simulated(items: Sequence[Item], found: Executable, built: Built, group_of: Sequence[object]) -> tuple[int, dict]:
    """Makespan and first start of each step: every step waits for the groups of its tiles, and keeps them busy."""
    free: dict[object, int] = dict.fromkeys(group_of, 0)
    cost = by_name(found, "cycles")
    starts: dict[str, int] = {}
    for name in unrolled(items, iter(built.items)):
        item = built.items[name]
        where = item.tiles if isinstance(item, Work) else (item.source, item.target)
        groups = {group_of[t] for t in where}
        ipus = {g for g in group_of if isinstance(g, tuple)}
        if isinstance(item, Send) and len({t // (ALL // found.system.num_ipus) for t in where}) > 1 and ipus & groups:
            # All IPUs are at the barrier before an exchange between two.
            groups |= ipus
        start = max(free[g] for g in groups)
        starts.setdefault(name, start)
        free.update(dict.fromkeys(groups, start + int(cost[name])))
    return max(free.values()), starts


def by_name(found: Executable, column: str) -> dict[str, int]:
    """A column of the report's steps; each step here is one row, called ``name`` or ``name: part``."""
    steps = found.report.steps
    return {n.partition(":")[0]: v for n, v in zip(steps["name"].tolist(), steps[column].tolist(), strict=True)}


def label(partition: Sequence[int]) -> list[object]:
    return [p or ("IPU", t // TILES) for t, p in enumerate(partition)]


@examples(12)
@given(programs, partitions)
def test_makespan__any_program_and_groups__is_that_of_every_trip_by_itself(
    items: tuple[Item, ...], partition: list[int]
) -> None:
    found, built = compiled(items, partition)
    total, starts = simulated(items, found, built, label(partition))
    assert found.report.cycles().total == total
    assert by_name(found, "start_cycle") == starts


@examples(4)
@given(bodies(leaves), bodies(leaves), partitions, st.integers(500, 3000))
def test_makespan__many_trips__is_that_of_every_trip_by_itself(
    body: tuple[Item, ...], after: tuple[Item, ...], partition: list[int], count: int
) -> None:
    items = (Loop(count, (*body, Loop(2, after))), *after)
    found, built = compiled(items, partition)
    assert found.report.cycles().total == simulated(items, found, built, label(partition))[0]


@examples(6)
@given(programs)
def test_makespan__one_group__is_the_sum_of_all_steps(items: tuple[Item, ...]) -> None:
    report = compiled(items, ipus=1)[0].report
    assert report.cycles().total == int((report.steps["cycles"] * report.steps["executions"]).sum())
    assert report.cycles().hidden == 0


@examples(6)
@given(programs, partitions, st.lists(st.booleans(), min_size=ALL, max_size=ALL))
def test_makespan__groups_split_further__is_never_longer(
    items: tuple[Item, ...], partition: list[int], apart: list[bool]
) -> None:
    finer = [p + 3 * a if p else p for p, a in zip(partition, apart, strict=True)]
    none, coarse, fine = (compiled(items, p)[0].report.cycles().total for p in ([0] * ALL, partition, finer))
    assert fine <= coarse
    finest = compiled(items, [t + 1 for t in range(ALL)])[0].report.cycles().total
    assert finest <= min(none, fine)


@examples(6)
@given(programs, partitions, st.integers(1, 3000))
def test_makespan__more_work_in_every_step__is_longer(items: tuple[Item, ...], partition: list[int], more: int) -> None:
    def heavier(item: Item) -> Item:
        if isinstance(item, Loop):
            return Loop(item.count, tuple(map(heavier, item.body)))
        return Work(item.tiles, item.cycles + more) if isinstance(item, Work) else item

    before, after = (compiled(i, partition)[0].report.cycles().total for i in (items, tuple(map(heavier, items))))
    assert after >= before


def replayed(found: Executable, order: Sequence[int]) -> int:
    """Makespan of steps that run in this order, by the report's cycles and groups of their parts."""
    rows: dict[int, list[tuple[int, list[str]]]] = {}
    steps = found.report.steps
    for row, (superstep, cycles) in enumerate(zip(steps["superstep"].tolist(), steps["cycles"].tolist(), strict=True)):
        rows.setdefault(superstep, []).append((cycles, found.report.groups_of(row)))
    free: dict[str, int] = {}
    for index in order:
        for cycles, groups in rows[found.steps[index].superstep]:
            end = max(free.get(g, 0) for g in groups) + cycles
            free.update(dict.fromkeys(groups, end))
    return max(free.values())


@examples(4)
@given(st.integers(0, 300), st.booleans(), partitions, st.lists(st.integers(1, 5000), min_size=6, max_size=6))
def test_makespan__while_loop_and_branch_that_a_run_counted__is_that_of_every_trip_by_itself(
    trips: int, taken: bool, partition: list[int], cycles: list[int]
) -> None:
    graph = Graph(small_system(TILES, IPUS))
    for number in set(partition) - {0}:
        graph.sync_group([t for t, p in enumerate(partition) if p == number], f"group {number}")
    flag, built = graph.variable(i32, (), "flag").map(3), Built(graph)
    before, condition, first, second, then, other = (
        built.step(Work((tile, 7), c) if tile < 2 else Work((tile,), c)) for tile, c in enumerate(cycles)
    )
    loop = RepeatWhileTrue(condition, flag, Steps(first, second))
    found = compile_program(graph, Steps(before, loop, If(flag, then, other)))
    assert [s.kind for s in found.steps].index("decide") == 2
    account = found.account_of([1, trips + 1, trips + 1, trips, trips, 1, int(taken), int(not taken)])
    order = [0, *[1, 2, 3, 4] * trips, 1, 2, 5, 6 if taken else 7]
    assert found.report_of(account).cycles().total == replayed(found, order) == found.cycles_of(0, account)


@examples(4)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=5))
def test_makespan__uneven_loops_and_branches__is_exact_with_one_group_and_bounded_with_several(
    entries: list[tuple[int, bool]],
) -> None:
    trips, taken, count = sum(t for t, _ in entries), sum(w for _, w in entries), len(entries)
    for ipus in (1, IPUS):
        graph = Graph(small_system(ALL // ipus, ipus))
        flag, built = graph.variable(i32, (), "flag").map(3), Built(graph)
        work = [built.step(Work((tile,), 100 * tile + 50)) for tile in range(6)]
        loop = RepeatWhileTrue(work[1], flag, Steps(work[0], work[5]))
        body = Steps(work[2], loop, If(flag, work[3], work[4]))
        found = compile_program(graph, Repeat(count, body))
        looks = trips + count
        report = found.report_of(found.account_of([count, looks, looks, trips, trips, count, taken, count - taken]))
        total = int((report.steps["cycles"] * report.steps["executions"]).sum())
        assert report.groups["busy_cycles"].max() <= report.cycles().total <= total
        assert report.cycles().total == total or ipus > 1


def io_program(group: bool, elements: int, work: int, trips: int) -> tuple[Executable, Mapping[str, int]]:
    """Stream to tile 0, compute on tiles 1 to 3, copy from tile 0 to tile 1, over and over."""
    system = small_system(4)
    graph = Graph(system)
    if group:
        graph.sync_group([0], "io")
    landing = graph.variable(f32, (elements,), "landing").map(0)
    inbox = graph.variable(f32, (elements,), "inbox").map(1)
    x = graph.variable(f32, (3, 2), "x").map_rows([1, 2, 3])
    compute_set = graph.compute_set("work")
    compute_set.vertices(Multi, tile=[1, 2, 3], x=x, cycles=work)
    stream = graph.host_stream_in("data", f32, (elements,))
    body = Steps(Copy(stream, landing), Execute(compute_set), Copy(landing, inbox, name="hand over"))
    ipu = system.ipu
    exchange = ipu.exchange
    figures = {
        "stream": ipu.sync.on_chip_cycles + host_cycles(4 * elements, 1, system),
        "work": ipu.launch.compute_set_cycles + ipu.launch.multi_vertex_cycles + work,
        "hand over": ipu.sync.on_chip_cycles
        + exchange.phase_overhead_cycles
        + exchange.route_mean_cycles
        + 4 * elements // exchange.bytes_per_cycle,
    }
    return compile_program(graph, Repeat(trips, body)), figures


@pytest.mark.parametrize("trips", [1, 2, 1000])
@pytest.mark.parametrize("work", [100, 100_000])
def test_io_tiles__stream_beside_compute__take_the_longer_of_both_a_round(work: int, trips: int) -> None:
    found, cost = io_program(True, 400, work, trips)
    report = found.report
    assert report.cycles().total == trips * (max(cost["stream"], cost["work"]) + cost["hand over"])
    group = {row["name"]: row for row in report.groups.rows()}
    assert group["io"]["tiles"] == 1
    assert group["io"]["busy_cycles"] == trips * (cost["stream"] + cost["hand over"])
    assert group["IPU 0"]["busy_cycles"] == trips * (cost["work"] + cost["hand over"])
    assert report.steps["start_cycle"].tolist() == [0, 0, max(cost["stream"], cost["work"])]
    assert [report.groups_of(step) for step in range(2)] == [["io"], ["IPU 0"]]


def test_io_tiles__without_a_group__take_the_sum_a_round() -> None:
    found, cost = io_program(False, 400, 20_000, 10)
    assert found.report.cycles().total == 10 * sum(cost.values())


def test_ipus__steps_within_one__pay_its_own_sync_and_overlap() -> None:
    found, built = compiled((Send(0, 1), Send(TILES, TILES + 1), Send(0, TILES)))
    system = built.graph.system
    near, beside, across = found.report.steps["sync_cycles"].tolist()
    assert near == beside == system.ipu.sync.on_chip_cycles
    assert across == system.sync_cycles
    assert found.report.steps["start_cycle"].tolist()[:2] == [0, 0]
