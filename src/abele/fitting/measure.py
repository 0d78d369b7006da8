"""Measuring: what a segment costs, read off the program that the compiler makes of it.

A segment is trained over a prime number of micro-batches, so that steps which run a multiple of that often are those
of one micro-batch, and the others belong to the update. Streams are left out: what other segments send goes over links,
and how long the host takes depends on how many replicas it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from abele.compiler import Executable, compile_program
from abele.distribution import NetworkProgram, lower_network
from abele.distribution.tensor_parallel import computed_together
from abele.fitting.chain import bytes_of, narrow_bytes_of
from abele.fitting.segment import CROSSING, SegmentNetwork
from abele.graph import Graph
from abele.graph.replica_copies import CrossReplicaCopy, CrossReplicaExchange
from abele.graph.variable import Variable
from abele.llvm.kept import kept, stored
from abele.machine import System
from abele.network import Network, NetworkOp, OutputMode, Schedule, Stage, Value, inference_pipeline, training_pipeline
from abele.network.invariant_values import fixed_values
from abele.network.ir import SAME_ELEMENTS
from abele.poplibs.gcl import CommGroup
from abele.session import Settings
from abele.session.store import content_key

Bytes = npt.NDArray[np.int64]
Progress = Callable[[str, float], None]
ROUNDS = 10_007
"""Micro-batches of the measured program: a prime, so that no loop of a model or an update runs a multiple of it."""
_CODE = ("vertex_state", "control_code", "exchange_code")


@dataclass(frozen=True, eq=False, kw_only=True)
class SegmentCosts:
    """Costs of a segment on one IPU; arrays have an entry for each tile, int64[tiles], in bytes.

    Attributes:
        forward_cycles: The forward pass of one micro-batch.
        backward_cycles: Its backward pass with the sums of gradients; 0 for inference.
        update_cycles: One update of its parameters, once gradients are summed over replicas.
        resident: Weights, and whatever else is always live but the optimiser's state.
        accumulators: Sums of gradients.
        state: The optimiser's state.
        code: Vertex state and code of exchanges and control.
        code_again: The same of a further equal segment, whose exchanges have the program of the first.
        forward_again: The part of that which belongs to the forward pass: what a backward stage has besides that
            computes it again.
        vertex_code: Codelets.
        overhead: Stacks and stream buffers.
        peak: Temporaries of a micro-batch at their peak, without accumulators.
        saved_bytes: Bytes that the forward pass leaves for the backward pass, over all tiles.
        narrow_saved_bytes: The same with floats of 8 bits.
        live_bytes: The same where nothing is copied, so that a value and its other shapes are one tensor.
        inputs: Bytes of each input that the host sends for a micro-batch.
        outputs: Bytes of each result that the host gets of a micro-batch; of training only the last one's, so none.
        gradient_bytes: Gradients that are summed over replicas, over all tiles.
        state_bytes: The optimiser's state over all tiles.
        state_units: Bytes of it that go to streaming memory and back together: of one parameter and type.
        read_again: Numbers of the parameters that the backward pass reads, in the order in which the forward pass does.
        forward_apart: Cycles of the forward pass before other replicas are first met, and after they last are; None
            where none are.
        backward_apart: The same of the backward pass.
    """

    forward_cycles: int
    backward_cycles: int
    update_cycles: int
    resident: Bytes
    accumulators: Bytes
    state: Bytes
    code: Bytes
    code_again: Bytes
    forward_again: Bytes
    vertex_code: Bytes
    overhead: Bytes
    peak: Bytes
    saved_bytes: int
    narrow_saved_bytes: int
    live_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    gradient_bytes: int
    state_bytes: int
    state_units: tuple[int, ...]
    read_again: tuple[int, ...] = ()
    forward_apart: tuple[int, int] | None = None
    backward_apart: tuple[int, int] | None = None

    @property
    def input_bytes(self) -> int:
        """Bytes that the host sends for a micro-batch."""
        return sum(self.inputs)

    @property
    def largest_state_bytes(self) -> int:
        """The most of the optimiser's state that is on its way at once."""
        return max(self.state_units, default=0)


