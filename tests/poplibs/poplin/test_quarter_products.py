"""Products and convolutions of 8-bit floats: values against gfloat and PyTorch, costs, chips, and what is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from abele.compiler import compile_program
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, LibraryCall, Sequence, Tensor, walk
from abele.machine import System, systems
from abele.numerics import ElementType, f8_143, f8_152, f16, f32, i32, quarter, to_device, to_host
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.options import QuarterPartialsWarning
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.work import Work
from abele.runtime import Engine
from support.quarters import decoded

WAYS = ["tiles", "native"]
SLOWLY = [pytest.param("tiles", marks=[pytest.mark.slow, pytest.mark.rest]), "native"]
"""The same where vertices of many types are compiled."""
CODES = np.arange(256, dtype=np.uint8)


def chip(name: str = "c600", tiles: int = 8) -> System:
    whole = systems.get(name)
    return replace(whole, num_ipus=1, ipu=replace(whole.ipu, num_tiles=tiles))


class Program:
    """A small program of 8-bit operands, and its runs."""

    def __init__(self, system: System | None = None) -> None:
        self.graph, self.prog = Graph(system or chip()), Sequence()
        self.given: dict[Tensor, np.ndarray] = {}

    def tensor(self, array: np.ndarray, dtype: ElementType) -> Tensor:
        made = self.graph.map_linear(self.graph.variable(dtype, array.shape, name=f"v{len(self.given)}"))
        self.given[made] = array
        return made

    def number(self, value: int) -> Tensor:
        made = self.graph.map(self.graph.variable("i32", (1,), name="scale"), 1)
        self.given[made] = np.int32([value])
        return made

    def run(self, mode: str, *wanted: Tensor) -> list[np.ndarray]:
        with Engine(compile_program(self.graph, self.prog), mode=mode, keep=[*self.given, *wanted]) as engine:
            for tensor, array in self.given.items():
                engine[tensor] = array
            engine.run()
            return [np.asarray(engine[t]) for t in wanted]

    @property
    def calls(self) -> list[str]:
        return [step.name for step in walk(self.prog) if isinstance(step, LibraryCall)]


def some(shape: tuple[int, ...], dtype: ElementType, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=shape) * 2.0**dtype.scale
    return to_device(values.astype(np.float32), dtype)


@pytest.mark.parametrize("mode", SLOWLY)
@pytest.mark.parametrize(
    ("left", "right", "scale"),
    [(f8_143, f8_143, None), (f8_152, quarter("F143", -6), None), (quarter("F152", 5), quarter("F152", -9), -3)],
    ids=str,
)
@pytest.mark.parametrize("inner", [1, 32])
def test_matmul__of_every_code_by_every_code__is_the_rounded_product(
    left: ElementType, right: ElementType, scale: int | None, inner: int, mode: str
) -> None:
    program = Program()
    a, b = np.zeros((256, inner), np.uint8), np.zeros((inner, 256), np.uint8)
    a[:, 0], b[0] = CODES, CODES
    x, y = program.tensor(a.view(left.np), left), program.tensor(b.view(right.np), right)
    scales = None if scale is None else (program.number(scale), None)
    (got,) = program.run(mode, poplin.matmul(program.graph, x, y, program.prog, scales=scales))
    with np.errstate(over="ignore"):
        wanted = (np.outer(decoded(left), decoded(right)) * 2.0 ** (scale or 0)).astype(np.float16)
    np.testing.assert_array_equal(got + np.float16(0), wanted + np.float16(0))


SHAPES = [(5, 3, 7), (16, 32, 16), (33, 100, 17), (64, 96, 160)]


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("types", [(f8_143, f8_152), (quarter("F143", -7), quarter("F143", 4))], ids=str)
def test_matmul__of_any_shape__is_that_of_the_numbers(
    shape: tuple[int, int, int], types: tuple[ElementType, ElementType], mode: str
) -> None:
    m, k, n = shape
    a, b = some((m, k), types[0]), some((k, n), types[1], 1)
    program = Program()
    out = poplin.matmul(program.graph, program.tensor(a, types[0]), program.tensor(b, types[1]), program.prog)
    assert out.dtype == f16
    wanted = to_host(a, types[0]).astype(np.float64) @ to_host(b, types[1])
    (got,) = program.run(mode, out)
    np.testing.assert_allclose(got, wanted, atol=3e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("mode", SLOWLY)
@pytest.mark.parametrize("system", ["c600", "bow"])
@pytest.mark.parametrize("scales", [(3, -2), ("tensor", None), (None, "tensor"), ("tensor", "tensor"), ("tensor", 2)])
def test_matmul_grouped__with_scales_of_operands__is_multiplied_by_both(scales: Any, system: str, mode: str) -> None:
    types = quarter("F143", 2), f8_152
    a, b = some((3, 6, 40), types[0]), some((3, 40, 9), types[1], 1)
    program = Program(chip(system))
    exponents = iter((-4, 1))
    total, given = 0, []
    for scale in scales:
        exponent = next(exponents) if scale == "tensor" else scale or 0
        total += exponent
        given.append(program.number(exponent) if scale == "tensor" else scale)
    out = poplin.matmul_grouped(
        program.graph,
        program.tensor(a, types[0]),
        program.tensor(b, types[1]),
        program.prog,
        scales=tuple(given),
        options={"convertQuarterToHalf": True},
    )
    wanted = np.matmul(to_host(a, types[0]), to_host(b, types[1]), dtype=np.float64) * 2.0**total
    (got,) = program.run(mode, out)
    np.testing.assert_allclose(got, wanted, atol=3e-3 * np.abs(wanted).max())


CONVS = {
    "plain": ConvParams(batch=2, in_channels=32, out_channels=16, field=(6, 5), kernel=(3, 3), padding_lower=(1, 1)),
    "strided": ConvParams(batch=1, in_channels=8, out_channels=24, field=(9,), kernel=(3,), stride=(2,)),
    "pointwise": ConvParams(batch=2, in_channels=64, out_channels=16, field=(4, 4), kernel=(1, 1)),
    "depthwise": ConvParams(batch=2, in_channels=8, out_channels=8, field=(8, 8), kernel=(3, 3), groups=8),
    "few": ConvParams(batch=1, in_channels=3, out_channels=4, field=(12, 12), kernel=(5, 5)),
    "deep": ConvParams(batch=1, in_channels=4, out_channels=4, field=(3, 3, 3, 3), kernel=(2, 2, 2, 2)),
}


def torch_convolution(x: np.ndarray, w: np.ndarray, params: ConvParams) -> torch.Tensor:
    """PyTorch's convolution in 64 bits; its own padding is the same on both sides, so the input is padded before."""
    around = [n for pair in zip(params.padding_lower, params.padding_upper, strict=True) for n in pair[::-1]][::-1]
    padded = torch.nn.functional.pad(torch.as_tensor(x, dtype=torch.float64), around)
    call = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d}[len(params.field)]
    return call(padded, torch.as_tensor(w, dtype=torch.float64), stride=params.stride, groups=params.groups)


