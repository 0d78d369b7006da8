"""Stopping a run: within a second, and with state as of a whole step."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from abele.graph import Copy, Graph, If, Program, Repeat, RepeatWhileTrue, Sequence, concat
from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.numerics import f32
from abele.runtime import Engine
from abele.runtime.lowering.stops import step_scopes
from abele.runtime.memory.effects import EffectsOf

pytestmark = pytest.mark.usefixtures("interrupts")

RING = 1009
ENDLESS = 1 << 40


class Rings:
    """Rings that are turned by one element; how far a ring was turned is its head."""

    def __init__(self) -> None:
        self.graph = Graph("bow-2000")

    def ring(self, name: str):
        return self.graph.variable("i32", RING, name, initial=np.arange(RING)).map(0)

    def scratch(self, size: int = 1 << 18):
        big = self.graph.variable("f32", size, "big").map_linear()
        other = self.graph.variable("f32", size, "other").map_linear()
        return Sequence(Copy(big, other), Copy(other, big))


def turn(ring) -> Copy:
    return Copy(concat([ring[1:], ring[:1]]), ring)


def _interrupt(delay: float) -> threading.Timer:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(delay, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("threads", [1, 2])
def test_run__interrupted__leaves_state_as_of_a_whole_step(threads):
    rings = Rings()
    first, second = rings.ring("first"), rings.ring("second")
    work = rings.scratch()
    step = Sequence(work, turn(first), work, turn(second), work)
    with Engine(rings.graph, [Repeat(ENDLESS, step), turn(first)], mode="tiles", threads=threads) as engine:
        for _ in range(3):
            timer = _interrupt(0.15)
            start = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                engine.run()
            assert time.monotonic() - start < 1.15
            timer.join()
            assert engine["first"][0] == engine["second"][0]
        before = engine["first"][0]
        assert engine.run(1)
        assert engine["first"][0] == (before + 1) % RING


def test_stop__from_another_thread__ends_the_run_quietly():
    rings = Rings()
    first, second = rings.ring("first"), rings.ring("second")
    program = Repeat(ENDLESS, Sequence(turn(first), turn(second)))
    with Engine(rings.graph, program, mode="tiles", threads=2) as engine:
        timer = threading.Timer(0.1, engine.stop)
        timer.start()
        assert engine.run() is False
        timer.join()
        assert engine["first"][0] == engine["second"][0]


def test_stop__in_an_endless_while_loop__is_heard():
    rings = Rings()
    flag = rings.graph.variable("bool", 1, "flag", initial=[True]).map(0)
    loop = RepeatWhileTrue(Sequence(), flag, Sequence())
    with Engine(rings.graph, loop, mode="tiles", threads=2) as engine:
        timer = threading.Timer(0.1, engine.stop)
        timer.start()
        assert engine.run() is False


def _steps(program: Program) -> set[Program]:
    return set(step_scopes(program, EffectsOf()))


def test_step__loop_of_steps_in_a_loop_of_epochs__is_the_inner_one():
    rings = Rings()
    weights, epoch = rings.ring("weights"), rings.ring("epoch")
    inner = Repeat(10, turn(weights))
    outer = Repeat(3, Sequence(inner, turn(epoch)))
    assert inner in _steps(outer)


def test_step__accumulation_inside_a_step__is_no_step_of_its_own():
    rings = Rings()
    weights, sums, statistics = rings.ring("weights"), rings.ring("sums"), rings.ring("statistics")
    zero = rings.graph.constant("i32", RING, 0, "zero")
    micro = Sequence(Copy(weights, sums), turn(statistics))
    accumulate = Repeat(4, micro)
    step = Repeat(10, Sequence(Copy(zero, sums), accumulate, Copy(sums, weights)))
    assert accumulate not in _steps(step)
    assert step in _steps(step)


def test_step__of_a_program_with_a_loop_and_an_epilogue__is_a_round_of_the_loop():
    rings = Rings()
    weights, runs = rings.ring("weights"), rings.ring("runs")
    loop = Repeat(10, If(weights[0], turn(weights)))
    assert loop in _steps(Sequence(loop, turn(runs)))


def test_run__interrupted_among_fused_kernels__leaves_state_as_of_a_whole_step():
    size = 192
    graph = Graph("bow-2000")
    first, second, x, y = (
        graph.variable("f32", (size, size), n, initial=0.0).map_linear() for n in ("a", "b", "x", "y")
    )
    product = nest(
        {"i": size, "j": size, "k": size}, store(2, ("i", "j"), load(0, "i", "k") * load(1, "k", "j"), "add")
    )
    count = nest({"i": size, "j": size}, store(1, ("i", "j"), load(0, "i", "j") + 1.0))
    multiply = HostKernel(((size, size),) * 3, (f32,) * 3, 2, 1, (product,))
    raise_by_one = HostKernel(((size, size),) * 2, (f32,) * 2, 1, 1, (count,))
    step = Sequence()
    for inputs, output, kernel in (
        ((x, x), y, multiply),
        ((first,), first, raise_by_one),
        ((y, y), x, multiply),
        ((second,), second, raise_by_one),
        ((x, y), y, multiply),
    ):
        with graph.library_call(step, "call", inputs=inputs, outputs=(output,), kernel=kernel):
            pass
    with Engine(graph, Repeat(ENDLESS, step), mode="native", threads=2) as engine:
        for delay in (0.05, 0.06, 0.07, 0.08, 0.09):
            timer = _interrupt(delay)
            with pytest.raises(KeyboardInterrupt):
                engine.run()
            timer.join()
            assert (engine["a"] == engine["b"]).all()
        assert engine["a"][0, 0] > 0
