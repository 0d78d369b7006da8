"""A file loads what it can; whoever asks for the rest is told why, with file and line."""

from __future__ import annotations

import numpy as np
import pytest

from abele import f32
from abele.codelet.cpp import load_codelets
from abele.errors import CodeletError, CodeletLinkError, CodeletParseError, SymbolError
from abele.graph import Graph
from codelet.cpp.conftest import Lazily, run, zeros

SOURCE = """#include <poplar/Vertex.hpp>
#include <ipu_builtins.h>
#include <cstddef>
using namespace poplar;
template <class T> static T launched(T x) { return __builtin_ipu_not_anywhere(x, 0); }
static float twice(float x) { return 2 * x; }
class Good : public Vertex { public: InOut<float> x; bool compute() { x = twice(x); return true; } };
class Builtin : public Vertex { public: InOut<float> x; bool compute() {
  *x = __builtin_ipu_f32sisoslic(*x, 1); return true; } };
class ByHelper : public Vertex { public: InOut<float> x; bool compute() { *x = launched(*x); return true; } };
class Typo : public Vertex { public: InOut<float> x;
  bool compute() { *x = undefined_name; return true; } };
class BadField : public MultiVertex { public: Input<Vector<no_such_type>> x;
  bool compute(unsigned w) { return x.size() > w; } };
class Array : public Vertex { public: float a[4]; Output<float> x; bool compute() { *x = a[0]; return true; } };
class Heap : public Vertex { public: InOut<float> x; unsigned n;
  bool compute() { float *v = new float[n]; v[n / 2] = *x; *x = v[0] + v[n / 2]; return true; } };
class Silent : public Vertex { public: InOut<float> x; };
class Tries : public Vertex { public: InOut<float> x; bool compute() { try { *x = 3; } catch (int) {} return true; } };
template <class T> class Kinds : public Vertex { public: InOut<T> x;
  bool compute() { *x = launched(*x); return true; } };
template class Kinds<float>;
template <class T> class Fine : public Vertex { public: InOut<T> x; bool compute() { *x = *x * *x; return true; } };
template class Fine<float>;
"""
REASONS = {
    "Builtin": (CodeletError, 9, "__builtin_ipu_f32sisoslic runs on the hardware only"),
    "ByHelper": (CodeletError, 5, "__builtin_ipu_not_anywhere runs on the hardware only"),
    "Typo": (CodeletParseError, 12, "use of undeclared identifier 'undefined_name'"),
    "BadField": (CodeletParseError, 13, "use of undeclared identifier 'no_such_type'"),
    "Array": (CodeletError, 15, "field Array.a is an array"),
    "Heap": (CodeletLinkError, 17, "Heap allocates memory"),
    "Silent": (SymbolError, 18, "vertex Silent has no compute()"),
    "Tries": (CodeletParseError, 19, "cannot use 'try' with exceptions disabled"),
    "Kinds<float>": (CodeletError, 5, "__builtin_ipu_not_anywhere runs on the hardware only"),
}
FOUND = Lazily(SOURCE)


def test_file_with_classes_that_cannot_be_had__loads_the_others() -> None:
    assert set(FOUND) == {"Good", "Fine<float>"}
    assert set(FOUND.refused) == set(REASONS)


@pytest.mark.parametrize("name", list(REASONS))
def test_class_that_cannot_be_had__says_why__when_a_vertex_of_it_is_added(name: str) -> None:
    kind, line, message = REASONS[name]
    graph = Graph("bow-2000:1")
    graph.codelets.add(FOUND)
    step = graph.compute_set("step")
    x = graph.variable(f32, (1,), name="x").map(0)
    step.vertex("Good", tile=0, x=x[0])
    with pytest.raises(kind) as caught:
        step.vertex(name, tile=0, x=x[0])
    assert caught.value.message == message
    assert (caught.value.at or "").endswith(f"codelet.cpp:{line}")


def test_file_of_which_nothing_can_be_had__raises_the_first_reason() -> None:
    start, end = SOURCE.index("class Typo"), SOURCE.index("class BadField")
    with pytest.raises(CodeletParseError, match="undefined_name"):
        load_codelets(SOURCE[: SOURCE.index("template")] + SOURCE[start:end])


def test_error_outside_all_classes__is_the_files() -> None:
    with pytest.raises(CodeletParseError) as caught:
        load_codelets(SOURCE.replace("static float twice(float x)", "static float twice(flaot x)"))
    assert "unknown type name 'flaot'" in caught.value.message
    assert (caught.value.at or "").endswith("codelet.cpp:6")


def test_constants__whose_values_are_computed__have_them() -> None:
    source = """#include <poplar/Vertex.hpp>
    #include <cmath>
    using namespace poplar;
    const double PI = 3.14159265358979323846, ROOT = sqrt(PI);
    static const float SUM = std::sqrt(4.0f) + PI;
    struct Squares { float v[4]; Squares() { for (int i = 0; i < 4; ++i) v[i] = i * i + 1; } };
    static const Squares SQUARES;
    static float read() { volatile float x = 3; return x; }
    static const float LATE = read();
    static int count = int(SUM);
    class Known : public Vertex { public: Output<Vector<float>> o; unsigned k;
      bool compute() { o[0] = ROOT, o[1] = SUM, o[2] = SQUARES.v[k]; return true; } };
    class Late : public Vertex { public: Output<float> o; bool compute() { *o = LATE; return true; } };
    class Counts : public Vertex { public: Output<float> o; bool compute() { *o = ++count; return true; } };
    """
    found = load_codelets(source)
    done = run(found["Known"], o=zeros(3), k=2)["o"]
    np.testing.assert_array_equal(done, np.float32([np.sqrt(np.pi), 2 + np.pi, 5]))
    assert set(found.refused) == {"Late", "Counts"}
    with pytest.raises(CodeletError, match="Late keeps data outside the vertex"):
        _ = found["Late"]
