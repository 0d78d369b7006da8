"""Codelets in the style of the vertex libraries."""

from __future__ import annotations

import numpy as np
from scipy import special

from codelet.cpp.oracles.cases import Fields, arguments, case, dtype, f32, f64, normal, zeros

Rng = np.random.Generator
UNARY = {
    "ABSOLUTE": np.abs,
    "NEGATE": np.negative,
    "SQUARE": lambda x: x * x,
    "SQRT": np.sqrt,
    "EXPONENT": np.exp,
    "SIGNUM": np.sign,
    "BITWISE_NOT": np.invert,
    "LOGICAL_NOT": np.logical_not,
    "POPCOUNT": lambda x: np.array([bin(v).count("1") for v in x]),
}
BINARY = {
    "ADD": np.add,
    "SUBTRACT": np.subtract,
    "MULTIPLY": np.multiply,
    "DIVIDE": lambda a, b: np.trunc(f64(a) / f64(b)) if a.dtype.kind == "i" else f64(a) / f64(b),
    "MAXIMUM": np.maximum,
    "LESS_THAN": np.less,
    "EQUAL": np.equal,
    "REMAINDER": np.fmod,
    "ATAN2": np.arctan2,
    "SHIFT_LEFT": np.left_shift,
}
FLOATING = ("ABSOLUTE", "NEGATE", "SQUARE", "SQRT", "EXPONENT", "SIGNUM")
_OP = "popops::expr::UnaryOpType::"


def operation(name: str) -> str:
    return arguments(name)[0].rpartition("::")[2]


@case("popops_unary.cpp", *(f"popops::UnaryOp1D<{_OP}{o},{t}>" for o in FLOATING for t in ("float", "half")))
@case("popops_unary.cpp", *(f"popops::UnaryOp1D<{_OP}{o},int>" for o in ("ABSOLUTE", "SIGNUM", "BITWISE_NOT")))
@case("popops_unary.cpp", f"popops::UnaryOp1D<{_OP}POPCOUNT,unsigned>", f"popops::UnaryOp1D<{_OP}LOGICAL_NOT,bool>")
@case("popops_unary.cpp", f"popops::UnaryOp1D<{_OP}BITWISE_NOT,unsigned short>")
def unary(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 20, type=dtype(name, 1))
    x = np.abs(x) if operation(name) == "SQRT" else x
    wide = x.astype("f4") if x.dtype.kind == "f" else x
    fields = {"in": x, "out": zeros(20, type=dtype(name, 1)), "numElems": 20}
    return fields, {"out": UNARY[operation(name)](wide).astype(x.dtype)}


