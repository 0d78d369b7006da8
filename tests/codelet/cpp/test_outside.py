"""References of code outside its vertex: data that nobody writes, functions by address, inputs by pointer."""

from __future__ import annotations

import numpy as np
import pytest

from abele import Engine, Execute, Graph, f16, numerics, systems
from abele.codelet.cpp import load_codelets
from abele.errors import CodeletError
from codelet.cpp.conftest import f32, load, run, zeros

FOUND = load("outside_reads.cpp")
X = f32(1, 5)


def test_variables_that_no_code_writes__are_read_whatever_their_linkage() -> None:
    np.testing.assert_array_equal(run(FOUND["Reads"], x=f32(1, 2, 3, 0))["x"], [2.5, 8.5, 3, 6.5])


@pytest.mark.parametrize("name", ["Writes", "ReadsWritten"])
def test_variable_that_some_code_writes__refuses_who_writes_and_who_reads_it(name: str) -> None:
    with pytest.raises(CodeletError, match="keeps data outside the vertex, in counter"):
        FOUND[name]


@pytest.mark.parametrize(
    ("name", "k", "wanted"),
    [
        ("ByTable", 0, X + 1),
        ("ByTable", 1, X * 2),
        ("ByTable", 2, X - 3),
        ("BySquare", 1, X * 2),
        ("BySquare", 2, X - 3),
        ("BySquare", 3, X + 1),
        ("ByStep", 0, X * 4),
        ("ByStep", 1, (X - 3) * 4),
        ("ByChoice", 0, X - 3),
        ("ByChoice", 1, X * 2),
        ("ByVirtual", 0, X * X),
        ("ByVirtual", 1, 3 * X * X),
    ],
)
def test_call_through_a_pointer__is_of_the_function_that_it_is_to(name: str, k: int, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(run(FOUND[name], x=X, k=k)["x"], wanted)


def test_virtual_function_of_the_vertex_itself__is_refused() -> None:
    with pytest.raises(CodeletError, match="OwnVirtual calls a function through a pointer"):
        FOUND["OwnVirtual"]


def test_elements_of_inputs__are_referred_to_as_if_they_could_be_written() -> None:
    a = np.array([7], "u2")
    assert run(FOUND["Casts"], a=a, b=a[0], c=a, d=a, e=[a], sum=zeros(1, "u4"))["sum"][0] == 35


@pytest.mark.parametrize("options", [{}, {"debug": True}], ids=str)
def test_metadata_of_8_bit_floats__are_those_of_the_tensor(options: dict[str, bool]) -> None:
    found = load_codelets("""
    #include <poplar/Vertex.hpp>
    using namespace poplar;
    struct ToHalf : public Vertex { Input<Vector<quarter>> in; Output<Vector<half>> out; bool compute() {
      const quarter_metadata metadata = unpackMetadata(in.getMetadata());
      for (unsigned i = 0; i < out.size(); ++i) out[i] = toHalf(in[i], metadata);
      return true; } };
    struct LastOfRows : public Vertex { Vector<Input<Vector<quarter>>> in; Output<Vector<half>> out; bool compute() {
      for (unsigned r = 0; r < in.size(); ++r) {
        MetadataType metadata = in[r].getMetadata();
        out[r] = toHalf(in[r][in[r].size() - 1], metadata); }
      return true; } };
    struct Packs : public Vertex { Input<quarter_metadata> in; Output<MetadataType> out; bool compute() {
      const QuarterMetadata m = *in;
      *out = packMetadata(m.getFormat(), m.getScale() + 1);
      return true; } };
    """)
    x = np.arange(8, dtype=np.float32) * 0.25
    graph = Graph(systems.get("bow-2000:1"))
    step = graph.compute_set("step")
    formats = [("F143", 0), ("F152", -5), ("F143", 3)]
    for k, (name, scale) in enumerate(formats):
        data = graph.variable(numerics.quarter(name, scale), (8,), name=f"x{k}").map(k)
        whole, last = (graph.variable(f16, (n,), name=f"{w}{k}").map(k) for w, n in (("whole", 8), ("last", 2)))
        step.vertices(found["ToHalf"], tile=[k], **{"in": [data], "out": [whole]})
        step.vertex(found["LastOfRows"], tile=k, **{"in": [data[:4], data[4:]], "out": last})
    engine = Engine(graph, Execute(step), **options)
    for k in range(len(formats)):
        engine[f"x{k}"] = x
    engine.run()
    for k in range(len(formats)):
        np.testing.assert_array_equal(engine[f"whole{k}"], x.astype(np.float16))
        np.testing.assert_array_equal(engine[f"last{k}"], x[[3, 7]].astype(np.float16))
    assert run(found["Packs"], **{"in": zeros(1, "u1") + 0x85}, out=zeros(1, "u1"))["out"][0] == 0x86
