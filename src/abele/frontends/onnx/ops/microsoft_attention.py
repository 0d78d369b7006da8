"""Attention as ONNX Runtime has it (``com.microsoft``), which its optimisers and model builders write.

Caches have one size for a program: [batch, heads, places, depth]. New keys and values are put behind those that are
there, at a place of each sample's own, and the whole cache comes back. Of a cache of 8 places of which a sample has 5,
a query of one position writes place 5 and sees places 0 to 5.

Source: operators and attributes as ONNX Runtime 1.32 declares them, and its results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.indexing import tensor_scatter
from abele.frontends.onnx.ops.microsoft import DOMAIN, matmul_integer_to_float
from abele.frontends.onnx.registry import Item, Known, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.along import take
from abele.numerics import bool_, f32, i32

x, y, z = arg(0), arg(1), arg(2)


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


@dataclass(frozen=True)
class Scores:
    """Rules by which scores become weights of keys.

    Attributes:
        scale: Factor of the scores; 0 for one over the root of the depth.
        mask: Keys that are seen: number of them, one of each key, or one of each score, by sample.
        bias: Addend of the scores.
        seen: Scores that are seen, which broadcasts to all; None for all of them. Others have no weight.
        causal: True if queries see no later keys; the last query is at the last key.
        hides_by: Addend of the scores of keys that ``mask`` hides.
        cap: Bound of the scores, to which they come near by tanh; 0 for none.
        sink: Score by head of a key without a value; None for none.
    """

    scale: float = 0.0
    mask: Value | None = None
    bias: Value | None = None
    seen: Value | None = None
    causal: bool = False
    hides_by: float = -10000.0
    cap: float = 0.0
    sink: Value | None = None


def attended(call: NodeCall, query: Value, key: Value, value: Value, how: Scores) -> Value:
    """softmax(scale · query · keyᵀ + bias) · value, in the layout [batch, length, heads · depth].

    Args:
        call: The node.
        query: [batch, heads, queries, depth].
        key: [batch, heads, keys, depth]; or of fewer heads, each for several of the queries.
        value: [batch, heads, keys, depth of values], of as many heads as the keys.
        how: Rules by which scores become weights.
    """
    net, (batch, heads, queries, depth), keys = call.net, query.shape, key.shape[2]
    if key.shape[1] != heads:
        # Heads of queries that share keys are further rows of one product.
        times = heads // key.shape[1]
        if heads % key.shape[1]:
            raise call.wrong(f"has {heads} heads of queries for {key.shape[1]} of keys")
        query = build.reshape(net, query, (batch, key.shape[1], times * queries, depth))
    visible = _visible(call, how.mask, batch, queries, keys)
    factor = how.scale or 1 / math.sqrt(depth)
    scores = build.matmul(net, call.map(x * factor, query), build.transpose(net, key))
    scores = build.reshape(net, scores, (batch, heads, queries, keys))
    if how.cap:
        scores = call.map(apply("tanh", x / how.cap) * how.cap, scores)
    if how.bias is not None:
        scores = call.map(x + y, scores, how.bias)
    if visible is not None:
        scores = call.map(select(y, x, x + how.hides_by), scores, visible, masks=(1,))
    seen = net.constant(np.tri(queries, keys, keys - queries), bool_, "causal") if how.causal else how.seen
    if seen is not None:
        scores = call.map(select(y, x, -math.inf), scores, seen, masks=(1,))
    if how.sink is not None:
        sink = build.expand(net, build.reshape(net, how.sink, (1, heads, 1, 1)), (batch, heads, queries, 1))
        with_sink = build.softmax(net, build.concat(net, [scores, build.cast(net, sink, scores.dtype)], 3), -1)
        weights = build.slice_(net, with_sink, 3, 0, keys)
    else:
        weights = build.softmax(net, scores, -1)
    weights = build.reshape(net, weights, (batch, key.shape[1], heads // key.shape[1] * queries, keys))
    mixed = build.reshape(net, build.matmul(net, weights, value), (batch, heads, queries, value.shape[3]))
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
    sizes = list(qkv_hidden_sizes) or [weights.shape[1] // 3] * 3
    if sum(sizes) != weights.shape[1]:
        raise call.wrong(f"has weights for {weights.shape[1]} elements, not for {sizes}")
    all_three = build.linear(call.net, value, build.transpose(call.net, weights), bias)
    scores = Scores(scale, mask_index, attention_bias, causal=bool(unidirectional), hides_by=mask_filter_value)
    return _of_one_product(call, all_three, sizes, num_heads, past, scores)


def _of_one_product(
    call: NodeCall, all_three: Value, sizes: list[int], num_heads: int, past: Value | None, scores: Scores
) -> tuple[Value, Value | None]:
    """Attention of queries, keys and values beside each other, [batch, length, widths of all three]."""
    net = call.net
    ends = np.cumsum([0, *sizes])
    q, k, v = (_heads(call, build.slice_(net, all_three, 2, int(a), int(b)), num_heads) for a, b in pairwise(ends))
    if past is not None:
        before = [
            build.reshape(net, build.slice_(net, past, 0, n, n + 1), past.shape[1:]) for n in range(past.shape[0])
        ]
        k, v = build.concat(net, [before[0], k], 2), build.concat(net, [before[1], v], 2)
    made = attended(call, q, k, v, scores)
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
    hidden = Scores(scale, key_padding_mask, attention_bias, causal=bool(unidirectional), hides_by=mask_filter_value)
    return attended(call, q, k, v, hidden), k, v


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
    length = heads.shape[2]
    if positions.size == 1 and positions.ndim < 2:
        steps = net.constant(np.arange(length, dtype=np.int32).reshape(1, length), i32)
        first = build.reshape(net, build.cast(net, positions, i32), (1, 1))
        positions = build.map_(net, x + y, [steps, first], i32)
    made = turned_pairs(call, heads, positions, (cosines, sines), interleaved=bool(interleaved))
    if scale != 1.0:
        made = call.map(x * scale, made)
    return build.reshape(net, build.permute(net, made, (0, 2, 1, 3)), value.shape) if flat else made


def turned_pairs(
    call: NodeCall, heads: Value, positions: Value, tables: tuple[Value, Value], *, interleaved: bool
) -> Value:
    """Pairs of elements of [batch, heads, length, depth] turned by the angles of their positions.

    Args:
        call: The node.
        heads: The elements; of a depth over twice the width of the tables the rest stays.
        positions: [batch, length].
        tables: Cosines and sines, [positions, pairs].
        interleaved: True if pairs are neighbours, and not of the same place in both halves.
    """
    net, (batch, count, length, _) = call.net, heads.shape
    turned = 2 * tables[0].shape[1]
    c, s = (
        build.reshape(net, t, (t.shape[0], 1, length, turned // 2))
        for t in (take(net, table, positions, 0) for table in tables)
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
    return made


# --- attention to a cache ---------------------------------------------------------------------------------------------


@op("QAttention", domain=DOMAIN)
def quantised_attention(
    call: NodeCall,
    value: Value,
    weights: Value,
    bias: Value,
    input_scale: Value,
    weight_scale: Value,
    mask_index: Value | None = None,
    input_zero_point: Value | None = None,
    weight_zero_point: Value | None = None,
    past: Value | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Value, Value | None]:
    """Multi-head attention whose queries, keys and values come of a product of integers; the rest is of floats."""
    if do_rotary or past_present_share_buffer:
        raise call.refuse("turns its keys, or writes into the cache that it is given", remedy="GroupQueryAttention")
    all_three: Value = matmul_integer_to_float(
        call, value, weights, input_scale, weight_scale, input_zero_point, b_zero_point=weight_zero_point, bias=bias
    )
    scores = Scores(scale, mask_index, causal=bool(unidirectional), hides_by=mask_filter_value)
    return _of_one_product(call, all_three, [weights.shape[1] // 3] * 3, num_heads, past, scores)


def _places(call: NodeCall, first: Value, length: int) -> Value:
    """Positions [batch, length] of elements that come after each other, from one by sample on."""
    steps = call.net.constant(np.arange(length, dtype=np.int32).reshape(1, length), i32)
    return build.map_(call.net, x + y, [build.reshape(call.net, first, (first.size, 1)), steps], i32)


def _longer(call: NodeCall, value: Value, dim: int, extent: int) -> Value:
    """A value with zeros behind it along a dimension."""
    more = [extent - value.shape[dim] if d == dim else 0 for d in range(value.ndim)]
    return build.pad(call.net, value, [0] * value.ndim, more)


def _in_cache(call: NodeCall, new: Value, past: Value | None, first: Value, extent: int) -> Value:
    """A cache [batch, heads, extent, depth] with new rows from a place of each sample's own on."""
    length = new.shape[2]
    if past is None or past.shape[2] == 0:
        if length >= extent:
            return new
        return _longer(call, new, 2, extent)
    if past.shape[2] < extent:
        past = _longer(call, past, 2, extent)
    made: Value = tensor_scatter(call, past, new, first, axis=2)
    return made


