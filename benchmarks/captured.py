"""Layers captured from PyTorch beside the same layers built by hand of library calls: modelled cycles and memory.

    python benchmarks/captured.py [--json] [--only PART_OF_NAME] [--ops]

Both are compiled for one Bow IPU and not run; both have the same type of partial sums, f32 or f16. Cycles are those of
one run without what streams between host and tiles take; memory is what all tiles hold. Training is a forward pass, a
backward pass from a gradient that is given, and the update of all weights by SGD; what enters is trained too, so that
its gradient is computed as within a network. ``--ops`` lists, kind by kind of library call, where the two differ. The
bars are 1.15 times the cycles and 1.2 times the memory; the exit code is 1 where one is missed. With --json one object
is printed: {"rows": [...]}, with ``layer``, ``use``, ``partials``, and for ``hand`` and ``captured`` ``cycles``,
``bytes``, ``fullest``, ``cpu_seconds`` and ``by_kind``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch
from networks_bert import BertConfig, Tensors, backward, create_layer, create_tokens, forward, like
from rich.console import Console
from rich.table import Table
from torch import nn

from abele import poptorch
from abele.compiler import compile_program
from abele.graph import Copy, Graph, Sequence, Tensor
from abele.machine import systems
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin, popnn, popops
from abele.poplibs.popops import Op, _1, _2
from abele.report import Report

RATE = 1e-3
"""Learning rate of both."""
BARS = {"cycles": 1.15, "bytes": 1.2}
"""Most of the captured layer over the layer by hand."""


@dataclass(frozen=True)
class Figures:
    """Costs of a program.

    Attributes:
        cycles: Cycles of one run, without streams.
        bytes: Bytes on all tiles.
        fullest: Bytes on the fullest tile.
        cpu_seconds: Building and compiling.
        by_kind: Cycles of each kind of library call or step.
    """

    cycles: int
    bytes: int
    fullest: int
    cpu_seconds: float
    by_kind: dict[str, int]

    @classmethod
    def of(cls, report: Report, cpu_seconds: float) -> Figures:
        """The figures of a report."""
        steps, ops, memory = report.steps, report.ops, report.memory
        stays = np.asarray([kind != "stream" for kind in steps["kind"]])
        cycles = np.asarray(steps["cycles"]) * np.asarray(steps["executions"]) * stays
        by_kind: Counter[str] = Counter()
        for row, taken in zip(np.asarray(steps["op"]), cycles, strict=True):
            kind = ops["kind"][row] if row >= 0 else "other"
            by_kind["update" if kind.startswith(("popops.update/", "popops.sgd")) else kind] += int(taken)
        held = memory.run_bytes.sum(0)
        return cls(int(cycles.sum()), int(held @ memory.run_tiles), int(held.max()), cpu_seconds, dict(by_kind))


def graph_of_one() -> Graph:
    """A graph of one Bow IPU."""
    return Graph(systems.get("bow-2000:1"))


# --- BERT-Large's encoder layer --------------------------------------------------------------------------------------

CONFIG = BertConfig()


def hand_bert(partials: ElementType, *, training: bool) -> Report:
    """An encoder layer of library calls."""
    config = BertConfig(partials=partials, trains=training)
    graph, prog = graph_of_one(), Sequence()
    weights, x = create_layer(graph, config), create_tokens(graph, config)
    saved = forward(graph, config, weights, x, prog)
    y = saved["y"]
    if training:
        dy = like(graph, y, "dy")
        prog.add(Copy(graph.host_stream_in("dy", f16, dy.shape), dy))
        dx, grads = backward(graph, config, weights, saved, dy, prog)
        descend(graph, weights | {"x": x}, grads | {"x": dx}, prog)
    prog.add(Copy(y, graph.host_stream_out("y", f16, y.shape)))
    return compile_program(graph, prog, allow_out_of_memory=True).report


def descend(graph: Graph, weights: Tensors, grads: Tensors, prog: Sequence) -> None:
    """One step of SGD for every weight that has a gradient."""
    for name, gradient in grads.items():
        popops.scaled_add_to(graph, weights[name], gradient, -RATE, prog, name=f"update/{name}")


class Trained(nn.Module):
    """A layer with what enters it, whose result has a given gradient: the loss is its product with it."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = layer
        self.x = nn.Parameter(torch.zeros(shape))

    def forward(self, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layer(self.x)
        return y, poptorch.identity_loss((y * dy).sum(), "none")


def captured(layer: nn.Module, shape: tuple[int, ...], partials: ElementType, *, training: bool) -> Report:
    """A layer as PopTorch compiles it."""
    options = poptorch.Options()
    options.Abele.allowOutOfMemory()
    options.Precision.setPartialsType(torch.float16 if partials == f16 else torch.float32)
    given = torch.zeros(shape, dtype=torch.float16)
    if not training:
        inference = poptorch.inferenceModel(layer.half().eval(), options)
        inference.compile(given)
        return inference.report()
    model = Trained(layer, shape).half().train()
    trained = poptorch.trainingModel(model, options, optimizer=torch.optim.SGD(model.parameters(), lr=RATE))
    trained.compile(given)
    return trained.report()


def captured_bert(partials: ElementType, *, training: bool) -> Report:
    """PyTorch's encoder layer of the same sizes."""
    layer = nn.TransformerEncoderLayer(
        CONFIG.hidden, CONFIG.heads, CONFIG.feed_forward, dropout=0.0, activation="gelu", batch_first=True
    )
    return captured(layer, (1, CONFIG.sequence, CONFIG.hidden), partials, training=training)


# --- ResNet-50's bottleneck ------------------------------------------------------------------------------------------

BATCH, CHANNELS, WIDTH, FIELD = 4, 512, 128, 28
"""A block of the second stage that neither widens nor halves. Source: He et al. 2015, table 1."""
EPS = 1e-5
KERNELS = {"reduce": 1, "conv": 3, "expand": 1}


def bottleneck_params() -> dict[str, poplin.ConvParams]:
    """Parameters of the three convolutions."""
    channels = {"reduce": (CHANNELS, WIDTH), "conv": (WIDTH, WIDTH), "expand": (WIDTH, CHANNELS)}
    made = {}
    for name, kernel in KERNELS.items():
        pad = (kernel // 2,) * 2
        made[name] = poplin.ConvParams(
            BATCH, *channels[name], (FIELD,) * 2, (kernel,) * 2, padding_lower=pad, padding_upper=pad
        )
    return made


@dataclass
class Bottleneck:
    """A bottleneck of library calls: convolutions without bias, batch norms, and the sum with what enters."""

    graph: Graph
    prog: Sequence
    params: dict[str, poplin.ConvParams] = field(default_factory=bottleneck_params)
    weights: Tensors = field(default_factory=dict)
    saved: Tensors = field(default_factory=dict)
    training: bool = True
    partials: ElementType = f32

    def options(self, step: str) -> dict[str, str]:
        """Options of a convolution in a pass."""
        kind = f"TRAINING_{step}" if self.training else "INFERENCE_FWD"
        return {"partialsType": self.partials.poplar_name, "pass": kind}

    def forward(self, x: Tensor) -> Tensor:
        """The block's result."""
        self.saved["x"] = x
        out = x
        for name, params in self.params.items():
            out = self._convolve(name, out, params)
            if name != "expand":
                popnn.non_linearity_in_place(self.graph, "relu", out, self.prog)
            self.saved[f"{name}/y"] = out
        popops.map_in_place(self.graph, Op("max", _1 + _2, 0.0), [out, x], self.prog, "join")
        return out

    def _convolve(self, name: str, x: Tensor, params: poplin.ConvParams) -> Tensor:
        graph, prog, w = self.graph, self.prog, self.weights
        options = self.options("FWD")
        w[name] = poplin.create_weights(graph, params, f16, f"{name}/weights", options=options)
        out = poplin.convolution(graph, x, w[name], params, prog, options=options, name=name)
        w[f"{name}/gamma"], w[f"{name}/beta"] = popnn.create_batch_norm_params(graph, out, f"{name}/norm")
        norm = w[f"{name}/gamma"], w[f"{name}/beta"]
        if self.training:
            mean, inverse = popnn.batch_norm_statistics(graph, out, EPS, prog, stable=True, name=f"{name}/statistics")
            self._keep_running(name, mean, inverse)
            out, self.saved[f"{name}/whitened"] = popnn.batch_normalise(
                graph, out, *norm, mean, inverse, prog, name=f"{name}/norm"
            )
            self.saved[f"{name}/inverse"] = inverse
            return out
        # The running statistics as one factor and one addend, which a hand-written program stores.
        return popnn.batch_normalise_inference(graph, out, *norm, prog, name=f"{name}/norm")

    def _keep_running(self, name: str, mean: Tensor, inverse: Tensor) -> None:
        """The running mean and variance, a tenth of which is the batch's."""
        for kind, new, now in (("mean", mean, _2), ("variance", inverse, 1 / (_2 * _2) - EPS)):
            running = self.graph.variable(f32, new.shape, name=f"{name}/running_{kind}", map="linear")
            self.weights[f"{name}/running_{kind}"] = running
            new = popops.cast(self.graph, new, f32, self.prog)
            popops.map_in_place(self.graph, _1 * 0.9 + now * 0.1, [running, new], self.prog, f"{name}/running_{kind}")

    def backward(self, y: Tensor, dy: Tensor) -> Tensors:
        """Gradients of the weights by name, and that of what enters as ``x``."""
        graph, prog = self.graph, self.prog
        grads: Tensors = {}
        joined = popnn.non_linearity_input_gradient(graph, "relu", y, dy, prog)
        grad = joined
        inputs = dict(zip(self.params, ("x", "reduce/y", "conv/y"), strict=True))
        for name in reversed(self.params):
            params, x = self.params[name], self.saved[inputs[name]]
            if name != "expand":
                grad = popnn.non_linearity_input_gradient(graph, "relu", self.saved[f"{name}/y"], grad, prog)
            grad = self._norm_gradient(name, grad, grads)
            w = self.weights[name]
            grads[name] = poplin.calculate_weight_deltas(
                graph, grad, x, params, prog, options=self.options("WU"), like=w, name=f"{name}_update"
            )
            grad = poplin.convolution_backward_data(
                graph, grad, w, params, prog, options=self.options("BWD"), name=f"{name}_gradient"
            )
        popops.add_in_place(graph, grad, joined, prog, name="shortcut_gradient")
        return grads | {"x": grad}

    def _norm_gradient(self, name: str, grad: Tensor, grads: Tensors) -> Tensor:
        graph, prog, saved = self.graph, self.prog, self.saved
        whitened, inverse = saved[f"{name}/whitened"], saved[f"{name}/inverse"]
        pair = popnn.batch_norm_param_gradients(graph, whitened, grad, prog, name=f"{name}/parameters")
        grads[f"{name}/gamma"], grads[f"{name}/beta"] = pair
        return popnn.batch_norm_gradients(
            graph, whitened, grad, inverse, self.weights[f"{name}/gamma"], prog, name=f"{name}/norm_gradient"
        )


def hand_bottleneck(partials: ElementType, *, training: bool) -> Report:
    """A bottleneck of library calls."""
    graph, prog = graph_of_one(), Sequence()
    made = Bottleneck(graph, prog, training=training, partials=partials)
    x = poplin.create_input(graph, made.params["reduce"], f16, "x", options=made.options("FWD"))
    y = made.forward(x)
    if training:
        dy = like(graph, y, "dy")
        prog.add(Copy(graph.host_stream_in("dy", f16, dy.shape), dy))
        descend(graph, made.weights | {"x": x}, made.backward(y, dy), prog)
    prog.add(Copy(y, graph.host_stream_out("y", f16, y.shape)))
    return compile_program(graph, prog, allow_out_of_memory=True).report


class TorchBottleneck(nn.Module):
    """The same in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(CHANNELS, WIDTH, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(WIDTH)
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(WIDTH)
        self.expand = nn.Conv2d(WIDTH, CHANNELS, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.norm1(self.reduce(x)))
        out = torch.relu(self.norm2(self.conv(out)))
        return torch.relu(x + self.norm3(self.expand(out)))


def captured_bottleneck(partials: ElementType, *, training: bool) -> Report:
    """PyTorch's bottleneck of the same sizes."""
    return captured(TorchBottleneck(), (BATCH, CHANNELS, FIELD, FIELD), partials, training=training)


# --- both ------------------------------------------------------------------------------------------------------------

LAYERS: dict[str, tuple[Callable[..., Report], Callable[..., Report]]] = {
    "BERT-Large encoder layer": (hand_bert, captured_bert),
    "ResNet-50 bottleneck": (hand_bottleneck, captured_bottleneck),
}


def figures(build: Callable[..., Report], partials: ElementType, *, training: bool) -> Figures:
    """Costs of one program, with the time of building and compiling it."""
    start = time.process_time()
    report = build(partials, training=training)
    return Figures.of(report, time.process_time() - start)


def measured(only: str) -> list[dict[str, Any]]:
    """One row for each layer, use and type of partials."""
    rows = []
    for layer, (hand, from_torch) in LAYERS.items():
        ways = {"hand": hand, "captured": from_torch}
        for use, partials in product(("forward", "training"), (f32, f16)):
            if only in f"{layer} {use} {partials}":
                made = {w: asdict(figures(b, partials, training=use == "training")) for w, b in ways.items()}
                rows.append({"layer": layer, "use": use, "partials": partials.name, **made})
    return rows


def ratio(row: dict[str, Any], figure: str) -> float:
    """The captured layer over the one by hand."""
    return float(row["captured"][figure] / row["hand"][figure])


def table_of(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    table = Table("layer", "use", "partials", "cycles by hand", "captured", "", "MB by hand", "captured", "", "CPU-s")
    for row in rows:
        cells = [row["layer"], row["use"], row["partials"]]
        for figure, unit in (("cycles", 1), ("bytes", 1e6)):
            digits = 0 if unit == 1 else 1
            cells += [f"{row[way][figure] / unit:,.{digits}f}" for way in ("hand", "captured")]
            cells.append(f"{ratio(row, figure):.3f}x")
        table.add_row(*cells, f"{row['captured']['cpu_seconds']:.1f}")
    return table


def differences(row: dict[str, Any]) -> Table:
    """Cycles of each kind of call in both, largest difference first."""
    hand, made = row["hand"]["by_kind"], row["captured"]["by_kind"]
    table = Table(f"{row['layer']}, {row['use']}, {row['partials']}", "by hand", "captured", "difference")
    for kind in sorted(hand | made, key=lambda k: -abs(made.get(k, 0) - hand.get(k, 0))):
        one, other = hand.get(kind, 0), made.get(kind, 0)
        table.add_row(kind, f"{one:,}", f"{other:,}", f"{other - one:+,}")
    return table


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", default="", metavar="PART_OF_NAME", help="only rows whose name has this part")
    parser.add_argument("--ops", action="store_true", help="list where the two differ")
    given = parser.parse_args()
    rows = measured(given.only)
    if given.json:
        print(json.dumps({"rows": rows}))
    else:
        console = Console()
        console.print(table_of(rows))
        for row in rows if given.ops else ():
            console.print(differences(row))
    return int(any(ratio(row, figure) > bar for row in rows for figure, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
