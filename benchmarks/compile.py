"""What compiling costs: both demos for one IPU, a million vertices in many compute sets, and the passes one by one.

The compute sets are of two kinds: ``equal`` ones do the same to variables of their own, ``different`` ones differ in
what each vertex is wired to. Demos and compute sets compile in processes of their own, first with an empty codelet
cache, then with a warm one. With --json one object is printed, {"rows": [...]}: rows of demos and of compute sets carry
``workload``, ``cold_seconds``, ``warm_seconds`` and ``peak_bytes`` (``base_bytes`` of them before compiling: Python,
PyTorch, data); the row ``vertices`` carries ``num_vertices`` and nanoseconds a vertex of ``race_check_ns``,
``exchange_plan_ns`` and ``cycle_model_ns``.
"""

from __future__ import annotations

import argparse
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
WORKLOADS = (*DEMOS, f"equal {SETS}", f"different {SETS}")
NUM_SETS = 100
VERTEX_ELEMENTS = 4


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def compile_demo(name: str) -> dict[str, float]:
    """Compile a demo's training program in this process."""
    import importlib

    if name.endswith(SETS):
        return compile_sets(1_000_000, NUM_SETS, equal=name.startswith("equal"))
    from torch import optim

    from abele import poptorch
    from abele.garden.settings import DemoSettings

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
    return {
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
    """Nanoseconds a vertex of the compiler's passes."""
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
    """Print the rows as two tables."""
    demos = Table(title="compiling for one IPU", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("demo", "cold", "warm", "peak memory", "before compiling"):
        demos.add_column(heading, justify="left" if heading == "demo" else "right")
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
    Console().print(demos, passes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--vertices", type=int, default=1_000_000, help="vertices of the compute set")
    parser.add_argument(
        "--compile-only", choices=WORKLOADS, help="compile one of them in this process and print its figures"
    )
    arguments = parser.parse_args()
    if arguments.compile_only:
        print(json.dumps(compile_demo(arguments.compile_only)))
        return
    rows = [*(demo_row(name) for name in WORKLOADS), vertices_row(arguments.vertices)]
    if arguments.json:
        print(json.dumps({"rows": rows}))
    else:
        show(rows)


if __name__ == "__main__":
    main()
