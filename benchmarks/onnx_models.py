"""Models of ONNX files: ours beside onnxruntime, and beside the same network by PyTorch, in one process.

    python benchmarks/onnx_models.py [--only PART_OF_NAME …] [--exporter script dynamo] [--seconds 1.0]
        [--clock wall processor] [--rows FILE]
    python benchmarks/onnx_models.py --show FILE [--markdown]

Each network of the model zoo, and those of ``onnx_networks``, is exported by PyTorch, read, and run on the arrays that
it was exported with. Printed for each: the largest difference from PyTorch's own results over their largest element,
the seconds of reading and of the first call, the shortest time of a call, onnxruntime's shortest time over it,
PopTorch's over it (the same network captured from PyTorch), and the cycles and the bytes of the fullest tile over the
capture's. Sides take turns, and the shortest time of each counts. By the wall's clock all have two threads; by the
processor's, which other work on the machine hardly disturbs, one, so that nothing waits at barriers.

What is not installed (onnxruntime, onnxscript for ``dynamo``, packages of networks) is left out, as are networks that
PyTorch does not export. The bars are an error of 1e-4, a time of 0.8 of onnxruntime's, cycles within 3 % and bytes
within 5 % of the capture's; the rows that miss one are marked. ``--rows`` adds each row to a file as soon as it is
measured, which ``--show`` prints.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model_zoo import MODELS, ModelEntry
from onnx_networks import NETWORKS
from rich.console import Console
from rich.table import Table

from abele import onnx as abele_onnx
from abele import poptorch

THREADS = {"wall": 2, "processor": 1}
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
ERROR, LEAST, CYCLES, BYTES = 1e-4, 0.8, 0.03, 0.05
"""Bars: error; onnxruntime's time over ours; distance of cycles and of bytes from the capture's, as parts of these."""
EXPORTERS: dict[str, dict[str, Any]] = {"script": {"dynamo": False, "opset_version": 17}, "dynamo": {"dynamo": True}}
"""Options of each of PyTorch's exporters."""


@dataclass(frozen=True)
class Row:
    """One network.

    Attributes:
        name: Its name.
        exporter: The exporter.
        error: Largest difference from PyTorch's results, over their largest element.
        load_seconds: Reading the file.
        first_seconds: The first call, which compiles.
        call_seconds: Shortest call.
        onnxruntime: Its shortest call over ours; None where it is not installed.
        poptorch: The captured network's shortest call over ours.
        cycles: Modelled cycles over the captured network's.
        bytes: Bytes of the fullest tile over the captured network's.
    """

    name: str
    exporter: str
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
                "values": not self.error <= ERROR,
                "speed": self.onnxruntime is not None and self.onnxruntime < LEAST,
                "cycles": abs(self.cycles - 1) > CYCLES,
                "bytes": abs(self.bytes - 1) > BYTES,
            }.items()
            if missed
        )


