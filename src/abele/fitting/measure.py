"""Measuring: what a segment costs, read off the program that the compiler makes of it.

A segment is trained over a prime number of micro-batches, so that steps which run a multiple of that often are those
of one micro-batch, and the others belong to the update. Streams are left out: what other segments send goes over links,
and how long the host takes depends on how many replicas it serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.compiler import Executable, compile_program
from abele.fitting.segment import CROSSING, SegmentNetwork
from abele.graph import Graph
from abele.graph.variable import Variable
from abele.machine import System
from abele.parallel import (
    Network,
    NetworkProgram,
    OutputMode,
    Schedule,
    Stage,
    Value,
    inference_pipeline,
    lower_network,
    training_pipeline,
)
from abele.parallel.fixed import fixed_values
from abele.session import Settings

Bytes = npt.NDArray[np.int64]
ROUNDS = 10_007
"""Micro-batches of the measured program: a prime, so that no loop of a model or an update runs a multiple of it."""
_CODE = ("vertex_state", "control_code", "exchange_code")


@dataclass(frozen=True, eq=False, kw_only=True)
class SegmentCosts:
    """What a segment costs on one IPU; arrays have an entry for each tile, int64[tiles], in bytes.

    Attributes:
        forward_cycles: The forward pass of one micro-batch.
        backward_cycles: Its backward pass with the sums of gradients; 0 for inference.
        update_cycles: One update of its parameters, once gradients are summed over replicas.
        resident: Weights, and whatever else is always live but the optimiser's state.
        accumulators: Sums of gradients.
        state: The optimiser's state.
        code: Vertex state and code of exchanges and control.
        vertex_code: Codelets.
        overhead: Stacks and stream buffers.
        forward_peak: Temporaries of the forward pass at their peak.
        peak: Temporaries of forward and backward pass at their peak, without accumulators.
        saved_bytes: What the forward pass leaves for the backward pass, over all tiles.
        inputs: Bytes of each input that the host sends for a micro-batch.
        outputs: Bytes of each result that the host gets of a micro-batch; of training only the last one's, so none.
        gradient_bytes: Gradients that are summed over replicas, over all tiles.
        state_bytes: The optimiser's state over all tiles.
        largest_state_bytes: The most of it that belongs to one parameter.
    """

    forward_cycles: int
    backward_cycles: int
    update_cycles: int
    resident: Bytes
    accumulators: Bytes
    state: Bytes
    code: Bytes
    vertex_code: Bytes
    overhead: Bytes
    forward_peak: Bytes
    peak: Bytes
    saved_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    gradient_bytes: int
    state_bytes: int
    largest_state_bytes: int

    @property
    def input_bytes(self) -> int:
        """Bytes that the host sends for a micro-batch."""
        return sum(self.inputs)


def measured(segment: SegmentNetwork, settings: Settings, system: System) -> SegmentCosts:
    """Compile a segment and read its costs.

    Args:
        segment: The segment.
        settings: How products are planned; its machine is not looked at.
        system: The machine, of which one IPU is used.

    Raises:
        AbeleError: As of compiling a network: an op without lowering or derivative.
    """
    one = system.with_ipus(1)
    final = inference_pipeline().run(segment.forward)
    forward = lower_network(
        final, Graph(one), Schedule(device_iterations=ROUNDS), (), planning=settings.planning, modes=settings.modes
    )
    run_forward = compile_program(forward.graph, forward.program, allow_out_of_memory=True)
    forward_cycles, _ = _cycles(run_forward)
    entering = [v for v in segment.forward.inputs if not v.name.startswith(CROSSING)]
    inputs = tuple(v.size * v.dtype.bytes for v in entering)
    if segment.training is None:
        outputs = tuple(v.size * v.dtype.bytes for v in segment.forward.outputs[: segment.num_results])
        return _of_inference(run_forward, forward_cycles, inputs, outputs)
    schedule = Schedule(accumulation=ROUNDS, outputs=OutputMode.FINAL)
    passes = segment.pipeline(training_pipeline(schedule, segment.groups, recompute=settings.recompute))
    net = passes.run(segment.training)
    program = lower_network(net, Graph(one), schedule, segment.groups, planning=settings.planning, modes=settings.modes)
    run = compile_program(program.graph, program.program, allow_out_of_memory=True)
    both, update = _cycles(run)
    state = _state(program)
    accumulators = [v for v in program.graph.variables if v.name.endswith("/accumulator")]
    held, sums = _bytes_of(run, (v for of in state.values() for v in of)), _bytes_of(run, accumulators)
    memory = _categories(run)
    largest = max((sum(v.size * v.dtype.bytes for v in of) for of in state.values()), default=0)
    return SegmentCosts(
        forward_cycles=forward_cycles,
        backward_cycles=max(both - forward_cycles, 0),
        update_cycles=update,
        resident=memory["variables"] + memory["gaps"] - held,
        accumulators=sums,
        state=held,
        code=sum((memory[name] for name in _CODE), np.zeros_like(held)),
        vertex_code=memory["vertex_code"],
        overhead=memory["stacks"] + memory["stream_buffers"],
        forward_peak=_categories(run_forward)["temporaries"],
        peak=np.maximum(memory["temporaries"] - sums, 0),
        saved_bytes=_saved(net),
        inputs=inputs,
        outputs=(),
        gradient_bytes=sum(v.size * v.dtype.bytes for v in net.gradients.values()),
        state_bytes=int(held.sum()),
        largest_state_bytes=largest,
    )


def _of_inference(run: Executable, cycles: int, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> SegmentCosts:
    memory = _categories(run)
    none = np.zeros_like(memory["variables"])
    return SegmentCosts(
        forward_cycles=cycles,
        backward_cycles=0,
        update_cycles=0,
        resident=memory["variables"] + memory["gaps"],
        accumulators=none,
        state=none,
        code=sum((memory[name] for name in _CODE), none),
        vertex_code=memory["vertex_code"],
        overhead=memory["stacks"] + memory["stream_buffers"],
        forward_peak=memory["temporaries"],
        peak=memory["temporaries"],
        saved_bytes=0,
        inputs=inputs,
        outputs=outputs,
        gradient_bytes=0,
        state_bytes=0,
        largest_state_bytes=0,
    )


def _cycles(run: Executable) -> tuple[int, int]:
    """Cycles of a micro-batch, and of the update; without streams."""
    steps = run.report.steps
    cycles, executions = np.asarray(steps["cycles"]), np.asarray(steps["executions"])
    is_stream = np.array([kind == "stream" for kind in steps["kind"]], dtype=bool)
    of_batch, total = executions % ROUNDS == 0, cycles * executions
    batch, update = total[of_batch & ~is_stream].sum(), total[~of_batch & ~is_stream].sum()
    return int(batch) // ROUNDS, int(update)


def _categories(run: Executable) -> dict[str, Bytes]:
    memory = run.report.memory
    return dict(zip(memory.categories, memory.bytes, strict=True))


def _state(program: NetworkProgram) -> Mapping[str, list[Variable]]:
    """Variables of the optimiser's state, by parameter."""
    found: dict[str, list[Variable]] = {}
    for group in program.groups:
        for name, tensor in group.state.items():
            found.setdefault(name.rpartition("/")[0], []).extend(tensor.variables)
    return found


def _bytes_of(run: Executable, variables: Iterable[Variable]) -> Bytes:
    """Bytes of variables on each tile."""
    shares, found = run.memory.shares, np.zeros(run.system.num_tiles, np.int64)
    for variable in variables:
        rows = shares.of_variable(variable.id)
        found[shares.tile[rows]] += shares.padded_bytes[rows]
    return found


def _saved(net: Network) -> int:
    """Bytes that the forward pass makes or is sent, and the backward pass reads."""
    fixed = fixed_values(net)
    crossing = {v for v in net.inputs if not v.name.startswith(f"{CROSSING}gradient")}
    made = {v for op in net.ops if op.stage == Stage.FORWARD for v in op.outputs if v not in fixed} | crossing
    read: dict[Value, None] = {}
    for op in net.ops:
        if op.stage == Stage.BACKWARD:
            read |= dict.fromkeys(v for v in op.inputs if v in made)
    return sum(v.size * v.dtype.bytes for v in read)
