"""Division by zero, shifts by too much and conversions out of range: C++ codelets give what Python codelets give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele import Input, Output, Vector, Vertex, codelet, numerics
from abele.codelet import compile_codelet
from abele.codelet.cpp import load_codelets
from abele.codelet.slots import DIVIDE, REMAINDER
from abele.codelet.tables import build_tables
from abele.numerics import ElementType, f32, i8, i16, i32, i64, u8, u16, u32, u64
from codelet import both_ways
from codelet.cpp.conftest import load, run

NAMES = {
    i8: "signed char",
    u8: "unsigned char",
    i16: "short",
    u16: "unsigned short",
    i32: "int",
    u32: "unsigned int",
    i64: "longlong",
    u64: "unsigned longlong",
}
TYPES = pytest.mark.parametrize("type_", NAMES, ids=[t.name for t in NAMES])


def dividing(T: ElementType) -> Any:
    @codelet
    class Divide(Vertex):
        x: Input[Vector[T]]  # type: ignore[valid-type]
        y: Input[Vector[T]]  # type: ignore[valid-type]
        quotient: Output[Vector[T]]  # type: ignore[valid-type]
        rest: Output[Vector[T]]  # type: ignore[valid-type]

        def compute(self) -> None:
            for i in range(len(self.x)):
                self.quotient[i] = self.x[i] // self.y[i]
                self.rest[i] = self.x[i] % self.y[i]

    return Divide


def converting(T: ElementType) -> Any:
    @codelet
    class Convert(Vertex):
        x: Input[Vector[f32]]
        out: Output[Vector[T]]  # type: ignore[valid-type]

        def compute(self) -> None:
            for i in range(len(self.x)):
                self.out[i] = T(self.x[i])

    return Convert


def shifting(T: ElementType) -> Any:
    @codelet
    class Shift(Vertex):
        x: Input[Vector[T]]  # type: ignore[valid-type]
        count: Input[Vector[T]]  # type: ignore[valid-type]
        left: Output[Vector[T]]  # type: ignore[valid-type]
        right: Output[Vector[T]]  # type: ignore[valid-type]

        def compute(self) -> None:
            for i in range(len(self.x)):
                self.left[i] = self.x[i] << self.count[i]
                self.right[i] = self.x[i] >> self.count[i]

    return Shift


@TYPES
def test_division__by_zero_and_of_the_lowest_number__gives_what_python_codelets_give(type_: ElementType) -> None:
    limits = np.iinfo(type_.np)
    x = np.array([5, 0, limits.max, limits.min, limits.min, limits.max, 12], type_.np)
    y = np.array([0, 0, 0, limits.max if type_.kind == "uint" else -1, 0, 1, 4], type_.np)
    empty = np.zeros_like(x)
    cpp = run(
        load("defined.cpp")[f"Divide<{NAMES[type_]}>"],
        x=x, y=y, quotient=empty, rest=empty, zeros=np.zeros(1, "u4"),
    )  # fmt: skip
    python = both_ways.run(dividing(type_), x=x, y=y, quotient=empty, rest=empty)
    np.testing.assert_array_equal(cpp["quotient"], python["quotient"])
    np.testing.assert_array_equal(cpp["rest"], python["rest"])
    assert cpp["quotient"].tolist() == [0, 0, 0, limits.min, 0, limits.max, 3]
    assert not cpp["rest"].any()
    assert cpp["zeros"].tolist() == [4]


def test_division__of_vector_types__is_defined_in_every_lane() -> None:
    x, y = np.array([5, -(2**31), 7, -9], "i4"), np.array([0, -1, 2, -2], "i4")
    found = run(load("defined.cpp")["DivideVectors"], x=x, y=y, out=np.zeros(8, "i4"))
    assert found["out"].tolist() == [0, -(2**31), 3, 4, 0, 0, 1, -1]


def test_division__by_constants__is_defined_and_folded() -> None:
    definition = load("defined.cpp")["DivideByConstants"]
    found = run(definition, x=np.array([50], "i4"), out=np.ones(6, "i4"))
    assert found["out"].tolist() == [0, 0, 0, 2, 2**31 - 1, 0]


def test_division__by_the_worker__does_not_end_the_process() -> None:
    found = run(load("defined.cpp")["DivideByWorker"], x=np.zeros(6, "i4"))
    assert found["x"].tolist() == [0, 100, 50, 34, 25, 20]


def test_division__costs__as_the_model_says() -> None:
    text = """#include <poplar/Vertex.hpp>
    struct D : poplar::Vertex {
      poplar::Input<int> x, y; poplar::Output<int> z; bool compute() { *z = *x OP *y; return true; }
    };
    """
    counts = {}
    for op in "+/%":
        definition = load_codelets(text.replace("OP", op))["D"]
        tables = build_tables(definition, [{n: np.ones(1, "i4") for n in "xyz"}])
        counts[op] = int(tables.count(compile_codelet(definition).run_counted)[0])
    assert counts["/"] - counts["+"] == DIVIDE.main - 1
    assert counts["%"] - counts["+"] == REMAINDER.main - 1


@TYPES
def test_conversion__out_of_range_and_nan__saturates_as_python_codelets_do(type_: ElementType) -> None:
    limits = np.iinfo(type_.np)
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 300.7, -3.7, -0.5], "f4")
    empty = np.zeros(len(x), type_.np)
    cpp = run(load("defined.cpp")[f"Convert<{NAMES[type_]}>"], x=x, out=empty)
    python = both_ways.run(converting(type_), x=x, out=empty)
    np.testing.assert_array_equal(cpp["out"], python["out"])
    assert cpp["out"].tolist()[:5] == [0, limits.max, limits.min, limits.max, limits.min]


@pytest.mark.parametrize("type_", [i32, u32, i64], ids=["i32", "u32", "i64"])
def test_shift__by_the_width_and_more__is_modulo_the_width(type_: ElementType) -> None:
    x = np.array([1, 5, 100, 7], type_.np)
    count = np.array([type_.bits + 1, type_.bits, 2, 0], type_.np)
    empty = np.zeros(4, type_.np)
    cpp = run(load("defined.cpp")[f"Shift<{NAMES[type_]}>"], x=x, count=count, left=empty, right=empty)
    python = both_ways.run(shifting(type_), x=x, count=count, left=empty, right=empty)
    for name, wanted in (("left", [2, 5, 400, 7]), ("right", [0, 5, 25, 7])):
        assert cpp[name].tolist() == wanted == python[name].tolist()


def test_numerics__all_integers__are_tested() -> None:
    assert {t for t in vars(numerics).values() if isinstance(t, ElementType) and t.kind in ("int", "uint")} == set(
        NAMES
    )
