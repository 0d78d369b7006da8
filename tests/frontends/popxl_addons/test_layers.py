"""Layers and optimisers of ``popxl_addons`` in small models, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from abele import popxl
from abele import popxl_addons as addons
from abele.arrays import Array
from abele.frontends.popxl import ops
from abele.frontends.popxl.fp8_utils import host_pow2scale_cast_from_fp8, host_pow2scale_cast_to_fp8
from abele.frontends.popxl_addons.array_munging import pad_axis, shard, tensor_parallel_input, unshard
from abele.frontends.popxl_addons.layers import (
    Conv2D,
    Embedding,
    GroupNorm,
    LayerNorm,
    LayerNormDistributed,
    Linear,
    LinearFP8,
    LinearGQ,
)
from abele.frontends.popxl_addons.ops.cross_entropy_sharded_loss import cross_entropy_sharded_loss
from abele.frontends.popxl_addons.ops.group_quantize_decompress import (
    group_quantize_compress,
    group_quantize_decompress_numpy,
)
from abele.frontends.popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce,
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from abele.frontends.popxl_addons.ops.rotary_pos_embed import rotary_pos_embed, trig_table_constants
from abele.frontends.popxl_addons.optimizers import AdamOptimizerStep, LambOptimizerStep, SGDOptimizerStep
from abele.frontends.popxl_addons.remote import load_remote_graph, named_variable_buffers, store_remote_graph
from abele.frontends.popxl_addons.testing_utils import TensorInput, run_module
from abele.frontends.popxl_addons.utils import WeightsDict

F32 = np.float32


def drawn(variables: Mapping[str, popxl.Tensor], seed: int = 0) -> dict[str, Array]:
    """Weights by name that are none of the usual ones."""
    rng = np.random.default_rng(seed)
    return {name: (rng.normal(size=t.shape) * 0.3 + 0.1).astype(F32) for name, t in variables.items()}


# --- one layer each

LAYERS: dict[str, tuple[Callable[[], addons.Module], tuple[int, ...], Callable[..., torch.Tensor]]] = {
    "linear": (lambda: Linear(5), (2, 3, 8), lambda x, w: F.linear(x, w["weight"].T, w["bias"])),
    "linear without bias": (lambda: Linear(1, bias=False), (8,), lambda x, w: x @ w["weight"]),
    "layer norm": (LayerNorm, (2, 3, 8), lambda x, w: F.layer_norm(x, (8,), w["weight"], w["bias"])),
    "group norm": (lambda: GroupNorm(2), (2, 4, 3, 3), lambda x, w: F.group_norm(x, 2, w["weight"], w["bias"])),
    "convolution": (
        lambda: Conv2D(6, (3, 2), stride=2, padding=1, groups=2),
        (2, 4, 6, 5),
        lambda x, w: F.conv2d(x, w["weight"], w["bias"], stride=2, padding=1, groups=2),
    ),
    "dilated convolution": (
        lambda: Conv2D(3, 2, dilation=2, padding=(0, 1, 0, 1), bias=False),
        (1, 2, 5, 5),
        lambda x, w: F.conv2d(x, w["weight"], dilation=2, padding=(0, 1)),
    ),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers__with_gradients__are_pytorchs(kind: str) -> None:
    make, shape, oracle = LAYERS[kind]
    rng = np.random.default_rng(1)
    x = rng.normal(size=shape).astype(F32)
    first: dict[str, Array] = {}

    def weights(variables: addons.NamedTensors) -> Mapping[popxl.Tensor, Any]:
        by_name = variables.to_dict()
        first.update(drawn(by_name))
        return WeightsDict({by_name[name]: torch.tensor(w) for name, w in first.items()})

    wide = {name: torch.zeros(()) for name in ("weight", "bias")}
    shape_of = oracle(torch.tensor(x), wide | _shaped(make, x)).shape
    grad = rng.normal(size=tuple(shape_of)).astype(F32)
    run = run_module(make(), x, weights=weights, grads=[grad])
    given = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    parameters = {name: torch.tensor(w, dtype=torch.float64, requires_grad=True) for name, w in first.items()}
    made = oracle(given, parameters)
    made.backward(torch.tensor(grad, dtype=torch.float64))
    np.testing.assert_allclose(run.outputs[0], made.detach(), atol=2e-5)
    for name, wanted in {0: given, **parameters}.items():
        np.testing.assert_allclose(run.gradients[name], wanted.grad, atol=5e-5)


def _shaped(make: Callable[[], addons.Module], x: Array) -> dict[str, torch.Tensor]:
    ir = popxl.Ir()
    with ir.main_graph:
        factories, _ = make().create_graph(popxl.TensorSpec(x.shape, popxl.float32))
    return {name: torch.zeros(fact.shape) for name, fact in factories.to_dict().items()}


def test_linear_gq__of_weights__is_the_product_with_what_they_stand_for() -> None:
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(3, 16)).astype(F32), rng.normal(size=(16, 5)).astype(F32)
    packed = group_quantize_compress(w.T, 8, F32)
    weights = dict(zip(("weight", "decompression_scale", "decompression_bias"), packed, strict=True))
    run = run_module(LinearGQ(5, group_size=8), x, weights=weights | {"bias": np.ones(5)}, grads=None)
    host = group_quantize_decompress_numpy(*packed).T
    np.testing.assert_allclose(run.outputs[0], x @ host + 1, atol=1e-5)
    assert np.abs(run.outputs[0] - x @ w - 1).max() < 2.0
    begun = run_module(LinearGQ(5, group_size=8), x).weights
    found = group_quantize_decompress_numpy(begun["weight"], begun["decompression_scale"], begun["decompression_bias"])
    assert 0.01 < found.std() < 0.03


@pytest.mark.parametrize("scale", [None, 4])
def test_linear_fp8__of_weights__is_the_product_of_narrow_numbers(scale: int | None) -> None:
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=(4, 16)).astype(F32), rng.normal(size=(16, 3)).astype(F32) * 0.02
    layer = LinearFP8(3, input_log2_scale=scale)
    narrow, power = layer.compress(w)
    run = run_module(layer, x, weights={"weight": narrow, "weight_log2_scale": power, "bias": np.ones(3)})
    held = host_pow2scale_cast_from_fp8(narrow, popxl.float32, -int(power))
    assert np.abs(held - w).max() < 0.07 * np.abs(w).max()
    if scale is not None:
        x = host_pow2scale_cast_from_fp8(host_pow2scale_cast_to_fp8(x, popxl.float8_143, 4), popxl.float32, -4)
    np.testing.assert_allclose(run.outputs[0], x @ held + 1, atol=1e-3 if scale is not None else 2e-2)
    begun = run_module(LinearFP8(3, dtype=popxl.float8_152), x).weights
    first = host_pow2scale_cast_from_fp8(begun["weight"], popxl.float32, -int(begun["weight_log2_scale"]))
    assert 0.005 < first.std() < 0.04


# --- a layer of BERT, which learns


class SelfAttention(addons.Module):
    """Self-attention of several heads."""

    def __init__(self, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, Linear(3 * hidden), Linear(hidden)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[batch, sequence, hidden]."""
        batch, length, hidden = x.shape
        shape = (batch, length, self.heads, hidden // self.heads)
        q, k, v = (t.reshape(shape).transpose((0, 2, 1, 3)) for t in ops.split(self.qkv(x), 3, axis=-1))
        scores = ops.softmax((q @ k.transpose((0, 1, 3, 2))) * (1 / shape[-1] ** 0.5), axis=-1)
        return self.out((scores @ v).transpose((0, 2, 1, 3)).reshape(x.shape))


class BertLayer(addons.Module):
    """Attention and feed-forward, each with its norm after the sum."""

    def __init__(self, heads: int, hidden: int, inner: int) -> None:
        super().__init__()
        self.attention, self.first_norm = SelfAttention(heads, hidden), LayerNorm()
        self.up, self.down, self.last_norm = Linear(inner), Linear(hidden), LayerNorm()

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[batch, sequence, hidden]."""
        x = self.first_norm(x + self.attention(x))
        return self.last_norm(x + self.down(ops.geluerf(self.up(x))))


def bert_weights(layer: torch.nn.TransformerEncoderLayer) -> dict[str, torch.Tensor]:
    """PyTorch's weights by our names."""
    return {
        "attention.qkv.weight": layer.self_attn.in_proj_weight.T,
        "attention.qkv.bias": layer.self_attn.in_proj_bias,
        "attention.out.weight": layer.self_attn.out_proj.weight.T,
        "attention.out.bias": layer.self_attn.out_proj.bias,
        "first_norm.weight": layer.norm1.weight,
        "first_norm.bias": layer.norm1.bias,
        "up.weight": layer.linear1.weight.T,
        "up.bias": layer.linear1.bias,
        "down.weight": layer.linear2.weight.T,
        "down.bias": layer.linear2.bias,
        "last_norm.weight": layer.norm2.weight,
        "last_norm.bias": layer.norm2.bias,
    }


@pytest.mark.slow
def test_bert_layer__five_updates_of_adam__is_pytorchs() -> None:
    rng, steps = np.random.default_rng(6), 5
    x, target = (rng.normal(size=(steps, 2, 4, 8)).astype(F32) for _ in range(2))
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, activation="gelu", batch_first=True)
    start = {name: w.detach().clone() for name, w in bert_weights(layer).items()}
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.01, eps=1e-5, weight_decay=0.01)
    wanted = []
    for step in range(steps):
        optimiser.zero_grad()
        loss = F.mse_loss(layer(torch.tensor(x[step])), torch.tensor(target[step]))
        loss.backward()
        optimiser.step()
        wanted.append(loss.item())

    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        data = [popxl.h2d_stream((2, 4, 8), popxl.float32, name) for name in ("x", "target")]
        loss_stream = popxl.d2h_stream((), popxl.float32, "loss")
        entered, goal = (ops.host_load(s) for s in data)
        factories, graph = BertLayer(2, 8, 12).create_graph(entered)
        backward = popxl.transforms.autodiff(graph.graph, grads_required=graph.args.tensors)
        variables = factories.init("bert")
        call = graph.bind(variables).call_with_info(entered)
        wrong = call.outputs[0] - goal
        ops.host_store(loss_stream, ops.mean(wrong * wrong))
        grads = ops.call(backward.graph, wrong * (2 / wrong.nelms), inputs_dict=backward.inputs_dict(call))
        by_input = dict(zip((c.fwd_tensor for c in backward.expected_outputs), grads, strict=True))
        adam, states = AdamOptimizerStep(cache=True), []
        for name, variable in variables.to_dict().items():
            grad = by_input[graph.args.to_dict()[name]]
            state, update = adam.create_graph(variable, grad, lr=0.01, first_order_dtype=popxl.float32)
            states.append(state.init(name))
            update.bind(states[-1]).call(variable, grad)
    by_name = variables.to_dict()
    # Variables of one shape have one graph of the update.
    assert len({g.name for g in ir.main_graph.called_graphs}) == 2 + len({t.shape for t in by_name.values()})
    losses = []
    with popxl.Session(ir, "ipu_model") as session:
        session.write_variables_data(WeightsDict({by_name[name]: w for name, w in start.items()}))
        for step in range(steps):
            losses.append(session.run({data[0]: x[step], data[1]: target[step]})[loss_stream])
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    for name, parameter in bert_weights(layer).items():
        np.testing.assert_allclose(session.get_tensor_data(by_name[name]), parameter.detach(), atol=1e-5)
    assert sorted(states[0].to_dict()) == ["first_order", "second_order", "step"]
    assert session.get_tensor_data(states[0].to_dict()["step"]) == steps


