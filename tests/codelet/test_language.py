from __future__ import annotations

import math

import numpy as np
import pytest
from both_ways import run
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import abele.codelet as language
from abele.codelet import (
    InOut,
    Input,
    MultiVertex,
    Output,
    SupervisorVertex,
    Vector,
    Vertex,
    codelet,
    compile_codelet,
    exp,
    fma,
    interpret,
    log,
    random_u32,
    rint,
    rsqrt,
    sigmoid,
    sqrt,
    tanh,
)
from abele.llvm.random import hash_u32
from abele.numerics import bf16, bool_, f16, f32, i8, i16, i32, i64, u8, u16, u32, u64

FLOATS = hnp.arrays(np.float32, st.integers(0, 150), elements=st.floats(width=32))
SCALE = 3
WEIGHT = 0.25


@codelet
class Saxpy(Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]
    a: f32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] += self.a * self.x[i]


@given(FLOATS, st.floats(width=32))
def test_saxpy__any_floats__same_bits_both_ways(x: np.ndarray, a: float) -> None:
    run(Saxpy, x=x, y=x[::-1], a=a)


def test_saxpy__numbers__as_numpy_within_a_rounding() -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    assert np.allclose(run(Saxpy, x=x, y=y, a=0.1)["y"], 1 + 0.1 * x, rtol=1e-6)


@codelet
class Reductions(Vertex):
    x: Input[Vector[f32]]
    total: Output[f32]
    product: Output[f32]
    largest: Output[f32]
    positive: Output[f32]
    dot: Output[f32]

    def compute(self):
        total = 0.0
        product = 1.0
        largest = -1e30
        positive = 0.0
        dot = 0.0
        for i in range(len(self.x)):
            e = self.x[i]
            total += e
            product *= e
            largest = max(largest, e)
            dot += e * e
            if e > 0:
                positive += e
        self.total = total
        self.product = product
        self.largest = largest
        self.positive = positive
        self.dot = dot


@given(FLOATS)
def test_reductions__any_floats__same_bits_both_ways(x: np.ndarray) -> None:
    run(Reductions, x=x)


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 64, 1000])
def test_reductions__lengths_around_the_lanes__close_to_float64(n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    out = run(Reductions, x=x)
    wide = x.astype(np.float64)
    assert np.isclose(out["total"][0], wide.sum(), atol=1e-4)
    assert np.isclose(out["dot"][0], (wide**2).sum(), rtol=1e-5)
    assert np.isclose(out["positive"][0], wide[wide > 0].sum(), rtol=1e-5)
    assert out["largest"][0] == (x.max() if n else np.float32(-1e30))


def test_reductions__order__is_the_stated_lanes() -> None:
    x = np.random.default_rng(3).standard_normal(32 * 3 + 5).astype(np.float32)
    lanes = np.zeros(32, np.float32)
    for block in x[:96].reshape(3, 32):
        lanes += block
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    total = np.float32(0) + lanes[0]
    for e in x[96:]:
        total += e
    assert run(Reductions, x=x)["total"][0] == total


@codelet
class Backwards(Vertex):
    x: Input[Vector[f32]]
    total: Output[f32]

    def compute(self):
        total = 0.0
        for i in range(len(self.x) - 1, -1, -2):
            total += self.x[i]
        self.total = total


@given(FLOATS)
def test_negative_step__reduction__same_bits_both_ways(x: np.ndarray) -> None:
    run(Backwards, x=x)


@codelet
class HalfSums(Vertex):
    x: Input[Vector[f16]]
    narrow: Output[f16]
    wide: Output[f32]
    scaled: Output[Vector[f16]]

    def compute(self):
        narrow = f16(0.0)
        wide = 0.0
        for i in range(len(self.x)):
            narrow += self.x[i]
            wide += f32(self.x[i])
            self.scaled[i] = self.x[i] * 3 + self.x[i] / 7 - self.x[i]
        self.narrow = narrow
        self.wide = wide


@given(hnp.arrays(np.float16, st.integers(0, 80), elements=st.floats(width=16)))
def test_half__any_values__each_operation_rounds_once_like_numpy(x: np.ndarray) -> None:
    out = run(HalfSums, x=x, narrow=0, wide=0, scaled=np.zeros_like(x))
    with np.errstate(all="ignore"):
        want = x * np.float16(3) + x / np.float16(7) - x
    assert np.array_equal(out["scaled"], want, equal_nan=True)


@codelet
class Brains(Vertex):
    x: Input[Vector[bf16]]
    y: Output[Vector[bf16]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = max(self.x[i] * self.x[i], bf16(0.5)) - exp(-abs(self.x[i]))


@given(hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-50, 50, width=32)))
def test_bfloat__values__same_bits_both_ways(x: np.ndarray) -> None:
    run(Brains, x=x, y=x)


