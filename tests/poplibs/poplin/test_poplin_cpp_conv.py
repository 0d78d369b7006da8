"""Convolutions in PopLibs' words, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from poplibs_kit import Bench, system_of

from abele import Graph
from abele.errors import TensorError, TypeMismatchError, UnsupportedOpError
from abele.graph import Sequence
from abele.numerics import f16, f32
from abele.poplar import Target
from abele.poplibs import poplin

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def strided(groups: int = 1) -> Any:
    """A convolution with stride 2 and padding, its fields set one by one."""
    params = poplin.ConvParams(f32, 2, [9, 8], [3, 3], 4, 6, groups)
    params.inputTransform.paddingLower = [1, 0]
    params.inputTransform.paddingUpper = [1, 2]
    params.outputTransform.stride = [2, 2]
    return params


def torch_conv(x: Any, w: Any, groups: int) -> Any:
    """The same by PyTorch; weights [groups, out, in, 3, 3]."""
    padded = torch.nn.functional.pad(x, (0, 2, 1, 1))
    return torch.nn.functional.conv2d(padded, w.reshape(-1, *w.shape[2:]), stride=2, groups=groups)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution__forward_backward_and_update__equal_pytorch(groups: int) -> None:
    params = strided(groups)
    x = torch.tensor(numbers(2, 4 * groups, 9, 8), requires_grad=True)
    w = torch.tensor(numbers(groups, 6, 4, 3, 3), requires_grad=True)
    y = torch_conv(x, w, groups)
    dy = torch.tensor(numbers(*y.shape))
    y.backward(dy)

    bench = Bench()
    g, prog = bench.graph, bench.prog
    acts, weights, deltas = (bench.tensor(t.detach().numpy()) for t in (x, w, dy))
    out = poplin.convolution(g, acts, weights, params, False, prog, "fwd", {"partialsType": "float"})
    back = poplin.convolution(g, deltas, weights, poplin.getGradientParams(params), True, prog, "bwd")
    turned = g.variable(f32, [groups, 4, 6, 3, 3], "turned")
    g.map_linear(turned)
    poplin.weightsTransposeChansFlipXY(g, weights, turned, prog, "turn")
    again = poplin.convolution(g, deltas, turned, poplin.getGradientParams(params), False, prog, "bwd2")
    gradient = poplin.calculateWeightDeltas(g, deltas, acts, params, prog, "wu", {}, poplin.PlanningCache())
    got = bench.run_both(out, back, again, gradient)
    for found, wanted in zip(got, (y, x.grad, x.grad, w.grad), strict=True):
        np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-4, atol=1e-4)


def test_weight_update__in_place__adds_the_scaled_gradient() -> None:
    params = strided()
    x, w = torch.tensor(numbers(2, 4, 9, 8)), torch.tensor(numbers(1, 6, 4, 3, 3), requires_grad=True)
    y = torch_conv(x, w, 1)
    dy = torch.tensor(numbers(*y.shape))
    y.backward(dy)
    bench = Bench()
    acts, weights, deltas = (bench.tensor(t.detach().numpy()) for t in (x, w, dy))
    poplin.convolutionWeightUpdate(bench.graph, deltas, weights, acts, params, -0.5, bench.prog, "update")
    wanted = w.detach().numpy() - 0.5 * w.grad.numpy()
    np.testing.assert_allclose(bench.run_both(weights)[0], wanted, rtol=1e-4, atol=1e-4)


def test_operands__made_from_the_parameters__have_poplibs_shapes_and_types() -> None:
    graph, params = Graph(system_of(16)), poplin.ConvParams(f16, f32, 2, [9, 8], [3, 3], 4, 6, 2)
    weights = poplin.createWeights(graph, params, "w", {"partialsType": "float"}, poplin.PlanningCache())
    acts = poplin.createInput(graph, params, "in")
    assert (weights.shape, weights.dtype) == ((2, 6, 4, 3, 3), f16)
    assert (acts.shape, acts.dtype) == ((2, 8, 9, 8), f16)
    out = poplin.convolution(graph, acts, weights, params, False, Sequence(), "conv")
    biases = poplin.createBiases(graph, out, "b")
    assert (out.shape, out.dtype, biases.shape) == ((2, 12, 7, 6), f32, (12,))
    assert params.getOutputFieldShape() == [7, 6]
    assert (params.getNumOutputChans(), params.getNumOutputChansPerConvGroup()) == (12, 6)


def test_convolution__cut_and_padded__equals_numpy() -> None:
    params = poplin.ConvParams(f32, 1, [8], [3], 2, 2, 1)
    params.inputTransform = poplin.ConvParams.InputTransform(truncationLower=[1], flip=[True])
    params.outputTransform.paddingUpper = [2]
    x, w = numbers(1, 2, 8), numbers(1, 2, 2, 3)
    wanted = torch.nn.functional.conv1d(torch.tensor(x[:, :, :0:-1].copy()), torch.tensor(w[0]))
    bench = Bench()
    out = poplin.convolution(bench.graph, bench.tensor(x), bench.tensor(w), params, False, bench.prog)
    np.testing.assert_allclose(
        bench.run_both(out)[0], np.pad(wanted.numpy(), ((0, 0), (0, 0), (0, 2))), rtol=1e-5, atol=1e-5
    )
    with pytest.raises(UnsupportedOpError, match="getGradientParams"):
        poplin.getGradientParams(params)


def test_parameters__ours__take_poplibs_order_of_the_call_too() -> None:
    params = poplin.ConvParams(1, 4, 4, (6, 6), (3, 3))
    x, w = numbers(1, 4, 6, 6), numbers(4, 4, 3, 3)
    bench = Bench()
    out = poplin.convolution(bench.graph, bench.tensor(x), bench.tensor(w), params, False, bench.prog, "c", {})
    wanted = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w)).numpy()
    np.testing.assert_allclose(bench.run_both(out)[0], wanted, rtol=1e-4, atol=1e-4)


def test_flops__of_poplibs_parameters__are_those_of_ours() -> None:
    ours = poplin.ConvParams(2, 4, 6, (9, 8), (3, 3), (2, 2), padding_lower=(1, 0), padding_upper=(1, 2))
    graph = Graph(system_of(16))
    assert poplin.getFwdFlops(strided()) == poplin.get_fwd_flops(ours)
    assert poplin.getFwdPerfectCycleCount(graph, strided()) == poplin.get_fwd_perfect_cycle_count(graph, ours, f32)
    assert poplin.getInputIndex(0, 1, 2, strided()) == poplin.get_input_index(0, 1, 2, ours)


def test_preplan__sets_of_both__are_planned() -> None:
    graph = Graph(system_of(16))
    cache = poplin.PlanningCache()
    product = poplin.MatMulParams(f32, f32, (4, 8), (8, 4))
    poplin.preplan([(Target(graph.system), strided(), None)], [(graph.getTarget(), product, {})], cache)
    poplin.preplanMatMuls([(Target(graph.system), product, {"partialsType": "float"})], cache)
    poplin.preplanConvolutions([(Target(graph.system), strided(), {})], cache)
    with pytest.raises(TypeMismatchError, match=r"preplan: .* is not \(target, MatMulParams, options\)"):
        poplin.preplanMatMuls([(4, 8)], cache)


def test_weights__of_another_shape__are_refused() -> None:
    bench = Bench()
    x, w = bench.tensor(numbers(2, 4, 9, 8)), bench.tensor(numbers(6, 4, 3, 3))
    with pytest.raises(TensorError, match=r"the convolution needs \[1, 6, 4, 3, 3\]"):
        poplin.convolution(bench.graph, x, w, strided(), False, bench.prog)


def test_parameters__too_few__are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="ConvParams: 3 arguments after a type"):
        poplin.ConvParams(f32, 2, [9, 8])
