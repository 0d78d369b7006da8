"""Compiling: from a network and a schedule to an executable whose ends have names."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich import progress as bars

from abele import terminal
from abele.compiler import Executable, compile_program
from abele.compiler.account import HANDLE_ROLES
from abele.compiler.compile import collector_paused
from abele.distribution import NetworkProgram, inference_program, lower_network, training_program
from abele.errors import OutOfMemoryError
from abele.expr import derivative
from abele.graph import Graph
from abele.job.progress import PROGRESS
from abele.llvm.cache import load_object, store_object
from abele.network import (
    CapturedUpdate,
    Group,
    Network,
    NetworkBuilder,
    PassDump,
    Schedule,
    Value,
    inference_pipeline,
    training_pipeline,
)
from abele.network.blocked_attention import MaskedAttention
from abele.network.ir import FrozenDict
from abele.network.ops import build
from abele.network.passes import Differentiate, Pipeline
from abele.network.passes.pipeline import in_blocks
from abele.network.score_blocks import RowBlocks
from abele.numerics import f32
from abele.own_code import own_code
from abele.report import Report
from abele.runtime.engine.options import read_options
from abele.runtime.engine.run_log import AutoReport
from abele.session.advice import Advice, Words
from abele.session.compiled import Compiled
from abele.session.fit_changes import Trials, search
from abele.session.host_interface import ROLES, Ends, expose
from abele.session.input_checks import InputChecks
from abele.session.remedies import Build, Halved, NetworkCase, Smaller, fitted, found_advice, layers_shared
from abele.session.settings import Settings
from abele.session.store import CompiledFolder

# The bar that shows how far compiling is.

Progress = Callable[[str, float], None]

STAGES = ("capture", "lower to libraries", "lower", "supersteps", "memory")
"""Stages of compiling in order; those of the compiler keep its names."""


@contextmanager
def compilation_progress(shown: bool, title: str = "Graph compilation") -> Iterator[Progress]:
    """A function that moves the bar: called with a stage and the part of it that is done.

    The bar goes to the standard error, and only where that is a terminal.
    """
    console = terminal.console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda stage, fraction: None
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.percentage:>3.0f} %"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=len(STAGES))

        def report(stage: str, fraction: float) -> None:
            done = STAGES.index(stage) if stage in STAGES else bar.tasks[0].completed
            bar.update(task, description=f"{title}: {stage}", completed=done + fraction)

        yield report
        bar.update(task, description=title, completed=len(STAGES))


# Choice of blocks for an attention: the candidates, compiled by themselves, and the fastest of them.
#
# Operands of an attention become inputs that are scaled first, so that they have the layout of computed values and not
# one that suits a candidate; known values stay known. In training, the gradients by all operands belong to the
# attention. Cycles are those of the report without streams, and are kept on disk by the hash of the network that was
# measured.

MOST_WAYS = 3
"""Ways that are compiled, those with the fewest scores."""
LEAST_HIDDEN = 32
"""Hidden scores for each tile below which no way is tried: a superstep's sync takes about as long as they do."""


