"""The library functions that are measured, each beside what PyTorch does for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor as Array

from abele.graph import Graph, Sequence, Tensor
from abele.poplibs import popnn, popops
from abele.poplibs.poplin import (
    ConvParams,
    calculate_weight_deltas,
    convolution,
    convolution_backward_data,
    create_input,
    create_matmul_input_lhs,
    create_matmul_input_rhs,
    create_weights,
    matmul,
    matmul_grouped,
)

Data = dict[str, Array]
Build = Callable[[Graph, Sequence], tuple[dict[str, Tensor], list[Tensor]]]
KINDS = {"f32": torch.float32, "f16": torch.float16}


@dataclass(frozen=True)
class Case:
    """A function on fixed sizes.

    Attributes:
        name: Function and sizes.
        unit: Unit of ``work`` in billions per second: GFLOP/s or GB/s.
        work: Floating-point operations, or bytes that must be read and written.
        data: Makes the inputs, by name.
        build: Appends the function to a program: its inputs by name, and outputs.
        reference: PyTorch's turn of the same.
    """

    name: str
    unit: str
    work: float
    data: Callable[[], Data]
    build: Build
    reference: Callable[[Data], Callable[[], Any]]


def all_cases() -> Iterator[Case]:
    """Every case, related ones side by side."""
    for size in (256, 512, 1024, 2048):
        yield product(1, size, size, size, "f32")
    yield product(1, 128, 4096, 1024, "f32")
    yield product(1, 4096, 64, 4096, "f32")
    yield product(1, 2048, 2048, 128, "f32")
    yield product(32, 128, 64, 128, "f32")
    for size in (256, 512):
        yield product(1, size, size, size, "f16")
    yield from convolutions()
    for kind in ("f32", "f16"):
        yield chain(1 << 24, kind)
    yield from row_functions()
    yield from reductions()
    yield from norms()
    yield from gathers()


def product(groups: int, m: int, k: int, n: int, kind: str) -> Case:
    """A matrix product, or ``groups`` of them."""
    a_shape, b_shape = ((groups, m, k), (groups, k, n)) if groups > 1 else ((m, k), (k, n))

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        a = create_matmul_input_lhs(graph, kind, a_shape, b_shape, "a")
        b = create_matmul_input_rhs(graph, kind, a_shape, b_shape, "b")
        function = matmul_grouped if groups > 1 else matmul
        return {"a": a, "b": b}, [function(graph, a, b, prog)]

    name = f"matmul {kind} " + (f"{groups}x" if groups > 1 else "") + f"[{m}x{k}]x[{k}x{n}]"
    data = _randoms(kind, a=a_shape, b=b_shape)
    return Case(name, "GFLOP/s", 2.0 * groups * m * k * n, data, build, lambda d: lambda: d["a"] @ d["b"])


def convolutions() -> Iterator[Case]:
    """The layers of a residual network of 50 layers, forward and backward, and a depthwise one."""
    sizes = {
        "1x1 64-256 @56": (64, 256, 56, 1, 1, 1),
        "1x1 1024-256 @14": (1024, 256, 14, 1, 1, 1),
        "3x3 64-64 @56": (64, 64, 56, 3, 1, 1),
        "3x3 256-256 @14": (256, 256, 14, 3, 1, 1),
        "3x3/2 128-128 @56": (128, 128, 56, 3, 2, 1),
        "7x7/2 3-64 @224": (3, 64, 224, 7, 2, 1),
        "depthwise 3x3 96 @56": (96, 96, 56, 3, 1, 96),
    }
    for label, (ci, co, field, kernel, stride, groups) in sizes.items():
        for batch in (1, 16):
            pad = kernel // 2
            params = ConvParams(
                batch,
                ci,
                co,
                (field, field),
                (kernel, kernel),
                (stride,) * 2,
                (),
                (pad,) * 2,
                (pad,) * 2,
                groups=groups,
            )
            yield conv_case(f"{label} b{batch}", params, "forward")
            if batch > 1:
                yield conv_case(f"{label} b{batch}", params, "data gradient")
                yield conv_case(f"{label} b{batch}", params, "weight gradient")


def conv_case(label: str, params: ConvParams, which: str) -> Case:
    """A convolution or one of its gradients."""
    x_shape = (params.batch, params.in_channels, *params.field)
    w_shape = (params.out_channels, params.in_channels // params.groups, *params.kernel)
    pad, stride = params.padding_lower, params.stride
    out_field = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(params.field, pad, params.kernel, stride, strict=True)]
    z_shape = (params.batch, params.out_channels, *out_field)
    out_params = ConvParams(
        params.batch, params.out_channels, params.in_channels, tuple(out_field), params.kernel, groups=params.groups
    )

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        if which == "forward":
            x, w = create_input(graph, params, "f32", "x"), create_weights(graph, params, "f32", "w")
            return {"x": x, "w": w}, [convolution(graph, x, w, params, prog)]
        z = create_input(graph, out_params, "f32", "z")
        if which == "data gradient":
            w = create_weights(graph, params, "f32", "w")
            return {"z": z, "w": w}, [convolution_backward_data(graph, z, w, params, prog)]
        x = create_input(graph, params, "f32", "x")
        return {"z": z, "x": x}, [calculate_weight_deltas(graph, z, x, params, prog)]

    def reference(d: Data) -> Callable[[], Any]:
        options = {"stride": stride, "padding": pad, "groups": params.groups}
        if which == "forward":
            return lambda: F.conv2d(d["x"], d["w"], None, **options)
        if which == "data gradient":
            return lambda: torch.nn.grad.conv2d_input(x_shape, d["w"], d["z"], **options)
        return lambda: torch.nn.grad.conv2d_weight(d["x"], w_shape, d["z"], **options)

    work = 2.0 * math.prod(z_shape) * math.prod(w_shape[1:])
    data = _randoms("f32", x=x_shape, w=w_shape, z=z_shape)
    return Case(f"conv {which} {label}", "GFLOP/s", work, data, build, reference)


def chain(count: int, kind: str) -> Case:
    """Five operations an element in one map."""

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        a, b = (graph.variable(kind, (count,), name=name).map_linear() for name in "ab")
        out = popops.map(graph, lambda x, y: ((x + y) * x - y) * 0.5 + 1.0, [a, b], prog)
        return {"a": a, "b": b}, [out]

    def reference(d: Data) -> Callable[[], Any]:
        a, b = d["a"], d["b"]
        return lambda: ((a + b) * a - b) * 0.5 + 1.0

    traffic = 3.0 * count * KINDS[kind].itemsize
    return Case(f"map of 5 {kind} [{count}]", "GB/s", traffic, _randoms(kind, a=(count,), b=(count,)), build, reference)


def row_functions() -> Iterator[Case]:
    """Softmax along rows."""
    for kind in ("f32", "f16"):
        for shape in ((512, 1024), (16384, 512)):
            yield unary(f"softmax {kind}", shape, kind, popnn.softmax, lambda x: torch.softmax(x, -1))
    yield unary("log_softmax f32", (16384, 512), "f32", popnn.log_softmax, lambda x: torch.log_softmax(x, -1))


def unary(
    name: str, shape: tuple[int, ...], kind: str, ours: Callable[..., Any], theirs: Callable[[Array], Array]
) -> Case:
    """A function of one tensor that gives one of its shape."""

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        x = graph.variable(kind, shape, name="x").map_linear()
        return {"x": x}, [ours(graph, x, prog)]

    traffic = 2.0 * math.prod(shape) * KINDS[kind].itemsize
    label = f"{name} {list(shape)}"
    return Case(label, "GB/s", traffic, _randoms(kind, x=shape), build, lambda d: lambda: theirs(d["x"]))


def reductions() -> Iterator[Case]:
    """Sums over rows, columns and everything."""
    for kind in ("f32", "f16"):
        for dims in ((1,), (0,), (0, 1)):
            yield _reduction(kind, (8192, 1024), dims)


def _reduction(kind: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> Case:
    def ours(graph: Graph, x: Tensor, prog: Sequence) -> Tensor:
        return popops.reduce(graph, x, dims, "ADD", prog)

    case = unary(f"reduce ADD {kind} over {list(dims)}", shape, kind, ours, lambda x: x.sum(dims))
    return Case(case.name, case.unit, case.work / 2, case.data, case.build, case.reference)


def norms() -> Iterator[Case]:
    """Normalisations, composed of reductions and maps."""
    yield unary(
        "layer norm f32",
        (16384, 512),
        "f32",
        lambda g, x, p: normalised(g, x, (1,), p),
        lambda x: F.layer_norm(x, (512,)),
    )
    yield unary(
        "batch norm f32",
        (16, 64, 56, 56),
        "f32",
        lambda g, x, p: normalised(g, x, (0, 2, 3), p),
        lambda x: F.batch_norm(x, None, None, training=True),
    )


def normalised(graph: Graph, x: Tensor, dims: tuple[int, ...], prog: Sequence) -> Tensor:
    """``x`` less its mean over ``dims``, divided by its standard deviation."""
    count = math.prod(x.shape[d] for d in dims)
    shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    mean = popops.reduce(graph, x, dims, "ADD", prog, scale=1 / count).reshape(shape)
    square = popops.reduce(graph, x, dims, "SQUARE_ADD", prog, scale=1 / count).reshape(shape)
    variance = popops.map(graph, lambda s, m: s - m * m + 1e-5, [square, mean], prog)
    scale = popops.rsqrt(graph, variance, prog)
    return popops.map(graph, lambda v, m, s: (v - m) * s, [x, mean, scale], prog)


def gathers() -> Iterator[Case]:
    """Rows of a table by their numbers, where the library has it."""
    function = getattr(popops, "multi_slice", None)
    if function is None:
        return
    rows, width, count = 16384, 256, 8192

    def build(graph: Graph, prog: Sequence) -> tuple[dict[str, Tensor], list[Tensor]]:
        table = graph.variable("f32", (rows, width), name="table").map_linear()
        index = graph.variable("u32", (count, 1), name="index").map_linear()
        return {"table": table, "index": index}, [function(graph, table, index, [0], [1], prog)]

    def data() -> Data:
        return {"table": torch.randn(rows, width), "index": torch.randint(rows, (count, 1)).to(torch.uint32)}

    def reference(d: Data) -> Callable[[], Any]:
        index = d["index"][:, 0].long()
        return lambda: F.embedding(index, d["table"])

    yield Case(f"multi_slice {count} of [{rows}, {width}]", "GB/s", 8.0 * count * width, data, build, reference)


def _randoms(kind: str, **shapes: tuple[int, ...]) -> Callable[[], Data]:
    return lambda: {name: torch.randn(shape).to(KINDS[kind]) for name, shape in shapes.items()}
