"""Operators of ONNX Runtime against what they stand for in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

from abele import onnx as abele_onnx
from abele.errors import UnsupportedOpError
from abele.frontends.onnx.model import converted, received
from abele.network.interpreter import Interpreter

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")
DOMAIN = "com.microsoft"


def given(*shape: int, seed: int = 0) -> Any:
    """Normal numbers."""
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def run(name: str, inputs: Sequence[Any], results: int = 1, **attributes: Any) -> list[Any]:
    """Results of a model of one node, interpreted; inputs of None are left out."""
    names = [f"in{n}" if a is not None else "" for n, a in enumerate(inputs)]
    outputs = [f"out{n}" for n in range(results)]
    graph = helper.make_graph(
        [helper.make_node(name, names, outputs, domain=DOMAIN, **attributes)],
        "graph",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, inputs, strict=True)
            if a is not None
        ],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = abele_onnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    feeds = converted("model", model.inputs, {n: a for n, a in zip(names, inputs, strict=True) if a is not None})
    return interpreted(model, feeds)


def interpreted(model: abele_onnx.Model, feeds: Sequence[Any]) -> list[Any]:
    """Results of a model by the network's meaning in NumPy."""
    net = model.network
    values = dict(zip(net.inputs, feeds, strict=True))
    values |= {v: np.asarray(model.weights[v.name]) for v in (*net.parameters, *net.buffers)}
    with np.errstate(all="ignore"):
        Interpreter(precise=False).ops(net.ops, values)
    return list(received(model.outputs, [values[v] for v in net.outputs]).values())


def close(made: Any, wanted: Any) -> None:
    """Assert that both are equal within rounding."""
    np.testing.assert_allclose(made, wanted.numpy() if hasattr(wanted, "numpy") else wanted, rtol=2e-5, atol=2e-5)


def test_activations__with_biases__are_pytorchs() -> None:
    x, b = given(3, 5), given(5)
    total = torch.tensor(x + b)
    close(run("BiasGelu", [x, b])[0], F.gelu(total))
    close(run("FastGelu", [x, b])[0], F.gelu(total, approximate="tanh"))
    close(run("Gelu", [x])[0], F.gelu(torch.tensor(x)))
    close(run("QuickGelu", [x], alpha=1.7)[0], torch.tensor(x) * torch.sigmoid(1.7 * torch.tensor(x)))


def test_products__turned_and_fused__are_numpys() -> None:
    a, b = given(2, 5, 4), given(2, 5, 6)
    close(run("FusedMatMul", [a, b], transA=1, alpha=0.5)[0], 0.5 * a.swapaxes(1, 2) @ b)
    moved = given(4, 2, 5)
    close(run("FusedMatMul", [moved, b], transBatchA=1)[0], moved.swapaxes(0, 1) @ b)
    x, w, bias = given(1, 3, 6, 6), given(4, 3, 3, 3), given(4)
    made = run("FusedConv", [x, w, bias], activation="LeakyRelu", activation_params=[0.1], pads=[1, 1, 1, 1])[0]
    close(made, F.leaky_relu(F.conv2d(*map(torch.tensor, (x, w, bias)), padding=1), 0.1))
    weight = given(6, 5)
    made = run("FusedGemm", [given(3, 5), weight, given(6)], transB=1, activation="Relu")[0]
    close(made, np.maximum(given(3, 5) @ weight.T + given(6), 0))


def test_normalisations__of_a_sum__give_the_sum_too() -> None:
    x, skip, gain, shift, bias = given(2, 3, 8), given(2, 3, 8, seed=1), given(8), given(8, seed=1), given(8, seed=2)
    made = run("SkipLayerNormalization", [x, skip, gain, shift, bias], 4, epsilon=1e-5)
    total = torch.tensor(x + skip + bias)
    close(made[0], F.layer_norm(total, (8,), torch.tensor(gain), torch.tensor(shift)))
    close(made[3], total)


