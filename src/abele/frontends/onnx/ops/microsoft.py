"""Operators of ONNX Runtime (``com.microsoft``), which optimisers and exporters write: fused layers and products.

Source: operators and attributes as ONNX Runtime 1.32 declares them.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.convolutions import conv
from abele.frontends.onnx.ops.norms import layer_normalization, rms_normalization
from abele.frontends.onnx.ops.products import gemm, product
from abele.frontends.onnx.ops.quantised import beside, dynamic_quantize
from abele.frontends.onnx.registry import Item, Known, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.along import take
from abele.numerics import f32, i32

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


@op("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(
    call: NodeCall,
    value: Value,
    codes: Known,
    scales: Item,
    zero_points: Known | None = None,
    g_idx: Known | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int = 128,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Value:
    """The product with a weight of 2, 4 or 8 bits in blocks of columns, each with a scale and a zero point.

    The device has no such integers, so that the weight is held there in the type of its scales: [N, K] of f32 or f16.
    """
    if bits not in (2, 4, 8) or weight_prepacked:
        raise call.refuse(
            f"has weights of {bits} bits, packed for another processor"
            if weight_prepacked
            else f"has weights of {bits} bits",
            remedy="2, 4 or 8 bits, as quantisers write them",
        )
    blocks = -(-K // block_size)
    whole = _unpacked(np.asarray(codes).reshape(N, blocks, -1), bits)[..., :block_size].astype(np.float32)
    if zero_points is None:
        zeros = np.full((N, blocks), 2.0 ** (bits - 1), np.float32)
    elif np.asarray(zero_points).dtype.kind == "u":
        zeros = _unpacked(np.asarray(zero_points).reshape(N, -1), bits)[:, :blocks].astype(np.float32)
    else:
        zeros = np.asarray(zero_points).reshape(N, blocks).astype(np.float32)
    less = whole.reshape(N, -1)[:, :K]
    group = np.arange(K) // block_size if g_idx is None else np.asarray(g_idx).reshape(-1)[:K].astype(np.int64)
    less = less - zeros[:, group]

    def form(scale: Array) -> Array:
        return (less * np.asarray(scale, np.float32).reshape(N, blocks)[:, group]).astype(scale.dtype)

    weight = call.prepared(scales, form, f"of {call.node.input[1]}")
    if weight is None:
        factors = build.reshape(call.net, call.reader.value(scales), (N, blocks))
        each = take(call.net, factors, call.constant(group.astype(np.int32)), 1)
        weight = call.map(x * y, each, call.constant(less))
    return build.linear(call.net, value, weight, bias)


def _unpacked(packed: Array, bits: int) -> Array:
    """Numbers of some bits each, of bytes that hold several, the lowest bits first; along the last dimension."""
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * bits
    apart = (packed[..., None] >> shifts) & (2**bits - 1)
    return np.reshape(apart, (*packed.shape[:-1], -1))


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
