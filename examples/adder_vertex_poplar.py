"""Poplar's introduction, line by line: two adder vertices on two tiles, under Poplar's own names.

The comments show the C++ of the introduction where it differs. Two places of it are loose, and are made definite here:

- ``y`` of the codelet is one float, but the slices wired to it show two elements each (``{3, 1}`` to ``{4, 3}`` is
  row 3, columns 1 and 2). A field of one element takes a tensor of one element, so each slice is narrowed to its first.
- ``bias`` is never given a value. A state field needs one: 0.5 here.

The same program in this library's own style is ``adder_vertex.py``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from abele.poplar import FLOAT, Engine, Graph, Input, IPUModel, Output, Vertex, codelet
from abele.poplar.program import Execute, Sequence

BIAS = 0.5

CPP = """
#include <poplar/Vertex.hpp>

using namespace poplar;

class AdderVertex : public Vertex {
public:
    Input<float> x;
    Input<float> y;
    Output<float> z;
    float bias;

    bool compute() {
        *z = x + y + bias;
        return true;
    }
};
"""
"""The codelet as the introduction shows it; it lacks only the two lines at the top and the semicolon at the end."""


@codelet
class AdderVertex(Vertex):  # class AdderVertex : public Vertex {
    x: Input[FLOAT]  # Input<float> x;
    y: Input[FLOAT]  # Input<float> y;
    z: Output[FLOAT]  # Output<float> z;
    bias: FLOAT  # float bias;

    def compute(self):  # bool compute() {
        self.z = self.x + self.y + self.bias  # *z = x + y + bias; return true; }


def build(codelets: type | str | Path = AdderVertex) -> Engine:
    """The engine of the introduction; ``codelets`` may be the path of a C++ file with the codelet."""
    device = IPUModel().createDevice()

    g = Graph(device)  # Graph g(device);
    g.addCodelets(codelets)  # g.addCodelets("codelets.cpp");

    t1 = g.addVariable(FLOAT, [4, 5], "t1")  # Tensor t1 = g.addVariable(FLOAT, {4, 5});
    t2 = g.addVariable(FLOAT, [4], "t2")  # Tensor t2 = g.addVariable(FLOAT, {4});

    cs = g.addComputeSet("myComputeSet")

    v1 = g.addVertex(cs, "AdderVertex")  # VertexRef v1 = g.addVertex(cs, "AdderVertex");
    v2 = g.addVertex(cs, "AdderVertex")

    g.connect(t1[1][1], v1["x"])
    g.connect(t1.slice([3, 1], [4, 3]).flatten()[0], v1["y"])  # g.connect(t1.slice({3, 1}, {4, 3}), v1["y"]);
    g.connect(t2[0], v1["z"])

    g.connect(t1[0][3], v2["x"])
    g.connect(t1.slice([2, 2], [3, 4]).flatten()[0], v2["y"])  # g.connect(t1.slice({2, 2}, {3, 4}), v2["y"]);
    g.connect(t2[3], v2["z"])

    g.setInitialValue(v1["bias"], BIAS)  # not in the introduction
    g.setInitialValue(v2["bias"], BIAS)

    g.setTileMapping(t1.slice([0, 0], [4, 2]), 0)
    g.setTileMapping(t1.slice([0, 2], [4, 5]), 1)
    g.setTileMapping(t2, 2)

    g.setTileMapping(v1, 0)
    g.setTileMapping(v2, 1)

    g.createHostWrite("t1", t1)  # the introduction moves no data; this is Poplar's simplest way
    g.createHostRead("t2", t2)

    prog = Sequence()  # auto prog = Sequence();
    prog.add(Execute(cs))  # prog.add(Execute(cs));

    eng = Engine(device, g, [prog])  # Engine eng(device, graph, {prog});
    eng.load(device)
    return eng


def main(codelets: type | str | Path = AdderVertex) -> np.ndarray:
    """Run it on the numbers 0 to 19; returns the two results."""
    with build(codelets) as eng:
        eng.writeTensor("t1", np.arange(20, dtype=np.float32))
        eng.run(0)  # eng.run(0);
        t2 = eng.readTensor("t2")
        print(f"t2[0] = {t2[0]}, t2[3] = {t2[3]}")
        eng.printProfileSummary()
    return t2[[0, 3]]


if __name__ == "__main__":
    main()
