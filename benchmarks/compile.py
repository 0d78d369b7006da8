"""Costs of compiling: one operation, demos, heavy networks, a million vertices in many compute sets, and the passes.

The compute sets are of two kinds: ``equal`` ones do the same to variables of their own, ``different`` ones differ in
what each vertex is wired to. All of them compile in processes of their own, first with an empty cache of native code,
then with a warm one; networks train with Adam, and their native code is made too. With --json one object is printed,
{"rows": [...]}: rows carry ``workload``, ``cold_seconds``, ``warm_seconds`` and ``peak_bytes`` (``base_bytes`` of them
before compiling: Python, PyTorch, data); networks also carry ``cpu_seconds``, of the processor when cold, and
``phases``, the part of them that each phase took itself. The row ``one op`` is the first model that a process compiles,
once PyTorch's recorder is loaded (``recorder_seconds``, which PyTorch takes for its first export in any program);
``again_seconds`` and ``call_seconds`` are of a second model, and of a call. The row ``vertices``
carries ``num_vertices`` and nanoseconds per vertex of ``race_check_ns``, ``exchange_plan_ns`` and ``cycle_model_ns``,
for 1,000,000 vertices, say.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rows_output import print_rows

from abele.codelet import InOut, Input, Vector, Vertex, codelet
from abele.compiler import compile_program
from abele.compiler.cycles import compute_cycles
from abele.compiler.exchange import plan_exchange
from abele.compiler.layout import Layout
from abele.compiler.race import collect_writes, find_race
from abele.compiler.uses import field_uses
from abele.graph import ComputeSet, Execute, Graph, Sequence
from abele.machine import systems
from abele.numerics import f32

WITH_LOSS = {"digits": "DigitsWithLoss", "braggnn": "BraggNNWithLoss"}
DEMOS = tuple(WITH_LOSS)
SETS = "sets"
NETWORKS = ("resnet18-32", "encoder-256")
"""Of ``workloads``."""
ONE_OP = "one op"
WORKLOADS = (ONE_OP, *DEMOS, *NETWORKS, f"equal {SETS}", f"different {SETS}")
PHASES = {
    "capture": "abele.frontends.poptorch.models.compiling.capture",
    "lower to libraries": "abele.session.compiling._build",
    "plan products": "abele.poplibs.poplin.planner.search.best_plans",
    "analyse the program": "abele.session.compiling.compile_program",
    "analyse exchanges": "abele.compiler.analyse.plan_exchange",
    "count cycles": "abele.compiler.analyse.compute_cycles",
    "lay out the engine": "abele.runtime.engine.deployment.build_image",
    "plan native code": "abele.runtime.native.plan_runs.plan_native",
    "choose schedules": "abele.kernels.plan.schedule_functions.choose_packed_schedule",
    "write LLVM code": "abele.kernels.code.build.generate",
    "LLVM": "abele.kernels.code.build.compile_all",
}
"""Timed phases of a network by name, with the function of each; its calls of other phases are theirs."""
NUM_SETS = 100
VERTEX_ELEMENTS = 4


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Phases:
    """Processor time of each phase, without that of phases inside it.

    Attributes:
        seconds: By name.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._inside = [0.0]
        for name, place in PHASES.items():
            module, _, function = place.rpartition(".")
            owner = importlib.import_module(module)
            setattr(owner, function, self._timed(name, getattr(owner, function)))

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            self._inside.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took = time.process_time() - start
                self.seconds[name] += took - self._inside.pop()
                self._inside[-1] += took

        return timed


def compile_network(name: str) -> dict[str, Any]:
    """Compile a heavy network's training program in this process, native code and all."""
    from torch import optim
    from workloads import WORKLOADS as NETWORKS_BY_NAME

    from abele import poptorch

    workload = next(w for w in NETWORKS_BY_NAME if w.name == name)
    options = poptorch.Options().deviceIterations(workload.steps).showCompilationProgressBar(False)
    options.Abele.allowOutOfMemory()
    model, samples = workload.model(), workload.samples()
    training_model = poptorch.trainingModel(model, options, optimizer=optim.Adam(model.parameters(), lr=1e-3))
    phases, base = Phases(), peak_bytes()
    start, cpu = time.perf_counter(), time.process_time()
    training_model.compile(*samples)
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak_bytes": peak_bytes(),
        "base_bytes": base,
        "phases": phases.seconds,
    }