def integer_vertex(kind):
    @codelet
    class Integers(Vertex):
        x: Input[Vector[kind]]
        y: Input[Vector[kind]]
        out: Output[Vector[kind]]

        def compute(self):
            n = len(self.x)
            for i in range(n):
                a = self.x[i]
                b = self.y[i]
                self.out[i] = a // b
                self.out[n + i] = a % b
                self.out[2 * n + i] = a * b + a - b
                self.out[3 * n + i] = (a << b) ^ (a >> b) | (a & ~b)
                self.out[4 * n + i] = min(a, b) if a < b else max(abs(a), -b)
                self.out[5 * n + i] = a // 8 + a % 8 + a // 7 - a % 7 + a**3

    return Integers


@pytest.mark.parametrize("kind", [i8, i16, i32, i64, u8, u16, u32, u64], ids=str)
def test_integers__any_values__same_bits_both_ways(kind) -> None:
    limits = np.iinfo(kind.np)
    rng = np.random.default_rng(5)
    edges = np.array([0, 1, 2, 3, 7, limits.min, limits.max, limits.max - 1], kind.np)
    x, y = (grid.ravel() for grid in np.meshgrid(edges, edges))
    x = np.concatenate([x, rng.integers(limits.min, limits.max, 200, kind.np, endpoint=True)])
    y = np.concatenate([y, rng.integers(limits.min, limits.max, 200, kind.np, endpoint=True) >> kind.np.type(3)])
    out = run(integer_vertex(kind), x=x, y=y, out=np.zeros(6 * len(x)))["out"]
    whole = y != 0
    if kind.kind == "int":
        whole &= ~((y == -1) & (x == limits.min))
    assert np.array_equal(out[: len(x)][whole], x[whole] // y[whole])
    assert np.array_equal(out[len(x) : 2 * len(x)][whole], x[whole] % y[whole])
    assert not out[: len(x)][y == 0].any()


@codelet
class Conversions(Vertex):
    x: Input[Vector[f32]]
    signed: Output[Vector[i32]]
    small: Output[Vector[u8]]
    truth: Output[Vector[bool_]]
    back: Output[Vector[f16]]
    count: Output[i32]

    def compute(self):
        count = 0
        for i in range(len(self.x)):
            self.signed[i] = i32(self.x[i])
            self.small[i] = u8(self.x[i])
            self.truth[i] = self.x[i] > 1 and not (self.x[i] > 100.0 or self.x[i] == 50)
            self.back[i] = f16(i) + f16(self.x[i])
            count += self.x[i] < 0
        self.count = count


@given(FLOATS)
def test_conversions__any_floats__saturate_and_agree(x: np.ndarray) -> None:
    n = len(x)
    out = run(Conversions, x=x, signed=[0] * n, small=[0] * n, truth=[0] * n, back=[0] * n, count=0)
    inside = np.abs(x) < 2**30
    assert np.array_equal(out["signed"][inside], x[inside].astype(np.int32))
    assert not out["signed"][np.isnan(x)].any()
    assert (out["signed"][x > 2.0**31] == 2**31 - 1).all()
    assert out["count"][0] == (x <= -(2.0**-126)).sum()  # denormals count as zero


@codelet
class Control(Vertex):
    x: Input[Vector[i32]]
    out: Output[Vector[i32]]

    def compute(self):
        found = -1
        for i in range(len(self.x)):
            if self.x[i] < 0:
                continue
            if self.x[i] == 42:
                found = i
                break
        self.out[0] = found
        steps = 0
        n = self.x[0] if len(self.x) > 0 else 1
        while True:
            if n <= 1 or steps > 500:
                break
            if n % 2 == 0:
                n //= 2
            else:
                n = 3 * n + 1
            steps += 1
        self.out[1] = steps
        self.out[2] = 1 if 0 < found < 5 else 2
        a, b = 1, 2
        a, b = b, a
        self.out[3] = 10 * a + b
        k = 7
        for k in range(3):  # noqa: B007
            pass
        self.out[4] = k


@given(st.lists(st.integers(-5, 60), max_size=20))
def test_control_flow__any_list__same_both_ways(x: list[int]) -> None:
    out = run(Control, x=x, out=[0] * 5)["out"]
    wanted = next((i for i, v in enumerate(x) if v == 42), -1)
    assert out[0] == wanted
    assert out[3:].tolist() == [21, 2]


@codelet
class Ragged(Vertex):
    rows: Vector[Input[Vector[f32]]]
    out: Vector[Output[Vector[f32]]]
    sums: Output[Vector[f32]]

    def compute(self):
        for r in range(len(self.rows)):
            row = self.rows[r]
            total = 0.0
            for i in range(len(row)):
                total += row[i]
                self.out[r][i] = row[i] * WEIGHT
            self.sums[r] = total


@given(st.lists(st.lists(st.floats(-10, 10, width=32), max_size=40), max_size=6))
def test_rows_of_different_length__sums__same_both_ways(rows: list[list[float]]) -> None:
    out = run(Ragged, rows=rows, out=[[0] * len(r) for r in rows], sums=[0] * len(rows))
    assert np.allclose(out["sums"], [sum(r) for r in rows], atol=1e-4)


@codelet
class Functions(Vertex):
    x: Input[Vector[f32]]
    out: Output[Vector[f32]]

    def compute(self):
        n = len(self.x)
        for i in range(n):
            x = self.x[i]
            self.out[i] = exp(-x) + log(abs(x) + 1) + tanh(x) + sigmoid(x)
            self.out[n + i] = sqrt(abs(x)) * rsqrt(abs(x) + 1.0) + math.floor(x) - math.ceil(x) + rint(x)
            self.out[2 * n + i] = fma(x, x, -x) + abs(x) ** 1.5 + x**2 - x**-1 + np.sin(x) * math.cos(x)
            self.out[3 * n + i] = math.erf(x) + math.pi * round(x) + x / 4


@given(hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(-30, 30, width=32)))
def test_functions__values__same_bits_both_ways(x: np.ndarray) -> None:
    run(Functions, x=x, out=np.zeros(4 * len(x)))


