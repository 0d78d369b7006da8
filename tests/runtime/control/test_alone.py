"""Code for thread 0 alone: chosen by the work of leaves, and without a difference to what is computed."""

from __future__ import annotations

import numpy as np
import pytest

from abele.graph import Copy, Graph, Repeat, Sequence, concat
from abele.runtime import Engine
from abele.runtime.control.alone import CodeSpan, LoneSpans
from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.leaf import Leaf


def chosen(emitter: Emitter, threads: int = 2) -> LoneSpans:
    """Parts of a program that would run alone."""
    work = {timed.at: timed.leaf.effort for timed in emitter.timed if timed.leaf is not None}
    return LoneSpans(emitter.assembler.finish(), emitter.loops, emitter.wholes, work, threads)


def leaves(emitter: Emitter, *cycles: float) -> None:
    """A leaf after the other."""
    emitter.phases(tuple((Leaf(f"leaf of {n}", 1, 5040, (), cycles=n),) for n in cycles))


@pytest.mark.parametrize(
    ("cycles", "threads", "alone"),
    [
        ((500.0,), 2, True),
        ((500.0, 500.0, 500.0), 2, True),
        ((5_000.0,), 2, False),
        ((2_500.0, 100.0), 2, True),  # sharing saves 1,250, meeting takes more
        ((2_500.0, 2_500.0, 2_500.0, 2_500.0), 2, True),
        ((9_000.0, 100.0, 9_000.0), 2, False),
        ((5_000.0,), 16, False),
        ((float("inf"),), 2, False),
    ],
)
def test_loop__of_leaves__runs_alone_if_meetings_take_longer(
    cycles: tuple[float, ...], threads: int, alone: bool
) -> None:
    emitter = Emitter()
    with emitter.repeat(1000):
        leaves(emitter, *cycles)
        emitter.barrier()
    assert bool(chosen(emitter_of_program(emitter), threads).loops) == alone


def emitter_of_program(emitter: Emitter) -> Emitter:
    """The code so far as one program."""
    emitter.assembler.emit(Opcode.HALT)
    emitter.wholes.append(CodeSpan(0, emitter.assembler.here))
    return emitter


def test_loop__around_a_short_one_and_long_leaves__is_shared_but_for_the_short_one() -> None:
    emitter = Emitter()
    with emitter.repeat(10):
        leaves(emitter, 1e6)
        with emitter.repeat(100):
            leaves(emitter, 10.0)
            emitter.barrier()
        emitter.barrier()
    (inner,) = chosen(emitter_of_program(emitter)).loops
    assert inner == emitter.loops[0]


def test_loop__around_a_shared_loop_of_unknown_length__is_shared() -> None:
    emitter = Emitter()
    with emitter.repeat(10):
        for _ in range(5):
            leaves(emitter, 2_100.0)
        with emitter.span(None):
            leaves(emitter, 10_000.0)
            emitter.barrier()
        emitter.barrier()
    lone = chosen(emitter_of_program(emitter))
    assert lone.loops == []
    assert lone.programs == {}


@pytest.mark.parametrize(("trips", "brief"), [(3, True), (10_000_000, False), (None, False)])
def test_program__of_short_leaves__runs_alone_and_on_the_caller_s_thread_if_it_is_certain_to_be_brief(
    trips: int | None, brief: bool
) -> None:
    emitter = Emitter()
    with emitter.span(trips):
        leaves(emitter, 10.0)
        emitter.barrier()
    assert chosen(emitter_of_program(emitter)).programs == {0: brief}


def test_program__with_a_shared_loop_of_unknown_length__wakes_all_threads() -> None:
    emitter = Emitter()
    with emitter.span(None):
        leaves(emitter, 10_000.0)
        emitter.barrier()
    assert chosen(emitter_of_program(emitter)).programs == {}


@pytest.mark.parametrize("rows", [1_000, 30_000])
def test_streams__of_programs_alone_and_together__go_on_where_they_were(rows: int) -> None:
    graph = Graph("bow-2000")
    x = graph.variable("i32", (rows,), "x").map(0)
    large = graph.variable("i32", (60_000,), "large").map(0)
    graph.expose(x, "x")
    read = Copy(graph.host_stream_in("rows", "i32", rows), x)
    mixed = Sequence(Repeat(40, Copy(concat([large[1:], large[:1]]), large)), read)
    engine = Engine(graph, [read, mixed], threads=3)
    data = np.arange(7 * rows, dtype=np.int32).reshape(7, rows)
    engine.connect("rows", data)
    for number, program in enumerate([0, 1, 0, 0, 1, 1, 0]):
        engine.run(program)
        assert (engine["x"] == data[number]).all()
    engine.close()


def test_program__of_vertices__is_not_certain_to_be_brief() -> None:
    emitter = Emitter()
    emitter.phase((Leaf("vertices", 1, 4, (), work_bytes=16, vertices=4),))
    assert chosen(emitter_of_program(emitter)).programs == {0: False}
