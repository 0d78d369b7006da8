"""Casts of 8-bit floats, code by code and scale by scale, against gfloat; scales in types, numbers and tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.errors import ApplicationRuntimeError, InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, SetFloatingPointBehaviour, Tensor
from abele.machine import System, systems
from abele.numerics import ElementType, as_element_type, f8_143, f8_152, f16, f32, quarter, to_device, to_host
from abele.numerics.types import SCALES
from abele.poplibs import popops
from abele.runtime import Engine
from support.quarters import decoded, edge_values, rounded

FORMATS = [f8_143, f8_152]
CODES = np.arange(256, dtype=np.uint8)
WAYS = ["tiles", "native"]
SCALES_OF = {"native": SCALES, "tiles": [-32, -15, -14, -8, -7, 0, 1, 8, 9, 31]}
"""Scales in types that are tried: vertices of each are compiled by themselves."""


def chip(name: str = "c600", tiles: int = 4) -> System:
    whole = systems.get(name)
    return replace(whole, num_ipus=1, ipu=replace(whole.ipu, num_tiles=tiles))


class Program:
    """A small program: variables, steps, and runs of it."""

    def __init__(self, name: str = "c600") -> None:
        self.graph, self.prog = Graph(chip(name)), Sequence()
        self.engine: Engine | None = None

    def variable(self, dtype: Any, *shape: int) -> Tensor:
        return self.graph.map_linear(self.graph.variable(dtype, shape, name="v"))

    def run(self, mode: str, given: dict[Tensor, Any], *wanted: Tensor) -> list[np.ndarray]:
        with Engine(compile_program(self.graph, self.prog), mode=mode, keep=[*given, *wanted]) as engine:
            for tensor, array in given.items():
                engine[tensor] = array
            engine.run()
            return [np.asarray(engine[t]) for t in wanted]


def codes_as(type_: ElementType) -> np.ndarray:
    return CODES.view(type_.np)


@pytest.mark.slow
@pytest.mark.parametrize("mode", SCALES_OF)
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_cast__from_every_code_at_every_scale__is_gfloats_number(format: ElementType, mode: str) -> None:
    program, types = Program(), [quarter(format, s) for s in SCALES_OF[mode]]
    given = {program.variable(t, 256): codes_as(t) for t in types}
    wide = [popops.cast(program.graph, v, f32, program.prog) for v in given]
    half = [popops.cast(program.graph, v, f16, program.prog) for v in given]
    made = program.run(mode, given, *wide, *half)
    exact = {t.scale: decoded(t) for t in types}
    for type_, as_f32, as_f16 in zip(types, made[: len(types)], made[len(types) :], strict=True):
        np.testing.assert_array_equal(as_f32, exact[type_.scale])
        with np.errstate(over="ignore"):
            wanted = exact[type_.scale].astype(np.float16)
        np.testing.assert_array_equal(as_f16, wanted)
        low, high = (-14, 8) if format == f8_143 else (-7, 0)
        is_exact = np.array_equal(wanted.astype(np.float64), exact[type_.scale], equal_nan=True)
        assert is_exact == (low <= type_.scale <= high)


@pytest.mark.slow
@pytest.mark.parametrize("mode", SCALES_OF)
@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_cast__to_every_scale_where_rounding_turns__is_gfloats(format: ElementType, saturate: bool, mode: str) -> None:
    program, types = Program(), [quarter(format, s) for s in SCALES_OF[mode]]
    values = {t: edge_values(t) for t in types}
    given = {program.variable(f32, len(values[t])): values[t] for t in types}
    small = [
        popops.cast(program.graph, v, t, program.prog, saturate=saturate) for v, t in zip(given, types, strict=True)
    ]
    for type_, made in zip(types, program.run(mode, given, *small), strict=True):
        got = to_host(to_device(made, type_), type_)
        np.testing.assert_array_equal(got, rounded(values[type_], type_, saturate=saturate))


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_cast__with_the_scale_in_a_tensor__is_that_of_the_type_with_it(format: ElementType, mode: str) -> None:
    program = Program()
    x, codes = program.variable(f32, 600), program.variable(format, 256)
    scale = program.graph.map(program.graph.variable("i32", (1,), name="scale"), 0)
    small = popops.cast(program.graph, x, format, program.prog, scale=scale)
    wide = popops.cast(program.graph, codes, f32, program.prog, scale=scale)
    rng = np.random.default_rng(5)
    with Engine(compile_program(program.graph, program.prog), mode=mode, keep=[x, codes, scale, small, wide]) as engine:
        for exponent in SCALES:
            type_ = quarter(format, exponent)
            values = np.resize(np.append(rng.permutation(edge_values(type_)), [np.inf, np.nan]), 600)
            engine[x], engine[codes], engine[scale] = values, codes_as(format), np.int32([exponent])
            engine.run()
            got = to_host(to_device(np.asarray(engine[small]), format), type_)
            np.testing.assert_array_equal(got, rounded(values, type_, saturate=False))
            np.testing.assert_array_equal(np.asarray(engine[wide]), decoded(type_))


@pytest.mark.parametrize("mode", WAYS)
def test_pow2scale_casts__there_and_back__have_popart_s_signs(mode: str) -> None:
    program = Program()
    x = program.variable(f16, 3)
    small = popops.pow2scale_cast_to_fp8(program.graph, x, 3, "F143", program.prog)
    back = popops.pow2scale_cast_from_fp8(program.graph, small, -3, program.prog)
    got, returned = program.run(mode, {x: np.float16([0.75, 1.1, 100.0])}, small, back)
    # 0.75 is 0x3C in F143 (low_precision.md §1.1): times 8 it is three exponents on; 1.1 is rounded to 9 / 8.
    assert to_device(got, f8_143).view(np.uint8)[:2].tolist() == [0x3C + 3 * 8, 0x59]
    np.testing.assert_array_equal(returned, np.float16([0.75, 1.125, np.nan]))


def test_codes__of_published_check_points() -> None:
    assert to_device([0.75], f8_143).view(np.uint8)[0] == 0x3C
    assert to_device([0.25], f8_152).view(np.uint8)[0] == 0x38


@pytest.mark.parametrize("mode", WAYS)
def test_cast__with_nan_on_overflow_off__holds_what_is_too_large_and_no_infinity(mode: str) -> None:
    program = Program()
    x = program.variable(f32, 5)
    program.prog.add(SetFloatingPointBehaviour(nan_on_overflow=False))
    small = popops.cast(program.graph, x, quarter("F143", 2), program.prog)
    wide = popops.cast(program.graph, small, f32, program.prog)
    (got,) = program.run(mode, {x: np.float32([1e6, -1e6, np.inf, -np.inf, np.nan])}, wide)
    np.testing.assert_array_equal(got, [960, -960, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("mode", WAYS)
def test_cast__rounding_at_random__keeps_the_mean_within_four_sigma(mode: str) -> None:
    program, count = Program(), 1 << 14
    x = program.variable(f32, count)
    program.prog.add(SetFloatingPointBehaviour(stochastic_rounding=True))
    small = popops.cast(program.graph, x, quarter("F152", -3), program.prog)
    wide = popops.cast(program.graph, small, f32, program.prog)
    (got,) = program.run(mode, {x: np.full(count, 0.3, np.float32)}, wide)
    assert set(np.unique(got).tolist()) == {0.25, 0.3125}
    share = (np.float32(0.3) - 0.25) / 0.0625
    assert abs(np.mean(got == 0.3125) - share) < 4 * np.sqrt(share * (1 - share) / count)


def test_scale__in_a_tensor_out_of_range__stops_the_program_or_is_held_by_option() -> None:
    for throws in (True, False):
        program = Program()
        x, scale = program.variable(f32, 2), program.graph.map(program.graph.variable("i32", (), name="scale"), 0)
        options = {"throwIfLog2ScaleTensorNotInRange": throws}
        small = popops.pow2scale_cast_to_fp8(program.graph, x, scale, "F152", program.prog, options=options)
        given = {x: np.float32([2.0**-32, 3.0]), scale: np.int32(50)}
        if throws:
            with pytest.raises(ApplicationRuntimeError, match="scale of 8-bit floats is not from -32 to 31"):
                program.run("tiles", given, small)
        else:
            (got,) = program.run("tiles", given, small)
            np.testing.assert_array_equal(to_host(to_device(got, f8_152)), [0.5, np.nan])


def test_pow2scale__with_an_option_that_there_is_not__is_refused() -> None:
    program = Program()
    with pytest.raises(InvalidOptionError, match="throwIfScale"):
        popops.pow2scale_cast_to_fp8(
            program.graph, program.variable(f32, 2), 0, "F143", program.prog, options={"throwIfScale": True}
        )


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "scale of f16": (TypeMismatchError, "the scale is of neither", lambda p, x, q, s: {"tensor": x, "dtype": f16}),
    "between two": (TypeMismatchError, "could be of either", lambda p, x, q, s: {"tensor": q, "dtype": f8_152}),
    "too large": (
        TypeMismatchError,
        r"scaled by 2\^32",
        lambda p, x, q, s: {"tensor": x, "dtype": f8_143, "scale": 32},
    ),
    "too small": (TypeMismatchError, r"2\^-33", lambda p, x, q, s: {"tensor": x, "dtype": f8_143, "scale": -33}),
    "a float": (Exception, "whole number or a tensor", lambda p, x, q, s: {"tensor": x, "dtype": f8_143, "scale": 1.5}),
    "a bool": (Exception, "scale", lambda p, x, q, s: {"tensor": x, "dtype": f8_143, "scale": True}),
    "f32 tensor": (TypeMismatchError, "is f32", lambda p, x, q, s: {"tensor": x, "dtype": f8_143, "scale": x[:1]}),
    "many": (TensorError, "not one element", lambda p, x, q, s: {"tensor": x, "dtype": f8_143, "scale": s}),
}


@pytest.mark.parametrize("case", WRONG)
def test_cast__with_a_scale_that_is_none__is_refused(case: str) -> None:
    kind, message, make = WRONG[case]
    program = Program()
    x, q, s = (program.variable(t, 4) for t in (f32, f8_143, "i32"))
    given = {"scale": 1} | make(program, x, q, s)
    with pytest.raises(kind, match=message):
        popops.cast(program.graph, prog=program.prog, **given)


def test_pow2scale__of_wrong_types__is_refused() -> None:
    program = Program()
    x, q = program.variable(f32, 4), program.variable(f8_143, 4)
    to, back = popops.pow2scale_cast_to_fp8, popops.pow2scale_cast_from_fp8
    for call, message in (
        (lambda: to(program.graph, x, 0, "half", program.prog), "is no format of 8-bit floats"),
        (lambda: to(program.graph, x, 0, quarter("F143", 2), program.prog), "is no format of 8-bit floats"),
        (lambda: to(program.graph, q, 0, "F143", program.prog), "is an 8-bit float already"),
        (lambda: back(program.graph, x, 0, program.prog), "is no 8-bit float"),
        (lambda: back(program.graph, q, 0, program.prog, dtype="F152"), "the result is to be f8_152"),
    ):
        with pytest.raises(TypeMismatchError, match=message):
            call()
    assert as_element_type("quarter") == f8_143
