"""Convolutions over four field dimensions, against a sum over kernel positions in PyTorch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from abele.graph import Graph, Sequence
from abele.numerics import f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from poplibs.poplin.support import run_body, system


def reference(params: ConvParams, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The convolution, product by product."""
    groups, rows = params.groups, []
    xs = x.reshape(params.batch, groups, -1, *params.field)
    ws = w.reshape(groups, -1, params.in_channels // groups, *params.kernel)
    for at in product(*(range(n) for n in params.output_field)):
        total = torch.zeros((params.batch, groups, ws.shape[1]), dtype=torch.float64)
        for k in product(*(range(n) for n in params.kernel)):
            found = []
            for d, axis in enumerate(params.axes):
                index, between = divmod(axis.out_step * at[d] + axis.kernel_step * k[d] + axis.offset, axis.in_step)
                found.append(None if between or not 0 <= index < axis.inputs else index)
            if None not in found:
                total = total + torch.einsum("bgi,goi->bgo", xs[(..., *found)], ws[(..., *k)])
        rows.append(total.reshape(params.batch, -1))
    return torch.stack(rows, -1).reshape(params.output_shape)


@pytest.mark.parametrize(
    "params",
    [
        ConvParams(2, 3, 2, (3, 2, 3, 2), (2, 1, 2, 2), padding_lower=(1, 0, 0, 1), stride=(2, 1, 1, 1)),
        ConvParams(1, 4, 4, (2, 3, 2, 3), (2, 2, 1, 2), groups=2, input_dilation=(2, 1, 1, 1), dilation=(1, 2, 1, 1)),
        ConvParams(1, 2, 2, (2, 2, 2, 2, 2), (2, 1, 2, 1, 2), flip=(True, False, False, False, True)),
    ],
    ids=str,
)
def test_convolution__more_than_three_field_dimensions__is_the_sum_of_products(params: ConvParams) -> None:
    graph, prog = Graph(system(16)), Sequence()
    x, z = (graph.variable(f32, s).map_linear() for s in (params.input_shape, params.output_shape))
    w = graph.variable(f32, params.weights_shape).map_linear()
    y = poplin.convolution(graph, x, w, params, prog)
    dx = poplin.convolution_backward_data(graph, z, w, params, prog)
    dw = poplin.calculate_weight_deltas(graph, z, x, params, prog)
    rng = np.random.default_rng(0)
    given = {t: rng.standard_normal(t.shape).astype(np.float32).astype(np.float64) for t in (x, w, z)}
    tx, tw = (torch.tensor(given[t], requires_grad=True) for t in (x, w))
    wanted = reference(params, tx, tw)
    wanted.backward(torch.tensor(given[z]))
    assert tx.grad is not None
    assert tw.grad is not None
    found = run_body(graph, prog, given, y, dx, dw)
    for got, want in zip(found, (wanted.detach(), tx.grad, tw.grad), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-4)