@op("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(
    call: NodeCall,
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    seqlens_k: Value,
    total_sequence_length: Known,
    cos_cache: Value | None = None,
    sin_cache: Value | None = None,
    position_ids: Value | None = None,
    attention_bias: Value | None = None,
    head_sink: Value | None = None,
    *more: Item | None,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    local_window_size: int = -1,
    smooth_softmax: int = 0,
    causal: int = 1,
    **others: object,
) -> tuple[Value, Value, Value]:
    """Attention to a cache with the new keys in it; heads of queries share keys.

    A sample has ``seqlens_k`` + 1 keys, the new ones last; where all of them are new, each begins at place 0.
    """
    net = call.net
    given = {name: setting for name, setting in others.items() if setting not in (0, -1, 0.0, "", "NONE")}
    given.pop("qk_norm_epsilon", None), given.pop("q_norm_epsilon", None), given.pop("k_norm_epsilon", None)
    if given or any(item is not None for item in more) or call.wants(3) or not causal:
        what = next(iter(given), "further inputs or results" if causal else "no order of keys")
        raise call.refuse(f"has {what}, which has no lowering here", remedy="caches of floats, queries that are causal")
    if key is None or value is None:
        depth = query.shape[2] // (num_heads + 2 * kv_num_heads)
        ends = np.cumsum([0, num_heads * depth, kv_num_heads * depth, kv_num_heads * depth])
        query, key, value = (build.slice_(net, query, 2, int(a), int(b)) for a, b in pairwise(ends))
    q, k, v = (_heads(call, t, n) for t, n in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    batch, length = q.shape[0], q.shape[2]
    total = int(np.asarray(total_sequence_length).reshape(-1)[0])
    extent = max(total, past_key.shape[2] if past_key is not None else 0)
    counts = build.reshape(net, build.cast(net, seqlens_k, i32), (batch,))
    first = build.full(net, 0, (batch,), i32) if length == total else build.map_(net, x + (1 - length), [counts], i32)
    places = _places(call, first, length)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise call.wrong("turns its keys, and has no tables of cosines and sines")
        at = places if position_ids is None else build.cast(net, position_ids, i32)
        tables = (cos_cache, sin_cache)
        q, k = (turned_pairs(call, t, at, tables, interleaved=bool(rotary_interleaved)) for t in (q, k))
    k, v = (_in_cache(call, t, past, first, extent) for t, past in ((k, past_key), (v, past_value)))
    numbers = net.constant(np.arange(extent, dtype=np.int32).reshape(1, 1, 1, extent), i32)
    at = build.reshape(net, places, (batch, 1, length, 1))
    begins = -1 if local_window_size <= 0 else local_window_size
    visible = x <= y if begins < 0 else apply("and", x <= y, x > y - begins)
    seen = build.map_(net, visible, [numbers, at], bool_)
    bias = attention_bias
    if bias is not None and bias.shape[3] < extent:
        bias = _longer(call, bias, 3, extent)
    sink = head_sink if head_sink is not None else build.full(net, 0, (num_heads,), f32) if smooth_softmax else None
    made = attended(call, q, k, v, Scores(scale, bias=bias, seen=seen, cap=softcap, sink=sink))
    return made, k, v


@op("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def decoder_attention(
    call: NodeCall,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    mask_index: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_sequence_length: Value | None = None,
    beam_width: Known | None = None,
    cache_indirection: Item | None = None,
    bias: Value | None = None,
    *,
    num_heads: int,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    output_qk: int = 0,
) -> tuple[Value, ...]:
    """Attention of one new position to a cache, or to keys of another sequence [batch, heads, length, depth]."""
    net = call.net
    beams = 1 if beam_width is None else int(np.asarray(beam_width).reshape(-1)[0])
    if beams > 1 or output_qk or key is None or value is None:
        raise call.refuse(
            "searches several beams, gives its scores, or has packed keys",
            because="rows of a cache of beams lie wherever a search of before has put them",
            remedy="search on the host, with a cache in order of the beams",
        )
    parts = [query, key, value]
    if bias is not None:
        begin = 0
        for number, part in enumerate(parts):
            width = part.shape[2] if part.ndim == 3 else part.shape[1] * part.shape[3]
            if part.ndim == 3:
                parts[number] = call.map(x + y, part, build.slice_(net, bias, 0, begin, begin + width))
            begin += width
    q, k, v = (_heads(call, part, num_heads) if part.ndim == 3 else part for part in parts)
    how = Scores(scale, mask_index, attention_bias, hides_by=mask_filter_value)
    if past_key is None or past_value is None:
        return attended(call, q, k, v, how), k, v
    if not past_present_share_buffer:
        k, v = build.concat(net, [past_key, k], 2), build.concat(net, [past_value, v], 2)
        return attended(call, q, k, v, how), k, v
    if past_sequence_length is None:
        raise call.wrong("writes into the cache that it is given, and does not say where")
    batch, extent = q.shape[0], past_key.shape[2]
    one = build.reshape(net, build.cast(net, past_sequence_length, i32), (1,))
    first = build.expand(net, one, (batch,))
    k, v = (_in_cache(call, t, past, first, extent) for t, past in ((k, past_key), (v, past_value)))
    numbers = net.constant(np.arange(extent, dtype=np.int32).reshape(1, 1, 1, extent), i32)
    seen = build.map_(net, x <= y, [numbers, build.reshape(net, one, (1, 1, 1, 1))], bool_)
    if how.mask is not None and how.mask.ndim == 2 and how.mask.shape[1] < extent:
        padded = _longer(call, how.mask, 1, extent)
        how = Scores(scale, padded, attention_bias, hides_by=mask_filter_value)
    return attended(call, q, k, v, replace(how, seen=seen)), k, v
