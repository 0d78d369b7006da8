"""Every exception of Poplar that can arise off the hardware, provoked by a real program: type, text and lines."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele import graph as g
from abele import poplar
from abele.poplar import FLOAT, INT, Graph, exceptions
from abele.poplar.program import Abort, Call, Copy, Execute, If, Repeat, Sequence

HERE = Path(__file__).name


@poplar.codelet
class Stencil(poplar.Vertex):
    source: poplar.Input[poplar.Vector[FLOAT]]
    data: poplar.Output[poplar.Vector[FLOAT]]

    def compute(self):
        for i in range(len(self.data)):
            self.data[i] = self.source[i]


NAMES = """
    graph_connection_error graph_cycle_error graph_memory_allocation_error control_program_error
    invalid_tile_mapping tensor_creation_error tensor_io_state_error index_error type_error overflow_error
    undefined_field unknown_field unknown_vertex_type parse_error file_load_error graph_object_load_error
    graph_object_creation_error graph_object_compilation_error link_error symbol_error graph_recursion_error
    graph_replication_error invalid_machine_model invalid_option memory_elem_constraints_error
    missing_perf_estimate no_environment profiling_disabled stream_connection_error stream_memory_allocation_error
    no_size_specified runtime_error application_runtime_error system_runtime_error recoverable_runtime_error
    unrecoverable_runtime_error unknown_runtime_error poplibs_error
"""
"""The exceptions of Poplar's reference."""


def line() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


def graph() -> Graph:
    model = poplar.IPUModel()
    model.tilesPerIPU = 4
    return Graph(model.createDevice().getTarget())


def mapped(gr: Graph, shape: list[int], name: str, dtype: Any = FLOAT) -> g.Tensor:
    t = gr.addVariable(dtype, shape, name)
    gr.setTileMapping(t, 0)
    return t


def provoked(kind: type[Exception], action: Callable[[], Any]) -> str:
    with pytest.raises(kind) as info:
        action()
    assert isinstance(info.value, poplar.poplar_error)
    return str(info.value)


def lines_in(text: str) -> set[int]:
    """Lines of this file that a message names."""
    return {int(n) for n in re.findall(re.escape(HERE) + r":(\d+)", text)}


# --- the names ------------------------------------------------------------------------------------------------------


def test_names__every_one_of_the_reference__is_a_poplar_error() -> None:
    for name in NAMES.split():
        assert issubclass(getattr(poplar, name), poplar.poplar_error), name
        assert getattr(poplar, name) is getattr(exceptions, name)
    assert issubclass(poplar.application_runtime_error, poplar.runtime_error)
    assert issubclass(poplar.recoverable_runtime_error, poplar.system_runtime_error)
    assert issubclass(poplar.unrecoverable_runtime_error, poplar.system_runtime_error)


# --- graphs ---------------------------------------------------------------------------------------------------------


def test_graph_cycle_error__two_writers__is_worded_as_users_search_for_it_and_names_both_lines() -> None:
    gr = graph()
    data, a, b = mapped(gr, [8], "data"), mapped(gr, [6], "a"), mapped(gr, [4], "b")
    cs = gr.addComputeSet("step")
    first = gr.addVertex(cs, Stencil, {"source": a, "data": data[0:6]})
    one = line() - 1
    second = gr.addVertex(cs, Stencil, {"source": b, "data": data[4:8]})
    two = line() - 1
    gr.setTileMapping(first, 0)
    gr.setTileMapping(second, 1)
    text = provoked(poplar.graph_cycle_error, lambda: poplar.Engine(gr, Execute(cs)))
    assert re.search(
        r"Field Stencil\.data writes to elements \[4:6\) of variable 'data' that are written to elsewhere in same "
        r"compute set",
        text,
    )
    assert {one, two} <= lines_in(text)


def test_graph_cycle_error__writer_and_reader__names_both_lines() -> None:
    gr = graph()
    data, out = mapped(gr, [8], "data"), mapped(gr, [4], "out")
    cs = gr.addComputeSet("step")
    first = gr.addVertex(cs, Stencil, {"source": out, "data": data[0:4]})
    one = line() - 1
    second = gr.addVertex(cs, Stencil, {"source": data[3:7], "data": mapped(gr, [4], "z")})
    two = line() - 1
    gr.setTileMapping(first, 0)
    gr.setTileMapping(second, 0)
    text = provoked(poplar.graph_cycle_error, lambda: poplar.compileGraph(gr, [Execute(cs)]))
    assert "Field Stencil.data writes to elements [3:4) of variable 'data' that are read elsewhere" in text
    assert {one, two} <= lines_in(text)


