"""Headers that codelet files include, and what they bring."""

from __future__ import annotations

import numpy as np
import pytest

from abele import numerics
from abele.codelet.cpp import load_codelets
from abele.errors import CodeletLoadError, CodeletParseError
from codelet.cpp.conftest import f32, load, run, zeros

FOUND = load("headers.cpp")


def test_program_in_one_file__loads_its_codelets() -> None:
    kinds = "Kinds<popops::expr::BinaryOpType::MULTIPLY,popnn::NonLinearityType::TANH,popops::Operation::MAX>"
    assert set(FOUND) == {"Lengths", "Supervised", "AllWorkers", "ToQuarter", "Bits", kinds}
    assert run(FOUND[kinds], out=zeros(1, "u4"))["out"][0] == 17 + 300 + 30000


def test_float2_of_its_own__is_what_the_program_says__and_inputs_are_cast() -> None:
    xy = f32(3, 4, 5, 12, 0, 0)
    np.testing.assert_array_equal(run(FOUND["Lengths"], xy=xy, out=zeros(3))["out"], [5, 13, 0])


def test_supervisor_vertex_if__without_assembly__is_a_vertex() -> None:
    x = f32(-3, 0, 2)
    assert FOUND["Supervised"].kind == "vertex"
    done = run(FOUND["Supervised"], **{"in": x}, out=zeros(3))["out"]
    np.testing.assert_allclose(done, np.logaddexp(x, 0), rtol=1e-6)


def test_codelet_with_assembly_of_its_own__runs_its_body_in_cpp() -> None:
    source = """
    #include <poplar/Vertex.hpp>
    #include <poplibs_support/ExternalCodelet.hpp>
    template <class T> class Add : public poplar::Vertex { public: poplar::InOut<T> x; IS_EXTERNAL_CODELET(true);
      bool compute() { x += 1; return true; } };
    template class Add<float>;
    """
    assert run(load_codelets(source)["Add<float>"], x=f32(1))["x"][0] == 2


def test_multi_vertex__shares_its_elements() -> None:
    done = run(FOUND["AllWorkers"], x=zeros(17, "i4"))["x"]
    np.testing.assert_array_equal(done, np.arange(17) // 3)


@pytest.mark.parametrize("scale", [-5, 0, 3])
@pytest.mark.parametrize("format", ["F143", "F152"])
def test_quarter__is_rounded_as_numpy_rounds_it(format: str, scale: int) -> None:
    type_ = numerics.quarter(format, scale)
    codes = np.arange(256, dtype=np.uint8).view(type_.np).astype(np.float32) * np.float32(2.0**scale)
    powers = np.repeat(2.0 ** np.arange(-25, 25), 10)
    random = (np.random.default_rng(3).standard_normal(500) * powers).astype("f4")
    x = np.concatenate([codes, random, f32(np.inf, -np.inf, np.nan, 0.75, 0.25)])
    fields = {"in": x, "bits": zeros(x.size, "u1"), "back": zeros(x.size)}
    done = run(FOUND["ToQuarter"], **fields, format=format == "F152", scale=scale)
    wanted = numerics.narrow.round_to_nearest(x, type_)
    np.testing.assert_array_equal(done["bits"], wanted.view(np.uint8))
    np.testing.assert_array_equal(done["back"], wanted.astype(np.float32) * np.float32(2.0**scale))


def test_ieee_half__is_made_of_its_bits() -> None:
    x = np.array([1.5, -2, 65504, 6e-8], np.float16)
    np.testing.assert_array_equal(run(FOUND["Bits"], bits=x.view("u2"), out=zeros(4))["out"], x.astype("f4"))


def test_vector_types__without_their_header__are_brought() -> None:
    source = """
    #include <poplar/Vertex.hpp>
    class Twice : public poplar::Vertex {
    public:
      poplar::InOut<poplar::Vector<float, poplar::VectorLayout::SPAN, 8>> x;
      bool compute() {
        float2 *p = reinterpret_cast<float2 *>(&x[0]);
        for (unsigned i = 0; i < x.size() / 2; ++i)
          p[i] += p[i];
        return true;
      }
    };
    """
    np.testing.assert_array_equal(run(load_codelets(source)["Twice"], x=f32(1, 2, 3, 4))["x"], [2, 4, 6, 8])


def test_header_of_a_host_library__that_is_used_in_a_codelet__is_an_error_with_its_line() -> None:
    source = """#include <poplar/Vertex.hpp>
    #include <popsparse/Matmul.hpp>
    class X : public poplar::Vertex { public: poplar::Output<int> x;
      bool compute() { *x = popsparse::secret(); return true; } };
    """
    with pytest.raises(CodeletParseError) as caught:
        load_codelets(source)
    assert "popsparse" in caught.value.message
    assert (caught.value.at or "").endswith("codelet.cpp:4")


def test_header_of_boost__that_is_not_here__says_which_are() -> None:
    with pytest.raises(CodeletLoadError) as caught:
        load_codelets("#include <poplar/Vertex.hpp>\n#include <boost/spirit.hpp>\n")
    assert caught.value.message == "header 'boost/spirit.hpp' was not found"
    assert "multi_array" in (caught.value.because or "")
