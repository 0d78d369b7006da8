"""Code that cannot run here is refused, with the line and the reason."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from abele.codelet.cpp import load_codelets, toolchain
from abele.errors import (
    CodeletError,
    CodeletLinkError,
    CodeletLoadError,
    CodeletParseError,
    MemoryElementError,
    SymbolError,
)

HEAD = "#include <poplar/Vertex.hpp>\nusing namespace poplar;\n"


def refused(kind: type[CodeletError], body: str, head: str = HEAD) -> CodeletError:
    with pytest.raises(kind) as caught:
        load_codelets(head + textwrap.dedent(body))
    return caught.value


def vertex(fields: str, body: str = "", head: str = "") -> str:
    return f"{head}class X : public Vertex {{ public:\n{fields}\nbool compute() {{\n{body}\nreturn true; }} }};\n"


def test_inline_assembly__is_refused__with_line_and_instruction() -> None:
    error = refused(CodeletError, vertex("Output<float> out;", 'asm volatile("f32v2axpy $a0:1, $azeros, $azeros");'))
    assert error.message == "assembly instruction 'f32v2axpy' runs on the hardware only"
    assert error.at is not None
    assert error.at.endswith("codelet.cpp:6")
    assert "#ifdef __IPU__" in (error.remedy or "")


def test_assembly_with_registers_of_the_machine__is_refused() -> None:
    error = refused(
        CodeletError, vertex("Output<float> out;", 'float x; asm("ld32 %0, $m0" : "=r"(x) : : "$m0"); *out = x;')
    )
    assert error.message == "inline assembly runs on the hardware only"
    assert "codelet.cpp:6" in (error.at or "")


def test_amp_intrinsic__is_refused__by_name() -> None:
    error = refused(
        CodeletError,
        vertex(
            "Output<Vector<float>> out;",
            "float2 a = {0, 0}; auto x = __builtin_ipu_f32sisoslic(a, a, 0); out[0] = x[0];",
        ),
        HEAD + "#include <ipu_builtins.h>\n",
    )
    assert error.message == "__builtin_ipu_f32sisoslic runs on the hardware only"
    assert "codelet.cpp:7" in (error.at or "")


def test_control_register__other_than_the_workers__is_refused() -> None:
    error = refused(
        CodeletError,
        vertex("Output<unsigned> out;", "*out = __builtin_ipu_get(0x60);"),
        HEAD + "#include <ipu_builtins.h>\n",
    )
    assert error.message.startswith("__builtin_ipu_get of this register runs on the hardware only")


def test_external_codelet__is_refused() -> None:
    error = refused(CodeletError, vertex("static const bool isExternalCodelet = true; Output<float> out;"))
    assert error.message == "vertex X runs on the hardware only"
    assert error.because == "its body is in assembly"


def test_assembly_file__is_refused(tmp_path: Path) -> None:
    (tmp_path / "fast.S").write_text("add $m0, $m1, $m2\n")
    with pytest.raises(CodeletError, match=r"assembly in fast\.S runs on the hardware only"):
        load_codelets(tmp_path / "fast.S")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("long double d;", "field X.d is long double: the machine has no 64-bit floats"),
        ("float *p;", "field X.p is a raw pointer"),
        ("float a[4];", "field X.a is an array"),
        ("struct S { int i; } s;", "field X.s is of type X::S"),
        ("Vector<Vector<float>> v;", "field X.v is a vector of vectors without a direction"),
        ("unsigned bit : 3;", "field X.bit is a bit field"),
    ],
)
def test_field__of_a_kind_that_no_vertex_has__is_refused_with_its_line(field: str, words: str) -> None:
    error = refused(CodeletError, vertex(f"Input<float> ok;\n{field}"))
    assert error.message == words
    assert (error.at or "").endswith("codelet.cpp:5")


def test_unresolved_symbol__is_a_link_error() -> None:
    error = refused(
        CodeletLinkError, vertex("InOut<float> x;", "*x = elsewhere(*x);", 'extern "C" float elsewhere(float);\n')
    )
    assert error.message == "X calls elsewhere, an unresolved symbol"
    assert "codelet.cpp:7" in (error.at or "")


def test_heap__is_a_link_error() -> None:
    error = refused(
        CodeletLinkError,
        vertex("InOut<float> x;\nunsigned n;", "std::vector<float> v(n, *x); v.push_back(1); *x = v[n / 2];"),
        HEAD + "#include <vector>\n",
    )
    assert error.message == "X allocates memory"
    assert error.because == "a tile has no heap"


def test_recursion__is_refused() -> None:
    head = (
        "static int ack(int m, int n) { return m == 0 ? n + 1 : n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1)); }\n"
    )
    error = refused(CodeletError, vertex("InOut<int> x;", "*x = ack(*x, *x);", head))
    assert error.message.startswith("X calls itself by way of")
    assert error.remedy == "use a loop"


def test_variable_outside_the_vertex__is_refused() -> None:
    error = refused(CodeletError, vertex("Output<int> x;", "*x = ++counter;", "static int counter;\n"))
    assert "keeps data outside the vertex" in error.message


def test_syntax_error__says_what_the_compiler_says() -> None:
    error = refused(CodeletParseError, vertex("Output<int> x;", "*x = ;"))
    assert error.message == "expected expression"
    assert (error.at or "").endswith("codelet.cpp:6")
    assert "*x = ;" in (error.because or "")


def test_size_of_one_ptr__is_refused() -> None:
    error = refused(
        CodeletParseError, vertex("Input<Vector<int, VectorLayout::ONE_PTR>> x; Output<int> y;", "*y = x.size();")
    )
    assert "it has no size()" in error.message


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ("Input<Vector<int>> x;", "x[0] = 1;"),
        ("Input<Vector<int>> x;", "for (auto &v : x) v += 1;"),
        ("Input<Vector<int>> x; Input<unsigned> n;", "int *p = &x[0]; while (*p) *p++ = *n;"),
        ("Vector<Input<Vector<int>>> x;", "x[1][2] = 1;"),
        ("Input<Vector<char>> x;", "__builtin_memset(&x[0], 0, x.size());"),
    ],
)
def test_writing_an_input__is_refused(fields: str, body: str) -> None:
    error = refused(CodeletError, vertex(fields, body))
    assert error.message == "X writes to its input 'x'"
    assert (error.at or "").endswith("codelet.cpp:6")
    assert error.remedy == "declare x as InOut, or write to an Output"


def test_pointer_that_may_be_to_an_output__may_be_written_through() -> None:
    body = "float *p = n & 1 ? &y[0] : &x[0]; if (n & 1) *p = 1;"
    assert "X" in load_codelets(HEAD + vertex("Input<Vector<float>> x; Output<Vector<float>> y; unsigned n;", body))


def test_missing_compute__is_a_symbol_error() -> None:
    error = refused(SymbolError, "class X : public Vertex { public: Input<int> x; };\n")
    assert error.message == "vertex X has no compute()"


def test_compute_of_wrong_arguments__is_refused() -> None:
    error = refused(
        CodeletError, "class X : public MultiVertex { public: Output<int> x; bool compute() { *x = 1; return true; } };"
    )
    assert error.message == "compute of multi vertex X takes ()"
    assert error.remedy == "bool compute(unsigned workerId)"


def test_two_codelets_of_one_name__are_a_symbol_error(tmp_path: Path) -> None:
    for name in ("a.cpp", "b.cpp"):
        (tmp_path / name).write_text(HEAD + vertex("Output<int> x;", "*x = 1;"))
    with pytest.raises(SymbolError) as caught:
        load_codelets([tmp_path / "a.cpp", tmp_path / "b.cpp"])
    assert caught.value.message == "two codelets are called 'X'"
    assert "a.cpp:3" in (caught.value.because or "")


def test_file_without_codelets__is_a_load_error() -> None:
    error = refused(
        CodeletLoadError, "template <class T> class X : public Vertex { bool compute() { return true; } };\n"
    )
    assert "holds no codelets" in error.message


def test_missing_file_and_header__are_load_errors(tmp_path: Path) -> None:
    with pytest.raises(CodeletLoadError, match=r"nowhere\.cpp' cannot be read"):
        load_codelets(tmp_path / "nowhere.cpp")
    error = refused(CodeletLoadError, '#include "not_here.hpp"\n')
    assert error.message == "header 'not_here.hpp' was not found"


def test_object_file__is_a_load_error(tmp_path: Path) -> None:
    with pytest.raises(CodeletLoadError, match="compiled code"):
        load_codelets(tmp_path / "codelets.gp")


def test_unknown_flag__is_a_load_error() -> None:
    with pytest.raises(CodeletLoadError, match="refused"):
        load_codelets(HEAD + vertex("Output<int> x;"), "--no-such-flag-at-all")


def test_constraint_on_no_field__is_a_memory_element_error() -> None:
    body = vertex("Input<int> a;").replace("class X", 'class [[poplar::constraint("elem(*a) != elem(*b)")]] X')
    assert "names 'b', which is no edge of it" in refused(MemoryElementError, body).message


def test_no_compiler__says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.shutil, "which", lambda _: None)
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda _: None)
    toolchain.find_compiler.cache_clear()
    try:
        with pytest.raises(CodeletLoadError) as caught:
            toolchain.find_compiler()
    finally:
        toolchain.find_compiler.cache_clear()
    assert caught.value.remedy == 'pip install "abele[cpp]"'