def test_graph_connection_error__missing_field__names_the_vertex_line_and_the_declaration() -> None:
    gr = graph()
    v = gr.addVertex(gr.addComputeSet("cs"), Stencil, {"source": mapped(gr, [4], "a")})
    made = line() - 1
    gr.setTileMapping(v, 0)
    text = provoked(poplar.graph_connection_error, lambda: poplar.Engine(gr, Execute(v.compute_set)))
    assert "field Stencil.data is not connected" in text
    assert {made, Stencil.codelet.line} <= lines_in(text)


def test_graph_connection_error__connected_twice__names_both_lines() -> None:
    gr = graph()
    x = mapped(gr, [4], "x")
    v = gr.addVertex(gr.addComputeSet("cs"), Stencil)
    gr.connect(v["data"], x)
    first = line() - 1

    def again() -> None:
        gr.connect(v["data"], x)

    text = provoked(poplar.graph_connection_error, again)
    assert "field Stencil.data is connected twice" in text
    assert {first, again.__code__.co_firstlineno + 1} == lines_in(text)


def test_unknown_field__of_a_vertex__names_the_nearest() -> None:
    gr = graph()
    cs = gr.addComputeSet("cs")
    text = provoked(poplar.unknown_field, lambda: gr.addVertex(cs, Stencil, {"sorce": mapped(gr, [1], "x")}))
    assert "vertex Stencil has no field 'sorce'" in text
    assert "did you mean 'source'?" in text


def test_unknown_vertex_type__no_such_codelet__is_named() -> None:
    gr = graph()
    gr.addCodelets(Stencil)
    text = provoked(poplar.unknown_vertex_type, lambda: gr.addVertex(gr.addComputeSet("cs"), "Stencill"))
    assert "unknown vertex type 'Stencill'" in text
    assert "did you mean 'Stencil'?" in text


def test_invalid_tile_mapping__variable_without_tile__is_listed_with_its_line() -> None:
    gr = graph()
    x = gr.addVariable(FLOAT, [2, 3], "x")
    made = line() - 1
    text = provoked(poplar.invalid_tile_mapping, lambda: poplar.Engine(gr, Copy(x, mapped(gr, [6], "y"))))
    assert "'x'" in text
    assert "is mapped to no tile" in text
    assert made in lines_in(text)


def test_invalid_tile_mapping__tile_or_vertex_outside__gives_the_limits() -> None:
    gr = graph()
    x = gr.addVariable(FLOAT, [2], "x")
    assert "mapped to tile 9, but" in provoked(poplar.invalid_tile_mapping, lambda: gr.setTileMapping(x, 9))
    v = gr.addVertex(gr.addComputeSet("cs"), Stencil, {"source": mapped(gr, [4], "a"), "data": mapped(gr, [4], "b")})
    program = Execute(v.compute_set)
    assert "is mapped to no tile" in provoked(poplar.invalid_tile_mapping, lambda: poplar.Engine(gr, program))
    gr.setTileMapping(v, 7)
    assert "has 4 tiles" in provoked(poplar.invalid_tile_mapping, lambda: poplar.Engine(gr, program))


def test_tensor_creation_error__impossible_shape_or_contents__is_refused() -> None:
    gr = graph()
    assert "negative dimension" in provoked(poplar.tensor_creation_error, lambda: gr.addVariable(FLOAT, [2, -1], "x"))
    assert "cannot start as" in provoked(
        poplar.tensor_creation_error, lambda: gr.constant(FLOAT, (2, 3), np.zeros(4), "c")
    )


def test_index_error__outside_a_tensor__gives_index_and_extent() -> None:
    t = mapped(graph(), [4, 5], "t")
    assert "index 4 is out of range" in provoked(poplar.index_error, lambda: t[4])
    assert "slice [2, 6)" in provoked(poplar.index_error, lambda: t.slice(2, 6))
    assert "no dimension 2" in provoked(poplar.index_error, lambda: t.dim(2))


def test_type_error__different_element_types__names_both() -> None:
    gr = graph()
    text = provoked(poplar.type_error, lambda: Copy(mapped(gr, [2], "x"), mapped(gr, [2], "n", INT)))
    assert "the element types differ" in text
    assert "no 64-bit floating point" in provoked(poplar.type_error, lambda: gr.addVariable("double", [1]))