def test_functions__values__as_numpy() -> None:
    x = np.linspace(0.1, 3, 40, dtype=np.float32)
    out = run(Functions, x=x, out=np.zeros(160))["out"]
    wide = x.astype(np.float64)
    assert np.allclose(out[:40], np.exp(-wide) + np.log(wide + 1) + np.tanh(wide) + 1 / (1 + np.exp(-wide)), rtol=1e-6)


@codelet
class Drop(Vertex):
    seed: Input[Vector[u32]]
    y: Output[Vector[u32]]

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = random_u32(self.seed[0], self.seed[1], 9, i + 100)


def test_random_u32__in_a_codelet__is_the_counter_hash() -> None:
    out = run(Drop, seed=[7, 8], y=[0] * 50)["y"]
    assert np.array_equal(out, hash_u32(7, 8, 9, np.arange(50) + 100))
    assert language.hash_u32 is random_u32


def square(x):
    return x * x


def clipped(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value


def total(values, first):
    result = 0.0
    for i in range(first, len(values)):
        result += square(values[i])
    return result


@codelet
class Helped(Vertex):
    x: Input[Vector[f32]]
    out: Output[Vector[f32]]
    whole: Output[i32]

    def scaled(self, i):
        return self.x[i] * SCALE

    def compute(self):
        for i in range(len(self.x)):
            self.out[i] = clipped(self.scaled(i), -1.0, 1.0)
        self.out[0] = total(self.x, 1)
        self.whole = square(3)


@given(hnp.arrays(np.float32, st.integers(1, 50), elements=st.floats(-3, 3, width=32, allow_subnormal=False)))
def test_helpers__by_type_of_their_arguments__same_bits_both_ways(x: np.ndarray) -> None:
    out = run(Helped, x=x, out=np.zeros(len(x)), whole=0)
    assert out["whole"][0] == 9
    assert np.array_equal(out["out"][1:], np.clip(x * np.float32(3), -1, 1)[1:])


@codelet
class Counter(Vertex):
    seen: Input[Vector[i32]]
    total: i32
    history: Vector[i32]

    def compute(self):
        for i in range(len(self.seen)):
            self.total += self.seen[i]
        self.history[1] = self.history[0]
        self.history[0] = self.total


def test_state__written__persists() -> None:
    out = run(Counter, seen=[1, 2, 3], total=10, history=[4, 5])
    assert out["total"][0] == 16
    assert out["history"].tolist() == [16, 4]


@codelet
class Shares(MultiVertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), 6):
            self.y[i] = self.x[i] + worker_id / self.num_workers


