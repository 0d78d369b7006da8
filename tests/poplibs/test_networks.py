"""Small configurations of the benchmarks' networks, beside PyTorch in 64 bits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from poplibs_kit import system_of
from torch.nn import functional as F  # noqa: N812

from abele.compiler import compile_program
from abele.graph import Graph, Sequence, Tensor
from abele.machine import systems
from abele.numerics import f32
from abele.poplibs import popops
from abele.runtime import Engine

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from networks_bert import EPSILON, BertConfig, Lamb, backward, create_layer, create_tokens, forward, lamb_update
from networks_resnet import ResNet, ResNetConfig
from networks_training import Training

BERT = BertConfig(sequence=12, hidden=16, heads=2, feed_forward=32, vocabulary=40, dtype=f32, partials=f32)
RESNET = ResNetConfig(blocks=(1, 2), width=8, image=32, classes=10, batch=2, dtype=f32, partials=f32)


def values(tensors: dict[str, Tensor], seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {
        n: (rng.standard_normal(t.shape) * 0.3 + n.endswith("gamma")).astype(np.float32) for n, t in tensors.items()
    }


def run(
    graph: Graph, prog: Sequence, given: dict[str, Tensor], outputs: dict[str, Tensor], mode: str
) -> tuple[dict[str, torch.Tensor], dict[str, np.ndarray[Any, Any]]]:
    """Inputs in 64 bits, and outputs."""
    data = values(given)
    keep = [*given.values(), *outputs.values()]
    with Engine(compile_program(graph, prog, allow_out_of_memory=True), mode=mode, threads=1, keep=keep) as engine:
        for name, tensor in given.items():
            engine[tensor] = data[name]
        engine.run()
        found = {name: np.asarray(engine[t]) for name, t in outputs.items()}
    return {n: torch.from_numpy(a).double() for n, a in data.items()}, found


def torch_layer(d: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    tokens, hidden = x.shape
    q, k, v = (x @ d["qkv"] + d["qkv_bias"]).reshape(tokens, 3, BERT.heads, -1).permute(1, 2, 0, 3)
    context = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(tokens, hidden)
    out = context @ d["out"] + d["out_bias"] + x
    middle = F.layer_norm(out, (hidden,), d["norm1_gamma"], d["norm1_beta"], EPSILON)
    gelu = F.gelu(middle @ d["up"] + d["up_bias"], approximate="tanh")
    down = gelu @ d["down"] + d["down_bias"] + middle
    return F.layer_norm(down, (hidden,), d["norm2_gamma"], d["norm2_beta"], EPSILON)


@pytest.mark.parametrize(
    ("tiles", "mode"),
    [(64, "native"), *(pytest.param(*way, marks=pytest.mark.slow) for way in ((4, "native"), (64, "tiles")))],
)
def test_bert_layer__forward_and_backward__gives_what_pytorch_gives(tiles: int, mode: str) -> None:
    graph, prog = Graph(system_of(tiles)), Sequence()
    weights, x = create_layer(graph, BERT), create_tokens(graph, BERT)
    saved = forward(graph, BERT, weights, x, prog)
    dy = graph.variable(f32, x.shape, name="dy", map="linear")
    dx, grads = backward(graph, BERT, weights, saved, dy, prog)
    assert set(grads) == set(weights)

    given, found = run(graph, prog, {"x": x, "dy": dy, **weights}, {"y": saved["y"], "dx": dx, **grads}, mode)

    leaves = {n: t.requires_grad_() for n, t in given.items() if n != "dy"}
    y = torch_layer(leaves, leaves["x"])
    y.backward(given["dy"])
    np.testing.assert_allclose(found["y"], y.detach().numpy(), rtol=1e-4, atol=1e-5)
    for name, leaf in leaves.items():
        mine = found["dx" if name == "x" else name]
        np.testing.assert_allclose(mine, leaf.grad.numpy(), rtol=1e-3, atol=1e-4, err_msg=name)


def test_lamb__one_step__gives_what_its_formula_gives() -> None:
    graph, prog, settings = Graph(system_of(4)), Sequence(), Lamb(rate=0.1)
    given = {n: graph.variable(f32, (8, 6), name=n, map="linear") for n in ("w", "m", "v2", "g")}
    lamb_update(graph, settings, given["w"], given["m"], given["v2"], given["g"], prog)
    # The second moment is the square of what is put in, so that it is not negative.
    square = Sequence()
    popops.square_in_place(graph, given["v2"], square)
    d, found = run(graph, Sequence(square, prog), given, given, "native")

    m = settings.beta1 * d["m"] + (1 - settings.beta1) * d["g"]
    v = settings.beta2 * d["v2"] ** 2 + (1 - settings.beta2) * d["g"] ** 2
    step = m / (v.sqrt() + settings.epsilon) + settings.decay * d["w"]
    wanted = d["w"] - settings.rate * d["w"].norm() / step.norm() * step
    np.testing.assert_allclose(found["m"], m.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["w"], wanted.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tiles", [4, pytest.param(64, marks=pytest.mark.slow)])
def test_resnet__two_stages__gives_what_pytorch_gives(tiles: int) -> None:
    net = ResNet(Graph(system_of(tiles)), RESNET)
    image, logits = net.forward()

    d, found = run(net.graph, net.prog, {"image": image, **net.weights}, {"logits": logits}, "native")

    wanted = torch_resnet(d, net)
    np.testing.assert_allclose(found["logits"], wanted.numpy(), rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))


def torch_resnet(d: dict[str, torch.Tensor], net: ResNet) -> torch.Tensor:
    def convolve(name: str, x: torch.Tensor, stride: int = 1) -> torch.Tensor:
        w = d[f"{name}/weights"]
        return F.conv2d(x, w, d[f"{name}/bias"], stride=stride, padding=w.shape[-1] // 2)

    x = F.max_pool2d(F.relu(convolve("stem", d["image"], 2)), 3, 2, 1)
    for stage, blocks in enumerate(net.config.blocks):
        for block in range(blocks):
            name, stride = f"stage{stage}/block{block}", 2 if stage and not block else 1
            shortcut = convolve(f"{name}/shortcut", x, stride) if f"{name}/shortcut/weights" in d else x
            out = F.relu(convolve(f"{name}/conv", F.relu(convolve(f"{name}/reduce", x)), stride))
            x = F.relu(convolve(f"{name}/expand", out) + shortcut)
    return x.mean((2, 3)) @ d["classes/weights"] + d["classes/bias"]


def test_resnet_50__as_published__has_53_convolutions_and_25_million_weights() -> None:
    net = ResNet(Graph(systems.get("bow-2000:1")), ResNetConfig())
    net.forward()

    assert len(net.convolutions) == 53
    # 25,557,032 of torchvision's resnet50, less the factors of its norms: 26,560 channels.
    assert sum(w.size for w in net.weights.values()) == 25_557_032 - 26_560


@pytest.mark.parametrize("as_functions", [pytest.param(False, marks=pytest.mark.slow), True])
def test_training__two_layers_on_two_ipus__takes_steps_that_lower_the_loss(as_functions: bool) -> None:
    small = system_of(16)
    graph = Graph(small.evolve(num_ipus=2))
    step = Training(graph, BERT, 2, 2, as_functions=as_functions)
    given = {f"{i}/{n}": w for i, layer in enumerate(step.layers) for n, w in layer.weights.items()}
    given["table"] = step.table
    data = values(given)
    rng = np.random.default_rng(1)
    executable = compile_program(graph, step.prog, allow_out_of_memory=True)
    losses = []
    with Engine(executable, threads=1, keep=[*given.values(), step.loss]) as engine:
        for name, tensor in given.items():
            engine[tensor] = data[name]
        for tensor in (step.tokens, step.labels):
            engine[tensor] = rng.integers(0, BERT.vocabulary, tensor.shape).astype(np.int32)
        for layer in step.layers:
            for tensor in (*layer.m.values(), *layer.v.values()):
                engine[tensor] = np.zeros(tensor.shape, np.float32)
        for _ in range(4):
            engine.run()
            losses.append(float(np.asarray(engine[step.loss]).reshape(())))
    assert losses == sorted(losses, reverse=True), losses
