from __future__ import annotations

import numpy as np
import pytest
import torch

from abele.graph import Graph, Sequence
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poputil.layout import create_activations
from poplibs.poplin.support import reference_conv, system
from support.engines import assert_agree, run_both

TOLERANCE = {f32: 2e-5, f16: 6e-3}


@pytest.mark.parametrize("tiles", [4, 64, 1472])
@pytest.mark.parametrize(("dtype", "partials"), [(f32, f32), (f16, f32), (f16, f16)])
def test_matmul__both_engines__agree_with_numpy(tiles: int, dtype: ElementType, partials: ElementType) -> None:
    graph, prog = Graph(system(tiles)), Sequence()
    a = graph.variable(dtype, (40, 200), "a").map_linear()
    b = graph.variable(dtype, (48, 200), "b").map_linear()
    out = poplin.matmul(graph, a, b.T, prog, partials_type=partials)
    rng = np.random.default_rng(1)
    values = {name: rng.standard_normal(t.shape).astype(dtype.np) for name, t in (("a", a), ("b", b))}
    engines = run_both(graph, prog, values, keep=[out])
    wanted = values["a"].astype(np.float64) @ values["b"].astype(np.float64).T
    size = TOLERANCE[dtype] * np.abs(wanted).max()
    np.testing.assert_allclose(engines[0][out], wanted, rtol=TOLERANCE[dtype], atol=size)
    assert_agree(engines, [out], rtol=TOLERANCE[dtype], atol=size)


@pytest.mark.parametrize("tiles", [4, 64, 1472])
@pytest.mark.parametrize(
    "params",
    [
        ConvParams(16, 1, 32, (8, 8), 3, padding_lower=1, padding_upper=1),
        ConvParams(16, 32, 16, (5, 5), 3),
        ConvParams(3, 6, 9, (7, 6), (3, 2), stride=(2, 1), dilation=(1, 2), padding_lower=(1, 0), groups=3),
        ConvParams(2, 4, 6, (5,), 3, stride=2, input_dilation=2, flip=(True,)),
        ConvParams(2, 2, 3, (4, 3, 4), (2, 1, 3), stride=(1, 2, 2), padding_lower=(0, 0, 2)),
    ],
    ids=["first", "second", "grouped", "transposed", "volume"],
)
def test_convolution__both_engines__agree_with_pytorch(tiles: int, params: ConvParams) -> None:
    graph, prog = Graph(system(tiles)), Sequence()
    x = create_activations(graph, f32, params.input_shape, "x")
    w = poplin.create_weights(graph, params, f32, "w")
    dz = create_activations(graph, f32, params.output_shape, "dz")
    y = poplin.convolution(graph, x, w, params, prog)
    dx = poplin.convolution_backward_data(graph, dz, w, params, prog)
    dw = poplin.calculate_weight_deltas(graph, dz, x, params, prog, like=w)
    rng = np.random.default_rng(2)
    values = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, w, dz)}
    engines = run_both(graph, prog, values, keep=[y, dx, dw])
    leaves = [torch.tensor(values[t].astype(np.float64), requires_grad=True) for t in (x, w)]
    result = reference_conv(params, *leaves)
    result.backward(torch.tensor(values[dz].astype(np.float64)))
    for found, wanted in ((y, result.detach()), (dx, leaves[0].grad), (dw, leaves[1].grad)):
        assert wanted is not None
        size = TOLERANCE[f32] * float(wanted.abs().max())
        np.testing.assert_allclose(engines[0][found], wanted.numpy(), rtol=TOLERANCE[f32], atol=size)
        assert_agree(engines, [found], rtol=TOLERANCE[f32], atol=size)


def test_updates__both_engines__agree_with_numpy() -> None:
    graph, prog = Graph(system(64)), Sequence()
    params = ConvParams(4, 8, 16, (6,), 3)
    x, dz = (create_activations(graph, f32, s, n) for s, n in ((params.input_shape, "x"), (params.output_shape, "dz")))
    w, biases = poplin.create_weights(graph, params, f32, "w"), poplin.create_biases(graph, params, f32, "biases")
    c = graph.variable(f32, (24, 16), "c").map_linear()
    a, b = (graph.variable(f32, s, n).map_linear() for s, n in (((24, 32), "a"), ((32, 16), "b")))
    poplin.convolution_weight_update(graph, dz, w, x, params, -0.5, prog)
    poplin.convolution_bias_update(graph, dz, biases, -0.25, prog)
    poplin.add_bias(graph, dz, biases, prog)
    poplin.matmul_acc(graph, c, 2.0, a, b, prog)
    rng = np.random.default_rng(3)
    values = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, dz, w, biases, c, a, b)}
    engines = run_both(graph, prog, values, keep=[w, biases, dz, c])
    weights = torch.tensor(values[w].astype(np.float64), requires_grad=True)
    reference_conv(params, torch.tensor(values[x].astype(np.float64)), weights).backward(
        torch.tensor(values[dz].astype(np.float64))
    )
    assert weights.grad is not None
    updated = values[biases] - 0.25 * values[dz].sum(axis=(0, 2))
    wanted = {
        w: values[w] - 0.5 * weights.grad.numpy(),
        biases: updated,
        dz: values[dz] + updated[:, None],
        c: values[c] + 2 * values[a].astype(np.float64) @ values[b],
    }
    for tensor, value in wanted.items():
        np.testing.assert_allclose(engines[0][tensor], value, rtol=1e-5, atol=1e-4)
    assert_agree(engines, wanted, rtol=1e-5, atol=1e-4)
