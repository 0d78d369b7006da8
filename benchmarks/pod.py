"""Cost of analysis on a Pod: that it follows the tiles of a step, not the size of the machine.

Each case is built and compiled in a process of its own, with the codelet cache warm unless --cold is given. Seconds are
processor time of compiling and of the report (building the graph is shown beside), the best of some processes;
memory is the largest resident size of the process. Ratios above their bar are marked. Executables of up to some
thousand steps are saved and loaded, which analyses them again. With --json one object is printed, {"rows": [...]}.

Four tables:

- ``few tiles``: 600 distinct supersteps with five tiles each, on one IPU and on ever more; the ratio is to one IPU.
- ``replicas``: a training step of several layers for one replica, for 64 replicas, and built 64 times, once per IPU.
- ``many steps``: programs of up to a million steps, per step; ``equal`` and ``different`` have distinct compute sets,
  ``repeated`` executes a thousand of them again and again without a Repeat.
- ``training``: BERT-Large for a Pod16 and a Pod64 as published, and as many replicas of the latter as a Pod256 has;
  only with --training. The bars are 60, 75 and 90 s of processor time, and 4 GB.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rows_output import print_rows

import abele as ab
from abele import InOut, Input, Vector, Vertex, f32
from abele.machine import systems

SYSTEMS = ("bow-2000:1", "bow-pod64", "bow-pod256")
KINDS = ("compute", "exchange", "copies", "streams", "control flow", "sync groups")
BARS = {"few tiles": (1.3, 1.3), "replicas": (1.2, None), "many steps": (None, None)}
"""Highest ratios of time and of memory to the first case that are aimed at."""
SAVED_STEPS = 5000
"""Most steps of an executable that is saved and loaded."""
FEW_STEPS, FEW_TILES = 600, 5
LAYERS, REPLICAS = 4, 64
TRAINING = {"pod16": 60.0, "pod64": 75.0, "bow-pod256": 90.0}
"""Seconds in which a training of BERT-Large for a system is to be compiled."""
TRAINING_BYTES = 4e9


@ab.codelet
class Saxpy(Vertex):
    """One piece of y += x."""

    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]

    def compute(self) -> None:
        """Add the inputs."""
        for i in range(len(self.x)):
            self.y[i] += self.x[i]


def few_tiles(kind: str, system: str) -> tuple[ab.Graph, ab.Program]:
    """600 distinct supersteps with five tiles each, drawn from the whole machine."""
    graph = ab.Graph(systems.get(system))
    rng = np.random.default_rng(0)
    if kind == "sync groups":
        for number in range(4):
            graph.sync_group(np.arange(number * 100, number * 100 + 50), f"group {number}")
    steps: list[ab.Program] = []
    for number in range(FEW_STEPS):
        tiles = np.sort(rng.choice(graph.num_tiles, FEW_TILES, replace=False))
        home = tiles if kind == "compute" else np.roll(tiles, 1)
        shape = (FEW_TILES, 4 + number % 50)
        x = graph.variable(f32, shape, f"x{number}").map_rows(home)
        y = graph.variable(f32, shape, f"y{number}").map_rows(tiles)
        compute_set = graph.compute_set(f"step{number}")
        compute_set.vertices(Saxpy, tile=tiles, x=x, y=y)
        step: ab.Program = ab.Execute(compute_set)
        match kind:
            case "copies":
                step = ab.Sequence(step, ab.Copy(x, y), ab.Copy(y[:, ::2], x[:, : y[:, ::2].shape[1]]))
            case "streams":
                stream = graph.host_stream_in(f"stream{number}", f32, x.shape)
                step = ab.Sequence(ab.Copy(stream, x), step)
            case "control flow":
                flag = graph.variable(ab.bool_, (), f"flag{number}").map(int(tiles[0]))
                step = ab.If(flag, step, ab.Copy(x, y))
        steps.append(step)
    return graph, ab.Sequence(*steps)


def training_step(graph: ab.Graph, first_tile: int, name: str) -> Iterator[ab.Program]:
    """Forward and backward supersteps of several layers over the tiles of one IPU, each wired in a way of its own."""
    each = graph.system.ipu.num_tiles
    tiles = first_tile + np.arange(each)
    for layer in range(LAYERS):
        rng = np.random.default_rng(layer)
        for way in ("forward", "backward", "update"):
            x = graph.variable(f32, (4 * each, 16), f"{name}/{layer}/{way}/x").map_rows(
                first_tile + rng.permutation(np.repeat(np.arange(each), 4))
            )
            y = graph.variable(f32, (4 * each, 16), f"{name}/{layer}/{way}/y").map_rows(np.repeat(tiles, 4))
            compute_set = graph.compute_set(f"{name}/{layer}/{way}")
            compute_set.vertices(Saxpy, tile=np.repeat(tiles, 4), x=x, y=y)
            yield ab.Execute(compute_set)
            yield ab.Copy(y, x)


def replicas(kind: str, system: str) -> tuple[ab.Graph, ab.Program]:
    """A training step for one replica, for 64, or built once per IPU."""
    count = REPLICAS if kind == "replicas" else 1
    graph = ab.Graph(systems.get(system), replicas=count)
    copies = graph.num_tiles // graph.system.ipu.num_tiles if kind == "built on each IPU" else 1
    each = graph.system.ipu.num_tiles
    steps = [step for i in range(copies) for step in training_step(graph, i * each, f"ipu{i}")]
    return graph, ab.Sequence(*steps)


def many_steps(kind: str, count: str) -> tuple[ab.Graph, ab.Program]:
    """So many steps on one IPU."""
    graph = ab.Graph(systems.get("bow-2000:1"))
    rng = np.random.default_rng(0)
    number = int(count)
    distinct = 1000 if kind == "repeated" else number
    steps = []
    for i in range(distinct):
        tiles = np.array([i % 1400, i % 1400 + 7]) if kind == "equal" else np.sort(rng.choice(1472, 2, replace=False))
        width = 4 if kind == "equal" else 4 + i % 50
        tiles = np.array([3, 10]) if kind == "equal" else tiles
        x = graph.variable(f32, (2, width), f"x{i}").map_rows(tiles)
        y = graph.variable(f32, (2, width), f"y{i}").map_rows(tiles)
        compute_set = graph.compute_set(f"step{i}")
        compute_set.vertices(Saxpy, tile=tiles, x=x, y=y)
        steps.append(compute_set)
    return graph, ab.Sequence(*(ab.Execute(steps[i % distinct]) for i in range(number)))


TABLES: dict[str, Callable[[str, str], tuple[ab.Graph, ab.Program]]] = {
    "few tiles": few_tiles,
    "replicas": replicas,
    "many steps": many_steps,
}


def training(system: str) -> dict[str, Any]:
    """Compile the training of BERT-Large for a system, cycles only, in this process."""
    from dataclasses import replace

    from abele.validation.training.runs import RUNS

    found = {run.system: run for run in RUNS if run.name.startswith("BERT-Large, MLPerf")}
    large = found["bow-pod64"]
    run = found.get(system) or replace(large, system=system, replicas=4 * large.replicas, items=4 * large.items)
    start = time.process_time()
    prediction = run.predict()
    return {
        "table": "training",
        "kind": "BERT-Large",
        "what": system,
        "cpu_seconds": time.process_time() - start,
        "bar": TRAINING[system],
        "peak_bytes": peak_bytes(),
        "bar_bytes": TRAINING_BYTES,
        "update_seconds": prediction.seconds,
    }


def training_rows(systems: list[str]) -> Iterator[dict[str, Any]]:
    """The table of trainings, each in a process of its own."""
    for system in systems:
        command = [sys.executable, __file__, "--one", "training", "BERT-Large", system]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        yield json.loads(done.stdout)


def show_training(rows: list[dict[str, Any]]) -> None:
    """Print the table of trainings."""
    table = Table(title="training of BERT-Large", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("system", "compile", "memory", "an update"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for row in rows:
        seconds, gigabytes = row["cpu_seconds"], row["peak_bytes"] / 1e9
        table.add_row(
            row["what"],
            f"{seconds:.0f} s" + (f" > {row['bar']:.0f} s" if seconds > row["bar"] else ""),
            f"{gigabytes:.1f} GB" + (" > 4 GB" if row["peak_bytes"] > row["bar_bytes"] else ""),
            f"{row['update_seconds']:.3f} s",
        )
    Console(width=120).print(table)


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measured(table: str, kind: str, what: str) -> dict[str, float]:
    """One case in this process."""
    start = time.process_time()
    graph, program = TABLES[table](kind, what)
    built = time.process_time()
    base = peak_bytes()
    executable = ab.compile_program(graph, program, allow_out_of_memory=True)
    compiled = time.process_time()
    report = executable.report
    reported = time.process_time()
    result = {
        "build_seconds": built - start,
        "compile_seconds": compiled - built,
        "report_seconds": reported - compiled,
        "base_bytes": base,
        "peak_bytes": peak_bytes(),
        "num_steps": len(executable.steps),
        "num_supersteps": len(executable.plan),
        "num_tiles": graph.num_tiles,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report"
        start = time.process_time()
        report.save(path)
        result |= {"save_seconds": time.process_time() - start, "file_bytes": path.stat().st_size}
        return result | (saved(executable, path) if len(executable.steps) <= SAVED_STEPS else {})


def saved(executable: ab.Executable, path: Path) -> dict[str, float]:
    """Cost of saving and loading an executable."""
    start = time.process_time()
    executable.save(path)
    written = time.process_time()
    again = ab.Executable.load(path)
    loaded = time.process_time()
    if again.report.total_cycles != executable.report.total_cycles:
        raise SystemExit("the executable that was loaded has other cycles than the one that was saved")
    return {
        "executable_save_seconds": written - start,
        "executable_load_seconds": loaded - written,
        "executable_bytes": path.stat().st_size,
    }


def best(table: str, kind: str, what: str, rounds: int, *, cold: bool) -> dict[str, Any]:
    """The quickest of some processes: other work on the machine only slows one down."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, **({"ABELE_CACHE_DIR": cache} if cold else {})}
            command = [sys.executable, __file__, "--one", table, kind, what]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    return {"table": table, "kind": kind, "what": what, **min(found, key=lambda f: f["compile_seconds"])}


