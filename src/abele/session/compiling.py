"""Compiling: from a network and a schedule to an executable whose ends have names."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from abele.compiler import Executable, compile_program
from abele.compiler.account import HANDLE_ROLES
from abele.compiler.collector import collector_paused
from abele.distribution import NetworkProgram, inference_program, training_program
from abele.errors import OutOfMemoryError
from abele.graph import Graph
from abele.job.progress import PROGRESS
from abele.network import Group, Network, PassDump, Schedule, inference_pipeline, training_pipeline
from abele.runtime.engine.options import read_options
from abele.runtime.engine.run_log import AutoReport
from abele.session.advice import Advice, Words
from abele.session.attention_blocks import ModelledBlocks
from abele.session.compiled import Compiled
from abele.session.host_interface import ROLES, Ends, expose
from abele.session.input_checks import InputChecks
from abele.session.progress import Progress, compilation_progress
from abele.session.remedies import Build, Halved, NetworkCase, Smaller, fitted, found_advice, layers_shared
from abele.session.settings import Settings
from abele.session.store import CompiledFolder


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
    updated = frozenset(trained | {v.name for v in net.updates})
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
    attempt = layers_shared(case, error, build)
    if attempt.made is not None:
        return attempt.case, *attempt.made
    case, error = attempt.case, attempt.error or error
    try:
        return fitted(case, error, build)
    except OutOfMemoryError:
        found = find(case, error, build)
    raise _advised(error, found.in_vain, words(found)) from None


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
        passes = inference_pipeline(blocks)
        return inference_program(net, graph, schedule, planning=planning, modes=modes, pipeline=passes, watch=watch)
    automatic = settings.loss_scale
    pipeline = training_pipeline(
        schedule,
        groups,
        recompute=settings.recompute,
        recompute_stages=settings.recompute_stages,
        automatic_loss_scale=automatic,
        blocks=blocks,
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
