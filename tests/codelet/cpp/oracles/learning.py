"""Models, text, images, tables."""

from __future__ import annotations

import zlib

import numpy as np
from scipy import fft, ndimage, special

from codelet.cpp.oracles.cases import Fields, arguments, case, dtype, f32, f64, normal, zeros

Rng = np.random.Generator


@case("align_smith_waterman.cpp", "SmithWaterman")
def smith_waterman(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = rng.integers(0, 4, 18), rng.integers(0, 4, 15)
    h = np.zeros((19, 16), int)
    best, at = 0, (0, 0)
    for i in range(18):
        for j in range(15):
            match = h[i, j] + (2 if a[i] == b[j] else -1)
            h[i + 1, j + 1] = max(0, match, h[i, j + 1] - 1, h[i + 1, j] - 1)
            if h[i + 1, j + 1] > best:
                best, at = h[i + 1, j + 1], (i, j)
    fields = {"a": a.astype("i1"), "b": b.astype("i1"), "row": zeros(16, type="i2"), "result": zeros(3, type="i4")}
    return {**fields, "match": 2, "mismatch": -1, "gap": -1}, {"result": [best, *at]}


@case("align_edit_distance.cpp", "EditDistance<32>", "EditDistance<64>")
def edit_distance(rng: Rng, name: str) -> tuple[Fields, Fields]:
    words = [rng.integers(0, 3, n) for n in (7, 9, 4, 4, 12, 3)]
    wanted = []
    for s, t in zip(words[::2], words[1::2], strict=True):
        d = np.add.outer(np.arange(len(s) + 1), np.arange(len(t) + 1))
        for i in range(len(s)):
            for j in range(len(t)):
                d[i + 1, j + 1] = min(d[i, j] + (s[i] != t[j]), d[i, j + 1] + 1, d[i + 1, j] + 1)
        wanted.append(d[-1, -1])
    offsets = np.concatenate([[0], np.cumsum([len(w) for w in words])]).astype("u2")
    fields = {"sequences": np.concatenate(words).astype("u1"), "offsets": offsets, "distance": zeros(3, type="i4")}
    return {**fields, "numPairs": 3}, {"distance": wanted}


@case("topk_heap.cpp", "TopK<float>", "TopK<int>")
def top_k(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.permutation(40).astype(dtype(name))
    order = np.argsort(-x)[:6]
    fields = {"in": x, "values": zeros(6, type=dtype(name)), "indices": zeros(6, type="u4")}
    return fields, {"values": x[order], "indices": order}


@case("sampling.cpp", "SampleToken<float>", "SampleToken<half>")
def sample_token(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 15, type=dtype(name))
    p = special.softmax(f64(x) / 0.8)
    fields = {
        "logits": x,
        "probabilities": zeros(15),
        "token": zeros(1, type="u4"),
        "temperature": 0.8,
        "uniform": 0.63,
    }
    return fields, {"token": [np.searchsorted(np.cumsum(p), 0.63)], "probabilities": p / p.max()}


@case("sampling.cpp", "AliasDraw")
def alias_draw(rng: Rng, name: str) -> tuple[Fields, Fields]:
    threshold, alias = f32(rng.uniform(0, 1, 8)), rng.integers(0, 8, 8)
    bits = rng.integers(0, 2**32, 30)
    column, u = (bits >> 16) * 8 >> 16, (bits & 0xFFFF) / 65536
    wanted = np.where(u < threshold[column], column, alias[column])
    fields = {
        "threshold": threshold,
        "alias": alias.astype("u2"),
        "bits": bits.astype("u4"),
        "drawn": zeros(30, type="u2"),
    }
    return fields, {"drawn": wanted}


@case("layernorm.cpp", "LayerNorm<float>", "LayerNorm<half>")
def layer_norm(rng: Rng, name: str) -> tuple[Fields, Fields]:
    kind = dtype(name)
    x, (gamma, beta) = normal(rng, 3, 16, type=kind), normal(rng, 2, 16, type=kind)
    y = f64(x)
    wanted = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-3) * f64(gamma) + f64(beta)
    fields = {"in": list(x), "gamma": gamma, "beta": beta, "out": [zeros(16, type=kind) for _ in x], "eps": 1e-3}
    return fields, {"out": wanted}


@case("layernorm.cpp", "RmsNorm")
def rms_norm(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x, w = normal(rng, 8, 6), normal(rng, 6)
    wanted = f64(x) / np.sqrt((f64(x) ** 2).mean(1, keepdims=True) + 1e-5) * f64(w)
    return {"x": x.reshape(-1), "weight": w}, {"x": wanted.reshape(-1)}


@case("gelu_codelet.cpp", "GeluErf")
def gelu(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = 2 * normal(rng, 30)
    return {"in": x, "out": zeros(30)}, {"out": f64(x) * special.ndtr(f64(x))}


@case("gelu_codelet.cpp", "GeluTanhHalf")
def gelu_half(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = 2 * normal(rng, 30, type="f2")
    y = f64(x)
    wanted = 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y**3)))
    return {"in": x, "out": zeros(30, type="f2")}, {"out": wanted}


@case("quantise.cpp", "QuantiseInt8")
def quantise(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 32)
    scale = np.abs(x).max() / np.float32(127)
    return {"in": x, "out": zeros(32, type="i1"), "scale": zeros(1)}, {"out": np.rint(x / scale), "scale": [scale]}


@case("quantise.cpp", "DequantiseInt4<16>", "DequantiseInt4<32>")
def dequantise(rng: Rng, name: str) -> tuple[Fields, Fields]:
    size = int(arguments(name)[0])
    packed, scales = rng.integers(0, 256, 5 * size // 2).astype("u1"), np.abs(normal(rng, 5, type="f2"))
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(5, size).astype("i4") - 8
    fields = {"packed": packed, "scales": scales, "out": zeros(5 * size, type="f2"), "numGroups": 5}
    return fields, {"out": (codes * f64(scales)[:, None]).reshape(-1)}


@case("hash_table.cpp", "HashInsert")
def hash_insert(rng: Rng, name: str) -> tuple[Fields, Fields]:
    keys, values = np.array([5, 9, 5, 123456789], "u4"), np.array([1, 2, 3, 4], "u4")
    empty = np.full(1, 2**32 - 1, "u4")
    fields = {"keys": keys[:1], "values": values[2:3], "tableKeys": empty, "tableValues": zeros(1, type="u4")}
    return {**fields, "overflow": zeros(1, type="u4")}, {"tableKeys": [5], "tableValues": [3], "overflow": [0]}


def murmur(h: int) -> int:
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


@case("hash_table.cpp", "HashLookup")
def hash_lookup(rng: Rng, name: str) -> tuple[Fields, Fields]:
    keys = rng.choice(10**6, 20, replace=False)
    table, values = np.full(32, 2**32 - 1, "u4"), zeros(32, type="u4")
    for key in keys[:15]:
        at = murmur(int(key)) & 31
        while table[at] != 2**32 - 1:
            at = (at + 1) & 31
        table[at], values[at] = key, key + 1
    wanted = np.concatenate([keys[:15] + 1, np.full(5, 2**32 - 1)])
    fields = {"keys": keys.astype("u4"), "tableKeys": table, "tableValues": values, "found": zeros(20, type="u4")}
    return fields, {"found": wanted}


@case("image_sobel.cpp", "Sobel")
def sobel(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.integers(0, 256, (6, 8)).astype("u1")
    gx, gy = (ndimage.sobel(x.astype("i4"), axis=a)[1:-1, 1:-1] for a in (1, 0))
    wanted = np.zeros((4, 7))
    wanted[:, :6] = np.minimum(np.sqrt(f64(gx**2 + gy**2)), 255).astype("i4")
    return {"rows": list(x), "out": [zeros(7, type="u1") for _ in range(4)]}, {"out": wanted}


@case("image_sobel.cpp", "Luminance")
def luminance(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rgb = rng.integers(0, 256, (12, 3))
    return {"rgb": rgb.astype("u1").reshape(-1), "grey": zeros(12, type="u1")}, {"grey": rgb @ [77, 150, 29] >> 8}


@case("image_median.cpp", "Median3x3<unsigned char>", "Median3x3<float>")
def median(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.integers(0, 256, (6, 7)).astype(dtype(name))
    wanted = x.copy()
    wanted[1:-1, 1:-1] = ndimage.median_filter(x, 3)[1:-1, 1:-1]
    return {"in": x.reshape(-1), "out": zeros(42, type=dtype(name)), "width": 7}, {"out": wanted.reshape(-1)}


@case("image_dct.cpp", "dct::Forward8x8")
def dct(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 2, 8, 8)
    return {"in": x.reshape(-1), "out": zeros(128)}, {"out": fft.dctn(f64(x), axes=(1, 2), norm="ortho").reshape(-1)}


@case("crc32.cpp", "Checksums")
def checksums(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.integers(0, 256, 70).astype("u1")
    fnv = 2166136261
    for byte in x.tolist():
        fnv = (fnv ^ byte) * 16777619 & 0xFFFFFFFF
    return {"data": x, "out": zeros(3, type="u4")}, {"out": [zlib.crc32(x.tobytes()), zlib.adler32(x.tobytes()), fnv]}


def next_life(x: np.ndarray) -> np.ndarray:
    around = sum(np.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - x
    return (around == 3) | ((around == 2) & (x == 1))


@case("life.cpp", "LifeBytes")
def life(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.integers(0, 2, (6, 9)).astype("u1")
    return {"in": x.reshape(-1), "out": zeros(54, type="u1"), "w": 9, "h": 6}, {"out": next_life(x).reshape(-1)}


@case("life.cpp", "LifeWords")
def life_words(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.integers(0, 2, (8, 32))
    bits = 1 << np.arange(32, dtype="i8")
    return {"rows": (x @ bits).astype("u4"), "next": zeros(8, type="u4")}, {"next": next_life(x) @ bits}


@case("knapsack.cpp", "Knapsack")
def knapsack(rng: Rng, name: str) -> tuple[Fields, Fields]:
    weight, value = rng.integers(1, 7, 6).astype("i4"), rng.integers(1, 20, 6).astype("i4")
    choices = np.array(list(np.ndindex(*[2] * 6)))
    heavy, worth = choices @ weight, choices @ value
    wanted = [worth[heavy <= c].max() for c in range(16)]
    return {"weight": weight, "value": value, "best": zeros(16, type="i4")}, {"best": wanted}


@case("knapsack.cpp", "Lcs")
def lcs(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = rng.integers(0, 3, 14), rng.integers(0, 3, 11)
    d = np.zeros((15, 12), int)
    for i in range(14):
        for j in range(11):
            d[i + 1, j + 1] = d[i, j] + 1 if a[i] == b[j] else max(d[i, j + 1], d[i + 1, j])
    fields = {"a": a.astype("i1"), "b": b.astype("i1"), "length": zeros(1, type="i4"), "row": zeros(12, type="i4")}
    return fields, {"length": [d[-1, -1]]}


@case("attention.cpp", "FlashAttention<float,8>", rtol=1e-4)
@case("attention.cpp", "FlashAttention<half,8>", "FlashAttention<half,16>")
def attention(rng: Rng, name: str) -> tuple[Fields, Fields]:
    size = int(arguments(name)[1])
    q, k, v = normal(rng, 3, 7, size, type=dtype(name))
    scores = f64(q) @ f64(k).T / np.sqrt(size)
    wanted = special.softmax(np.where(np.tri(7) > 0, scores, -np.inf), axis=1) @ f64(v)
    fields = {n: x.reshape(-1) for n, x in {"q": q, "k": k, "v": v}.items()}
    fields |= {"out": zeros(7 * size, type=dtype(name)), "queries": 7, "keys": 7, "causal": True}
    return fields, {"out": wanted.reshape(-1)}


@case("lstm_cell.cpp", "LstmGates")
def lstm(rng: Rng, name: str) -> tuple[Fields, Fields]:
    gates, cell = normal(rng, 4, 10), normal(rng, 10)
    f, i, c, o = f64(gates)
    new = special.expit(f) * cell + special.expit(i) * np.tanh(c)
    fields = {"gates": list(gates), "cell": cell, "hidden": zeros(10)}
    return fields, {"cell": new, "hidden": special.expit(o) * np.tanh(new)}


@case("adam_update.cpp", "AdamUpdater<float,float>", "AdamUpdater<half,float>", "AdamUpdater<half,half>")
def adam(rng: Rng, name: str) -> tuple[Fields, Fields]:
    w, g = normal(rng, 2, 20, type=dtype(name))
    m, v = normal(rng, 20, type=dtype(name, 1)), np.abs(normal(rng, 20, type=dtype(name, 1)))
    first = 0.9 * f64(m) + 0.1 * f64(g)
    second = 0.99 * f64(v) + 0.01 * f64(g) ** 2
    fields = {"weights": w, "gradient": g, "first": m, "second": v, "params": f32([0.9, 0.99, 1e-3, 0.01])}
    wanted = {"first": first, "second": second, "weights": f64(w) - 0.01 * first / (np.sqrt(second) + 1e-3)}
    return fields, wanted


@case(
    "matmul_amp.cpp",
    "MatmulBlocked<float>",
    "MatmulBlocked<float,2>",
    "MatmulBlocked<float,2,2>",
    "MatmulBlocked<int,1,1>",
)
def matmul(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = normal(rng, 8, 5, type=dtype(name)), normal(rng, 5, 12, type=dtype(name))
    fields = {"a": a.reshape(-1), "b": b.reshape(-1), "c": zeros(96, type=dtype(name)), "rows": 8, "columns": 12}
    return {**fields, "inner": 5}, {"c": (f64(a) @ f64(b)).reshape(-1)}
