"""Classes, names and fields of odd but valid C++."""

from __future__ import annotations

import json

import pytest

from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.loading import CppCodelets
from abele.errors import CodeletError, SymbolError
from codelet.cpp.conftest import FILES, f32, load, run, zeros

Y = "y: out f32"
CLASSES = {
    "outer::inner::Stage::Nested": [Y],
    "outer::inner::Stage::Each<half>": ["y: out f16"],
    "outer::inner::Inlined": [Y],
    "Unnamed<int>": ["y: out i32"],
    "one::Same<float>": [Y],
    "two::Same<true,16,'<'>": ["y: out i32"],
    "two::Same<false,-1,'\"'>": ["y: out i32"],
    "two::Same<false,7,','>": ["y: out i32"],
    "Applied<&square,&table>": [Y],
    "Applied<&square,nullptr>": [Y],
    "Listed<void,int(float),int Tag::*,Tag&,decltype(nullptr)>": ["y: out u32"],
    "Listed": ["y: out u32"],
    "Defaulted<Listed,half,outer::inner::Mode::On>": ["y: out f16"],
    "Fields": [
        "n: state u16",
        "s: state f32",
        "x: in f32 vector ('SPAN',) 8",
        "y: out f16 vector ('SPAN',)",
        "mode: state u8",
        "sign: const i16",
        "modes: in u8 vector ('SPAN',)",
        "factor: const f32",
        "rows: in i32 rows ('SPAN', 'SPAN')",
    ],
    "Größe": ["länge: in f32", "maß_2: out f32"],
    "$3D_x7": ["$y: out f32", "y2z: out f32"],
    "longlongs<longlong>": ["longlong: out i64"],
    "OfBase": ["longlong: out i64"],
    "Inherited<short>": ["longlong: out i16"],
    "SumF": ["in: in f32 vector ('SPAN',)", "out: out f32"],
    "SumI": ["in: in i32 vector ('SPAN',)", "out: out i32"],
    "Trailing": [Y],
    "Outside": [Y],
    "Overloaded": ["y: out i32"],
}
"""Classes that can be had, with their fields."""
REFUSED = {
    "WithStruct": (CodeletError, r"field WithStruct\.\(unnamed\) is a struct without a name"),
    "WithUnion": (CodeletError, r"field WithUnion\.\(unnamed\) is a union without a name"),
    "WithArray": (CodeletError, r"field WithArray\.a is an array\n.*\n.*use a Vector"),
    "WithBits": (CodeletError, "field WithBits.low is a bit field"),
    "WithClass": (CodeletError, "field WithClass.inside is of type Scaled"),
    "Virtually": (CodeletError, r"Virtually has the virtual base class Scaled\n(.*\n)*.*without virtual"),
    "NoCompute": (SymbolError, r"vertex NoCompute has no compute\(\)"),
}


@pytest.fixture(scope="module")
def found() -> CppCodelets:
    return load_codelets(FILES / "reflected.cpp")


def described(codelets: CppCodelets, name: str) -> list[str]:
    vertex = next(v for v in codelets.unit.vertices if v.name == name)
    lines = []
    for m in vertex.members:
        direction = "const" if m.const and m.direction == "state" else m.direction
        shape = "" if m.shape == "scalar" else f" {m.shape} {m.layouts}"
        aligned = f" {m.alignment}" if m.alignment > m.element.bytes else ""
        lines.append(f"{m.name}: {direction} {m.type}{shape}{aligned}")
    return lines


def test_classes__of_odd_cpp__are_those_that_can_be_named_and_run(found: CppCodelets) -> None:
    assert sorted(v.name for v in found.unit.vertices if not v.refusal) == sorted(CLASSES)
    assert sorted(v.name for v in found.unit.vertices if v.refusal) == sorted(REFUSED)


@pytest.mark.parametrize("name", CLASSES)
def test_fields__of_odd_cpp__are_read_as_declared(found: CppCodelets, name: str) -> None:
    assert described(found, name) == CLASSES[name]


@pytest.mark.parametrize("name", REFUSED)
def test_class__with_a_field_that_no_vertex_has__says_which(found: CppCodelets, name: str) -> None:
    kind, text = REFUSED[name]
    with pytest.raises(kind, match=text) as caught:
        found[name]
    assert "reflected.cpp:" in (caught.value.at or "")


def test_arguments__that_have_defaults__may_be_left_out(found: CppCodelets) -> None:
    whole = found["Defaulted<Listed,half,outer::inner::Mode::On>"]
    assert found["Defaulted<Listed, half>"] is found["Defaulted<Listed>"] is whole


def test_names__beyond_ascii__run(found: CppCodelets) -> None:
    assert run(found["Größe"], länge=f32(2.5), maß_2=zeros(1))["maß_2"][0] == 2.5


def test_symbols__beyond_ascii__are_found_in_code() -> None:
    text = """
#include <poplar/Vertex.hpp>
#include <cmath>
using namespace poplar;
static const float µ = std::sqrt(6.25f);
static const float küçük[] = {1, 10};
__attribute__((noinline)) static float äh(float x) { return x * µ; }
namespace größen {
struct Größe : Vertex {
  Input<Vector<float>> länge;
  Output<Vector<float>> ö;
  bool compute() {
    for (unsigned é = 0; é != länge.size(); ++é) ö[é] = äh(länge[é]) + küçük[é];
    return true;
  }
};
}
"""
    made = run(load_codelets(text)["größen::Größe"], länge=f32(1, 2), ö=zeros(2))
    assert made["ö"].tolist() == [3.5, 15.0]


def test_arguments__that_are_functions_and_tables__are_used(found: CppCodelets) -> None:
    assert run(found["Applied<&square,&table>"], y=zeros(1))["y"][0] == 4
    assert run(found["Applied<&square,nullptr>"], y=zeros(1))["y"][0] == 9


def test_compute__of_several__is_the_one_of_the_kind(found: CppCodelets) -> None:
    definition = found["Overloaded"]
    assert definition.kind == "multi"
    assert run(definition, y=zeros(1, "i4"))["y"][0] == 9


def test_compute__inherited_with_types_that_poplar_names_otherwise__runs(found: CppCodelets) -> None:
    for name in ("OfBase", "longlongs<long long>"):
        assert run(found[name], longlong=zeros(1, "i8"))["longlong"][0] == 8


def test_strings__that_mention_compute__stay_as_they_are() -> None:
    text = """
#include <poplar/Vertex.hpp>
#define COMPUTE bool compute()
static const char TEXT[] = "bool compute(7)"; // bool compute(
struct V : poplar::Vertex {
  poplar::Output<int> length, last;
  COMPUTE { *length = sizeof(TEXT) - 1; *last = TEXT[*length - 2]; return true; }
};
"""
    made = run(load_codelets(text)["V"], length=zeros(1, "i4"), last=zeros(1, "i4"))
    assert (made["length"][0], chr(made["last"][0])) == (len("bool compute(7)"), "7")


def test_records__of_classes__come_back_from_disk_as_they_were(found: CppCodelets) -> None:
    again = load_codelets(FILES / "reflected.cpp")
    assert again.unit.vertices == found.unit.vertices
    assert json.dumps(list(again.names)) == json.dumps(list(found.names))


def test_file__with_an_error_outside_classes__is_refused_with_its_line() -> None:
    with pytest.raises(CodeletError, match="expected") as caught:
        load_codelets("#include <poplar/Vertex.hpp>\nnamespace größe {\nint f = ;\n}\n")
    assert caught.value.at == "codelet.cpp:3"
    assert load("templates.cpp").keys()