def compile_one_op(calls: int = 500) -> dict[str, float]:
    """Compile the smallest of models in this process, twice, and call it."""
    import torch

    from abele import poptorch

    class Doubled(torch.nn.Module):
        """An operation or two."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """x · 2 + 1."""
            return x * 2 + 1

    x, base = torch.randn(16, 16), peak_bytes()
    recorder = _seconds(lambda: torch.export.export(torch.nn.Identity(), (x,), strict=False))
    models = [poptorch.inferenceModel(Doubled()) for _ in range(2)]
    first, again = (_seconds(functools.partial(model.compile, x)) for model in models)
    models[0](x)
    call = min(_seconds(lambda: models[0](x)) for _ in range(calls))
    times = {"seconds": first, "again_seconds": again, "call_seconds": call, "recorder_seconds": recorder}
    return {**times, "peak_bytes": peak_bytes(), "base_bytes": base}


def compile_demo(name: str) -> dict[str, Any]:
    """Compile a demo's training program in this process."""
    if name == ONE_OP:
        return compile_one_op()
    if name in NETWORKS:
        return compile_network(name)
    if name.endswith(SETS):
        return compile_sets(1_000_000, NUM_SETS, equal=name.startswith("equal"))
    from torch import optim

    from abele import poptorch
    from abele.garden.training import DemoSettings

    demo = importlib.import_module(f"abele.garden.{name}")
    settings = DemoSettings()
    options = demo.training_options(settings).showCompilationProgressBar(False)
    train_set, _ = demo.load_data(settings.seed)
    batch = next(iter(poptorch.DataLoader(options, train_set, batch_size=demo.BATCH)))
    model = demo.Network()
    optimizer = optim.Adam(model.parameters(), lr=demo.LEARNING_RATE)
    training_model = poptorch.trainingModel(getattr(demo, WITH_LOSS[name])(model), options, optimizer=optimizer)
    base = peak_bytes()
    start = time.perf_counter()
    training_model.compile(*batch)
    return {"seconds": time.perf_counter() - start, "peak_bytes": peak_bytes(), "base_bytes": base}


def compile_sets(num_vertices: int, num_sets: int, *, equal: bool) -> dict[str, float]:
    """Compile a program of so many vertices in so many compute sets in this process; building it is not timed."""
    graph = Graph(systems.bow_2000().with_ipus(1))
    each = num_vertices // num_sets
    tiles = np.arange(each) * graph.num_tiles // each
    rng = np.random.default_rng(0)
    steps = []
    for number in range(num_sets):
        home = (tiles + 1) % graph.num_tiles if equal else rng.permutation(tiles)
        x = graph.variable(f32, (each, VERTEX_ELEMENTS), name=f"x{number}").map_rows(home)
        y = graph.variable(f32, (each, VERTEX_ELEMENTS), name=f"y{number}").map_rows(tiles)
        compute_set = graph.compute_set(f"step{number}")
        compute_set.vertices(Saxpy, tile=tiles, x=x, y=y)
        steps.append(Execute(compute_set))
    base = peak_bytes()
    start = time.perf_counter()
    compile_program(graph, Sequence(*steps))
    return {"seconds": time.perf_counter() - start, "peak_bytes": peak_bytes(), "base_bytes": base}


