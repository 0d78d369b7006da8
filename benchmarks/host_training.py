"""Samples per second of training on this host: Abele, PyTorch eager and torch.compile, same threads, one run.

The contestants take turns; each one's best round counts. All use one optimiser and the same batches in the same order.
Some workloads are measured only where --workload names them. On a busy machine, --cpu with --threads 1 times by the
process's own processor time. With --json one object is printed, {"rows": [...]}, each row with ``workload``, ``batch``,
``threads`` and samples/s of ``abele``, ``eager``, ``eager_flush_denormal`` and ``compile`` (null where it cannot run).
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from lesser_cpu import cpu_of_both, hold_pytorch
from rich.console import Console
from rich.table import Table
from rows_output import print_rows
from workloads import DEFAULTS, WORKLOADS, Workload

from abele.errors import AbeleError

COLUMNS = ("abele", "eager", "eager_flush_denormal", "compile")

Contestant = Callable[[], None]


def abele_contestant(work: Workload, threads: int) -> Contestant:
    """Training through Abele's PopTorch front end: all steps of a call run on the device."""
    from abele import poptorch

    options = poptorch.Options().deviceIterations(work.steps)
    options.Abele.threads(threads)
    options.Abele.allowOutOfMemory()  # the host is measured, whether or not the modelled chip has room
    model = work.model()
    optimizer = work.optimizer(model.parameters())
    training = poptorch.trainingModel(model, options, optimizer=optimizer)
    x, target = work.samples()
    return lambda: training(x, target)


def eager_contestant(work: Workload) -> Contestant:
    """The usual PyTorch training loop."""
    model = work.model()
    optimizer = work.optimizer(model.parameters())
    return training_loop(work, model, optimizer.step, optimizer.zero_grad)


def flushing_contestant(work: Workload) -> Contestant:
    """The same with denormal numbers flushed to zero."""
    eager = eager_contestant(work)

    def run() -> None:
        torch.set_flush_denormal(True)
        try:
            eager()
        finally:
            torch.set_flush_denormal(False)

    return run


def compiled_contestant(work: Workload) -> Contestant:
    """The same with model, loss and optimiser step compiled."""
    torch._dynamo.reset()  # a workload's code would count as that of the one before, compiled again
    model = work.model()
    optimizer = work.optimizer(model.parameters())
    step = torch.compile(optimizer.step, dynamic=False)
    return training_loop(work, torch.compile(model, dynamic=False), step, optimizer.zero_grad)


def training_loop(
    work: Workload, model: Callable[..., Any], update: Callable[[], Any], clear: Callable[[], None]
) -> Contestant:
    """A function that trains one call's worth of batches."""
    x, target = work.samples()
    batches = list(zip(x.split(work.batch), target.split(work.batch), strict=True))

    def run() -> None:
        for inputs, labels in batches:
            clear()
            _, loss = model(inputs, labels)
            loss.backward()
            update()

    return run


def contestants(work: Workload, threads: int, wanted: list[str]) -> dict[str, Contestant]:
    """The contestants that can run here, warmed up."""
    makers: dict[str, Callable[[], Contestant]] = {
        "abele": lambda: abele_contestant(work, threads),
        "eager": lambda: eager_contestant(work),
        "eager_flush_denormal": lambda: flushing_contestant(work),
        "compile": lambda: compiled_contestant(work),
    }
    ready = {}
    for name in wanted:
        contestant = makers[name]()
        try:
            contestant()
            contestant()
        except (torch._dynamo.exc.BackendCompilerFailed, AbeleError, RuntimeError) as error:
            print(f"{work.name}: {name} cannot run here: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        ready[name] = contestant
    return ready


def measure(work: Workload, threads: int, rounds: int, wanted: list[str], clock: Callable[[], float]) -> dict[str, Any]:
    """One row of the result."""
    ready = contestants(work, threads, wanted)
    seconds: dict[str, list[float]] = {name: [] for name in ready}
    gc.disable()
    for _ in range(rounds):
        for name, contestant in ready.items():
            start = clock()
            contestant()
            seconds[name].append(clock() - start)
    gc.enable()
    samples = work.batch * work.steps
    rates = {name: round(samples / min(seconds[name]), 1) if name in seconds else None for name in COLUMNS}
    spread = {name: round(statistics.median(taken) / min(taken), 3) for name, taken in seconds.items()}
    return {"workload": work.name, "batch": work.batch, "threads": threads, **rates, "median_over_best": spread}


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, with Abele's advantage over each (flush: eager with denormals flushed to zero)."""
    title = f"training on this host, samples/s, {cpu_of_both()}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("workload", "batch", "abele", "eager", "flush", "compile", "/eager", "/flush", "/compile"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for row in rows:
        rates = [f"{row[name]:,.0f}" if row[name] else "–" for name in COLUMNS]
        ratios = [f"{row['abele'] / row[n]:.2f}x" if row["abele"] and row[n] else "–" for n in COLUMNS[1:]]
        table.add_row(row["workload"], str(row["batch"]), *rates, *ratios)
    console = Console()
    console.print(table)
    for name in COLUMNS[1:]:
        ratios = [row["abele"] / row[name] for row in rows if row["abele"] and row[name]]
        if ratios:
            console.print(
                f"geometric mean of {len(ratios)} rows against {name}: {statistics.geometric_mean(ratios):.2f}x"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="host threads of each")
    parser.add_argument("--rounds", type=int, default=7, help="timed turns of each contestant")
    parser.add_argument("--workload", action="append", choices=[work.name for work in WORKLOADS])
    parser.add_argument("--only", action="append", choices=COLUMNS, help="measure only these")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    arguments = parser.parse_args()
    hold_pytorch()
    clock = time.process_time if arguments.cpu else time.perf_counter
    torch.set_num_threads(arguments.threads)
    chosen = [work for work in WORKLOADS if work.name in (arguments.workload or [w.name for w in DEFAULTS])]
    wanted = arguments.only or list(COLUMNS)
    rows = [measure(work, arguments.threads, arguments.rounds, wanted, clock) for work in chosen]
    print_rows(rows, show, as_json=arguments.json)


if __name__ == "__main__":
    main()