OPTIMISERS: dict[str, tuple[type, dict[str, Any], Callable[[Any], torch.optim.Optimizer]]] = {
    "adam, half moments": (
        AdamOptimizerStep,
        {"weight_decay": 0.1, "loss_scaling": 64.0},
        lambda p: torch.optim.AdamW(p, lr=0.1, eps=1e-5, weight_decay=0.1),
    ),
    "sgd, momentum": (
        SGDOptimizerStep,
        {"momentum": 0.9, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    ),
    "adam": (
        AdamOptimizerStep,
        {"weight_decay": 0.0, "first_order_dtype": popxl.float32, "beta1": 0.8, "eps": 1e-3},
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.999), eps=1e-3),
    ),
    "sgd": (SGDOptimizerStep, {}, lambda p: torch.optim.SGD(p, lr=0.1)),
}


def test_optimisers__three_updates__are_pytorchs() -> None:
    rng = np.random.default_rng(8)
    start, grads = rng.normal(size=(3, 4)).astype(F32), rng.normal(size=(3, 3, 4)).astype(F32)
    ir = popxl.Ir()
    variables = {}
    with ir.main_graph, popxl.in_sequence():
        rate, stream = popxl.variable(np.float32(0.1)), popxl.h2d_stream((3, 4), popxl.float32)
        grad = ops.host_load(stream)
        for kind, (step_of, settings, _) in OPTIMISERS.items():
            variables[kind] = popxl.variable(start)
            scaled = grad * settings.get("loss_scaling", 1.0)
            factories, graph = step_of().create_graph(variables[kind], scaled, lr=rate, **settings)
            graph.bind(factories.init()).call(variables[kind], scaled, rate)
    with popxl.Session(ir) as session:
        for g in grads:
            session.run({stream: g})
    for kind, (_, _, oracle) in OPTIMISERS.items():
        weight = torch.tensor(start, requires_grad=True)
        optimiser = oracle([weight])
        for g in grads:
            weight.grad = torch.tensor(g)
            optimiser.step()
        close = 2e-3 if "half" in kind else 1e-5
        np.testing.assert_allclose(session.get_tensor_data(variables[kind]), weight.detach(), atol=close, err_msg=kind)


