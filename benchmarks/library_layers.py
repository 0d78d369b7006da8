"""Whole layers that are measured, each beside what PyTorch does for it: norms and a recurrent layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from library_cases import Case, Data

from abele.graph import Graph, Sequence, Tensor
from abele.numerics import f32
from abele.poplibs import popnn
from abele.poplibs.poplin import create_matmul_input_lhs, create_matmul_input_rhs, matmul_grouped
from abele.poplibs.popnn import lstm

EPS = 1e-5


def all_layers() -> Iterator[Case]:
    """Every layer."""
    layer = popnn.layer_norm_statistics, popnn.layer_normalise
    for shape in ((512, 1024), (8192, 1024)):
        yield norm("layer", shape, layer, {}, lambda x, g, b: F.layer_norm(x, x.shape[1:], g, b, EPS))
    shape = (16, 64, 28, 28)
    batch = popnn.batch_norm_statistics, popnn.batch_normalise
    yield norm("batch", shape, batch, {}, lambda x, g, b: F.batch_norm(x, None, None, g, b, True, 0.1, EPS))
    # PyTorch's groups are of neighbouring channels.
    group = popnn.group_norm_statistics, popnn.group_normalise
    options = {"options": {"groupNormStridedChannelGrouping": "false"}}
    yield norm("group", shape, group, options, lambda x, g, b: F.group_norm(x, 8, g, b, EPS), num_groups=8)
    yield recurrent(32, 64, 256)
    for heads, tokens, depth in ((32, 128, 64), (48, 256, 64), (24, 512, 64), (32, 64, 32)):
        yield attention(heads, tokens, depth)


def attention(heads: int, tokens: int, depth: int) -> Case:
    """softmax(q · kᵀ) · v for so many heads, of all samples together."""
    rows, columns = (heads, tokens, depth), (heads, depth, tokens)

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        q = create_matmul_input_lhs(graph, "f32", rows, columns, "q")
        k = create_matmul_input_rhs(graph, "f32", rows, columns, "k")
        scores = matmul_grouped(graph, q, k, prog)
        shares = popnn.softmax(graph, scores, prog)
        v = create_matmul_input_rhs(graph, "f32", (heads, tokens, tokens), rows, "v")
        return {"q": q, "k": k, "v": v}, [matmul_grouped(graph, shares, v, prog)]

    def data() -> Data:
        return {"q": torch.randn(rows), "k": torch.randn(columns), "v": torch.randn(rows)}

    def reference(d: Data) -> Callable[[], Any]:
        q, k, v = d["q"][None], d["k"].mT.contiguous()[None], d["v"][None]
        return lambda: F.scaled_dot_product_attention(q, k, v, scale=1.0)

    work = 4.0 * heads * tokens * tokens * depth
    return Case(f"attention f32 {heads}x[{tokens}x{depth}]", "GFLOP/s", work, data, build, reference)


def norm(
    kind: str,
    shape: tuple[int, ...],
    functions: tuple[Callable[..., Any], Callable[..., Any]],
    options: dict[str, Any],
    theirs: Callable[..., Any],
    **sizes: int,
) -> Case:
    """Statistics, and activations normalised by them, scaled and shifted."""
    statistics, normalise = functions
    channels = shape[1]

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        x = graph.variable("f32", shape, name="x").map_linear()
        gamma, beta = (graph.variable("f32", (channels,), name=name).map_linear() for name in ("gamma", "beta"))
        mean, inverse = statistics(graph, x, EPS, prog, *sizes.values(), **options)
        out, _ = normalise(graph, x, gamma, beta, mean, inverse, prog, **options)
        return {"x": x, "gamma": gamma, "beta": beta}, [out]

    def data() -> Data:
        return {"x": torch.randn(shape), "gamma": torch.randn(channels), "beta": torch.randn(channels)}

    def reference(d: Data) -> Callable[[], Any]:
        return lambda: theirs(d["x"], d["gamma"], d["beta"])

    return Case(f"popnn {kind} norm {list(shape)}", "GB/s", 8.0 * math.prod(shape), data, build, reference)


def recurrent(batch: int, steps: int, hidden: int) -> Case:
    """The forward pass of a long short-term memory for inference, as wide as its input."""
    params = lstm.LstmParams(f32, batch, steps, (hidden, hidden))

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        x, state = lstm.create_input(graph, params), lstm.create_initial_state(graph, params)
        weights = lstm.create_weights(graph, params)
        made = lstm.lstm_fwd(graph, params, state, x, weights, prog, options={"inferenceOnly": "true"})
        inputs = {"x": x, "h": state.output, "c": state.cell_state, "w": weights.output, "b": weights.biases}
        return inputs | ({"u": weights.input} if weights.input is not None else {}), [made.output]

    def data() -> Data:
        kernel = (4, hidden, hidden)
        shapes = {"x": (steps, batch, hidden), "h": (batch, hidden), "c": (batch, hidden), "b": (4, hidden)}
        shapes |= {"w": kernel, "u": kernel}
        return {name: torch.randn(shape) / math.sqrt(hidden) for name, shape in shapes.items()}

    def reference(d: Data) -> Callable[[], Any]:
        # The order of gates differs, which costs nothing.
        layer = torch.nn.LSTM(hidden, hidden)
        return lambda: layer(d["x"], (d["h"][None], d["c"][None]))

    work = 2.0 * steps * batch * 4 * hidden * 2 * hidden
    return Case(f"lstm b{batch} [{steps} steps, {hidden}]", "GFLOP/s", work, data, build, reference)