def test_tensor_io_state_error__constants__are_not_written() -> None:
    gr = graph()
    c = gr.addConstant(FLOAT, [4], 1.0, "c")
    made = line() - 1
    assert "is constant" in provoked(poplar.tensor_io_state_error, lambda: Copy(mapped(gr, [4], "x"), c))
    v = gr.addVertex(gr.addComputeSet("cs"), Stencil, {"source": mapped(gr, [4], "a"), "data": c})
    gr.setTileMapping(v, 0)
    text = provoked(poplar.tensor_io_state_error, lambda: poplar.Engine(gr, Execute(v.compute_set)))
    assert "field Stencil.data writes to constant 'c'" in text
    assert made in lines_in(text)


def test_overflow_error__field_without_that_dimension__is_refused() -> None:
    gr = graph()
    gr.addCodelets(Stencil)
    assert "has 1 dimension, no 3" in provoked(poplar.overflow_error, lambda: gr.getMaxFieldDim("Stencil", "data", 3))


def test_no_size_specified__pieces_of_a_field_without_size__is_refused() -> None:
    gr = graph()
    v = gr.addVertex(gr.addComputeSet("cs"), Stencil)
    text = provoked(poplar.no_size_specified, lambda: gr.connect(v["data"][0], mapped(gr, [1], "x")))
    assert "field Stencil.data has no size" in text


def test_graph_memory_allocation_error__more_than_a_tile_has__lists_the_tile() -> None:
    gr = graph()
    x, y = mapped(gr, [100_000], "x"), mapped(gr, [100_000], "y")
    with pytest.raises(poplar.graph_memory_allocation_error, match="B too much") as info:
        poplar.Engine(gr, Copy(x, y))
    assert info.value.tiles[0]["tile"] == 0
    assert info.value.tiles[0]["needed_bytes"] > 800_000


def test_graph_replication_error__ipus_that_cannot_be_shared__is_refused() -> None:
    device = poplar.IPUModel().createDevice()
    text = provoked(poplar.graph_replication_error, lambda: Graph(device, poplar.replication_factor(3)))
    assert "3 replicas cannot share the 1 IPUs" in text


def test_invalid_machine_model__impossible_machine__is_refused() -> None:
    model = poplar.IPUModel()
    model.memoryBytesPerTile = -1
    assert "must be above 0" in provoked(poplar.invalid_machine_model, model.createDevice)


# --- programs -------------------------------------------------------------------------------------------------------


def test_control_program_error__sizes_predicates_and_counts__are_checked() -> None:
    gr = graph()
    x, y = mapped(gr, [4], "x"), mapped(gr, [5], "y")
    assert "4 elements into 5" in provoked(poplar.control_program_error, lambda: Copy(x, y))
    assert "is not one bool or integer" in provoked(poplar.control_program_error, lambda: If(x, Sequence(), Sequence()))
    assert "a Repeat runs -1 times" in provoked(poplar.control_program_error, lambda: Repeat(-1, Sequence()))


def test_graph_recursion_error__function_that_calls_itself__is_refused() -> None:
    gr = graph()
    body = Sequence([Copy(mapped(gr, [4], "x"), mapped(gr, [4], "y"))])
    function = gr.addFunction(body, "again")
    body.add(Call(function))
    text = provoked(poplar.graph_recursion_error, lambda: poplar.Engine(gr, Call(function)))
    assert "again" in text


def test_invalid_option__misspelt_engine_option__names_the_nearest() -> None:
    gr = graph()
    program = Copy(mapped(gr, [4], "x"), mapped(gr, [4], "y"))
    text = provoked(poplar.invalid_option, lambda: poplar.Engine(gr, program, {"debug.instrumnt": "true"}))
    assert "did you mean 'debug.instrument'?" in text


# --- engines --------------------------------------------------------------------------------------------------------


def test_stream_connection_error__stream_connected_to_nothing__names_it() -> None:
    gr = graph()
    stream = gr.addHostToDeviceFIFO("in", FLOAT, 4)
    with poplar.Engine(gr, Copy(stream, mapped(gr, [4], "x"))) as engine:
        engine.load()
        assert "is not connected" in provoked(poplar.stream_connection_error, engine.run)


def test_stream_memory_allocation_error__larger_than_the_host_buffer__is_refused() -> None:
    text = provoked(poplar.stream_memory_allocation_error, lambda: graph().addDeviceToHostFIFO("out", FLOAT, 2**26))
    assert "needs a host buffer of 268,435,456 B" in text


