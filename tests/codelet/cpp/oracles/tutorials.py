"""Tutorials and custom operations of models."""

from __future__ import annotations

import numpy as np
from scipy import special

from codelet.cpp.oracles.cases import Fields, case, dtype, f32, f64, normal, zeros

Rng = np.random.Generator


@case("tut_sum.cpp", "SumVertex", "ScaledSum")
def sums(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 50)
    fields = {"in": x, "out": zeros(1)}
    if name == "SumVertex":
        return fields, {"out": f64(x).sum()}
    return {**fields, "factor": f32([2.5])}, {"out": f64(x).sum() * 2.5}


@case("tut_matvec.cpp", "DotProductVertex")
def dot(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = normal(rng, 2, 40)
    return {"a": a, "b": b, "out": zeros(1)}, {"out": f64(a) @ f64(b)}


@case("tut_matvec.cpp", "BlockVertex")
def block(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rows, x = normal(rng, 5, 12), normal(rng, 12)
    return {"rows": list(rows), "x": x, "partial": zeros(5)}, {"partial": f64(rows) @ f64(x)}


@case("tut_matvec.cpp", "ReduceVertex")
def gathered(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 9)
    return {"in": x, "out": zeros(1)}, {"out": f64(x).sum()}


@case("tut_axpy_templates.cpp", *(f"blas::Axpy<{t}>" for t in ("float", "half", "int", "unsigned", "short")))
@case("tut_axpy_templates.cpp", "blas::Axpy<float,true>", "blas::Axpy<half,true>")
def axpy(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x, y = normal(rng, 2, 30, type=dtype(name))
    alpha = 1 if name.endswith("true>") else 3
    return {"x": x, "y": y, "alpha": 3}, {
        "y": (alpha * x.astype("f4") + y).astype(x.dtype) if x.dtype.kind == "f" else y + x.dtype.type(3) * x
    }


@case("tut_heat.cpp", "HeatStep")
def heat(rng: Rng, name: str) -> tuple[Fields, Fields]:
    above, below, u = normal(rng, 14), normal(rng, 14), normal(rng, 5, 14)
    whole = f64(np.vstack([above, u, below]))
    wanted = f64(u)
    laplace = whole[:-2] + whole[2:] - 4 * whole[1:-1]
    wanted[:, 1:-1] += 0.1 * (laplace[:, 1:-1] + u[:, :-2] + u[:, 2:])
    out = [zeros(14) for _ in range(5)]
    return {"above": above, "below": below, "in": list(u), "out": out, "alpha": 0.1}, {"out": wanted}


@case("tut_heat.cpp", "Residual")
def residual(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = normal(rng, 2, 31)
    return {"a": a, "b": b, "norm": zeros(1)}, {"norm": np.abs(a - b).max()}


@case("tut_pi_single_source.cpp", "PiVertex")
def pi(rng: Rng, name: str) -> tuple[Fields, Fields]:
    state, hits = 12345, 0

    def draw() -> float:
        nonlocal state
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        return np.float32(state >> 8) * np.float32(1 / 16777216)

    for _ in range(200):
        x, y = draw(), draw()
        hits += int(x * x + y * y < 1)
    return {"hits": zeros(1, type="u4"), "iterations": 200, "seed": 12345}, {"hits": [hits]}


@case("tut_reduce_workers.cpp", "PartialSums")
def partial_sums(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 45)
    wanted = [f64(x[8 * w : 8 * w + 8]).sum() for w in range(6)]
    return {"data": x, "partials": zeros(6), "size": 45}, {"partials": wanted}


@case("tut_reduce_workers.cpp", "StridedScale")
def strided_scale(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 45)
    return {"data": x, "by": 1.5}, {"data": x * np.float32(1.5)}


@case("tut_half_vectors.cpp", "AddFloat2")
def add_float2(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = normal(rng, 2, 24)
    return {"a": a, "b": b, "out": zeros(24), "pairs": 12}, {"out": a + b}


@case("tut_half_vectors.cpp", "ScaleHalf4", rtol=0)
@case("worker_align.cpp", "ScaleWorker", rtol=0)
def scale_half(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 27, type="f2")
    return {"data": x, "scale" if name == "ScaleHalf4" else "by": 1.25}, {"data": x * np.float16(1.25)}


@case("worker_align.cpp", "AddVectors")
def add_vectors(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = normal(rng, 2, 31)
    return {"a": a, "b": b, "size": 31}, {"b": a + b}


@case("popart_cube.cpp", "CubeFwd<float>", "CubeFwd<half>")
def cube(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 20, type=dtype(name))
    return {"input": x, "output": zeros(20, type=dtype(name))}, {"output": f64(x) ** 3}


@case("popart_cube.cpp", "CubeBwd<float>", "CubeBwd<half>")
def cube_backward(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x, g = normal(rng, 2, 20, type=dtype(name))
    return {"input": x, "grad": g, "output": zeros(20, type=dtype(name))}, {"output": f64(g) * 3 * f64(x) ** 2}


@case("popart_leaky_relu.cpp", "LeakyReluOpVertex<float>", "LeakyReluOpVertex<half>")
def leaky_relu(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 33, type=dtype(name))
    wanted = np.where(x > 0, f32(x), np.float32(0.1) * f32(x))
    return {"in": x, "out": zeros(33, type=dtype(name)), "alpha": 0.1}, {"out": wanted}


@case("popart_leaky_relu.cpp", "LeakyReluGradOpVertex<float>", "LeakyReluGradOpVertex<half>")
def leaky_relu_gradient(rng: Rng, name: str) -> tuple[Fields, Fields]:
    g, x = normal(rng, 2, 33, type=dtype(name))
    fields = {"grad_in": g, "fwd_input": x, "grad_out": zeros(33, type=dtype(name)), "alpha": 0.1}
    return fields, {"grad_out": g * np.where(x > 0, 1, 0.1)}


@case("popart_swish.cpp", "Swish", "Mish")
def swish(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 40)
    y = f64(x)
    wanted = y * special.expit(y) if name == "Swish" else y * np.tanh(np.log1p(np.exp(y)))
    return {"x": x, "y": zeros(40)}, {"y": wanted}


@case("popart_rotary.cpp", "RotaryEmbedding<float>", "RotaryEmbedding<half>")
def rotary(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 7, 4, 2, type=dtype(name))
    angle = normal(rng, 7, 4)
    sines = np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    turned = (f64(x[..., 0]) + 1j * f64(x[..., 1])) * np.exp(1j * f64(angle))
    wanted = np.stack([turned.real, turned.imag], axis=-1).reshape(-1)
    fields = {"in": x.reshape(-1), "sinCos": sines.reshape(-1), "out": zeros(56, type=dtype(name))}
    return {**fields, "numPositions": 7, "headSize": 8, "backward": False}, {"out": wanted}


@case("popart_nms.cpp", "nms::Nms")
def nms(rng: Rng, name: str) -> tuple[Fields, Fields]:
    corner, size = rng.uniform(0, 4, (12, 2)), rng.uniform(1, 3, (12, 2))
    boxes, scores = f32(np.hstack([corner, corner + size])), f32(rng.uniform(0, 1, 12))
    left, kept = scores.copy(), []
    for _ in range(6):
        best = int(np.argmax(left))
        if np.isneginf(left[best]):
            kept.append(-1)
            continue
        kept.append(best)
        both = np.clip(np.minimum(boxes[best, 2:], boxes[:, 2:]) - np.maximum(boxes[best, :2], boxes[:, :2]), 0, None)
        area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        overlap = np.prod(both, axis=1) / (area[best] + area - np.prod(both, axis=1))
        left[overlap > 0.3] = -np.inf
    fields = {"boxes": boxes.reshape(-1), "scores": scores, "kept": zeros(6, type="i4"), "threshold": 0.3}
    return fields, {"kept": kept}


@case("include_soup.cpp", "ArgMinMax")
def arg_min_max(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 60)
    return {"x": x, "at": zeros(2, type="i4")}, {"at": [np.argmin(x), np.argmax(x)]}


@case("vector_math.cpp", "Softplus2")
def softplus(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 20)
    return {"in": x, "out": zeros(20), "pairs": 10}, {"out": np.log1p(np.exp(f64(x)))}


@case("vector_math.cpp", "ClampedRelu", rtol=0)
def clamped_relu(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = 5 * normal(rng, 24, type="f2")
    return {"x": x}, {"x": np.clip(x, 0, 6)}


@case("supervisor_styles.cpp", "ZeroSupervisor")
def zero_supervisor(rng: Rng, name: str) -> tuple[Fields, Fields]:
    return {"data": normal(rng, 10)}, {"data": np.zeros(10)}


@case("supervisor_styles.cpp", "CountSupervisor", times=3)
def count_supervisor(rng: Rng, name: str) -> tuple[Fields, Fields]:
    return {"counter": zeros(1, type="u4"), "by": 7}, {"counter": [21]}


@case("state_machine.cpp", "MovingAverage", times=5)
def moving_average(rng: Rng, name: str) -> tuple[Fields, Fields]:
    fields = {"x": f32([3]), "y": zeros(1), "ring": f32([0, 0, 6, 9]), "at": 0, "count": 3, "mode": 0}
    return fields, {"y": [3]}


@case("asm_beside_portable.cpp", "Negate")
def negate(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 10, type="i4")
    return {"x": x}, {"x": -x}


@case("exchange_beside_portable.cpp", "Transpose")
def transpose(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 4, 6)
    return {"in": x.reshape(-1), "out": zeros(24), "rows": 4, "columns": 6}, {"out": x.T.reshape(-1)}


@case("double_beside_float.cpp", "Simpson")
def simpson(rng: Rng, name: str) -> tuple[Fields, Fields]:
    f = f32(np.sin(np.linspace(0, np.pi, 21)))
    return {"f": f, "integral": zeros(1), "h": np.pi / 20}, {"integral": [2.0000068]}


@case("double_beside_float.cpp", "Distances")
def distances(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x, y = normal(rng, 2, 15, type="i4")
    return {"x": x, "y": y, "d": zeros(15)}, {"d": np.hypot(f64(x), f64(y)) + (0.1 * x) ** 2}


@case("double_beside_float.cpp", "DoubleField")
def double_field(rng: Rng, name: str) -> tuple[Fields, Fields]:
    return {"x": f32([1.5, 2]), "out": zeros(1)}, {"out": [1.5]}


@case("heap_beside_stack.cpp", "Mode")
def mode(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.integers(0, 9, 80).astype("u1")
    return {"in": x, "out": zeros(1, type="i4")}, {"out": [np.bincount(x).argmax()]}


@case("recursion_beside_loop.cpp", "QuickSort")
def quick_sort(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 50, type="i4")
    return {"v": x}, {"v": np.sort(x)}


@case("init_kernels.cpp", "InitKernel<float,float2>", "InitKernel<half,half2>", "InitKernel<half,half4>")
def init_kernel(rng: Rng, name: str) -> tuple[Fields, Fields]:
    return {"out": zeros(11, type=dtype(name)), "value": 2.5}, {"out": np.full(11, 2.5)}


@case(
    "init_kernels.cpp", "MapKernel<Square<float>,'a',1,-3>", "MapKernel<Compose<Square<float>,Twice<float>>,'b',2,16>"
)
def map_kernel(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 11)
    y = f64(x)
    return {"data": x}, {"data": y**2 - 3 if "'a'" in name else (2 * (2 * y) ** 2) ** 2 + 16}


@case("vector_list_rows.cpp", "RaggedScale")
def ragged_scale(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rows = [normal(rng, n) for n in (3, 7, 1)]
    fields = {"in": rows, "out": [zeros(len(r)) for r in rows], "by": 2.0}
    return fields, {"out": np.concatenate(rows) * 2}


@case("vector_list_rows.cpp", "RaggedMax")
def ragged_max(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rows = [normal(rng, n, type="i4") for n in (3, 7, 1)]
    return {"in": rows, "most": zeros(3, type="i4")}, {"most": [r.max() for r in rows]}


@case("vector_list_rows.cpp", "GatherRows")
def gather_rows(rng: Rng, name: str) -> tuple[Fields, Fields]:
    rows = list(normal(rng, 4, 5))
    order = np.array([2, 0, 3], "u4")
    fields = {"rows": rows, "order": order, "out": [zeros(5) for _ in order]}
    return fields, {"out": [rows[i] for i in order]}