@pytest.mark.parametrize("mode", SLOWLY)
@pytest.mark.parametrize("system", ["c600", "bow"])
@pytest.mark.parametrize("case", [name for name in CONVS if name != "deep"])
def test_convolutions__forward_and_gradients__are_pytorch_s(case: str, system: str, mode: str) -> None:
    params, types = CONVS[case], (quarter("F143", 1), f8_152, quarter("F152", -3))
    shapes = params.input_shape, params.weights_shape, params.output_shape
    x, w, dy = (some(shape, t, n) for n, (shape, t) in enumerate(zip(shapes, types, strict=True)))
    program = Program(chip(system))
    tx, tw, tdy = (program.tensor(v, t) for v, t in zip((x, w, dy), types, strict=True))
    graph, prog, how = program.graph, program.prog, {"options": {"convertQuarterToHalf": True}, "scales": (1, None)}
    made = [
        poplin.convolution(graph, tx, tw, params, prog, **how),
        poplin.convolution_backward_data(graph, tdy, tw, params, prog, **how),
        poplin.calculate_weight_deltas(graph, tdy, tx, params, prog, **how),
    ]
    xs, ws, ds = (torch.as_tensor(to_host(v, t), dtype=torch.float64) for v, t in zip((x, w, dy), types, strict=True))
    xs.requires_grad_()
    ws.requires_grad_()
    around = [n for pair in zip(params.padding_lower, params.padding_upper, strict=True) for n in pair[::-1]][::-1]
    call = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d}[len(params.field)]
    y = call(torch.nn.functional.pad(xs, around), ws, stride=params.stride, groups=params.groups)
    y.backward(ds)
    assert xs.grad is not None
    assert ws.grad is not None
    for got, wanted in zip(program.run(mode, *made), (y.detach(), xs.grad, ws.grad), strict=True):
        wide = 2 * wanted.numpy()
        np.testing.assert_allclose(got, wide, atol=4e-3 * np.abs(wide).max())


