"""Tries files in processes of their own: ``python server.py`` reads requests from standard input, one JSON line each.

Each file is opened in a fork of this process, whose memory is limited and whose time is watched. The fork says how far
it came and how that ended; whatever else happens to it is seen from here.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import IO

LIMIT_BYTES = 6 << 30
INTERRUPT_SECONDS = 3.0
_CLOCK = 10
TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
_ROOMS = (
    "abele.compiler.store",
    "abele.report.render",
    "abele.runtime",
    "abele.llvm.jit",
    "abele.poplibs",
    "abele.onnx",
    "onnx.reference",
)
"""Rooms that forks would otherwise import again and again."""


def main() -> None:
    for name in _ROOMS:
        importlib.import_module(name)
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    for line in sys.stdin:
        answers.write(json.dumps(tried(**json.loads(line))) + "\n")
        answers.flush()


def tried(path: str, kind: str, seconds: float, mode: str) -> dict[str, object]:
    """Result of loading a file: ``outcome``, ``phase``, ``detail`` and ``seconds``."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        back, forth = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(back)
            resource.setrlimit(resource.RLIMIT_CPU, (round(seconds), round(seconds) + 5))
            _run(path, kind, mode, os.fdopen(forth, "w"), said)
        os.close(forth)
        phase, answer, status = _watched(child, back, seconds)
        said.seek(0)
        errors = said.read()[-2000:]
    result: dict[str, object] = {"phase": phase, "seconds": round(time.monotonic() - start, 3), "detail": errors}
    if answer is not None:
        return {**result, **answer}
    if status in ("timeout", signal.SIGXCPU, signal.SIGKILL):
        return {**result, "outcome": "endless" if phase == "run" else "hang"}
    return {**result, "outcome": f"signal {status}" if status else "vanished"}


def _watched(child: int, pipe: int, seconds: float) -> tuple[str, dict[str, object] | None, int | str]:
    """Last phase told by a fork, its answer if there is one, and the signal that ended it.

    A fork has so many seconds of processor time, and longer on the clock: others may be at work on this machine.
    """
    phase, answer, text, interrupted = "start", None, "", False
    end = time.monotonic() + _CLOCK * seconds
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            # A run may be endless; it should end when it is told to.
            if phase == "run" and not interrupted:
                os.kill(child, signal.SIGINT)
                interrupted, end = True, time.monotonic() + INTERRUPT_SECONDS
                continue
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(pipe)
            return phase, None, "timeout"
        data = os.read(pipe, 1 << 16).decode()
        text += data
        while "\n" in text:
            line, text = text.split("\n", 1)
            told = json.loads(line)
            if "outcome" in told:
                answer = told
            if told["phase"] == "run" != phase:
                end = time.monotonic() + seconds
            phase = told["phase"]
        if not data:
            os.close(pipe)
            _, status = os.waitpid(child, 0)
            return phase, answer, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _run(path: str, kind: str, mode: str, back: IO[str], said: IO[str]) -> None:
    """The fork: it never returns."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(said.fileno(), 2)
    phase = "load"

    def tell(name: str) -> None:
        nonlocal phase
        phase = name
        back.write(json.dumps({"phase": name}) + "\n")
        back.flush()

    try:
        tell("load")
        outcome = {"report": _report, "model": _model}.get(kind, _executable)(path, mode, tell)
    except BaseException as error:
        outcome = _judged(error, phase)
        if outcome not in ("refused", "stopped") and not outcome.startswith("error"):
            traceback.print_exc()
    back.write(json.dumps({"phase": phase, "outcome": outcome}) + "\n")
    back.flush()
    os._exit(0)


def _judged(error: BaseException, phase: str) -> str:
    from abele.errors import AbeleError, FileFormatError

    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if phase == "load":
        return "refused" if isinstance(error, FileFormatError) else f"raw {type(error).__name__}"
    if isinstance(error, AbeleError):
        return f"error {type(error).__name__}"
    return f"raw {type(error).__name__}"


def _model(path: str, mode: str, tell) -> str:
    """Load a model and interpret it where it is small; what it opens lies beside it, or is this program's own."""
    import warnings

    import numpy as np

    from abele import onnx
    from abele.frontends.onnx.files import read_model
    from frontends.onnx.node_cases import interpreted

    folder = str(Path(path).parent)
    own = (folder, sys.prefix, sys.base_prefix, str(TESTS.parent), os.environ["ABELE_CACHE_DIR"])
    opened: list[str] = []
    sys.addaudithook(lambda event, what: opened.append(str(what[0])) if event == "open" else None)
    warnings.simplefilter("ignore")
    tell("model")
    try:
        proto, _ = read_model(path)
        open_dims = [d.dim_param for v in proto.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param]
        model = onnx.load(path, dict.fromkeys(open_dims, 2))
    finally:
        beyond = [name for name in opened if not os.path.realpath(name).startswith(own) and not name.isdigit()]
        if beyond:
            tell(f"opened {beyond[0]}")
    if beyond:
        return "outside"
    tell("interpret")
    if sum(v.size for op in model.network.ops for v in op.outputs) > 1 << 20 or _has_loop(model.network.ops):
        return "ok"
    feeds = {p.name: np.ones(p.shape, p.dtype) for p in model.inputs}
    interpreted(model, feeds)
    return "ok"