@dataclass(frozen=True)
class ModelledBlocks:
    """Chooses the way whose program takes the fewest cycles on one IPU.

    Attributes:
        settings: The machine, and how products are planned.
        training: True if gradients are computed too.
    """

    settings: Settings
    training: bool

    def choose(self, attention: MaskedAttention, ways: Sequence[RowBlocks]) -> RowBlocks | None:
        """The fastest way, or None where the whole attention is."""
        shape = attention.scores.shape
        tiles = self.settings.target().ipu.num_tiles
        matrices = attention.scores.size // (shape[-2] * shape[-1])
        worth = [w for w in ways if matrices * (shape[-2] * shape[-1] - w.scores) >= LEAST_HIDDEN * tiles]
        if not worth:
            return None
        net = _alone(attention)
        best, least = None, self.cycles(net, None)
        for way in worth[:MOST_WAYS]:
            cycles = self.cycles(net, way)
            if cycles < least:
                best, least = way, cycles
        return best

    def cycles(self, net: Network, way: RowBlocks | None) -> int:
        """Cycles of an attention by itself, computed whole or in blocks."""
        target = replace(self.settings, progress=False, dump_passes=None, cache=None, name="attention")
        parts = (own_code(), repr(target.target(1)), repr(target.planning), repr(target.modes), repr(way), str(net))
        told = "\n".join((*parts, str(self.training)))
        key = f"{hashlib.sha256(told.encode()).hexdigest()}-attention"
        kept = load_object(key)
        if kept is not None and kept.isdigit():
            return int(kept)
        cycles = self._measured(net, way, target)
        store_object(key, str(cycles).encode())
        return cycles

    def _measured(self, net: Network, way: RowBlocks | None, settings: Settings) -> int:
        before = () if way is None else in_blocks(_Given(way))
        if self.training:
            names = tuple(p.name for p in net.parameters)
            net = _with_gradients(Pipeline((*before, Differentiate(names))).run(net))
            before = ()
        final = Pipeline((*before, *inference_pipeline().passes)).run(net)
        graph = Graph(settings.target(1))
        program = lower_network(final, graph, Schedule(), planning=settings.planning, modes=settings.modes)
        steps = compile_program(graph, program.program, allow_out_of_memory=True).report.steps
        own = np.array([kind != "stream" for kind in steps["kind"]], bool)
        return int((np.asarray(steps["cycles"]) * np.asarray(steps["executions"]))[own].sum())


@dataclass(frozen=True)
class _Given:
    """Always one way."""

    way: RowBlocks

    def choose(self, attention: MaskedAttention, ways: Sequence[RowBlocks]) -> RowBlocks | None:
        """The way that was given."""
        return self.way


def _alone(attention: MaskedAttention) -> Network:
    """An attention as a network: its operands are parameters, and the loss is its result times another one."""
    net = NetworkBuilder()
    values: dict[Value, Value] = {}

    def read(value: Value) -> None:
        known = attention.known.get(value)
        name = f"{len(net.parameters)}"
        values[value] = _scaled(net, value, name) if known is None else net.constant(known, value.dtype)

    for op in (*attention.ops.values(), attention.softmax):
        for value in op.inputs:
            if value not in values:
                read(value)
        values[op.output] = net.copy(op, values)[0]
    product = attention.product
    shares, last = product.inputs
    values[shares] = build.reshape(net, values[attention.softmax.output], shares.shape)
    if last not in values:
        read(last)
    (result,) = net.copy(product, values)
    net.output(result)
    weighted = derivative.arg(0) * derivative.arg(1)
    by = _scaled(net, result, f"{len(net.parameters)}")
    net.loss = build.reduce(net, build.map_(net, weighted, [result, by], f32), range(result.ndim))
    return net.finish()


def _scaled(net: NetworkBuilder, like: Value, name: str) -> Value:
    """Computed value: a parameter times a number."""
    return build.map_(net, derivative.arg(0) * 0.5, [net.parameter(like.shape, like.dtype, name)])


def _with_gradients(net: Network) -> Network:
    """A differentiated network whose gradients are results."""
    return replace(net, outputs=(*net.outputs, *net.gradients.values()), gradients=FrozenDict({}), loss=None)


