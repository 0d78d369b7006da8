"""Runs a native plan on several threads without Python between leaves: a stand-in for the runtime."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from abele.kernels import NativePlan
from abele.llvm import ir as ll
from abele.llvm.emit import I64, POINTER, VOID
from abele.llvm.flush import emit_enter, emit_leave
from abele.llvm.jit import compile_ir

_LEAF = ll.FunctionType(VOID, [I64, I64, POINTER])


def aligned(size: int) -> np.ndarray:
    block = np.zeros(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]


def _module() -> ll.Module:
    """``run(table, leaves, rounds, thread, threads, barrier)``: each leaf is five words: address, units, args."""
    module = ll.Module("runner")
    run = ll.Function(module, ll.FunctionType(VOID, [POINTER, I64, I64, I64, I64, POINTER]), "run")
    table, leaves, rounds, thread, threads, barrier = run.args
    b = ll.IRBuilder(run.append_basic_block())
    mode = emit_enter(b)
    wait = b.alloca(I64)
    b.store(ll.Constant(I64, 0), wait)

    def loop(count: Any) -> tuple[Any, Any, Any]:
        head, body, done = (run.append_basic_block() for _ in range(3))
        before = b.block
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(I64)
        index.add_incoming(ll.Constant(I64, 0), before)
        b.cbranch(b.icmp_signed("<", index, count), body, done)
        b.position_at_end(body)
        return index, head, done

    def close(index: Any, head: Any, done: Any) -> None:
        index.add_incoming(b.add(index, ll.Constant(I64, 1)), b.block)
        b.branch(head)
        b.position_at_end(done)

    outer = loop(rounds)
    inner = loop(leaves)
    words = [
        b.load(
            b.gep(table, [b.add(b.mul(inner[0], ll.Constant(I64, 3)), ll.Constant(I64, n))], source_etype=I64), typ=I64
        )
        for n in range(3)
    ]
    low = b.udiv(b.mul(words[1], thread), threads)
    high = b.udiv(b.mul(words[1], b.add(thread, ll.Constant(I64, 1))), threads)
    with b.if_then(b.icmp_signed("<", low, high)):
        b.call(b.inttoptr(words[0], _LEAF.as_pointer()), [low, high, b.inttoptr(words[2], POINTER)])
    target = b.add(b.load(wait, typ=I64), threads)
    b.store(target, wait)
    b.atomic_rmw("add", barrier, ll.Constant(I64, 1), "seq_cst")
    spin, on = run.append_basic_block(), run.append_basic_block()
    b.branch(spin)
    b.position_at_end(spin)
    seen = b.load_atomic(barrier, "acquire", 8, typ=I64)
    b.cbranch(b.icmp_signed("<", seen, target), spin, on)
    b.position_at_end(on)
    close(*inner)
    close(*outer)
    emit_leave(b, mode)
    b.ret_void()
    return module


class Runner:
    """A plan bound to storage, ready to run.

    Args:
        plan: Plan to run.
        storage: Array of every pinned buffer, by id.
        threads: Number of threads that share the units.
    """

    def __init__(self, plan: NativePlan, storage: dict[int, np.ndarray], threads: int) -> None:
        self.plan, self.threads = plan, threads
        self.arena = aligned(plan.arena_bytes)
        self.scratch = [aligned(plan.scratch_bytes) for _ in range(threads)]
        self.storage = storage
        self.native = compile_ir(_module())
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)
        self.function = kind(self.native.address("run"))
        self.args: list[np.ndarray] = []
        self.tables = [self._table(t) for t in range(threads)]
        self.barrier = np.zeros(16, np.int64)

    def _table(self, thread: int) -> np.ndarray:
        rows = []
        for leaf in self.plan.leaves:
            places = {"arena": self.arena.ctypes.data, "scratch": self.scratch[thread].ctypes.data, "address": 0}
            values = [
                self.storage[a.value].ctypes.data if a.kind == "buffer" else places[a.kind] + a.value for a in leaf.args
            ]
            self.args.append(np.array([*values, 0], np.int64))
            rows.append([leaf.address, leaf.units, self.args[-1].ctypes.data])
        return np.array(rows, np.int64)

    def run(self, rounds: int = 1) -> None:
        """Run the plan ``rounds`` times."""
        self.barrier[:] = 0
        others = [threading.Thread(target=self._share, args=(t, rounds)) for t in range(1, self.threads)]
        for thread in others:
            thread.start()
        self._share(0, rounds)
        for thread in others:
            thread.join()

    def _share(self, thread: int, rounds: int) -> None:
        table = self.tables[thread]
        self.function(table.ctypes.data, len(table), rounds, thread, self.threads, self.barrier.ctypes.data)