def in_turns(seconds: float, *calls: Callable[[], Any], clock: str = "wall") -> list[float]:
    """Shortest time of each of several calls, which take turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(taken[0]) < 3:
        for number, call in enumerate(calls):
            begin = CLOCKS[clock]()
            call()
            taken[number].append(CLOCKS[clock]() - begin)
    return [min(each) for each in taken]


def measured(entry: ModelEntry, folder: Path, exporter: str, *, seconds: float, clock: str) -> Row:
    """A network of the zoo, exported and measured."""
    threads = THREADS[clock]
    model, inputs = entry.model().eval(), entry.batches(1)[0]
    path = folder / f"{entry.name}.onnx"
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(model, inputs, str(path), verbose=False, **EXPORTERS[exporter])
    with torch.no_grad():
        wanted = [t.double().numpy() for t in torch.utils._pytree.tree_leaves(model(*inputs)) if torch.is_tensor(t)]
    begin = time.perf_counter()
    ours = abele_onnx.load(path).configure(threads=threads)
    loaded = time.perf_counter()
    feeds = {port.name: tensor.numpy() for port, tensor in zip(ours.inputs, inputs, strict=False)}
    made = list(ours.infer(feeds).values())
    first = time.perf_counter()
    largest = max(
        float(np.abs(a.astype(float) - b).max() / max(np.abs(b).max(), 1e-9))
        for a, b in zip(made, wanted, strict=False)
    )
    captured_options = poptorch.Options()
    captured_options.Abele.threads(threads).allowOutOfMemory()
    captured = poptorch.inferenceModel(model, captured_options)
    captured(*inputs)
    calls: list[Callable[[], Any]] = [lambda: ours.infer(feeds), lambda: captured(*inputs)]
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        other = onnxruntime.InferenceSession(str(path), settings)
        calls.append(lambda: other.run(None, feeds))
    times = in_turns(seconds, *calls, clock=clock)
    reports = ours.report, captured.report()
    cycles, needed = ([of(r) for r in reports] for of in (_cycles, _bytes))
    return Row(
        entry.name,
        exporter,
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


COLUMNS = ("model", "exporter", "error", "load s", "first s", "call ms", "ort", "poptorch", "cycles", "bytes", "misses")


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, column by column."""
    return (
        row.name,
        row.exporter,
        f"{row.error:.0e}",
        f"{row.load_seconds:.2f}",
        f"{row.first_seconds:.1f}",
        f"{row.call_seconds * 1e3:.3g}",
        "-" if row.onnxruntime is None else f"{row.onnxruntime:.2f}",
        f"{row.poptorch:.2f}",
        f"{row.cycles:.3f}",
        f"{row.bytes:.3f}",
        " ".join(row.misses),
    )


def table(rows: Sequence[Row]) -> Table:
    """Rows as they are printed."""
    made = Table(title="ONNX models; onnxruntime's and PopTorch's time over ours, cycles and bytes over PopTorch's")
    for column in COLUMNS:
        made.add_column(column, justify="left" if column in ("model", "exporter", "misses") else "right")
    for row in rows:
        made.add_row(*cells(row))
    return made


def markdown(rows: Sequence[Row]) -> str:
    """Rows as a table of a page."""
    lines = [COLUMNS, tuple("---" if c in ("model", "exporter", "misses") else "---:" for c in COLUMNS)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [*lines, *map(cells, rows)])


def entries() -> list[ModelEntry]:
    """Networks of the zoo, and those of this benchmark alone."""
    return [*MODELS, *NETWORKS]


def rows_of(chosen: Sequence[str], exporters: Sequence[str], console: Console, **how: Any) -> Iterator[Row]:
    """Rows of networks whose names have one of these parts, or of all; what is left out is printed."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in entries():
            if chosen and not any(part in entry.name for part in chosen):
                continue
            absent = [name for name in entry.needs if importlib.util.find_spec(name) is None]
            if absent:
                console.print(f"{entry.name}: left out, {', '.join(absent)} is not installed")
                continue
            for exporter in exporters:
                try:
                    yield measured(entry, Path(folder), exporter, **how)
                except Exception as error:
                    said = (str(error).splitlines() or [""])[0][:120]
                    console.print(f"{entry.name}, {exporter}: left out, {type(error).__name__}: {said}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of networks")
    parser.add_argument("--exporter", nargs="*", default=["script"], choices=list(EXPORTERS))
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each side")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--rows", type=Path, help="file that takes each row as a line of JSON")
    parser.add_argument("--show", type=Path, help="print the rows of such a file instead of measuring")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(THREADS[options.clock])
    rows: list[Row] = []
    if options.show:
        rows = [Row(**json.loads(line)) for line in options.show.read_text().splitlines()]
    else:
        for row in rows_of(
            options.only, options.exporter, Console(stderr=True), seconds=options.seconds, clock=options.clock
        ):
            rows.append(row)
            if options.rows:
                with options.rows.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    elif options.markdown:
        print(markdown(rows))
    else:
        Console(width=130).print(table(rows))


if __name__ == "__main__":
    main()