@pytest.mark.parametrize("system", ["c600", "bow"])
def test_convolution__over_four_dimensions__has_its_scale_once(system: str) -> None:
    params = CONVS["deep"]
    program = Program(chip(system))
    x, w = (
        program.tensor(some(params.input_shape, f8_143), f8_143),
        program.tensor(some(params.weights_shape, f8_143, 1), f8_143),
    )
    out = poplin.convolution(
        program.graph, x, w, params, program.prog, scales=(-1, None), options={"convertQuarterToHalf": True}
    )
    a, b = (to_host(v, f8_143).astype(np.float64) for v in program.given.values())
    windows = np.lib.stride_tricks.sliding_window_view(a, (2, 2, 2, 2), (2, 3, 4, 5))
    wanted = np.einsum("bcxyzwijkl,ocijkl->boxyzw", windows, b) / 2
    (got,) = program.run("native", out)
    np.testing.assert_allclose(got, wanted, atol=4e-3 * np.abs(wanted).max())


def test_convolution__that_vertices_of_halves_are_faster_at__casts_first_on_a_chip_with_8_bits() -> None:
    def calls_of(params: ConvParams) -> list[str]:
        program = Program(systems.get("c600"))
        x, w = (program.tensor(some(s, f8_143), f8_143) for s in (params.input_shape, params.weights_shape))
        poplin.convolution(program.graph, x, w, params, program.prog)
        return program.calls

    wide = ConvParams(batch=1, in_channels=64, out_channels=64, field=(14, 14), kernel=(3, 3))
    apart = ConvParams(batch=4, in_channels=64, out_channels=64, field=(56, 56), kernel=(3, 3), groups=64)
    assert calls_of(wide) == ["poplin.convolution"]
    assert calls_of(apart) == ["popops.cast", "popops.cast", "poplin.convolution"]


def test_matmul__with_vertices_that_take_no_8_bits_asked_for__casts_first() -> None:
    program = Program()
    a, b = program.tensor(some((8, 64), f8_143), f8_143), program.tensor(some((64, 32), f8_143), f8_143)
    poplin.matmul(program.graph, a, b, program.prog, options={"planConstraints": '{"method": {"type": "HMAC"}}'})
    assert program.calls.count("popops.cast") == 2


# --- costs ---------------------------------------------------------------------------------------------------------


def work_of(dtype: ElementType, rows: int, ins: int, outs: int) -> Work:
    one = np.ones(1, dtype=np.int64)
    return Work(
        dtype=dtype,
        partials=f16,
        groups=one,
        in_channels=one * ins,
        out_channels=one * outs,
        positions=one * rows,
        outputs=one * rows,
        run=one * rows,
        kernel_outer=one,
        kernel_inner=one,
    )


def test_amp_1x1_quarter__cycles__are_the_published_formula() -> None:
    # machine.md §4.2, by hand: 96 rows are 16 for each worker; 64 in-channels two loads, 32 out-channels two groups.
    worker = 17 + 27 + 4 * 13
    first, later = 131 + 64 + 6 * (worker - 5), 108 + 64 + 6 * worker
    assert cost.amp_1x1(work_of(f8_143, 96, 64, 32), 16, 8)[0] == 46 + 21 + 2 * (46 + first + later)
    # A row for one worker alone: the others have none.
    first = 131 + 64 + 6 * (17 + 18 - 5)
    assert cost.amp_1x1(work_of(f8_143, 1, 32, 16), 16, 8)[0] == 46 + 21 + 46 + first


