"""Codelets on the host: our engine beside the same loops in Numba (``prange``) and NumPy, in turns in one process.

python benchmarks/codelets.py [--threads 2] [--tiles 64 368 1472] [--only saxpy …] [--cpu] [--json]

Every contender runs the same number of time steps on data of the same size; its result is compared with the others'.
Turns last tens of milliseconds, so that waking the threads does not matter; each figure is the shortest of several.
Compiling is not timed. On a busy machine, --cpu with --threads 1 times by processor time. Needs the ``bench`` extra.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lesser_cpu import cpu_of_both, hold_numba

import abele as ab
from abele import InOut, Input, Output, Vector, f32

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "examples")]

import heat  # noqa: E402
import lattice_boltzmann  # noqa: E402
import smith_waterman  # noqa: E402

TURNS = 9
clock = time.perf_counter
WORKERS = 6


@dataclass
class Case:
    """One workload: ways to run it, each a function without arguments that returns the result."""

    name: str
    size: str
    runs: dict[str, Callable[[], Any]]
    exact: bool = False


@ab.codelet
class Saxpy(ab.Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]
    a: f32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] += self.a * self.x[i]


@ab.codelet
class Dot(ab.Vertex):
    x: Input[Vector[f32]]
    y: Input[Vector[f32]]
    out: Output[f32]

    def compute(self):
        total = 0.0
        for i in range(len(self.x)):
            total += self.x[i] * self.y[i]
        self.out = total


@ab.codelet
class Blur(ab.MultiVertex):
    before: Vector[Input[Vector[f32]]]
    after: Vector[Output[Vector[f32]]]

    def compute(self, worker_id):
        height = len(self.after)
        for r in range(worker_id * height // 6, (worker_id + 1) * height // 6):
            n = self.before[r]
            m = self.before[r + 1]
            s = self.before[r + 2]
            after = self.after[r]
            for c in range(len(after)):
                sides = (n[c + 1] + s[c + 1]) + (m[c] + m[c + 2])
                corners = (n[c] + n[c + 2]) + (s[c] + s[c + 2])
                after[c] = 0.25 * m[c + 1] + 0.125 * sides + 0.0625 * corners


def engine_run(engine: ab.Engine, start: dict[str, Any], result: str) -> Callable[[], Any]:
    def run() -> Any:
        for name, values in start.items():
            engine[name] = values
        begin = clock()
        engine.run()
        return clock() - begin, lambda: engine[result]

    return run


def loop_run(loop: Callable[..., Any], make: Callable[[], tuple[Any, ...]], result: int) -> Callable[[], Any]:
    def run() -> Any:
        arguments = make()
        begin = clock()
        loop(*arguments)
        return clock() - begin, lambda: arguments[result]

    return run


def saxpy(tiles: int, threads: int) -> Case:
    import codelet_loops as loops

    rows, n, steps = tiles * WORKERS, 6 * 1472 * 160 // (tiles * WORKERS), 400
    x, y = np.random.default_rng(0).random((2, rows, n), dtype=np.float32)
    graph = ab.Graph("bow")
    tx, ty = (graph.variable(f32, (rows, n), name=name).map_rows(np.arange(rows) % tiles) for name in "xy")
    step = graph.compute_set("saxpy")
    step.vertices(Saxpy, tile=np.arange(rows) % tiles, x=tx, y=ty, a=0.01)
    engine = ab.Engine(graph, ab.Repeat(steps, ab.Execute(step)), threads=threads)

    def make() -> tuple[Any, ...]:
        return x.reshape(-1), y.reshape(-1).copy(), np.float32(0.01), steps

    return Case(
        "saxpy",
        f"{rows * n:,} elements, {steps} steps",
        {
            "abele": engine_run(engine, {"x": x, "y": y}, "y"),
            "numba": loop_run(loops.saxpy, make, 1),
            "numpy": loop_run(loops.saxpy_numpy, make, 1),
        },
    )


def dots(tiles: int, threads: int) -> Case:
    import codelet_loops as loops

    rows, n, steps = tiles * WORKERS, 6 * 1472 * 160 // (tiles * WORKERS), 400
    x, y = np.random.default_rng(0).random((2, rows, n), dtype=np.float32)
    graph = ab.Graph("bow")
    tile = np.arange(rows) % tiles
    tx, ty = (graph.variable(f32, (rows, n), name=name).map_rows(tile) for name in "xy")
    out = graph.variable(f32, (rows,), name="out").map_rows(tile)
    step = graph.compute_set("dot")
    step.vertices(Dot, tile=tile, x=tx, y=ty, out=out)
    engine = ab.Engine(graph, ab.Repeat(steps, ab.Execute(step)), threads=threads)

    def make() -> tuple[Any, ...]:
        return x, y, np.empty(rows, np.float32), steps

    return Case(
        "dot products",
        f"{rows:,} of {n}, {steps} steps",
        {
            "abele": engine_run(engine, {"x": x, "y": y}, "out"),
            "numba": loop_run(loops.dots, make, 2),
            "numpy": loop_run(loops.dots_numpy, make, 2),
        },
    )


def grid(tiles: int) -> tuple[int, int]:
    """Blocks down and across for so many tiles: as wide as they can be, since rows are what memory likes."""
    across = 2 if tiles <= 1024 else 4
    return tiles // across, across


def blur(tiles: int, threads: int) -> Case:
    import codelet_loops as loops

    block, start = plate(tiles)
    steps = 100
    graph = ab.Graph("bow")
    images = [graph.variable(f32, start.shape, name=name, initial=start) for name in ("plate", "next plate")]
    for image in images:
        heat.map_blocks(image, block)
    steps_of = [blur_step(graph, *pair, block) for pair in (images, images[::-1])]
    engine = ab.Engine(graph, ab.Repeat(steps // 2, ab.Sequence(*map(ab.Execute, steps_of))), threads=threads)
    return Case(
        "3x3 blur",
        f"{start.shape[0]} x {start.shape[1]}, {steps} steps",
        {
            "abele": engine_run(engine, {"plate": start, "next plate": start}, "plate"),
            "numba": loop_run(loops.blur, lambda: (start.copy(), start.copy(), steps), 0),
            "numpy": loop_run(loops.blur_numpy, lambda: (start.copy(), start.copy(), steps), 0),
        },
    )


def blur_step(graph: ab.Graph, before: ab.Tensor, after: ab.Tensor, block: tuple[int, int]) -> Any:
    (height, width), across = block, (before.shape[1] - 2) // block[1]
    tile = np.arange((before.shape[0] - 2) // height * across)
    top, left = tile // across * height, tile % across * width
    step = graph.compute_set("blur")
    step.vertices(
        Blur,
        tile=tile,
        before=heat.block_rows(before, top, left, height + 2, width + 2),
        after=heat.block_rows(after, top + 1, left + 1, height, width),
    )
    return step


def plate(tiles: int) -> tuple[tuple[int, int], Any]:
    """The block of each tile and the start of a grid of about two million cells that all tiles share."""
    down, across = grid(tiles)
    block = 1472 // down, 1472 // across
    start = np.random.default_rng(0).random((down * block[0] + 2, across * block[1] + 2), dtype=np.float32)
    return block, start


def heat_case(tiles: int, threads: int) -> Case:
    import codelet_loops as loops

    block, start = plate(tiles)
    steps, alpha = 100, np.float32(0.2)
    made = heat.heat(block, steps, float(alpha), "bow", grid(tiles))
    engine = ab.Engine(made.executable, threads=threads)
    return Case(
        "heat 2-D",
        f"{start.shape[0]} x {start.shape[1]}, {steps} steps",
        {
            "abele": engine_run(engine, {"plate": start, "next plate": start}, "plate"),
            "numba": loop_run(loops.heat, lambda: (start.copy(), start.copy(), alpha, steps), 0),
            "numpy": loop_run(loops.heat_numpy, lambda: (start.copy(), start.copy(), alpha, steps), 0),
        },
    )


def flow(tiles: int, threads: int) -> Case:
    import codelet_loops as loops

    down, across = grid(tiles)
    solid = lattice_boltzmann.cylinder((368 // down * down, 736 // across * across))
    steps, omega, force = 100, np.float32(1.6), np.float32(1e-5)
    made = lattice_boltzmann.flow(solid, steps, float(omega), float(force), (down, across))
    engine = ab.Engine(made.executable, threads=threads)
    rest = np.broadcast_to(lattice_boltzmann.WEIGHTS[:, None, None], (9, *solid.shape)).astype(np.float32)
    return Case(
        "LBM D2Q9",
        f"{solid.shape[0]} x {solid.shape[1]}, {steps} steps",
        {
            "abele": engine_run(engine, {"populations": rest}, "populations"),
            "numba": loop_run(loops.flow, lambda: (rest.copy(), rest.copy(), solid, omega, force, steps), 0),
            "numpy": lambda: _timed(lambda: lattice_boltzmann.reference(solid, steps)),
        },
    )


def align(tiles: int, threads: int) -> Case:
    import codelet_loops as loops

    pairs = smith_waterman.proteins(tiles * WORKERS if tiles < 1000 else 2048)
    engine = ab.Engine(smith_waterman.alignment(pairs).executable, threads=threads)
    one, other = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    begin, other_begin = (np.cumsum([0, *(len(pair[side]) for pair in pairs)]) for side in (0, 1))
    scores, best = smith_waterman.similarity().astype(np.int32), np.empty(len(pairs), np.int32)
    gaps = np.int32(11), np.int32(1)
    few = pairs[:: max(1, len(pairs) // 16)]

    def numpy_few() -> Any:
        """A few pairs, scaled up by their share of the cells: all would take minutes."""
        seconds, _ = _timed(lambda: [smith_waterman.reference(*pair) for pair in few])
        cells = [sum(len(a) * len(b) for a, b in some) for some in (pairs, few)]
        return seconds * cells[0] / cells[1], None

    return Case(
        "Smith-Waterman",
        f"{len(pairs):,} pairs",
        {
            "abele": engine_run(engine, {}, "best"),
            "numba": loop_run(loops.align, lambda: (one, begin, other, other_begin, scores, *gaps, best), 7),
            "numpy": numpy_few,
        },
        exact=True,
    )


def _timed(run: Callable[[], Any]) -> Any:
    begin = clock()
    result = run()
    return clock() - begin, lambda: result


CASES = {
    "saxpy": saxpy,
    "dots": dots,
    "blur": blur,
    "heat": heat_case,
    "flow": flow,
    "align": align,
}


def measure(case: Case) -> dict[str, float]:
    """Shortest time of each way to run the case, after a check that all give the same."""
    results = {name: run()[1] for name, run in case.runs.items()}
    wanted = results["abele"]()
    for name, result in results.items():
        if result is not None:
            got = np.reshape(result(), wanted.shape)
            same = np.array_equal(wanted, got) if case.exact else np.allclose(wanted, got, rtol=2e-4)
            assert same, f"{case.name}: {name} gives something else"
    best = dict.fromkeys(case.runs, np.inf)
    for turn in range(TURNS):
        for name, run in case.runs.items():
            if turn < 3 or name != "numpy" or best[name] < 1:
                best[name] = min(best[name], run()[0])
    return best


def table(names: list[str], tiles: list[int], threads: int) -> Iterator[dict[str, Any]]:
    for name in names:
        for count in tiles:
            case = CASES[name](count, threads)
            yield {"case": case.name, "size": case.size, "tiles": count, **measure(case)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiles", type=int, nargs="+", default=[64, 368, 1472])
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    arguments = parser.parse_args()
    if arguments.cpu:
        global clock
        clock = time.process_time
    os.environ["NUMBA_NUM_THREADS"] = str(arguments.threads)  # idle threads of its pool cost processor time
    hold_numba()
    import numba

    numba.set_num_threads(arguments.threads)
    rows = []
    if not arguments.json:
        print(f"codelets on this host, {cpu_of_both()}\n")
        print("| workload | size | tiles | abele | Numba | NumPy | Numba / abele | NumPy / abele |")
        print("|---|---|---|---|---|---|---|---|")
    for row in table(arguments.only, arguments.tiles, arguments.threads):
        rows.append(row)
        if not arguments.json:
            ours, theirs, plain = row["abele"], row["numba"], row["numpy"]
            times = " | ".join(f"{1e3 * t:.2f} ms" for t in (ours, theirs, plain))
            print(
                f"| {row['case']} | {row['size']} | {row['tiles']:,} | {times} | "
                f"{theirs / ours:.2f} | {plain / ours:.2f} |",
                flush=True,
            )
    if arguments.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
