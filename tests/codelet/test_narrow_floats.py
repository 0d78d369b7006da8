"""Codelets on narrow floats: 8-bit ones, and results that are rounded at random or held at the largest number."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from both_ways import arrays, run, same_bits

import abele as ab
from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet, compile_codelet, exp, interpret
from abele.codelet.rounding import Rounding
from abele.codelet.tables import build_tables
from abele.numerics import ElementType, bf16, f8_143, f8_152, f16, f32, i32, quarter, to_device, to_host
from abele.numerics.narrow import round_to_nearest

QUARTERS = [f8_143, f8_152, quarter("F143", 3), quarter("F152", -4)]
NARROW = [f16, bf16, f8_143, f8_152]
SEEDED = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


def widen(kind: ElementType) -> type:
    @codelet
    class Widen(Vertex):
        x: Input[Vector[kind]]
        y: Output[Vector[f32]]

        def compute(self):
            for i in range(len(self.x)):
                self.y[i] = f32(self.x[i])

    return Widen


def narrow(kind: ElementType) -> type:
    @codelet
    class Narrow(Vertex):
        x: Input[Vector[f32]]
        y: Output[Vector[kind]]

        def compute(self):
            for i in range(len(self.x)):
                self.y[i] = self.x[i]

    return Narrow


@pytest.mark.parametrize("kind", QUARTERS, ids=str)
def test_quarter__every_code__is_read_as_its_number(kind: ElementType) -> None:
    codes = np.arange(256, dtype=np.uint8).view(kind.np)
    got = run(widen(kind), x=codes, y=np.zeros(256))["y"]
    np.testing.assert_array_equal(got, to_host(codes, kind))


@pytest.mark.parametrize("kind", QUARTERS, ids=str)
def test_quarter__stores__round_to_nearest(kind: ElementType) -> None:
    values = np.random.default_rng(0).normal(0, 40, 400).astype(np.float32)
    got = run(narrow(kind), x=values, y=np.zeros(400, kind.np))["y"]
    np.testing.assert_array_equal(to_host(got, kind), to_host(to_device(values, kind), kind))


@pytest.mark.parametrize("kind", QUARTERS, ids=str)
def test_quarter__in_expressions__is_f16_or_where_scaled_f32(kind: ElementType) -> None:
    @codelet
    class Mixed(Vertex):
        x: InOut[Vector[kind]]
        y: Output[Vector[f32]]
        a: kind

        def compute(self):
            for i in range(len(self.x)):
                self.x[i] = self.x[i] * 0.5 + self.a
                self.y[i] = -self.x[i] if self.x[i] < 1.0 else max(self.x[i], self.a)
            self.a = 2.0

    wide = np.float32 if kind.scale else np.float16
    x = to_device(np.linspace(-7, 7, 32), kind)
    got = run(Mixed, x=x, y=np.zeros(32), a=to_device([1.5], kind))
    a = wide(to_host(to_device([1.5], kind), kind)[0])
    product = to_host(x, kind).astype(wide) * wide(0.5) + a
    want = to_host(to_device(product.astype(np.float32), kind), kind)
    np.testing.assert_array_equal(to_host(got["x"], kind), want)
    np.testing.assert_array_equal(got["y"], np.where(want < 1, -want, np.maximum(want, np.float32(a))))
    assert to_host(got["a"], kind)[0] == 2.0


def test_quarter__copied__keeps_its_bits() -> None:
    @codelet
    class Move(Vertex):
        x: Input[Vector[f8_152]]
        y: Output[Vector[f8_152]]

        def compute(self):
            for i in range(len(self.x)):
                self.y[i] = self.x[i]

    codes = np.arange(256, dtype=np.uint8)
    got = run(Move, x=codes.view(f8_152.np), y=np.zeros(256, f8_152.np))["y"]
    assert got.view(np.uint8).tolist() == codes.tolist()


def test_quarter__through_an_engine__is_written_run_and_read() -> None:
    kind = quarter("F143", 2)

    @codelet
    class Twice(Vertex):
        x: InOut[Vector[kind]]

        def compute(self):
            for i in range(len(self.x)):
                self.x[i] = self.x[i] * 2.0

    graph = ab.Graph("bow")
    x = graph.variable(kind, (4, 8), "x").map_rows(range(4))
    step = graph.compute_set()
    step.vertices(Twice, tile=range(4), x=x)
    engine = ab.Engine(graph, ab.Execute(step))
    values = np.linspace(-100, 100, 32, dtype=np.float32).reshape(4, 8)
    engine["x"] = values
    engine.run()
    want = 2 * to_host(to_device(values, kind), kind)
    np.testing.assert_array_equal(engine["x"], to_host(to_device(want, kind), kind))


# Rounding at random


@codelet
class Many(Vertex):
    """Every way in which a result becomes a narrow float, with branches and accumulators."""

    x: Input[Vector[f16]]
    y: InOut[Vector[f16]]
    z: Output[Vector[bf16]]
    total: Output[f16]
    largest: Output[f16]
    q: Output[Vector[f8_143]]
    n: i32

    def compute(self):
        total = f16(0.0)
        largest = f16(-1.0)
        for i in range(len(self.x)):
            total += self.x[i]
            largest = max(largest, self.x[i])
        self.total = total
        self.largest = largest
        for i in range(len(self.x)):
            a = self.x[i] * self.y[i]
            b = f16(0.3) + a
            self.y[i] = a / b if a + b > self.x[i] and a - b < 1.0 else exp(a)
            self.z[i] = f32(a) * 1.001
            self.q[i] = b * b
        self.y[0] = f32(self.n)


def many(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(count)
    x = rng.random(count, np.float32).astype(np.float16)
    y = rng.random(count, np.float32).astype(np.float16)
    given = {"x": x, "y": y, "z": np.zeros(count, bf16.np), "q": np.zeros(count, f8_143.np), "n": 4099}
    return arrays(Many, given)


def stochastic(cls: type, vertices: list[dict[str, Any]], seed: int, way: Rounding | None = None) -> None:
    code = compile_codelet(cls.codelet)
    address = code.run_stochastic if way is None else code.run_rounded(way)
    table = build_tables(cls.codelet, vertices)
    SEEDED(address)(0, len(vertices), ctypes.addressof(table.pointers), seed)


@pytest.mark.parametrize("count", [1, 31, 32, 100])
@pytest.mark.parametrize("saturate", [False, True])
def test_random_rounding__compiled_and_plain__draw_the_same_numbers(count: int, saturate: bool) -> None:
    native, plain = [many(count) for _ in range(3)], [many(count) for _ in range(3)]
    seed = 0x1234_5678_9ABC_DEF0
    stochastic(Many, native, seed, Rounding(is_random=True, saturates=saturate))
    for vertex, fields in enumerate(plain):
        interpret(Many.codelet, fields, stochastic=seed, vertex=vertex, saturate=saturate)
    for one, two in zip(native, plain, strict=True):
        for name in one:
            assert same_bits(one[name], two[name]), name
    if count == 100:
        assert not same_bits(native[0]["y"], native[1]["y"])


def test_random_rounding__any_split_and_order__gives_the_same_bits() -> None:
    whole, split = [many(40) for _ in range(6)], [many(40) for _ in range(6)]
    stochastic(Many, whole, 7)
    call, table = SEEDED(compile_codelet(Many.codelet).run_stochastic), build_tables(Many.codelet, split)
    for begin, end in ((4, 6), (0, 1), (1, 4)):
        call(begin, end, ctypes.addressof(table.pointers), 7)
    assert all(same_bits(a[n], b[n]) for a, b in zip(whole, split, strict=True) for n in a)


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_random_rounding__many_times__keeps_the_mean(kind: ElementType) -> None:
    count = 1 << 16
    values = np.repeat(np.array([1.03, -0.2871, 3.3e-3, 17.77], np.float32), count)
    fields = {"x": values, "y": np.zeros(len(values), kind.np)}
    stochastic(narrow(kind), [fields], 99)
    got = to_host(fields["y"]).astype(np.float64).reshape(4, count)
    near = to_host(round_to_nearest(values[::count], kind)).astype(np.float64)
    for row, value, nearest in zip(got, values[::count], near, strict=True):
        assert len(np.unique(row)) == 2
        spread = row.max() - row.min()
        assert nearest in row
        assert abs(row.mean() - value) < 5 * spread / 2 / np.sqrt(count)


def test_random_rounding__numbers_that_fit__stay() -> None:
    values = np.arange(-2048, 2048, dtype=np.float32)
    fields = {"x": values, "y": np.zeros(4096, np.float16)}
    stochastic(narrow(f16), [fields], 5)
    np.testing.assert_array_equal(fields["y"], values)


def test_random_rounding__of_workers__draws_for_each() -> None:
    @codelet
    class Spread(MultiVertex):
        y: Output[Vector[f16]]
        x: f32

        def compute(self, worker_id):
            for i in range(worker_id, len(self.y), self_workers):
                self.y[i] = self.x

    native, plain = ({"y": np.zeros(60, np.float16), "x": 1.0003} for _ in range(2))
    stochastic(Spread, [native], 3)
    interpret(Spread.codelet, plain, stochastic=3)
    assert same_bits(native["y"], plain["y"])
    assert len(np.unique(native["y"].reshape(10, 6), axis=1).T) > 1


self_workers = 6


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_saturation__of_numbers_that_are_too_large__holds_them_at_the_largest(kind: ElementType) -> None:
    values = np.array([3.4e38, -3.4e38, np.inf, 1.5, np.nan], np.float32)
    native, plain = ({"x": values, "y": np.zeros(5, kind.np)} for _ in range(2))
    code = compile_codelet(narrow(kind).codelet)
    build_tables(narrow(kind).codelet, [native]).run(code.run_rounded(Rounding(saturates=True)))
    interpret(narrow(kind).codelet, plain, saturate=True)
    assert same_bits(native["y"], plain["y"])
    largest = float(np.finfo(np.float16).max) if kind == f16 else None
    got = to_host(native["y"]).astype(np.float32)
    assert np.isfinite(got[[0, 1, 3]]).all()
    assert np.isnan(got[4])
    assert got[0] == -got[1]
    # Infinity is larger than any f16, and no number to 8-bit floats.
    assert np.isnan(got[2]) if kind.is_quarter else got[2] == got[0]
    if largest is not None:
        assert got[0] == largest