@PROGRESS.during("compile")
def compile_network(
    net: Network,
    schedule: Schedule | None = None,
    *,
    groups: Sequence[Group] | None = None,
    settings: Settings | None = None,
    words: Words = Advice.lines,
    progress: Progress | None = None,
    smaller: Smaller | None = None,
    halved: Halved | None = None,
) -> Compiled:
    """Compile a network for one schedule; nothing runs and no data is needed.

    A program that does not fit on its tiles is compiled again with plans that need less memory; where that is not
    enough, the error says what would be, as far as it was found by trying (see :mod:`~abele.session.remedies`).

    Args:
        net: The network; to train it, one with a loss.
        schedule: Schedule of one run over its micro-batches; one micro-batch when left out.
        groups: Optimisers and the parameters that they update; None for inference.
        settings: The machine, and how programs run on the host.
        words: Puts advice about memory into the words of a front end.
        progress: Called with each stage and the part of it that is done; by default a bar, where settings ask for one.
        smaller: Makes the same network with smaller micro-batches, for advice about memory; None where none can.
        halved: Makes the same network with weights and inputs in half precision, for advice about memory.

    Raises:
        AbeleError: See :func:`abele.distribution.training_program` and :func:`abele.compiler.compile_program`.
    """
    start, schedule, settings = time.perf_counter(), schedule or Schedule(), settings or Settings()
    case = NetworkCase(net, schedule, None if groups is None else tuple(groups), settings)
    # A cached program is found by the case as given, not by the settings that a remedy may choose.
    folder = None if settings.cache is None else CompiledFolder(settings.cache)
    kept = None if folder is None else folder.find(net, schedule, groups, settings)
    if kept is not None:
        return replace(kept, seconds=time.perf_counter() - start)
    # Failures leave a report; Python's collector pauses, as compiling makes many objects that stay.
    given = settings
    unfit = AutoReport(read_options(None), settings.report_folder_of(training=groups is not None)).of_failure()
    with unfit, collector_paused(), _reporting(progress, settings) as report:
        checks, build = InputChecks(net), partial(_compile, report=report)
        try:
            ends, executable = build(case)
        except OutOfMemoryError as error:
            case, ends, executable = _remedied(
                case, error, build, partial(found_advice, smaller=smaller, halved=halved), words
            )
    # A remedy may have changed the settings; state of buffers persists like that of parameters.
    settings = case.settings
    optimisers = None if groups is None else tuple(g.optimiser for g in groups)
    trained = {p.name for g in groups or () for p in g.parameters}
    beside = {name for o in optimisers or () if isinstance(o, CapturedUpdate) for name in o.buffers}
    updated = frozenset(trained | beside | {v.name for v in net.updates})
    seconds = time.perf_counter() - start
    compiled = Compiled(
        executable=executable,
        ends=ends,
        schedule=schedule,
        settings=settings,
        optimisers=optimisers,
        updated=updated,
        checks=checks,
        seconds=seconds,
    )
    if folder is not None:
        folder.keep(compiled, net, schedule, groups, given)
    return compiled


def _compile(case: NetworkCase, report: Progress) -> tuple[Ends, Executable]:
    report("lower to libraries", 0.0)
    program = _build(case)
    ends = expose(case.net, program)
    meta = _described(case.net, case.schedule, case.settings, training=case.groups is not None)
    allowed = case.settings.allow_out_of_memory
    return ends, compile_program(
        program.graph, program.program, allow_out_of_memory=allowed, progress=report, meta=meta
    )


def _remedied(
    case: NetworkCase, error: OutOfMemoryError, build: Build, find: Callable[..., Advice], words: Words
) -> tuple[NetworkCase, Ends, Executable]:
    """The network compiled so that it fits; otherwise the error says what the user can do."""
    trials = Trials(case, error)
    build = trials.watching(build)
    attempt = layers_shared(case, error, build)
    if attempt.made is not None:
        return attempt.case, *attempt.made
    case, error = attempt.case, attempt.error or error
    try:
        return fitted(case, error, build)
    except OutOfMemoryError:
        found = find(case, error, build)
    advised = _advised(error, found.in_vain, words(found))
    told, make = trials.result().to_meta(), error.make_report
    if make is not None:
        advised.make_report = lambda: make().with_meta(**told)
    raise advised from None


def changes_to_fit(
    net: Network,
    schedule: Schedule | None = None,
    *,
    groups: Sequence[Group] | None = None,
    settings: Settings | None = None,
    smaller: Smaller | None = None,
    halved: Halved | None = None,
    progress: Progress | None = None,
) -> Report:
    """Report of a network as it is, with the shortest list of changes found that makes it fit, by compiling it so.

    Args:
        net: The network.
        schedule: Schedule of one run over its micro-batches.
        groups: Optimisers and the parameters that they update; None for inference.
        settings: The machine, and how programs run on the host.
        smaller: Makes the same network with smaller micro-batches.
        halved: Makes the same network with weights and inputs in half precision.
        progress: Called with each stage of each compilation, and the part of it that is done.

    Returns:
        The report: ``fit_changes`` has the list, also after it is saved (``abele report FILE --fit``).
    """
    chosen = replace(settings or Settings(), allow_out_of_memory=False, cache=None)
    case = NetworkCase(net, schedule or Schedule(), None if groups is None else tuple(groups), chosen)
    with collector_paused(), _reporting(progress, chosen) as report:
        found = search(case, partial(_compile, report=report), smaller=smaller, halved=halved)
        _, executable = _compile(replace(case, settings=replace(chosen, allow_out_of_memory=True)), report)
    return executable.report.with_meta(**found.to_meta())