@pytest.mark.slow
def test_adam__of_a_shard_in_streaming_memory__is_pytorchs() -> None:
    rng = np.random.default_rng(10)
    start, grads = rng.normal(size=(3, 5)).astype(F32), rng.normal(size=(2, 4, 3, 5)).astype(F32)
    ir = popxl.Ir(replication=4)
    with ir.main_graph, popxl.in_sequence():
        whole, part = popxl.replica_sharded_variable(start, popxl.float32)
        stream = popxl.h2d_stream((3, 5), popxl.float32)
        grad = ops.collectives.replicated_reduce_scatter(
            ops.host_load(stream), "mean", configure_output_for_replicated_tensor_sharding=True
        )
        factories, graph = AdamOptimizerStep().create_graph(part, grad, lr=0.1, first_order_dtype=popxl.float32)
        buffers = named_variable_buffers(factories)
        factories.init_remote(buffers)
        load, names = load_remote_graph(buffers)
        states = addons.NamedTensors.pack(names, load.call(0))
        graph.bind(states).call(part, grad)
        store_remote_graph(buffers).bind(states).call(0)
        ops.remote_store(whole.buffer, 0, part)
    with popxl.Session(ir) as session:
        for g in grads:
            session.run({stream: g})
    weight = torch.tensor(start, requires_grad=True)
    optimiser = torch.optim.AdamW([weight], lr=0.1, eps=1e-5, weight_decay=0.01)
    for g in grads:
        weight.grad = torch.tensor(g.mean(0))
        optimiser.step()
    np.testing.assert_allclose(session.get_tensor_data(whole), weight.detach(), atol=1e-5)


