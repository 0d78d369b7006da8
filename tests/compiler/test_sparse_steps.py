"""Steps of few tiles: costed as the dense arrays of all tiles would be, in time and memory that follow the tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Executable, compile_program, tile_vector
from abele.compiler.exchange import plan_broadcast
from abele.compiler.layout import Layout
from abele.compiler.traffic import ExchangePhase, Transfers, phase_of
from abele.graph import Copy, Execute, Graph, If, Program, Repeat, Sequence
from abele.machine import systems
from abele.numerics import bool_, f16, f32, i64
from compiler.support import Move, Multi, Reader, ReadHalf, Update, small_system
from compiler.test_equal_steps import found
from support.examples import examples

TILES = 24


@st.composite
def programs(draw: st.DrawFn) -> tuple[Graph, Program]:
    """A program of random compute sets, copies, streams and decisions on two IPUs, perhaps with sync groups."""
    graph = Graph(small_system(TILES // 2, 2))
    if draw(st.booleans()):
        graph.sync_group([1, 2, 3], "few")
    tile = st.integers(0, TILES - 1)
    tensors = []
    for number in range(4):
        dtype = draw(st.sampled_from([f32, f32, f16]))
        x = graph.variable(dtype, (4, 6), f"x{number}").map_rows(draw(st.lists(tile, min_size=4, max_size=4)))
        tensors.append(x)
    flag = graph.variable(bool_, (), "flag").map(draw(tile))
    steps: list[Program] = []
    for number in range(draw(st.integers(1, 6))):
        x, y = draw(st.permutations(tensors))[:2]
        tiles = draw(st.lists(tile, min_size=4, max_size=4))
        cs = graph.compute_set(f"s{number}")
        match draw(st.integers(0, 5)):
            case 0:
                cs.vertices(Update if x.dtype == y.dtype == f32 else ReadHalf, tile=tiles, **_fields(x, y))
            case 1:
                cs.vertices(Reader if x.dtype == f32 else ReadHalf, tile=tiles, x=x)
            case 2:
                cs.vertices(Multi if x.dtype == f32 else ReadHalf, tile=tiles, x=x)
            case 3:
                steps.append(Copy(x, y if x.dtype == y.dtype else x.T.reshape((4, 6))))
            case 4:
                steps.append(If(flag, Copy(x[:2], x[2:]), Sequence()))
            case _:
                stream = graph.host_stream_in(f"in{number}", x.dtype, x.shape)
                steps.append(Repeat(2, Sequence(Copy(stream, x), Copy(stream, x))))
        steps.append(Execute(cs))
    return graph, Sequence(*steps)


def _fields(x: Any, y: Any) -> dict[str, Any]:
    return {"x": x, "y": y} if x.dtype == y.dtype == f32 else {"x": x if x.dtype == f16 else y}


def everything(executable: Executable) -> dict[str, Any]:
    """All that is told of an executable."""
    report, memory = executable.report, executable.memory
    tables = {name: getattr(report, name).to_lists() for name in ("steps", "ops", "variables", "liveness", "groups")}
    return {
        "supersteps": [found(s) for s in executable.plan],
        "memory": {name: values.tolist() for name, values in memory.by_category.items()},
        "peak": [memory.peak_step.tolist(), memory.step_bytes.tolist(), memory.step_max_bytes.tolist()],
        "tiles": report.compute_cycles_by_tile.tolist(),
        "texts": [executable.listing(), *(executable.plan_text(s) for s in executable.steps)],
        **tables,
    }


@examples(8)
@given(programs())
def test_steps__listed_tiles_or_all_of_them__give_the_same_executable(made: tuple[Graph, Program]) -> None:
    graph, program = made
    usual = everything(compile_program(graph, program, allow_out_of_memory=True))
    for part in (0, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tile_vector, "_DENSE_PART", part)
            assert everything(compile_program(graph, program, allow_out_of_memory=True)) == usual


def _phase_text(phase: ExchangePhase, num_ipus: int) -> list[Any]:
    names = ("received_bytes", "sent_bytes", "received_fragments", "sent_fragments", "paired_bytes")
    return [*(getattr(phase, name).tolist() for name in names), phase.link_bytes.dense(num_ipus).tolist()]


@pytest.mark.parametrize(("tiles", "ipus"), [(1, 2), (2, 1), (3, 1), (5, 1), (8, 1), (4, 3), (5, 3)])
@pytest.mark.parametrize("dtype", [bool_, f16, f32, i64])
def test_broadcast__from_every_tile__is_what_transfers_to_all_others_are(tiles: int, ipus: int, dtype: Any) -> None:
    graph = Graph(small_system(tiles, ipus))
    count = tiles * ipus
    x = graph.variable(dtype, (count,), "x").map_rows(range(count))
    layout = Layout.of(graph.interval_map(), graph.variables, count)
    for home in range(count):
        begin = layout.cut(*x[home].intervals()).begin
        others = np.delete(np.arange(count, dtype=np.int32), home)
        ones = np.ones(len(others), dtype=np.int64)
        wishes = Transfers(
            others,
            np.full(len(others), home, dtype=np.int32),
            ones * begin,
            ones,
            ones * begin,
            np.full(len(others), dtype.bytes, dtype=np.int8),
            ones > 0,
        )
        phase, _ = phase_of(wishes, count, tiles)
        before = plan_broadcast(x[home], layout, tiles).before
        assert before is not None
        assert _phase_text(before, ipus) == _phase_text(phase, ipus)


def test_steps__of_five_tiles_on_a_pod__keep_five_numbers() -> None:
    graph = Graph(systems.get("bow-pod1024"))
    tiles = [3, 70_000, 500_000, 1_000_001, 1_507_327]
    x = graph.variable(f32, (5, 8), "x").map_rows(tiles)
    y = graph.variable(f32, (5, 8), "y").map_rows([*tiles[1:], tiles[0]])
    cs = graph.compute_set("step")
    cs.vertices(Move, tile=tiles, x=x, y=y)
    flag = graph.variable(bool_, (), "flag").map(77)
    executable = compile_program(graph, Sequence(Execute(cs), If(flag, Copy(x, y), Sequence())))
    step, decision, copy = executable.plan
    for superstep in (step, decision, copy):
        for part in (superstep.before, superstep.after):
            assert part is None or part.received_bytes.values.nbytes < 64
        for own in (superstep.gather, superstep.scatter, superstep.compute):
            assert own is None or own.by_tile.values.nbytes < 64
    assert decision.before is not None
    assert decision.before.received_bytes.sum() == 4 * (graph.num_tiles - 1)
    assert executable.memory.total_bytes[1_507_327] > executable.memory.total_bytes[1_507_326]
