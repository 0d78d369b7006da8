"""Runs native plans in tests: every leaf over a chosen split of its units, on one or several Python threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

import numpy as np
from random_programs import Maker

from abele.kernels import BoundKernel, Buffer, HostKernel, NativePlan, bind, plan_native
from abele.kernels.nest.binding import bound_calls
from abele.kernels.plan.passes import Form, PlannerPass, run_passes
from abele.kernels.plan.reference import evaluate_form
from abele.kernels.target import HostTarget
from abele.llvm.flush import denormals_flushed
from abele.llvm.host import is_elsewhere
from support import emulator

_LEAF = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def form_after(name: str, buffers: Sequence[Buffer], calls: Sequence[BoundKernel], target: HostTarget | None = None):
    """Form of ``calls`` after the planner's pass ``name``; for this CPU unless there is a ``target``."""
    return run_passes(bound_calls(buffers, calls, target), after=name, check=True)


def aligned(size: int) -> np.ndarray:
    block = np.full(size + 64, 0xCD, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]


def run_plan(plan: NativePlan, storage: dict[int, np.ndarray], threads: int = 1) -> None:
    """Run ``plan`` once; thread t takes the t-th share of every leaf's units. Those for other CPUs are emulated."""
    if is_elsewhere():
        emulator.run_plan(plan, storage, threads)
        return
    arena = aligned(plan.arena_bytes)
    scratch = [aligned(plan.scratch_bytes) for _ in range(threads)]
    for leaf in plan.leaves:

        def share(thread: int, leaf=leaf) -> None:
            places = {"arena": arena.ctypes.data, "scratch": scratch[thread].ctypes.data, "address": 0}
            values = [
                storage[a.value].ctypes.data if a.kind == "buffer" else places[a.kind] + a.value for a in leaf.args
            ]
            low, high = leaf.units * thread // threads, leaf.units * (thread + 1) // threads
            # A name of its own keeps the array while the leaf runs, which reads it all along.
            pointers = np.array([*values, 0], np.int64)
            with denormals_flushed():
                _LEAF(leaf.address)(low, high, pointers.ctypes.data)

        workers = [threading.Thread(target=share, args=(t,)) for t in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def run_kernel(kernel: HostKernel, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
    """Outputs of ``kernel`` run natively on whole buffers; further arrays are what outputs hold before."""
    count = kernel.num_inputs + kernel.num_outputs
    buffers = [Buffer(n, kernel.shapes[n], kernel.types[n], True, f"b{n}") for n in range(count)]
    storage = {n: np.zeros(kernel.shapes[n], kernel.types[n].np) for n in range(count)}
    for number, array in enumerate(inputs):
        storage[number][...] = array
    run_plan(plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "test")]), storage, threads)
    return [storage[n] for n in kernel.outputs]


def forms(maker: Maker, target: HostTarget) -> dict[str, Form]:
    """Every form of a program for ``target``, by the pass that made it."""
    found: dict[str, Form] = {}

    def keep(step: PlannerPass, form: Form) -> None:
        found[step.name] = form

    calls = bound_calls([t.buffer for t in maker.tensors], maker.calls, target)
    run_passes(calls, after="choose_schedules", check=True, watch=keep)
    return {"given": calls, **found}


def check_every_form(maker: Maker, lanes: int, tolerance: float, **target: int) -> None:
    """Every form of a program, evaluated, gives what its kernels give one by one."""
    for name, form in forms(maker, HostTarget(lanes, 16, **target)).items():
        held = evaluate_form(form, maker.storage())
        for tensor in maker.tensors:
            if tensor.buffer.pinned and tensor.value is not None:
                found = tensor.read(held[tensor.buffer.id])
                message = f"{tensor.buffer.name} after {name}"
                np.testing.assert_allclose(found, tensor.value, rtol=tolerance, atol=tolerance, err_msg=message)
