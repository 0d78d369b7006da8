"""Models of ONNX files: ours beside onnxruntime, and beside the same network by PyTorch, in one process, two threads.

    python benchmarks/onnx_models.py [--json] [--only PART_OF_NAME …] [--dynamo] [--seconds 1.0]

Each network of the model zoo is exported by PyTorch, read, and run on the arrays that it was exported with. Printed for
each: the largest difference from PyTorch's own results over their largest element, the seconds of reading and of the
first call, the median time of a call, onnxruntime's time over it, PopTorch's time over it (the same network captured
from PyTorch), and the cycles and the bytes of the fullest tile over the capture's. Sides take turns. What is not
installed (onnxruntime, onnxscript for ``--dynamo``, packages of networks) is left out, as are networks that PyTorch
does not export. The bars are a time of 0.8 of onnxruntime's, cycles within 3 % and bytes within 5 % of the capture's;
the rows that miss one are marked.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model_zoo import MODELS, ModelEntry
from rich.console import Console
from rich.table import Table

from abele import onnx as abele_onnx
from abele import poptorch

THREADS = 2
LEAST, CYCLES, BYTES = 0.8, 0.03, 0.05
"""Bars: onnxruntime's time over ours; distance of cycles and of bytes from the capture's, as parts of these."""


@dataclass(frozen=True)
class Row:
    """One network.

    Attributes:
        name: Its name.
        error: Largest difference from PyTorch's results, over their largest element.
        load_seconds: Reading the file.
        first_seconds: The first call, which compiles.
        call_seconds: Median call.
        onnxruntime: Its median call over ours; None where it is not installed.
        poptorch: The captured network's median call over ours.
        cycles: Modelled cycles over the captured network's.
        bytes: Bytes of the fullest tile over the captured network's.
    """

    name: str
    error: float
    load_seconds: float
    first_seconds: float
    call_seconds: float
    onnxruntime: float | None
    poptorch: float
    cycles: float
    bytes: float

    @property
    def misses(self) -> tuple[str, ...]:
        """Bars that it misses."""
        return tuple(
            name
            for name, missed in {
                "speed": self.onnxruntime is not None and self.onnxruntime < LEAST,
                "cycles": abs(self.cycles - 1) > CYCLES,
                "bytes": abs(self.bytes - 1) > BYTES,
            }.items()
            if missed
        )


def in_turns(seconds: float, *calls: Callable[[], Any]) -> list[float]:
    """Median time of each of several calls, which take turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(taken[0]) < 3:
        for number, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            taken[number].append(time.perf_counter() - begin)
    return [statistics.median(each) for each in taken]


def measured(entry: ModelEntry, folder: Path, *, dynamo: bool, seconds: float) -> Row:
    """A network of the zoo, exported and measured."""
    model, inputs = entry.model().eval(), entry.batches(1)[0]
    path = folder / f"{entry.name}.onnx"
    options: dict[str, Any] = {"dynamo": True} if dynamo else {"dynamo": False, "opset_version": 17}
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(model, inputs, str(path), verbose=False, **options)
    with torch.no_grad():
        wanted = [t.double().numpy() for t in torch.utils._pytree.tree_leaves(model(*inputs)) if torch.is_tensor(t)]
    begin = time.perf_counter()
    ours = abele_onnx.load(path).configure(threads=THREADS)
    loaded = time.perf_counter()
    feeds = {port.name: tensor.numpy() for port, tensor in zip(ours.inputs, inputs, strict=False)}
    made = list(ours.infer(feeds).values())
    first = time.perf_counter()
    largest = max(
        float(np.abs(a.astype(float) - b).max() / max(np.abs(b).max(), 1e-9))
        for a, b in zip(made, wanted, strict=False)
    )
    captured_options = poptorch.Options()
    captured_options.Abele.threads(THREADS).allowOutOfMemory()
    captured = poptorch.inferenceModel(model, captured_options)
    captured(*inputs)
    calls: list[Callable[[], Any]] = [lambda: ours.infer(feeds), lambda: captured(*inputs)]
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = THREADS
        other = onnxruntime.InferenceSession(str(path), settings)
        calls.append(lambda: other.run(None, feeds))
    times = in_turns(seconds, *calls)
    reports = ours.report, captured.report()
    cycles, needed = ([of(r) for r in reports] for of in (_cycles, _bytes))
    return Row(
        entry.name,
        largest,
        loaded - begin,
        first - loaded,
        times[0],
        times[2] / times[0] if len(times) > 2 else None,
        times[1] / times[0],
        cycles[0] / cycles[1],
        needed[0] / needed[1],
    )


def _cycles(report: Any) -> float:
    return float(report.total_cycles)


def _bytes(report: Any) -> float:
    return float(report.memory_use().bytes)


def table(rows: Sequence[Row]) -> Table:
    """Rows as they are printed."""
    made = Table(title="ONNX models; onnxruntime's and PopTorch's time over ours, cycles and bytes over PopTorch's")
    for column in ("model", "error", "load s", "first s", "call ms", "ort", "poptorch", "cycles", "bytes", "misses"):
        made.add_column(column, justify="left" if column in ("model", "misses") else "right")
    for row in rows:
        numbers = (
            f"{row.error:.0e}",
            f"{row.load_seconds:.2f}",
            f"{row.first_seconds:.1f}",
            f"{row.call_seconds * 1e3:.2f}",
            "-" if row.onnxruntime is None else f"{row.onnxruntime:.2f}",
            f"{row.poptorch:.2f}",
            f"{row.cycles:.3f}",
            f"{row.bytes:.3f}",
        )
        made.add_row(row.name, *numbers, " ".join(row.misses))
    return made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of networks")
    parser.add_argument("--dynamo", action="store_true", help="export by torch.export, which needs onnxscript")
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each side")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(THREADS)
    console, rows = Console(stderr=True), []
    with tempfile.TemporaryDirectory() as folder:
        for entry in MODELS:
            if options.only and not any(part in entry.name for part in options.only):
                continue
            absent = [name for name in entry.needs if importlib.util.find_spec(name) is None]
            if absent:
                console.print(f"{entry.name}: left out, {', '.join(absent)} is not installed")
                continue
            try:
                rows.append(measured(entry, Path(folder), dynamo=options.dynamo, seconds=options.seconds))
            except Exception as error:
                console.print(f"{entry.name}: left out, {type(error).__name__}: {str(error).splitlines()[0][:120]}")
    print(json.dumps([asdict(row) for row in rows])) if options.json else Console(width=120).print(table(rows))


if __name__ == "__main__":
    main()
