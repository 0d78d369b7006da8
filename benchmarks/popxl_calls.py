"""Processor time of programs that use one layer n times: graphs, compiling, weights, first run; over those of one use.

The layer is a transformer's: attention of four heads, a feed-forward part, two norms, of 256 hidden elements and 32
tokens. ``call`` is a graph of PopXL that is called with the variables of each use, ``repeat`` one whose loop is called
with weights that all trips share, ``pytorch`` an ``nn.Module`` of n layers as equal functions on the machine. Each
figure is the best of some fresh processes, with native code on no disk (cold) and all on disk (warm). Phases: ``build``
makes the graphs, ``compile`` the session (of PyTorch with capture), ``load`` brings native code and weights to the
device, ``run`` is the first run. With --json one object is printed, {"rows": [...]}, with ``program``, ``code``,
``uses``, seconds of each phase, ``ratios`` to one use, the calls of Python functions in ``compile`` with --counts,
modelled ``cycles``, and ``digest`` of the result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
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

PHASES = ("build", "compile", "load", "run")
PROGRAMS = ("call", "repeat", "pytorch")
USES = (1, 2, 24)
HIDDEN, HEADS, TOKENS = 256, 4, 32
WEIGHTS = {
    "query": (HIDDEN, HIDDEN),
    "key": (HIDDEN, HIDDEN),
    "value": (HIDDEN, HIDDEN),
    "out": (HIDDEN, HIDDEN),
    "up": (HIDDEN, 4 * HIDDEN),
    "down": (4 * HIDDEN, HIDDEN),
}
VECTORS = {"bias_up": 4 * HIDDEN, "bias_down": HIDDEN, "scale_1": HIDDEN, "shift_1": HIDDEN, "scale_2": HIDDEN}
VECTORS |= {"shift_2": HIDDEN}


class Phases:
    """Processor seconds of named stretches."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.process_time()

    def end(self, phase: str) -> None:
        """End of a phase; the next one begins."""
        now = time.process_time()
        self.seconds[phase] = now - self._last
        self._last = time.process_time()


