"""Layers captured from JAX beside the same layers captured from PyTorch: modelled cycles and memory.

    python benchmarks/captured_jax.py [--json] [--only PART_OF_NAME] [--ops]

The layers are those of ``captured.py``, and a Llama-like block with its loss, written in plain ``jax.numpy`` and
``jax.nn``: convolutions channels last, and ``jax.grad`` for the backward pass. All weights, and what enters, are state
that stays on the device. Both are compiled for one Bow IPU and not run. The bar is 1.05 times the cycles and the
memory; the exit code is 1 where it is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from typing import Any

import captured as torch_side
import jax
import jax.numpy as jnp
import networks_llama as llama
import torch
from captured import BATCH, CHANNELS, CONFIG, EPS, FIELD, KERNELS, RATE, WIDTH, figures
from jax import lax
from rich.console import Console
from rich.table import Table

from abele import poptorch
from abele.frontends.jaxpr import capture
from abele.numerics import ElementType, f16, f32
from abele.report import Report
from abele.session import Schedule, Settings
from abele.session.compiling import compile_network

BAR = 1.05
"""Most of the layer from JAX over the one from PyTorch."""
Weights = dict[str, Any]
_HALF = jnp.float16


def report_of(step: Callable[..., Any], state: Any, given: Any, partials: ElementType) -> Report:
    """The report of a function of state, which stays on the device, and of given arrays: it gives the next state."""
    count = len(jax.tree.leaves(state))
    jaxpr = jax.make_jaxpr(step)(state, given)
    names = [f"argument{n}" for n in range(len(jaxpr.jaxpr.invars))]
    found = capture(jaxpr, names, {n: n for n in range(count)})
    settings = Settings(allow_out_of_memory=True, partials=partials.name, fuse_maps=True)
    return compile_network(found.network, Schedule(), settings=settings).executable.report


def trained(layer: Callable[..., Any]) -> Callable[..., Any]:
    """One step of SGD on the weights and on what enters, for a given gradient of the result."""

    def step(state: tuple[Weights, Weights, Any], dy: Any) -> Any:
        weights, statistics, x = state

        def loss(weights: Weights, x: Any) -> Any:
            y, new = layer(weights, statistics, x)
            return jnp.sum(y * dy), (y, new)

        grads, (y, new) = jax.grad(loss, (0, 1), has_aux=True)(weights, x)
        weights, x = jax.tree.map(lambda w, g: w - jnp.asarray(RATE, w.dtype) * g, (weights, x), grads)
        return (weights, new, x), y

    return step


# --- BERT-Large's encoder layer --------------------------------------------------------------------------------------


def layer_norm(x: Any, weights: Weights, name: str) -> Any:
    """Rows with mean 0 and variance 1, scaled and moved."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + EPS) * weights[f"{name}/scale"] + weights[f"{name}/bias"]