def test_multi_vertex__six_workers__share_the_elements() -> None:
    x = np.arange(20, dtype=np.float32)
    want = x + (np.arange(20) % 6).astype(np.float32) / np.float32(6)
    assert np.array_equal(run(Shares, x=x, y=x * 0)["y"], want)


def test_multi_vertex__one_worker_in_debug_mode__does_its_share_only() -> None:
    y = np.full(12, -1, np.float32)
    interpret(Shares.codelet, {"x": np.zeros(12, np.float32), "y": y}, worker=2)
    assert np.flatnonzero(y >= 0).tolist() == [2, 8]


@codelet
class Boss(SupervisorVertex):
    y: Output[i32]

    def compute(self):
        self.y = 5


def test_supervisor_vertex__runs() -> None:
    assert run(Boss, y=0)["y"][0] == 5
    assert Boss.codelet.kind == "supervisor"


def adder(kind):
    @codelet
    class Add(Vertex):
        x: Input[Vector[kind]]
        y: InOut[Vector[kind]]

        def compute(self):
            for i in range(len(self.x)):
                self.y[i] += kind(self.x[i])

    return Add


def test_factory__types_from_the_closure__gives_distinct_codelets() -> None:
    one, two = adder(f32), adder(i16)
    assert [f.type for f in one.codelet.fields] == [f32, f32]
    assert [f.type for f in two.codelet.fields] == [i16, i16]
    assert one.codelet is not two.codelet
    assert run(two, x=[1, 2], y=[3, 4])["y"].tolist() == [4, 6]


def test_factory__same_content__shares_the_code() -> None:
    assert compile_codelet(adder(f16).codelet).run == compile_codelet(adder(f16).codelet).run
    assert compile_codelet(adder(f16).codelet).run != compile_codelet(adder(bf16).codelet).run


def sized(n):
    @codelet
    class Sized(Vertex):
        y: Output[Vector[i32]]

        def compute(self):
            for i in range(n):
                self.y[i] = n

    return Sized


def test_factory__numbers_from_the_closure__are_constants() -> None:
    assert run(sized(2), y=[0, 0, 0])["y"].tolist() == [2, 2, 0]
    assert run(sized(3), y=[0, 0, 0])["y"].tolist() == [3, 3, 3]


def test_denormals__native_and_plain__are_flushed() -> None:
    x = np.array([1e-39, 1e-30], np.float32)
    out = run(Saxpy, x=x, y=[0, 0], a=1e-8)["y"]
    assert out[0] == 0


def test_assert__native_code__ignores_it_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    @codelet
    class Talks(Vertex):
        y: Output[Vector[i32]]

        def compute(self):
            out = self.y
            for i in range(len(out)):
                out[i] = 2 * i
                print("wrote", i, out[i])
                assert out[i] < 100

    run(Talks, y=[0, 0])
    assert capsys.readouterr().out == "wrote 0 0\nwrote 1 2\n"
