"""Models that people bring, trained here: does each run, how exactly, how fast beside PyTorch, and on the machine.

Every model of ``model_zoo`` runs in a process of its own: three steps of SGD with momentum on random weights and data,
by Abele, by eager PyTorch and by ``torch.compile``, then timed turns of the same three steps. With --json one object is
printed, {"rows": [...]}; a row has

- ``error``: the difference of all weights from eager's after the first three steps, over the length of eager's own way;
- ``noise``: where that is large, the same of eager from float64: deep networks with random weights amplify rounding,
  and there no two programs agree;
- ``works``: the error is below the tolerance, or below three times the noise;
- ``compile_s``, ``peak_gb``: what the first call of Abele takes, in processor seconds, and in memory over that of the
  process before;
- ``abele``, ``eager``, ``compile``: samples/s here, and ``modelled``: on one IPU of a Bow-2000, null where the model
  does not fit on it.

    python benchmarks/models.py [--model NAME ...] [--only abele eager] [--cpu --threads 1] [--half] [--json]

Packages beside PyTorch (extra ``models``): torchvision, timm, transformers, torch_geometric; none downloads anything.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from typing import Any

import torch
from lesser_cpu import cpu_of_both, hold_pytorch
from model_zoo import MODELS, ModelEntry
from rich.console import Console
from rich.table import Table
from rows_output import print_rows

STEPS = 3
CONTESTANTS = ("abele", "eager", "compile")
ROUNDING = 2.0**-20
"""Relative rounding error of a sum of a thousand float32 products: the root of a thousand roundings of 2⁻²⁴ or so."""
STRIDE = 0.03
"""Distance that the first step moves all weights together: networks with random weights have gradients of 0.1 to
1,000.
"""

Contestant = Callable[[], Any]


class Marked(torch.nn.Module):
    """A model whose loss is marked as such: PopTorch's rule where it is more than one of PyTorch's losses."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.inner = model

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and loss."""
        from abele import poptorch

        output, loss = self.inner(*tensors)
        return output, poptorch.identity_loss(loss, reduction="none")


def batches_for(entry: ModelEntry, model: torch.nn.Module, count: int) -> list[tuple[torch.Tensor, ...]]:
    """Batches whose real numbers have the type of the model's weights."""
    kind = next(model.parameters()).dtype
    return [tuple(t.to(kind) if t.is_floating_point() else t for t in batch) for batch in entry.batches(count)]


def abele_contestant(entry: ModelEntry, model: torch.nn.Module, lr: float, threads: int) -> tuple[Contestant, Any]:
    """Training through Abele's PopTorch front end, and the wrapper."""
    from abele import poptorch

    options = poptorch.Options().deviceIterations(STEPS)
    options.Abele.threads(threads)
    options.Abele.allowOutOfMemory()  # the host is measured, whether or not the modelled chip has room
    training = poptorch.trainingModel(Marked(model), options, torch.optim.SGD(model.parameters(), lr, momentum=0.9))
    inputs = [torch.cat(parts) for parts in zip(*batches_for(entry, model, STEPS), strict=True)]
    return lambda: training(*inputs), training


def loop_contestant(entry: ModelEntry, model: torch.nn.Module, lr: float, *, compiled: bool = False) -> Contestant:
    """The usual loop of PyTorch, compiled or not."""
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    batches = batches_for(entry, model, STEPS)
    forward = torch.compile(model, dynamic=False) if compiled else model
    update = torch.compile(optimizer.step, dynamic=False) if compiled else optimizer.step

    def run() -> None:
        for batch in batches:
            optimizer.zero_grad()
            forward(*batch)[-1].backward()
            update()

    return run


def learning_rate(entry: ModelEntry, model: torch.nn.Module) -> float:
    """The rate with which the first step moves the weights by ``STRIDE``."""
    twin = copy.deepcopy(model).float()
    twin(*entry.batches(1)[0])[-1].backward()
    squares = sum(float(p.grad.double().square().sum()) for p in twin.parameters() if p.grad is not None)
    return STRIDE / squares**0.5


def difference(start: torch.nn.Module, ours: torch.nn.Module, theirs: torch.nn.Module) -> float:
    """Distance of our weights from PyTorch's, over the distance that these went."""
    off = gone = 0.0
    for begin, a, b in zip(start.parameters(), ours.parameters(), theirs.parameters(), strict=True):
        off += float((a.detach() - b.detach()).double().square().sum())
        gone += float((b.detach() - begin.detach()).double().square().sum())
    return (off / gone) ** 0.5 if gone else off**0.5


def noise(entry: ModelEntry, start: torch.nn.Module, theirs: torch.nn.Module, lr: float) -> float | None:
    """Distance that roundings take PyTorch's own weights in as many steps; None where it cannot be told.

    The larger of two figures: eager PyTorch in float32 against float64, and float64 against float64 from weights that
    differ by what sums of a thousand products round. Where an activation lies next to 0, or two next to each other in a
    pool, roundings decide which way its gradient goes; whether PyTorch's own meet such a place is luck.
    """
    exact, nudged = copy.deepcopy(start).double(), copy.deepcopy(start).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in nudged.parameters():
            weight *= 1 + ROUNDING * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    try:
        for model in (exact, nudged):
            loop_contestant(entry, model, lr)()
    except RuntimeError:  # code that makes float32 tensors of its own
        return None
    return max(difference(start, theirs, exact), difference(start, nudged, exact))


def peak_bytes() -> int:
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024


