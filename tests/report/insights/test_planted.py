"""Programs with a planted bottleneck: the first insight names it and its line, and its lever gains what it promised.

Each program is compiled twice, as it is and with the lever pulled. How far the measured gain may be from the estimate
is said with each of them; where a lever gives a bound, the gain must not be above it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from abele.codelet import InOut, MultiVertex, Vector, Vertex, codelet
from abele.compiler import compile_program
from abele.graph import Copy, Execute, Graph, Program, Repeat, Steps, Tensor
from abele.machine import System, hosts, systems
from abele.numerics import ElementType, f16, f32, i32
from abele.poplibs import poplin
from abele.report import Loading, Report
from abele.report.insights import Cost, Insights, Lever, insights
from support.vertices import Scale

TILES = 64


@codelet
class Wait(MultiVertex):
    x: InOut[Vector[f32]]
    cycles_needed: i32

    def compute(self, worker_id):
        if worker_id == 0:
            self.x[0] += 1.0

    @staticmethod
    def cycles(v, ipu):
        return v.cycles_needed.astype(np.int64)


@codelet
class Work(Vertex):
    x: InOut[Vector[f32]]
    slots_needed: i32

    def compute(self):
        self.x[0] += 1.0

    @staticmethod
    def cycles(v, ipu):
        return v.slots_needed.astype(np.int64)


def machine(num_tiles: int = TILES, num_ipus: int = 1) -> System:
    return systems.get("bow-2000").evolve(
        ipu={"num_tiles": num_tiles, "sync": {"host_seconds": 2e-6}},
        num_ipus=num_ipus,
        name=f"small-{num_tiles}",
        title="a small machine",
    )


@dataclass(frozen=True)
class Planted:
    """A compiled program's report."""

    report: Report

    @property
    def insights(self) -> Insights:
        return insights(self.report)

    @property
    def first(self) -> Cost:
        return self.insights.costs[0]


def scaled(graph: Graph, x: Tensor, rows: Sequence[int], name: str = "work") -> Program:
    """A vertex for each row of ``x``, on the tile of ``rows``."""
    cs = graph.compute_set(name)
    cs.vertices(Scale, tile=list(rows), x=x)
    return Execute(cs)


def lever(cost: Cost, words: str) -> Lever:
    """The lever whose title has these words."""
    found = [each for each in cost.levers if words in each.title]
    assert len(found) == 1, [each.title for each in cost.levers]
    return found[0]


def gained(before: Planted, after: Planted) -> int:
    return before.report.total_cycles - after.report.total_cycles