def bert(weights: Weights, statistics: Weights, x: Any) -> tuple[Any, Weights]:
    """The encoder layer that ``nn.TransformerEncoderLayer`` is."""
    batch, sequence, hidden = x.shape
    qkv = x @ weights["qkv"] + weights["qkv/bias"]
    heads = qkv.reshape(batch, sequence, 3, CONFIG.heads, hidden // CONFIG.heads)
    q, k, v = (heads[:, :, n] for n in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q * (hidden // CONFIG.heads) ** -0.5, k)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(batch, sequence, hidden)
    x = layer_norm(x + mixed @ weights["out"] + weights["out/bias"], weights, "norm1")
    wide = jax.nn.gelu(x @ weights["wide"] + weights["wide/bias"], approximate=False)
    return layer_norm(x + wide @ weights["narrow"] + weights["narrow/bias"], weights, "norm2"), statistics


def bert_state() -> tuple[Weights, Weights, Any]:
    """Weights, and what enters."""
    hidden, wide = CONFIG.hidden, CONFIG.feed_forward
    shapes = {"qkv": (hidden, 3 * hidden), "out": (hidden, hidden), "wide": (hidden, wide), "narrow": (wide, hidden)}
    weights = {name: jnp.zeros(shape, _HALF) for name, shape in shapes.items()}
    weights |= {f"{name}/bias": jnp.zeros(shape[1], _HALF) for name, shape in shapes.items()}
    for norm in ("norm1", "norm2"):
        weights |= {f"{norm}/{part}": jnp.zeros(hidden, _HALF) for part in ("scale", "bias")}
    return weights, {}, jnp.zeros((1, CONFIG.sequence, hidden), _HALF)


# --- ResNet-50's bottleneck ------------------------------------------------------------------------------------------


def batch_norm(x: Any, weights: Weights, statistics: Weights, name: str, *, training: bool) -> tuple[Any, Weights]:
    """Channels with mean 0 and variance 1 over the batch, or by running statistics."""
    if training:
        wide = x.astype(jnp.float32)
        mean = jnp.mean(wide, (0, 1, 2))
        variance = jnp.mean(jnp.square(wide), (0, 1, 2)) - jnp.square(mean)
        new = {"mean": mean, "variance": variance}
        statistics = {f"{name}/{k}": 0.9 * statistics[f"{name}/{k}"] + 0.1 * v for k, v in new.items()}
    else:
        mean, variance = statistics[f"{name}/mean"], statistics[f"{name}/variance"]
    factor = lax.rsqrt(variance + EPS) * weights[f"{name}/scale"]
    return ((x - mean) * factor + weights[f"{name}/bias"]).astype(x.dtype), statistics


def bottleneck(training: bool) -> Callable[..., tuple[Any, Weights]]:
    """The block of ``captured.TorchBottleneck``, channels last."""

    def apply(weights: Weights, statistics: Weights, x: Any) -> tuple[Any, Weights]:
        out, new = x, Weights()
        for name in KERNELS:
            numbers = ("NHWC", "HWIO", "NHWC")
            out = lax.conv_general_dilated(out, weights[name], (1, 1), "SAME", dimension_numbers=numbers)
            out, updated = batch_norm(out, weights, statistics, name, training=training)
            new |= updated
            out = jax.nn.relu(out) if name != "expand" else out
        return jax.nn.relu(x + out), new

    return apply


def bottleneck_state() -> tuple[Weights, Weights, Any]:
    """Weights, running statistics, and what enters."""
    channels = {"reduce": (CHANNELS, WIDTH), "conv": (WIDTH, WIDTH), "expand": (WIDTH, CHANNELS)}
    weights = {name: jnp.zeros((k, k, *channels[name]), _HALF) for name, k in KERNELS.items()}
    statistics: Weights = {}
    for name, (_, made) in channels.items():
        weights |= {f"{name}/{part}": jnp.zeros(made, _HALF) for part in ("scale", "bias")}
        statistics |= {f"{name}/{part}": jnp.zeros(made, jnp.float32) for part in ("mean", "variance")}
    return weights, statistics, jnp.zeros((BATCH, FIELD, FIELD, CHANNELS), _HALF)


# --- a Llama-like block, with its loss -------------------------------------------------------------------------------


def torch_llama(partials: ElementType, *, training: bool) -> Report:
    """The block from PyTorch."""
    shape = (1, llama.SEQUENCE, llama.HIDDEN)
    if not training:
        return torch_side.captured(llama.TorchLlama(), shape, partials, training=False)
    options = poptorch.Options()
    options.Abele.allowOutOfMemory()
    options.Precision.setPartialsType(torch.float16 if partials == f16 else torch.float32)
    model = llama.TorchLoss().half().train()
    trained = poptorch.trainingModel(model, options, optimizer=torch.optim.SGD(model.parameters(), lr=RATE))
    trained.compile(torch.zeros(shape[:2], dtype=torch.int64))
    return trained.report()


def jax_llama(partials: ElementType, *, training: bool) -> Report:
    """The block from JAX."""
    weights, x = llama.weights(), jnp.zeros((1, llama.SEQUENCE, llama.HIDDEN), _HALF)
    if not training:
        return report_of(lambda kept, x: (kept, llama.logits(kept, x)), weights, x, partials)
    labels = jnp.zeros((1, llama.SEQUENCE), jnp.int32)
    return report_of(lambda state, labels: llama.step(state, labels, RATE), (weights, x), labels, partials)


# --- both ------------------------------------------------------------------------------------------------------------


def from_jax(layer: Callable[..., Any], state: Any, partials: ElementType, *, training: bool) -> Report:
    """A layer as the reader of jaxprs captures it."""
    *kept, x = state
    if training:
        return report_of(trained(layer), state, x, partials)
    return report_of(lambda kept, x: (kept, layer(*kept, x)[0]), kept, x, partials)


def jax_bert(partials: ElementType, *, training: bool) -> Report:
    """BERT-Large's encoder layer from JAX."""
    return from_jax(bert, bert_state(), partials, training=training)


def jax_bottleneck(partials: ElementType, *, training: bool) -> Report:
    """ResNet-50's bottleneck from JAX."""
    return from_jax(bottleneck(training), bottleneck_state(), partials, training=training)


LAYERS = {
    "BERT-Large encoder layer": (torch_side.captured_bert, jax_bert),
    "Llama block": (torch_llama, jax_llama),
    "ResNet-50 bottleneck": (torch_side.captured_bottleneck, jax_bottleneck),
}


def measured(only: str) -> list[dict[str, Any]]:
    """One row for each layer, use and type of partials."""
    rows = []
    for layer, builds in LAYERS.items():
        ways = dict(zip(("torch", "jax"), builds, strict=True))
        for use, partials in product(("forward", "training"), (f32, f16)):
            if only in f"{layer} {use} {partials}":
                made = {w: asdict(figures(b, partials, training=use == "training")) for w, b in ways.items()}
                rows.append({"layer": layer, "use": use, "partials": partials.name, **made})
    return rows


def ratio(row: dict[str, Any], figure: str) -> float:
    """The layer from JAX over the one from PyTorch."""
    return float(row["jax"][figure] / row["torch"][figure])


def table_of(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    table = Table("layer", "use", "partials", "cycles from PyTorch", "from JAX", "", "MB from PyTorch", "from JAX", "")
    for row in rows:
        cells = [row["layer"], row["use"], row["partials"]]
        for figure, unit in (("cycles", 1), ("bytes", 1e6)):
            digits = 0 if unit == 1 else 1
            cells += [f"{row[way][figure] / unit:,.{digits}f}" for way in ("torch", "jax")]
            cells.append(f"{ratio(row, figure):.3f}x")
        table.add_row(*cells)
    return table


def differences(row: dict[str, Any]) -> Table:
    """Cycles of each kind of call in both, largest difference first."""
    first, second = row["torch"]["by_kind"], row["jax"]["by_kind"]
    title = " ".join((row["layer"], row["use"], row["partials"]))
    table = Table("call", "from PyTorch", "from JAX", title=title)
    for kind in sorted({*first, *second}, key=lambda k: -abs(second.get(k, 0) - first.get(k, 0))):
        table.add_row(kind, *(f"{side.get(kind, 0):,}" for side in (first, second)))
    return table


def main() -> int:
    """Measure, show, and compare with the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--ops", action="store_true")
    given = parser.parse_args()
    rows = measured(given.only)
    if given.json:
        json.dump({"rows": rows}, sys.stdout)
    else:
        console = Console()
        console.print(table_of(rows))
        for row in rows if given.ops else []:
            console.print(differences(row))
    return int(any(ratio(row, figure) > BAR for row in rows for figure in ("cycles", "bytes")))


if __name__ == "__main__":
    sys.exit(main())