@case("popops_unary.cpp", *(f"popops::UnaryOp2DInPlace<{_OP}{o},{t}>" for o in FLOATING[:4] for t in ("float", "half")))
@case("popops_unary.cpp", f"popops::UnaryOp2DInPlace<{_OP}NEGATE,int>")
def unary_rows(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rows = [np.abs(normal(rng, n, type=dtype(name, 1))) for n in (5, 0, 8)]
    wanted = UNARY[operation(name)](np.concatenate(rows))
    return {"inOut": rows}, {"inOut": wanted}


_B = "popops::BinaryOp1D<popops::expr::BinaryOpType::"


@case("popops_binary.cpp", *(f"{_B}{o},{t}>" for o in list(BINARY)[:8] for t in ("float", "half", "int")))
@case("popops_binary.cpp", f"{_B}ATAN2,float>", f"{_B}SHIFT_LEFT,int>")
def binary(rng: Rng, name: str) -> tuple[Fields, Fields]:
    op, kind = operation(name), dtype(name, 1)
    a, b = normal(rng, 2, 25, type=kind)
    b = np.where(np.abs(b) < 0.2, 1, b).astype(kind)
    b = np.abs(b) % 8 if op == "SHIFT_LEFT" else b
    b[:5] = a[:5] if op == "EQUAL" else b[:5]
    out = zeros(25, type="?" if op in ("LESS_THAN", "EQUAL") else kind)
    wide = (f32(a), f32(b)) if kind == "f2" else (a, b)
    return {"in1": a, "in2": b, "out": out, "numElems": 25}, {"out": BINARY[op](*wide)}


_BROADCAST = "popops::BroadcastScalar2DInPlace<popops::expr::BinaryOpType::"


@case("popops_binary.cpp", *(f"{_BROADCAST}{o}>" for o in ("MULTIPLY,float", "MULTIPLY,half", "ADD,float")))
def broadcast(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rows = [normal(rng, n, type=dtype(name, 1)) for n in (5, 8)]
    by = np.array([1.5], dtype(name, 1))
    return {"data": rows, "B": by}, {"data": BINARY[operation(name)](np.concatenate(rows), by[0])}


_REDUCE = {
    "popops::ReduceAdd": lambda x: x.sum(axis=0),
    "popops::ReduceMax": lambda x: x.max(axis=0),
    "popops::ReduceSquareAdd": lambda x: (x * x).sum(axis=0),
}
_OPS = [f"popops::StridedReduce<{o},{t},float" for o in _REDUCE for t in ("float", "half")]


@case("popops_reduce.cpp", *(f"{o},{u}>" for o in _OPS for u in ("false", "true")))
@case("popops_reduce.cpp", "popops::StridedReduce<popops::ReduceAdd,int,int,false>")
def strided_reduce(rng: Rng, name: str) -> tuple[Fields, Fields]:
    op, _, _, update = arguments(name)
    x = normal(rng, 7, 10, type=dtype(name, 1))
    old = normal(rng, 6, type=dtype(name, 2))
    wanted = _REDUCE[op](f64(x[:, :6]))
    if update == "true":
        wanted = _REDUCE[op](np.stack([wanted, f64(old)])) if "Square" not in op else wanted + f64(old) ** 2
    fields = {"partials": x.reshape(-1), "out": old, "numOutputs": 6, "numPartials": 7, "partialsWidth": 10}
    return fields, {"out": wanted}


@case("popops_reduce.cpp", *(f"popops::SingleOutputReduce<{o},{t},float>" for o in _REDUCE for t in ("half", "float")))
def single_reduce(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 33, type=dtype(name, 1))
    wanted = 0.5 * _REDUCE[arguments(name)[0]](f64(x))
    return {"partials": x, "out": zeros(1), "k": f32([0.5])}, {"out": [wanted]}


_FROM = ("float", "half", "int", "unsigned int", "unsigned short", "bool", "unsigned char")
_TO = (
    "float",
    "half",
    "int",
    "unsigned int",
    "unsigned short",
    "short",
    "bool",
    "char",
    "signed char",
    "unsigned char",
)


@case("popops_cast.cpp", *(f"popops::Cast1D<{s},{t}>" for s in _FROM[:3] for t in _TO))
@case("popops_cast.cpp", *(f"popops::Cast1D<{s},{t}>" for s in _FROM[3:] for t in _TO[::3]))
@case("popops_cast.cpp", "popops::Cast1D<unsigned longlong,unsigned int>", "popops::Cast1D<longlong,int>", rtol=0)
def cast(rng: Rng, name: str) -> tuple[Fields, Fields]:
    source, target = dtype(name), dtype(name, 1)
    x = rng.integers(0, 2 if source == "?" else 120, 19).astype(source)
    if np.dtype(source).kind == "f":
        x += np.array(0.25, source)
    if np.dtype(source).kind in "fi" and np.dtype(target).kind in "fi":
        x[::2] *= -1
    return {"src": x, "dst": zeros(19, type=target), "numElems": 19}, {"dst": x.astype(target)}


@case("popops_cast.cpp", "popops::Cast2D<float,half>", "popops::Cast2D<half,float>", rtol=0)
def cast_rows(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rows = [normal(rng, n, type=dtype(name)) for n in (4, 9)]
    out = [zeros(len(r), type=dtype(name, 1)) for r in rows]
    return {"src": rows, "dst": out}, {"dst": np.concatenate(rows).astype(dtype(name, 1))}


@case("popops_cast_quarter.cpp", "popops::DecodeF143", rtol=0)
def decode_f143(rng: Rng, name: str) -> tuple[Fields, Fields]:
    codes = np.arange(128).astype("u1")
    exponent, mantissa = codes >> 3 & 15, (codes & 7).astype("f8")
    wanted = np.where(exponent > 0, (1 + mantissa / 8) * 2.0 ** (exponent.astype(int) - 8), mantissa / 8 * 2.0**-7)
    codes = np.concatenate([codes, codes | 128])
    fields = {"src": codes, "dst": zeros(256), "scale": 3}
    return fields, {"dst": 8 * np.concatenate([wanted, -wanted])}


@case("popops_select_clamp.cpp", *(f"popops::Select<{t}>" for t in ("float", "half", "int", "bool")))
def select(rng: Rng, name: str) -> tuple[Fields, Fields]:
    kind = dtype(name)
    a, b = ([normal(rng, n, type=kind) for n in (6, 9)] for _ in range(2))
    choice = [rng.integers(0, 2, n).astype("?") for n in (6, 9)]
    wanted = np.where(np.concatenate(choice), np.concatenate(a), np.concatenate(b))
    out = [zeros(n, type=kind) for n in (6, 9)]
    return {"in1": a, "in2": b, "in3": choice, "out": out}, {"out": wanted}


@case("popops_select_clamp.cpp", *(f"popops::BroadcastClamp<{t}>" for t in ("float", "half", "int")))
def clamp(rng: Rng, name: str) -> tuple[Fields, Fields]:
    kind = dtype(name)
    x = [normal(rng, n, type=kind) for n in (6, 9)]
    low, high = np.array([-1], kind), np.array([1], kind)
    out = [zeros(n, type=kind) for n in (6, 9)]
    return {"in1": x, "in2": low, "in3": high, "out": out}, {"out": np.clip(np.concatenate(x), -1, 1)}


@case("popops_scaled_add.cpp", "popops::ScaledAddSupervisor<float,float,float,true,false>")
@case("popops_scaled_add.cpp", "popops::ScaledAddSupervisor<half,half,half,true,false>")
@case("popops_scaled_add.cpp", "popops::ScaledAddSupervisor<half,half,float,true,false>")
@case("popops_scaled_add.cpp", "popops::ScaledAddSupervisor<int,int,int,true,false>")
def scaled_add(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = normal(rng, 2, 21, type=dtype(name))
    return {"A": a, "size": 21, "B": b, "scaleB": 2}, {"A": a + 2 * b}


@case("popops_scaled_add.cpp", "popops::aXPlusbY<float>", "popops::aXPlusbY<half>")
def axplusby(rng: Rng, name: str) -> tuple[Fields, Fields]:
    kind = dtype(name)
    a, b = normal(rng, 2, 21, type=kind)
    scales = {"scaleA": np.array([0.5], kind), "scaleB": np.array([2], kind)}
    return {"A": a, "B": b, **scales, "size": 21}, {"A": f64(a) / 2 + 2 * f64(b)}


_SLICED = ("float", "half", "int", "unsigned int", "bool", "unsigned longlong")


@case("popops_multi_slice.cpp", *(f"popops::MultiSlice<{t}>" for t in _SLICED))
def multi_slice(rng: Rng, name: str) -> tuple[Fields, Fields]:
    base = np.abs(normal(rng, 5, 4, type=dtype(name)))
    offsets = np.array([12, 10, 14, 99, 3], "u4")
    wanted = zeros(5, 4, type=dtype(name))
    wanted[:3] = base[[2, 0, 4]]
    fields = {"offsets": offsets, "baseT": base.reshape(-1), "subT": zeros(20, type=dtype(name))}
    return {**fields, "baseOffset": 10, "numBaseElements": 5, "regionSize": 4}, {"subT": wanted.reshape(-1)}


@case("popops_multi_slice.cpp", *(f"popops::MultiUpdateAdd<{t}>" for t in ("float,false", "half,true", "half,false")))
def multi_update_add(rng: Rng, name: str) -> tuple[Fields, Fields]:
    kind = dtype(name)
    base, sub = normal(rng, 5, 4, type=kind), normal(rng, 3, 4, type=kind)
    wanted = f64(base)
    wanted[1] += 0.5 * f64(sub[0] + sub[2])
    fields = {"offsets": np.array([1, 9, 1], "u4"), "baseT": base.reshape(-1), "subT": sub.reshape(-1)}
    return {**fields, "scale": np.array([0.5], kind), "numBaseElements": 5, "regionSize": 4}, {
        "baseT": wanted.reshape(-1)
    }


@case("popops_compare_swap.cpp", "popops::CompareAndSwapAtDistance<float>", "popops::CompareAndSwapAtDistance<int>")
def compare_and_swap(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 16, type=dtype(name))
    wanted = x.copy()
    for i in range(16):
        if i ^ 4 > i and (wanted[i] > wanted[i ^ 4]) == ((i & 8) == 0):
            wanted[[i, i ^ 4]] = wanted[[i ^ 4, i]]
    return {"keys": x, "distance": 4, "block": 8, "size": 16}, {"keys": wanted}


@case("popops_compare_swap.cpp", *(f"popops::CompareAndSwapKeyVal<{t}>" for t in ("float,unsigned int", "int,float")))
def sort_pairs(rng: Rng, name: str) -> tuple[Fields, Fields]:
    keys = rng.permutation(17).astype(dtype(name))
    values = np.arange(17).astype(dtype(name, 1))
    return {"keys": keys, "values": values}, {"keys": np.arange(17), "values": np.argsort(keys)}


@case("popops_histogram.cpp", *(f"popops::Histogram1D<{t},{a}>" for t in ("float", "half") for a in ("true", "false")))
def histogram(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 80, type=dtype(name))
    limits = np.array([0.25, 0.5, 1], dtype(name))
    y = np.abs(x) if "true" in name else x
    wanted = np.bincount(np.searchsorted(limits, y, side="right"), minlength=4)
    fields = {"data": x, "histogram": zeros(4, type="u4"), "limits": limits, "dataCount": 80, "histogramCount": 4}
    return fields, {"histogram": wanted}


@case("popops_histogram.cpp", "ByteHistogram", times=2)
def byte_histogram(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.integers(0, 256, 90).astype("u1")
    return {"bytes": x, "bins": zeros(16, type="u4")}, {"bins": 2 * np.bincount(x >> 4, minlength=16)}


_HOT = ("unsigned int,float", "unsigned int,half", "unsigned int,unsigned int", "unsigned int,int", "int,float")


@case("popops_encode_one_hot.cpp", *(f"popops::EncodeOneHot<{t}>" for t in _HOT))
def one_hot(rng: Rng, name: str) -> tuple[Fields, Fields]:
    labels = np.array([3, 5, 2**32 - 1, 4, 9], "u4").view(dtype(name))
    wanted = np.zeros((5, 4))
    wanted[[0, 1, 3], [0, 2, 1]] = 1
    fields = {"indices": labels, "out": zeros(20, type=dtype(name, 1)), "outLength": 20, "sliceLength": 4, "offset": 3}
    return fields, {"out": wanted.reshape(-1)}


@case(
    "poplin_conv_partial.cpp",
    *(f"poplin::ConvPartialHorizontalMac<{t},8>" for t in ("float,float,true", "float,float,false")),
)
@case("poplin_conv_partial.cpp", "poplin::ConvPartialHorizontalMac<half,float,true,8>", rtol=2e-3)
def conv_partial(rng: Rng, name: str) -> tuple[Fields, Fields]:
    kind, index = dtype(name), "u2" if "true" in name else "u4"
    x, w = normal(rng, 2, 13, 4, type=kind), normal(rng, 2, 2, 3, 4, type=kind)
    lists = [np.array([2 * c, 2 * c + 1, 2], index) for c in range(6)]
    wanted = np.einsum("gxi,ogci->oxc", f64(x), f64(w))
    fields = {"in": [v.reshape(-1) for v in x], "weights": [v.reshape(-1) for o in w for v in o], "worklists": lists}
    sizes = {"outChansPerGroup": 3, "inChansPerGroup": 4, "numOutGroups": 2, "numInGroups": 2}
    return {**fields, "out": [zeros(36) for _ in range(2)], **sizes}, {"out": wanted[:, 1:].reshape(2, -1)}


@case("poplin_outer_product.cpp", "poplin::OuterProduct<float>", "poplin::OuterProduct<half>")
def outer_product(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x, w = normal(rng, 5, type=dtype(name)), normal(rng, 2, 3, type=dtype(name))
    fields = {"in": x, "weights": w.reshape(-1), "out": [zeros(15, type=dtype(name)) for _ in range(2)]}
    return {**fields, "chansPerGroup": 3}, {"out": np.einsum("x,gc->gxc", f64(x), f64(w)).reshape(2, -1)}


@case("poplin_triangular.cpp", "poplin::Cholesky<float,true>", "poplin::Cholesky<float,false>", rtol=1e-4)
def cholesky(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a = normal(rng, 6, 6)
    a = a @ a.T + 6 * np.eye(6, dtype="f4")
    wanted = np.linalg.cholesky(f64(a))
    wanted = wanted if "true" in name else wanted.T
    return {"in": a.reshape(-1), "out": zeros(36), "dim": 6}, {"out": wanted.reshape(-1)}


@case("poplin_triangular.cpp", "poplin::ForwardSubstitution", rtol=1e-4)
def substitution(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = np.tril(normal(rng, 6, 6)) + 4 * np.eye(6, dtype="f4"), normal(rng, 6)
    fields = {"l": f32(a.reshape(-1)), "x": b, "unitDiagonal": False}
    return fields, {"x": np.linalg.solve(f64(a), f64(b))}


@case("popnn_pool.cpp", *(f"popnn::Pooling<float,popnn::PoolingType::{k}>" for k in ("MAX", "AVG", "SUM")))
@case("popnn_pool.cpp", *(f"popnn::Pooling<half,popnn::PoolingType::{k}>" for k in ("MAX", "SUM")), rtol=5e-3)
def pooling(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 8, 3, type=dtype(name))
    spans = [(0, 3), (2, 5), (4, 8)]
    kind = arguments(name)[1].rpartition("::")[2]
    reduce = {"MAX": np.max, "SUM": np.sum, "AVG": lambda v, axis: v.sum(axis=axis) * 0.5}[kind]
    wanted = np.stack([reduce(f64(x[a:b]), axis=0) for a, b in spans])
    fields = {"out": zeros(9, type=dtype(name)), "in": x.reshape(-1), "starts": np.array(spans, "u2").reshape(-1)}
    return {**fields, "chans": 3, "scale": 0.5}, {"out": wanted.reshape(-1)}


@case("popnn_loss.cpp", "popnn::LossCrossEntropyTransform<float>")
def cross_entropy(rng: Rng, name: str) -> tuple[Fields, Fields]:
    p, e = f32(special.softmax(normal(rng, 12))), f32(np.eye(12)[3])
    fields = {"probs": p, "expected": e, "deltas": zeros(12), "transformed": zeros(12), "size": 12}
    wanted = {"deltas": (f64(p) - e) * 2, "transformed": -f64(e) * np.log(f64(p))}
    return {**fields, "deltasScale": f32([2])}, wanted


@case("popnn_loss.cpp", *(f"popnn::ReduceMaxClassGather<{t},unsigned int>" for t in ("float", "half")))
def max_class(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 23, type=dtype(name))
    fields = {"activations": x, "maxValue": zeros(1), "maxIndex": zeros(1, type="u4"), "index": 100}
    return fields, {"maxValue": [x.max()], "maxIndex": [100 + x.argmax()]}


@case("popnn_loss.cpp", "popnn::CalcAccuracy<unsigned int>", "popnn::CalcAccuracy<int>")
def accuracy(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = rng.integers(0, 3, (2, 30)).astype(dtype(name))
    fields = {"maxPerBatch": a, "expected": b, "numCorrect": np.array([4], "u4")}
    return fields, {"numCorrect": [4 + (a == b).sum()]}


_NL = "popnn::NonLinearityType::"
ACTIVATIONS = {
    "SIGMOID": special.expit,
    "RELU": lambda x: np.maximum(x, 0),
    "TANH": np.tanh,
    "GELU": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "SWISH": lambda x: x * special.expit(x),
    "HARD_SIGMOID": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
}


@case(
    "popnn_nonlinearity.cpp",
    *(f"popnn::NonLinearity2DInPlace<{t},{_NL}{k}>" for t in ("float", "half") for k in ACTIVATIONS),
)
def activation(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rows = [2 * normal(rng, n, type=dtype(name)) for n in (9, 4)]
    return {"data": rows}, {"data": ACTIVATIONS[arguments(name)[1].rpartition("::")[2]](f64(np.concatenate(rows)))}


@case(
    "popnn_nonlinearity.cpp",
    *(f"popnn::NonLinearityGrad1D<{t},{_NL}{k}>" for t in ("float", "half") for k in list(ACTIVATIONS)[:3]),
)
def activation_gradient(rng: Rng, name: str) -> tuple[Fields, Fields]:
    g, y = normal(rng, 2, 18, type=dtype(name))
    kind = arguments(name)[1].rpartition("::")[2]
    slope = {"SIGMOID": f64(y) * (1 - f64(y)), "TANH": 1 - f64(y) ** 2, "RELU": y > 0}[kind]
    fields = {"outGrad": g, "out": y, "inGrad": zeros(18, type=dtype(name)), "n": 18}
    return fields, {"inGrad": f64(g) * slope}


@case("popnn_ctc.cpp", "popnn::CTCAlpha<float,unsigned short>", "popnn::CTCAlpha<float,unsigned int>")
def ctc(rng: Rng, name: str) -> tuple[Fields, Fields]:
    p, label = f32(special.log_softmax(normal(rng, 5))), np.array([1, 2, 2], dtype(name, 1))
    alpha = f32(-np.abs(normal(rng, 7)))
    wanted = []
    for s in range(7):
        terms = [alpha[s]] + ([alpha[s - 1]] if s else [])
        symbol = 4 if s % 2 == 0 else label[s // 2]
        if s % 2 and s >= 2 and symbol != label[s // 2 - 1]:
            terms.append(alpha[s - 2])
        wanted.append(special.logsumexp(f64(terms)) + p[symbol])
    fields = {"probabilities": p, "label": label, "alpha": alpha, "next": zeros(7), "blankClass": 4}
    return fields, {"next": wanted}


@case("popsparse_elementwise.cpp", "popsparse::SparseDenseElementWise<float,float>")
@case("popsparse_elementwise.cpp", "popsparse::SparseDenseElementWise<half,float>", rtol=3e-3)
def sparse_elementwise(rng: Rng, name: str) -> tuple[Fields, Fields]:
    q, s = normal(rng, 4, 3), normal(rng, 6, 3, type=dtype(name))
    places = {1: [0, 4], 3: [2, 3, 5]}
    values = normal(rng, 5, type=dtype(name))
    meta, wanted, at = [len(places)], f64(q), 0
    for row, columns in places.items():
        meta += [row, len(columns), *columns]
        for column in columns:
            wanted[row] += f64(values[at]) * f64(s[column])
            at += 1
    fields = {"q": q.reshape(-1), "r": values, "s": s.reshape(-1), "metaInfo": np.array(meta, "u2"), "numZ": 3}
    return fields, {"q": wanted.reshape(-1)}


@case("popsparse_block.cpp", *(f"BlockTimesDense<{t},float,{n},{n}>" for t in ("half", "float") for n in (4, 8)))
def block_times_dense(rng: Rng, name: str) -> tuple[Fields, Fields]:
    n = int(arguments(name)[2])
    blocks, dense = normal(rng, 3, n, n, type=dtype(name)), normal(rng, 3 * n, 5, type=dtype(name))
    out, places = normal(rng, 2 * n, 5), [(0, 1), (1, 2), (0, 0)]
    wanted = f64(out)
    for block, (row, column) in zip(blocks, places, strict=True):
        wanted[row * n : (row + 1) * n] += f64(block) @ f64(dense[column * n : (column + 1) * n])
    fields = {"blocks": blocks.reshape(-1), "dense": dense.reshape(-1), "out": out.reshape(-1)}
    return {**fields, "coordinates": np.array(places, "u2").reshape(-1), "width": 5}, {"out": wanted.reshape(-1)}


def mix(x: int) -> int:
    x = ((x ^ x >> 16) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ x >> 15) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ x >> 16


@case("poprand_dropout.cpp", "poprand::DropoutByHash<float>", "poprand::DropoutByHash<half>")
def dropout(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 40, type=dtype(name))
    kept = np.array([mix(77 + i) & 0xFFFF for i in range(40)]) < 40000
    fields = {"in": x, "out": zeros(40, type=dtype(name)), "scale": 1.6, "keep": 40000, "seed": 77}
    return fields, {"out": np.where(kept, f64(x) * 1.6, 0)}


@case("poprand_xoroshiro.cpp", "XoroshiroBits", times=2)
def xoroshiro(rng: Rng, name: str) -> tuple[Fields, Fields]:
    state = rng.integers(1, 2**32, 4).astype("u4")
    whole = 2**64 - 1
    a, b = int(state[1]) << 32 | int(state[0]), int(state[3]) << 32 | int(state[2])
    out = []
    for _ in range(2 * 12):
        out.append((a + b & whole) >> 32)
        c = b ^ a
        a = (((a << 24 | a >> 40) & whole) ^ c ^ (c << 16)) & whole
        b = (c << 37 | c >> 27) & whole
    return {"state": state, "out": zeros(12, type="u4")}, {"out": out[12:]}


@case("poprand_xoroshiro.cpp", "NormalPairs", rtol=1e-4)
def box_muller(rng: Rng, name: str) -> tuple[Fields, Fields]:
    u, v = f32(rng.uniform(0.01, 1, (2, 10)))
    wanted = np.sqrt(-2 * np.log(f64(u))) * np.exp(2j * np.pi * f64(v))
    return {"u1": u, "u2": v, "out": zeros(20)}, {"out": np.stack([wanted.real, wanted.imag], -1).reshape(-1)}