def measured(
    segment: SegmentNetwork, settings: Settings, system: System, ipus: int = 1, *, progress: Progress | None = None
) -> SegmentCosts:
    """Costs of a segment: it is compiled, unless that was done before.

    Args:
        segment: The segment.
        settings: Planning of products; its machine is not looked at.
        system: The machine, of which one IPU of each replica of a group is used.
        ipus: IPUs of a replica, of which the first has the segment: others lie between those of the group.
        progress: Called with the stage of compiling, and the part of it that is done.

    Raises:
        AbeleError: As of compiling a network: an op without lowering or derivative.
    """
    target = _target(segment, settings, system, ipus)
    return kept(_key(segment, target), SegmentCosts, lambda: _measured(segment, target, progress or _silent))


def known(segment: SegmentNetwork, settings: Settings, system: System, ipus: int = 1) -> SegmentCosts | None:
    """Costs of a segment that was compiled before; None where it was not."""
    return stored(_key(segment, _target(segment, settings, system, ipus)), SegmentCosts)


def _target(segment: SegmentNetwork, settings: Settings, system: System, ipus: int) -> Settings:
    used = system.with_ipus(ipus * segment.group if segment.group > 1 else 1)
    return replace(settings, system=used, name="segment", shared_functions=False)


def _key(segment: SegmentNetwork, target: Settings) -> str:
    groups = None if segment.training is None else segment.groups
    of = content_key(segment.training or segment.forward, _schedule(segment), groups, target)
    return f"{of} {segment.num_results} {target.system!r}"


def _silent(stage: str, part: float) -> None:
    """Progress that nobody watches."""


def _schedule(segment: SegmentNetwork) -> Schedule:
    if segment.training is None:
        usual = Schedule(device_iterations=ROUNDS, replicas=segment.group)
    else:
        usual = Schedule(accumulation=ROUNDS, replicas=segment.group, outputs=OutputMode.FINAL)
    if segment.group == 1:
        return usual
    return computed_together(usual, CommGroup.consecutive(segment.group), dict(segment.splits))


def _measured(segment: SegmentNetwork, settings: Settings, progress: Progress) -> SegmentCosts:
    schedule, groups = _schedule(segment), segment.groups
    if segment.training is None:
        net = inference_pipeline().run(segment.forward)
    else:
        above = settings.rebuilt_above(settings.target())
        passes = training_pipeline(schedule, groups, recompute=settings.recompute, rebuilt_above=above)
        net = segment.pipeline(passes).run(segment.training)
    progress("lower to libraries", 0.0)
    assert isinstance(settings.system, System)
    graph = Graph(settings.system, replicas=segment.group)
    marked = replace(net, ops=tuple(map(_marked, net.ops)))
    program = lower_network(marked, graph, schedule, groups, planning=settings.planning, modes=settings.modes)
    run = compile_program(graph, program.program, allow_out_of_memory=True, progress=progress)
    memory, none = bytes_by_category(run), np.zeros(graph.system.ipu.num_tiles, np.int64)
    forward, backward, update = _cycles(run)
    apart = _apart(run)
    entering = [v for v in segment.forward.inputs if not v.name.startswith(CROSSING)]
    leaving = segment.forward.outputs[: segment.num_results] if segment.training is None else ()
    state, saved = _state(program), _saved(net)
    held = bytes_of_variables(run, (v for of in state.values() for v in of))
    sums = bytes_of_variables(run, (v for v in graph.variables if v.name.endswith("/accumulator")))
    return SegmentCosts(
        forward_cycles=forward,
        backward_cycles=backward,
        update_cycles=update,
        resident=memory["variables"] + memory["gaps"] - held,
        accumulators=sums,
        state=held,
        code=sum((memory[name] for name in _CODE), none),
        code_again=memory["vertex_state"] + memory["control_code"] + exchange_registers(run, range(len(run.plan))),
        forward_again=_forward_again(run),
        vertex_code=memory["vertex_code"],
        overhead=memory["stacks"] + memory["stream_buffers"],
        peak=np.maximum(memory["temporaries"] - sums, 0),
        saved_bytes=bytes_of(saved),
        narrow_saved_bytes=narrow_bytes_of(saved),
        live_bytes=bytes_of(_without_views(net, saved)),
        inputs=tuple(v.size * v.dtype.bytes for v in entering),
        outputs=tuple(v.size * v.dtype.bytes for v in leaving),
        gradient_bytes=sum(v.size * v.dtype.bytes for v in net.gradients.values()),
        state_bytes=int(held.sum()),
        state_units=_units(state),
        read_again=_read_again(net, segment),
        forward_apart=apart[0],
        backward_apart=apart[1],
    )


