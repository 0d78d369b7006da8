"""Debug information is read as LLVM writes it; LLVM itself is the oracle for what it writes."""

from __future__ import annotations

import llvmlite.binding as binding
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abele.codelet.cpp.metadata import Metadata, TypedConstant, global_name, items, string_value, symbol_of
from support.examples import examples

TEXT = """
define void @f() {
  ret void
}

!llvm.dbg.cu = !{!0}

!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus_14, file: !1, producer: "clang, \\22quoted\\22: x", emissionKind: FullDebug)
!1 = !DIFile(filename: "a.cpp", directory: "/src")
!2 = !DINamespace(name: "ns", scope: null, exportSymbols: true)
!3 = distinct !DICompositeType(tag: DW_TAG_class_type, name: "X<\\22a, b\\22>", scope: !2, file: !1, line: 7, size: 64, flags: DIFlagPublic | DIFlagTypePassByValue, elements: !4)
!4 = !{!5, !6, null, !"text, with: commas", !7}
!5 = !DIDerivedType(tag: DW_TAG_member, name: "x", scope: !3, line: -8, baseType: !9, offset: 32)
!6 = !DITemplateValueParameter(name: "N", type: !9, defaulted: true, value: i8 -56)
!7 = !DITemplateValueParameter(tag: DW_TAG_GNU_template_template_param, name: "T", value: !"std::vector")
!8 = !DIGlobalVariableExpression(var: !10, expr: !DIExpression(DW_OP_constu, 5, DW_OP_stack_value))
!9 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!10 = distinct !DIGlobalVariable(name: "table", linkageName: "_ZL5table", scope: !2, file: !1, line: 3, type: !9)
!11 = !DILocation(line: 12, column: 3, scope: !12, inlinedAt: !13)
!12 = !DISubprogram(name: "size", file: !14, line: 1)
!13 = distinct !DILocation(line: 40, column: 1, scope: !15)
!14 = !DIFile(filename: "/ours/Vertex.hpp", directory: "")
!15 = distinct !DISubprogram(name: "compute", linkageName: "_Z7computev", scope: !2, file: !1, line: 39, type: !16)
!16 = !DISubroutineType(types: !17)
!17 = !{null, !9}
!18 = !DITemplateValueParameter(name: "F", type: !9, value: ptr @_Z7computev)
!19 = !DISubrange(count: !10)
"""  # noqa: E501


CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


@pytest.fixture(scope="module")
def metadata() -> Metadata:
    return Metadata(TEXT)


def node(metadata: Metadata, number: int):
    found = metadata.node(f"!{number}")
    assert found is not None
    return found


def test_entries__with_quotes_commas_and_colons__are_whole(metadata: Metadata) -> None:
    assert node(metadata, 0).string("producer") == 'clang, "quoted": x'
    assert node(metadata, 0).entries["emissionKind"] == "FullDebug"
    assert node(metadata, 3).string("name") == 'X<"a, b">'
    assert node(metadata, 7).string("value") == "std::vector"
    assert node(metadata, 8).node("var") is node(metadata, 10)


def test_entries__are_read_as_what_they_are(metadata: Metadata) -> None:
    assert (node(metadata, 3).kind, node(metadata, 3).tag) == ("DICompositeType", "class_type")
    assert node(metadata, 3).flags == {"Public", "TypePassByValue"}
    assert (node(metadata, 5).number("offset"), node(metadata, 5).number("line")) == (32, -8)
    assert (node(metadata, 5).number("size"), node(metadata, 19).number("count")) == (0, 0)
    assert node(metadata, 6).constant("value") == TypedConstant(8, -56)
    assert node(metadata, 6).constant("value").unsigned == 200
    assert node(metadata, 18).constant("value") is None
    assert node(metadata, 6).is_true("defaulted")
    assert not node(metadata, 3).is_true("exportSymbols")


def test_lists__with_nulls_and_strings__give_their_nodes(metadata: Metadata) -> None:
    assert node(metadata, 3).nodes("elements") == [node(metadata, n) for n in (5, 6, 7)]
    assert node(metadata, 16).operands("types") == [None, node(metadata, 9)]
    assert node(metadata, 3).nodes("templateParams") == []


def test_places__of_inlined_code__are_those_of_the_user(metadata: Metadata) -> None:
    assert node(metadata, 5).location == "/src/a.cpp:-8"
    assert metadata.source_line("!11", "/ours") == "/src/a.cpp:40"
    assert metadata.source_line("!11", "/other") == "/ours/Vertex.hpp:12"
    assert metadata.source_line("!99", "/ours") is None


def test_symbols__lead_to_what_has_them(metadata: Metadata) -> None:
    assert metadata.defined("_ZL5table") is node(metadata, 10)
    assert metadata.defined("_Z7computev") is node(metadata, 15)
    assert metadata.defined("other") is None
    assert [n.string("name") for n in metadata.of_kind("DISubprogram")] == ["size", "compute"]


@pytest.mark.parametrize("text", ["", "define void @f() {\n}\n", "!", "\n!0 = !{", "\n!0 =", "\n!0 = distinct !"])
def test_text__without_nodes_or_cut_off__has_none(text: str) -> None:
    metadata = Metadata(text)
    assert list(metadata.of_kind("DIFile")) == []
    assert metadata.node("!1") is metadata.node("null") is metadata.node("") is None


@examples(12)
@given(st.text(CHARACTERS))
def test_string__written_by_llvm__is_read_back(content: str) -> None:
    coded = "".join(f"\\{byte:02X}" for byte in content.encode())
    source = f'!named = !{{!0}}\n!0 = !{{!"{coded}", !1, !"{coded}"}}\n!1 = !{{}}\n'
    written = Metadata(str(binding.parse_assembly(source, binding.create_context())))
    listed = written.node("!0")
    assert listed is not None
    found = items(listed.text)
    assert [string_value(found[0]), found[1], string_value(found[2])] == [content, "!1", content]
    assert listed.listed == [written.node("!1")]


@examples(12)
@given(
    st.text(st.sampled_from("aZ_.-$09") | st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
)
@example("-.-")
@example("7x")
@example("_ZZ4mainENK3$_0clEv")
def test_name__of_a_global__is_as_llvm_writes_it(symbol: str) -> None:
    coded = "".join(f"\\{byte:02X}" for byte in symbol.encode())
    module = binding.parse_assembly(f'@"{coded}" = global i32 0\n', binding.create_context())
    assert f"\n{global_name(symbol)} = global i32 0" in str(module)
    assert symbol_of(global_name(symbol)) == symbol
