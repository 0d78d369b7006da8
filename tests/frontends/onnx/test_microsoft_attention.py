"""Attention of ONNX Runtime to caches, and products with packed weights, against PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from abele import onnx as abele_onnx
from abele.errors import UnsupportedOpError
from abele.frontends.onnx.model import converted
from frontends.onnx.test_microsoft import DOMAIN, close, given, interpreted

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")
HEADS, SHARED, DEPTH = 4, 2, 8


def run(name: str, inputs: list[Any], results: int = 1, known: tuple[int, ...] = (), **attributes: Any) -> list[Any]:
    """Results of a model of one node, interpreted; those of ``known`` are initialisers."""
    names = [f"in{n}" if a is not None else "" for n, a in enumerate(inputs)]
    ports = {n: a for n, (name_, a) in enumerate(zip(names, inputs, strict=True)) if a is not None}
    outputs = [f"out{n}" for n in range(results)]
    graph = helper.make_graph(
        [helper.make_node(name, names, outputs, domain=DOMAIN, **attributes)],
        "graph",
        [
            helper.make_tensor_value_info(names[n], helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in ports.items()
            if n not in known
        ],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        initializer=[numpy_helper.from_array(a, names[n]) for n, a in ports.items() if n in known],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = abele_onnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    return interpreted(
        model, converted("model", model.inputs, {names[n]: a for n, a in ports.items() if n not in known})
    )


def heads(value: Any, count: int) -> Any:
    """[batch, length, heads · depth] as PyTorch has it, [batch, heads, length, depth]."""
    batch, length, width = value.shape
    return torch.tensor(value).view(batch, length, count, width // count).transpose(1, 2)


def attended(query: Any, key: Any, value: Any, seen: Any) -> Any:
    """PyTorch's attention with shared keys, [batch, length, heads · depth]."""
    made = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)
    return made.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(("length", "past", "window"), [(5, 0, -1), (1, 6, -1), (3, 4, -1), (1, 6, 3)])
def test_group_query_attention__with_a_cache__is_pytorchs(length: int, past: int, window: int) -> None:
    total = length + past
    q, k, v = (
        given(2, length, HEADS * DEPTH),
        given(2, length, SHARED * DEPTH),
        given(2, length, SHARED * DEPTH, seed=1),
    )
    caches = [given(2, SHARED, past, DEPTH, seed=s) for s in (2, 3)]
    lengths = np.full(2, total - 1, np.int32)
    inputs = [q, k, v, *caches, lengths, np.array(total, np.int32)]
    made = run("GroupQueryAttention", inputs, 3, (6,), num_heads=HEADS, kv_num_heads=SHARED, local_window_size=window)
    keys, values = (torch.cat([torch.tensor(c), heads(n, SHARED)], 2) for c, n in zip(caches, (k, v), strict=True))
    at, places = np.arange(past, total)[:, None], np.arange(total)
    seen = (places <= at) & ((places > at - window) if window > 0 else True)
    close(made[0], attended(heads(q, HEADS), keys, values, torch.tensor(seen)))
    close(made[1], keys)
    close(made[2], values)


def test_group_query_attention__samples_of_different_lengths__write_at_their_own_places() -> None:
    cache, lengths = given(2, SHARED, 6, DEPTH), (6, 3)
    q, new = given(2, 1, HEADS * DEPTH), given(2, 1, SHARED * DEPTH)
    inputs = [q, new, new, cache, cache, np.array(lengths, np.int32), np.array(7, np.int32)]
    made = run("GroupQueryAttention", inputs, 3, (6,), num_heads=HEADS, kv_num_heads=SHARED)
    for sample, place in enumerate(lengths):
        keys = torch.cat(
            [torch.tensor(cache[sample : sample + 1, :, :place]), heads(new[sample : sample + 1], SHARED)], 2
        )
        close(made[0][sample : sample + 1], attended(heads(q[sample : sample + 1], HEADS), keys, keys, None))
        close(made[1][sample : sample + 1, :, : place + 1], keys)


