"""Large files: long straight lines, and many classes."""

from __future__ import annotations

import re

import numpy as np

from abele.codelet import compile_codelet
from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.blocks import FlowGraph
from abele.codelet.cpp.early_exits import in_pieces
from abele.codelet.cpp.native import VERTEX, readable_text
from abele.llvm import jit
from codelet.cpp.conftest import run, zeros

NUM_LINES = 1500


def straight_line(number: int) -> str:
    """A recurrence of ``number`` locals that stays bounded."""
    lines = "\n".join(
        f"  const float t{n} = 0.5f * t{n - 1} - c[{n % 8}] * t{n - 2} + 0.25f * t{max(0, n - 90)};"
        for n in range(2, number)
    )
    return f"""#include <poplar/Vertex.hpp>
class Line : public poplar::Vertex {{
public:
  poplar::Input<poplar::Vector<float>> c;
  poplar::Output<float> out;
  bool compute() {{
  const float t0 = c[0], t1 = c[1];
{lines}
  if (c.size() > 7)
    *out = t{number - 1};
  return true;
  }}
}};
"""


def test_straight_line__cut_in_pieces__computes_and_costs_the_same() -> None:
    line = load_codelets(straight_line(NUM_LINES))["Line"]
    assert "abele.never" in compile_codelet(line)._value_text()
    c = (0.2 * np.random.default_rng(1).standard_normal(8)).astype("f4")
    t = [c[0], c[1]]
    for n in range(2, NUM_LINES):
        t.append(np.float32(0.5) * t[n - 1] - c[n % 8] * t[n - 2] + np.float32(0.25) * t[max(0, n - 90)])
    np.testing.assert_allclose(run(line, c=c, out=zeros(1))["out"], t[-1], rtol=1e-3, atol=1e-6)


def test_pieces__after_optimisation__are_still_short() -> None:
    line = load_codelets(straight_line(NUM_LINES))["Line"]
    text = jit.optimised_ir(compile_codelet(line)._value_text())
    lengths = [block.count("\n  ") for block in re.split(r"\n\S+:", text)]
    assert sum(lengths) > 4 * NUM_LINES
    assert max(lengths) < 1000


def test_phis__after_a_block_that_is_cut__come_from_its_last_piece() -> None:
    work = "\n".join(f"  %v{n} = add i32 %n0, {n}" for n in range(3000))
    body = f"""entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %v2999, %loop ]
{work}
  %more = icmp ult i32 %v2999, 90000
  br i1 %more, label %loop, label %done
done:
  ret void
"""
    cut, around = in_pieces(body)
    assert "@abele.go.on = global i8 1" in around
    last = max(map(int, re.findall(r'^"loop\.piece(\d+)":', cut, re.M)))
    assert f'[ 0, %entry ], [ %v2999, %"loop.piece{last}" ]' in cut
    assert cut.count(" = add i32 ") == 3000
    short = body.replace(work, "  %v2999 = add i32 %i, 1")
    assert in_pieces(short) == (short, "")


def test_blocks__read_from_text__have_what_llvm_says_of_each() -> None:
    source = load_codelets(
        """#include <poplar/Vertex.hpp>
class Choice : public poplar::Vertex {
public:
  poplar::InOut<poplar::Vector<int>> x;
  bool compute() {
    for (auto &v : x)
      switch (v) { case 1: v = 7; break; case 5: v = x[0] / 3; break; case 9: v *= v; break; default: v += 2; }
    return true;
  }
};
"""
    )["Choice"].source
    blocks = FlowGraph(readable_text(source.vertex, source.code.body, source.code.around), VERTEX)
    switches = [i for i in blocks.instructions if i.opcode == "switch"]
    assert [len(set(s.targets)) for s in switches] == [4]
    assert "i32 9, label" in switches[0].text
    assert all(i.text.strip().startswith((f"%{i.name} = ", i.opcode, "tail call")) for i in blocks.instructions)
    assert {o.type for i in blocks.instructions for o in i.operands} <= {"i32", "i64", "i1", "ptr"}


def test_hundreds_of_instances__load_without_being_optimised() -> None:
    explicit = "".join(f"template class Scale<{n}>;\n" for n in range(200))
    found = load_codelets(
        "#include <poplar/Vertex.hpp>\ntemplate <int N> class Scale : public poplar::Vertex {\npublic:\n"
        "  poplar::InOut<poplar::Vector<int>> x;\n"
        "  bool compute() { for (auto &v : x) v *= N; return true; }\n};\n" + explicit
    )
    assert len(found.names) == 200
    assert len(found.unit._codes) == 1
    assert run(found["Scale<123>"], x=np.array([2], "i4"))["x"] == 246
    assert len(found.unit._codes) == 2
