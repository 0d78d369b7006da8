"""Names of instances of vertex templates."""

from __future__ import annotations

import numpy as np
import pytest

from abele import Engine, Execute, Graph, f32, systems
from abele.codelet.cpp import load_codelets
from codelet.cpp.conftest import run, zeros

SOURCE = """
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <ipudef.h>
using namespace poplar;
namespace ns {
enum class Kind : unsigned char { NONE, SOME = 200 };
enum Plain { LOW = -1, HIGH = 7 };
struct Square {};
template <class T, class U = int> struct Pair {};
template <class... T> struct Pack {};
}
template <class... T> class Types : public Vertex {
public:
  Output<unsigned> size;
  bool compute() { *size = sizeof...(T); return true; }
};
template class Types<float, float2, half4, uchar4>;
template class Types<ns::Pair<ns::Pair<float>>, ns::Pack<>, ns::Pack<half, bool>>;
template class Types<const float, float *, const float *, float[4], long long, unsigned long long>;
template class Types<unsigned, unsigned short, signed char, char, unsigned char, bool>;
template class Types<>;

template <auto... Values> class Numbers : public Vertex {
public:
  Output<int> sum;
  bool compute() { *sum = (0 + ... + int(Values)); return true; }
};
template class Numbers<true, 'a', '\\'', '\\n', 16u, -3, 0x10, 4294967295u, (unsigned char)255>;
template class Numbers<ns::Kind::SOME, ns::LOW, ns::HIGH, (ns::Kind)5>;

template <class T, unsigned Width = 4, bool Fast = false, template <class, class> class Shape = ns::Pair>
class Defaults : public Vertex {
public:
  Output<unsigned> width;
  bool compute() { *width = Fast ? 100 + Width : Width; return true; }
};
template class Defaults<float>;
template class Defaults<float, 8>;
template class Defaults<half, 4, true>;
"""


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    return load_codelets(SOURCE)


@pytest.mark.parametrize(
    "name",
    [
        "Types<float,float2,half4,uchar4>",
        "Types<ns::Pair<ns::Pair<float,int>,int>,ns::Pack<>,ns::Pack<half,bool>>",
        "Types<const float,float*,const float*,float[4],longlong,unsigned longlong>",
        "Types<unsigned, unsigned short int, signed char, char, uint8_t, bool>",
        "Numbers<true,'a','\\'','\\n',16,-3,16,4294967295,255>",
        "Numbers<ns::Kind::SOME,ns::LOW,ns::HIGH,(ns::Kind)5>",
        "Defaults<float,4,false,ns::Pair>",
        "Defaults<half, 4u, true>",
    ],
)
def test_instance__is_known_by_its_arguments(found: dict[str, object], name: str) -> None:
    assert name in found


def test_defaults__may_be_left_out_one_by_one(found: dict[str, object]) -> None:
    whole = found["Defaults<float,4,false,ns::Pair>"]
    for name in ("Defaults<float>", "Defaults<float, 4>", "Defaults<float,4u,false>"):
        assert found[name] is whole
    assert found["Defaults<float,8>"] is not whole
    assert run(found["Defaults<half,4,true>"], width=zeros(1, "u4"))["width"] == 104
    assert run(found["Defaults<float,8>"], width=zeros(1, "u4"))["width"] == 8


def test_template_without_arguments__is_known_with_and_without_brackets(found: dict[str, object]) -> None:
    assert run(found["Types<>"], size=zeros(1, "u4"))["size"] == 0
    assert found["Types"] is found["Types<>"]


def test_vertex__by_another_spelling__is_added_to_a_graph() -> None:
    graph = Graph(systems.get("bow-2000:1"))
    graph.addCodelets(
        "#include <poplar/Vertex.hpp>\n#include <ipudef.h>\n"
        "template <class T, class V, unsigned N> class Init : public poplar::Vertex {\n"
        "public: poplar::Output<poplar::Vector<T>> out;\n"
        "bool compute() { for (auto &v : out) v = N * sizeof(V); return true; } };\n"
        "template class Init<float, float2, 3>;\n"
    )
    out = graph.variable(f32, (4,), name="out").map(0)
    step = graph.compute_set("step")
    step.vertex("Init< float , float2 , 3u >", tile=0)["out"] = out
    engine = Engine(graph, Execute(step))
    engine.run()
    np.testing.assert_array_equal(engine["out"], [24] * 4)