def test_group_query_attention__turned_packed_and_capped__is_numpys() -> None:
    packed = given(1, 4, (HEADS + 2 * SHARED) * DEPTH)
    angles = np.arange(9)[:, None] * np.linspace(1, 0.1, DEPTH // 2)
    cosines, sines = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    lengths, total = np.array([3], np.int32), np.array(4, np.int32)
    inputs = [packed, None, None, None, None, lengths, total, cosines, sines]
    made = run(
        "GroupQueryAttention",
        inputs,
        1,
        (6,),
        num_heads=HEADS,
        kv_num_heads=SHARED,
        do_rotary=1,
        softcap=2.0,
        smooth_softmax=1,
    )
    ends = np.cumsum([0, HEADS, SHARED, SHARED]) * DEPTH
    q, k, v = (
        heads(packed[..., a:b], n).numpy() for a, b, n in zip(ends, ends[1:], (HEADS, SHARED, SHARED), strict=False)
    )

    def turned(value: Any) -> Any:
        a, b = np.split(value, 2, -1)
        c, s = cosines[:4], sines[:4]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    q, k, v = turned(q), turned(k).repeat(2, 1), v.repeat(2, 1)
    scores = 2 * np.tanh(q @ k.swapaxes(-1, -2) / DEPTH**0.5 / 2)
    weights = np.exp(np.where(np.tri(4, dtype=bool), scores, -np.inf))
    weights /= 1 + weights.sum(-1, keepdims=True)
    close(made[0], (weights @ v).swapaxes(1, 2).reshape(1, 4, -1))


def test_group_query_attention__what_has_no_lowering__is_refused() -> None:
    k = given(1, 2, SHARED * DEPTH)
    inputs = [given(1, 2, HEADS * DEPTH), k, k, None, None, np.array([1], np.int32), np.array(2, np.int32)]
    for more in ({"causal": 0}, {"kv_cache_bit_width": 8}):
        with pytest.raises(UnsupportedOpError, match="no lowering here"):
            run("GroupQueryAttention", inputs, 1, (6,), num_heads=HEADS, kv_num_heads=SHARED, **more)


def test_quantised_attention__is_attention_of_what_the_integers_stand_for() -> None:
    draw = np.random.default_rng(0)
    x, w = draw.integers(0, 255, (2, 5, 16), np.uint8), draw.integers(-127, 127, (16, 48), np.int8)
    scales, bias = (np.float32(0.01), np.float32(0.02)), given(48)
    zeros = np.array(128, np.uint8), np.array(3, np.int8)
    inputs = [x, w, bias, *map(np.asarray, scales), None, *zeros]
    made = run("QAttention", inputs, 1, (1, 2, 3, 4, 6, 7), num_heads=2, unidirectional=1)
    all_three = (x - 128.0) @ (w - 3.0) * 0.0002 + bias
    q, k, v = (heads(part.astype(np.float32), 2) for part in np.split(all_three, 3, -1))
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    np.testing.assert_allclose(made[0], wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_decoder_attention__shared_cache__writes_one_place_and_sees_those_before() -> None:
    q, k, v = (given(2, 1, 16, seed=s) for s in range(3))
    caches = [given(2, 2, 7, 8, seed=s) for s in (3, 4)]
    inputs = [q, k, v, None, None, *caches, np.array([4], np.int32)]
    made = run("DecoderMaskedMultiHeadAttention", inputs, 3, num_heads=2, past_present_share_buffer=1)
    wanted = [torch.tensor(c.copy()) for c in caches]
    for cache, new in zip(wanted, (k, v), strict=True):
        cache[:, :, 4:5] = heads(new, 2)
    close(made[0], attended(heads(q, 2), wanted[0][:, :, :5], wanted[1][:, :, :5], None))
    close(made[1], wanted[0])
    close(made[2], wanted[1])


@pytest.mark.parametrize(("bits", "zeros"), [(4, True), (4, False), (8, True), (2, False)])
def test_matmul_n_bits__packed_weights__are_what_they_stand_for(bits: int, zeros: bool) -> None:
    rows, inner, block = 5, 40, 16
    draw, blocks, each = np.random.default_rng(bits), 3, 8 // bits
    codes = draw.integers(0, 2**bits, (rows, blocks * block), np.uint8)
    points = draw.integers(0, 2**bits, (rows, -(-blocks // each) * each), np.uint8)
    scales = np.abs(given(rows, blocks))

    def packed(numbers: Any) -> Any:
        apart = numbers.reshape(*numbers.shape[:-1], -1, each)
        return (apart << (np.arange(each) * bits)).sum(-1).astype(np.uint8)

    inputs = [given(3, inner), packed(codes).reshape(rows, blocks, -1), scales.reshape(-1)]
    if zeros:
        inputs.append(packed(points).reshape(-1))
    made = run("MatMulNBits", inputs, 1, (1, 2, 3), K=inner, N=rows, bits=bits, block_size=block)
    less = points[:, :blocks] if zeros else np.full((rows, blocks), 2 ** (bits - 1))
    weight = (codes.reshape(rows, blocks, block).astype(np.float32) - less[..., None]) * scales[..., None]
    np.testing.assert_allclose(made[0], inputs[0] @ weight.reshape(rows, -1)[:, :inner].T, rtol=1e-4, atol=1e-4)