def test_lamb__one_update__is_as_long_as_the_weight() -> None:
    rng = np.random.default_rng(9)
    start, g = rng.normal(size=(2, 5)).astype(F32), rng.normal(size=(2, 5)).astype(F32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        variable, grad = popxl.variable(start), popxl.constant(g)
        factor = popxl.constant(np.float32(0.5))
        factories, graph = LambOptimizerStep().create_graph(
            variable, grad, lr=0.1, weight_decay=0.2, first_order_dtype=popxl.float32, clip_factor=factor
        )
        graph.bind(factories.init()).call(variable, grad, factor)
    with popxl.Session(ir) as session:
        session.run()
    half = g.astype(np.float64) / 2
    step = half / (np.abs(half) + 1e-6) + 0.2 * start
    wanted = start - 0.1 * np.linalg.norm(start) / np.linalg.norm(step) * step
    np.testing.assert_allclose(session.get_tensor_data(variable), wanted, atol=1e-5)


# --- a block of LLaMA


class RmsNorm(addons.Module):
    """Division by the root of the mean square."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """``x`` normalised."""
        weight = self.add_variable_input("weight", lambda: np.ones(x.shape[-1]), x.dtype)
        return x / ops.sqrt(ops.mean(x * x, -1, keepdims=True) + 1e-5) * weight


class LlamaBlock(addons.Module):
    """Attention of grouped queries with turned positions, and a gated feed-forward."""

    def __init__(self, heads: int, groups: int, hidden: int, inner: int) -> None:
        super().__init__()
        self.heads, self.groups, size = heads, groups, hidden // heads
        self.q, self.o = Linear(hidden, bias=False), Linear(hidden, bias=False)
        self.kv = [Linear(groups * size, bias=False) for _ in range(2)]
        self.first_norm, self.last_norm = RmsNorm(), RmsNorm()
        self.gate, self.up, self.down = Linear(inner, bias=False), Linear(inner, bias=False), Linear(hidden, bias=False)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[batch, sequence, hidden]."""
        x = x + self.attended(self.first_norm(x))
        y = self.last_norm(x)
        return x + self.down(ops.swish(self.gate(y)) * self.up(y))

    def attended(self, x: popxl.Tensor) -> popxl.Tensor:
        """Attention, in which several heads share keys and values."""
        batch, length, hidden = x.shape
        size, each = hidden // self.heads, self.heads // self.groups
        sin, cos = trig_table_constants(length, size, dtype=popxl.float32)
        q = rotary_pos_embed(self.q(x).reshape((batch, length, self.heads, size)), sin, cos, half=True)
        k, v = (layer(x).reshape((batch, length, self.groups, size)) for layer in self.kv)
        k = rotary_pos_embed(k, sin, cos, half=True)
        q = q.reshape((batch, length, self.groups, each, size)).transpose((0, 2, 3, 1, 4))
        k, v = k.transpose((0, 2, 3, 1)), v.transpose((0, 2, 1, 3))
        # Heads of one group are rows of one product.
        scores = q.reshape((batch, self.groups, each * length, size)) @ k * size**-0.5
        mask = popxl.constant(np.tile(np.triu(np.full((length, length), -1e9, F32), 1), (each, 1)))
        made = ops.softmax(scores + mask, axis=-1) @ v
        heads = made.reshape((batch, self.groups, each, length, size)).transpose((0, 3, 1, 2, 4))
        return self.o(heads.reshape(x.shape))


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Hugging Face's rotary embedding of LLaMA, [batch, heads, sequence, features]."""
    size, length = x.shape[-1], x.shape[-2]
    angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size)).double()
    cos, sin = (torch.cat((t, t), -1) for t in (angles.cos(), angles.sin()))
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def llama(x: torch.Tensor, w: Mapping[str, torch.Tensor], heads: int, groups: int) -> torch.Tensor:
    """The block in PyTorch."""

    def norm(t: torch.Tensor, name: str) -> torch.Tensor:
        return t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-5) * w[f"{name}.weight"]

    def split(t: torch.Tensor, count: int) -> torch.Tensor:
        return t.unflatten(-1, (count, -1)).transpose(1, 2)

    y = norm(x, "first_norm")
    q = rotated(split(y @ w["q.weight"], heads))
    k, v = rotated(split(y @ w["kv.0.weight"], groups)), split(y @ w["kv.1.weight"], groups)
    k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
    made = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + made.transpose(1, 2).flatten(-2) @ w["o.weight"]
    y = norm(x, "last_norm")
    return x + (F.silu(y @ w["gate.weight"]) * (y @ w["up.weight"])) @ w["down.weight"]


