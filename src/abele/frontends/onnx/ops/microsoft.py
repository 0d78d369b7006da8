"""Operators of ONNX Runtime (``com.microsoft``), which optimisers and exporters write: fused layers and attention.

Source: operators and attributes as ONNX Runtime 1.32 declares them.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.convolutions import conv
from abele.frontends.onnx.ops.norms import layer_normalization, rms_normalization
from abele.frontends.onnx.ops.products import gemm, product
from abele.frontends.onnx.ops.quantised import beside, dynamic_quantize
from abele.frontends.onnx.registry import NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.along import take
from abele.numerics import bool_, f32, i32

DOMAIN = "com.microsoft"
x, y, z = arg(0), arg(1), arg(2)

# --- activations and products -----------------------------------------------------------------------------------------


def _with(call: NodeCall, value: Value, bias: Value | None) -> Value:
    return value if bias is None else call.map(x + y, value, bias)


@op("Gelu", domain=DOMAIN)
def gelu(call: NodeCall, value: Value) -> Value:
    """Gaussian error linear units by the error function."""
    return build.nonlinearity(call.net, "gelu_erf", value)


@op("BiasGelu", domain=DOMAIN)
def bias_gelu(call: NodeCall, value: Value, bias: Value) -> Value:
    """Gaussian error linear units of a sum."""
    return build.nonlinearity(call.net, "gelu_erf", _with(call, value, bias))


@op("FastGelu", domain=DOMAIN)
def fast_gelu(call: NodeCall, value: Value, bias: Value | None = None) -> Value:
    """Gaussian error linear units by tanh, of a sum."""
    return build.nonlinearity(call.net, "gelu", _with(call, value, bias))


@op("QuickGelu", domain=DOMAIN)
def quick_gelu(call: NodeCall, value: Value, *, alpha: float = 1.702) -> Value:
    """X σ(α x)."""
    return call.map(x * apply("sigmoid", x * alpha), value)


@op("BiasAdd", domain=DOMAIN)
def bias_add(call: NodeCall, value: Value, bias: Value, skip: Value) -> Value:
    """The sum of all three."""
    return call.map(x + y + z, value, bias, skip)


@op("FusedMatMul", domain=DOMAIN)
def fused_matmul(
    call: NodeCall,
    first: Value,
    second: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    """α A B of stacks of matrices, of which either may be turned."""
    sides = []
    for value, turned, moved in ((first, transA, transBatchA), (second, transB, transBatchB)):
        order = list(range(value.ndim))
        if moved:
            # The stack's dimensions are one further back: the first dimension is a row of the matrices.
            order = [*order[1:-1], 0, order[-1]]
        made = build.permute(call.net, value, order) if moved else value
        sides.append(build.transpose(call.net, made) if turned else made)
    left = call.map(x * alpha, sides[0]) if alpha != 1.0 else sides[0]
    if second.ndim == 2 and first.ndim > 2 and not transBatchA:
        weight = second if transB else build.transpose(call.net, second)
        return build.linear(call.net, left, weight, None)
    return product(call, left, sides[1])


_ACTIVATIONS = {
    "Relu": lambda a, b: apply("max", x, 0.0),
    "Tanh": lambda a, b: apply("tanh", x),
    "Sigmoid": lambda a, b: apply("sigmoid", x),
    "LeakyRelu": lambda a, b: select(x < 0.0, x * a, x),
    "Clip": lambda a, b: apply("min", apply("max", x, a), b),
    "HardSigmoid": lambda a, b: apply("max", apply("min", x * a + b, 1.0), 0.0),
}


def _activated(call: NodeCall, value: Value, name: str, parameters: tuple[float, ...]) -> Value:
    if not name:
        return value
    if name not in _ACTIVATIONS:
        raise call.refuse(f"has the activation {name!r}, which has no lowering here")
    a, b = (*parameters, 0.0, 0.0)[:2]
    return call.map(_ACTIVATIONS[name](float(a), float(b)), value)


@op("FusedConv", domain=DOMAIN)
def fused_conv(
    call: NodeCall,
    value: Value,
    weight: Value,
    bias: Value | None = None,
    addend: Value | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    **settings: object,
) -> Value:
    """A convolution, to whose result something may be added, and an activation of it."""
    made = _with(call, conv(call, value, weight, bias, **settings), addend)
    return _activated(call, made, activation, activation_params)


@op("FusedGemm", domain=DOMAIN)
def fused_gemm(
    call: NodeCall,
    first: Value,
    second: Value,
    addend: Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float = 0.0,
    activation_beta: float = 0.0,
    activation_gamma: float = 0.0,
    **settings: object,
) -> Value:
    """α A B + β C and an activation of it."""
    made = gemm(call, first, second, addend, **settings)
    return _activated(call, made, activation, (activation_alpha, activation_beta))


# --- quantised products -----------------------------------------------------------------------------------------------


@op("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    call: NodeCall,
    first: Value,
    second: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero_point: Value | None = None,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """The product of integers less their zero points, times both scales."""
    sides = []
    for value, zero, axis in ((first, a_zero_point, -2), (second, b_zero_point, -1)):
        floats = build.cast(call.net, value, f32)
        sides.append(floats if zero is None else call.map(x - y, floats, beside(call, value, zero, axis), common=f32))
    made = product(call, *sides)
    factor = beside(call, made, b_scale, -1)
    scaled = call.map(x * y * z, made, build.reshape(call.net, a_scale, ()), factor)
    return _with(call, scaled, bias)


@op("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(
    call: NodeCall,
    first: Value,
    second: Value,
    b_scale: Value,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """A product whose first operand is quantised by its own range."""
    whole, scale, zero = dynamic_quantize(call, first)
    made: Value = matmul_integer_to_float(
        call, whole, second, scale, b_scale, zero, b_zero_point=b_zero_point, bias=bias
    )
    return made


# --- normalisations ---------------------------------------------------------------------------------------------------


def _skip(call: NodeCall, value: Value, skip: Value, bias: Value | None) -> Value:
    return _with(call, call.map(x + y, value, skip), bias)


@op("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(
    call: NodeCall,
    value: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Value, ...]:
    """Layer normalisation of a sum; the sum comes as well."""
    total = _skip(call, value, skip, bias)
    return (*layer_normalization(call, total, gamma, beta, epsilon=epsilon), total)


@op("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_rms_normalization(
    call: NodeCall, value: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-12
) -> tuple[Value | None, ...]:
    """Root-mean-square normalisation of a sum; the sum comes as well."""
    total = _skip(call, value, skip, bias)
    return rms_normalization(call, total, gamma, epsilon=epsilon), None, None, total


@op("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    call: NodeCall, value: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    """Root-mean-square normalisation, as ONNX Runtime has it among the standard operators."""
    made: Value = rms_normalization(call, value, scale, axis=axis, epsilon=epsilon)
    return made


@op("LayerNormalization", domain=DOMAIN)
def layer_normalization_(
    call: NodeCall,
    value: Value,
    scale: Value,
    shift: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    """Normalisation over the last dimensions, from an axis on."""
    made: tuple[Value, ...] = layer_normalization(call, value, scale, shift, axis=axis, epsilon=epsilon)
    return made


@op("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    call: NodeCall,
    words: Value,
    segments: Value | None,
    word_table: Value,
    position_table: Value,
    segment_table: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    positions: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Value, Value, Value]:
    """Layer normalisation of the sum of embeddings of words, positions and segments; lengths by a mask, and the sum."""
    net, (batch, length) = call.net, words.shape
    total = take(net, word_table, words, 0)
    if positions is None:
        places = build.slice_(net, position_table, 0, 0, length)
        total = call.map(x + y, total, places)
    else:
        total = call.map(x + y, total, take(net, position_table, positions, 0))
    if segments is not None and segment_table is not None:
        total = call.map(x + y, total, take(net, segment_table, segments, 0))
    made = layer_normalization(call, total, gamma, beta, epsilon=epsilon)[0]
    lengths = build.full(net, 0, (batch,), i32) if mask is None else build.reduce(net, build.cast(net, mask, i32), [1])
    return made, lengths, total


# --- attention --------------------------------------------------------------------------------------------------------


def _heads(call: NodeCall, value: Value, heads: int) -> Value:
    """[batch, length, heads · depth] as [batch, heads, length, depth]."""
    batch, length, width = value.shape
    if width % heads:
        raise call.wrong(f"has {heads} heads of {width} elements")
    return build.permute(call.net, build.reshape(call.net, value, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _visible(call: NodeCall, mask: Value | None, batch: int, queries: int, keys: int) -> Value | None:
    """Keys visible by a mask: a bool that broadcasts to [batch, heads, queries, keys]."""
    if mask is None:
        return None
    net = call.net
    if mask.shape == (batch, keys):
        return build.reshape(net, call.map(x.ne(0.0), mask, dtype=bool_), (batch, 1, 1, keys))
    if mask.shape == (batch, queries, keys):
        return build.reshape(net, call.map(x.ne(0.0), mask, dtype=bool_), (batch, 1, queries, keys))
    if mask.shape == (batch,):
        ends = build.reshape(net, build.cast(net, mask, i32), (batch, 1, 1, 1))
        places = net.constant(np.arange(keys, dtype=np.int32).reshape(1, 1, 1, keys), i32)
        return build.map_(net, x < y, [places, ends], bool_)
    raise call.refuse(
        f"has a mask of the shape {list(mask.shape)}",
        remedy=f"[{batch}], [{batch}, {keys}] or [{batch}, {queries}, {keys}]",
    )


def attended(
    call: NodeCall,
    query: Value,
    key: Value,
    value: Value,
    *,
    scale: float,
    mask: Value | None,
    bias: Value | None,
    causal: bool,
    hides_by: float,
) -> Value:
    """softmax(scale · query · keyᵀ + bias) · value, in the layout [batch, length, heads · depth].

    Args:
        call: The node.
        query: [batch, heads, queries, depth].
        key: [batch, heads, keys, depth].
        value: [batch, heads, keys, depth of values].
        scale: Factor of the scores; 0 for one over the root of the depth.
        mask: Keys that are seen: number of them, one of each key, or one of each score, by sample.
        bias: Addend of the scores.
        causal: True if queries see no later keys; the last query is at the last key.
        hides_by: Addend of the scores of keys that ``mask`` hides.
    """
    net, (batch, heads, queries, depth), keys = call.net, query.shape, key.shape[2]
    visible = _visible(call, mask, batch, queries, keys)
    factor = scale or 1 / math.sqrt(depth)
    scores = build.matmul(net, call.map(x * factor, query), build.transpose(net, key))
    if bias is not None:
        scores = call.map(x + y, scores, bias)
    if visible is not None:
        scores = call.map(select(y, x, x + hides_by), scores, visible, masks=(1,))
    if causal:
        seen = net.constant(np.tri(queries, keys, keys - queries), bool_, "causal")
        scores = call.map(select(y, x, -math.inf), scores, seen, masks=(1,))
    mixed = build.matmul(net, build.softmax(net, scores, -1), value)
    return build.reshape(net, build.permute(net, mixed, (0, 2, 1, 3)), (batch, queries, heads * value.shape[3]))


@op("Attention", domain=DOMAIN)
def attention(
    call: NodeCall,
    value: Value,
    weights: Value,
    bias: Value | None = None,
    mask_index: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    qkv_hidden_sizes: tuple[int, ...] = (),
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
) -> tuple[Value, Value | None]:
    """Multi-head attention of a value to itself, whose queries, keys and values come of one product.

    Keys and values of earlier places, ``past`` [2, batch, heads, length, depth], come before; all come back.
    """
    net = call.net
    sizes = list(qkv_hidden_sizes) or [weights.shape[1] // 3] * 3
    if sum(sizes) != weights.shape[1]:
        raise call.wrong(f"has weights for {weights.shape[1]} elements, not for {sizes}")
    all_three = build.linear(net, value, build.transpose(net, weights), bias)
    ends = np.cumsum([0, *sizes])
    q, k, v = (_heads(call, build.slice_(net, all_three, 2, int(a), int(b)), num_heads) for a, b in pairwise(ends))
    if past is not None:
        before = [
            build.reshape(net, build.slice_(net, past, 0, n, n + 1), past.shape[1:]) for n in range(past.shape[0])
        ]
        k, v = build.concat(net, [before[0], k], 2), build.concat(net, [before[1], v], 2)
    made = attended(
        call,
        q,
        k,
        v,
        scale=scale,
        mask=mask_index,
        bias=attention_bias,
        causal=bool(unidirectional),
        hides_by=mask_filter_value,
    )
    if not call.wants(1):
        return made, None
    return made, build.concat(net, [build.reshape(net, t, (1, *t.shape)) for t in (k, v)], 0)


@op("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    call: NodeCall,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    key_padding_mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
) -> tuple[Value, ...]:
    """Attention of queries to keys; keys and values of earlier places come before, and all come back."""
    net = call.net
    if key is None or value is None or query.ndim != 3:
        raise call.refuse("has packed queries, keys and values", remedy="three inputs [batch, length, width]")
    given = [query, key, value]
    if bias is not None:
        begin = 0
        for number, part in enumerate(given):
            width = part.shape[2] if part.ndim == 3 else part.shape[1] * part.shape[3]
            own = build.slice_(net, bias, 0, begin, begin + width)
            begin += width
            if part.ndim == 3:
                given[number] = call.map(x + y, part, own)
    q, k, v = (_heads(call, part, num_heads) if part.ndim == 3 else part for part in given)
    if past_key is not None and past_value is not None:
        k, v = build.concat(net, [past_key, k], 2), build.concat(net, [past_value, v], 2)
    made = attended(
        call,
        q,
        k,
        v,
        scale=scale,
        mask=key_padding_mask,
        bias=attention_bias,
        causal=bool(unidirectional),
        hides_by=mask_filter_value,
    )
    return made, k, v


@op("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(
    call: NodeCall,
    value: Value,
    positions: Value,
    cosines: Value,
    sines: Value,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    is_packed_batching: int = 0,
    scale: float = 1.0,
) -> Value:
    """Pairs of elements turned by angles that grow with the position: halves of a head, or neighbours in it."""
    net = call.net
    turned = rotary_embedding_dim or 2 * cosines.shape[1]
    if is_packed_batching:
        raise call.refuse("has sequences of several lengths packed together")
    flat = value.ndim == 3
    depth = value.shape[2] // num_heads if flat and num_heads else (turned if flat else value.shape[3])
    heads = _heads(call, value, value.shape[2] // depth) if flat else value
    batch, count, length, _ = heads.shape
    if positions.size == 1 and positions.ndim < 2:
        steps = net.constant(np.arange(length, dtype=np.int32).reshape(1, length), i32)
        first = build.reshape(net, build.cast(net, positions, i32), (1, 1))
        positions = build.map_(net, x + y, [steps, first], i32)
    c, s = (
        build.reshape(net, t, (t.shape[0], 1, length, turned // 2))
        for t in (take(net, table, positions, 0) for table in (cosines, sines))
    )
    head = build.slice_(net, heads, 3, 0, turned)
    if interleaved:
        pairs = build.reshape(net, head, (batch, count, length, turned // 2, 2))
        a, b = (build.reshape(net, build.slice_(net, pairs, 4, n, n + 1), pairs.shape[:4]) for n in range(2))
    else:
        a, b = (build.slice_(net, head, 3, n * turned // 2, (n + 1) * turned // 2) for n in range(2))
    first_half = call.map(x * y - z * arg(3), a, c, b, s)
    second_half = call.map(x * y + z * arg(3), b, c, a, s)
    if interleaved:
        apart = [build.reshape(net, t, (*t.shape, 1)) for t in (first_half, second_half)]
        made = build.reshape(net, build.concat(net, apart, 4), head.shape)
    else:
        made = build.concat(net, [first_half, second_half], 3)
    if turned < heads.shape[3]:
        made = build.concat(net, [made, build.slice_(net, heads, 3, turned, heads.shape[3])], 3)
    if scale != 1.0:
        made = call.map(x * scale, made)
    return build.reshape(net, build.permute(net, made, (0, 2, 1, 3)), value.shape) if flat else made
