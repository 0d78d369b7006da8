"""Constraints that sources state of classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.loading import stated_constraints
from abele.codelet.cpp.naming import without_arguments

SOURCE = r"""
#include "constraint.hpp"
// class [[poplar::constraint("comment")]] Commented : public Vertex {};
const char *text = "class [[poplar::constraint(\"string\")]] Quoted {};";
namespace a { inline namespace v1 {
template <class T, class U = A<B<T>>>
class [[poplar::constraint("elem(*x) != elem(**y)", // why {
                           "region(*x) != region(*z)")]] One final : public Vertex {
  struct [[using poplar: constraint("inner")]] Inner : Vertex { bool compute(); };
  void constraint(int);
  bool compute() { constraint(1); [[maybe_unused]] int x[] = {a[b[0]]}; return true; }
};
}}
namespace b::c {
#ifdef __IPU__
template <> struct [[gnu::used]] [[poplar::constraint("special")]] One<int, A<int>> : public X {
#else
struct One {
#endif
  bool compute();
};
namespace {
class [[poplar::constraint("after")]] Two : Vertex {};
}
}
class [[other::constraint("other")]] Three : Vertex {};
typedef struct [[poplar::constraint("four")]] Four {} Five;
"""


def test_constraints__are_those_of_heads_of_classes() -> None:
    assert stated_constraints(SOURCE) == {
        "a::One": ["elem(*x) != elem(*y)", "region(*x) != region(*z)"],
        "a::One::Inner": ["inner"],
        "b::c::One": ["special"],
        "b::c::Two": ["after"],
        "Four": ["four"],
    }


@pytest.mark.parametrize(
    "text", ["", "constraint(", 'class [[poplar::constraint("x"', "}}} [[poplar::constraint()]] {"]
)
def test_constraints__of_what_is_no_class__are_none(text: str) -> None:
    assert stated_constraints(text) == {}


@pytest.mark.parametrize(
    ("name", "short"),
    [("A", "A"), ("a::B<int,C<d>>", "a::B"), ("A<B<int>>::C<x>::D", "A::C::D"), ("(a)5", "(a)5")],
)
def test_name__without_arguments__keeps_the_classes_around(name: str, short: str) -> None:
    assert without_arguments(name) == short


def test_constraints__of_classes_of_one_name_and_of_headers__are_their_own(tmp_path: Path) -> None:
    (tmp_path / "apart.hpp").write_text("""
#include <poplar/Vertex.hpp>
namespace p {
template <class T> class [[poplar::constraint("elem(*a) != elem(*b)")]] Apart : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<T>> a;
  poplar::InOut<poplar::Vector<T>> b;
  bool compute() { b[0] = a[0]; return true; }
};
}
""")
    (tmp_path / "apart.cpp").write_text("""
#include "apart.hpp"
template class p::Apart<float>;
namespace q {
// before: class [[poplar::constraint("elem(*a) != elem(*b)")]] Apart
struct Apart : poplar::Vertex {
  poplar::Output<float> c;
  bool compute() { *c = 1; return true; }
};
}
""")
    found = load_codelets(tmp_path / "apart.cpp")
    assert [(c.kind, c.one, c.other) for c in found["p::Apart<float>"].constraints] == [("elem", "a", "b")]
    assert found["q::Apart"].constraints == ()
