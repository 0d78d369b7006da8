"""One network through four doors: PyTorch, an ONNX file of it, PopART's builder, PopXL.

    python benchmarks/doors.py [--json] [--only PART_OF_NAME …]

A perceptron, a convolutional network and a layer of a transformer are written four times, with the same weights, and
compiled for one IPU of a Bow-2000. Printed are modelled cycles and bytes of the fullest tile over those of PyTorch's
capture, and the largest difference of results. All four hand one array in and one out.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from abele import onnx, popart, poptorch, popxl
from abele.popxl import ops

CYCLES, BYTES = 0.03, 0.05
"""Largest distance from the capture's, as parts of its cycles and bytes."""
Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Door:
    """One network through one door.

    Attributes:
        network: Its name.
        door: The door's name.
        cycles: Modelled cycles over the capture's.
        bytes: Bytes of the fullest tile over the capture's.
        error: Largest difference from PyTorch's results, over their largest element.
    """

    network: str
    door: str
    cycles: float
    bytes: float
    error: float

    @property
    def holds(self) -> bool:
        """True if cycles and bytes are near the capture's."""
        return abs(self.cycles - 1) <= CYCLES and abs(self.bytes - 1) <= BYTES


@dataclass(frozen=True)
class Network:
    """A network in three writings; its ONNX file is exported from the first.

    Attributes:
        name: Its name.
        model: It as a module.
        example: Its input.
        popart: Its result by PopART's builder, of the builder, the input's name and names of weights.
        popxl: Its result by PopXL, of the input and weights.
    """

    name: str
    model: nn.Module
    example: torch.Tensor
    popart: Callable[[Any, str, dict[str, str]], str]
    popxl: Callable[[Any, dict[str, Any]], Any]

    @property
    def weights(self) -> Weights:
        """Its weights by name."""
        return {name: p.detach().numpy() for name, p in self.model.named_parameters()}


# --- the networks -----------------------------------------------------------------------------------------------------


