"""Code that the compiler does not take refuses its own function or class, not its file."""

from __future__ import annotations

import pytest

from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.braces import regions
from abele.codelet.cpp.reflect import refusal_symbol, symbol_refusal
from abele.codelet.cpp.toolchain import Message, without_errors
from abele.errors import CodeletError, CodeletLinkError, CodeletParseError

SOURCE = """#include <x> // {
namespace a { /* { */
template <class T, class U = X<Y<int>>> class [[poplar::constraint("elem(*x) != elem(*y)")]] One : public Vertex {
  Input<int> x = {3};
  __attribute__((target("supervisor"))) bool compute() const noexcept {
    const char *text = "}{"; char c = '{';
    if (x) { auto f = [](int i) { return R"(})"; }; }
    return true;
  }
};
} // namespace a
static constexpr float table[] = {1, 2};
#define MACRO {
auto helper(int x) -> decltype(x + 1) { return x; }
enum class Kind { A, B };
extern "C" { void plain(); }
struct Two : One<int>, public MultiVertex { float y; };
"""


def test_regions__are_told_apart_by_their_heads() -> None:
    found = {(r.kind, r.head.split("\n")[-1].strip()) for r in regions(SOURCE)}
    assert ("scope", "namespace a") in found
    assert ("class", "class   One : public Vertex") in found
    assert ("function", "bool compute() const noexcept") in found
    assert ("function", "auto helper(int x) -> decltype(x + 1)") in found
    assert ("class", "struct Two : One<int>, public MultiVertex") in found
    assert {h for k, h in found if k == "function"} == {
        "bool compute() const noexcept",
        "auto helper(int x) -> decltype(x + 1)",
        "if (x)",
        "auto f = [](int i)",
    }


def message(line: int, column: int) -> Message:
    return Message(CodeletLinkError("no", at=f"f.cpp:{line}", remedy="other"), ((line, column),))


@pytest.mark.parametrize(
    ("line", "column", "kept", "gone"),
    [
        (7, 40, "Input<int> x = {3};", "if (x)"),
        (14, 42, "if (x)", "return x;"),
        (4, 5, "auto helper", "Input<int> x"),
    ],
)
def test_source__without_what_has_an_error__keeps_its_lines(line: int, column: int, kept: str, gone: str) -> None:
    left = without_errors(SOURCE, [message(line, column)])
    assert left.count("\n") == SOURCE.count("\n")
    assert kept in left
    assert gone not in left
    assert refusal_symbol(message(line, column).error) in left


def test_class__that_is_refused__computes_as_its_kind_does() -> None:
    left = without_errors(SOURCE, [message(17, 46)])
    assert "struct Two : One<int>, public MultiVertex { public: bool compute(unsigned) {" in left


def test_error__outside_functions_and_vertices__is_the_files() -> None:
    with pytest.raises(CodeletLinkError):
        without_errors(SOURCE, [message(7, 40), message(12, 3)])
    with pytest.raises(CodeletError, match="elsewhere"):
        without_errors(SOURCE, [Message(CodeletError("elsewhere"), ())])


def test_symbol__spells_an_error_whole() -> None:
    error = symbol_refusal(refusal_symbol(CodeletLinkError("é “x”", at="a:1", because="b\nc", remedy=None)))
    assert isinstance(error, CodeletLinkError)
    assert (error.message, error.at, error.because, error.remedy) == ("é “x”", "a:1", "b\nc", None)
    assert symbol_refusal("powf") is None


def test_file__with_heads_on_both_sides_of_a_condition__refuses_only_what_has_the_error() -> None:
    codelets = load_codelets("""
#include <poplar/Vertex.hpp>
using namespace poplar;
#ifdef __IPU__
struct V : SupervisorVertex {
#else
struct V : Vertex {
#endif
  Output<int> y;
#ifdef FAST
  bool compute() {
#else
  bool compute() { // {
#endif
    *y = undeclared;
    return true;
  }
};
struct W : Vertex { Output<int> y; bool compute() { *y = 2; return true; } };
""")
    assert list(codelets) == ["W"]
    with pytest.raises(CodeletParseError, match="undeclared") as caught:
        codelets["V"]
    assert caught.value.at == "codelet.cpp:15"


def test_regions__of_sides_that_open_apart__leave_what_follows_in_place() -> None:
    found = list(
        regions("""
#if A
namespace a {
#elif B
void f() { g(); }
#endif
struct X { };
#else
}
#endif }}
#if
struct Y {
""")
    )
    assert ("class", "struct X") in {(r.kind, r.head) for r in found}
    assert not any(r.head == "struct Y" for r in found)