def measure(entry: ModelEntry, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row, in this process."""
    row: dict[str, Any] = {"model": entry.name, "works": False, "error": None, "noise": None, "abele": None}
    row |= dict.fromkeys(("eager", "compile", "compile_s", "peak_gb", "modelled", "why"))
    start = entry.model().half() if arguments.half else entry.model()
    lr = learning_rate(entry, start)
    theirs, ours = copy.deepcopy(start), copy.deepcopy(start)
    eager = loop_contestant(entry, theirs, lr)
    eager()
    ready: dict[str, Contestant] = {}
    if "abele" in arguments.only:
        try:
            before, began = peak_bytes(), time.process_time()
            run, training = abele_contestant(entry, ours, lr, arguments.threads)
            run()
            row["compile_s"] = round(time.process_time() - began, 2)
            row["peak_gb"] = round((peak_bytes() - before) / 2**30, 3)
            row["error"] = difference(start, training.model, theirs)
            if row["error"] > arguments.tolerance:
                row["noise"] = noise(entry, start, theirs, lr)
            row["works"] = row["error"] < max(arguments.tolerance, 3 * (row["noise"] or 0))
            report = training.report()
            rows = entry.batches(1)[0][0].shape[0]  # what the report takes to be samples: nodes, of a graph
            row["modelled"] = round(report.samples_per_second / rows * entry.batch) if report.memory.fits else None
            ready["abele"] = run
        except Exception as error:
            row["why"] = f"{type(error).__name__}: {error}"
    if "eager" in arguments.only:
        ready["eager"] = eager
    if "compile" in arguments.only:
        try:
            ready["compile"] = loop_contestant(entry, copy.deepcopy(start), lr, compiled=True)
            ready["compile"]()
        except Exception as error:
            print(f"{entry.name}: torch.compile cannot run here: {str(error).splitlines()[0]}", file=sys.stderr)
            ready.pop("compile")
    return row | rates(entry, ready, arguments)


def rates(entry: ModelEntry, ready: dict[str, Contestant], arguments: argparse.Namespace) -> dict[str, float]:
    """Samples per second of each contestant, the best of turns that they take."""
    clock = time.process_time if arguments.cpu else time.perf_counter
    best: dict[str, float] = {}
    for number in range(arguments.rounds + 1):
        for name, run in ready.items():
            began = clock()
            run()
            if number:  # the first turn warms up
                best[name] = min(best.get(name, float("inf")), clock() - began)
    return {name: round(entry.batch * STEPS / seconds, 2) for name, seconds in best.items()}


def in_a_process(entry: ModelEntry, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row, from a process of its own; a crash or a timeout is a row too."""
    missing = [package for package in entry.needs if importlib.util.find_spec(package) is None]
    if missing:
        return {"model": entry.name, "works": None, "why": f"needs {', '.join(missing)}"}
    command = [sys.executable, __file__, *sys.argv[1:], "--inside", entry.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.limit)
    except subprocess.TimeoutExpired:
        return {"model": entry.name, "works": False, "why": f"took more than {arguments.limit} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:
        row: dict[str, Any] = json.loads(lines[-1])
        return row
    last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
    return {"model": entry.name, "works": False, "why": last[0]}


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, and the geometric means."""
    title = f"models, trained on this host, {cpu_of_both()}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    headings = (
        "model",
        "error",
        "noise",
        "abele",
        "eager",
        "compile",
        "/eager",
        "/compile",
        "compile s",
        "GB",
        "modelled",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for row in rows:
        table.add_row(*_cells(row))
    console = Console(width=150)
    console.print(table)
    for row in rows:
        if not row["works"]:
            console.print(
                f"[bold]{row['model']}[/bold]: {(row.get('why') or 'not exact').splitlines()[0]}", highlight=False
            )
    for name in CONTESTANTS[1:]:
        ratios = [row["abele"] / row[name] for row in rows if row.get("abele") and row.get(name)]
        if ratios:
            mean, least = statistics.geometric_mean(ratios), min(ratios)
            console.print(f"{len(ratios)} models against {name}: geometric mean {mean:.2f}x, least {least:.2f}x")


def _cells(row: dict[str, Any]) -> list[str]:
    def number(name: str, form: str) -> str:
        return format(row[name], form) if row.get(name) is not None else "–"

    def ratio(name: str) -> str:
        return f"{row['abele'] / row[name]:.2f}" if row.get("abele") and row.get(name) else "–"

    speeds = [number(name, ",.1f") for name in CONTESTANTS]
    costs = [number("compile_s", ".1f"), number("peak_gb", ".2f"), number("modelled", ",d")]
    return [
        row["model"],
        number("error", ".0e"),
        number("noise", ".0e"),
        *speeds,
        ratio("eager"),
        ratio("compile"),
        *costs,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=[entry.name for entry in MODELS], metavar="NAME")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--rounds", type=int, default=3, help="timed turns of each contestant")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="host threads of each")
    parser.add_argument("--tolerance", type=float, default=1e-2, help="greatest error of a model that works")
    parser.add_argument("--limit", type=int, default=900, help="seconds that one model may take")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    parser.add_argument("--half", action="store_true", help="weights, inputs and arithmetic in float16, on both sides")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    hold_pytorch()
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")
    if arguments.inside:
        (entry,) = (e for e in MODELS if e.name == arguments.inside)
        print(json.dumps(measure(entry, arguments)))
        return
    rows = []
    for entry in MODELS:
        if entry.name in (arguments.model or [entry.name]):
            rows.append(in_a_process(entry, arguments))
            print(json.dumps(rows[-1]), file=sys.stderr)
    print_rows(rows, show, as_json=arguments.json)


if __name__ == "__main__":
    main()