class Perceptron(nn.Module):
    """Three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(128, 256), nn.Linear(256, 256), nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> Any:
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


def _perceptron_popart(builder: Any, x: str, w: dict[str, str]) -> Any:
    for name in "abc":
        x = builder.aiOnnx.gemm([x, w[f"{name}.weight"], w[f"{name}.bias"]], transB=1)
        x = builder.aiOnnx.relu([x]) if name != "c" else x
    return x


def _perceptron_popxl(x: Any, w: dict[str, Any]) -> Any:
    for name in "abc":
        x = x @ ops.transpose(w[f"{name}.weight"]) + w[f"{name}.bias"]
        x = ops.relu(x) if name != "c" else x
    return x


class Convolutions(nn.Module):
    """Two convolutions, a pool and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.c = nn.Linear(32 * 64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        x = nn.functional.max_pool2d(torch.relu(self.a(x)), 2)
        return self.c(torch.relu(self.b(x)).flatten(1))


def _convolutions_popart(builder: Any, x: str, w: dict[str, str]) -> Any:
    x = builder.aiOnnx.conv([x, w["a.weight"], w["a.bias"]], pads=[1, 1, 1, 1])
    (x,) = builder.aiOnnx.maxpool([builder.aiOnnx.relu([x])], 1, [2, 2], strides=[2, 2])
    x = builder.aiOnnx.relu([builder.aiOnnx.conv([x, w["b.weight"], w["b.bias"]], pads=[1, 1, 1, 1])])
    return builder.aiOnnx.gemm([builder.aiOnnx.flatten([x]), w["c.weight"], w["c.bias"]], transB=1)


def _convolutions_popxl(x: Any, w: dict[str, Any]) -> Any:
    x = ops.conv(x, w["a.weight"], stride=(1, 1), padding=(1, 1, 1, 1)) + ops.reshape(w["a.bias"], (1, 16, 1, 1))
    x = ops.max_pool(ops.relu(x), (2, 2), stride=(2, 2), padding=(0, 0, 0, 0))
    x = ops.conv(x, w["b.weight"], stride=(1, 1), padding=(1, 1, 1, 1)) + ops.reshape(w["b.bias"], (1, 32, 1, 1))
    x = ops.reshape(ops.relu(x), (4, 32 * 64))
    return x @ ops.transpose(w["c.weight"]) + w["c.bias"]


BATCH, LENGTH, WIDTH, HEADS = 2, 32, 64, 4


class Layer(nn.Module):
    """Attention and a perceptron, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        n = self.before(x)
        q, k, v = (f(n).view(BATCH, LENGTH, HEADS, -1).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v))
        shares = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(WIDTH / HEADS), -1)
        x = x + self.o((shares @ v).permute(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH))
        return x + self.down(torch.relu(self.up(self.between(x))))


def _layer_popart(builder: Any, x: str, w: dict[str, str]) -> Any:
    on = builder.aiOnnx

    def linear(given: str, name: str) -> Any:
        turned = on.transpose([w[f"{name}.weight"]], [1, 0])
        return on.add([on.matmul([given, turned]), w[f"{name}.bias"]])

    def norm(given: str, name: str) -> Any:
        flat = on.reshape([given, on.constant(np.array([BATCH * LENGTH, WIDTH], np.int64))])
        made = builder.aiGraphcore.groupnormalization([flat, w[f"{name}.weight"], w[f"{name}.bias"]], 1, 1e-5)[0]
        return on.reshape([made, on.constant(np.array([BATCH, LENGTH, WIDTH], np.int64))])

    def split(given: str, order: list[int]) -> Any:
        apart = on.constant(np.array([BATCH, LENGTH, HEADS, WIDTH // HEADS], np.int64))
        return on.transpose([on.reshape([given, apart])], order)

    n = norm(x, "before")
    q, k, v = (
        split(linear(n, "q"), [0, 2, 1, 3]),
        split(linear(n, "k"), [0, 2, 3, 1]),
        split(linear(n, "v"), [0, 2, 1, 3]),
    )
    scores = on.div([on.matmul([q, k]), on.constant(np.array(math.sqrt(WIDTH / HEADS), np.float32))])
    mixed = on.transpose([on.matmul([on.softmax([scores], -1), v])], [0, 2, 1, 3])
    mixed = on.reshape([mixed, on.constant(np.array([BATCH, LENGTH, WIDTH], np.int64))])
    x = on.add([x, linear(mixed, "o")])
    return on.add([x, linear(on.relu([linear(norm(x, "between"), "up")]), "down")])


def _layer_popxl(x: Any, w: dict[str, Any]) -> Any:
    def linear(given: Any, name: str) -> Any:
        return given @ ops.transpose(w[f"{name}.weight"]) + w[f"{name}.bias"]

    def norm(given: Any, name: str) -> Any:
        return ops.layer_norm(given, w[f"{name}.weight"], w[f"{name}.bias"], eps=1e-5)

    def split(given: Any, order: tuple[int, ...]) -> Any:
        return ops.transpose(ops.reshape(given, (BATCH, LENGTH, HEADS, WIDTH // HEADS)), order)

    n = norm(x, "before")
    q, k, v = (
        split(linear(n, "q"), (0, 2, 1, 3)),
        split(linear(n, "k"), (0, 2, 3, 1)),
        split(linear(n, "v"), (0, 2, 1, 3)),
    )
    shares = ops.softmax((q @ k) / math.sqrt(WIDTH / HEADS), axis=-1)
    x = x + linear(ops.reshape(ops.transpose(shares @ v, (0, 2, 1, 3)), (BATCH, LENGTH, WIDTH)), "o")
    return x + linear(ops.relu(linear(norm(x, "between"), "up")), "down")


def networks() -> list[Network]:
    """The three networks."""
    torch.manual_seed(0)
    return [
        Network("perceptron", Perceptron(), torch.randn(16, 128), _perceptron_popart, _perceptron_popxl),
        Network("convolutions", Convolutions(), torch.randn(4, 3, 16, 16), _convolutions_popart, _convolutions_popxl),
        Network("transformer", Layer(), torch.randn(BATCH, LENGTH, WIDTH), _layer_popart, _layer_popxl),
    ]


# --- the doors --------------------------------------------------------------------------------------------------------


def by_pytorch(network: Network) -> tuple[Any, np.ndarray]:
    """Report and result of PyTorch's capture."""
    options = poptorch.Options()
    options.Abele.system("bow-2000")
    runner = poptorch.inferenceModel(network.model.eval(), options)
    made = runner(network.example)
    return runner.report(), made.numpy()


def by_onnx(network: Network) -> tuple[Any, np.ndarray]:
    """Those of its ONNX file."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.onnx")
        torch.onnx.export(network.model.eval(), (network.example,), path, dynamo=False, opset_version=17)
        model = onnx.load(path).configure("bow-2000")
    made = next(iter(model.infer(network.example.numpy()).values()))
    return model.report, made


def by_popart(network: Network) -> tuple[Any, np.ndarray]:
    """Those of PopART's builder."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", list(network.example.shape)))
    weights = {name: builder.addInitializedInputTensor(array, name) for name, array in network.weights.items()}
    out = network.popart(builder, x, weights)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [out]), device)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: network.example.numpy()}, anchors))
    return session.report, anchors[out]


def by_popxl(network: Network) -> tuple[Any, np.ndarray]:
    """Those of PopXL."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        given = popxl.h2d_stream(tuple(network.example.shape), popxl.float32, name="x")
        weights = {n: popxl.variable(a, popxl.float32, name=n) for n, a in network.weights.items()}
        out = network.popxl(ops.host_load(given), weights)
        taken = popxl.d2h_stream(out.shape, popxl.float32, name="out")
        ops.host_store(taken, out)
    with popxl.Session(ir, "ipu_hw") as session:
        made = session.run({given: network.example.numpy()})[taken]
    return session.report, made


DOORS = {"PyTorch": by_pytorch, "ONNX": by_onnx, "PopART": by_popart, "PopXL": by_popxl}


def through_doors(network: Network) -> list[Door]:
    """A network through all four doors, the capture first."""
    rows: list[Door] = []
    whole: tuple[float, float] | None = None
    wanted = network.model.eval()(network.example).detach().numpy()
    for name, door in DOORS.items():
        report, made = door(network)
        cost = float(report.total_cycles), float(report.memory_use().bytes)
        whole = whole or cost
        error = float(np.abs(made.reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())
        rows.append(Door(network.name, name, cost[0] / whole[0], cost[1] / whole[1], error))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of networks")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = [
        row
        for network in networks()
        if not options.only or any(part in network.name for part in options.only)
        for row in through_doors(network)
    ]
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    table = Table(title="cycles and bytes over those of PyTorch's capture")
    for column in ("network", "door", "cycles", "bytes", "error", ""):
        table.add_column(column, justify="left" if column in ("network", "door", "") else "right")
    for row in rows:
        numbers = f"{row.cycles:.3f}", f"{row.bytes:.3f}", f"{row.error:.0e}"
        table.add_row(row.network, row.door, *numbers, "" if row.holds else "misses")
    Console().print(table)


if __name__ == "__main__":
    main()
