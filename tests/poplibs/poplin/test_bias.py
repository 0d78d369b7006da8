from __future__ import annotations

import pytest

from abele.errors import TensorError
from abele.graph import Graph, Sequence
from abele.numerics import f32
from abele.poplibs import poplin
from poplibs.poplin.support import system


def test_add_bias__wrong_number__names_both_shapes() -> None:
    graph = Graph(system(4))
    x, biases = graph.variable(f32, (2, 3, 4)).map_linear(), graph.variable(f32, (4,)).map_linear()
    with pytest.raises(TensorError, match=r"add_bias: biases of shape \[4\] for activations of shape \[2, 3, 4\]"):
        poplin.add_bias(graph, x, biases, Sequence())


def test_matmul_acc__wrong_shape__names_both() -> None:
    graph = Graph(system(4))
    a, b, c = (graph.variable(f32, s).map_linear() for s in ((2, 3), (3, 4), (2, 5)))
    with pytest.raises(TensorError, match=r"matmul_acc: c has shape \[2, 5\], the product has \[2, 4\]"):
        poplin.matmul_acc(graph, c, 1.0, a, b, Sequence())


def test_names__poplibs_spelling__is_there() -> None:
    for name in ("matMul", "matMulGrouped", "matMulAcc", "createMatMulInputRHS", "addBias", "calculateWeightDeltas"):
        assert callable(getattr(poplin, name))