def test_profiling_disabled__profile_of_an_engine_that_records_none__is_refused() -> None:
    gr = graph()
    program = Copy(mapped(gr, [4], "x"), mapped(gr, [4], "y"))
    with poplar.Engine(gr, program, {"debug.instrument": "false"}) as engine:
        assert "there is no execution profile" in provoked(poplar.profiling_disabled, engine.getProfile)


def test_application_runtime_error__abort__carries_its_message() -> None:
    with poplar.Engine(graph(), Abort("the end")) as engine:
        assert "the end" in provoked(poplar.application_runtime_error, engine.run)


def test_poplibs_error__shapes_that_do_not_broadcast__is_a_poplar_error() -> None:
    from abele.poplibs import popops

    gr = graph()
    x, y = mapped(gr, [2, 3], "x"), mapped(gr, [4], "y")
    text = provoked(poplar.poplibs_error, lambda: popops.add(gr, x, y, prog=Sequence()))
    assert "[2, 3]" in text


# --- codelets -------------------------------------------------------------------------------------------------------


def test_symbol_error__two_codelets_of_one_name__names_both_lines() -> None:
    gr = graph()
    gr.addCodelets(Stencil)

    @poplar.codelet
    class Other(poplar.Vertex):
        x: poplar.Output[FLOAT]

        def compute(self):
            self.x = 1.0

    text = provoked(poplar.symbol_error, lambda: gr.addCodelets({"Stencil": Other}))
    assert "two codelets are called 'Stencil'" in text
    assert {Stencil.codelet.line, Other.codelet.line} == lines_in(text)


def test_graph_object_creation_error__codelet_outside_the_language__names_its_line() -> None:
    with pytest.raises(poplar.graph_object_creation_error, match="codelet Empty has no compute") as info:

        @poplar.codelet
        class Empty(poplar.Vertex):
            x: poplar.Input[FLOAT]

    assert HERE in str(info.value)


def test_graph_object_load_error__binary_codelets__are_refused() -> None:
    text = provoked(
        poplar.graph_object_load_error, lambda: graph().addCodelets("lib.gp", poplar.CodeletFileType.Object)
    )
    assert "give the C++ source" in text


def cpp(body: str, head: str = "#include <poplar/Vertex.hpp>") -> str:
    return f"{head}\nusing namespace poplar;\nclass V : public Vertex {{\npublic:\n  Output<float> z;\n{body}\n}};\n"


needs_compiler = pytest.mark.skipif(
    shutil.which("clang++") is None and importlib.util.find_spec("ziglang") is None,
    reason="needs clang or the cpp extra",
)


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "source", "text"),
    [
        ("parse_error", cpp("  bool compute() { *z = 1.0f return true; }"), "codelets.cpp:6"),
        ("file_load_error", "#include <poplar/Vertex.hpp>\nint nothing;\n", "codelets.cpp"),
        ("link_error", cpp("  bool compute() { *z = missing(); return true; }\n  float missing();"), "missing"),
    ],
)
def test_codelet_errors__cpp_files__name_file_and_line(kind: str, source: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "codelets.cpp"
    path.write_text(source, encoding="utf-8")
    assert text in provoked(getattr(poplar, kind), lambda: graph().addCodelets(str(path)))


def test_file_load_error__file_that_is_not_there__names_it(tmp_path: Path) -> None:
    path = tmp_path / "absent.cpp"
    assert "absent.cpp" in provoked(poplar.file_load_error, lambda: graph().addCodelets(str(path)))


@needs_compiler
def test_symbol_error__vertex_without_compute__names_it(tmp_path: Path) -> None:
    path = tmp_path / "codelets.cpp"
    path.write_text(cpp(""), encoding="utf-8")
    assert "V" in provoked(poplar.symbol_error, lambda: graph().addCodelets(str(path)))


def test_no_environment__no_cpp_compiler__says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from abele.codelet.cpp import toolchain

    toolchain.find_compiler.cache_clear()
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    try:
        text = provoked(poplar.no_environment, toolchain.find_compiler)
    finally:
        toolchain.find_compiler.cache_clear()
    assert "there is none" in text
    assert "abele[cpp]" in text


def test_memory_elem_constraints_error__constraint_on_no_field__names_the_nearest() -> None:
    with pytest.raises(poplar.memory_elem_constraints_error, match="names 'sorce', which is no edge") as info:

        @poplar.codelet
        class Apart(poplar.Vertex):
            source: poplar.Input[poplar.Vector[FLOAT]]
            data: poplar.Output[poplar.Vector[FLOAT]]
            constraints = "elem(*sorce) != elem(*data)"

            def compute(self):
                self.data[0] = self.source[0]

    assert "did you mean 'source'?" in str(info.value)