def test_embeddings__with_segments_and_mask__are_summed_and_normalised() -> None:
    rng = np.random.default_rng(0)
    words, segments = rng.integers(0, 20, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables, mask = (given(20, 8), given(7, 8), given(2, 8)), np.asarray([[1, 1, 1, 0, 0], [1] * 5], np.int32)
    made = run("EmbedLayerNormalization", [words, segments, *tables, given(8), given(8, seed=1), mask], 3, epsilon=1e-5)
    total = tables[0][words] + tables[1][:5] + tables[2][segments]
    close(made[0], F.layer_norm(torch.tensor(total), (8,), torch.tensor(given(8)), torch.tensor(given(8, seed=1))))
    assert made[1].tolist() == [3, 5]


def heads(x: Any, count: int) -> Any:
    """[batch, length, width] as [batch, heads, length, depth]."""
    return torch.tensor(x).unflatten(-1, (count, -1)).transpose(1, 2)


@pytest.mark.parametrize("mask", [None, "keys", "lengths"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention__masked__is_pytorchs(mask: str | None, causal: int) -> None:
    x, w, b = given(2, 5, 8), given(8, 24), given(24)
    seen = np.asarray([[1, 1, 1, 0, 0], [1] * 5], np.int32)
    of_mask = {None: None, "keys": seen, "lengths": np.asarray([3, 5], np.int32)}[mask]
    made = run("Attention", [x, w, b, of_mask], num_heads=2, unidirectional=causal)[0]
    q, k, v = (heads(part, 2) for part in np.split(x @ w + b, 3, -1))
    visible = torch.ones(2, 1, 5, 5, dtype=torch.bool) if mask is None else torch.tensor(seen[:, None, None] > 0)
    if causal:
        visible = visible & torch.ones(5, 5, dtype=torch.bool).tril()
    wanted = F.scaled_dot_product_attention(q, k, v, visible.expand(2, 1, 5, 5))
    close(made, wanted.transpose(1, 2).flatten(2))


def test_multi_head_attention__with_past__gives_all_keys() -> None:
    q, k, v = (given(2, 5, 8, seed=n) for n in range(3))
    past_k, past_v = (given(2, 2, 3, 4, seed=n) for n in range(2))
    made = run("MultiHeadAttention", [q, k, v, None, None, None, past_k, past_v], 3, num_heads=2, scale=0.3)
    keys = torch.cat([torch.tensor(past_k), heads(k, 2)], 2)
    values = torch.cat([torch.tensor(past_v), heads(v, 2)], 2)
    wanted = F.scaled_dot_product_attention(heads(q, 2), keys, values, scale=0.3)
    close(made[0], wanted.transpose(1, 2).flatten(2))
    close(made[1], keys)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding__of_heads__turns_pairs(interleaved: int) -> None:
    x, positions = given(2, 3, 5, 8), np.random.default_rng(0).integers(0, 9, (2, 5))
    angles = given(16, 4)
    made = run("RotaryEmbedding", [x, positions, np.cos(angles), np.sin(angles)], interleaved=interleaved)[0]
    pairs = x.reshape(2, 3, 5, 4, 2) if interleaved else x.reshape(2, 3, 5, 2, 4).swapaxes(3, 4)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles[positions])[:, None]
    wanted = np.stack([turned.real, turned.imag], -1 if interleaved else 3)
    close(made, wanted.reshape(x.shape))


def test_dynamic_quantised_product__is_near_the_product() -> None:
    x, whole = given(3, 8), np.random.default_rng(0).integers(0, 255, (8, 6)).astype(np.uint8)
    scale, zero = np.asarray([0.01], np.float32), np.asarray([120], np.uint8)
    made = run("DynamicQuantizeMatMul", [x, whole, scale, zero, given(6)])[0]
    weight = (whole.astype(np.float32) - 120) * 0.01
    step = (max(x.max(), 0) - min(x.min(), 0)) / 255
    np.testing.assert_allclose(made, x @ weight + given(6), atol=step / 2 * np.abs(weight).sum(0).max() + 1e-4)
    assert np.abs(made - x @ weight - given(6)).max() > 0


def test_packed_queries__are_refused_in_words() -> None:
    with pytest.raises(UnsupportedOpError, match="packed queries, keys and values"):
        run("MultiHeadAttention", [given(2, 5, 2, 3, 4)], num_heads=2)
