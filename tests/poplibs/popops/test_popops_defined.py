"""Integer division by zero, shifts by the width and casts out of range: one result in both modes, that of codelets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele import Engine, Graph, Sequence
from abele.numerics import ElementType, f16, f32, i8, i16, i32, i64, u8, u16, u32
from abele.poplibs import popops

MODES = pytest.mark.parametrize("mode", ["native", "tiles"])
INTEGERS = pytest.mark.parametrize("type_", [i8, u8, i16, u16, i32, u32, i64], ids=str)


def result(make: Any, mode: str, *values: np.ndarray, types: tuple[ElementType, ...]) -> np.ndarray:
    graph, program = Graph("gc200"), Sequence()
    tensors = [
        graph.variable(t, v.shape, name=f"x{n}").map(0) for n, (v, t) in enumerate(zip(values, types, strict=True))
    ]
    out = make(graph, *tensors, program)
    engine = Engine(graph, program, mode=mode, keep=[*tensors, out])
    for tensor, value in zip(tensors, values, strict=True):
        engine[tensor] = value
    engine.run()
    return engine[out]


@MODES
@INTEGERS
def test_division__by_zero_and_of_the_lowest_number__is_defined(type_: ElementType, mode: str) -> None:
    limits = np.iinfo(type_.np)
    signed = type_.kind == "int"
    x = np.array([5, limits.min, limits.max, limits.min, 7], type_.np)
    y = np.array([0, -1 if signed else 1, 0, 0, 2], type_.np)
    given: Any = {"types": (type_, type_)}
    quotient = result(lambda g, a, b, p: popops.div(g, a, b, prog=p), mode, x, y, **given)
    rest = result(lambda g, a, b, p: popops.rem(g, a, b, prog=p), mode, x, y, **given)
    assert quotient.tolist() == [0, limits.min, 0, 0, 3]
    assert rest.tolist() == [0, 0, 0, 0, 1]


@MODES
@pytest.mark.parametrize("type_", [i32, u32, i64], ids=str)
def test_shift__by_the_width_and_more__is_modulo_the_width(type_: ElementType, mode: str) -> None:
    x = np.array([1, 5, -7 if type_.kind == "int" else 7, 3], type_.np)
    count = np.array([type_.bits + 1, type_.bits, 1, 2 * type_.bits + 2], type_.np)
    given: Any = {"types": (type_, type_)}
    left = result(lambda g, a, b, p: popops.shift_left(g, a, b, prog=p), mode, x, count, **given)
    right = result(lambda g, a, b, p: popops.shift_right_sign_extend(g, a, b, prog=p), mode, x, count, **given)
    assert left.tolist() == [2, 5, int(x[2]) * 2, 12]
    assert right.tolist() == [0, 5, int(x[2]) >> 1, 0]


@MODES
@pytest.mark.parametrize("source", [f32, f16], ids=str)
@INTEGERS
def test_cast__out_of_range_and_nan__saturates(type_: ElementType, source: ElementType, mode: str) -> None:
    limits = np.iinfo(type_.np)
    x = np.array([np.nan, np.inf, -np.inf, 99.7, -3.7], source.np)
    found = result(lambda g, a, p: popops.cast(g, a, type_, prog=p), mode, x, types=(source,))
    assert found.tolist() == [0, limits.max, limits.min, 99, -3 if type_.kind == "int" else 0]