def _has_loop(ops) -> bool:
    """True where a count of trips may be any number."""
    return any(op.kind in ("loop", "while") for op in ops)


def _report(path: str, mode: str, tell) -> str:
    import contextlib
    import io

    from rich.console import Console

    from abele.errors import InvalidOptionError
    from abele.report import Report
    from abele.report.render import render

    report = Report.load(path)
    tell("summary")
    report.summary()
    json.dumps(report.to_json(), allow_nan=False)
    Console(file=io.StringIO(), force_terminal=True, width=120).print(render(report))
    with contextlib.suppress(InvalidOptionError):
        report.timeline_text()
    tell("questions")
    with contextlib.suppress(InvalidOptionError):
        report.op_edges()
    with contextlib.suppress(InvalidOptionError):
        report.spans_between(0, report.total_cycles + 1, most=1 << 16)
    assert len(report.nodes_by_step) == len(report.steps)
    for node in range(min(len(report.program_tree), 20)):
        assert len(report.steps_of_node(node)) <= len(report.steps)
    for step in range(min(len(report.steps), 20)):
        for ask in (report.variables_of, report.live_at, report.exchange_of, report.groups_of):
            len(ask(step))
    for variable in range(min(len(report.variables), 20)):
        assert len(report.uses_of(variable)) <= len(report.steps)
    return "ok"


def _executable(path: str, mode: str, tell) -> str:
    import io

    import numpy as np

    import abele as ab
    from abele.errors import AbeleError

    executable = ab.Executable.load(path)
    tell("engine")
    engine = ab.Engine(executable, mode=mode, threads=1)
    engine.print_stream = io.StringIO()
    for stream in engine.graph.streams.values():
        if stream.bytes < 1 << 24:
            engine.connect(stream.name, np.ones(stream.shape, stream.dtype.np))
    for function in engine.graph.host_functions.values():
        shapes = [(a.shape, a.dtype.np) for a in function.outputs]
        if sum(a.size for a in function.outputs) < 1 << 20:
            engine.connect_function(function.name, lambda *_, s=shapes: tuple(np.ones(*each) for each in s))
    tell("run")
    failure = None
    for name in engine.programs:
        try:
            engine.run(name)
        except AbeleError as error:
            failure = error
    tell("after")
    if touched(executable, engine):
        return "sentinel"
    tell("summary")
    engine.report.summary()
    json.dumps(engine.report.to_json(), allow_nan=False)
    executable.listing()
    if failure is not None:
        raise failure
    return "ok"


def touched(executable, engine) -> bool:
    """True if a sentinel that the program does not name has changed."""
    import numpy as np

    from abele.graph import walk
    from abele.graph.interval_set import IntervalSet

    graph = executable.graph
    named = [(r.begin, r.length) for c in graph.compute_sets for g in c.groups for r in _regions(g)]
    for program in executable.programs:
        for node in walk(program):
            named += [t.intervals() for t in (*node.reads(), *node.writes())]
    used = IntervalSet.union(IntervalSet.of(*each) for each in named)
    for variable in graph.variables:
        if not variable.name.startswith("sentinel") or variable.initial is None:
            continue
        own = IntervalSet.of(np.array([variable.base]), np.array([variable.size]))
        if used.meets(own):
            continue
        try:
            found = engine.read(graph.whole(variable))
        except Exception:
            traceback.print_exc()
            return True
        if not np.array_equal(np.broadcast_to(variable.initial, found.shape), found, equal_nan=found.dtype.kind == "f"):
            return True
    return False


def _regions(group):
    return [edge.regions for edge in group.edges.values()]


if __name__ == "__main__":
    main()
