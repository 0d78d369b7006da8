"""``double`` is ``float``; ``long`` and ``size_t`` are fields of 32 bits. Oracle: NumPy in float32."""

from __future__ import annotations

import numpy as np
import pytest

from abele import numerics
from abele.codelet import compile_codelet
from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.single import in_single_precision
from codelet.cpp.conftest import f32, load, run, zeros

FOUND = load("doubles.cpp")
RNG = np.random.default_rng(4)


def test_pow_and_sqrt_of_whole_numbers__are_computed_in_float() -> None:
    x = RNG.standard_normal(100).astype("f4")
    done = run(FOUND["Poly"], x=x, n=np.array([7], "i4"))["x"]
    root = np.sqrt(np.float32(7)) / np.float32(3)
    np.testing.assert_array_equal(done, (np.float32(0.1) * x + x * x) - root)


def test_sums_tables_and_limits__are_those_of_float() -> None:
    x = (RNG.standard_normal(50) * 100).astype("f4")
    done = run(FOUND["Sums"], **{"in": x}, out=zeros(8))["out"]
    assert (FOUND["Sums"].fields[0].type, FOUND["Sums"].fields[1].type) == (numerics.f32, numerics.f32)
    total, bins = np.float32(0), zeros(4)
    for i, value in enumerate(x):
        total += value
        bins[i % 4] += value * np.float32([0.1, 0.2, 0.3, 0][i % 4])
    np.testing.assert_array_equal(done, [total, x.min(), *bins, np.finfo("f4").max, total * np.float32(0.7)])


def test_rotation__of_complex_doubles__is_that_of_floats() -> None:
    definition = FOUND["Turn"]
    done = run(definition, out=zeros(4), by=f32(0.9, 0.3), phase=1.0, steps=9)
    re, im = np.float32(1), np.float32(0)
    for _ in range(9):
        re, im = re * f32(0.9)[0] - im * f32(0.3)[0], re * f32(0.3)[0] + im * f32(0.9)[0]
    np.testing.assert_array_equal(done["out"], [re, im, re, im])
    assert [f.type for f in definition.fields if f.name in ("steps", "phase")] == [numerics.u32, numerics.f32]


def test_long_and_size_t__are_32_bits_in_fields() -> None:
    index = np.array([5, 6, 2**31], "u4")
    fields = {"index": index, "first": np.array([7], "u4"), "out": zeros(3, "i4"), "kept": np.array([1, 2, 3], "u4")}
    done = run(FOUND["Whole"], **fields, count=2**32 - 1, down=0)
    np.testing.assert_array_equal(done["out"], (index + 7 + fields["kept"] - 10).astype("u4").view("i4"))
    types = {f.name: f.type for f in FOUND["Whole"].fields}
    assert types == {
        "index": numerics.u32,
        "first": numerics.u32,
        "out": numerics.i32,
        "kept": numerics.u32,
        "count": numerics.u32,
        "down": numerics.i32,
    }


@pytest.mark.parametrize("flip", [False, True])
def test_vectors_of_halves__that_calls_pass_in_64_bits__stay_what_they_are(flip: bool) -> None:
    x = RNG.standard_normal(32).astype("f2")
    done = run(FOUND["Fields"], **{"in": x}, out=zeros(32, "f2"), flip=flip)["out"].reshape(4, 2, 4)
    rows = x.reshape(4, 2, 4)
    np.testing.assert_array_equal(done[:, 0], rows[:, int(flip)])
    np.testing.assert_array_equal(done[:, 1], rows[:, 1])


def test_conversions_and_functions__are_those_of_float() -> None:
    x, y = np.float32(1.3), np.float32(0.4)
    fields = {"whole": zeros(3, "i4"), "flags": zeros(3, "?"), "out": zeros(4)}
    done = run(FOUND["Conversions"], **{"in": f32(x, y)}, **fields)
    assert done["whole"].tolist() == [4, 1, 0]
    assert done["flags"].tolist() == [True, True, True]
    wanted = [
        np.arctan2(y, x),
        np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
        np.fmod(x, np.float32(0.7)),
        y + np.hypot(x, y),
    ]
    np.testing.assert_allclose(done["out"], wanted, rtol=3e-7)


def test_double__costs_what_float_costs() -> None:
    source = """
    #include <poplar/Vertex.hpp>
    template <class T> class Sum : public poplar::Vertex { public:
      poplar::Input<poplar::Vector<float>> x; poplar::Output<float> out;
      bool compute() {
        T bins[4] = {0, 0, 0, 0}, total = 0;
        for (unsigned i = 0; i < x.size(); ++i) { total += T(0.3) * x[i]; bins[i & 3] += total; }
        *out = total + bins[x.size() & 3];
        return true;
      }
    };
    template class Sum<float>;
    template class Sum<double>;
    """
    found = load_codelets(source)
    slots = {k: compile_codelet(v).costs.slots for k, v in found.items()}  # type: ignore[attr-defined]
    assert sum(slots["Sum<double>"].values()) == sum(slots["Sum<float>"].values())
    x = RNG.standard_normal(9).astype("f4")
    single, double = (run(found[f"Sum<{t}>"], x=x, out=zeros(1))["out"] for t in ("float", "double"))
    np.testing.assert_array_equal(single, double)


def test_text__of_a_loop_in_double__becomes_one_in_float() -> None:
    text = """define void @f(ptr %p, double %start) {
entry:
  br label %loop

loop:
  %sum = phi double [ %start, %entry ], [ %next, %loop ]
  %bits = load double, ptr %p, align 8
  %next = fadd fast double %sum, 0x3FB999999999999A
  %over = fcmp ogt double %next, 1.000000e+01
  br i1 %over, label %done, label %loop

done:
  store double %bits, ptr %p, align 8
  ret void
}
"""
    made = in_single_precision(text, lambda _: False)
    assert "  %s.sum = phi float [ %s.start, %entry ], [ %s.next, %loop ]" in made
    assert "  %s.start = fptrunc double %start to float" in made
    assert "  %s.next = fadd fast float %s.sum, 0x3FB99999A0000000" in made
    assert "  %over = fcmp ogt float %s.next, 0x4024000000000000" in made
    assert "  store double %bits, ptr %p, align 8" in made  # moved, not computed with
