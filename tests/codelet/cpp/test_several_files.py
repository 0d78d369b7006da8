"""Several files as one, source as text, and classes made when they are asked for."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from abele import Engine, Execute, Graph, i32, systems
from abele.codelet.cpp import load_codelets, unit
from abele.errors import CodeletError, CodeletLinkError, CodeletLoadError, SymbolError
from abele.llvm import cache
from abele.poplar import CodeletFileType
from codelet.cpp.conftest import run

HEAD = "#include <poplar/Vertex.hpp>\n"
VERTEX = """#include <poplar/Vertex.hpp>
class NAME : public poplar::Vertex {
public:
  poplar::InOut<poplar::Vector<int>> x;
  bool compute() {
    for (auto &v : x)
      v = BODY;
    return true;
  }
};
"""


def vertex(name: str, body: str) -> str:
    return VERTEX.replace("NAME", name).replace("BODY", body)


def result(definition: object, *values: int) -> list[int]:
    return list(map(int, run(definition, x=np.array(values, "i4"))["x"]))


def files(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / f"{name}.cpp").write_text(text)
    return [folder / f"{name}.cpp" for name in texts]


def test_file__calls_what_another_defines__with_tables_of_it(tmp_path: Path) -> None:
    declared = "namespace h { extern const int table[4]; int twice(int); template <class T> T half(T v); }\n"
    given = files(
        tmp_path,
        a=HEAD + declared + vertex("Calls", "h::twice(v) + h::table[v] + h::half(v)"),
        b=declared + "namespace h { const int table[4] = {5, 6, 7, 8}; static constexpr int by[] = {2, 2};\n"
        "int twice(int v) { return by[v & 1] * v; }\n"
        "template <class T> T half(T v) { return v / 2; }\ntemplate int half<int>(int); }\n",
    )
    for order in (given, given[::-1]):
        assert result(load_codelets(order)["Calls"], 0, 1, 2, 3) == [5, 8, 12, 15]


def test_functions_of_one_name__static_inline_or_unnamed__stay_those_of_their_file(tmp_path: Path) -> None:
    helpers = """
    static int own(int v) { return v + N; }
    inline int shared(int v) { return v * N; }
    namespace { struct Adds { int by = N; int operator()(int v) const { return v + by; } }; }
    static const int table[2] = {N, 10 * N};
    """
    given = [
        vertex(name, f"own(v) + shared(v) + Adds()(v) + table[v & 1] + {other}(v)").replace(
            "class", f"int {other}(int);\nint from_{name}(int);\n{helpers.replace('N', number)}\nclass", 1
        )
        + f"int from_{name}(int v) {{ return own(v); }}\n"
        for name, number, other in (("A", "1", "from_B"), ("B", "2", "from_A"))
    ]
    found = load_codelets(files(tmp_path, a=given[0], b=given[1]))
    assert result(found["A"], 0, 1) == [0 + 1 + 0 + 1 + 1 + 2, 2 + 1 + 2 + 10 + 3]
    assert result(found["B"], 0, 1) == [0 + 2 + 0 + 2 + 2 + 1, 3 + 2 + 3 + 20 + 2]


def test_vertex__declared_in_a_header_and_defined_in_another_file__is_found(tmp_path: Path) -> None:
    header = vertex("Split", "0").replace("class", "#pragma once\nclass", 1)
    begin = header.index("bool compute()")
    (tmp_path / "split.hpp").write_text(header[:begin] + "bool compute();\n};\n")
    given = files(
        tmp_path,
        a='#include "split.hpp"\nint three();\nbool Split::compute() { for (auto &v : x) v = three(); return true; }\n',
        b='#include "split.hpp"\nint three() { return 3; }\n',
    )
    assert result(load_codelets(given)["Split"], 0) == [3]


def test_template__instantiated_in_two_files__is_one(tmp_path: Path) -> None:
    text = vertex("Twice", "2 * v").replace("class", "#pragma once\ntemplate <class T> class", 1)
    (tmp_path / "twice.hpp").write_text(text.replace("<int>", "<T>"))
    use = '#include "twice.hpp"\ntemplate class Twice<int>;\n'
    found = load_codelets(files(tmp_path, a=use, b=use + "template class Twice<short>;\n"))
    assert result(found["Twice<int>"], 4) == [8]
    assert len(found) == 2


def test_compute_inherited_from_a_template__in_a_file_of_two__is_emitted(tmp_path: Path) -> None:
    base = vertex("Base", "three() + Own::by").replace("class", "int three();\ntemplate <class Own> class", 1)
    derived = "struct By { static constexpr int by = 4; };\nclass Derived : public Base<By> {};\n"
    given = files(tmp_path, a="int three() { return 3; }\n", b=base + derived)
    assert result(load_codelets(given)["Derived"], 0) == [7]


def test_function__that_two_files_define__is_refused_with_both_places(tmp_path: Path) -> None:
    given = files(
        tmp_path, a=vertex("A", "v") + "\nint helper(int v) { return v; }\n", b="int helper(int v) { return 1; }\n"
    )
    with pytest.raises(CodeletLinkError, match="helper is defined in two files") as caught:
        load_codelets(given)
    assert (caught.value.at or "").endswith("b.cpp:1")
    assert (caught.value.because or "").endswith("a.cpp:12")
    assert "static" in (caught.value.remedy or "")


def test_vertices_of_one_name__in_two_files__are_refused(tmp_path: Path) -> None:
    given = files(tmp_path, a=vertex("Same", "v"), b="\n" + vertex("Same", "-v"))
    with pytest.raises(SymbolError, match="two codelets are called 'Same'"):
        load_codelets(given)
    separate = Graph(systems.get("bow-2000:1"))
    separate.addCodelets(given[0])
    with pytest.raises(SymbolError, match="two codelets are called 'Same'"):
        separate.addCodelets(given[1])


def test_constant__that_no_file_defines__is_a_link_error() -> None:
    with pytest.raises(CodeletLinkError, match="uses missing, an unresolved symbol"):
        load_codelets(vertex("X", "missing[v]").replace("class", "extern const int missing[4];\nclass", 1))


def test_compute__that_no_file_defines__is_a_link_error() -> None:
    text = vertex("X", "0")
    with pytest.raises(CodeletLinkError, match=r"compute\(\) of X is declared, and defined nowhere"):
        load_codelets(text[: text.index("bool compute()")] + "bool compute();\n};\n")


def test_change_in_a_helper__is_seen(tmp_path: Path) -> None:
    given = files(tmp_path, a=vertex("A", "f()").replace("class", "int f();\nclass", 1), b="int f() { return 1; }\n")
    assert result(load_codelets(given)["A"], 0) == [1]
    given[1].write_text("int f() { return 2; }\n")
    assert result(load_codelets(given)["A"], 0) == [2]


@pytest.mark.parametrize(
    "arguments",
    [
        (vertex("T", "v + AMOUNT"), "-DAMOUNT=5"),
        (vertex("T", "v + AMOUNT"), CodeletFileType.Cpp, "-DAMOUNT=5"),
        (io.StringIO(vertex("T", "v + AMOUNT")), "-DAMOUNT=5", CodeletFileType.Cpp),
        (io.BytesIO(vertex("T", "v + AMOUNT").encode()), CodeletFileType.PreprocessedCpp, "-DAMOUNT=5"),
        ([vertex("T", "v + amount()").replace("class", "int amount();\nclass", 1), "int amount() { return 5; }\n"],),
    ],
    ids=["text", "text and type", "stream", "bytes", "two texts"],
)
def test_source__as_text_or_stream_in_a_graph__runs(arguments: tuple[object, ...]) -> None:
    graph = Graph(systems.get("bow-2000:1"))
    graph.addCodelets(*arguments)
    x = graph.variable(i32, (2,), name="x").map(0)
    step = graph.compute_set("step")
    step.vertex("T", tile=0)["x"] = x
    engine = Engine(graph, Execute(step))
    engine["x"] = np.array([1, 2], "i4")
    engine.run()
    assert engine["x"].tolist() == [6, 7]


def test_stream__of_assembly__is_refused() -> None:
    with pytest.raises(CodeletLoadError, match="what was given would be read as assembly"):
        Graph(systems.get("bow-2000:1")).addCodelets(io.StringIO("add $m0, $m1"), "", CodeletFileType.Asm)


def test_classes__that_are_not_asked_for__are_not_optimised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    made: list[str] = []
    compiled = unit.Unit._compiled

    def noted(self: unit.Unit, vertex: object, **options: bool) -> object:
        made.append(vertex.name)
        return compiled(self, vertex, **options)

    monkeypatch.setattr(unit.Unit, "_compiled", noted)
    text = "".join(vertex(f"V{n}", f"v + {n}").replace(HEAD, "") for n in range(6))
    graph = Graph(systems.get("bow-2000:1"))
    graph.addCodelets(HEAD + text)
    assert made == ["V0"]
    assert graph.codelets["V4"].name == "V4"
    assert set(graph.codelets) >= {f"V{n}" for n in range(6)}
    assert made == ["V0", "V4"]


def test_class_that_cannot_be_had__raises_its_error_when_asked_for__others_run() -> None:
    text = (
        HEAD + vertex("Bad", 'v; asm volatile("trap 0")').replace(HEAD, "") + vertex("Good", "v + 1").replace(HEAD, "")
    )
    found = load_codelets(text)
    assert list(found) == ["Good"]
    assert "Bad" not in found
    assert list(found.refused) == ["Bad"]
    assert result(found["Good"], 1) == [2]
    graph = Graph(systems.get("bow-2000:1"))
    graph.addCodelets(text)
    assert not graph.hasCodelet("Bad")
    with pytest.raises(CodeletError, match="'trap' runs on the hardware only"):
        graph.compute_set("step").vertex("Bad", tile=0)
