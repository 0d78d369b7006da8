"""Costs of modelling whole networks: CPU-seconds of building, planning and compiling BERT-Large and ResNet-50.

    python benchmarks/modelling.py [--json] [--only PART_OF_NAME] [--others PYTHON]

Every case runs in a process of its own, so that nothing has been planned before; CPU-seconds are ``time.process_time``
from the first call of the library to the end of the compilation, without importing. ``cold`` has an empty cache of
compiled codelets, ``warm`` a filled one. ``--others`` names a Python that has SCALE-Sim 3.0.0 and zigzag-dse 3.9.1
(with six, and a NumPy below 2.3): both then model the square matrix products that Abele is measured on.

With --json one object is printed: {"rows": [...]}, with ``case``, ``cpu_seconds``, ``bar`` and what else the case
says: ``peak_bytes``, ``cycles``, ``error`` (largest, over the largest value), ``plans``.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from networks_bert import EPSILON, BertConfig, create_layer, create_tokens, forward
from networks_resnet import ResNet, ResNetConfig
from networks_training import Training
from rich.console import Console
from rich.table import Table

from abele.compiler import Executable, compile_program
from abele.graph import Graph, Program, Sequence
from abele.machine import systems
from abele.numerics import f16
from abele.poplibs import poplin
from abele.poplibs.poplin.operations import create, matmul_layout
from abele.poplibs.poplin.planner import search

Array = np.ndarray[Any, Any]
Row = dict[str, Any]
SIZES = (128, 256, 512, 1024)
LAYERS, IPUS = 24, 4


def chip() -> Graph:
    """A graph for one Bow IPU."""
    return Graph(systems.get("bow-2000:1"))


def compiled(graph: Graph, prog: Program) -> Executable:
    """The program compiled, whether or not it fits."""
    return compile_program(graph, prog, allow_out_of_memory=True)


def bert_layer() -> Row:
    """An encoder layer of BERT-Large, cycles alone."""
    graph, config, prog = chip(), BertConfig(), Sequence()
    weights = create_layer(graph, config)
    forward(graph, config, weights, create_tokens(graph, config), prog)
    return {"cycles": compiled(graph, prog).report.cycles(0).total}


def bert_layer_run() -> Row:
    """The same, run once by host kernels; the result beside NumPy's in 64 bits."""
    from abele.runtime import Engine

    graph, config, prog = chip(), BertConfig(), Sequence()
    weights, x = create_layer(graph, config), create_tokens(graph, config)
    y = forward(graph, config, weights, x, prog)["y"]
    data = random_values({"x": x.shape} | {name: w.shape for name, w in weights.items()})
    with Engine(compiled(graph, prog), keep=[*weights.values(), x, y]) as engine:
        for name, tensor in {"x": x, **weights}.items():
            engine[tensor] = data[name]
        engine.run()
        ours = np.asarray(engine[y], np.float64)
    seconds = time.process_time()
    wanted = reference(config, data)
    error = float(np.abs(ours - wanted).max() / np.abs(wanted).max())
    return {"error": error, "unmeasured": time.process_time() - seconds}


