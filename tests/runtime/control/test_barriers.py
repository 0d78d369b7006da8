"""Barriers: they order what threads do, however many there are, and whoever waits leaves the cores to others."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from abele.graph import Copy, Graph, Repeat, Sequence, concat
from abele.llvm import host
from abele.llvm.jit import compile_ir
from abele.runtime import Engine
from abele.runtime.control import primitives
from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.virtual_machine import Callbacks, VirtualMachine, WorkingMemory

MEETINGS = 200


def meeting(threads: int, meetings: int = MEETINGS) -> VirtualMachine:
    """A machine whose threads do nothing but meet."""
    emitter = Emitter()
    with emitter.repeat(meetings):
        emitter.barrier()
    emitter.assembler.emit(Opcode.HALT)
    return VirtualMachine(emitter, Callbacks(), threads, WorkingMemory())


def run(machine: VirtualMachine) -> float:
    """Processor time of a run."""
    start = time.process_time()
    machine.start(0)
    machine.wait()
    return time.process_time() - start


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("cores", [1, 64])
def test_barriers__of_any_number_of_threads__order_copies(
    threads: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "num_threads", lambda: cores)
    graph = Graph("bow-2000")
    x = graph.variable("i32", (6000,), "x", initial=np.arange(6000)).map(0)
    y = graph.variable("i32", (6000,), "y").map(0)
    graph.expose(x, "x")
    # Every thread reads what another one wrote.
    rolled = concat([y[-17:], y[:-17]])
    engine = Engine(graph, Repeat(25, Sequence(Copy(x.reverse(), y), Copy(rolled, x))), threads=threads)
    engine.run()
    expected = np.arange(6000)
    for _ in range(25):
        expected = np.roll(expected[::-1], 17)
    assert (engine["x"] == expected).all()
    engine.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs futex")
def test_barriers__of_more_threads_than_cores__take_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "num_threads", lambda: 1)
    machine = meeting(8)
    run(machine)
    # A thread that spins 4,000 times before it leaves its core to another would take a second at least.
    assert min(run(machine) for _ in range(3)) < 0.3
    machine.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs futex")
def test_barriers__while_one_thread_is_late__take_no_time() -> None:
    callbacks, emitter = Callbacks(), Emitter()
    emitter.callback(callbacks.add(lambda: time.sleep(0.2)))
    emitter.assembler.emit(Opcode.HALT)
    machine = VirtualMachine(emitter, callbacks, 4, WorkingMemory())
    assert min(run(machine) for _ in range(2)) < 0.05
    machine.close()


def test_barriers__of_a_system_without_futex__sleep_for_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "num_threads", lambda: 1)
    machine = meeting(3, 20)
    monkeypatch.setattr("abele.runtime.control.primitives.sys.platform", "other")
    text = primitives.module_text()
    monkeypatch.undo()
    assert "@syscall" not in text
    native = compile_ir(text)
    monkeypatch.setattr(machine, "_run", type(machine._run)(native.address("plain_run")))
    run(machine)
    machine.close()
