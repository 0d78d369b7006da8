"""Instructions of loops of C++ codelets for indices and constants."""

from __future__ import annotations

import pytest

from abele.codelet import compile_codelet
from abele.codelet.cpp import load_codelets
from abele.codelet.tables import build_tables
from codelet.cpp.conftest import zeros

VERTEX = """
#include <poplar/Vertex.hpp>
#include <ipudef.h>
using namespace poplar;
class V : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> x;
  Output<Vector<float, VectorLayout::ONE_PTR, 8>> y;
  unsigned n;
  float k;
  bool compute() {
    %s
    return true;
  }
};
"""

LOOPS = {
    # load, sum, store, branch
    "one place": ("for (unsigned i = 0; i < n; i++) y[i] = x[i] + k;", 4),
    # loads and stores at one place step together
    "load and store": ("for (unsigned i = 0; i < n; i++) y[i] = y[i] + x[i];", 5),
    # two loads, sum, store, step, branch
    "neighbours": ("for (unsigned i = 0; i < n; i++) y[i] = x[i] + x[i + 2];", 6),
    # the same with pointers that walk
    "pointers": ("const float *p = &x[0]; for (unsigned i = 0; i < n; i++, p++) y[i] = p[0] + p[2];", 6),
    # an index that is computed with: move, conversion, store, step, branch
    "index": ("for (unsigned i = 0; i < n; i++) y[i] = float(i);", 5),
    # load, constant, product, store, branch
    "constant": ("for (unsigned i = 0; i < n; i++) y[i] = x[i] * 0.5f;", 5),
    # load, constant of two instructions, product, sum with the same, store, branch
    "constant twice": ("for (unsigned i = 0; i < n; i++) y[i] = x[i] * 0.1f + 0.1f;", 7),
    # load, product, store, branch
    "invariant": ("for (unsigned i = 0; i < n; i++) y[i] = x[i] * k;", 4),
    # zero has a register
    "zero": ("for (unsigned i = 0; i < n; i++) y[i] = 0.0f;", 2),
    # load and sum, with the branch beside it
    "sum": ("float t = 0; for (unsigned i = 0; i < n; i++) t += x[i]; y[0] = t;", 2),
    # two loads, two sums, two stores, step, branch: an index that is doubled is one still
    "pairs": ("for (unsigned i = 0; i < n; i++) for (int c = 0; c < 2; c++) y[i * 2 + c] = x[i * 2 + c] + k;", 8),
}


@pytest.mark.parametrize(("code", "num_slots"), LOOPS.values(), ids=LOOPS)
def test_loop__one_more_turn__takes_its_instructions(code: str, num_slots: int) -> None:
    definition = load_codelets(VERTEX % code)["V"]
    made = [{"x": zeros(n * 2 + 2), "y": zeros(n * 2 + 2), "n": n, "k": 1.0} for n in (100, 300)]
    one, two = (int(build_tables(definition, [f]).count(compile_codelet(definition).slots or 0)[0]) for f in made)
    assert (two - one) / 200 == num_slots