def test_amp_nx1_quarter__cycles__are_the_published_formula() -> None:
    one = work_of(f8_143, 60, 32, 16)
    work = replace(one, run=np.int64([10]), kernel_outer=np.int64([3]), kernel_inner=np.int64([3]))
    worker = 18 + (16 + 27 + 4 * 7)
    inner = 3 * (33 + 103 + 2 * 86 + 3 * (64 + 6 * worker))
    zeroing = 6 * (10 * 16 // 4 + 5)
    assert cost.amp_nx1(work, 16, 8)[0] == 83 + 37 + 58 + 61 + inner + zeroing


def test_amp__of_8_bit_floats__multiplies_128_a_cycle() -> None:
    for rows in (6 * 2048, 6 * 8192):
        half, eight = (int(cost.amp_1x1(work_of(t, rows, 256, 16), 16, 8)[0]) for t in (f16, f8_143))
        assert 1.95 < half / eight < 2.05
        assert rows * 256 * 16 / eight > 0.95 * 128
    assert systems.get("c600").peak_flops("f8", "f16") == 2 * systems.get("c600").peak_flops("f16", "f16")


def product_report(dtype: ElementType, n: int, name: str = "c600") -> Any:
    graph, prog = Graph(systems.get(name)), Sequence()
    a = poplin.create_matmul_input_lhs(graph, dtype, (n, n), (n, n), name="a", partials_type=f16)
    b = poplin.create_matmul_input_rhs(graph, dtype, (n, n), (n, n), name="b", partials_type=f16)
    options = {"convertQuarterToHalf": True}
    poplin.matmul(graph, a, b, prog, partials_type=f16, options=options)
    return compile_program(graph, prog).report


@pytest.mark.slow
def test_matmul__of_large_squares_on_c600__takes_about_half_the_cycles_and_bytes_of_f16() -> None:
    half, eight = product_report(f16, 4096), product_report(f8_143, 4096)
    assert 1.8 < half.total_cycles / eight.total_cycles < 2.1
    sent = [float((r.steps["executions"] * r.steps["exchanged_bytes"]).sum()) for r in (half, eight)]
    assert 1.7 < sent[0] / sent[1] < 2.3
    held = [dict(zip(r.variables["name"].tolist(), r.variables["bytes"].tolist(), strict=True)) for r in (half, eight)]
    assert held[0]["a"] == 2 * held[1]["a"] == 2 * 4096 * 4096
    roof = eight.insights().roofline
    assert roof.f8_flops_per_second == 2 * roof.f16_flops_per_second
    assert [(op.type, op.peak_flops_per_second) for op in roof.ops] == [("f8", roof.f8_flops_per_second)]


def test_matmul__on_a_chip_that_casts__costs_the_casts_and_a_product_of_halves() -> None:
    half, cast = product_report(f16, 512, "bow"), product_report(f8_143, 512, "bow")
    assert cast.total_cycles > half.total_cycles
    kinds = cast.ops["kind"].tolist()
    assert kinds.count("popops.cast") == 2
    assert cast.insights().roofline.f8_flops_per_second == 0


# --- what is refused -----------------------------------------------------------------------------------------------


def test_matmul__with_f32_partials_asked_for__has_f16_and_says_so() -> None:
    program = Program()
    a, b = (program.tensor(some((32, 32), f8_143, n), f8_143) for n in range(2))
    with pytest.warns(QuarterPartialsWarning, match="partial sums of 8-bit floats are f16, not f32"):
        poplin.matmul(program.graph, a, b, program.prog, partials_type="f32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        poplin.matmul(program.graph, a, b, program.prog, options={"partialsType": "half"})


def test_matmul__on_a_chip_without_8_bits__is_refused_by_name_with_the_option_that_allows_it() -> None:
    program = Program(chip("bow"))
    a, b = (program.tensor(some((4, 4), f8_143, n), f8_143) for n in range(2))
    with pytest.raises(TypeMismatchError, match="Bow does not multiply 8-bit floats") as raised:
        poplin.matmul(program.graph, a, b, program.prog)
    assert "option convertQuarterToHalf=true" in str(raised.value)
    params = ConvParams(batch=1, in_channels=4, out_channels=4, field=(4,), kernel=(1,))
    x, w = (program.tensor(some(s, f8_143), f8_143) for s in (params.input_shape, params.weights_shape))
    args = poplin.multiconv.ConvolutionArgs(x, w, params)
    with pytest.raises(TypeMismatchError, match="multiconv: Bow does not multiply 8-bit floats"):
        poplin.multiconv.convolution(program.graph, [args], program.prog)


WRONG: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "mixed": (TypeMismatchError, "multiplied by 8-bit floats alone", {"b": f16}),
    "output": (TypeMismatchError, "products of 8-bit floats are f16, f32 is asked for", {"output_type": f32}),
    "output in 8 bits": (TypeMismatchError, "products of 8-bit floats are f16", {"output_type": f8_143}),
    "partials": (TypeMismatchError, "partials of type i32", {"partials_type": "i32"}),
    "scale": (TypeMismatchError, r"cannot be scaled by 2\^32", {"scales": (32, None)}),
    "scale below": (TypeMismatchError, r"cannot be scaled by 2\^-33", {"scales": (None, -33)}),
    "scales of f16": (TypeMismatchError, "scales are of 8-bit floats", {"a": f16, "b": f16, "scales": (1, None)}),
    "option": (InvalidOptionError, "convertQuarterToFloat", {"options": {"convertQuarterToFloat": True}}),
}


@pytest.mark.parametrize("case", WRONG)
def test_matmul__of_what_does_not_go__is_refused(case: str) -> None:
    kind, message, how = WRONG[case]
    program, how = Program(), dict(how)
    a, b = (program.tensor(np.zeros((4, 4), t.np), t) for t in (how.pop("a", f8_143), how.pop("b", f8_152)))
    with pytest.raises(kind, match=message):
        poplin.matmul(program.graph, a, b, program.prog, **how)


def test_scale__of_several_elements__is_refused() -> None:
    program = Program()
    a, b = (program.tensor(np.zeros((4, 4), f8_143.np), f8_143) for _ in range(2))
    s = program.tensor(np.zeros(2, np.int32), i32)
    with pytest.raises(TensorError, match="not one element"):
        poplin.matmul(program.graph, a, b, program.prog, scales=(s, None))


@pytest.mark.parametrize("mode", SLOWLY)
def test_pow2scaled__of_a_product_and_a_convolution__multiply_by_the_power(mode: str) -> None:
    program, params = Program(), CONVS["plain"]
    a, b = some((6, 40), f8_143), some((40, 8), f8_152, 1)
    x, w = some(params.input_shape, f8_143, 2), some(params.weights_shape, f8_143, 3)
    operands = [program.tensor(v, t) for v, t in ((a, f8_143), (b, f8_152), (x, f8_143), (w, f8_143))]
    graph, prog = program.graph, program.prog
    options = {"throwIfLog2ScaleTensorNotInRange": False, "availableMemoryProportion": 0.3}
    product = poplin.matmul_pow2scaled(graph, *operands[:2], program.number(-40), prog, options=options)
    conv = poplin.conv_pow2scaled(graph, *operands[2:], 2, params, prog)
    got, deep = program.run(mode, product, conv)
    np.testing.assert_array_equal(got, np.zeros((6, 8)))  # held at 2^-32, which is nothing in f16
    wanted = 4 * torch_convolution(to_host(x, f8_143), to_host(w, f8_143), params).numpy()
    np.testing.assert_allclose(deep, wanted, atol=4e-3 * np.abs(wanted).max())
    half = program.tensor(np.zeros((40, 8), np.float16), f16)
    with pytest.raises(TypeMismatchError, match=r"matmul_pow2scaled: b .* is no 8-bit float"):
        poplin.matmul_pow2scaled(graph, operands[0], half, 0, prog)