@contextmanager
def _reporting(progress: Progress | None, settings: Settings) -> Iterator[Progress]:
    if progress is not None:
        yield progress
        return
    with compilation_progress(settings.progress) as bar:
        yield bar


def _build(case: NetworkCase) -> NetworkProgram:
    net, schedule, groups, settings = case.net, case.schedule, case.groups, case.settings
    ipus = max(settings.ipus_per_replica, net.num_ipus)
    graph = Graph(settings.target(schedule.replicas * ipus), replicas=schedule.replicas)
    graph.sync_pattern = settings.sync_pattern
    planning, modes = settings.planning, settings.modes
    watch = _watch(settings, training=groups is not None)
    blocks = ModelledBlocks(settings, training=groups is not None) if settings.skip_hidden else None
    if groups is None:
        passes = inference_pipeline(blocks, fuse_maps=settings.fuse_maps)
        return inference_program(net, graph, schedule, planning=planning, modes=modes, pipeline=passes, watch=watch)
    automatic = settings.loss_scale
    pipeline = training_pipeline(
        schedule,
        groups,
        recompute=settings.recompute,
        recompute_stages=settings.recompute_stages,
        rebuilt_above=settings.rebuilt_above(graph.system),
        automatic_loss_scale=automatic,
        blocks=blocks,
        share_convolutions=settings.shared_functions,
    )
    return training_program(
        net,
        graph,
        schedule,
        groups,
        planning=planning,
        modes=modes,
        pipeline=pipeline,
        watch=watch,
        automatic_loss_scale=automatic,
    )


def _watch(settings: Settings, *, training: bool) -> PassDump | None:
    """Writer of the network after each pass, if that was asked for."""
    if settings.dump_passes is None:
        return None
    name = re.sub(r"[^\w.-]+", "_", settings.name)
    return PassDump(Path(settings.dump_passes) / f"{name}-{'training' if training else 'inference'}")


def _advised(error: OutOfMemoryError, in_vain: Sequence[str], hints: list[str]) -> OutOfMemoryError:
    """The error with the remedies tried in vain, and with the others."""
    tried = [f"too large as well with {' · '.join(in_vain)}"] if in_vain else []
    because = "\n".join([*([error.because] if error.because else []), *tried])
    advised = OutOfMemoryError(
        error.message, tiles=error.tiles, at=error.at, because=because or None, remedy="\n".join(hints)
    )
    advised.make_report = error.make_report
    return advised


def _described(net: Network, schedule: Schedule, settings: Settings, *, training: bool) -> dict[str, Any]:
    """Entries of the report about the model."""
    batched = [v.shape[0] for v in net.inputs if v.shape]
    samples = {"samples_per_run": batched[0] * schedule.micro_batches, "sample_name": "sample"} if batched else {}
    return samples | {
        "name": settings.name,
        HANDLE_ROLES: ROLES,
        "steps_per_run": schedule.device_iterations,
        "step_name": "weight update" if training else "batch",
        "options": {
            "device_iterations": schedule.device_iterations,
            "gradient_accumulation": schedule.accumulation,
            **({} if schedule.replicas == 1 else {"replicas": schedule.replicas}),
            "engine_mode": settings.mode,
            **({} if settings.memory_proportion is None else {"memory_proportion": settings.memory_proportion}),
            **({} if settings.partials == "f32" else {"partials": settings.partials}),
            **({"shared_functions": True} if settings.shared_functions else {}),
        },
    }