def random_values(shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Values in f16: matrices that keep the size of what they multiply, gammas about 1."""
    rng = np.random.default_rng(0)
    made = {}
    for name, shape in shapes.items():
        scale = 1.0 if name == "x" else shape[0] ** -0.5 if len(shape) == 2 else 0.1
        made[name] = (rng.standard_normal(shape, dtype=np.float32) * scale + name.endswith("gamma")).astype(np.float16)
    return made


def reference(config: BertConfig, data: dict[str, Array]) -> Array:
    """An encoder layer in 64 bits."""
    d = {name: a.astype(np.float64) for name, a in data.items()}
    qkv = d["x"] @ d["qkv"] + d["qkv_bias"]
    q, k, v = qkv.reshape(config.sequence, 3, config.heads, -1).transpose(1, 2, 0, 3)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    context = (powers / powers.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(d["x"].shape)
    middle = _normed(d, context @ d["out"] + d["out_bias"] + d["x"], "norm1")
    up = middle @ d["up"] + d["up_bias"]
    gelu = up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3))) / 2
    return _normed(d, gelu @ d["down"] + d["down_bias"] + middle, "norm2")


def _normed(d: dict[str, Array], x: Array, name: str) -> Array:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt(x.var(1, keepdims=True) + EPSILON) * d[f"{name}_gamma"] + d[f"{name}_beta"]


def resnet() -> Row:
    """ResNet-50's inference pass, cycles alone."""
    net = ResNet(chip(), ResNetConfig())
    net.forward()
    return {"cycles": compiled(net.graph, net.prog).report.cycles(0).total}


def training(*, as_functions: bool) -> Row:
    """A training step of BERT-Large over four IPUs."""
    graph, config = Graph(systems.get("bow-2000")), BertConfig(sequence=128, trains=True)
    step = Training(graph, config, LAYERS, IPUS, as_functions=as_functions)
    return {"cycles": compiled(graph, step.prog).report.cycles(0).total}


def planning() -> Row:
    """All plans of ResNet-50 and of a layer of BERT-Large, forward, backward and update, nothing else."""
    net = ResNet(chip(), ResNetConfig())
    net.forward()
    for cache in (search.find_plan, matmul_layout.best_layout, create.created_call):
        cache.cache_clear()
    config, options = BertConfig(), {"partialsType": "half"}
    graph = net.graph
    passes = [{**options, "pass": f"TRAINING_{p}"} for p in ("FWD", "BWD", "WU")]
    convs = {(params, f16, json.dumps(o)): (params, o) for params in net.convolutions for o in passes}
    start = time.process_time()
    for params, chosen in convs.values():
        poplin.explain_convolution(graph, params, f16, options=chosen)
    for shapes in products(config):
        for chosen in ("TRAINING_FWD", "TRAINING_BWD", "TRAINING_WU"):
            poplin.explain_matmul(graph, *shapes, f16, options={**options, "fullyConnectedPass": chosen})
    seconds = time.process_time() - start
    plans = search.find_plan.cache_info().misses
    calls = len(convs) + 3 * len(products(config))
    return {"cpu_seconds": seconds, "plans": calls, "splits_searched": plans, "ms_a_plan": 1e3 * seconds / calls}


def products(config: BertConfig) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shapes of a layer's products, both operands of each."""
    s, width = config.sequence, config.hidden // config.heads
    made = [((s, shape[0]), shape) for shape in config.matrices.values()]
    return [
        *made,
        ((config.heads, s, width), (config.heads, width, s)),
        ((config.heads, s, s), (config.heads, s, width)),
    ]


def gemm(size: int) -> Row:
    """A square product in f16."""
    graph, prog, shape = chip(), Sequence(), (size, size)
    a = poplin.create_matmul_input_lhs(graph, f16, shape, shape)
    b = poplin.create_matmul_input_rhs(graph, f16, shape, shape)
    poplin.matmul(graph, a, b, prog)
    return {"cycles": compiled(graph, prog).report.cycles(0).total}


CASES: dict[str, tuple[Callable[[], Row], float | None]] = {
    "BERT-Large layer, cycles": (bert_layer, 0.5),
    "BERT-Large layer, run once": (bert_layer_run, 5.0),
    "ResNet-50, cycles": (resnet, 2.0),
    "BERT-Large training, written out": (partial(training, as_functions=False), 30.0),
    "BERT-Large training, functions": (partial(training, as_functions=True), 10.0),
    "planning": (planning, 10.0),
    **{f"GEMM {n}": (partial(gemm, n), None) for n in SIZES},
}
COLD = {"BERT-Large layer, cycles", "BERT-Large layer, run once"}


def run_case(name: str) -> Row:
    """Measure a case in this process."""
    start = time.process_time()
    row = CASES[name][0]()
    seconds = time.process_time() - start - row.pop("unmeasured", 0.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"case": name, "cpu_seconds": seconds, "bar": CASES[name][1], "peak_bytes": peak} | row


def in_process(name: str, cache: str | None = None) -> Row:
    """Measure a case in a process of its own."""
    environment = os.environ | ({"ABELE_CACHE_DIR": cache} if cache else {})
    command = [sys.executable, __file__, "--case", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"case": name, "failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def other_rows(python: str | None) -> list[Row]:
    """The tools beside: a row for each size, or one that says why there is none."""
    rows: list[Row] = []
    for tool in ("scalesim", "zigzag"):
        if python is None:
            rows.append({"case": tool, "failed": "skipped: --others names no Python that has it"})
            continue
        driver = Path(__file__).with_name("modelling_others.py")
        command = [python, str(driver), tool, *map(str, SIZES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            found = json.loads(line)
            rows.append({"case": f"{tool} GEMM {found['size']}", "cpu_seconds": found["cpu_seconds"]})
        if done.returncode:
            rows.append({"case": tool, "failed": (done.stderr.strip().splitlines() or ["no output"])[-1]})
    return rows


def measured(only: str, others: str | None) -> list[Row]:
    """All rows whose name has ``only`` in it."""
    rows = []
    for name in (n for n in CASES if only in n):
        if name in COLD:
            with tempfile.TemporaryDirectory() as cache:
                rows += [in_process(name, cache) | {"codelets": "cold"}, in_process(name, cache) | {"codelets": "warm"}]
        else:
            rows.append(in_process(name))
    if any(name.startswith("GEMM") and only in name for name in CASES):
        rows += other_rows(others)
    return rows


def table_of(rows: list[Row]) -> Table:
    """The rows for people."""
    table = Table("case", "codelets", "CPU, s", "bar", "peak, MB", "more", box=None, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    known = {"case", "codelets", "cpu_seconds", "bar", "peak_bytes", "failed"}
    for row in rows:
        more = ", ".join(
            f"{k} {v:.2g}" if isinstance(v, float) else f"{k} {v:,}" for k, v in row.items() if k not in known
        )
        seconds = f"{row['cpu_seconds']:.2f}" if "cpu_seconds" in row else ""
        peak = f"{row['peak_bytes'] / 1e6:,.0f}" if "peak_bytes" in row else ""
        bar = f"{row['bar']:g}" if row.get("bar") else ""
        table.add_row(row["case"], row.get("codelets", ""), seconds, bar, peak, row.get("failed", more))
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--others", help="a Python that has SCALE-Sim and ZigZag")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(run_case(given.case)))
        return
    rows = measured(given.only, given.others)
    if given.json:
        print(json.dumps({"rows": rows}))
    else:
        Console().print(table_of(rows))


if __name__ == "__main__":
    main()