def _marked(op: NetworkOp) -> NetworkOp:
    """Copy of an op whose name begins with its pass."""
    path = "/".join(filter(None, (op.stage.name.lower(), op.debug.path)))
    return replace(op, debug=replace(op.debug, path=path, name=op.debug.name or op.kind))


def _cycles(run: Executable) -> tuple[int, int, int]:
    """Cycles of a micro-batch forward and backward, and of the update; without streams."""
    total, batch, forward = _by_step(run)
    own = np.array([kind != "stream" for kind in run.report.steps["kind"]], dtype=bool)
    there, back = total[batch & forward].sum(), total[batch & ~forward].sum()
    return int(there) // ROUNDS, int(back) // ROUNDS, int(total[own & ~batch].sum())


def _by_step(run: Executable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Cycles of each step in all, and whether it is one of each micro-batch, and one of the forward pass."""
    steps = run.report.steps
    cycles, executions = np.asarray(steps["cycles"]), np.asarray(steps["executions"])
    own = np.array([kind != "stream" for kind in steps["kind"]], dtype=bool)
    return cycles * executions, own & (executions % ROUNDS == 0), _is_forward(run)


def _is_forward(run: Executable) -> npt.NDArray[np.bool_]:
    """True for the steps of the forward pass, whose names :func:`_marked` made."""
    passes = [name.partition("/")[0] for name in run.report.steps["name"]]
    found = np.array([name == Stage.FORWARD.name.lower() for name in passes], dtype=bool)
    if not meets_replicas(run).any():
        return found
    # Copies between replicas and around them have other names, and belong to the step behind them.
    marked = np.array([name.upper() in Stage.__members__ for name in passes], dtype=bool)
    behind = np.where(marked, np.arange(len(found)), len(found) - 1)
    return found[np.minimum.accumulate(behind[::-1])[::-1]]


def meets_replicas(run: Executable) -> npt.NDArray[np.bool_]:
    """True for the steps that copy between replicas."""
    meets = np.array([isinstance(s.node, CrossReplicaCopy | CrossReplicaExchange) for s in run.plan], dtype=bool)
    superstep = np.asarray(run.report.steps["superstep"])
    return np.asarray((superstep >= 0) & meets[superstep], dtype=bool)


def _apart(run: Executable) -> list[tuple[int, int] | None]:
    """Cycles of a micro-batch, forward and backward, before other replicas are first met and after they last are."""
    total, batch, forward = _by_step(run)
    meets, found = meets_replicas(run), list[tuple[int, int] | None]()
    for own in (batch & forward, batch & ~forward):
        at = np.flatnonzero(meets & own)
        ends = (own[: at[0]] * total[: at[0]], own[at[-1] + 1 :] * total[at[-1] + 1 :]) if len(at) else ()
        found.append((int(ends[0].sum()) // ROUNDS, int(ends[1].sum()) // ROUNDS) if ends else None)
    return found


def _forward_again(run: Executable) -> Bytes:
    """Vertex state, control code and registers that the forward pass takes on each tile where it is there again."""
    report, forward = run.report, _is_forward(run)
    ops, supersteps = (np.unique(np.asarray(report.steps[name])[forward]) for name in ("op", "superstep"))
    state, control = (report.code_by_tile(name, op=ops) for name in ("vertex_state", "control_code"))
    return (state + control)[: run.system.ipu.num_tiles] + exchange_registers(run, supersteps)


def bytes_by_category(run: Executable) -> dict[str, Bytes]:
    """Bytes of each tile by category."""
    memory, tiles = run.report.memory, run.system.ipu.num_tiles
    return {name: held[:tiles] for name, held in zip(memory.categories, memory.bytes, strict=True)}


def exchange_registers(run: Executable, supersteps: Iterable[int]) -> Bytes:
    """Bytes on each tile of the registers that tell shared exchange programs where their variables begin.

    A tile whose program is shorter has another one instead (:class:`~abele.compiler.footprint.ExchangeProgram`).
    """
    found, each = np.zeros(run.system.num_tiles, np.int64), run.system.ipu.exchange.base_code_bytes
    for superstep in (run.plan[number] for number in supersteps):
        if superstep.exchange_code is not None:
            code = superstep.exchange_code.dense()
            found += np.minimum(code, (len(superstep.access.touched) + 1) * each)
    return found[: run.system.ipu.num_tiles]


def _state(program: NetworkProgram) -> Mapping[str, list[Variable]]:
    """Variables of the optimiser's state, by parameter."""
    found: dict[str, list[Variable]] = {}
    for group in program.groups:
        for name, tensor in group.state.items():
            found.setdefault(name.rpartition("/")[0], []).extend(tensor.variables)
    return found


def _units(state: Mapping[str, list[Variable]]) -> tuple[int, ...]:
    """Bytes of the state of each parameter, type by type."""
    found: dict[tuple[str, str], int] = {}
    for name, variables in state.items():
        for variable in variables:
            key = name, variable.dtype.name
            found[key] = found.get(key, 0) + variable.size * variable.dtype.bytes
    return tuple(found.values())


def bytes_of_variables(run: Executable, variables: Iterable[Variable]) -> Bytes:
    """Bytes of variables on each tile."""
    shares, found = run.memory.shares, np.zeros(run.system.num_tiles, np.int64)
    for variable in variables:
        rows = shares.of_variable(variable.id)
        found[shares.tile[rows]] += shares.padded_bytes[rows]
    return found[: run.system.ipu.num_tiles]


def _saved(net: Network) -> list[Value]:
    """Values that the forward pass makes or is sent, and the backward pass reads."""
    fixed = fixed_values(net)
    crossing = {v for v in net.inputs if not v.name.startswith(f"{CROSSING}gradient")}
    made = {v for op in net.ops if op.stage == Stage.FORWARD for v in op.outputs if v not in fixed} | crossing
    read: dict[Value, None] = {}
    for op in net.ops:
        if op.stage == Stage.BACKWARD:
            read |= dict.fromkeys(v for v in op.inputs if v in made)
    return list(read)


def _read_again(net: Network, segment: SegmentNetwork) -> tuple[int, ...]:
    """Numbers of the segment's parameters that its backward pass reads."""
    read = {v.name for op in net.ops if op.stage == Stage.BACKWARD for v in op.inputs}
    own = (p for p in segment.forward.parameters if not p.name.startswith(CROSSING))
    return tuple(number for number, parameter in enumerate(own) if parameter.name in read)


def _without_views(net: Network, values: Iterable[Value]) -> Iterable[Value]:
    """The values behind some that may be views, each once."""
    source = {op.output: op.inputs[0] for op in net.ops if op.kind in SAME_ELEMENTS}

    def seen(value: Value) -> Value:
        while value in source:
            value = source[value]
        return value

    return dict.fromkeys(map(seen, values))
