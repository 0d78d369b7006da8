"""Library functions run by host kernels against PyTorch eager: same sizes, same number of threads, one process.

    python benchmarks/library.py [--json] [--threads 2] [--cpu] [--only PART_OF_NAME]

Rates are medians of alternating rounds; ``ratio`` is the median of the ratios of neighbouring rounds, above 1 where
Abele is faster. On a busy machine, --cpu with --threads 1 times by the process's own processor time. Both sides flush
denormals. Freed memory stays in the process: PyTorch makes its result anew every time, and would otherwise be timed
with the page faults of large ones, which Abele's fixed storage does not have.
Every function is built for a chip of 64 tiles and run in native mode.
With --json one object is printed: {"rows": [...]} with ``function``, ``unit``, ``abele``, ``torch``, ``ratio``,
``build_seconds`` and ``threads``; or ``error`` for a function that could not be run.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from lesser_cpu import cpu_of_both, hold_pytorch
from library_cases import Case, all_cases
from library_layers import all_layers
from library_more import all_more
from library_rows import all_row_cases
from rich.console import Console
from rich.table import Table

from abele.errors import AbeleError
from abele.graph import Graph, Repeat, Sequence
from abele.machine import System, systems
from abele.runtime import Engine

NUM_TILES = 64
Clock = Callable[[], float]
_MALLOPT = {-1: (1 << 31) - 1, -2: 1 << 28, -3: 1 << 30}
"""glibc's mallopt: M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD in bytes. Source: malloc.h."""


def small_chip() -> System:
    """One chip of few tiles: natively, tiles cost time to compile and none to run."""
    whole = systems.get("bow")
    return replace(whole, ipu=replace(whole.ipu, num_tiles=NUM_TILES), num_ipus=1)


def abele_engine(case: Case, threads: int, rounds: int, data: dict[str, torch.Tensor]) -> Engine:
    """An engine whose run carries the function out ``rounds`` times, with its inputs in place."""
    graph, once = Graph(small_chip()), Sequence()
    inputs, outputs = case.build(graph, once)
    engine = Engine(
        graph, Repeat(rounds, once), threads=threads, allow_out_of_memory=True, keep=[*inputs.values(), *outputs]
    )
    for name, tensor in inputs.items():
        engine[tensor] = data[name].numpy()
    return engine


def seconds_of(step: Callable[[], Any], clock: Clock, count: int = 1) -> float:
    """Seconds of one of ``count`` turns."""
    start = clock()
    for _ in range(count):
        step()
    return (clock() - start) / count


def measure(case: Case, threads: int, repeats: int, round_seconds: float, clock: Clock) -> dict[str, Any]:
    """One row of the table."""
    torch.manual_seed(0)
    data = case.data()
    reference = case.reference(data)
    row: dict[str, Any] = {"function": case.name, "unit": case.unit, "threads": threads}
    reference()
    rounds = max(1, int(round_seconds / seconds_of(reference, clock)))
    start = time.perf_counter()
    try:
        engine = abele_engine(case, threads, rounds, data)
    except AbeleError as error:
        return row | {"error": str(error).splitlines()[0]}
    with engine:
        row["build_seconds"] = round(time.perf_counter() - start, 2)
        engine.run()
        ours, theirs = [], []
        for _ in range(repeats):
            ours.append(seconds_of(engine.run, clock) / rounds)
            theirs.append(seconds_of(reference, clock, rounds))
    row["abele"] = round(case.work / statistics.median(ours) / 1e9, 2)
    row["torch"] = round(case.work / statistics.median(theirs) / 1e9, 2)
    row["ratio"] = round(statistics.median(b / a for a, b in zip(ours, theirs, strict=True)), 2)
    return row


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Print the rows as a table."""
    title = f"library functions on this host, {cpu_of_both()}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("function", "unit", "abele", "torch", "ratio", "build s"):
        table.add_column(heading, justify="left" if heading in ("function", "unit") else "right")
    for row in rows:
        if "error" in row:
            table.add_row(row["function"], row["error"])
            continue
        figures = (f"{row['abele']:,.1f}", f"{row['torch']:,.1f}", f"{row['ratio']:.2f}", f"{row['build_seconds']:.2f}")
        table.add_row(row["function"], row["unit"], *figures)
    console.print(table)
    if ratios := [row["ratio"] for row in rows if row.get("ratio")]:
        mean, low = statistics.geometric_mean(ratios), sum(ratio < 0.95 for ratio in ratios)
        console.print(f"{len(ratios)} functions: geometric mean {mean:.2f}, {low} below 0.95, least {min(ratios):.2f}")


def keep_freed_memory() -> None:
    """Let the C library's allocator give nothing back to the system, where it is glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for option, value in _MALLOPT.items() if mallopt is not None else ():
        mallopt(option, value)


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="host threads of each")
    parser.add_argument("--repeats", type=int, default=5, help="timed turns of each side")
    parser.add_argument("--round-seconds", type=float, default=0.15, help="what one turn lasts, of functions run again")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    parser.add_argument("--only", action="append", default=[], help="functions with this in their name")
    arguments = parser.parse_args()
    hold_pytorch()
    keep_freed_memory()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.set_grad_enabled(False)
    chosen = [
        c
        for c in (*all_cases(), *all_layers(), *all_more(), *all_row_cases())
        if not arguments.only or any(word in c.name for word in arguments.only)
    ]
    clock = time.process_time if arguments.cpu else time.perf_counter
    rows = [measure(case, arguments.threads, arguments.repeats, arguments.round_seconds, clock) for case in chosen]
    if arguments.json:
        print(json.dumps({"rows": rows}))
    else:
        show(rows, Console())


if __name__ == "__main__":
    main()