def line_of(function: Callable[..., object], words: str) -> int:
    """The line of a function of this file that has these words."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [n for n, text in enumerate(lines) if words in text]
    return first + found


def assert_names(cost: Cost, kind: str, words: str, line: int) -> None:
    assert cost.kind == kind
    assert words in f"{cost.title}: {cost.reason}"
    assert cost.where is not None
    assert cost.where.file.endswith("test_planted.py")
    assert cost.where.line == line


def assert_gain(measured: float, promised: Lever, *, within: float) -> None:
    """The measured gain is the estimate, up to a part of it, and not above a bound."""
    assert promised.gain_cycles is not None
    assert measured == pytest.approx(promised.gain_cycles, rel=within)
    assert not promised.at_most or measured <= promised.gain_cycles
    assert promised.assumption


def product(batch_parts: int | None, dtype: ElementType = f32) -> Planted:
    """A product whose rows go to so many tiles, or as the planner wants."""
    graph = Graph(machine())
    a = graph.variable(dtype, (512, 64), "a").map_linear()
    b = graph.variable(dtype, (64, 64), "b").map_linear()
    program = Steps()
    one = '"outChanSplit": {"parallel": 1}, "inChanSplit": {"parallel": 1}'
    plan = f'{{"0": {{"partition": {{"batchSplit": {batch_parts}, {one}}}}}}}'
    options = {} if batch_parts is None else {"planConstraints": plan}
    poplin.matmul(graph, a, b, program, "fc1", options=options)
    return Planted(compile_program(graph, program).report)


def unbalanced(shares: Sequence[int]) -> Planted:
    """A compute set whose tiles scale so many rows of 60 elements each."""
    graph = Graph(machine())
    tiles = np.repeat(np.arange(len(shares)), shares)
    x = graph.variable(f32, (len(tiles), 60), "x").map_rows(tiles.tolist())
    work = scaled(graph, x, tiles.tolist())
    return Planted(compile_program(graph, Repeat(10, work)).report)


def gathered(tiles: Sequence[int]) -> Planted:
    """Rows that come from all tiles to some."""
    graph = Graph(machine())
    x = graph.variable(f32, (TILES, 1024), "x").map_rows(range(TILES))
    y = graph.variable(f32, (TILES, 1024), "y").map_rows(list(tiles))
    program = Copy(x, y, name="gather")
    return Planted(compile_program(graph, program).report)


def streamed(*, io: bool = False, at_once: int = 1, trips: int = 100) -> Planted:
    graph = Graph(machine())
    stream = graph.host_stream_in("images", f32, (8 * at_once, 500))
    x = graph.variable(f32, (8, 500), "x").map_rows(range(8, 16))
    work = scaled(graph, x, range(8, 16))
    if io:
        graph.sync_group(list(range(8)), "io")
    inbox = graph.variable(f32, (8 * at_once, 500), "inbox").map_rows(list(range(8)) * at_once)
    take = Copy(stream, inbox)
    rounds = [Steps(Copy(inbox[8 * n : 8 * n + 8], x), work) for n in range(at_once)]
    program = Repeat(trips // at_once, Steps(take, *rounds))
    return Planted(compile_program(graph, program).report)


def pipelined(work: Sequence[int]) -> Planted:
    """Stages on IPUs of their own: rows that each scales, then a copy to the next."""
    graph = Graph(machine(8, len(work)))
    xs = []
    for stage, rows in enumerate(work):
        tiles = [8 * stage + n % 8 for n in range(8 * rows)]
        x = graph.variable(f32, (8 * rows, 120), f"x{stage}").map_rows(tiles)
        xs.append((x, tiles))
    programs = [scaled(graph, x, tiles, f"stage{n}") for n, (x, tiles) in enumerate(xs)]
    hand = [Copy(xs[n][0][:8], xs[n + 1][0][:8], name="hand over") for n in range(len(xs) - 1)]
    # As a pipeline runs in its middle: all stages at once, then all hand over.
    return Planted(compile_program(graph, Repeat(50, Steps(*programs, *hand))).report)


def overfull(tiles: int) -> Planted:
    graph = Graph(machine())
    table = graph.variable(f32, (256, 1000), "table").map_rows([n % tiles for n in range(256)])
    work = scaled(graph, table, [n % tiles for n in range(256)])
    return Planted(compile_program(graph, work, allow_out_of_memory=True).report)


def small_steps(supersteps: int) -> Planted:
    """Eight rows on each tile, scaled in so many supersteps: the last one scales what is left."""
    graph = Graph(machine())
    xs = [graph.variable(f32, (TILES, 2), f"x{n}").map_rows(range(TILES)) for n in range(8)]
    body = [scaled(graph, x, range(TILES)) for x in xs[: supersteps - 1]]
    last = graph.compute_set("last")
    for x in xs[supersteps - 1 :]:
        last.vertices(Scale, tile=list(range(TILES)), x=x)
    return Planted(compile_program(graph, Repeat(100, Steps(*body, Execute(last)))).report)


def workers(each: int) -> Planted:
    graph = Graph(machine())
    tiles = [t for t in range(TILES) for _ in range(each)]
    x = graph.variable(f32, (TILES * each, 1200 // each), "x").map_rows(tiles)
    return Planted(compile_program(graph, Repeat(10, scaled(graph, x, tiles))).report)


def fully_connected(created: str) -> Planted:
    """A product with operands in rows, but for those that the library creates."""
    graph = Graph(machine())
    program = Steps()
    shapes = (512, 64), (64, 64)
    a = graph.variable(f32, shapes[0], "a").map_linear()
    if "b" in created:
        b = poplin.create_matmul_input_rhs(graph, f32, *shapes, "b")
    else:
        b = graph.variable(f32, shapes[1], "b").map_linear()
    poplin.matmul(graph, a, b, program, "fc1")
    return Planted(compile_program(graph, program).report)


def test_matmul__on_four_tiles__is_named_and_more_tiles_save_what_was_promised() -> None:
    # Its compute alone: 2 % below the bound, for what each of 64 vertices costs however small it is. The run gains
    # more, because what is exchanged is spread too, which the second cost told.
    few, all_ = product(4), product(None)
    assert_names(few.first, "balance", "it computes on 4 of 64 tiles", line_of(product, "poplin.matmul("))
    promised = lever(few.first, "map it over all 64 tiles instead of 4")
    assert_gain(few.first.cycles - all_.first.cycles, promised, within=0.05)
    spread = lever(few.insights.costs[1], "spread what arrives over more tiles")
    assert few.insights.costs[1].kind == "exchange"
    both = (promised.gain_cycles or 0) + (spread.gain_cycles or 0)
    assert 0.8 * both < gained(few, all_) <= both


def test_matmul__in_f32__tells_what_half_precision_saves_at_most() -> None:
    # A product this small reaches two thirds of the bound: loading weights is not faster by the ratio of the peaks.
    single, half = product(None), product(None, f16)
    promised = lever(single.first, "half precision")
    assert promised.changes_numbers
    assert single.first.kind == "compute"
    assert_gain(gained(single, half), promised, within=0.4)
    assert not [each for each in half.first.levers if "half precision" in each.title]


def test_matmul__with_an_operand_in_rows__saves_its_rewriting_to_the_cycle() -> None:
    plain, created = fully_connected(""), fully_connected("b")
    (cost,) = [cost for cost in plain.insights.costs if cost.kind == "arrange"]
    promised = lever(cost, "as the library's create functions do")
    assert gained(plain, created) == promised.gain_cycles


def test_compute_set__one_tile_with_ten_times_the_work__is_named_and_spreading_it_saves_what_was_promised() -> None:
    # Work comes in six rows, one for each worker: what is left of the mean cannot be dealt out, a tenth of the gain.
    before, after = unbalanced([60] + [6] * 63), unbalanced([6] * 55 + [12] * 9)
    assert_names(before.first, "balance", "tile 0 takes 18,600 cycles", line_of(scaled, "graph.compute_set"))
    assert before.first.select["tile"] == 0
    assert_gain(gained(before, after), lever(before.first, "spread its work evenly over the 64 tiles"), within=0.12)


def test_compute_set__on_an_eighth_of_the_tiles__saves_to_the_cycle_what_was_promised() -> None:
    before, after = unbalanced([48] * 8), unbalanced([6] * 64)
    assert_names(before.first, "balance", "on 8 of 64 tiles", line_of(scaled, "graph.compute_set"))
    assert gained(before, after) == lever(before.first, "map it over all 64 tiles").gain_cycles


def test_compute_set__one_vertex_on_each_tile__is_told_to_use_all_workers() -> None:
    # What a vertex costs however short it is comes on top: less than 1 %.
    one, six = workers(1), workers(6)
    assert_names(one.first, "compute", "keep 64 of 64 tiles busy", line_of(scaled, "graph.compute_set"))
    assert_gain(gained(one, six), lever(one.first, "1 of 6 workers"), within=0.01)


def waiting(cycles: Sequence[int], name: str = "wait") -> Planted:
    """A vertex of all workers on each tile that takes so many cycles."""
    graph = Graph(machine())
    x = graph.variable(f32, (len(cycles), 2), "x").map_rows(range(len(cycles)))
    cs = graph.compute_set(name)
    cs.vertices(Wait, tile=list(range(len(cycles))), x=x, cycles_needed=np.array(cycles, np.int32))
    return Planted(compile_program(graph, Execute(cs)).report)


def test_compute_set__one_large_vertex__is_named_and_taking_it_apart_saves_what_was_promised() -> None:
    # To the cycle: 64,000 cycles over what all have in common, dealt out over 64 tiles.
    before, after = waiting([1000] * 63 + [65_000]), waiting([2000] * 64)
    assert_names(before.first, "balance", "tile 63 takes 65,000 cycles", line_of(waiting, "graph.compute_set"))
    assert before.first.reason.endswith("; one vertex, of Wait, takes 65,000 of them")
    assert gained(before, after) == lever(before.first, "spread its work evenly").gain_cycles


def dealt(slots: Sequence[int]) -> Planted:
    """Single-worker vertices on each tile that take so many issue slots, in this order."""
    graph = Graph(machine())
    tiles = [t for t in range(TILES) for _ in slots]
    x = graph.variable(f32, (len(tiles), 2), "x").map_rows(tiles)
    cs = graph.compute_set("deal")
    cs.vertices(Work, tile=tiles, x=x, slots_needed=np.array([*slots] * TILES, np.int32))
    return Planted(compile_program(graph, Repeat(10, Execute(cs))).report)


def test_compute_set__longest_vertices_last__dealing_them_first_saves_to_the_cycle_what_was_promised() -> None:
    before, after = dealt([100] * 12 + [400] * 3), dealt([400] * 3 + [100] * 12)
    assert before.first.title == "compute of deal"
    assert gained(before, after) == lever(before.first, "the longest ones first").gain_cycles == 10 * 6 * 200
    assert not [each for each in after.first.levers if "workers" in each.title]


def test_compute_set__vertices_of_all_workers__are_not_told_to_be_more() -> None:
    (compute,) = [cost for cost in waiting([5000] * 64).insights.costs if cost.kind == "compute"]
    assert not [each for each in compute.levers if "workers" in each.title]


def test_exchange__all_to_one_tile__is_named_and_spreading_it_saves_what_was_promised() -> None:
    # 2 %: copies on the tile that stayed there are gone too, which another cost told.
    before, after = gathered([0] * TILES), gathered([*range(1, TILES), 0])
    assert_names(before.first, "exchange", "tile 0 receives 258,048 B", line_of(gathered, "program = Copy"))
    assert before.first.select["tile"] == 0
    promised = lever(before.first, "spread what arrives over more tiles")
    assert before.first.cycles - after.first.cycles <= (promised.gain_cycles or 0)
    assert gained(before, after) == pytest.approx(promised.gain_cycles, rel=0.02)


def test_stream__in_a_loop__is_named_and_io_tiles_hide_what_was_promised() -> None:
    # 2 %: handing the batch over.
    before, after = streamed(), streamed(io=True)
    assert_names(before.first, "host", "stream images", line_of(streamed, "take = Copy"))
    assert_gain(gained(before, after), lever(before.first, "IO tiles"), within=0.02)


def test_stream__in_a_loop__larger_transfers_save_what_was_promised() -> None:
    # A tenth of the rounds instead of one: nine tenths of the gain but for 1 in 100 that one round keeps.
    before, after = streamed(), streamed(at_once=10)
    promised = lever(before.first, "100 rounds of the loop at once")
    assert promised.gain_cycles is not None
    assert gained(before, after) == pytest.approx(promised.gain_cycles * 0.9 / 0.99, rel=1e-3)


def kept_outside(*, outside: bool) -> Planted:
    """Weights that are fetched and put back in each round, or stay."""
    graph = Graph(machine())
    x = graph.variable(f32, (TILES, 2000), "weights").map_rows(range(TILES))
    work = scaled(graph, x, range(TILES))
    buffer = graph.remote_buffer("stash", f32, TILES * 2000)
    fetch, keep = Copy(buffer, x.flatten()), Copy(x.flatten(), buffer)
    return Planted(compile_program(graph, Repeat(10, Steps(fetch, work, keep) if outside else work)).report)


def test_streaming_memory__in_a_loop__is_named_and_keeping_it_on_chip_saves_to_the_cycle_what_was_promised() -> None:
    before, after = kept_outside(outside=True), kept_outside(outside=False)
    assert_names(
        before.first, "streaming memory", "10,240,000 B go to and from it", line_of(kept_outside, "fetch, keep =")
    )
    assert gained(before, after) == lever(before.first, "keep it on chip").gain_cycles


def test_supersteps__without_work__are_told_and_one_less_saves_its_sync() -> None:
    before, after = small_steps(8), small_steps(7)
    (sync,) = [cost for cost in before.insights.costs if cost.kind == "sync"]
    assert_names(sync, "sync", "800 of them in a run, 54 cycles each", line_of(scaled, "graph.compute_set"))
    compute = before.report.cycles().compute - after.report.cycles().compute
    assert gained(before, after) - compute == lever(sync, "one superstep less").gain_cycles


def test_pipeline__of_unequal_stages__is_named_and_equal_ones_save_to_the_cycle_what_was_promised() -> None:
    before, after = pipelined([6, 24, 6]), pipelined([12, 12, 12])
    assert_names(before.first, "pipeline", "IPU 1 is busy 100% of the run", line_of(scaled, "graph.compute_set"))
    assert gained(before, after) == lever(before.first, "equal stages").gain_cycles
    assert after.first.kind != "pipeline"


def test_program__that_does_not_fit__is_named_and_spreading_its_table_makes_it_fit() -> None:
    # Below the bound by less than 1 %: vertices and their fields go along.
    before, after = overfull(1), overfull(TILES)
    first = before.first
    assert first.kind == "memory"
    assert "391,456 B have to go, and 1 tile is too full" in first.reason
    assert "most on it is variable table with 1,024,000 B" in first.reason
    assert before.insights.limit.startswith("It does not fit")
    assert first.where is not None
    assert first.where.line == line_of(overfull, "table = graph.variable")
    assert before.insights.memory.largest_excess_bytes == 391_456
    promised = lever(first, "spread table over all 64 tiles")
    saved = int(before.report.memory.by_tile.max() - after.report.memory.by_tile.max())
    assert saved == pytest.approx(promised.gain_bytes, rel=0.01)
    assert after.insights.memory.fits


def test_loader__one_worker_for_slow_samples__is_named_and_two_save_what_was_promised() -> None:
    report = streamed().report.with_meta(samples_per_run=64)
    loading = Loading(
        samples_per_batch=64,
        batches_per_epoch=100,
        sample_seconds=1e-3,
        sample_bytes=16.0,
        tensors_per_batch=1,
        num_workers=1,
        host=hosts.get("epyc-7742"),
    )
    told = report.with_loading(loading)
    first = insights(told).costs[0]
    assert (first.kind, first.title) == ("loader", "making and handing over batches")
    promised = lever(first, "2 workers instead of 1").gain_cycles
    assert promised is not None
    seconds = [report.with_loading(loading.evolve(num_workers=n)).limits for n in (1, 2)]
    each = [64 / limits.samples_per_second for limits in seconds if limits is not None]
    assert promised == pytest.approx((each[0] - each[1]) * 1.85e9, rel=1e-6)