def values(uses: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Weights of each use by name."""
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {**WEIGHTS, **{name: (n,) for name, n in VECTORS.items()}}
    return [
        {n: (rng.normal(size=s) / np.sqrt(s[0])).astype(np.float32) + n.startswith("scale") for n, s in shapes.items()}
        for _ in range(uses)
    ]


def popxl_program(uses: int, *, repeat: bool, phases: Phases, compiling: Callable[[Callable[[], Any]], Any]) -> Any:
    """Report and result of a PopXL program."""
    from abele import popxl
    from abele.popxl import ops

    given = values(1 if repeat else uses)
    x = np.random.default_rng(1).normal(size=(TOKENS, HIDDEN)).astype(np.float32)

    def heads(t: popxl.Tensor) -> popxl.Tensor:
        return ops.transpose(ops.reshape(t, (TOKENS, HEADS, HIDDEN // HEADS)), (1, 0, 2))

    def layer(x: popxl.Tensor, **w: popxl.Tensor) -> popxl.Tensor:
        y = ops.layer_norm(x, w["scale_1"], w["shift_1"])
        query, key, value = (heads(y @ w[name]) for name in ("query", "key", "value"))
        scores = ops.softmax(query @ ops.transpose(key, (0, 2, 1)) * (HIDDEN // HEADS) ** -0.5, -1)
        mixed = ops.reshape(ops.transpose(scores @ value, (1, 0, 2)), (TOKENS, HIDDEN))
        x = x + mixed @ w["out"]
        y = ops.layer_norm(x, w["scale_2"], w["shift_2"])
        return x + ops.gelu(y @ w["up"] + w["bias_up"]) @ w["down"] + w["bias_down"]

    phases.end("import")
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((TOKENS, HIDDEN), popxl.float32)
        out = popxl.d2h_stream((TOKENS, HIDDEN), popxl.float32)
        h = ops.host_load(stream)
        variables = [{n: popxl.variable(v, name=f"{k}.{n}") for n, v in ws.items()} for k, ws in enumerate(given)]
        graph = ir.create_graph(layer, h, **variables[0])
        if repeat:
            (h,) = ops.repeat(
                graph, uses, h, inputs_dict={graph.inputs[k + 1]: v for k, v in enumerate(variables[0].values())}
            )
        else:
            for ws in variables:
                (h,) = ops.call(graph, h, inputs_dict={graph.inputs[k + 1]: v for k, v in enumerate(ws.values())})
        ops.host_store(out, h)
    phases.end("build")
    session = compiling(lambda: popxl.Session(ir))
    phases.end("compile")
    with session:
        session._session.attach()
        phases.end("load")
        made = session.run({stream: x})[out]
        phases.end("run")
    return session.report, made


def pytorch_program(uses: int, *, phases: Phases, compiling: Callable[[Callable[[], Any]], Any]) -> Any:
    """Report and result of a PyTorch model."""
    import torch
    from torch import nn

    from abele import poptorch

    given = values(uses)

    class Layer(nn.Module):
        def __init__(self, weights: dict[str, np.ndarray[Any, Any]]) -> None:
            super().__init__()
            for name, value in weights.items():
                self.register_parameter(name, nn.Parameter(torch.from_numpy(value)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def heads(t: torch.Tensor) -> torch.Tensor:
                return t.reshape(TOKENS, HEADS, HIDDEN // HEADS).transpose(0, 1)

            y = nn.functional.layer_norm(x, (HIDDEN,), self.scale_1, self.shift_1)
            query, key, value = (heads(y @ w) for w in (self.query, self.key, self.value))
            scores = torch.softmax(query @ key.transpose(1, 2) * (HIDDEN // HEADS) ** -0.5, -1)
            x = x + (scores @ value).transpose(0, 1).reshape(TOKENS, HIDDEN) @ self.out
            y = nn.functional.layer_norm(x, (HIDDEN,), self.scale_2, self.shift_2)
            return x + nn.functional.gelu(y @ self.up + self.bias_up) @ self.down + self.bias_down

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Layer(w) for w in given])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    x = torch.from_numpy(np.random.default_rng(1).normal(size=(TOKENS, HIDDEN)).astype(np.float32))
    # PyTorch imports much at the first export of a process.
    poptorch.inferenceModel(nn.Linear(2, 2)).compile(torch.zeros(1, 2))
    phases.end("import")
    options = poptorch.Options()
    options.Abele.sharedFunctions(True)
    model = poptorch.inferenceModel(Layers(), options)
    phases.end("build")
    compiling(lambda: model.compile(x))
    phases.end("compile")
    if not model.isAttachedToDevice():
        model.attachToDevice()
    phases.end("load")
    made = model(x).numpy()
    phases.end("run")
    return model.report(), made


def measured(program: str, uses: int, *, counts: bool) -> dict[str, Any]:
    """The row of one program, in this process."""
    calls = 0

    def counted(work: Callable[[], Any]) -> Any:
        nonlocal calls

        def count(_: Any, event: str, __: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count if counts else None)
        made = work()
        sys.setprofile(None)
        return made

    phases = Phases()
    if program == "pytorch":
        report, made = pytorch_program(uses, phases=phases, compiling=counted)
    else:
        report, made = popxl_program(uses, repeat=program == "repeat", phases=phases, compiling=counted)
    seconds = {name: phases.seconds[name] for name in PHASES}
    digest = hashlib.sha256(np.ascontiguousarray(made).tobytes()).hexdigest()[:16]
    return seconds | {"calls": calls, "cycles": int(report.total_cycles), "digest": digest}


def in_process(program: str, uses: int, cache: str, *, counts: bool) -> dict[str, Any]:
    """The row of one program in a process of its own."""
    command = [sys.executable, __file__, "--one", program, str(uses), *(["--counts"] if counts else [])]
    made = subprocess.run(command, env=os.environ | {"ABELE_CACHE_DIR": cache}, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


def rows_of(
    program: str, uses: tuple[int, ...], rounds: int, codes: tuple[str, ...], *, counts: bool
) -> list[dict[str, Any]]:
    """Rows of a program: each code with each number of uses."""
    rows = []
    for code in codes:
        best: dict[int, dict[str, Any]] = {}
        with tempfile.TemporaryDirectory() as warm:
            for n in uses if code == "warm" else ():
                in_process(program, n, warm, counts=False)
            for _ in range(rounds):
                for n in uses:  # Turn by turn: other work on the machine meets all alike.
                    with tempfile.TemporaryDirectory() as cold:
                        row = in_process(program, n, warm if code == "warm" else cold, counts=counts)
                    before = best.setdefault(n, row)
                    before |= {name: min(before[name], row[name]) for name in PHASES}
        for n, row in best.items():
            ratios = {name: row[name] / max(best[uses[0]][name], 1e-9) for name in PHASES}
            rows.append({"program": program, "code": code, "uses": n, **row, "ratios": ratios})
    return rows


def main() -> None:
    """Rows on the terminal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--counts", action="store_true", help="count calls of Python functions, which takes time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--codes", nargs="+", choices=("cold", "warm"), default=["cold", "warm"])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        program, uses = arguments.one
        print(json.dumps(measured(program, int(uses), counts=arguments.counts)))
        return
    rows = [
        row
        for program in arguments.programs
        for row in rows_of(program, USES, arguments.rounds, tuple(arguments.codes), counts=arguments.counts)
    ]
    print_rows(rows, show, as_json=arguments.json)


def show(rows: list[dict[str, Any]]) -> None:
    """A table of the rows."""
    table = Table("program", "code", "uses", *PHASES, *(f"{name} x" for name in PHASES), "calls", "cycles", "digest")
    for row in rows:
        seconds = [f"{row[name]:.2f}" for name in PHASES]
        ratios = [f"{row['ratios'][name]:.2f}" for name in PHASES]
        last = (f"{row['calls']:,}" if row["calls"] else "", f"{row['cycles']:,}", row["digest"])
        table.add_row(row["program"], row["code"], str(row["uses"]), *seconds, *ratios, *last)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
