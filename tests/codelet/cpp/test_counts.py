"""Issue slots: C++ codelets are counted as their Python twins are, and as silicon measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele import codelet as made_codelet
from abele import f32, u32
from abele.codelet import (
    CodeletDef,
    InOut,
    Input,
    MultiVertex,
    Output,
    Vector,
    Vertex,
    compile_codelet,
    exp,
    random_u32,
)
from abele.codelet.cpp import load_codelets
from abele.codelet.tables import build_tables
from codelet.cpp.conftest import load, zeros

CPP = load("twins.cpp")
RNG = np.random.default_rng(1)


@made_codelet
class Saxpy(Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]
    a: f32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] += self.a * self.x[i]


@made_codelet
class Dot(Vertex):
    x: Input[Vector[f32]]
    y: Input[Vector[f32]]
    out: Output[f32]

    def compute(self):
        total = f32(0)
        for i in range(len(self.x)):
            total += self.x[i] * self.y[i]
        self.out = total


@made_codelet
class Stencil(Vertex):
    data: Input[Vector[f32]]
    out: Output[Vector[f32]]
    width: u32

    def compute(self):
        for i in range(self.width, len(self.data) - self.width):
            self.out[i] = 0.25 * (
                self.data[i - 1] + self.data[i + 1] + self.data[i - self.width] + self.data[i + self.width]
            )


@made_codelet
class Pi(Vertex):
    hits: Output[u32]
    iterations: u32

    def compute(self):
        count = u32(0)
        for i in range(self.iterations):
            x = f32(random_u32(1, 2, 3, i)) * f32(2.0**-32)
            y = f32(random_u32(1, 2, 4, i)) * f32(2.0**-32)
            if x * x + y * y < 1.0:
                count += 1
        self.hits = count


@made_codelet
class Softmax(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        largest = self.x[0]
        for i in range(1, len(self.x)):
            largest = max(largest, self.x[i])
        total = f32(0)
        for i in range(len(self.x)):
            e = exp(self.x[i] - largest)
            self.y[i] = e
            total += e
        scale = 1.0 / total
        for i in range(len(self.x)):
            self.y[i] = self.y[i] * scale


@made_codelet
class Rotate(Vertex):
    x: Vector[Input[Vector[f32]]]
    y: Vector[Output[Vector[f32]]]
    c: f32
    s: f32

    def compute(self):
        for r in range(len(self.x)):
            for i in range(0, len(self.x[r]) - 1, 2):
                self.y[r][i] = self.c * self.x[r][i] - self.s * self.x[r][i + 1]
                self.y[r][i + 1] = self.s * self.x[r][i] + self.c * self.x[r][i + 1]


@made_codelet
class Shared(MultiVertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), 6):
            self.y[i] = self.x[i] * 2.0


def random(n: int = 600) -> np.ndarray:
    return RNG.standard_normal(n).astype("f4")


FIELDS: dict[type, dict[str, Any]] = {
    Saxpy: {"x": random(), "y": random(), "a": 2.0},
    Dot: {"x": random(), "y": random(), "out": zeros(1)},
    Stencil: {"data": random(), "out": random(), "width": 20},
    Pi: {"hits": zeros(1, "u4"), "iterations": 1000},
    Softmax: {"x": random(), "y": random()},
    Rotate: {"x": [random() for _ in range(4)], "y": [random() for _ in range(4)], "c": 0.6, "s": 0.8},
    Shared: {"x": random(), "y": random()},
}


def counted(definition: CodeletDef, fields: dict[str, Any]) -> int:
    return int(build_tables(definition, [fields]).count(compile_codelet(definition).run_counted)[0])


@pytest.mark.parametrize("twin", FIELDS, ids=lambda c: c.__name__)
def test_twins__in_python_and_cpp__cost_alike(twin: Any) -> None:
    python, cpp = counted(twin.codelet, FIELDS[twin]), counted(CPP[twin.__name__], FIELDS[twin])
    assert 0.75 * python <= cpp <= 1.25 * python


def test_products_and_sums__are_rounded_one_by_one() -> None:
    x, c, s = random(), np.float32(0.6), np.float32(0.8)
    fields = {"x": [x], "y": [zeros(600)], "c": c, "s": s}
    build_tables(CPP["Rotate"], [fields]).run(compile_codelet(CPP["Rotate"]).run)
    np.testing.assert_array_equal(fields["y"][0][::2], c * x[::2] - s * x[1::2])
    np.testing.assert_array_equal(fields["y"][0][1::2], s * x[::2] + c * x[1::2])


def test_pi__an_iteration__takes_what_silicon_took() -> None:
    """Source: machine reference §1.2: 90.0 cycles an iteration, 15 issue slots of one of six workers."""
    one, two = (counted(CPP["Pi"], {"hits": zeros(1, "u4"), "iterations": n}) for n in (1000, 2000))
    assert (two - one) / 1000 == 15


def test_triad__written_as_in_stream__takes_six_slots() -> None:
    """Source: machine reference §7.1: 6.3 slots per element of the naive STREAM triad, entry and launch included."""
    source = """
    #include <poplar/Vertex.hpp>
    using namespace poplar;
    class Triad : public Vertex {
    public:
      Output<Vector<float>> a;
      Input<Vector<float>> b;
      Input<Vector<float>> c;
      float scalar;
      bool compute() {
        for (unsigned i = 0; i < a.size(); i++)
          a[i] = b[i] + scalar * c[i];
        return true;
      }
    };
    """
    triad = load_codelets(source)["Triad"]
    one, two = (counted(triad, {"a": zeros(n), "b": zeros(n), "c": zeros(n), "scalar": 1}) for n in (500, 1500))
    assert (two - one) / 1000 == 6


def test_vector_types__cost_one_instruction_for_64_bits() -> None:
    halves = load("halves.cpp")
    pairs = halves["Float2Scale"]
    one, two = (counted(pairs, {"in": zeros(n), "out": zeros(n), "n": n, "k": 1}) for n in (200, 1200))
    assert (two - one) / 1000 == 3.5  # 500 turns of load, two constants, product, sum, store, branch
    quads = halves["Half4Add"]
    fields = [{k: zeros(n, "f2") for k in ("a", "b", "out")} for n in (400, 4400)]
    one, two = (counted(quads, f) for f in fields)
    assert (two - one) / 1000 == 5  # two loads, sum, store and branch; loads and stores step their addresses


def test_slots__grow_with_what_is_done__and_not_with_data() -> None:
    definition = CPP["Dot"]
    compiled = compile_codelet(definition)
    assert not compiled.data_dependent
    sizes = [0, 1, 10, 100, 1000]
    vertices = [{"x": zeros(n), "y": zeros(n), "out": zeros(1)} for n in sizes]
    slots = build_tables(definition, vertices).count(compiled.slots or 0)
    assert (np.diff(slots) > 0).all()
    assert compiled.code_bytes % 4 == 0
    assert 20 < compiled.code_bytes < 200


def test_loops_that_copy__count_their_iterations() -> None:
    casts = load("templates.cpp")["Cast<bool,unsigned char>"]
    one, two = (counted(casts, {"in": zeros(n, "?"), "out": zeros(n, "u1")}) for n in (100, 1100))
    assert (two - one) / 1000 >= 6  # a store of 8 bits takes four


def test_memcpy__costs_a_slot_for_8_bytes() -> None:
    copy = load("wild.cpp")["popops::CopyBytes"]
    one, two = (counted(copy, {"src": zeros(n, "u1"), "dst": zeros(n, "u1")}) for n in (800, 8800))
    assert (two - one) == 1000
