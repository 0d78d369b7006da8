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

from abele.codelet import InOut, Vector, Vertex, codelet
from abele.compiler import compile_program
from abele.graph import Copy, Execute, Graph, Program, Repeat, Tensor, concat
from abele.graph import Sequence as InOrder
from abele.machine import System, hosts, systems
from abele.numerics import f16, f32
from abele.poplibs import poplin
from abele.report import Loading, Report
from abele.report.insights import Cost, Insights, Lever, insights

TILES = 64


@codelet
class Scale(Vertex):
    x: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] *= 2.0


def machine(num_tiles: int = TILES, num_ipus: int = 1) -> System:
    return systems.get("bow-2000").evolve(
        ipu={"num_tiles": num_tiles, "sync": {"host_seconds": 2e-6}},
        num_ipus=num_ipus,
        name=f"small-{num_tiles}",
        title="a small machine",
    )


@dataclass(frozen=True)
class Planted:
    """A report, and the line of the bottleneck."""

    report: Report
    line: int = 0

    @property
    def insights(self) -> Insights:
        return insights(self.report)

    @property
    def first(self) -> Cost:
        return self.insights.costs[0]


def here() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


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


def assert_gain(before: Planted, after: Planted, promised: Lever, *, within: float) -> None:
    """The measured gain is the estimate, up to a part of it, and not above a bound."""
    assert promised.gain_cycles is not None
    measured = gained(before, after)
    assert measured == pytest.approx(promised.gain_cycles, rel=within)
    assert not promised.at_most or measured <= promised.gain_cycles


def product(batch_parts: int | None, dtype=f32) -> Planted:
    """A product whose rows go to so many tiles, or as the planner wants."""
    graph = Graph(machine())
    a = graph.variable(dtype, (512, 64), "a").map_linear()
    b = graph.variable(dtype, (64, 64), "b").map_linear()
    program = InOrder()
    one = '"outChanSplit": {"parallel": 1}, "inChanSplit": {"parallel": 1}'
    plan = f'{{"0": {{"partition": {{"batchSplit": {batch_parts}, {one}}}}}}}'
    options = {} if batch_parts is None else {"planConstraints": plan}
    poplin.matmul(graph, a, b, program, "fc1", options=options)
    return Planted(compile_program(graph, program).report, here() - 1)


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
    return Planted(compile_program(graph, program).report, here() - 1)


def streamed(*, io: bool = False, at_once: int = 1, trips: int = 100) -> Planted:
    graph = Graph(machine())
    stream = graph.host_stream_in("images", f32, (8 * at_once, 500))
    x = graph.variable(f32, (8, 500), "x").map_rows(range(8, 16))
    work = scaled(graph, x, range(8, 16))
    if io:
        graph.sync_group(list(range(8)), "io")
    inbox = graph.variable(f32, (8 * at_once, 500), "inbox").map_rows(list(range(8)) * at_once)
    take = Copy(stream, inbox)
    rounds = [InOrder(Copy(inbox[8 * n : 8 * n + 8], x), work) for n in range(at_once)]
    program = Repeat(trips // at_once, InOrder(take, *rounds))
    return Planted(compile_program(graph, program).report, here() - 3)


def pipelined(work: Sequence[int]) -> Planted:
    """Stages on IPUs of their own: rows that each scales, then a copy to the next."""
    graph = Graph(machine(8, len(work)))
    body, xs = InOrder(), []
    for stage, rows in enumerate(work):
        tiles = [8 * stage + n % 8 for n in range(8 * rows)]
        x = graph.variable(f32, (8 * rows, 120), f"x{stage}").map_rows(tiles)
        xs.append((x, tiles))
    programs = [scaled(graph, x, tiles, f"stage{n}") for n, (x, tiles) in enumerate(xs)]
    for n, (x, _) in enumerate(xs[:-1]):
        body = body
    hand = [Copy(xs[n][0][:8], xs[n + 1][0][:8], name="hand over") for n in range(len(xs) - 1)]
    # As a pipeline runs in its middle: all stages at once, then all hand over.
    return Planted(compile_program(graph, Repeat(50, InOrder(*programs, *hand))).report)


def overfull(tiles: int) -> Planted:
    graph = Graph(machine())
    table = graph.variable(f32, (256, 1000), "table").map_rows([n % tiles for n in range(256)])
    work = scaled(graph, table, [n % tiles for n in range(256)])
    return Planted(compile_program(graph, work, allow_out_of_memory=True).report)


def small_steps(merged: bool) -> Planted:
    graph = Graph(machine())
    xs = [graph.variable(f32, (TILES, 2), f"x{n}").map_rows(range(TILES)) for n in range(8)]
    if merged:
        cs = graph.compute_set("merged")
        for x in xs:
            cs.vertices(Scale, tile=list(range(TILES)), x=x)
        body = InOrder(Execute(cs))
    else:
        body = InOrder(*[scaled(graph, x, range(TILES)) for x in xs])
    return Planted(compile_program(graph, Repeat(100, body)).report)


def workers(each: int) -> Planted:
    graph = Graph(machine())
    tiles = [t for t in range(TILES) for _ in range(each)]
    x = graph.variable(f32, (TILES * each, 1200 // each), "x").map_rows(tiles)
    return Planted(compile_program(graph, Repeat(10, scaled(graph, x, tiles))).report)


def fc(created: str) -> Planted:
    graph = Graph(machine())
    program = InOrder()
    b = (
        poplin.create_matmul_input_rhs(graph, f32, (512, 64), (64, 64), "b")
        if "b" in created
        else graph.variable(f32, (64, 64), "b").map_linear()
    )
    a = (
        poplin.create_matmul_input_lhs(graph, f32, (512, 64), (64, 64), "a")
        if "a" in created
        else graph.variable(f32, (512, 64), "a").map_linear()
    )
    poplin.matmul(graph, a, b, program, "fc1")
    return Planted(compile_program(graph, program).report)


def test_all() -> None:
    for pair in (
        (product(4), product(None)),
        (product(None), product(None, f16)),
        (unbalanced([60] + [6] * 63), unbalanced([6] * 55 + [12] * 9)),
        (unbalanced([48] * 8), unbalanced([6] * 64)),
        (gathered([0] * TILES), gathered([*range(1, TILES), 0])),
        (streamed(), streamed(io=True)),
        (streamed(), streamed(at_once=10)),
        (pipelined([6, 24, 6]), pipelined([12, 12, 12])),
        (overfull(1), overfull(64)),
        (small_steps(False), small_steps(True)),
        (workers(1), workers(6)),
        (fc(""), fc("a")),
        (fc(""), fc("b")),
        (fc(""), fc("ab")),
    ):
        print("=" * 100)
        print(pair[0].insights.text().partition("\nreached")[0])
        print("MEASURED", gained(*pair), "of", pair[0].report.total_cycles, pair[1].report.memory.by_tile.max())
