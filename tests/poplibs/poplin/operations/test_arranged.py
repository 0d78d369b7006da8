from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given

from abele.errors import TensorError
from abele.graph import Copy, Graph, Sequence
from abele.numerics import f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from poplibs.poplin.support import convolutions, reference_conv, run_body, system
from support.examples import examples


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("groups", [0, 3])
def test_matmul_with_output__any_layout__is_written(groups: int) -> None:
    lead = (groups,) if groups else ()
    graph, prog = Graph(system(16)), Sequence()
    a, b, out = (graph.variable(f32, (*lead, *s)).map_linear() for s in ((5, 24), (24, 40), (5, 40)))
    multiply = poplin.matmul_grouped_with_output if groups else poplin.matmul_with_output
    multiply(graph, a, b, out, prog)
    va, vb = numbers(*a.shape), numbers(*b.shape)
    (got,) = run_body(graph, prog, {a: va, b: vb}, out)
    np.testing.assert_allclose(got, va @ vb, rtol=1e-4, atol=1e-4)


def test_matmul_with_output__wrong_shape__is_refused() -> None:
    graph = Graph(system(4))
    a, b, out = (graph.variable(f32, s, n).map_linear() for s, n in (((2, 3), "a"), ((3, 4), "b"), ((4, 2), "c")))
    with pytest.raises(TensorError, match=r"has shape \[4, 2\], the product has \[2, 4\]"):
        poplin.matmul_with_output(graph, a, b, out, Sequence())


def test_create_matmul_output__lies_where_the_product_does() -> None:
    graph, prog = Graph(system(64)), Sequence()
    a = poplin.create_matmul_input_lhs(graph, f32, (32, 64), (64, 48))
    b = poplin.create_matmul_input_rhs(graph, f32, (32, 64), (64, 48))
    made, product = poplin.create_matmul_output(graph, f32, (32, 64), (64, 48)), poplin.matmul(graph, a, b, prog)
    assert made.shape == product.shape
    assert graph.mapping_of(made.flatten()).tile.tolist() == graph.mapping_of(product.flatten()).tile.tolist()


def test_pre_arranged_rhs__product__needs_no_further_arrangement() -> None:
    graph, prog = Graph(system(64)), Sequence()
    a = poplin.create_matmul_input_lhs(graph, f32, (32, 64), (64, 48))
    b = graph.variable(f32, (64, 48)).map_linear()
    arranged = poplin.pre_arrange_matmul_input_rhs(graph, a.shape, b, prog)
    out = poplin.matmul(graph, a, arranged, prog)
    assert isinstance(prog.steps[0], Copy)
    assert not [c.name for c in graph.compute_sets if "rewrite" in c.name]
    va, vb = numbers(*a.shape), numbers(*b.shape)
    (got,) = run_body(graph, prog, {a: va, b: vb}, out)
    np.testing.assert_allclose(got, va @ vb, rtol=1e-4, atol=1e-4)


def test_fully_connected_weight_transpose__backward__is_the_input_gradient() -> None:
    graph, prog = Graph(system(16)), Sequence()
    w, z = graph.variable(f32, (24, 16)).map_linear(), graph.variable(f32, (4, 16)).map_linear()
    back = poplin.matmul(graph, z, poplin.fully_connected_weight_transpose(graph, w, z.shape, prog), prog)
    vw, vz = numbers(24, 16), numbers(4, 16)
    (got,) = run_body(graph, prog, {w: vw, z: vz}, back)
    np.testing.assert_allclose(got, vz @ vw.T, rtol=1e-4, atol=1e-4)


def test_transpose_grouped_matrix__stack__is_a_view() -> None:
    t = Graph(system(4)).variable(f32, (2, 3, 4), "m").map_linear()
    assert poplin.transpose_grouped_matrix(t).shape == (2, 4, 3)
    with pytest.raises(TensorError, match="is not a stack of matrices"):
        poplin.transpose_grouped_matrix(t[0])


def test_weights_transpose_chans_flip_xy__groups__makes_the_backward_weights() -> None:
    params = ConvParams(2, 4, 6, (5, 5), (3, 2), groups=2, padding_lower=(1, 0), padding_upper=(1, 1))
    graph, prog = Graph(system(16)), Sequence()
    w, z = (graph.variable(f32, s).map_linear() for s in (params.weights_shape, params.output_shape))
    turned = graph.variable(f32, (4, 3, 3, 2)).map_linear()
    poplin.weights_transpose_chans_flip_xy(graph, w, turned, prog, groups=2)
    back = params.gradient_params()
    unturned = ConvParams(**{**back.__dict__, "flip": (False, False)})
    dx = poplin.convolution(graph, z, turned, unturned, prog)
    vw, vz = numbers(*w.shape), numbers(*z.shape)
    (got,) = run_body(graph, prog, {w: vw, z: vz}, dx)
    x = torch.zeros(params.input_shape, dtype=torch.float64, requires_grad=True)
    reference_conv(params, x, torch.tensor(vw, dtype=torch.float64)).backward(torch.tensor(vz, dtype=torch.float64))
    assert x.grad is not None
    np.testing.assert_allclose(got, x.grad.numpy(), rtol=1e-4, atol=1e-4)


@examples(12)
@given(convolutions())
def test_weight_update_params__any__is_a_convolution_that_gives_the_weights(params: ConvParams) -> None:
    if any(params.flip):
        with pytest.raises(TensorError, match="kernel runs backwards"):
            params.weight_update_params()
        return
    update = params.weight_update_params()
    assert update.output_field == params.kernel
    for mine, theirs in zip(update.axes, params.axes, strict=True):
        assert mine == theirs.kernel_gradient()


@examples(12)
@given(convolutions())
def test_canonicalize__any__has_the_same_pairs(params: ConvParams) -> None:
    simple = params.canonicalize()
    assert simple.output_shape == params.output_shape
    assert simple.macs == params.macs
    assert simple.canonicalize() == simple