def cases(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """The cases of the chosen tables."""
    if "few tiles" in options.tables:
        yield from (("few tiles", kind, system) for kind in KINDS for system in options.systems)
    if "replicas" in options.tables:
        yield ("replicas", "one replica", "bow-2000:1")
        yield ("replicas", "replicas", "bow-pod64")
        yield ("replicas", "built on each IPU", "bow-pod64")
    if "many steps" in options.tables:
        yield from (
            ("many steps", kind, str(n))
            for kind, n in zip(("repeated", "equal", "different"), options.steps, strict=True)
        )


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as tables."""
    for name in TABLES:
        mine = [r for r in rows if r["table"] == name]
        if not mine:
            continue
        table = Table(title=name, title_justify="left", box=None, padding=(0, 2, 0, 0))
        time_bar, memory_bar = BARS[name]
        headings = ("case", "", "steps", "build", "compile", "report", "save", "ratio", "per step", "memory", "ratio")
        for heading in (*headings, "file", "saved", "loaded", "executable"):
            table.add_column(heading, justify="left" if heading in ("case", "") else "right")
        if time_bar is not None:
            table.caption = f"bars: {time_bar} times the time" + (
                f", {memory_bar} times the memory" if memory_bar else ""
            )
        first: dict[str, dict[str, Any]] = {}
        for row in mine:
            base = first.setdefault(row["kind"] if name == "few tiles" else "", row)
            seconds, its = (r["compile_seconds"] + r["report_seconds"] for r in (row, base))
            table.add_row(
                row["kind"],
                row["what"],
                f"{row['num_steps']:,}",
                *(
                    f"{row[key]:.2f} s"
                    for key in ("build_seconds", "compile_seconds", "report_seconds", "save_seconds")
                ),
                held_against(seconds / its, time_bar),
                f"{seconds / row['num_steps'] * 1e6:,.0f} µs",
                f"{row['peak_bytes'] / 1e6:,.0f} MB",
                held_against(row["peak_bytes"] / base["peak_bytes"], memory_bar),
                f"{row['file_bytes'] / 1e6:,.1f} MB",
                *(
                    f"{row[key]:.2f} s" if key in row else ""
                    for key in ("executable_save_seconds", "executable_load_seconds")
                ),
                f"{row['executable_bytes'] / 1e6:,.1f} MB" if "executable_bytes" in row else "",
            )
        Console(width=190).print(table)


def held_against(ratio: float, bar: float | None) -> str:
    """A ratio, and whether it is above its bar."""
    if bar is None:
        return ""
    return f"{ratio:.2f}" if ratio <= bar else f"{ratio:.2f} > {bar}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), help="systems of the first table")
    parser.add_argument("--steps", nargs=3, type=int, default=(1_000_000, 30_000, 10_000), metavar="N")
    parser.add_argument("--rounds", type=int, default=1, help="processes per case of few tiles; the others have one")
    parser.add_argument("--cold", action="store_true", help="an empty codelet cache for each process")
    parser.add_argument(
        "--training", nargs="*", choices=TRAINING, metavar="SYSTEM", help="trainings of BERT-Large alone"
    )
    parser.add_argument("--one", nargs=3, metavar=("TABLE", "KIND", "WHAT"), help="one case in this process")
    options = parser.parse_args()
    if options.one and options.one[0] == "training":
        print(json.dumps(training(options.one[2])))
        return
    if options.one:
        print(json.dumps(measured(*options.one)))
        return
    if options.training is not None:
        trained = list(training_rows(options.training or list(TRAINING)))
        print(json.dumps({"rows": trained})) if options.json else show_training(trained)
        return
    rows = []
    for case in cases(options):
        rows.append(best(*case, options.rounds if case[0] == "few tiles" else 1, cold=options.cold))
        print(*case, file=sys.stderr)
    print_rows(rows, show, as_json=options.json)


if __name__ == "__main__":
    main()
