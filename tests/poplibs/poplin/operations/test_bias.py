from __future__ import annotations

import pytest

from abele.errors import InvalidOptionError, TensorError
from abele.graph import Graph, Sequence
from abele.numerics import f32
from abele.poplibs import poplin
from poplibs.poplin.support import system


def test_add_bias__wrong_number__names_both_shapes() -> None:
    graph = Graph(system(4))
    x, biases = graph.variable(f32, (2, 3, 4)).map_linear(), graph.variable(f32, (4,)).map_linear()
    with pytest.raises(TensorError, match=r"add_bias: biases .*f32\[4\].* do not fit activations .*f32\[2, 3, 4\]"):
        poplin.add_bias(graph, x, biases, Sequence())


def test_matmul_acc__wrong_shape__names_both() -> None:
    graph = Graph(system(4))
    a, b, c = (graph.variable(f32, s).map_linear() for s in ((2, 3), (3, 4), (2, 5)))
    with pytest.raises(TensorError, match=r"matmul_acc: c .* has shape \[2, 5\], the product has \[2, 4\]"):
        poplin.matmul_acc(graph, c, 1.0, a, b, Sequence())


def test_names__poplibs_spelling__is_there() -> None:
    for name in ("matMul", "matMulGrouped", "matMulAcc", "createMatMulInputRHS", "addBias", "calculateWeightDeltas"):
        assert callable(getattr(poplin, name))


def test_bias_functions__options_of_poplibs__are_taken_and_misspelt_ones_refused() -> None:
    graph, prog = Graph(system(4)), Sequence()
    params = poplin.ConvParams(2, 3, 3, (4,), (1,))
    x, biases = graph.variable(f32, (2, 3, 4), name="x").map_linear(), poplin.create_biases(graph, params, f32)
    poplin.add_bias(graph, x, biases, prog, options={"availableMemoryProportion": "0.1"})
    poplin.convolution_bias_update(graph, x, biases, 0.5, prog, options={"partialsType": "float"})
    for call in (
        lambda options: poplin.create_biases(graph, params, f32, options=options),
        lambda options: poplin.add_bias(graph, x, biases, prog, options=options),
        lambda options: poplin.convolution_bias_update(graph, x, biases, 0.5, prog, options=options),
    ):
        with pytest.raises(InvalidOptionError, match="has no option 'partialTypes'; did you mean 'partialsType'"):
            call({"partialTypes": "half"})


def test_bias_update__gradients_that_do_not_fit__are_named() -> None:
    graph, prog = Graph(system(4)), Sequence()
    biases, flat = (graph.variable(f32, s, name="b").map_linear() for s in ((4,), (2,)))
    x = graph.variable(f32, (2, 3, 4), name="x").map_linear()
    with pytest.raises(TensorError, match=r"convolution_bias_update: biases .*'b'.* do not fit gradients .*'x'"):
        poplin.convolution_bias_update(graph, x, biases, 0.5, prog)
    with pytest.raises(TensorError, match="has no channels"):
        poplin.bias_gradient(graph, flat, prog)
