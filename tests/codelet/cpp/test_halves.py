"""Halves and vector types: true IEEE binary16, every operation rounded once."""

from __future__ import annotations

import numpy as np

from abele.codelet.cpp import load_codelets
from codelet.cpp.conftest import f32, load, run, zeros

FOUND = load("halves.cpp")
RNG = np.random.default_rng(5)


def halves(n: int) -> np.ndarray:
    return (3 * RNG.standard_normal(n)).astype("f2")


def test_half_arithmetic__rounds_after_every_operation() -> None:
    x, y, scale = halves(500), halves(500), np.float16(1.337)
    done = run(FOUND["HalfSteps"], x=x, y=y, out=zeros(500, "f2"), scale=scale)
    np.testing.assert_array_equal(done["out"], x * scale + y)


def test_half_sum__in_half_and_in_float__differ_as_they_must() -> None:
    x = halves(300)
    done = run(FOUND["HalfSum"], x=x, sum=zeros(1, "f2"), wide=zeros(1))
    narrow, wide = np.float16(0), np.float32(0)
    for value in x:
        narrow, wide = narrow + value, wide + np.float32(value)
    assert done["sum"][0] == narrow
    assert done["wide"][0] == wide


def test_float2__scales_pairs() -> None:
    x = RNG.standard_normal(10).astype("f4")
    done = run(FOUND["Float2Scale"], **{"in": x}, out=zeros(10), n=10, k=3.0)
    np.testing.assert_array_equal(done["out"], x * np.float32(3) + np.tile(f32(1, 2), 5))


def test_half4__with_a_rest__adds() -> None:
    a, b = halves(23), halves(23)
    np.testing.assert_array_equal(run(FOUND["Half4Add"], a=a, b=b, out=zeros(23, "f2"))["out"], a + b)


def test_half2__dot_product__is_summed_in_float() -> None:
    a, b = halves(40), halves(40)
    done = run(FOUND["Half2Dot"], a=a, b=b, out=zeros(1))
    np.testing.assert_allclose(done["out"][0], a.astype("f8") @ b.astype("f8"), rtol=1e-5, atol=1e-5)


def test_misaligned_vectors__are_read_all_the_same() -> None:
    memory = halves(24)
    done = run(FOUND["Half4Add"], a=memory[1:21], b=memory[3:23], out=zeros(20, "f2"))
    np.testing.assert_array_equal(done["out"], memory[1:21] + memory[3:23])


def test_vector_functions__of_float2__are_those_of_numpy() -> None:
    x = (2 * RNG.standard_normal(32)).astype("f4")
    out = run(FOUND["VectorMath"], **{"in": x}, out=[zeros(32) for _ in range(9)])["out"]
    w = x.astype("f8")
    wanted = [
        np.exp(w),
        np.tanh(w),
        1 / (1 + np.exp(-w)),
        np.maximum(w, np.tile([0, 0.5], 16)),
        w * w + w,
        2 * np.abs(w),
        1 / np.sqrt(np.abs(w) + 1),
        np.clip(w, -1, 1),
        np.log(np.sqrt(np.abs(w) + 1)),
    ]
    for got, right in zip(out, wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6, atol=2e-7)


def test_vector_functions__of_half4__round_once() -> None:
    x = halves(32)
    out = run(FOUND["HalfMath"], **{"in": x}, out=[zeros(32, "f2") for _ in range(5)])["out"]
    w = x.astype("f8")
    wanted = [np.exp(w), np.tanh(w), np.maximum(w, np.tile([0, 0, 1, 1], 8)), 2 * np.abs(w), 1 / (1 + np.exp(-w))]
    for got, right in zip(out, wanted, strict=True):
        np.testing.assert_allclose(got, right.astype("f2"), rtol=1e-3)


def test_uchar4__wraps_and_counts_bits() -> None:
    x = RNG.integers(0, 256, 24).astype("u1")
    done = run(FOUND["Bytes"], **{"in": x}, out=zeros(24, "u1"), bits=zeros(1, "u4"))
    np.testing.assert_array_equal(done["out"], x + np.tile(np.array([1, 2, 3, 4], "u1"), 6))
    assert done["bits"][0] == np.unpackbits(x).sum()


def test_limits_of_half__are_those_of_binary16() -> None:
    source = """
    #include <poplar/HalfFloat.hpp>
    #include <poplar/Vertex.hpp>
    class Limits : public poplar::Vertex {
    public:
      poplar::Output<poplar::Vector<half>> out;
      bool compute() {
        using L = std::numeric_limits<half>;
        const half values[] = {L::lowest(), L::max(), L::min(), L::epsilon(), L::denorm_min(), L::infinity()};
        for (unsigned i = 0; i < 6; ++i)
          out[i] = values[i];
        return true;
      }
    };
    """
    info = np.finfo("f2")
    wanted = np.array([info.min, info.max, info.tiny, info.eps, info.smallest_subnormal, np.inf], "f2")
    np.testing.assert_array_equal(run(load_codelets(source)["Limits"], out=zeros(6, "f2"))["out"], wanted)