@pytest.mark.slow
def test_llama_block__with_gradients__is_pytorchs() -> None:
    rng = np.random.default_rng(7)
    x, grad = (rng.normal(size=(2, 5, 16)).astype(F32) for _ in range(2))
    first: dict[str, Array] = {}

    def weights(variables: addons.NamedTensors) -> Mapping[popxl.Tensor, Any]:
        by_name = variables.to_dict()
        first.update(drawn(by_name))
        return WeightsDict({by_name[name]: w for name, w in first.items()})

    run = run_module(LlamaBlock(4, 2, 16, 12), x, weights=weights, grads=[grad])
    given = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    parameters = {name: torch.tensor(w, dtype=torch.float64, requires_grad=True) for name, w in first.items()}
    made = llama(given, parameters, 4, 2)
    made.backward(torch.tensor(grad, dtype=torch.float64))
    np.testing.assert_allclose(run.outputs[0], made.detach(), rtol=1e-5, atol=1e-5)
    for name, wanted in {0: given, **parameters}.items():
        np.testing.assert_allclose(run.gradients[name], wanted.grad, rtol=2e-5, atol=2e-5)


# --- a model on several replicas


class ShardedModel(addons.Module):
    """A tied embedding and head around a feed-forward, of which each replica has a shard."""

    def __init__(self, ir: popxl.Ir, tp: int, vocab: int, hidden: int, inner: int) -> None:
        super().__init__()
        same = ir.replica_grouping(stride=tp, group_size=ir.replication_factor // tp)
        self.models, self.same = same.transpose(), same
        self.embedding = Embedding(popxl.float32, vocab, hidden, replica_grouping=same)
        self.norm = LayerNorm()
        self.up = Linear(inner // tp, replica_grouping=same)
        self.down = Linear(hidden, bias=False, replica_grouping=same)

    def build(self, words: popxl.Tensor, labels: popxl.Tensor) -> popxl.Tensor:
        """The loss of numbers from each shard's first row."""
        x = replicated_all_reduce_identical_grad_inputs(self.embedding(words), group=self.models)
        inner = self.up(replicated_all_reduce_identical_inputs(self.norm(x), group=self.models))
        x = x + replicated_all_reduce_identical_grad_inputs(self.down(ops.gelu(inner)), group=self.models)
        x = replicated_all_reduce_identical_inputs(x, group=self.models)
        # Rows that fill up the last shard are no words.
        size = self.embedding.vocab_shard_size
        unused = lambda: np.zeros(size)  # noqa: E731
        bias = self.add_variable_input("unused", unused, x.dtype, replica_grouping=self.same)
        logits = x @ self.embedding.weight.T + bias
        return cross_entropy_sharded_loss(logits, labels, ignore_index=2, replica_grouping=self.models)


@pytest.mark.parametrize("tp", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_sharded_model__on_four_replicas__has_gradients_of_the_whole(tp: int) -> None:
    rng, vocab, hidden, inner, models = np.random.default_rng(tp), 10, 6, 8, 4 // tp
    words, labels = (rng.integers(0, vocab, size=(models, 7)).astype(np.int32) for _ in range(2))
    labels[:, 1] = 2
    whole = {
        "embedding.weight": rng.normal(size=(vocab, hidden)),
        "norm.weight": rng.normal(size=hidden),
        "norm.bias": rng.normal(size=hidden),
        "up.weight": rng.normal(size=(hidden, inner)),
        "up.bias": rng.normal(size=inner),
        "down.weight": rng.normal(size=(inner, hidden)),
    }
    rows = Embedding.get_vocab_shard_size(vocab, tp) * tp
    axes = {"embedding.weight": 0, "up.weight": 1, "up.bias": 0, "down.weight": 0}
    weights = {name: w.astype(F32) for name, w in whole.items()}
    weights |= {"embedding.weight": pad_axis(weights["embedding.weight"], rows, 0)}
    weights |= {"unused": pad_axis(np.zeros(vocab, F32), rows, 0, value=-1e9)}
    sharded = {name: shard(w, tp, axes.get(name, 0)) if name[:4] != "norm" else w for name, w in weights.items()}

    def dealt(numbers: Array) -> TensorInput:
        shifted = tensor_parallel_input(numbers, tp, 4, lambda d: Embedding.offset_input(d, vocab, tp))
        return TensorInput(shifted, per_replica=True)

    run = run_module(
        lambda ir: ShardedModel(ir, tp, vocab, hidden, inner),
        dealt(words),
        dealt(labels),
        weights=sharded,
        grads=[np.float32(1)],
        replicas=4,
    )
    for model in range(models):
        w = {name: torch.tensor(a, requires_grad=True) for name, a in whole.items()}
        x = w["embedding.weight"][torch.tensor(words[model])]
        normed = F.layer_norm(x, (hidden,), w["norm.weight"], w["norm.bias"])
        x = x + F.gelu(normed @ w["up.weight"] + w["up.bias"], approximate="tanh") @ w["down.weight"]
        loss = F.cross_entropy(x @ w["embedding.weight"].T, torch.tensor(labels[model]).long(), ignore_index=2)
        loss.backward()
        mine = slice(model * tp, (model + 1) * tp)
        np.testing.assert_allclose(run.outputs[0][mine], [loss.item()] * tp, rtol=1e-5)
        for name, wanted in w.items():
            found = run.gradients[name][mine]
            parts = unshard(found, axes[name])[: len(wanted)] if name in axes else found[0]
            np.testing.assert_allclose(parts, wanted.grad, rtol=2e-5, atol=1e-5, err_msg=name)


class ShardedNorm(addons.Module):
    """A layer norm of features on several replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = LayerNormDistributed()

    def build(self, x: popxl.Tensor) -> tuple[popxl.Tensor, popxl.Tensor]:
        """The shard, normalised; and its sum over replicas."""
        made = self.norm(x)
        return made, replicated_all_reduce(ops.sum(made * made))


def test_layer_norm_distributed__of_shards__is_the_norm_of_all() -> None:
    rng = np.random.default_rng(3)
    x, grad = (rng.normal(size=(3, 8)).astype(F32) for _ in range(2))
    weight, bias = (rng.normal(size=8).astype(F32) for _ in range(2))
    run = run_module(
        lambda ir: ShardedNorm(),
        TensorInput(shard(x, 4, 1), per_replica=True),
        weights={"norm.weight": shard(weight, 4, 0), "norm.bias": shard(bias, 4, 0)},
        grads=[TensorInput(shard(grad, 4, 1), per_replica=True), np.float32(0.25)],
        replicas=4,
    )
    given, w, b = (torch.tensor(t, requires_grad=True) for t in (x, weight, bias))
    made = F.layer_norm(given, (8,), w, b)
    # Each replica hands a quarter of the gradient of the sum to all, so that all of it comes back.
    ((made * torch.tensor(grad)).sum() + (made * made).sum()).backward()
    np.testing.assert_allclose(unshard(run.outputs[0], 1), made.detach(), atol=1e-5)
    np.testing.assert_allclose(run.outputs[1], [(made * made).sum().item()] * 4, rtol=1e-5)
    np.testing.assert_allclose(unshard(run.gradients[0], 1), given.grad, atol=2e-5)
    np.testing.assert_allclose(unshard(run.gradients["norm.weight"], 0), w.grad, atol=1e-5)
    np.testing.assert_allclose(unshard(run.gradients["norm.bias"], 0), b.grad, atol=1e-5)