def demo_row(name: str) -> dict[str, Any]:
    """Compile times and memory of a demo, cold and warm, in fresh processes."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "ABELE_CACHE_DIR": cache}
        command = [sys.executable, __file__, "--compile-only", name]
        cold, warm = (
            json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
            for _ in range(2)
        )
    more = ("cpu_seconds", "phases", "again_seconds", "call_seconds", "recorder_seconds")
    return {key: cold[key] for key in more if key in cold} | {
        "workload": name,
        "cold_seconds": round(cold["seconds"], 3),
        "warm_seconds": round(warm["seconds"], 3),
        "peak_bytes": max(cold["peak_bytes"], warm["peak_bytes"]),
        "base_bytes": cold["base_bytes"],
    }


@codelet
class Saxpy(Vertex):
    """One piece of y += x."""

    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]

    def compute(self) -> None:
        """Add the inputs."""
        for i in range(len(self.x)):
            self.y[i] += self.x[i]


def many_vertices(num_vertices: int) -> tuple[Graph, ComputeSet]:
    """A compute set of so many small vertices, every input of which lives on another tile."""
    graph = Graph(systems.bow_2000().with_ipus(1))
    tiles = np.arange(num_vertices) * graph.num_tiles // num_vertices
    shape = (num_vertices, VERTEX_ELEMENTS)
    x = graph.variable(f32, shape, name="x").map_rows((tiles + 1) % graph.num_tiles)
    y = graph.variable(f32, shape, name="y").map_rows(tiles)
    compute_set = graph.compute_set("step")
    compute_set.vertices(Saxpy, tile=tiles, x=x, y=y)
    return graph, compute_set


def vertices_row(num_vertices: int) -> dict[str, Any]:
    """Nanoseconds per vertex of the compiler's passes."""
    graph, compute_set = many_vertices(num_vertices)
    groups = compute_set.groups
    layout = Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)
    uses = field_uses(groups)
    compute_cycles(groups, graph.system.ipu, graph.num_tiles)  # compiles the counting function

    def nanoseconds(work: Callable[[], Any]) -> float:
        return round(min(_seconds(work) for _ in range(3)) / num_vertices * 1e9, 1)

    return {
        "workload": "vertices",
        "num_vertices": num_vertices,
        "race_check_ns": nanoseconds(lambda: find_race(uses, collect_writes(uses))),
        "exchange_plan_ns": nanoseconds(lambda: plan_exchange(uses, layout, graph.system.ipu.num_tiles)),
        "cycle_model_ns": nanoseconds(lambda: compute_cycles(groups, graph.system.ipu, graph.num_tiles)),
    }


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as tables."""
    demos = Table(title="compiling for one IPU", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("workload", "cold", "warm", "peak memory", "before compiling"):
        demos.add_column(heading, justify="left" if heading == "workload" else "right")
    passes = Table(title="compiler passes", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("vertices", "race check", "exchange plan", "cycle model"):
        passes.add_column(heading, justify="right")
    for row in rows:
        if row["workload"] == "vertices":
            times = (row["race_check_ns"], row["exchange_plan_ns"], row["cycle_model_ns"])
            passes.add_row(f"{row['num_vertices']:,}", *(f"{value:.1f} ns" for value in times))
        else:
            sizes = (f"{row[key] / 1e6:,.0f} MB" for key in ("peak_bytes", "base_bytes"))
            demos.add_row(row["workload"], f"{row['cold_seconds']:.2f} s", f"{row['warm_seconds']:.2f} s", *sizes)
    shown = [table for table in (demos, phases_of(rows), passes) if table.row_count]
    Console().print(*shown)


def phases_of(rows: list[dict[str, Any]]) -> Table:
    """Processor time of networks, phase by phase."""
    networks = [row for row in rows if "phases" in row]
    table = Table(title="phases, processor time when cold", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("phase", *(row["workload"] for row in networks)):
        table.add_column(heading, justify="left" if heading == "phase" else "right")
    if not networks:
        return table
    for name in PHASES:
        table.add_row(name, *(f"{row['phases'][name]:.2f} s" for row in networks))
    rest = (row["cpu_seconds"] - sum(row["phases"].values()) for row in networks)
    table.add_row("the rest", *(f"{seconds:.2f} s" for seconds in rest))
    table.add_row("all", *(f"{row['cpu_seconds']:.2f} s" for row in networks))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", default="", help="workloads whose name has this in it")
    parser.add_argument("--vertices", type=int, default=1_000_000, help="vertices of the compute set")
    parser.add_argument(
        "--compile-only", choices=WORKLOADS, help="compile one of them in this process and print its figures"
    )
    arguments = parser.parse_args()
    if arguments.compile_only:
        print(json.dumps(compile_demo(arguments.compile_only)))
        return
    rows = [demo_row(name) for name in WORKLOADS if arguments.only in name]
    rows += [vertices_row(arguments.vertices)] if arguments.only in "vertices" else []
    print_rows(rows, show, as_json=arguments.json)


if __name__ == "__main__":
    main()
